//! What Freehold costs, measured on the real `freehold up` beside a real kube-apiserver: CPU and time of requests,
//! memory, disk, and planes by the thousand.
//!
//! `make bench` runs everything and writes `docs/benchmarks.md`; `make bench ARGS="--only verbs"` runs one part and only
//! prints, unless `--write` is given too. A goal that is missed is shown, and is no failure of the run: what a figure may
//! be on a slow or busy machine is for its reader to say. A server that dies is one.
//!
//! Must not know anything of Freehold beyond its program and its API.

mod apis;
mod console;
mod controllers;
mod crds;
mod dedicated;
mod document;
mod fairness;
mod fanout;
mod goals;
mod idle;
mod large;
mod lists;
mod load;
mod machine;
mod mixed;
mod objects;
mod options;
mod planes;
mod process;
mod projects;
mod report;
mod scale;
mod stats;
mod subject;
mod sync;
mod tenancy;
mod verbs;
mod watchers;
mod webhooks;
mod workflow;

use crate::options::{Options, PLANES, Part, Server};
use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};
use report::Report;
use std::time::Instant;
use subject::Kind;
use tokio::signal::unix::{SignalKind, signal};

impl Part {
    /// The servers that a part makes sense for.
    fn kinds(self) -> &'static [Kind] {
        match self {
            Self::Scale => &[],
            Self::Sync | Self::Console | Self::Workflow => &[Kind::Embedded],
            Self::Large
            | Self::Controllers
            | Self::Apis
            | Self::Planes
            | Self::Dedicated
            | Self::Fairness => &Kind::FREEHOLD,
            _ => &Kind::ALL,
        }
    }

    /// Its name, as flags and the document have it.
    fn name(self, options: &Options) -> String {
        let value = self.to_possible_value();
        let name = value.as_ref().map(|value| value.get_name()).unwrap_or_default();
        match self {
            Self::Planes | Self::Console if options.planes > PLANES => format!("{name}-{}", options.planes),
            _ => name.to_owned(),
        }
    }

    async fn measure(self, kind: Kind, options: &Options, report: &mut Report) -> Result<()> {
        match self {
            Self::Idle => idle::measure(kind, options, report).await,
            Self::Verbs => verbs::measure(kind, options, report).await,
            Self::Lists => lists::measure(kind, options, report).await,
            Self::Watches => fanout::measure(kind, options, report).await,
            Self::Mixed => mixed::measure(kind, options, report).await,
            Self::Fairness => fairness::measure(kind, options, report).await,
            Self::Crds => crds::measure(kind, options, report).await,
            Self::Webhooks => webhooks::measure(kind, options, report).await,
            Self::Large => large::measure(kind, options, report).await,
            Self::Controllers => controllers::measure(kind, options, report).await,
            Self::Sync => sync::measure(kind, options, report).await,
            Self::Apis => apis::measure(kind, options, report).await,
            Self::Planes => planes::measure(kind, options, report).await,
            Self::Dedicated => dedicated::measure(kind, options, report).await,
            Self::Console => console::measure(kind, options, report).await,
            Self::Workflow => workflow::measure(kind, options, report).await,
            Self::Tenancy => tenancy::measure(kind, options, report).await,
            Self::Scale => Ok(()),
        }
    }
}

// One thread: the client must not take more of a small machine from the server than it has to.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let options = Options::parse();
    if let Some(kubeconfig) = &options.flood {
        return fairness::flood(kubeconfig).await;
    }
    let mut end = signal(SignalKind::terminate())?;
    // What is dropped stops its servers.
    tokio::select! {
        measured = measure(&options) => measured,
        _ = tokio::signal::ctrl_c() => bail!("interrupted"),
        _ = end.recv() => bail!("asked to end"),
    }
}

async fn measure(options: &Options) -> Result<()> {
    let machine = machine::describe(&std::env::temp_dir());
    println!("{machine}");
    let all = options.only.is_empty() && options.servers.len() == Kind::ALL.len();
    let wanted = |part: &&Part| options.only.is_empty() || options.only.contains(part);
    for part in Part::value_variants().iter().filter(wanted) {
        if *part == Part::Scale {
            scale::run(options)?;
            continue;
        }
        let name = part.name(options);
        let mut report = Report::default();
        for kind in part.kinds().iter().filter(|kind| options.servers.contains(&Server(**kind))) {
            let begun = Instant::now();
            let measured = part.measure(*kind, options, &mut report).await;
            measured.with_context(|| format!("{name}, {}", kind.heading()))?;
            println!("{:<14} {name}: {:.0} s\n", kind.heading(), begun.elapsed().as_secs_f64());
        }
        if all || options.write {
            document::write(options, &machine, &name, &report)?;
            println!("{name}: written to {}\n", options.document.display());
        }
    }
    Ok(())
}
