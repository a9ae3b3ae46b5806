//! The HTTP and TLS edge: connections, the filters that each request passes, content negotiation, watch streams,
//! passing requests on.
//!
//! ```text
//! TLS -> rescue, audit id, span, metrics -> path, context, request info -> limits -> deadline
//!     -> target -> authenticate -> confine -> audit -> impersonate -> fairness -> authorize -> dispatch
//! ```
//! What a request means is decided here, what it does behind the [`Backend`]. Each failure is a Kubernetes `Status`;
//! each size, count and time that a client chooses has a limit ([`Limits`]).
//!
//! This crate must not know: how objects are kept, what rules allow, which planes there are.

mod aggregated;
mod audit;
mod backend;
mod bodies;
mod browser;
mod call;
mod certificate_tokens;
mod config;
mod connect;
mod dispatch;
mod documents;
mod edge;
mod events;
mod fair;
mod filters;
mod health;
mod held;
mod host;
mod identity;
mod info;
mod kept;
mod kubelet;
mod listen;
mod logs;
mod metrics;
mod negotiate;
mod openapi;
mod options;
mod origins;
mod output;
mod path;
mod permits;
mod places;
mod planes;
mod process;
mod proxy;
mod query;
mod read;
mod read_api;
mod respond;
mod reviews;
mod secure;
mod slow;
mod sources;
mod tags;
mod together;
mod trace;
mod traces;
mod trail;
mod version;
mod watch;
mod websocket;
mod yaml;

#[cfg(test)]
mod fuzz;

pub use backend::{
    AccessBackend, Aggregated, AggregationBackend, ArchiveStream, AuditBackend, AuditPage, AuditStream,
    Backend, Footing, InUse, Kubelet, ObjectBackend, OpenIdDocument, Owner, PlaneAction, PlaneBackend,
    RequestHeaders,
};
pub use certificate_tokens::{CertificateToken, CertificateTokens};
pub use config::{
    Authorities, BindError, Config, DebugDocuments, EtcdHandler, Limits, MoreMetrics, Pages, PagesHandler,
    PlaneRead, ReadApi, ReadHandler,
};
pub use connect::CONNECT;
pub use freehold_apiserver_transport::payload::{Beginning, BoxError, Data, Payload};
pub use freehold_apiserver_transport::pieces::Pieces;
pub use freehold_apiserver_transport::tls::{Certificate, ClientMaterial, ClientTls, TlsError};
pub use listen::Server;
pub use logs::address as kubelet_address;
pub use origins::{Origins, OriginsError};
pub use secure::Reload;
