//! What becomes of a node that is silent or not ready: its conditions, and the taint that evicts its pods.

use freehold_controllers_context::node::{NodeView, Readiness};
use freehold_controllers_context::object::{items, text};
use freehold_machinery::{Value, time};
use jiff::Timestamp;
use serde_json::json;
use std::time::Duration;

/// How long a node may be silent.
pub(super) const GRACE: Duration = Duration::from_secs(50);
/// How long a node that has never said anything may be.
const STARTUP_GRACE: Duration = Duration::from_secs(60);
/// Conditions that are unknown of a silent node.
const CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];
/// Taints that evict pods, of nodes that are not ready and of those that are silent.
pub(super) const NOT_READY: &str = "node.kubernetes.io/not-ready";
pub(super) const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// One step about a node.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Nothing, until it has been silent for so much longer.
    Watch(Duration),
    /// Its conditions become unknown.
    Silent,
}

/// How ready the nodes of a zone are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Zone {
    /// Most are: nodes that are not are tainted, one in so much time.
    Sound(Duration),
    /// So few are that evicting pods would not help.
    Disrupted,
}

/// Decides whether a node is silent that said something so long ago.
pub(super) fn silence(node: &NodeView, since: Duration) -> Step {
    let grace = if node.ready.is_some() { GRACE } else { STARTUP_GRACE };
    match grace.saturating_sub(since) {
        Duration::ZERO if node.ready != Some(Readiness::Unknown) => Step::Silent,
        // One that stays silent is looked at again when it speaks.
        Duration::ZERO => Step::Watch(GRACE),
        left => Step::Watch(left),
    }
}

/// The conditions of a silent node; `None` where they are unknown already.
pub(super) fn unknown(node: &Value, now: Timestamp) -> Option<Vec<Value>> {
    let at = time::format_seconds(now);
    let mut all = items(node, "/status/conditions").to_vec();
    let mut changed = false;
    for type_ in CONDITIONS {
        match all.iter_mut().find(|c| c["type"] == type_) {
            Some(known) if known["status"] == "Unknown" => {}
            Some(known) => {
                known["status"] = "Unknown".into();
                known["reason"] = "NodeStatusUnknown".into();
                known["message"] = "Kubelet stopped posting node status.".into();
                known["lastTransitionTime"] = at.clone().into();
                changed = true;
            }
            None => {
                let created = text(node, "/metadata/creationTimestamp");
                all.push(json!({
                    "type": type_, "status": "Unknown", "reason": "NodeStatusNeverUpdated",
                    "message": "Kubelet never posted node status.", "lastHeartbeatTime": created,
                    "lastTransitionTime": at,
                }));
                changed = true;
            }
        }
    }
    changed.then_some(all)
}

/// The key of the evicting taint that a node is to have.
pub(super) fn wanted_taint(node: &NodeView) -> Option<&'static str> {
    match node.ready? {
        Readiness::True => None,
        Readiness::False => Some(NOT_READY),
        Readiness::Unknown => Some(UNREACHABLE),
    }
}

/// Whether a node has another evicting taint than it is to have.
pub(super) fn is_tainted_wrongly(node: &NodeView) -> bool {
    let wanted = wanted_taint(node);
    let has = |key: &str| node.taints.iter().any(|t| &*t.key == key && &*t.effect == "NoExecute");
    [NOT_READY, UNREACHABLE].iter().any(|key| has(key) != (wanted == Some(*key)))
}

/// Whether a node's evicting taint is to be added, not only taken away or exchanged.
pub(super) fn becomes_tainted(node: &NodeView) -> bool {
    let evicts = |key: &str| [NOT_READY, UNREACHABLE].contains(&key);
    wanted_taint(node).is_some() && !node.taints.iter().any(|t| evicts(&t.key) && &*t.effect == "NoExecute")
}

/// A node's taints with the evicting one that it is to have.
pub(super) fn taints(node: &Value, now: Timestamp) -> Vec<Value> {
    let wanted = NodeView::of(node.clone()).as_ref().and_then(wanted_taint);
    let ours = |taint: &Value| {
        taint["effect"] == "NoExecute" && [NOT_READY, UNREACHABLE].contains(&text(taint, "/key"))
    };
    let keeps = |taint: &&Value| !ours(taint) || wanted == Some(text(taint, "/key"));
    let mut taints: Vec<Value> = items(node, "/spec/taints").iter().filter(keeps).cloned().collect();
    if let Some(key) = wanted.filter(|_| !taints.iter().any(ours)) {
        taints.push(json!({"key": key, "effect": "NoExecute", "timeAdded": time::format_seconds(now)}));
    }
    taints
}

