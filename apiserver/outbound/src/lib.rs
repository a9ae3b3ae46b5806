//! Requests that the apiserver makes on behalf of a plane: to its webhooks and aggregated servers.
//!
//! Where they go is written by the plane's users, who are not trusted: [`Networks`] says which addresses may be reached,
//! whatever a name, a Service or an EndpointSlice says, and it is asked about the very address that is connected to.
//! Nothing is shared between planes: connections, trust and the places for calls are kept by plane.
//!
//! A [`Destination`] is a URL or a Service of the plane, which [`Services`] resolves to an endpoint. [`Outbound::send`]
//! passes a request on and gives the answer as it comes (upgrades too); [`Outbound::call`] is one question with a limit
//! on its time, its size and how many are under way. Redirects are not followed. HTTP/1.1 over TLS.
//!
//! This crate must not know: webhooks, registries, caches.

mod call;
mod connect;
mod destination;
mod pool;
mod service;
mod tls;

pub use call::{Answer, CallError, Limits};
pub use connect::Secure;
pub use destination::{Destination, Host, Identity, Trust};
pub use freehold_machinery_networks::Networks;
pub use pool::{Body, Outbound, SendError};
pub use service::{Route, Services, route};
