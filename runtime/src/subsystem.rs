//! What a subsystem brings to a plane or cluster, and what its controllers get to run in.

use crate::{Metrics, Planes};
use freehold_machinery::{PlaneId, Result, Value};
use futures_util::future::BoxFuture;
use std::path::{Path, PathBuf};
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
    /// What it gives to readers of a plane beside objects, where the server has a folder for it.
    pub reads: Option<Reads>,
    /// Spawns its controllers on the scope's tasks and returns.
    pub start: fn(&Scope),
}

/// A group of what a subsystem keeps beside objects. The server authorizes reads of it as those of any resource.
#[derive(Clone, Copy)]
pub struct Reads {
    /// The group.
    pub group: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Answers reads of what the subsystem keeps in a folder.
    pub open: fn(&Path) -> ReadHandler,
}

/// A read within a plane that its user may make.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadRequest {
    /// The namespace; `None` for all.
    pub namespace: Option<String>,
    /// The namespace's uid: one of the same name before it was another.
    pub namespace_uid: String,
    /// The plural resource.
    pub resource: String,
    /// The name; `None` for a list.
    pub name: Option<String>,
    /// The subresource.
    pub subresource: Option<String>,
    /// The query as it was sent, percent-encoded.
    pub query: String,
}

/// Answers a read in a plane, with JSON.
pub type ReadHandler = Arc<dyn Fn(PlaneId, ReadRequest) -> BoxFuture<'static, Result<Vec<u8>>> + Send + Sync>;

/// Refuses bad objects of a subsystem's kinds when they are written. It is pure, so that a server can ask in its own process
/// and a webhook elsewhere.
#[derive(Clone, Copy)]
pub struct Admission {
    /// The API groups of the kinds.
    pub groups: &'static [&'static str],
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
    /// The folder for what subsystems keep beside objects; without one they keep nothing.
    pub folder: Option<PathBuf>,
    /// Holds the running tasks; whoever stops the scope waits for them.
    pub tasks: TaskTracker,
    /// Cancelled when the controllers have to stop.
    pub token: CancellationToken,
}
