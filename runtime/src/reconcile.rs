//! A controller over planes: what it does with a key, once its stores are complete and where its plane is present.

use crate::{Controller, Outcome, Planes, Presence, QueueKey, Reconciled, Store};
use freehold_machinery::PlaneId;
use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How soon the objects of a plane that is arriving are looked at again.
const ARRIVING: Duration = Duration::from_millis(20);

/// What a controller does with one key.
pub trait Reconcile: Send + Sync + 'static {
    /// What its queue holds.
    type Key: QueueKey;

    /// Brings one object closer to what is wanted.
    fn reconcile(&self, key: Self::Key) -> impl Future<Output = Reconciled> + Send;
}

/// A store that can be waited for.
pub trait Synced: Send + Sync {
    /// Waits until the store is complete; `false` if the token was cancelled before.
    fn wait(&self, token: CancellationToken) -> BoxFuture<'static, bool>;
}

impl<T: Send + Sync + 'static> Synced for Store<T> {
    fn wait(&self, token: CancellationToken) -> BoxFuture<'static, bool> {
        let store = self.clone();
        Box::pin(async move { store.synced(&token).await })
    }
}

impl<K: QueueKey> Controller<K> {
    /// Reconciles keys of the planes that are present and not left to others, once all stores are complete, until the
    /// token is cancelled.
    pub async fn run_in_planes<R: Reconcile<Key = K>>(
        self,
        planes: Planes,
        stores: Vec<BoxFuture<'static, bool>>,
        leaves: impl Fn(&PlaneId) -> bool + Send + Sync,
        reconciler: R,
        token: CancellationToken,
    ) {
        for store in stores {
            if !store.await {
                return;
            }
        }
        let reconciler = Arc::new(reconciler);
        let run = move |key: K| {
            let plane = QueueKey::plane(&key).clone();
            let presence = match leaves(&plane) {
                true => Presence::Away,
                false => planes.presence(&plane),
            };
            let (reconciler, planes) = (reconciler.clone(), planes.clone());
            async move {
                match presence {
                    // Another instance may have it by now.
                    Presence::Here => {
                        let work = planes.work(&plane, reconciler.reconcile(key));
                        work.await.unwrap_or(Ok(Outcome::Done))
                    }
                    // With half of its objects known, the other half would be made again.
                    Presence::Arriving => Ok(Outcome::After(ARRIVING)),
                    Presence::Away => Ok(Outcome::Done),
                }
            }
        };
        self.run(token, run).await;
    }
}
