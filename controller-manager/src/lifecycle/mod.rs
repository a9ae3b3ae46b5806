//! Nodes that are silent or not ready: their conditions become unknown, their pods not ready, and a taint evicts these
//! (<https://kubernetes.io/docs/concepts/architecture/nodes/#node-controller>).
//!
//! A node speaks by renewing its Lease and by its status. Planes without nodes have neither, and cost nothing.

mod decide;
mod eviction;

pub(crate) use eviction::start as eviction;

use decide::{Step, Zone, becomes_tainted, is_tainted_wrongly, silence, taints, unknown, zone, zone_of};
use freehold_client::{Client, Error, Patch, PatchOptions};
use freehold_controllers_context::kinds::{LEASES, NODES, PODS};
use freehold_controllers_context::node::{NodeView, Readiness};
use freehold_controllers_context::object::items;
use freehold_controllers_context::pods::PodView;
use freehold_controllers_context::{Context, Reconcile};
use freehold_machinery::{PlaneId, meta, time};
use freehold_runtime::{
    EventType, Informer, Interest, Key, Outcome, Planes, Queue, Reconciled, Recorder, Store,
};
use jiff::Timestamp;
use serde_json::json;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The namespace of nodes' Leases.
const NAMESPACE: &str = "kube-node-lease";
/// Label of a node that stands for a cluster of many projects. It has no heartbeat: the syncer says what has become of it.
const SHARED: &str = "workloads.freehold.dev/cluster";
/// How soon a node is tried again whose zone is disrupted.
const AGAIN: Duration = Duration::from_secs(10);

/// When each node was heard of last.
type Heard = Arc<Mutex<HashMap<Key, Instant>>>;

struct Lifecycle {
    planes: Planes,
    nodes: Store<NodeView>,
    pods: Store<PodView>,
    heard: Heard,
    /// When a node of each zone was tainted last.
    tainted: Mutex<HashMap<(PlaneId, String), Instant>>,
    recorder: Recorder,
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    let heard = Heard::default();
    let leases = Interest::projected(LEASES, |_| Some(())).fields(format!("metadata.namespace={NAMESPACE}"));
    let mut informer = Informer::new(&context.planes, leases);
    let on_leases = heard.clone();
    informer.on_change(move |change| {
        if change.new.is_some() {
            hear(&on_leases, Key::new(change.key.plane.clone(), "", &change.key.name));
        }
    });
    context.run_informer(informer);
    let (on_nodes, said) = (queue.clone(), heard.clone());
    context.nodes().on_change(move |change| {
        let Some(node) = &change.new else {
            said.lock().unwrap_or_else(PoisonError::into_inner).remove(&change.key);
            return;
        };
        let spoke = change.old.as_ref().is_none_or(|old| old.heartbeat != node.heartbeat);
        if spoke {
            hear(&said, change.key.clone());
        }
        on_nodes.add(change.key.clone());
    });
    let (nodes, pods) = (context.nodes().store(), context.pods().store());
    context.resync(&nodes, &queue);
    let controller = Lifecycle {
        planes: context.planes.clone(),
        nodes: nodes.clone(),
        pods: pods.clone(),
        heard,
        tainted: Mutex::default(),
        recorder: Recorder::new("node-controller"),
    };
    context.control("node-lifecycle", 4, &queue, &[&nodes, &pods], controller);
}

fn hear(heard: &Heard, node: Key) {
    heard.lock().unwrap_or_else(PoisonError::into_inner).insert(node, Instant::now());
}

impl Reconcile for Lifecycle {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        let Some(node) = self.nodes.get(&key) else { return Ok(Outcome::Done) };
        if node.labels.as_ref().is_some_and(|labels| labels.contains_key(SHARED)) {
            return Ok(Outcome::Done);
        }
        let client = self.planes.client(&key.plane);
        let since = {
            let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
            heard.entry(key.clone()).or_insert_with(Instant::now).elapsed()
        };
        let again = match silence(&node, since) {
            Step::Watch(left) => left,
            Step::Silent => {
                self.silence(&client, &key).await?;
                return Ok(Outcome::After(AGAIN));
            }
        };
        if node.ready.is_some_and(|ready| ready != Readiness::True) {
            self.unready_pods(&client, &key).await?;
        }
        let tainted = self.taint(&client, &key, &node).await?;
        Ok(Outcome::After(tainted.map_or(again, |wait| wait.min(again))))
    }
}

