//! The etcd engine passes the suite against a real etcd.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::Server;
use freehold_apiserver_storage::Store;
use std::sync::Arc;

async fn engine() -> (Arc<dyn Store>, Server) {
    let (server, engine) = Server::start(&["--unsafe-no-fsync"]).await;
    (engine, server)
}

freehold_apiserver_storage::conformance!(engine);
