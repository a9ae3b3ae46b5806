//! Controllers of the workflow subsystem, on any Kubernetes API.
//!
//! - `dags` makes runs when they are due, tells whether definitions are valid, and deletes old runs.
//! - `runs` carries runs out: it feeds what happens to the engine, does what the engine says, and writes statuses.
//!
//! Guarantees: a Pod is created under a name that follows from run, task and attempt, and only where it does not exist; it has
//! a finalizer until its end is in its run's status; a status is written at most once a second, but for a run's end. A
//! controller that dies at any write leaves nothing that another one does not take up.

pub mod admission;
mod artifacts;
mod dags;
mod definition;
mod execute;
mod figures;
mod kinds;
mod kontroler;
mod live;
mod manifests;
mod memo;
mod namespace;
mod notify;
mod observer;
mod outputs;
mod pages;
mod pods;
mod runs;
mod script;
mod trace;
mod view;

pub use artifacts::{CONFIG as ARTIFACT_CONFIG, Repository, RepositoryConfig};
pub use figures::Figures;
pub use freehold_workflow_outbound::{Credentials, Networks};
pub use manifests::{manifests, roles, webhook_roles};
pub use namespace::namespace_uid;
pub use observer::Observer;
pub use pods::MAIN;

use freehold_runtime::{Key, Outcome, Reconciled, Scope, Shared, Shares, Subsystem};
use std::sync::Arc;
use std::time::Duration;

/// The workflow subsystem.
pub const SUBSYSTEM: Subsystem = Subsystem {
    name: "workflow",
    about: "Runs DAGs of Pods, on schedule or on demand.",
    crds: freehold_workflow_api::crds,
    manifests,
    admission: Some(admission::ADMISSION),
    reads: None,
    start: |scope| drop(start(scope, Options { kontroler: true, ..Options::default() })),
};

/// How controllers run.
#[derive(Clone, Default)]
pub struct Options {
    /// The install whose objects they work on: those with this label `workflow.freehold.dev/instance`, or without one.
    pub instance: String,
    /// Whether HTTP tasks are done. Requests come from the controller, with its access to the network.
    pub http: bool,
    /// Who keeps history and logs.
    pub observer: Option<Arc<dyn Observer>>,
    /// The namespaces whose runs these controllers carry out, where several divide them; `None`: all.
    pub shares: Option<Arc<Shares>>,
    /// Where artifacts of namespaces are that say nothing themselves.
    pub artifacts: Option<Arc<Repository>>,
    /// The image of this program, which Pods with artifacts begin with; empty: `freehold`.
    pub image: String,
    /// Where servers may be that notifications go to.
    pub networks: Networks,
    /// The collector that traces of runs go to: `http://collector:4318`. Empty: none.
    pub traces: String,
    /// What the controllers count.
    pub figures: Arc<Figures>,
    /// Whether Kontroler's kinds are served and converted.
    pub kontroler: bool,
}

/// When an object is looked at again whose share has to be renewed first.
const RENEWAL: Duration = Duration::from_millis(200);

/// Parts that the namespaces of an install are divided into.
pub const PARTS: u32 = 64;

impl Options {
    /// The part of the work that an object's namespace belongs to. Locks, children and schedules stay within a namespace, and so
    /// with one controller.
    fn part(shares: &Shares, key: &Key) -> u32 {
        shares.part_of(&[key.plane.as_str(), &key.namespace])
    }

    /// Whether an object is these controllers' at this moment.
    fn is_ours(&self, key: &Key) -> bool {
        self.shares.as_ref().is_none_or(|shares| shares.is_ours(Self::part(shares, key)))
    }

    /// Reconciles an object, if and as long as it is these controllers'; `None` where it is others'.
    async fn shared(&self, key: &Key, work: impl Future<Output = Reconciled>) -> Option<Reconciled> {
        let Some(shares) = &self.shares else { return Some(work.await) };
        let part = Self::part(shares, key);
        match shares.work(part, work).await {
            Some(done) => Some(done),
            None => shares.has(part).then_some(Ok(Outcome::After(RENEWAL))),
        }
    }
}

/// Controllers under way.
pub struct Started {
    runs: Arc<runs::Runs>,
    kontroler: Option<Arc<kontroler::Kontroler>>,
}

impl Started {
    /// Hears of a part of the work that came or went.
    pub fn moved(&self, change: Shared) {
        self.runs.moved(change);
        if let Some(kontroler) = &self.kontroler {
            kontroler.moved(change);
        }
    }
}

/// Spawns the controllers on a scope's tasks. Where several divide the work, [`Started::moved`] has to be told of it.
pub fn start(scope: &Scope, options: Options) -> Started {
    let figures = options.figures.clone();
    scope.metrics.add(SUBSYSTEM.name, Arc::new(move || figures.render()));
    let runs = runs::start(scope, options.clone());
    notify::start(scope, runs.clone());
    let kontroler = options.kontroler.then(|| kontroler::start(scope, &runs));
    dags::start(scope, &options, runs.clone());
    Started { runs, kontroler }
}
