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
mod aside;
mod audit;
mod backend;
mod browser;
mod call;
mod certificate_tokens;
mod coalesce;
mod config;
mod connect;
mod dispatch;
mod documents;
mod events;
mod fair;
mod filters;
mod flow;
mod health;
mod held;
mod host;
mod identity;
mod info;
mod kubelet;
mod listen;
mod logs;
mod metrics;
mod negotiate;
mod openapi;
mod options;
mod output;
mod path;
mod payload;
mod pieces;
mod places;
mod planes;
mod process;
mod proxy;
mod query;
mod read;
mod read_api;
mod respond;
mod reviews;
mod slow;
mod sources;
mod streams;
mod tls;
mod together;
mod traces;
mod trail;
mod untaken;
mod upstream;
mod watch;
mod websocket;
mod yaml;

#[cfg(test)]
mod fuzz;

pub use aggregated::Aggregated;
pub use backend::{ArchiveStream, AuditStream, Backend, Footing, InUse, OpenIdDocument, Owner, PlaneAction};
pub use browser::{Origins, OriginsError};
pub use certificate_tokens::{CertificateToken, CertificateTokens};
pub use config::{
    Authorities, BindError, Config, DebugDocuments, EtcdHandler, Limits, MoreMetrics, Pages, PagesHandler,
};
pub use connect::CONNECT;
pub use identity::RequestHeaders;
pub use kubelet::Kubelet;
pub use listen::{Reload, Server};
pub use payload::{Beginning, BoxError, Data, Payload};
pub use pieces::Pieces;
pub use read_api::{PlaneRead, ReadApi, ReadHandler};
pub use tls::{Certificate, ClientMaterial, ClientTls, TlsError};
pub use trail::AuditPage;
