//! Aggregated servers: the targets of a plane's `APIService` objects.
//!
//! An [`Aggregator`] knows, for each plane that is in use, the [`Server`]s that its `APIService` objects name. It asks
//! each of them now and then whether it answers, writes that into the object's `Available` condition, and keeps what the
//! server says that it serves, for discovery ([`Remote`](freehold_apiserver_catalog::Remote)) and OpenAPI. A plane that
//! nobody asks for anything is forgotten, and its servers are left alone.
//!
//! Guarantees: a server is asked within limits of time and size, a few of one plane at a time, and what it says is
//! checked piece by piece; a server that hangs, lies or is huge is unavailable, or shown without resources, in its own
//! plane. Connections are made by [`Outbound`](freehold_apiserver_outbound::Outbound), under its rules.
//!
//! This crate must not know: requests of clients (the edge passes them on), how objects are written.

mod aggregator;
mod availability;
mod check;
mod discovery;
mod openapi;
mod probe;
mod server;

pub use aggregator::{Aggregator, Identities, Statuses};
pub use server::Server;
