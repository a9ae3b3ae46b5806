//! What controllers keep of each pod: a small part of it.

use crate::object::{controller_of, controller_reference, items, orphan_entry, text};
use freehold_controller_manager_runtime::Key;
use freehold_machinery::{Map, Value, meta};
use serde_json::json;

/// What is kept of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PodView {
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    pub(crate) labels: Option<Map>,
    /// The uid of its controller; empty where it has none.
    pub(crate) owner: String,
    pub(crate) deleting: bool,
    pub(crate) phase: Phase,
    pub(crate) ready: bool,
    /// When it became ready, RFC 3339; empty where it is not.
    pub(crate) ready_since: String,
    pub(crate) scheduled: bool,
    pub(crate) created: String,
    pub(crate) node: String,
    pub(crate) ips: Vec<String>,
    /// Named container ports with their numbers.
    pub(crate) ports: Vec<(String, i64)>,
    pub(crate) restarts: i64,
}

/// `status.phase`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    #[default]
    Pending,
    Unknown,
    Running,
    Succeeded,
    Failed,
}

impl PodView {
    pub(crate) fn of(pod: Value) -> Option<Self> {
        let ready =
            items(&pod, "/status/conditions").iter().find(|c| c["type"] == "Ready" && c["status"] == "True");
        let containers = items(&pod, "/spec/containers");
        let named = containers
            .iter()
            .flat_map(|c| items(c, "/ports"))
            .filter_map(|port| Some((port["name"].as_str()?.to_owned(), port["containerPort"].as_i64()?)));
        let ips: Vec<String> =
            items(&pod, "/status/podIPs").iter().map(|ip| text(ip, "/ip").to_owned()).collect();
        Some(Self {
            uid: meta::uid(&pod).to_owned(),
            resource_version: meta::resource_version(&pod).to_owned(),
            labels: crate::object::labels(&pod).cloned(),
            owner: controller_of(&pod).and_then(|o| o["uid"].as_str()).unwrap_or_default().to_owned(),
            deleting: meta::is_deleting(&pod),
            phase: Phase::of(text(&pod, "/status/phase")),
            ready: ready.is_some(),
            ready_since: ready.map(|c| text(c, "/lastTransitionTime").to_owned()).unwrap_or_default(),
            scheduled: !text(&pod, "/spec/nodeName").is_empty(),
            created: meta::text(&pod, "creationTimestamp").to_owned(),
            node: text(&pod, "/spec/nodeName").to_owned(),
            ips: if ips.is_empty() { single(text(&pod, "/status/podIP")) } else { ips },
            ports: named.collect(),
            restarts: items(&pod, "/status/containerStatuses")
                .iter()
                .filter_map(|c| c["restartCount"].as_i64())
                .sum(),
        })
    }

    /// Index entries: the controller's uid, and the namespace's orphans.
    pub(crate) fn index(key: &Key, pod: &Self) -> Vec<String> {
        vec![if pod.owner.is_empty() { orphan_entry(&key.namespace) } else { pod.owner.clone() }]
    }

    /// Whether it has neither ended nor been told to.
    pub(crate) fn is_active(&self) -> bool {
        !self.deleting && !matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }
}

/// A pod from a template, controlled by `owner` and named after it.
pub(crate) fn new_pod(owner: &Value, template: &Value) -> Value {
    let mut metadata = json!({
        "generateName": format!("{}-", meta::name(owner)),
        "namespace": meta::namespace(owner),
        "ownerReferences": [controller_reference(owner)],
    });
    for field in ["labels", "annotations", "finalizers"] {
        if let Some(value) = template.pointer("/metadata").and_then(|m| m.get(field)) {
            metadata[field] = value.clone();
        }
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
}

fn single(ip: &str) -> Vec<String> {
    if ip.is_empty() { Vec::new() } else { vec![ip.to_owned()] }
}

impl Phase {
    fn of(phase: &str) -> Self {
        match phase {
            "Running" => Self::Running,
            "Succeeded" => Self::Succeeded,
            "Failed" => Self::Failed,
            "Unknown" => Self::Unknown,
            _ => Self::Pending,
        }
    }
}
