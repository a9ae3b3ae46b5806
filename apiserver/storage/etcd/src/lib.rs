//! The engine on a real etcd (3.5.8 or later), and a server that speaks the same part of etcd's API over any store.
//!
//! [`Etcd`] gives what [`Store`](freehold_apiserver_storage::Store) says with etcd's own transactions, revisions and
//! watches; nothing is kept here but connections. The messages are written out in `proto` rather than generated, so
//! that nothing beyond a Rust compiler is needed to build.
//!
//! # What depends on how etcd is set up
//!
//! - `--max-request-bytes` is 1.5 MiB by default, less than what the port allows; a larger commit is
//!   [`TooLarge`](freehold_apiserver_storage::StoreError::TooLarge).
//! - Nothing compacts by itself unless etcd is started with `--auto-compaction-retention`.
//! - A role needs read and write on the range of [`EtcdOptions::prefix`], or on the part of it that is
//!   [`EtcdOptions::home`]; compaction needs no right in etcd.
//!
//! # Failures
//!
//! A call goes to the endpoint that answered last, and on to the next one when that can't be reached; a commit only when
//! it certainly was not sent. What does not answer in time is
//! [`Unavailable`](freehold_apiserver_storage::StoreError::Unavailable). A watch outlives its connection: it goes on at
//! the revision that it had reached.
//!
//! It must not know what is in a value.

mod client;
mod coalesced;
mod engine;
mod error;
mod facade;
mod members;
mod prefix;
mod proto;
mod session;
mod single_flight;
mod watch;

pub use client::EtcdOptions;
pub use engine::Etcd;
pub use facade::{Bounds, BoundsOf, Check, Facade, Scope};
pub use members::{MemberStatus, members};
