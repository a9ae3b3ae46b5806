//! What becomes of a project's Pods on a cluster that many projects share: pure decisions, which the syncer carries out.
//!
//! ```text
//! project: Pod, ConfigMap, Secret, claim, Service --translate--> host: the same in namespace project-{uid}-{hash}
//! project: status, events, Node                   <--translate-- host: status, events
//! ```
//!
//! Guarantees: a host object refers to nothing outside its own namespace and names no service account of the host; what
//! tenants write never decides over labels, annotations, names or namespaces that the syncer reads; two objects of a
//! project never become one on the host. What is not known to be harmless is left out or refused, not passed on.
//!
//! This crate does no I/O and has no clock: callers pass the time in.

pub mod guards;
pub mod names;
pub mod node;
pub mod objects;
pub mod placement;
pub mod pod;
mod scheduling;
pub mod status;
pub mod streams;
pub mod sync;
pub mod tokens;
mod volumes;

/// Why something is not run on a shared cluster, in words for its author.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

impl Refusal {
    /// A refusal of a field.
    pub(crate) fn field(field: &str, why: &str) -> Self {
        Self(format!("{field}: {why}"))
    }
}
