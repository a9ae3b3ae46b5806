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

use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};
use report::Report;
use std::path::PathBuf;
use std::time::Instant;
use subject::Kind;
use tokio::signal::unix::{SignalKind, signal};

/// So many planes are measured with all the rest; more have tables of their own.
const PLANES: usize = 10_000;

/// Measures what Freehold costs.
#[derive(Parser)]
#[command(name = "freehold-bench")]
pub(crate) struct Options {
    /// Measures these parts alone, and prints without writing.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Part>,
    /// Writes the document although only some parts or servers are measured.
    #[arg(long)]
    write: bool,
    /// Measures these servers alone.
    #[arg(long, value_delimiter = ',', default_values_t = Kind::ALL.map(Server))]
    servers: Vec<Server>,
    /// The kubeconfig of a kube-apiserver to compare with. Without it one is started, with an etcd of its own.
    #[arg(long)]
    peer_kubeconfig: Option<PathBuf>,
    /// Its URL, where that is not the kubeconfig's.
    #[arg(long, requires = "peer_kubeconfig")]
    peer_url: Option<String>,
    /// The processes whose CPU and memory count as its own, the server first; without them there are only times.
    #[arg(long, value_delimiter = ',', requires = "peer_kubeconfig")]
    peer_pids: Vec<u32>,
    /// How many requests of each kind to send.
    #[arg(long, default_value_t = 4000)]
    requests: usize,
    /// How many requests are under way at once where throughput is measured.
    #[arg(long, default_value_t = 16)]
    concurrency: usize,
    /// How many objects to list and to keep.
    #[arg(long, default_value_t = 10_000)]
    objects: usize,
    /// How many watch the same namespace.
    #[arg(long, default_value_t = 1000)]
    watchers: usize,
    /// How many events each of them gets.
    #[arg(long, default_value_t = 1000)]
    events: usize,
    /// How many tenants send a mixture of requests.
    #[arg(long, default_value_t = 1000)]
    tenants: usize,
    /// How many objects the large plane has.
    #[arg(long, default_value_t = 100_000)]
    large: usize,
    /// How many planes to make, fill and delete.
    #[arg(long, default_value_t = PLANES)]
    planes: usize,
    /// Fills one plane of `sync` alone, and makes the others as forks of it: that takes a tenth of the time. The controller
    /// manager needs the same memory as with planes that were filled one by one, and more CPU.
    #[arg(long)]
    forks: bool,
    /// How many one-task runs of workflows are counted; 0 leaves that out, as it does for the four sizes that follow.
    #[arg(long, default_value_t = 6000)]
    runs: usize,
    /// How many runs of tasks after each other are timed step by step.
    #[arg(long, default_value_t = 4)]
    chains: usize,
    /// How many tasks the largest run of a workflow has.
    #[arg(long, default_value_t = 100_000)]
    tasks: usize,
    /// How many runs of ten tasks are under way at once.
    #[arg(long, default_value_t = 10_000)]
    live_runs: usize,
    /// How many schedules there are, ten in each project.
    #[arg(long, default_value_t = 10_000)]
    schedules: usize,
    /// How many namespaces of tenants there are.
    #[arg(long, default_value_t = 10_000)]
    spaces: usize,
    /// How many seconds the planes are left alone before the memory of idle ones is read. A server drops a plane from
    /// memory when nobody has used it for five minutes, or sooner where memory is wanted.
    #[arg(long, default_value_t = 0)]
    settle: u64,
    /// The document whose tables are written.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/benchmarks.md"))]
    document: PathBuf,
    /// Shows what a server's memory is made of at each rest, from `/proc/PID/smaps`.
    #[arg(long)]
    maps: bool,
    /// Floods a project until it is ended: what a measurement starts beside itself.
    #[arg(long, hide = true)]
    flood: Option<PathBuf>,
    /// What this run's namespaces end with, so that one in a server that was there before meets nothing of another.
    #[arg(skip = std::process::id())]
    run: u32,
}

impl Options {
    /// A namespace of this run.
    pub(crate) fn namespace(&self, name: &str) -> String {
        format!("bench-{name}-{}", self.run)
    }
}

/// A server, by its name on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Server(Kind);

impl std::str::FromStr for Server {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Kind::from_str(text, true).map(Self)
    }
}

impl std::fmt::Display for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.0.to_possible_value();
        f.write_str(name.as_ref().map(|name| name.get_name()).unwrap_or_default())
    }
}

/// A part of the measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// A server that nobody uses.
    Idle,
    /// One object at a time.
    Verbs,
    /// Lists of many objects, and what keeping them costs.
    Lists,
    /// Many watchers of one namespace.
    Watches,
    /// Many tenants at once.
    Mixed,
    /// Some tenants beside one that asks for far more than its share.
    Fairness,
    /// Custom resource definitions by the thousand.
    Crds,
    /// An admission webhook.
    Webhooks,
    /// One plane of very many objects.
    Large,
    /// Deletions of much at once.
    Controllers,
    /// A controller manager over planes by the thousand.
    Sync,
    /// A kind that planes by the thousand consume.
    Apis,
    /// Planes by the thousand.
    Planes,
    /// Dedicated pairs.
    Dedicated,
    /// The console in a browser.
    Console,
    /// Controllers of workflows, with Pods that end at once.
    Workflow,
    /// Tenants and namespaces by the thousand.
    Tenancy,
    /// Planes by the million, by arithmetic and simulation: no server is started.
    Scale,
}

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
