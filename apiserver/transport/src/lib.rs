//! The runtime of connections: how requests of one connection are polled, what bodies of answers are made of, and how they are
//! compressed, gathered into TLS records and sent.
//!
//! Guarantees: a body that a client does not take is given back under pressure; a connection that rests holds no buffer and no
//! task but its own.
//!
//! This crate must not know: what a request means, who sent it, where its answer comes from.

pub mod aside;
pub mod coalesce;
pub mod payload;
pub mod pieces;
pub mod streams;
pub mod tls;
pub mod turns;
pub mod untaken;
pub mod upstream;
