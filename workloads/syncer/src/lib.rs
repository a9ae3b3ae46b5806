//! Runs Pods of projects on clusters that many projects share: the syncer.
//!
//! ```text
//!   all planes: Pods, Services (kept small); ConfigMaps, Secrets, claims, Namespaces (nothing kept)
//!        |                                                                       one watch a kind, over all projects
//!        v
//!   queues --> pods, objects --> decide (pure) --> host API  <--watch-- one a kind and cluster, selected by a label
//!        ^                                                                       |
//!        +---- status, binding, events <-----------------------------------------+
//!   server --logs, exec--> kubelet.rs --> host API
//! ```
//!
//! Guarantees: a project that has no Pod costs nothing but its few words here; what is on a host and differs from what was
//! decided is put right; a project stays on its cluster, which is recorded before anything is made there.
//!
//! This crate must not know: what a host Pod looks like ([`freehold_workloads_decide`] does), and the apiserver's insides.

mod cluster;
mod clusters;
mod events;
mod kinds;
mod kubelet;
mod nodes;
mod objects;
mod pods;
mod references;
mod world;

pub use kubelet::KubeletServer;

use crate::clusters::{Clusters, sweep};
use crate::kubelet::Bound;
use crate::world::{Terms, World};
use freehold_client::Client;
use freehold_runtime::{Controller, Metrics, Planes};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How often everything is looked at again.
const RESYNC: Duration = Duration::from_secs(600);
/// Events that wait to be written; more are left out.
const WAITING_EVENTS: usize = 1024;
/// Keys of one plane that are worked on at once.
const WORKERS: usize = 8;

/// What a syncer is made from.
pub struct Config {
    /// A client of the core server that may do everything.
    pub client: Client,
    /// Host and port at whose root the API of projects is for tokens of their service accounts.
    pub api: (String, u16),
    /// How core servers reach Pods by way of the syncer.
    pub kubelet: KubeletServer,
    /// Where reconciles are counted.
    pub metrics: Metrics,
}

/// A syncer that is ready to run: its kubelet has its port.
pub struct Syncer {
    planes: Planes,
    terms: Terms,
    bound: Bound,
    metrics: Metrics,
}

impl Config {
    /// Binds the port of the kubelet.
    ///
    /// # Errors
    /// Certificates that can't be used, or a port that is taken.
    pub async fn build(self) -> anyhow::Result<Syncer> {
        let bound = Bound::bind(&self.kubelet).await?;
        let terms = Terms { api: self.api, address: bound.address };
        Ok(Syncer { planes: Planes::all(self.client), terms, bound, metrics: self.metrics })
    }
}

impl Syncer {
    /// Where core servers reach it, which they have to know (`--syncers`).
    pub fn address(&self) -> SocketAddr {
        self.bound.address
    }

    /// Syncs until the token is cancelled.
    pub async fn run(self, token: CancellationToken) {
        let mut tasks = JoinSet::new();
        let world = World::start(self.planes, self.terms, &mut tasks, &token);
        let (sender, receiver) = mpsc::channel(WAITING_EVENTS);
        tasks.spawn(events::run(world.clone(), receiver, token.clone()));
        tasks.spawn(self.bound.run(world.clone(), token.clone()));
        if !world.synced(&token).await {
            return;
        }
        tasks.spawn(look_again(world.clone(), token.clone()));
        let clusters = Clusters {
            world: world.clone(),
            events: sender,
            token: token.clone(),
            tasks: Default::default(),
        };
        let clusters = Arc::new(clusters);
        tokio::join!(
            control("workload-clusters", &world.queues.clusters, (&self.metrics, &token), {
                let clusters = clusters.clone();
                move |key| {
                    let clusters = clusters.clone();
                    async move { clusters.reconcile(key).await }
                }
            }),
            control("workload-pods", &world.queues.pods, (&self.metrics, &token), {
                let world = world.clone();
                move |key| pods::reconcile(world.clone(), key)
            }),
            control("workload-objects", &world.queues.objects, (&self.metrics, &token), {
                let world = world.clone();
                move |object| objects::reconcile(world.clone(), object)
            }),
        );
        clusters.tasks.lock().await.shutdown().await;
        tasks.join_all().await;
    }
}

async fn control<K: freehold_runtime::QueueKey, W>(
    name: &'static str,
    queue: &Arc<freehold_runtime::Queue<K>>,
    (metrics, token): (&Metrics, &CancellationToken),
    reconcile: impl Fn(K) -> W,
) where
    W: Future<Output = freehold_runtime::Reconciled> + Send + 'static,
{
    let controller = Controller::new(name, queue.clone()).workers(WORKERS).metrics(metrics);
    controller.run(token.clone(), reconcile).await;
}

/// Finds what watches that were broken for long have missed.
async fn look_again(world: Arc<World>, token: CancellationToken) {
    loop {
        tokio::select! {
            () = token.cancelled() => return,
            () = tokio::time::sleep(RESYNC) => {}
        }
        world.settled.lock().clear();
        world.pods.keys().into_iter().for_each(|key| world.queues.pods.add_routine(key));
        sweep(&world).await;
    }
}
