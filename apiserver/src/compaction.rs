//! History of an etcd is forgotten after some time, as kube-apiserver does it. The embedded engine does so itself.

use freehold_apiserver_storage::Store;
use freehold_apiserver_storage_embedded::Retention;
use std::sync::Weak;

/// Compacts what was current an age ago, once in each age, as long as the store is used. Several servers may do so at
/// once: a revision that is compacted already is no error here.
pub(crate) async fn run(store: Weak<dyn Store>, history: Retention) {
    let mut before = None;
    loop {
        let Some(strong) = store.upgrade() else { return };
        let now = strong.revision().await.ok();
        if let (Some(before), Some(now)) = (before, now) {
            let revision = now.saturating_sub(history.revisions).min(before);
            if revision > 0
                && let Err(error) = strong.compact(revision).await
            {
                tracing::debug!(%error, revision, "not compacted");
            }
        }
        before = now.or(before);
        drop(strong);
        tokio::time::sleep(history.age).await;
    }
}