impl Lifecycle {
    /// Makes the conditions of a silent node unknown.
    async fn silence(&self, client: &Client, key: &Key) -> Result<(), Error> {
        let Some(node) = client.get_opt(&NODES, None, &key.name).await? else { return Ok(()) };
        let Some(conditions) = unknown(&node, Timestamp::now()) else { return Ok(()) };
        let version = meta::resource_version(&node);
        let patch = json!({"metadata": {"resourceVersion": version}, "status": {"conditions": conditions}});
        let message = format!("Node {} status is now: NodeNotReady", key.name);
        match client.patch(&NODES, None, &key.name, &Patch::Merge(patch), &PatchOptions::status()).await {
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
            Ok(_) => {
                self.recorder.event(client, &node, EventType::Normal, "NodeNotReady", &message).await;
                Ok(())
            }
        }
    }

    /// Makes the pods of a node not ready, so that nothing is sent to them.
    async fn unready_pods(&self, client: &Client, key: &Key) -> Result<(), Error> {
        let on_node = self.pods.by_index(&key.plane, &PodView::on_node(&key.name));
        for (pod, view) in on_node.into_iter().filter(|(_, view)| view.ready) {
            let condition = json!({
                "type": "Ready", "status": "False", "lastTransitionTime": time::format_seconds(Timestamp::now()),
            });
            let patch = json!({"metadata": {"uid": view.uid}, "status": {"conditions": [condition]}});
            match client
                .patch(&PODS, pod.ns(), &pod.name, &Patch::Strategic(patch), &PatchOptions::status())
                .await
            {
                Err(error) if !error.is_not_found() && !error.is_conflict() => return Err(error),
                Err(_) => {}
                Ok(pod) => {
                    let (kind, message) = (EventType::Warning, "Node is not ready");
                    self.recorder.event(client, &pod, kind, "NodeNotReady", message).await;
                }
            }
        }
        Ok(())
    }

    /// Gives a node the evicting taint that it is to have; gives when to try again where its zone makes it wait.
    async fn taint(&self, client: &Client, key: &Key, node: &NodeView) -> Result<Option<Duration>, Error> {
        if !is_tainted_wrongly(node) {
            return Ok(None);
        }
        if becomes_tainted(node)
            && let Some(wait) = self.wait(key, node)
        {
            return Ok(Some(wait));
        }
        let Some(object) = client.get_opt(&NODES, None, &key.name).await? else { return Ok(None) };
        let wanted = taints(&object, Timestamp::now());
        if wanted == items(&object, "/spec/taints") {
            return Ok(None);
        }
        let version = meta::resource_version(&object);
        let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"taints": wanted}});
        match client.patch(&NODES, None, &key.name, &Patch::Merge(patch), &PatchOptions::default()).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(None),
        }
    }

    /// How long a node has to wait for its taint; `None` where it is its turn.
    fn wait(&self, key: &Key, node: &NodeView) -> Option<Duration> {
        let nodes: Vec<Arc<NodeView>> =
            self.nodes.in_plane(&key.plane).into_iter().map(|(_, node)| node).collect();
        let name = zone_of(node);
        let Zone::Sound(interval) = zone(nodes.iter().map(|node| &**node), &name) else { return Some(AGAIN) };
        let mut tainted = self.tainted.lock().unwrap_or_else(PoisonError::into_inner);
        tainted.retain(|_, at| at.elapsed() < Duration::from_secs(600));
        let last = tainted.get(&(key.plane.clone(), name.clone()));
        let left = last.map_or(Duration::ZERO, |at| interval.saturating_sub(at.elapsed()));
        if !left.is_zero() {
            return Some(left);
        }
        tainted.insert((key.plane.clone(), name), Instant::now());
        None
    }
}
