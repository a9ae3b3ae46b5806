//! The next steps for a project's Pod and its host Pod.

use crate::names::{UID, is_tenants};
use crate::pod::Translated;
use crate::status::{is_finished, pod_status};
use freehold_machinery::{Map, Value, meta};
use serde_json::json;

/// Something to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Create the host Pod, and first what it needs.
    Create,
    /// Bind the project's Pod to the Node of the cluster.
    Bind,
    /// Merge this into the status of the project's Pod.
    Status(Value),
    /// Delete the host Pod; with so many seconds to end in, where the project says so.
    DeleteHost(Option<u64>),
    /// Delete the project's Pod, with so many seconds to end in; 0 removes it at once.
    DeletePod(u64),
    /// Merge this into the host Pod.
    UpdateHost(Value),
    /// Give the host Pod these ephemeral containers.
    Debug(Vec<Value>),
}

/// Decides what a project's Pod needs. `cluster` is the name of its Node.
pub fn decide(pod: Option<&Value>, host: Option<&Value>, cluster: &str) -> Vec<Step> {
    match (pod, host) {
        (None, None) => Vec::new(),
        (None, Some(host)) => delete_host(host, None),
        (Some(pod), Some(host)) if meta::annotation(host, UID) != Some(meta::uid(pod)) => {
            delete_host(host, None)
        }
        (Some(pod), None) => without_host(pod, cluster),
        (Some(pod), Some(host)) if meta::is_deleting(pod) => {
            let mut steps = delete_host(host, grace(pod));
            steps.extend(status(pod, host));
            steps
        }
        (Some(pod), Some(host)) => with_host(pod, host),
    }
}

fn grace(object: &Value) -> Option<u64> {
    object["metadata"]["deletionGracePeriodSeconds"].as_u64()
}

fn delete_host(host: &Value, wanted: Option<u64>) -> Vec<Step> {
    let is_sooner = match (grace(host), wanted) {
        _ if !meta::is_deleting(host) => true,
        (Some(has), Some(wanted)) => wanted < has,
        _ => false,
    };
    if is_sooner { vec![Step::DeleteHost(wanted)] } else { Vec::new() }
}

fn without_host(pod: &Value, cluster: &str) -> Vec<Step> {
    let is_gated = pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
    // It was there: what its Node's kubelet would say.
    let was_there = pod["spec"]["nodeName"] == cluster && pod["status"]["hostIP"].is_string();
    match () {
        () if meta::is_deleting(pod) && grace(pod) != Some(0) => vec![Step::DeletePod(0)],
        () if meta::is_deleting(pod) || is_finished(pod) || is_gated => Vec::new(),
        () if was_there => vec![Step::DeletePod(0)],
        () => vec![Step::Create],
    }
}

fn with_host(pod: &Value, host: &Value) -> Vec<Step> {
    let mut steps = Vec::new();
    let is_bound = |pod: &Value| pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    if is_bound(host) && !is_bound(pod) {
        steps.push(Step::Bind);
    }
    steps.extend(status(pod, host));
    if meta::is_deleting(host) {
        steps.push(Step::DeletePod(grace(host).unwrap_or(0)));
    }
    steps
}

fn status(pod: &Value, host: &Value) -> Option<Step> {
    let wanted = pod_status(pod, host)?;
    let has = pod["status"].as_object().into_iter().flatten();
    let mut patch: Map = has
        .filter(|(key, _)| wanted.get(key.as_str()).is_none())
        .map(|(key, _)| (key.clone(), Value::Null))
        .collect();
    patch.extend(wanted.as_object().cloned().unwrap_or_default());
    Some(Step::Status(patch.into()))
}

/// What differs on the host from what the project's Pod has become since, in the fields that can change.
pub fn drift(wanted: &Translated, host: &Value) -> Vec<Step> {
    let mut patch = json!({});
    for field in ["labels", "annotations"] {
        let changes = changes(&wanted.pod["metadata"][field], &host["metadata"][field], field == "labels");
        if !changes.is_empty() {
            patch["metadata"][field] = changes.into();
        }
    }
    for field in ["containers", "initContainers"] {
        if let Some(list) = images(&wanted.pod["spec"][field], &host["spec"][field]) {
            patch["spec"][field] = list;
        }
    }
    let deadline = &wanted.pod["spec"]["activeDeadlineSeconds"];
    if !deadline.is_null() && *deadline != host["spec"]["activeDeadlineSeconds"] {
        patch["spec"]["activeDeadlineSeconds"] = deadline.clone();
    }
    let mut steps = if patch == json!({}) { Vec::new() } else { vec![Step::UpdateHost(patch)] };
    let there = host["spec"]["ephemeralContainers"].as_array().map_or(0, Vec::len);
    if wanted.ephemeral.len() > there {
        steps.push(Step::Debug(wanted.ephemeral.clone()));
    }
    steps
}

fn changes(wanted: &Value, has: &Value, removes: bool) -> Map {
    let pairs = |value: &Value| value.as_object().cloned().unwrap_or_default();
    let (wanted, has) = (pairs(wanted), pairs(has));
    let mut changes: Map =
        wanted.iter().filter(|(key, value)| has.get(*key) != Some(value)).map(own).collect();
    if removes {
        let gone = has.keys().filter(|key| is_tenants(key) && !wanted.contains_key(*key));
        changes.extend(gone.map(|key| (key.clone(), Value::Null)));
    }
    changes
}

