//! History of an etcd is forgotten after five minutes, as kube-apiserver does it. The embedded engine does so itself.

use freehold_apiserver_storage::Store;
use std::{sync::Weak, time::Duration};

/// How long a revision can be read, at least.
const KEPT: Duration = Duration::from_secs(300);

/// Compacts what was current five minutes ago, every five minutes, as long as the store is used. Several servers may do
/// so at once: a revision that is compacted already is no error here.
pub(crate) async fn run(store: Weak<dyn Store>) {
    let mut before = None;
    loop {
        let Some(strong) = store.upgrade() else { return };
        let now = strong.revision().await.ok();
        if let (Some(revision), Some(_)) = (before, now)
            && let Err(error) = strong.compact(revision).await
        {
            tracing::debug!(%error, revision, "not compacted");
        }
        before = now.or(before);
        drop(strong);
        tokio::time::sleep(KEPT).await;
    }
}
