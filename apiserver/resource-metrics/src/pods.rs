//! The Pods of a plane by the node that they are bound to: what a node may speak of.

use serde::Deserialize;
use std::{borrow::Cow, collections::HashMap};

/// Namespace and name of a Pod.
type PodName = (String, String);

/// What is known of a bound Pod.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PlacedPod {
    pub(crate) uid: String,
    /// The names of all its containers.
    pub(crate) containers: Vec<String>,
}

/// The Pods that are bound to one node and run there.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct NodePods(pub(crate) HashMap<PodName, PlacedPod>);

/// The running Pods of a plane, by the names of their nodes.
#[derive(Debug, Default)]
pub struct PlacedPods(HashMap<String, NodePods>);

#[derive(Deserialize)]
struct Pod<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
    #[serde(borrow, default)]
    spec: Spec<'a>,
    #[serde(borrow, default)]
    status: PodStatus<'a>,
}

#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Cow<'a, str>,
    #[serde(borrow, default)]
    uid: Cow<'a, str>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    #[serde(borrow, default)]
    node_name: Option<Cow<'a, str>>,
    #[serde(default)]
    containers: Option<Vec<Named>>,
    #[serde(default)]
    init_containers: Option<Vec<Named>>,
    #[serde(default)]
    ephemeral_containers: Option<Vec<Named>>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

#[derive(Default, Deserialize)]
struct PodStatus<'a> {
    #[serde(borrow, default)]
    phase: Option<Cow<'a, str>>,
}

impl PlacedPods {
    /// Adds a Pod, given its JSON, if it runs on a node.
    pub fn add(&mut self, json: &[u8]) {
        let Ok(Pod { metadata, spec, status }) = serde_json::from_slice(json) else { return };
        let Some(node) = spec.node_name.filter(|node| !node.is_empty()) else { return };
        if status.phase.as_deref() != Some("Running") {
            return;
        }
        let lists = [spec.containers, spec.init_containers, spec.ephemeral_containers];
        let containers = lists.into_iter().flatten().flatten().map(|container| container.name).collect();
        let placed = PlacedPod { uid: metadata.uid.into_owned(), containers };
        let pods = self.0.entry(node.into_owned()).or_default();
        pods.0.insert((metadata.namespace.into_owned(), metadata.name.into_owned()), placed);
    }

    /// Takes the Pods of a node; none where none run there.
    pub fn take(&mut self, node: &str) -> NodePods {
        self.0.remove(node).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn running_pods_belong_to_their_nodes() {
        let pod = |name: &str, node: Value, phase: &str| {
            json!({
                "metadata": {"name": name, "namespace": "a", "uid": format!("u-{name}")},
                "spec": {"nodeName": node, "containers": [{"name": "c", "image": "x"}], "initContainers": [{"name": "i"}]},
                "status": {"phase": phase},
            })
        };
        let mut placed = PlacedPods::default();
        for pod in [
            pod("runs", json!("n"), "Running"),
            pod("waits", json!("n"), "Pending"),
            pod("nowhere", Value::Null, "Running"),
            pod("elsewhere", json!("m"), "Running"),
            json!({"metadata": {"name": "bare"}}),
        ] {
            placed.add(pod.to_string().as_bytes());
        }
        placed.add(b"not an object");
        let pods = placed.take("n");
        let found = &pods.0[&("a".to_owned(), "runs".to_owned())];
        assert_eq!(
            (pods.0.len(), &*found.uid, &found.containers[..]),
            (1, "u-runs", &["c", "i"].map(String::from)[..])
        );
        assert_eq!(placed.take("n"), NodePods::default());
    }
}
