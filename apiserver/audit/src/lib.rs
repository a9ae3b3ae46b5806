//! Audit: who did what, when and with what outcome, as `audit.k8s.io/v1` events
//! (<https://kubernetes.io/docs/tasks/debug/debug-cluster/audit/>).
//!
//! A [`Policy`] says of each request how much is written and at which of its stages; a [`Record`] collects what is learned
//! of the request on its way; an [`Auditor`] hands the events to its [`Sink`]s. Each event names the plane, organization
//! and project that the request was for. The [`Trail`] keeps the events of each organization for its owner.
//!
//! Guarantees: what Secrets hold and tokens are is never in an event, at any level ([`secret`]). An event has at most
//! [`MAX_OBJECT`] bytes of each object. A sink that is slow or full holds requests up only where its [`Mode`] says so; what
//! is dropped is counted.
//!
//! This crate must not know: HTTP, how requests are authenticated and authorized, how webhooks are reached
//! ([`Deliver`]).

mod auditor;
mod cut;
mod event;
mod file;
mod policy;
mod rate_limit;
mod record;
pub mod secret;
mod share;
mod sink;
mod trail;

pub use auditor::{Auditor, Begin, Trailed};
pub use event::{Event, ObjectReference, Stage, Written, legacy_line};
pub use file::{Files, Rotation};
pub use policy::{Level, Policy, PolicyError, Subject, Wanted};
pub use record::{MAX_OBJECT, Record, Response};
pub use share::{Address, Share, Standing};
pub use sink::{Batch, Counters, Deliver, Mode, Sink, Truncate};
pub use trail::{Page, Trail, TrailError, Watched};

/// The annotations that name what a request was for.
pub mod annotations {
    /// The plane.
    pub const PLANE: &str = "audit.freehold.dev/plane";
    /// The organization.
    pub const ORGANIZATION: &str = "audit.freehold.dev/organization";
    /// The project.
    pub const PROJECT: &str = "audit.freehold.dev/project";
    /// How many refused requests of strangers were left out of the trail before this one.
    pub const LEFT_OUT: &str = "audit.freehold.dev/left-out";
    /// That an object was too large to be in the event, in Kubernetes' name.
    pub const TRUNCATED: &str = "audit.k8s.io/truncated";
    /// Whether the request was allowed: `allow` or `forbid`.
    pub const DECISION: &str = "authorization.k8s.io/decision";
    /// Why.
    pub const REASON: &str = "authorization.k8s.io/reason";
}
