//! Filtered lists and watches for members of tenants, in front of any API server.
//!
//! ```text
//! request --as the caller--> API server --403, and it reads the whole plane--> who is it?   `caller`
//!    ^                          |                                                |  SelfSubjectReview, as the caller
//!    |                          v all else                                       v
//!    '---------------------- answer <--- namespaces: label selector, as the proxy's account `views`
//!                                   <--- classes, tenants: by name, as the proxy's account  `named`
//!                                   <--- a kind with -A: in each own namespace, as the caller `across`
//! ```
//!
//! Every request goes to the API server with the caller's identity first. The proxy answers only what the server refuses,
//! so that it takes no right away, and a request that it does not understand gets what the server says. Paths of requests
//! through the proxy's account are made here, never copied.

mod access;
mod across;
mod caller;
mod guard;
mod lines;
mod metrics;
mod named;
mod reply;
mod request;
mod server;
mod views;

pub use metrics::ProxyMetrics;
pub use server::{Proxy, ProxyError};
