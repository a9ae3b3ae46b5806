//! What a subsystem brings to a plane or cluster, and what its controllers get to run in.

use crate::{Metrics, Planes};
use freehold_machinery::{Result, Value};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Kinds with the controllers that act on them, for planes of Freehold and any other Kubernetes API alike.
#[derive(Clone, Copy)]
pub struct Subsystem {
    /// The name in commands and flags: `tenancy`.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub about: &'static str,
    /// Returns the CustomResourceDefinitions of its kinds.
    pub crds: fn() -> Vec<Value>,
    /// Returns the objects that a plane has beside them, roles that are aggregated into `admin`, `edit` and `view` above all.
    /// They are applied in this order, after the definitions are established.
    pub manifests: fn() -> Vec<Value>,
    /// What is refused when objects of its kinds are written, beyond what their schemas say.
    pub admission: Option<Admission>,
    /// Spawns its controllers on the scope's tasks and returns.
    pub start: fn(&Scope),
}

/// Refuses bad objects of a subsystem's kinds when they are written. It is pure, so that a server can ask in its own process
/// and a webhook elsewhere.
#[derive(Clone, Copy)]
pub struct Admission {
    /// The API group of the kinds.
    pub group: &'static str,
    /// Checks an object that is created or, where there is an old one, updated.
    pub admit: fn(&Value, Option<&Value>, &Find<'_>) -> Result<()>,
}

/// Finds another object of the group by its resource, namespace and name.
pub type Find<'a> = dyn Fn(&str, &str, &str) -> Option<Arc<Value>> + 'a;

/// Where controllers of a subsystem run: over all planes of a Freehold, in one plane, or in a foreign cluster.
#[derive(Clone)]
pub struct Scope {
    /// The planes, with the client that reaches them.
    pub planes: Planes,
    /// Where controllers count.
    pub metrics: Metrics,
    /// Holds the running tasks; whoever stops the scope waits for them.
    pub tasks: TaskTracker,
    /// Cancelled when the controllers have to stop.
    pub token: CancellationToken,
}
