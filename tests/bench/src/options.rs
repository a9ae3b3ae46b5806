//! What a run measures, as its command line says.

use crate::subject::Kind;
use clap::{Parser, ValueEnum};
use std::path::PathBuf;

/// So many planes are measured with all the rest; more have tables of their own.
pub(crate) const PLANES: usize = 10_000;

/// Measures what Freehold costs.
#[derive(Parser)]
#[command(name = "freehold-bench")]
pub(crate) struct Options {
    /// Measures these parts alone, and prints without writing.
    #[arg(long, value_delimiter = ',')]
    pub(crate) only: Vec<Part>,
    /// Writes the document although only some parts or servers are measured.
    #[arg(long)]
    pub(crate) write: bool,
    /// Measures these servers alone.
    #[arg(long, value_delimiter = ',', default_values_t = Kind::ALL.map(Server))]
    pub(crate) servers: Vec<Server>,
    /// The kubeconfig of a kube-apiserver to compare with. Without it one is started, with an etcd of its own.
    #[arg(long)]
    pub(crate) peer_kubeconfig: Option<PathBuf>,
    /// Its URL, where that is not the kubeconfig's.
    #[arg(long, requires = "peer_kubeconfig")]
    pub(crate) peer_url: Option<String>,
    /// The processes whose CPU and memory count as its own, the server first; without them there are only times.
    #[arg(long, value_delimiter = ',', requires = "peer_kubeconfig")]
    pub(crate) peer_pids: Vec<u32>,
    /// How many requests of each kind to send.
    #[arg(long, default_value_t = 4000)]
    pub(crate) requests: usize,
    /// How many requests are under way at once where throughput is measured.
    #[arg(long, default_value_t = 16)]
    pub(crate) concurrency: usize,
    /// How many objects to list and to keep.
    #[arg(long, default_value_t = 10_000)]
    pub(crate) objects: usize,
    /// How many watch the same namespace.
    #[arg(long, default_value_t = 1000)]
    pub(crate) watchers: usize,
    /// How many events each of them gets.
    #[arg(long, default_value_t = 1000)]
    pub(crate) events: usize,
    /// How many tenants send a mixture of requests.
    #[arg(long, default_value_t = 1000)]
    pub(crate) tenants: usize,
    /// How many objects the large plane has.
    #[arg(long, default_value_t = 100_000)]
    pub(crate) large: usize,
    /// How many planes to make, fill and delete.
    #[arg(long, default_value_t = PLANES)]
    pub(crate) planes: usize,
    /// Fills one plane of `sync` alone, and makes the others as forks of it: that takes a tenth of the time. The controller
    /// manager needs the same memory as with planes that were filled one by one, and more CPU.
    #[arg(long)]
    pub(crate) forks: bool,
    /// How many one-task runs of workflows are counted; 0 leaves that out, as it does for the four sizes that follow.
    #[arg(long, default_value_t = 6000)]
    pub(crate) runs: usize,
    /// How many runs of tasks after each other are timed step by step.
    #[arg(long, default_value_t = 4)]
    pub(crate) chains: usize,
    /// How many tasks the largest run of a workflow has.
    #[arg(long, default_value_t = 100_000)]
    pub(crate) tasks: usize,
    /// How many runs of ten tasks are under way at once.
    #[arg(long, default_value_t = 10_000)]
    pub(crate) live_runs: usize,
    /// How many schedules there are, ten in each project.
    #[arg(long, default_value_t = 10_000)]
    pub(crate) schedules: usize,
    /// How many namespaces of tenants there are.
    #[arg(long, default_value_t = 10_000)]
    pub(crate) spaces: usize,
    /// How many seconds the planes are left alone before the memory of idle ones is read. A server drops a plane from
    /// memory when nobody has used it for five minutes, or sooner where memory is wanted.
    #[arg(long, default_value_t = 0)]
    pub(crate) settle: u64,
    /// The document whose tables are written.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/benchmarks.md"))]
    pub(crate) document: PathBuf,
    /// Shows what a server's memory is made of at each rest, from `/proc/PID/smaps`.
    #[arg(long)]
    pub(crate) maps: bool,
    /// Floods a project until it is ended: what a measurement starts beside itself.
    #[arg(long, hide = true)]
    pub(crate) flood: Option<PathBuf>,
    /// What this run's namespaces end with, so that one in a server that was there before meets nothing of another.
    #[arg(skip = std::process::id())]
    pub(crate) run: u32,
}

impl Options {
    /// A namespace of this run.
    pub(crate) fn namespace(&self, name: &str) -> String {
        format!("bench-{name}-{}", self.run)
    }
}

/// A server, by its name on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Server(pub(crate) Kind);

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
