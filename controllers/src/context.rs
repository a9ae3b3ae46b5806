//! What controllers of this crate are started with.

use crate::addresses::NodeCidrs;
use freehold_machinery::PlaneId;
use freehold_runtime::{Controller, Informer, Metrics, Planes, Queue, Reconcile, Store, Synced};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Settings of controllers that come from the command line.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The networks from which nodes get their Pods' addresses; `None` leaves nodes without.
    pub node_cidrs: Option<NodeCidrs>,
}

/// Planes and surroundings that controllers run in.
pub struct Context {
    /// The planes that controllers work in.
    pub planes: Planes,
    /// The plane whose administrator offers load balancers' addresses to all others: the core plane, or the only one.
    pub platform: Planes,
    /// Where controllers count.
    pub metrics: Metrics,
    /// Cancelled when controllers have to stop.
    pub token: CancellationToken,
    /// Holds the running tasks; whoever stops the controllers waits for them.
    pub tasks: TaskTracker,
    /// Settings from the command line.
    pub options: Options,
    /// Stores that are waited for before any controller begins.
    pub first: Vec<Arc<dyn Synced>>,
    /// Reports whether a controller leaves a plane to others.
    pub leaves: fn(&str, &PlaneId, &Planes) -> bool,
}

impl Context {
    /// Runs an informer and returns its store.
    pub(crate) fn run_informer<T: Send + Sync + 'static>(&self, informer: Informer<T>) -> Store<T> {
        let store = informer.store();
        self.tasks.spawn(informer.run(self.token.clone()));
        store
    }

    /// Runs a controller, one key of a plane at a time, once the stores that it reads are complete.
    pub(crate) fn control<R: Reconcile>(
        &self,
        name: &'static str,
        queue: &Arc<Queue<R::Key>>,
        stores: &[&dyn Synced],
        reconciler: R,
    ) {
        let first = self.first.iter().map(|store| &**store);
        let waits = first.chain(stores.iter().copied()).map(|store| store.wait(self.token.clone())).collect();
        let controller = Controller::new(name, queue.clone()).workers(1).metrics(&self.metrics);
        let (planes, decides) = (self.planes.clone(), self.leaves);
        let leaves = move |plane: &PlaneId| decides(name, plane, &planes);
        self.tasks.spawn(controller.run_in_planes(
            self.planes.clone(),
            waits,
            leaves,
            reconciler,
            self.token.clone(),
        ));
    }
}
