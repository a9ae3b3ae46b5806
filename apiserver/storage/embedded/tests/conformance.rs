//! The embedded engine passes the suite.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use freehold_apiserver_storage::Store;
use freehold_apiserver_storage_embedded::Embedded;
use std::sync::Arc;
use tempfile::TempDir;

async fn engine() -> (Arc<dyn Store>, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    (Embedded::open(dir.path()).unwrap(), dir)
}

freehold_apiserver_storage::conformance!(engine);
