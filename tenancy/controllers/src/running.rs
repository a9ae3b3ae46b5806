//! How the controllers of this crate run: after their stores are complete, in planes that are present.

use freehold_runtime::{Controller, Outcome, Presence, Queue, QueueKey, Reconciled, Scope};
use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;

/// How soon the objects of a plane that is arriving are looked at again.
const ARRIVING: Duration = Duration::from_millis(20);

/// A controller: its reaction to one key.
pub(crate) trait Reconcile: Send + Sync + 'static {
    /// What its queue holds.
    type Key: QueueKey;

    /// Brings one object closer to its wanted state.
    fn reconcile(&self, key: Self::Key) -> impl Future<Output = Reconciled> + Send;
}

/// Runs a controller on the scope's tasks, once `ready` resolves to true.
pub(crate) fn control<R: Reconcile>(
    scope: &Scope,
    name: &'static str,
    workers: usize,
    queue: &Arc<Queue<R::Key>>,
    ready: BoxFuture<'static, bool>,
    reconciler: Arc<R>,
) {
    let controller = Controller::new(name, queue.clone()).workers(workers).metrics(&scope.metrics);
    let (token, planes) = (scope.token.clone(), scope.planes.clone());
    scope.tasks.spawn(async move {
        if !ready.await {
            return;
        }
        let run = move |key: R::Key| {
            let (reconciler, planes) = (reconciler.clone(), planes.clone());
            async move {
                let plane = key.plane().clone();
                match planes.presence(&plane) {
                    // Another instance may have it by now.
                    Presence::Here => {
                        planes.work(&plane, reconciler.reconcile(key)).await.unwrap_or(Ok(Outcome::Done))
                    }
                    Presence::Arriving => Ok(Outcome::After(ARRIVING)),
                    Presence::Away => Ok(Outcome::Done),
                }
            }
        };
        controller.run(token, run).await;
    });
}
