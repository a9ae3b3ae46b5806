//! Namespaces, pods, secrets, config maps, volumes.

use super::{pod, profiles};
use crate::{Operation, prepare};
use base64::{Engine, prelude::BASE64_STANDARD};
use freehold_machinery::{Map, Value, meta};
use serde_json::json;

const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// A namespace is labelled with its name.
pub(super) fn label_with_name(object: &mut Value) {
    let name = meta::name(object).to_owned();
    let labels = meta::metadata_mut(object).entry("labels").or_insert_with(|| Value::Object(Map::new()));
    labels[NAME_LABEL] = name.into();
}

pub(super) fn create_namespace(_: &Operation, object: &mut Value) {
    label_with_name(object);
    let given = object["spec"]["finalizers"].as_array().cloned().unwrap_or_default();
    let own = (!given.iter().any(|finalizer| finalizer == "kubernetes")).then(|| "kubernetes".into());
    object["spec"]["finalizers"] = given.into_iter().chain(own).collect();
    object["status"] = json!({"phase": "Active"});
}

pub(super) fn update_namespace(op: &Operation, object: &mut Value, old: &Value) {
    label_with_name(object);
    if op.subresource.as_deref() != Some("finalize") {
        object["spec"]["finalizers"] = old["spec"].get("finalizers").cloned().unwrap_or_else(|| json!([]));
    }
}

pub(super) fn terminate_namespace(object: &mut Value) {
    object["status"]["phase"] = "Terminating".into();
}

/// Quality of service class (<https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/>).
pub(crate) fn qos(pod: &Value) -> &'static str {
    let spec = &pod["spec"];
    let lists = ["containers", "initContainers"];
    let holders: Vec<&Value> = if spec["resources"].is_object() {
        vec![spec]
    } else {
        lists.into_iter().flat_map(|list| spec[list].as_array().into_iter().flatten()).collect()
    };
    let amount = |holder: &Value, part: &str, what: &str| {
        holder["resources"][part].get(what).filter(|v| **v != "0").map(Value::to_string)
    };
    let all: Vec<_> = holders
        .iter()
        .flat_map(|h| ["cpu", "memory"].map(|what| (amount(h, "requests", what), amount(h, "limits", what))))
        .collect();
    if all.iter().all(|(request, limit)| request.is_none() && limit.is_none()) {
        "BestEffort"
    } else if all.iter().all(|(request, limit)| limit.is_some() && (request.is_none() || request == limit)) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

pub(super) fn create_pod(op: &Operation, object: &mut Value) {
    // What was negative once is as short as can be.
    const GRACE: &str = "terminationGracePeriodSeconds";
    if object["spec"].get(GRACE).and_then(Value::as_i64).is_some_and(|seconds| seconds < 0) {
        object["spec"][GRACE] = 1.into();
    }
    object["status"] = json!({"phase": "Pending", "qosClass": qos(object)});
    let gated = !super::access::is_empty(&object["spec"]["schedulingGates"]);
    if gated {
        object["status"]["conditions"] = json!([{
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastTransitionTime": object["metadata"]["creationTimestamp"],
        }]);
    }
    pod::merge_label_keys(object);
    profiles::copy(op, object);
}

/// The class of a pod follows from what can't change: it stays where a status leaves it out.
pub(super) fn update_pod(op: &Operation, object: &mut Value, old: &Value) {
    let is_status = op.subresource.as_deref() == Some("status");
    if is_status && super::access::is_empty(&object["status"]["qosClass"]) {
        object["status"]["qosClass"] = old["status"]["qosClass"].clone();
    }
}

/// A pod that no node has, or that has ended, goes at once.
pub(super) fn pod_grace(pod: &Value) -> i64 {
    let assigned = pod["spec"].get("nodeName").and_then(Value::as_str).is_some_and(|n| !n.is_empty());
    let ended = matches!(pod["status"]["phase"].as_str(), Some("Failed" | "Succeeded"));
    if !assigned || ended {
        return 0;
    }
    pod["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30)
}

/// `stringData` is written into `data`.
pub(super) fn merge_string_data(object: &mut Value) {
    let Some(map) = object.as_object_mut() else { return };
    let text = map.remove("stringData");
    let Some(Value::Object(text)) = text else { return };
    let data = map.entry("data").or_insert_with(|| Value::Object(Map::new()));
    for (key, value) in text {
        data[key] = BASE64_STANDARD.encode(value.as_str().unwrap_or_default()).into();
    }
}

pub(super) fn create_claim(_: &Operation, object: &mut Value) {
    claim_sources(object, None);
    object["status"] = json!({"phase": "Pending"});
}

/// Fills in what an update of a claim by an older client leaves out.
pub(super) fn update_claim(op: &Operation, object: &mut Value, old: &Value) {
    if op.subresource.is_none() {
        claim_sources(object, Some(old));
    }
}

/// The time of a volume's last change of phase; one without a phase is pending.
pub(super) fn update_volume(op: &Operation, object: &mut Value, old: &Value) {
    if op.subresource.as_deref() != Some("status") {
        return;
    }
    if super::access::is_empty(&object["status"]["phase"]) {
        object["status"]["phase"] = "Pending".into();
    }
    if object["status"]["phase"] != old["status"]["phase"] {
        let given = &object["status"]["lastPhaseTransitionTime"];
        if given.is_null() || *given == old["status"]["lastPhaseTransitionTime"] {
            object["status"]["lastPhaseTransitionTime"] = prepare::now().into();
        }
    } else if object["status"]["lastPhaseTransitionTime"].is_null() {
        object["status"]["lastPhaseTransitionTime"] = old["status"]["lastPhaseTransitionTime"].clone();
    }
}

pub(super) fn create_volume(_: &Operation, object: &mut Value) {
    object["status"] = json!({"phase": "Pending", "lastPhaseTransitionTime": prepare::now()});
}

const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// A new node takes no pods before somebody finds it ready.
pub(super) fn create_node(_: &Operation, object: &mut Value) {
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        status.remove("config");
    }
    let Some(spec) = object["spec"].as_object_mut() else { return };
    let taints = spec.entry("taints").or_insert_with(|| json!([]));
    let Some(list) = taints.as_array_mut() else { return };
    let has = list.iter().any(|taint| taint["key"] == NOT_READY && taint["effect"] == "NoSchedule");
    if !has {
        list.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
    }
}

