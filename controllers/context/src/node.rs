//! What controllers keep of each node: a small part of it.

use crate::object::{conditions_of, items, labels, text};
use freehold_machinery::{Map, Value};

/// What is kept of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeView {
    /// `metadata.labels`.
    pub labels: Option<Map>,
    /// `spec.taints`.
    pub taints: Vec<Taint>,
    /// Status of the condition `Ready`; `None` where the node has said nothing yet.
    pub ready: Option<Readiness>,
    /// When it last said whether it is ready, RFC 3339; empty where it never did.
    pub heartbeat: Box<str>,
    /// Whether its taints are not those that follow from its conditions ([`crate::taints`]).
    pub taints_are_wrong: bool,
}

/// A taint of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Taint {
    /// Its key.
    pub key: Box<str>,
    /// Its value; empty where it has none.
    pub value: Box<str>,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: Box<str>,
    /// When it was added, RFC 3339; empty where nobody said.
    pub added: Box<str>,
}

/// The status of a node's condition `Ready`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Pods can run on it.
    True,
    /// Pods cannot run on it.
    False,
    /// It has not reported for too long.
    Unknown,
}

impl NodeView {
    /// Returns what is kept of a node.
    pub fn of(node: Value) -> Option<Self> {
        let ready = conditions_of(&node).iter().find(|c| c["type"] == "Ready");
        Some(Self {
            labels: labels(&node).cloned(),
            taints: items(&node, "/spec/taints").iter().map(Taint::of).collect(),
            ready: ready.map(|c| Readiness::of(text(c, "/status"))),
            heartbeat: ready.map(|c| text(c, "/lastHeartbeatTime").into()).unwrap_or_default(),
            taints_are_wrong: crate::taints::decide(&node).is_some(),
        })
    }

    /// Whether it is not ready, and somebody said that its pods have ended.
    pub fn is_out_of_service(&self) -> bool {
        let said = self.taints.iter().any(|taint| &*taint.key == "node.kubernetes.io/out-of-service");
        said && self.ready != Some(Readiness::True)
    }
}

impl Taint {
    /// Reads a taint; absent fields are empty.
    pub fn of(taint: &Value) -> Self {
        let part = |field: &str| taint[field].as_str().unwrap_or("").into();
        Self { key: part("key"), value: part("value"), effect: part("effect"), added: part("timeAdded") }
    }
}

impl Readiness {
    fn of(status: &str) -> Self {
        match status {
            "True" => Self::True,
            "False" => Self::False,
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_node_is_out_of_service_when_it_is_said_to_be_and_is_not_ready() {
        let node = |ready: &str, key: &str| {
            let conditions = json!([{"type": "Ready", "status": ready}]);
            NodeView::of(json!({"spec": {"taints": [{"key": key}]}, "status": {"conditions": conditions}}))
                .unwrap()
        };
        assert!(node("False", "node.kubernetes.io/out-of-service").is_out_of_service());
        assert!(!node("True", "node.kubernetes.io/out-of-service").is_out_of_service());
        assert!(!node("Unknown", "node.kubernetes.io/unreachable").is_out_of_service());
    }
}
