//! What members of a real etcd say of themselves.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use freehold_apiserver_storage_etcd::{EtcdOptions, members};
use freehold_tests_harness::Cluster;
use std::time::Duration;

#[tokio::test]
async fn each_member_is_asked_and_one_that_is_down_hides_no_other() {
    let mut cluster =
        tokio::task::spawn_blocking(|| Cluster::start(3, &["--quota-backend-bytes=16777216"])).await.unwrap();
    cluster.kill(2);
    let options = EtcdOptions { timeout: Duration::from_secs(3), ..EtcdOptions::new(cluster.urls()) };
    let found = members(&options).await;
    assert_eq!(found.iter().map(|(url, _)| url.clone()).collect::<Vec<_>>(), cluster.urls());
    for (url, told) in &found[..2] {
        let told = told.as_ref().unwrap();
        assert!(told.version.starts_with("3.") && told.has_leader && told.database > 0, "{url}: {told:?}");
        assert!(told.quota == 0 || told.quota == 16_777_216, "{url}: {told:?}");
    }
    assert!(found[2].1.is_err(), "{found:?}");
}