/// Kubelets are not configured through their nodes any more: what says so is not stored where it was not there.
pub(super) fn update_node(op: &Operation, object: &mut Value, old: &Value) {
    if op.subresource.as_deref() == Some("status")
        && old["status"]["config"].is_null()
        && let Some(status) = object.get_mut("status").and_then(Value::as_object_mut)
    {
        status.remove("config");
    }
}

/// New slices say where their endpoints are in fields of their own.
pub(super) fn create_slice(_: &Operation, object: &mut Value) {
    for endpoint in super::access::list_mut(object, "endpoints").filter_map(Value::as_object_mut) {
        endpoint.remove("deprecatedTopology");
    }
}

/// Coordinated election is off: leases have none of its fields.
pub(super) fn plain_lease(lease: &mut Value) {
    if let Some(spec) = lease.get_mut("spec").and_then(Value::as_object_mut) {
        ["strategy", "preferredHolder"].iter().for_each(|field| drop(spec.remove(*field)));
    }
}

/// Where a claim's data come from, by the old field and by the new one. What the old one never knew is dropped from it,
/// unless the claim had a source before.
pub(super) fn claim_sources(claim: &mut Value, old: Option<&Value>) {
    let Some(spec) = claim.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let text = |source: &Value, field: &str| source[field].as_str().unwrap_or_default().to_owned();
    let known = |source: &Value| {
        matches!(
            (text(source, "apiGroup").as_str(), text(source, "kind").as_str()),
            ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
        )
    };
    let had = |field: &str| old.is_some_and(|old| old["spec"][field].is_object());
    if !had("dataSourceRef")
        && spec.get("dataSourceRef").is_some_and(|source| !text(source, "namespace").is_empty())
    {
        spec.remove("dataSourceRef");
    }
    let only_old = !had("dataSource") && !had("dataSourceRef") && spec.get("dataSourceRef").is_none();
    if only_old && spec.get("dataSource").is_some_and(|source| !known(source)) {
        spec.remove("dataSource");
    }
    let copied = |source: &Value| {
        let mut copy = freehold_machinery::Map::new();
        for (field, zero) in [("apiGroup", None), ("kind", Some("")), ("name", Some(""))] {
            let value = source.get(field).cloned().or(zero.map(Value::from));
            value.map(|value| copy.insert(field.to_owned(), value));
        }
        Value::Object(copy)
    };
    let (old_way, new_way) = (spec.get("dataSource").map(copied), spec.get("dataSourceRef").map(copied));
    match (old_way, new_way) {
        (Some(source), None) => drop(spec.insert("dataSourceRef".into(), source)),
        (None, Some(source)) if text(&spec["dataSourceRef"], "namespace").is_empty() => {
            spec.insert("dataSource".into(), source);
        }
        _ => {}
    }
}

/// Leaves the generation of a kind of which updates are not counted.
pub(super) fn keep_generation(object: &mut Value, old: &Value) {
    meta::set(object, "generation", old["metadata"]["generation"].clone());
}

/// Counts changes of the spec of a kind that begins without a generation.
pub(super) fn count_spec(_: &Operation, object: &mut Value, old: &Value) {
    if object["spec"] != old["spec"] {
        let before = old["metadata"]["generation"].as_i64().unwrap_or(0);
        meta::set(object, "generation", before + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quality_of_service_follows_requests_and_limits() {
        let rows = [
            (json!({}), "BestEffort"),
            (json!({"requests": {"cpu": "1"}}), "Burstable"),
            (json!({"limits": {"cpu": "1", "memory": "1Gi"}}), "Guaranteed"),
            (
                json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "2Gi"}}),
                "Burstable",
            ),
        ];
        for (resources, class) in rows {
            let pod = json!({"spec": {"containers": [{"resources": resources}]}});
            assert_eq!(qos(&pod), class, "{pod}");
        }
    }
}
