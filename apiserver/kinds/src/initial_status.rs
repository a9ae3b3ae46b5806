//! The status that a new object starts with: the zero of each number that Kubernetes always shows.

use freehold_machinery::{ResourceType, Value};
use serde_json::json;

/// The status of a new object of a built-in kind that has one.
pub fn initial(ty: &ResourceType) -> Value {
    match (ty.group.as_str(), ty.plural.as_str(), ty.version.as_str()) {
        ("", "services", _) | ("networking.k8s.io", "ingresses", _) => json!({"loadBalancer": {}}),
        ("", "replicationcontrollers", _) | ("apps", "replicasets", _) => json!({"replicas": 0}),
        ("apps", "statefulsets", _) => json!({"availableReplicas": 0, "replicas": 0}),
        ("apps", "daemonsets", _) => json!({"currentNumberScheduled": 0, "desiredNumberScheduled": 0,
            "numberMisscheduled": 0, "numberReady": 0}),
        ("policy", "poddisruptionbudgets", _) => {
            json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0})
        }
        ("autoscaling", "horizontalpodautoscalers", "v1") => {
            json!({"currentReplicas": 0, "desiredReplicas": 0})
        }
        ("autoscaling", "horizontalpodautoscalers", _) => json!({"desiredReplicas": 0}),
        _ => json!({}),
    }
}