/// The name of a node's zone.
pub(super) fn zone_of(node: &NodeView) -> String {
    let label =
        |key: &str| node.labels.as_ref().and_then(|l| l.get(key)).and_then(Value::as_str).unwrap_or("");
    format!("{}:{}", label("topology.kubernetes.io/region"), label("topology.kubernetes.io/zone"))
}

/// How ready the nodes of a zone are, among all nodes.
pub(super) fn zone<'a>(all: impl Iterator<Item = &'a NodeView> + Clone, name: &str) -> Zone {
    let is_ready = |node: &&NodeView| node.ready == Some(Readiness::True);
    let within = all.clone().filter(|node| zone_of(node) == name);
    let (total, ready) = (within.clone().count(), within.filter(is_ready).count());
    let silent = total - ready;
    // Where no node answers, it is the network that does not.
    if !all.clone().any(|node| is_ready(&node)) {
        return Zone::Disrupted;
    }
    if ready > 0 && silent > 2 && silent * 100 >= total * 55 {
        return if total > 50 { Zone::Sound(Duration::from_secs(100)) } else { Zone::Disrupted };
    }
    Zone::Sound(Duration::from_secs(10))
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_controllers_context::node::Taint;

    fn node(ready: Option<Readiness>, taint: &str) -> NodeView {
        let taints = [taint].into_iter().filter(|key| !key.is_empty());
        let taints =
            taints.map(|key| Taint { key: key.into(), effect: "NoExecute".into(), ..Taint::default() });
        NodeView { ready, taints: taints.collect(), ..NodeView::default() }
    }

    #[test]
    fn a_node_is_silent_after_its_grace() {
        let seconds = Duration::from_secs;
        for (ready, since, expected) in [
            (Some(Readiness::True), 10, Step::Watch(seconds(40))),
            (Some(Readiness::True), 50, Step::Silent),
            (Some(Readiness::False), 51, Step::Silent),
            (Some(Readiness::Unknown), 500, Step::Watch(GRACE)),
            (None, 55, Step::Watch(seconds(5))),
            (None, 60, Step::Silent),
        ] {
            assert_eq!(silence(&node(ready, ""), seconds(since)), expected, "{ready:?} {since}");
        }
    }

    #[test]
    fn conditions_of_a_silent_node_are_unknown() {
        let node = json!({
            "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]},
        });
        let conditions = unknown(&node, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(conditions.len(), 4);
        assert_eq!(
            (&conditions[0]["status"], &conditions[0]["reason"]),
            (&json!("Unknown"), &json!("NodeStatusUnknown"))
        );
        assert_eq!(conditions[1]["reason"], "NodeStatusNeverUpdated");
        assert_eq!(unknown(&json!({"status": {"conditions": conditions}}), Timestamp::UNIX_EPOCH), None);
    }

    #[test]
    fn the_evicting_taint_follows_the_condition() {
        for (ready, taint, wrong, added) in [
            (Some(Readiness::True), "", false, false),
            (Some(Readiness::True), NOT_READY, true, false),
            (Some(Readiness::False), "", true, true),
            (Some(Readiness::False), NOT_READY, false, false),
            (Some(Readiness::Unknown), NOT_READY, true, false),
            (None, "", false, false),
        ] {
            let node = node(ready, taint);
            assert_eq!(
                (is_tainted_wrongly(&node), becomes_tainted(&node)),
                (wrong, added),
                "{ready:?} {taint}"
            );
        }
        let node = json!({
            "spec": {"taints": [{"key": NOT_READY, "effect": "NoExecute"}, {"key": NOT_READY, "effect": "NoSchedule"}]},
            "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]},
        });
        let taints = taints(&node, Timestamp::UNIX_EPOCH);
        let added = json!({"key": UNREACHABLE, "effect": "NoExecute", "timeAdded": "1970-01-01T00:00:00Z"});
        assert_eq!(taints, [json!({"key": NOT_READY, "effect": "NoSchedule"}), added]);
    }

    #[test]
    fn nothing_is_evicted_where_too_few_nodes_answer() {
        let nodes = |ready: usize, silent: usize| -> Vec<NodeView> {
            let of = |ready| node(Some(ready), "");
            (0..ready)
                .map(|_| of(Readiness::True))
                .chain((0..silent).map(|_| of(Readiness::Unknown)))
                .collect()
        };
        let normal = Zone::Sound(Duration::from_secs(10));
        for (ready, silent, expected) in [
            (1, 1, normal),
            (0, 1, Zone::Disrupted),
            (2, 3, Zone::Disrupted),
            (20, 40, Zone::Sound(Duration::from_secs(100))),
            (5, 3, normal),
        ] {
            assert_eq!(zone(nodes(ready, silent).iter(), ":"), expected, "{ready} {silent}");
        }
    }
}
