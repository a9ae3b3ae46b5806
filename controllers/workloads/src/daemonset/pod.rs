//! Pods of a DaemonSet: on which nodes they may be, and how each is tied to its own.

use freehold_controllers_context::node::NodeView;
use freehold_controllers_context::object::{items, text};
use freehold_controllers_context::placement::{admits, is_repelled};
use freehold_controllers_context::pods::new_pod;
use freehold_controllers_context::revisions::POD_REVISION;
use freehold_machinery::{Value, meta};
use serde_json::json;

/// The annotation with how often a DaemonSet's template changed.
const GENERATION: &str = "deprecated.daemonset.template.generation";
/// The label of its pods with the same.
const POD_GENERATION: &str = "pod-template-generation";
/// Taints that its pods tolerate: of nodes that have trouble.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];
const NO_NETWORK: (&str, &str) = ("node.kubernetes.io/network-unavailable", "NoSchedule");

/// What nodes have to do with a DaemonSet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fit {
    /// A pod is to be there.
    Runs,
    /// A pod that is there may stay, and none is made.
    Stays,
    /// None may be there.
    Leaves,
}

/// The template of new pods: with the tolerations that all pods of DaemonSets have.
pub(super) struct Template {
    template: Value,
}

impl Template {
    pub(super) fn of(set: &Value) -> Self {
        let mut template = set["spec"]["template"].clone();
        let host_network = template["spec"]["hostNetwork"] == true;
        let mut tolerations = items(&template, "/spec/tolerations").to_vec();
        for (key, effect) in TOLERATED.into_iter().chain(host_network.then_some(NO_NETWORK)) {
            tolerate(&mut tolerations, json!({"key": key, "operator": "Exists", "effect": effect}));
        }
        template["spec"]["tolerations"] = tolerations.into();
        Self { template }
    }

    /// What a node has to do with the set.
    pub(super) fn fit(&self, name: &str, node: &NodeView) -> Fit {
        let spec = &self.template["spec"];
        let named = text(spec, "/nodeName");
        if !(named.is_empty() || named == name) || !admits(spec, name, node) {
            return Fit::Leaves;
        }
        let tolerations = items(spec, "/tolerations");
        if !is_repelled(tolerations, node, &["NoExecute", "NoSchedule"]) {
            return Fit::Runs;
        }
        if is_repelled(tolerations, node, &["NoExecute"]) { Fit::Leaves } else { Fit::Stays }
    }

    /// A new pod for a node, of the revision with this hash.
    pub(super) fn pod(&self, set: &Value, node: &str, hash: &str) -> Value {
        let mut pod = new_pod(set, &self.template);
        if let Some(generation) = generation(set) {
            pod["metadata"]["labels"][POD_GENERATION] = generation.into();
        }
        pod["metadata"]["labels"][POD_REVISION] = hash.into();
        let fields = json!([{"key": "metadata.name", "operator": "In", "values": [node]}]);
        let affinity = &mut pod["spec"]["affinity"]["nodeAffinity"];
        affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] =
            json!([{"matchFields": fields}]);
        pod
    }
}

/// Adds a toleration in the place of one that is like it but for its time.
fn tolerate(tolerations: &mut Vec<Value>, new: Value) {
    let part = |of: &Value, field: &str| text(of, &format!("/{field}")).to_owned();
    let same = |old: &Value| {
        ["key", "operator", "effect", "value"].iter().all(|field| part(old, field) == part(&new, field))
    };
    match tolerations.iter_mut().find(|old| same(old)) {
        Some(old) => *old = new,
        None => tolerations.push(new),
    }
}

/// How often a set's template changed, where it says so.
fn generation(set: &Value) -> Option<&str> {
    meta::annotation(set, GENERATION).filter(|text| text.parse::<i64>().is_ok())
}

/// Whether a pod is of the revision with this hash, or of the present template as older controllers counted it.
pub(super) fn is_updated(set: &Value, pod: &freehold_controllers_context::pods::PodView, hash: &str) -> bool {
    let by_hash = !hash.is_empty() && pod.label(POD_REVISION) == hash;
    by_hash || generation(set).is_some_and(|generation| pod.label(POD_GENERATION) == generation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_controllers_context::node::Taint;

    fn set(spec: Value) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"name": "d", "namespace": "n", "uid": "u", "annotations": {GENERATION: "3"}},
            "spec": {"template": {"metadata": {"labels": {"app": "d"}}, "spec": spec}},
        })
    }

    #[test]
    fn nodes_fit_by_name_selector_and_taints() {
        let tainted = |key: &str, effect: &str| NodeView {
            taints: vec![Taint::of(&json!({"key": key, "effect": effect}))],
            ..NodeView::default()
        };
        let plain = NodeView::default();
        for (spec, node, expected) in [
            (json!({}), plain.clone(), Fit::Runs),
            (json!({"nodeName": "a"}), plain.clone(), Fit::Runs),
            (json!({"nodeName": "b"}), plain.clone(), Fit::Leaves),
            (json!({"nodeSelector": {"k": "v"}}), plain, Fit::Leaves),
            (json!({}), tainted("node.kubernetes.io/not-ready", "NoExecute"), Fit::Runs),
            (json!({}), tainted("node.kubernetes.io/unschedulable", "NoSchedule"), Fit::Runs),
            (json!({}), tainted("node.kubernetes.io/network-unavailable", "NoSchedule"), Fit::Stays),
            (json!({"hostNetwork": true}), tainted(NO_NETWORK.0, NO_NETWORK.1), Fit::Runs),
            (json!({}), tainted("mine", "NoSchedule"), Fit::Stays),
            (json!({}), tainted("mine", "NoExecute"), Fit::Leaves),
            (json!({}), tainted("mine", "PreferNoSchedule"), Fit::Runs),
        ] {
            assert_eq!(Template::of(&set(spec.clone())).fit("a", &node), expected, "{spec} {node:?}");
        }
    }

    #[test]
    fn a_pod_is_tied_to_its_node() {
        let own = json!({"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": 5});
        let set = set(json!({"tolerations": [own]}));
        let pod = Template::of(&set).pod(&set, "a", "h");
        let labels = json!({"app": "d", POD_REVISION: "h", POD_GENERATION: "3"});
        assert_eq!((&pod["metadata"]["generateName"], &pod["metadata"]["labels"]), (&json!("d-"), &labels));
        let tolerations = items(&pod, "/spec/tolerations");
        assert_eq!((tolerations.len(), tolerations[0].get("tolerationSeconds")), (6, None));
        let affinity = &pod["spec"]["affinity"]["nodeAffinity"];
        let expected = json!({"nodeSelectorTerms": [{"matchFields": [
            {"key": "metadata.name", "operator": "In", "values": ["a"]},
        ]}]});
        assert_eq!(affinity["requiredDuringSchedulingIgnoredDuringExecution"], expected);
    }
}
