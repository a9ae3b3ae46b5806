//! Taints of nodes that follow from their conditions
//! (<https://kubernetes.io/docs/concepts/architecture/nodes/#condition>).

use crate::object::{items, text};
use freehold_machinery::Value;
use serde_json::json;

const EFFECT: &str = "NoSchedule";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// A condition and its status, and the taint that it brings.
const TAINTS: [(&str, &str, &str); 6] = [
    ("Ready", "False", "node.kubernetes.io/not-ready"),
    ("Ready", "Unknown", "node.kubernetes.io/unreachable"),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
];

/// The taints that a node is to have; `None` where it has them. One that says nothing of itself keeps what it has.
pub fn decide(node: &Value) -> Option<Vec<Value>> {
    let conditions = items(node, "/status/conditions");
    if conditions.is_empty() {
        return None;
    }
    let says =
        |type_: &str, status: &str| conditions.iter().any(|c| c["type"] == type_ && c["status"] == status);
    let mut wanted: Vec<&str> =
        TAINTS.iter().filter(|(type_, status, _)| says(type_, status)).map(|(_, _, key)| *key).collect();
    if node["spec"]["unschedulable"] == true {
        wanted.push(UNSCHEDULABLE);
    }
    let has = items(node, "/spec/taints");
    let ours = |taint: &&Value| {
        let key = text(taint, "/key");
        taint["effect"] == EFFECT
            && (key == UNSCHEDULABLE || TAINTS.iter().any(|(_, _, other)| *other == key))
    };
    let kept = has.iter().filter(|taint| !ours(taint) || wanted.contains(&text(taint, "/key"))).cloned();
    let mut taints: Vec<Value> = kept.collect();
    for key in wanted {
        if !taints.iter().any(|taint| taint["effect"] == EFFECT && taint["key"] == key) {
            taints.push(json!({"key": key, "effect": EFFECT}));
        }
    }
    (taints != has).then_some(taints)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(ready: &str, taints: Value) -> Value {
        json!({"spec": {"taints": taints}, "status": {"conditions": [{"type": "Ready", "status": ready}]}})
    }

    #[test]
    fn taints_follow_conditions_and_those_of_others_stay() {
        let not_ready = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
        let own = json!({"key": "mine", "effect": "NoSchedule"});
        assert_eq!(decide(&node("True", json!([not_ready, own]))), Some(vec![own.clone()]));
        assert_eq!(decide(&node("True", json!([own]))), None);
        assert_eq!(decide(&node("False", json!([own]))), Some(vec![own.clone(), not_ready.clone()]));
        assert_eq!(decide(&node("False", json!([not_ready]))), None);
        assert_eq!(decide(&json!({"spec": {"taints": [not_ready]}})), None, "it has said nothing yet");
        let mut cordoned = node("True", json!([]));
        cordoned["spec"]["unschedulable"] = true.into();
        assert_eq!(decide(&cordoned).unwrap()[0]["key"], UNSCHEDULABLE);
    }
}