fn own((key, value): (&String, &Value)) -> (String, Value) {
    (key.clone(), value.clone())
}

/// The host's containers with the project's images; `None` where they have them.
fn images(wanted: &Value, host: &Value) -> Option<Value> {
    let mut list = host.as_array()?.clone();
    let mut differs = false;
    for container in &mut list {
        let same = wanted.as_array()?.iter().find(|one| one["name"] == container["name"]);
        if let Some(image) = same.map(|one| &one["image"]).filter(|image| **image != container["image"]) {
            container["image"] = image.clone();
            differs = true;
        }
    }
    differs.then(|| list.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(metadata: Value, spec: Value, status: Value) -> Value {
        let mut pod = json!({"metadata": {"name": "a", "uid": "u"}, "spec": spec, "status": status});
        pod["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        pod
    }

    fn host(metadata: Value, node: &str, status: Value) -> Value {
        let mut host = pod(json!({"annotations": {UID: "u"}}), json!({"nodeName": node}), status);
        host["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        host
    }

    #[test]
    fn both_pods_live_and_end_together() {
        let deleting = |grace: u64| json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace});
        let (none, on) = (json!({}), json!({"nodeName": "shared"}));
        let (running, pending) = (json!({"phase": "Running"}), json!({"phase": "Pending"}));
        let there = json!({"phase": "Running", "hostIP": "192.0.2.7"});
        let live = pod(none.clone(), none.clone(), pending.clone());
        let bound = pod(none.clone(), on.clone(), running.clone());
        let unbound_host = host(none.clone(), "", pending.clone());
        let running_host = host(none.clone(), "n7", running.clone());
        let of_another = host(json!({"annotations": {UID: "before"}}), "n7", running.clone());
        let ending = pod(deleting(30), on.clone(), running.clone());
        let rows: Vec<(Option<Value>, Option<Value>, Vec<Step>)> = vec![
            (None, None, vec![]),
            (Some(live.clone()), None, vec![Step::Create]),
            (
                Some(pod(none.clone(), json!({"schedulingGates": [{"name": "x"}]}), pending.clone())),
                None,
                vec![],
            ),
            (Some(live.clone()), Some(unbound_host), vec![]),
            (Some(live.clone()), Some(running_host.clone()), vec![Step::Bind, Step::Status(running.clone())]),
            (Some(bound.clone()), Some(running_host.clone()), vec![]),
            // Ended by the project.
            (None, Some(running_host.clone()), vec![Step::DeleteHost(None)]),
            (Some(ending.clone()), Some(running_host.clone()), vec![Step::DeleteHost(Some(30))]),
            (Some(ending.clone()), Some(host(deleting(30), "n7", running.clone())), vec![]),
            (
                Some(pod(deleting(1), on.clone(), running.clone())),
                Some(host(deleting(30), "n7", running.clone())),
                vec![Step::DeleteHost(Some(1))],
            ),
            (Some(ending), None, vec![Step::DeletePod(0)]),
            (Some(pod(deleting(0), on.clone(), running.clone())), None, vec![]),
            // Ended by the host.
            (Some(bound), Some(host(deleting(9), "n7", running)), vec![Step::DeletePod(9)]),
            (Some(pod(none.clone(), on.clone(), there)), None, vec![Step::DeletePod(0)]),
            (Some(pod(none.clone(), on.clone(), json!({"phase": "Succeeded", "hostIP": "x"}))), None, vec![]),
            // A tenant that binds its Pod itself gains nothing.
            (Some(pod(none, on, pending)), None, vec![Step::Create]),
            // The name is taken by the host Pod of a predecessor.
            (Some(live), Some(of_another), vec![Step::DeleteHost(None)]),
        ];
        for (pod, host, expected) in rows {
            assert_eq!(decide(pod.as_ref(), host.as_ref(), "shared"), expected, "{pod:?} {host:?}");
        }
    }

    #[test]
    fn a_status_is_replaced_as_a_whole() {
        let forged =
            pod(json!({}), json!({"nodeName": "shared"}), json!({"phase": "Failed", "reason": "Evicted"}));
        let steps = decide(Some(&forged), Some(&host(json!({}), "n", json!({"phase": "Running"}))), "shared");
        assert_eq!(steps, [Step::Status(json!({"phase": "Running", "reason": null}))]);
    }

    #[test]
    fn what_changes_on_either_side_is_put_right_on_the_host() {
        let wanted = Translated {
            pod: json!({
                "metadata": {"labels": {"app": "a", "new": "1"}, "annotations": {"x": "1"}},
                "spec": {"containers": [{"name": "c", "image": "b:2"}]},
            }),
            ephemeral: vec![json!({"name": "debug"})],
            references: Default::default(),
            tokens: Vec::new(),
        };
        let host = json!({
            "metadata": {
                "labels": {"app": "changed", "old": "1", "workloads.freehold.dev/project": "p"},
                "annotations": {"x": "1", "hosts-own": "1"},
            },
            "spec": {"containers": [{"name": "c", "image": "b:1", "imagePullPolicy": "Always"}]},
        });
        let patch = json!({
            "metadata": {"labels": {"app": "a", "new": "1", "old": null}},
            "spec": {"containers": [{"name": "c", "image": "b:2", "imagePullPolicy": "Always"}]},
        });
        assert_eq!(
            drift(&wanted, &host),
            [Step::UpdateHost(patch), Step::Debug(vec![json!({"name": "debug"})])]
        );
    }
}
