//! Pods that nobody will ever end or remove: on nodes that are gone or out of service, told to end before any node had them,
//! or ended and more than a plane keeps (<https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-garbage-collection>).

use freehold_client::{Client, DeleteOptions, Error, Patch, PatchOptions};
use freehold_controllers_context::kinds::{NODES, PODS};
use freehold_controllers_context::node::NodeView;
use freehold_controllers_context::object::{generation, unless_gone};
use freehold_controllers_context::pods::{ENDED, Phase, PodView};
use freehold_controllers_context::{Context, Reconcile};
use freehold_machinery::{Value, time};
use freehold_runtime::{Key, Outcome, Planes, Queue, Reconciled, Store};
use jiff::Timestamp;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// Ended pods that a plane keeps, as kube-controller-manager does.
const KEPT: usize = 12_500;
/// A node that is missing may come back in this time.
const QUARANTINE: Duration = Duration::from_secs(40);
/// A pod that was told to end may be gone by itself in this time.
const PERIOD: Duration = Duration::from_secs(20);

/// What becomes of a pod.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Stays,
    /// It goes unless something changes in this time; its node is to be asked for before.
    Orphaned,
    /// It goes: nobody else can end it.
    Unscheduled,
    /// It goes: its node is out of service.
    OutOfService,
}

fn decide(pod: &PodView, node: Option<&NodeView>) -> Fate {
    match node {
        None if pod.node.is_empty() && pod.deleting => Fate::Unscheduled,
        None if !pod.node.is_empty() => Fate::Orphaned,
        Some(node) if pod.deleting && node.is_out_of_service() => Fate::OutOfService,
        _ => Fate::Stays,
    }
}

/// The oldest of more ended pods than are kept, evicted ones first.
fn surplus(mut ended: Vec<(Key, Arc<PodView>)>) -> Vec<(Key, Arc<PodView>)> {
    let count = ended.len().saturating_sub(KEPT);
    ended.sort_by(|(a_key, a), (b_key, b)| {
        b.evicted.cmp(&a.evicted).then_with(|| a.created.cmp(&b.created)).then_with(|| a_key.cmp(b_key))
    });
    ended.truncate(count);
    ended
}

struct Collector {
    planes: Planes,
    pods: Store<PodView>,
    nodes: Store<NodeView>,
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    let nodes = context.nodes().store();
    let pods = context.pods().store();
    let (on_nodes, bound) = (queue.clone(), pods.clone());
    context.nodes().on_change(move |change| {
        let bad = change.new.as_ref().is_none_or(|node| node.is_out_of_service());
        if bad {
            for (key, _) in bound.by_index(&change.key.plane, &PodView::on_node(&change.key.name)) {
                on_nodes.add(key);
            }
        }
    });
    let (on_pods, known, ended) = (queue.clone(), nodes.clone(), pods.clone());
    context.pods().on_change(move |change| {
        let Some(pod) = &change.new else { return };
        let plane = &change.key.plane;
        let node = known.get(&Key::new(plane.clone(), "", &pod.node));
        match decide(pod, node.as_deref()) {
            Fate::Stays => {}
            Fate::Orphaned => on_pods.add_after(change.key.clone(), QUARANTINE),
            Fate::Unscheduled | Fate::OutOfService => on_pods.add_after(change.key.clone(), PERIOD),
        }
        if pod.has_ended() && ended.count_by_index(plane, ENDED) > KEPT {
            on_pods.add_after(Key::new(plane.clone(), "", ""), PERIOD);
        }
    });
    let controller = Collector { planes: context.planes.clone(), pods: pods.clone(), nodes: nodes.clone() };
    context.control("pod-garbage-collector", 2, &queue, &[&pods, &nodes], controller);
}

