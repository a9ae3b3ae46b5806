//! What Freehold costs, measured on the real `freehold up`: memory, time to ready, time and CPU of requests.
//!
//! `make bench` runs everything and writes the tables of `docs/benchmarks.md`; `make bench ARGS="--only shared"` runs one
//! part and only prints. A bound that is missed is shown, and is no failure of the run: what a figure may be on a slow
//! or busy machine is for its reader to say.
//!
//! Must not know anything of Freehold beyond its program and its API.

mod dedicated;
mod document;
mod idle;
mod machine;
mod process;
mod projects;
mod report;
mod requests;
mod shared;
mod stats;
mod watchers;
mod world;

use anyhow::Result;
use clap::{Parser, ValueEnum};
use report::Report;
use std::path::PathBuf;

/// Measures what Freehold costs.
#[derive(Parser)]
#[command(name = "freehold-bench")]
pub(crate) struct Options {
    /// Measures these parts alone, and prints without writing.
    #[arg(long, env = "FREEHOLD_BENCH_ONLY", value_delimiter = ',')]
    only: Vec<Part>,
    /// How many shared projects to make.
    #[arg(long, env = "FREEHOLD_BENCH_PROJECTS", default_value_t = 1000)]
    projects: usize,
    /// How many projects or requests are under way at once where throughput is measured.
    #[arg(long, env = "FREEHOLD_BENCH_CONCURRENCY", default_value_t = 16)]
    concurrency: usize,
    /// How many requests of each kind to send.
    #[arg(long, env = "FREEHOLD_BENCH_REQUESTS", default_value_t = 2000)]
    requests: usize,
    /// What keeps the objects.
    #[arg(long, env = "FREEHOLD_BENCH_ENGINE", default_value = "embedded")]
    engine: Engine,
    /// The document whose tables are written.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/benchmarks.md"))]
    document: PathBuf,
    /// Shows what the server's memory is made of at each rest, from `/proc/PID/smaps`.
    #[arg(long)]
    maps: bool,
}

/// A part of the measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// A server without projects.
    Idle,
    /// Shared projects.
    Shared,
    /// A dedicated pair.
    Dedicated,
    /// Requests in one shared project.
    Requests,
}

/// What keeps the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    /// The embedded engine.
    Embedded,
    /// A real etcd with one member.
    Etcd,
}

impl Engine {
    /// As flags and the document name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Etcd => "etcd",
        }
    }
}

// One thread: the client must not take more of a small machine from the server than it has to.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let options = Options::parse();
    let machine = machine::describe(&std::env::temp_dir());
    println!("{machine}");
    let mut report = Report::default();
    let wanted = |part| options.only.is_empty() || options.only.contains(&part);
    if wanted(Part::Idle) {
        idle::measure(&options, &mut report).await?;
    }
    if wanted(Part::Shared) {
        shared::measure(&options, &mut report).await?;
    }
    if wanted(Part::Dedicated) {
        dedicated::measure(&options, &mut report).await?;
    }
    if wanted(Part::Requests) {
        requests::measure(&options, &mut report).await?;
    }
    if options.only.is_empty() {
        document::write(&options, &machine, &report)?;
        println!("\nwritten to {}", options.document.display());
    }
    Ok(())
}
