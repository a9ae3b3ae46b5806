//! Places Pods that wait on nodes, in one plane or in many at once, as kube-scheduler's default profile does.
//!
//! ```text
//!   Pods, Nodes, claims (one watch a kind, over all planes; of Pods only those that wait are kept)
//!        |
//!        v
//!   queue of planes --> read that plane --> engine (pure): filter, score, preempt --> bind, tell, evict
//! ```
//!
//! Guarantees: a plane in which no Pod waits, or that has no node, is never read and costs nothing but what its nodes are called;
//! what one plane's Pods may be near to, or evict, is of that plane alone; a Pod that fits nowhere is tried again after its
//! back-off when something changed, and once a minute.
//!
//! This crate must not know the apiserver's insides.

pub mod engine;

mod act;
mod batch;
mod kinds;
mod plane;
mod world;

use crate::world::World;
use freehold_runtime::{Controller, Metrics, Outcome, Planes, Presence};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How many planes are worked on at once, divided by eight.
const WORKERS: usize = 1;

/// What a scheduler is made from.
#[derive(Clone)]
pub struct Config {
    /// The planes that it works in.
    pub planes: Planes,
    /// Which Pods are its own: those that have this `spec.schedulerName`.
    pub name: String,
    /// Where it counts.
    pub metrics: Metrics,
}

/// Schedules until the token is cancelled.
pub async fn run(config: Config, token: CancellationToken) {
    let tasks = TaskTracker::new();
    let Config { planes, name, metrics } = config;
    let world = World::start(planes, &name, &tasks, &token);
    if world.synced(&token).await {
        let controller = Controller::new("scheduler", world.queue.clone()).workers(WORKERS).metrics(&metrics);
        let reconcile = |key: freehold_runtime::Key| {
            let world = world.clone();
            async move {
                match world.planes.presence(&key.plane) {
                    Presence::Here => {
                        let work = world.planes.work(&key.plane, plane::schedule(&world, &key.plane));
                        work.await.unwrap_or(Ok(Outcome::Done))
                    }
                    Presence::Arriving => Ok(Outcome::After(world::ARRIVING)),
                    Presence::Away => Ok(Outcome::Done),
                }
            }
        };
        controller.run(token.clone(), reconcile).await;
    }
    tasks.close();
    tasks.wait().await;
}