impl Reconcile for Collector {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        let client = self.planes.client(&key.plane);
        if key.name.is_empty() {
            for (key, pod) in surplus(self.pods.by_index(&key.plane, ENDED)) {
                end(&client, &key, &pod, None).await?;
            }
            return Ok(Outcome::Done);
        }
        let Some(pod) = self.pods.get(&key) else { return Ok(Outcome::Done) };
        let node = self.nodes.get(&Key::new(key.plane.clone(), "", &pod.node));
        let condition = match decide(&pod, node.as_deref()) {
            Fate::Stays => return Ok(Outcome::Done),
            Fate::Unscheduled | Fate::OutOfService => None,
            Fate::Orphaned if client.get_opt(&NODES, None, &pod.node).await?.is_some() => {
                return Ok(Outcome::Done);
            }
            Fate::Orphaned => Some("PodGC: node no longer exists"),
        };
        end(&client, &key, &pod, condition).await?;
        Ok(Outcome::Done)
    }
}

/// Says that a pod failed, so that whoever made it knows, and removes it at once.
async fn end(client: &Client, key: &Key, pod: &PodView, why: Option<&str>) -> Result<(), Error> {
    let this = (key.ns(), &*key.name, pod.uid.as_str());
    if !matches!(pod.phase, Phase::Succeeded | Phase::Failed) {
        let Some(found) = client.get_opt(&PODS, key.ns(), &key.name).await? else { return Ok(()) };
        let patch = Patch::Strategic(json!({
            "metadata": {"uid": pod.uid}, "status": failed(&found, why, Timestamp::now()),
        }));
        let told = client.patch(&PODS, key.ns(), &key.name, &patch, &PatchOptions::status()).await;
        if let Err(error) = told {
            unless_gone(client, &PODS, this, error).await?;
        }
    }
    let options = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::uid(&pod.uid) };
    match client.delete(&PODS, key.ns(), &key.name, &options).await {
        Err(error) => unless_gone(client, &PODS, this, error).await,
        Ok(_) => Ok(()),
    }
}

fn failed(pod: &Value, why: Option<&str>, now: Timestamp) -> Value {
    let mut status = json!({"phase": "Failed", "observedGeneration": generation(pod)});
    if let Some(message) = why {
        status["conditions"] = json!([{
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC", "message": message,
            "observedGeneration": generation(pod), "lastTransitionTime": time::format_seconds(now),
            "lastProbeTime": null,
        }]);
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_controllers_context::node::Taint;
    use freehold_machinery::PlaneId;

    #[test]
    fn pods_go_when_nobody_can_end_them() {
        let pod = |node: &str, deleting| PodView { node: node.into(), deleting, ..PodView::default() };
        let service = Taint { key: "node.kubernetes.io/out-of-service".into(), ..Taint::default() };
        let (good, lost) = (NodeView::default(), NodeView { taints: vec![service], ..NodeView::default() });
        let rows = [
            (pod("", false), None, Fate::Stays),
            (pod("", true), None, Fate::Unscheduled),
            (pod("a", false), Some(&good), Fate::Stays),
            (pod("a", true), Some(&good), Fate::Stays),
            (pod("a", false), Some(&lost), Fate::Stays),
            (pod("a", true), Some(&lost), Fate::OutOfService),
            (pod("a", false), None, Fate::Orphaned),
        ];
        for (pod, node, fate) in rows {
            assert_eq!(decide(&pod, node), fate, "{pod:?} {node:?}");
        }
    }

    #[test]
    fn of_too_many_ended_pods_evicted_and_old_ones_go() {
        let pod = |at: usize, evicted| {
            let view = PodView { created: format!("{at:08}"), evicted, ..PodView::default() };
            (Key::new(PlaneId::core(), "n", &at.to_string()), Arc::new(view))
        };
        let pods: Vec<_> = (0..KEPT + 2).map(|at| pod(at, at == 7_000)).collect();
        let names: Vec<String> = surplus(pods).into_iter().map(|(key, _)| key.name.to_string()).collect();
        assert_eq!(names, ["7000", "0"]);
        assert!(surplus(vec![pod(0, true)]).is_empty());
    }
}
