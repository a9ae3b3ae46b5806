//! Pods on nodes with taints that evict them: each goes when its tolerations have run out
//! (<https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/#taint-based-evictions>).
//!
//! Tolerations are read of the pods of tainted nodes alone, when it comes to that, and not kept.

use freehold_client::{Client, DeleteOptions, Error, Patch, PatchOptions};
use freehold_controllers_context::kinds::PODS;
use freehold_controllers_context::node::{NodeView, Taint};
use freehold_controllers_context::object::{generation, int, items, unless_gone};
use freehold_controllers_context::placement::tolerates;
use freehold_controllers_context::pods::PodView;
use freehold_controllers_context::{Context, Reconcile};
use freehold_machinery::{Value, meta, time};
use freehold_runtime::{EventType, Key, Outcome, Planes, Queue, Reconciled, Recorder, Store};
use jiff::Timestamp;
use serde_json::json;
use std::time::Duration;

/// What becomes of a pod.
#[derive(Debug, PartialEq)]
enum Fate {
    Stays,
    /// It goes in this time.
    Goes(Duration),
}

/// Decides about a pod by the taints of its node.
fn decide(pod: &Value, node: &NodeView, now: Timestamp) -> Fate {
    let mut left: Option<Duration> = None;
    for taint in node.taints.iter().filter(|taint| &*taint.effect == "NoExecute") {
        let tolerations = items(pod, "/spec/tolerations").iter().filter(|t| tolerates(t, taint));
        let mut seconds: Vec<Option<i64>> = tolerations.map(|t| int(t, "/tolerationSeconds")).collect();
        seconds.sort_by_key(|s| s.unwrap_or(i64::MAX));
        let Some(least) = seconds.first() else { return Fate::Goes(Duration::ZERO) };
        if let Some(seconds) = least {
            let rest = until(taint, *seconds, now);
            left = Some(left.map_or(rest, |other| other.min(rest)));
        }
    }
    left.map_or(Fate::Stays, Fate::Goes)
}

/// How long a taint is still tolerated that is for so many seconds.
fn until(taint: &Taint, seconds: i64, now: Timestamp) -> Duration {
    let added = time::parse(&taint.added).unwrap_or(now);
    let passed = Duration::try_from(now.duration_since(added)).unwrap_or_default();
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0)).saturating_sub(passed)
}

struct Eviction {
    planes: Planes,
    nodes: Store<NodeView>,
    pods: Store<PodView>,
    recorder: Recorder,
}

fn evicts(node: &NodeView) -> bool {
    node.taints.iter().any(|taint| &*taint.effect == "NoExecute")
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    let (nodes, pods) = (context.nodes().store(), context.pods().store());
    let (on_nodes, bound) = (queue.clone(), pods.clone());
    context.nodes().on_change(move |change| {
        let Some(node) = change.new.as_ref().filter(|node| evicts(node)) else { return };
        if change.old.as_ref().is_some_and(|old| old.taints == node.taints) {
            return;
        }
        for (key, _) in bound.by_index(&change.key.plane, &PodView::on_node(&change.key.name)) {
            on_nodes.add(key);
        }
    });
    let (on_pods, known) = (queue.clone(), nodes.clone());
    context.pods().on_change(move |change| {
        let Some(pod) = change.new.as_ref().filter(|pod| pod.scheduled && !pod.deleting) else { return };
        let node = known.get(&Key::new(change.key.plane.clone(), "", &pod.node));
        if node.is_some_and(|node| evicts(&node)) {
            on_pods.add(change.key.clone());
        }
    });
    let controller = Eviction {
        planes: context.planes.clone(),
        nodes: nodes.clone(),
        pods: pods.clone(),
        recorder: Recorder::new("taint-eviction-controller"),
    };
    context.control("taint-eviction", 4, &queue, &[&nodes, &pods], controller);
}

impl Reconcile for Eviction {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        let Some(view) = self.pods.get(&key).filter(|pod| !pod.deleting) else { return Ok(Outcome::Done) };
        let node = self.nodes.get(&Key::new(key.plane.clone(), "", &view.node));
        let Some(node) = node.filter(|node| evicts(node)) else { return Ok(Outcome::Done) };
        let client = self.planes.client(&key.plane);
        let Some(pod) = client.get_opt(&PODS, key.ns(), &key.name).await? else { return Ok(Outcome::Done) };
        if meta::uid(&pod) != view.uid || meta::is_deleting(&pod) {
            return Ok(Outcome::Done);
        }
        match decide(&pod, &node, Timestamp::now()) {
            Fate::Stays => Ok(Outcome::Done),
            Fate::Goes(left) if !left.is_zero() => Ok(Outcome::After(left)),
            Fate::Goes(_) => {
                self.evict(&client, &key, &pod).await?;
                Ok(Outcome::Done)
            }
        }
    }
}

impl Eviction {
    async fn evict(&self, client: &Client, key: &Key, pod: &Value) -> Result<(), Error> {
        let (uid, this) = (meta::uid(pod), (key.ns(), &*key.name, meta::uid(pod)));
        let message = format!("Marking for deletion Pod {}/{}", key.namespace, key.name);
        self.recorder.event(client, pod, EventType::Normal, "TaintManagerEviction", &message).await;
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint", "observedGeneration": generation(pod),
            "lastTransitionTime": time::format_seconds(Timestamp::now()),
        });
        let patch =
            Patch::Strategic(json!({"metadata": {"uid": uid}, "status": {"conditions": [condition]}}));
        if let Err(error) = client.patch(&PODS, key.ns(), &key.name, &patch, &PatchOptions::status()).await {
            return unless_gone(client, &PODS, this, error).await;
        }
        match client.delete(&PODS, key.ns(), &key.name, &DeleteOptions::uid(uid)).await {
            Err(error) => unless_gone(client, &PODS, this, error).await,
            Ok(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_goes_when_its_shortest_toleration_has_run_out() {
        let taint = |key: &str| Taint {
            key: key.into(),
            effect: "NoExecute".into(),
            added: "1970-01-01T00:00:00Z".into(),
            ..Taint::default()
        };
        let node = |keys: &[&str]| NodeView {
            taints: keys.iter().map(|k| taint(k)).collect(),
            ..NodeView::default()
        };
        let pod = |tolerations: Value| json!({"spec": {"tolerations": tolerations}});
        let for_seconds = |key: &str, seconds: i64| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
        let now = Timestamp::from_second(100).unwrap();
        let goes = |seconds| Fate::Goes(Duration::from_secs(seconds));
        for (tolerations, keys, expected) in [
            (json!([]), vec!["a"], goes(0)),
            (json!([for_seconds("a", 300)]), vec!["a"], goes(200)),
            (json!([for_seconds("a", 50)]), vec!["a"], goes(0)),
            (json!([for_seconds("a", 300), for_seconds("b", 150)]), vec!["a", "b"], goes(50)),
            (json!([for_seconds("a", 300)]), vec!["a", "b"], goes(0)),
            (json!([{"operator": "Exists"}]), vec!["a", "b"], Fate::Stays),
            (json!([]), vec![], Fate::Stays),
        ] {
            assert_eq!(
                decide(&pod(tolerations.clone()), &node(&keys), now),
                expected,
                "{tolerations} {keys:?}"
            );
        }
    }
}
