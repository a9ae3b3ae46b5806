//! The port to what is behind the edge: planes, registry, authorization, discovery.
//!
//! The server speaks HTTP and knows these traits; the assembly crate implements it over the real planes and registry, and
//! the tests over a map. Everything here is already out of the URL: a [`Target`] and an [`Operation`].
//!
//! It must not know: HTTP, media types, how planes are kept.
//!
//! [`Operation::plane`](freehold_apiserver_registry::Operation::plane) is the core plane for targets other than
//! [`Target::Local`](freehold_apiserver_planes::Target::Local): the implementation decides by the target. No call is made for
//! a dedicated target but [`PlaneBackend::resolve`]: such requests are passed on.
//!
//! No method has a default: an implementation that forgot one would allow what it never looked at.

mod access;
mod aggregation;
mod audit;
mod objects;
mod planes;

pub use access::{AccessBackend, OpenIdDocument, RequestHeaders};
pub use aggregation::{Aggregated, AggregationBackend};
pub use audit::{AuditBackend, AuditPage, AuditStream, Owner};
pub use objects::ObjectBackend;
pub use planes::{ArchiveStream, Footing, InUse, Kubelet, PlaneAction, PlaneBackend};

/// All that the server asks for.
pub trait Backend: ObjectBackend + AccessBackend + PlaneBackend + AggregationBackend + AuditBackend {}

impl<T: ObjectBackend + AccessBackend + PlaneBackend + AggregationBackend + AuditBackend> Backend for T {}
