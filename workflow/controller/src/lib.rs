//! Controllers of the workflow subsystem, on any Kubernetes API.
//!
//! - `dags` makes runs when they are due, tells whether definitions are valid, and deletes old runs.
//! - `runs` carries runs out: it feeds what happens to the engine, does what the engine says, and writes statuses.
//!
//! Guarantees: a Pod is created under a name that follows from run, task and attempt, and only where it does not exist; it has
//! a finalizer until its end is in its run's status; a status is written at most once a second, but for a run's end. A
//! controller that dies at any write leaves nothing that another one does not take up.

pub mod admission;
mod dags;
mod definition;
mod execute;
mod kinds;
mod live;
mod manifests;
mod observer;
mod outputs;
mod pods;
mod runs;
mod script;
mod view;

pub use manifests::{manifests, roles, webhook_roles};
pub use observer::Observer;
pub use pods::MAIN;

use freehold_runtime::{Scope, Subsystem};
use std::sync::Arc;

/// The workflow subsystem.
pub const SUBSYSTEM: Subsystem = Subsystem {
    name: "workflow",
    about: "Runs DAGs of Pods, on schedule or on demand.",
    crds: freehold_workflow_api::crds,
    manifests,
    admission: Some(admission::ADMISSION),
    start: |scope| start(scope, Options::default()),
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
}

/// Spawns the controllers on a scope's tasks.
pub fn start(scope: &Scope, options: Options) {
    let runs = runs::start(scope, options.clone());
    dags::start(scope, &options, runs);
}
