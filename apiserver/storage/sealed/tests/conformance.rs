//! The suite passes through the wrapper, with all that it can do switched on.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{keys, sealed};
use freehold_apiserver_storage::Store;
use freehold_apiserver_storage_embedded::Embedded;
use std::sync::Arc;
use tempfile::TempDir;

/// Over the embedded engine.
mod embedded {
    use super::*;

    async fn engine() -> (Arc<dyn Store>, TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let store = sealed(Embedded::open(dir.path()).unwrap(), Some(keys(&["one"]))).await;
        (Arc::new(store), dir)
    }

    freehold_apiserver_storage::conformance!(engine; resized);
}

/// Over a real etcd.
mod etcd {
    use super::*;
    use common::etcd::Server;

    async fn engine() -> (Arc<dyn Store>, Server) {
        let (server, engine) = Server::start().await;
        (Arc::new(sealed(engine, Some(keys(&["one"]))).await), server)
    }

    freehold_apiserver_storage::conformance!(engine; resized);
}
