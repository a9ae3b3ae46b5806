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
    use freehold_apiserver_storage_etcd::EtcdOptions;
    use freehold_tests_harness::Etcd;

    async fn engine() -> (Arc<dyn Store>, (Etcd, TempDir)) {
        let dir = tempfile::tempdir().unwrap();
        let server = Etcd::start(dir.path());
        let options = EtcdOptions::new([server.url()]);
        let engine = freehold_apiserver_storage_etcd::Etcd::connect(options).await.unwrap();
        (Arc::new(sealed(engine, Some(keys(&["one"]))).await), (server, dir))
    }

    freehold_apiserver_storage::conformance!(engine; resized);
}
