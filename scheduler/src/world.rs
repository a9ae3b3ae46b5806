//! What is kept of all planes: Pods that wait, a few words of each node, and when each Pod was tried.

use crate::engine::has_ended;
use crate::kinds::{CLAIMS, NODES, PODS, VOLUMES};
use freehold_client::Resource;
use freehold_machinery::{PlaneId, Value, meta};
use freehold_runtime::{Informer, Interest, Key, Planes, Queue, Recorder, Seen, Store};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How soon a plane that is arriving is looked at again.
pub(crate) const ARRIVING: Duration = Duration::from_millis(20);
/// How long a Pod that fits nowhere waits after its first attempt; doubled with each.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
/// The longest such wait.
const LONGEST_BACKOFF: Duration = Duration::from_secs(10);
/// After this time a Pod is tried again though nothing changed.
const FLUSH: Duration = Duration::from_secs(60);
/// Label of a node that stands for a cluster of many projects. The syncer puts Pods on it, and nobody else.
const SHARED: &str = "workloads.freehold.dev/cluster";

/// A Pod that waits for a node.
#[derive(Debug, PartialEq)]
pub(crate) struct Waiting {
    uid: Box<str>,
    /// Labels and spec, in a number: what decides where it may be.
    print: u64,
}

/// The last attempt to place a Pod.
struct Attempt {
    uid: Box<str>,
    print: u64,
    count: u32,
    at: Instant,
    /// How much had changed in its plane.
    seen: u64,
}

/// A plane in which Pods wait.
#[derive(Default)]
struct Plane {
    /// Grows with each change that may make room for a Pod.
    changes: u64,
    attempts: HashMap<Key, Attempt>,
}

/// When the Pods that wait in a plane are to be tried.
pub(crate) enum Due {
    /// These now. The number says how much had changed in the plane.
    Now(Vec<Key>, u64),
    /// None before this time has passed.
    After(Duration),
    /// Never: no Pod waits.
    Never,
}

/// What the scheduler knows, and where it works.
pub(crate) struct World {
    pub(crate) planes: Planes,
    pub(crate) queue: Arc<Queue<Key>>,
    pub(crate) recorder: Recorder,
    waiting: Store<Waiting>,
    nodes: Store<u64>,
    busy: Arc<Mutex<HashMap<PlaneId, Plane>>>,
}

/// The key of a plane in the queue.
fn whole(plane: &PlaneId) -> Key {
    Key::new(plane.clone(), "", "")
}

fn print(parts: &[&Value]) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.iter().for_each(|part| part.to_string().hash(&mut hasher));
    hasher.finish()
}

/// Whether a node is the scheduler's to put Pods on.
pub(crate) fn is_ours(node: &Value) -> bool {
    meta::label(node, SHARED).is_none()
}

