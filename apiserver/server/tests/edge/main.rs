//! The edge as clients see it: a real server on a free port, spoken to over TLS.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod backend;
mod browser;
mod certificate_tokens;
mod client;
mod connections;
mod discovery;
mod hosts;
mod identity;
mod origin;
mod proxy;
mod reload;
mod verbs;
mod watch;
mod websocket;
