//! Usage as objects of the API.

use crate::{ContainerUsage, GROUP, Usage, VERSION};
use freehold_machinery::{
    Map, Value,
    quantity::{Format, Quantity},
    time,
};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

/// The interval at which kubelets sample what runs, over which their CPU usage is an average.
const WINDOW: &str = "10s";

/// The `NodeMetrics` of a node, given the node's JSON. `now` is the time of the request.
pub fn node_metrics(node: &[u8], usage: &Usage, now: Timestamp) -> Value {
    let mut object = object("NodeMetrics", node, (usage.at, now));
    object["usage"] = quantities(usage);
    object
}

/// The `PodMetrics` of a Pod, given the Pod's JSON. `now` is the time of the request.
pub fn pod_metrics(pod: &[u8], containers: &[ContainerUsage], now: Timestamp) -> Value {
    // Metrics of a Pod are as old as the oldest of its containers'.
    let at = containers.iter().map(|container| container.usage.at).min().unwrap_or(now);
    let mut object = object("PodMetrics", pod, (at, now));
    let containers = containers.iter().map(|c| json!({"name": c.name, "usage": quantities(&c.usage)}));
    object["containers"] = containers.collect();
    object
}

/// What the metrics of an object take from its metadata.
#[derive(Default, Deserialize)]
struct Outer {
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    labels: Option<Map>,
}

fn object(kind: &str, of: &[u8], (at, now): (Timestamp, Timestamp)) -> Value {
    // What is stored is JSON of an object.
    let Outer { metadata: Metadata { name, namespace, labels } } =
        serde_json::from_slice(of).unwrap_or_default();
    let mut metadata = json!({"name": name, "creationTimestamp": time::format_seconds(now)});
    if !namespace.is_empty() {
        metadata["namespace"] = namespace.into();
    }
    if let Some(labels) = labels.filter(|labels| !labels.is_empty()) {
        metadata["labels"] = labels.into();
    }
    json!({
        "kind": kind,
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "metadata": metadata,
        "timestamp": time::format_seconds(at),
        "window": WINDOW,
    })
}

/// CPU in `n`, memory in `Ki`, each with the largest suffix that loses nothing, as metrics-server writes them.
fn quantities(usage: &Usage) -> Value {
    let cpu = Quantity::from_nano(usage.cpu_nanocores, Format::DecimalSi);
    let memory = i64::try_from(usage.memory_bytes).unwrap_or(i64::MAX);
    let memory = Quantity::from_units(memory, Format::BinarySi);
    json!({"cpu": cpu.to_string(), "memory": memory.to_string()})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(cpu_nanocores: u64, memory_bytes: u64, at: &str) -> Usage {
        Usage { at: at.parse().unwrap(), cpu_nanocores, memory_bytes }
    }

    #[test]
    fn objects_are_as_metrics_server_writes_them() {
        let now = "2026-01-01T00:01:00.5Z".parse().unwrap();
        let node =
            br#"{"metadata": {"name": "n", "uid": "u", "labels": {"zone": "a"}, "annotations": {"x": "y"}}}"#;
        let expected = json!({
            "kind": "NodeMetrics", "apiVersion": "metrics.k8s.io/v1beta1",
            "metadata": {"name": "n", "creationTimestamp": "2026-01-01T00:01:00Z", "labels": {"zone": "a"}},
            "timestamp": "2026-01-01T00:00:50Z", "window": "10s", "usage": {"cpu": "156340284n", "memory": "2118432Ki"},
        });
        let used = usage(156_340_284, 2_118_432 * 1024, "2026-01-01T00:00:50Z");
        assert_eq!(node_metrics(node, &used, now), expected);
        let containers = [("x", 2_000_000, "2026-01-01T00:00:50Z"), ("y", 0, "2026-01-01T00:00:45Z")]
            .map(|(name, cpu, at)| ContainerUsage { name: name.to_owned(), usage: usage(cpu, 0, at) });
        let expected = json!({
            "kind": "PodMetrics", "apiVersion": "metrics.k8s.io/v1beta1",
            "metadata": {"name": "p", "namespace": "a", "creationTimestamp": "2026-01-01T00:01:00Z"},
            "timestamp": "2026-01-01T00:00:45Z", "window": "10s",
            "containers": [
                {"name": "x", "usage": {"cpu": "2m", "memory": "0"}}, {"name": "y", "usage": {"cpu": "0", "memory": "0"}},
            ],
        });
        assert_eq!(
            pod_metrics(br#"{"metadata": {"name": "p", "namespace": "a"}}"#, &containers, now),
            expected
        );
    }

    #[test]
    fn absurd_amounts_stay_quantities() {
        let most = quantities(&usage(u64::MAX, u64::MAX, "2026-01-01T00:00:00Z"));
        for amount in ["cpu", "memory"] {
            assert!(most[amount].as_str().unwrap().parse::<Quantity>().is_ok(), "{most}");
        }
    }
}