/// Whether a Pod waits for this scheduler.
pub(crate) fn waits(pod: &Value, scheduler: &str) -> bool {
    let spec = &pod["spec"];
    let is_gated = spec["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
    let is_bound = spec["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    let named = spec["schedulerName"].as_str().unwrap_or("default-scheduler");
    !is_bound && !is_gated && named == scheduler && !meta::is_deleting(pod) && !has_ended(pod)
}

impl World {
    /// Begins to watch.
    pub(crate) fn start(
        planes: Planes,
        name: &str,
        tasks: &TaskTracker,
        token: &CancellationToken,
    ) -> Arc<Self> {
        let queue = Queue::new();
        let busy: Arc<Mutex<HashMap<PlaneId, Plane>>> = Arc::default();
        let poke = {
            let (queue, busy) = (queue.clone(), busy.clone());
            move |plane: &PlaneId| {
                if let Some(known) = busy.lock().get_mut(plane) {
                    known.changes += 1;
                    queue.add(whole(plane));
                }
            }
        };
        let scheduler = name.to_owned();
        let mut pods = Informer::new(
            &planes,
            Interest::projected(PODS, move |pod| {
                let print = || print(&[&pod["metadata"]["labels"], &pod["spec"]]);
                waits(&pod, &scheduler).then(|| Waiting { uid: meta::uid(&pod).into(), print: print() })
            }),
        );
        let (on_waiting, on_bound, on_left) = (queue.clone(), poke.clone(), poke.clone());
        pods.on_change(move |change| match (&change.old, &change.new) {
            (Some(old), Some(new)) if old == new => {}
            (_, Some(_)) => on_waiting.add(whole(&change.key.plane)),
            // It was bound, or is gone: others may fit beside it, or without it.
            (_, None) => on_bound(&change.key.plane),
        });
        pods.on_object(move |key, pod, seen| {
            if seen == Seen::Gone || has_ended(pod) {
                on_left(&key.plane);
            }
        });
        let mut nodes = Informer::new(
            &planes,
            Interest::projected(NODES, |node| {
                let status = &node["status"]["allocatable"];
                is_ours(&node).then(|| print(&[&node["metadata"]["labels"], &node["spec"], status]))
            }),
        );
        let (on_node, on_first) = (poke.clone(), queue.clone());
        nodes.on_change(move |change| {
            if change.old != change.new {
                on_node(&change.key.plane);
                on_first.add(whole(&change.key.plane));
            }
        });
        let world = Arc::new(Self {
            queue,
            recorder: Recorder::new("default-scheduler"),
            waiting: pods.store(),
            nodes: nodes.store(),
            busy,
            planes,
        });
        tasks.spawn(pods.run(token.clone()));
        tasks.spawn(nodes.run(token.clone()));
        for resource in [CLAIMS, VOLUMES] {
            tasks.spawn(world.changes_of(resource, poke.clone()).run(token.clone()));
        }
        world
    }

    /// Keeps nothing of a type, and tells of its changes.
    fn changes_of(
        &self,
        resource: Resource,
        poke: impl Fn(&PlaneId) + Send + Sync + 'static,
    ) -> Informer<()> {
        let mut informer = Informer::new(&self.planes, Interest::projected(resource, |_| None).from_now());
        informer.on_object(move |key, _, _| poke(&key.plane));
        informer
    }

    /// Waits until everything that was there has been seen; false if it was stopped before.
    pub(crate) async fn synced(&self, token: &CancellationToken) -> bool {
        self.waiting.synced(token).await && self.nodes.synced(token).await
    }

    /// Whether a plane has nodes, or is the only one and so is told that there are none.
    pub(crate) fn has_nodes(&self, plane: &PlaneId) -> bool {
        self.planes.only().is_some() || !self.nodes.in_plane(plane).is_empty()
    }

    /// Which of the Pods that wait in a plane are to be tried now.
    pub(crate) fn due(&self, plane: &PlaneId) -> Due {
        let waiting = self.waiting.in_plane(plane);
        let mut busy = self.busy.lock();
        if waiting.is_empty() || !self.has_nodes(plane) {
            busy.remove(plane);
            return Due::Never;
        }
        let known = busy.entry(plane.clone()).or_default();
        known.attempts.retain(|key, _| self.waiting.get(key).is_some());
        let (now, mut due, mut next) = (Instant::now(), Vec::new(), FLUSH);
        for (key, pod) in waiting {
            let at = known.attempts.get(&key).filter(|last| last.uid == pod.uid).map(|last| {
                let is_changed = last.seen != known.changes || last.print != pod.print;
                last.at + if is_changed { backoff(last.count) } else { FLUSH }
            });
            match at.filter(|at| *at > now) {
                None => due.push(key),
                Some(at) => next = next.min(at - now),
            }
        }
        if due.is_empty() { Due::After(next) } else { Due::Now(due, known.changes) }
    }

    /// Records that a Pod was tried and fits nowhere.
    pub(crate) fn tried(&self, key: &Key, seen: u64) {
        let Some(pod) = self.waiting.get(key) else { return };
        let mut busy = self.busy.lock();
        let Some(known) = busy.get_mut(&key.plane) else { return };
        let before = known.attempts.get(key).filter(|last| last.uid == pod.uid).map_or(0, |last| last.count);
        let (uid, count) = (pod.uid.clone(), before.saturating_add(1));
        let attempt = Attempt { uid, print: pod.print, count, at: Instant::now(), seen };
        known.attempts.insert(key.clone(), attempt);
    }
}

/// How long a Pod waits after so many attempts.
fn backoff(count: u32) -> Duration {
    FIRST_BACKOFF.saturating_mul(1 << count.saturating_sub(1).min(10)).min(LONGEST_BACKOFF)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_waits_unless_it_is_bound_held_back_or_someone_elses() {
        let rows = [
            (json!({}), true),
            (json!({"nodeName": "a"}), false),
            (json!({"schedulingGates": [{"name": "g"}]}), false),
            (json!({"schedulerName": "other"}), false),
        ];
        for (spec, expected) in rows {
            assert_eq!(waits(&json!({"spec": spec}), "default-scheduler"), expected, "{spec}");
        }
    }

    #[test]
    fn attempts_are_further_and_further_apart() {
        let seconds: Vec<u64> = (1..7).map(|count| backoff(count).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 10, 10]);
    }
}
