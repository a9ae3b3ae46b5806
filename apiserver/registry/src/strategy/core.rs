//! Namespaces, pods, secrets, config maps, volumes.

use crate::Operation;
use freehold_apiserver_kinds::{access, defaults, pod, profiles};
use freehold_machinery::{Value, meta};
use serde_json::json;

pub(super) fn create_namespace(_: &Operation, object: &mut Value) {
    defaults::label_with_name(object);
    let given = object["spec"]["finalizers"].as_array().cloned().unwrap_or_default();
    let own = (!given.iter().any(|finalizer| finalizer == "kubernetes")).then(|| "kubernetes".into());
    object["spec"]["finalizers"] = given.into_iter().chain(own).collect();
    object["status"] = json!({"phase": "Active"});
}

pub(super) fn update_namespace(op: &Operation, object: &mut Value, old: &Value) {
    defaults::label_with_name(object);
    if op.subresource.as_deref() != Some("finalize") {
        object["spec"]["finalizers"] = old["spec"].get("finalizers").cloned().unwrap_or_else(|| json!([]));
    }
}

pub(super) fn terminate_namespace(object: &mut Value) {
    object["status"]["phase"] = "Terminating".into();
}

pub(super) fn create_pod(op: &Operation, object: &mut Value) {
    // What was negative once is as short as can be.
    const GRACE: &str = "terminationGracePeriodSeconds";
    if object["spec"].get(GRACE).and_then(Value::as_i64).is_some_and(|seconds| seconds < 0) {
        object["spec"][GRACE] = 1.into();
    }
    object["status"] = json!({"phase": "Pending", "qosClass": pod::qos(object)});
    let gated = !access::is_empty(&object["spec"]["schedulingGates"]);
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
    profiles::copy(object).into_iter().for_each(|warning| op.annotations.warn(warning));
}

/// The class of a pod follows from what can't change: it stays where a status leaves it out.
pub(super) fn update_pod(op: &Operation, object: &mut Value, old: &Value) {
    let is_status = op.subresource.as_deref() == Some("status");
    if is_status && access::is_empty(&object["status"]["qosClass"]) {
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
    if access::is_empty(&object["status"]["phase"]) {
        object["status"]["phase"] = "Pending".into();
    }
    if object["status"]["phase"] != old["status"]["phase"] {
        let given = &object["status"]["lastPhaseTransitionTime"];
        if given.is_null() || *given == old["status"]["lastPhaseTransitionTime"] {
            object["status"]["lastPhaseTransitionTime"] = freehold_apiserver_operation::now().into();
        }
    } else if object["status"]["lastPhaseTransitionTime"].is_null() {
        object["status"]["lastPhaseTransitionTime"] = old["status"]["lastPhaseTransitionTime"].clone();
    }
}

pub(super) fn create_volume(_: &Operation, object: &mut Value) {
    object["status"] =
        json!({"phase": "Pending", "lastPhaseTransitionTime": freehold_apiserver_operation::now()});
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
    for endpoint in access::list_mut(object, "endpoints").filter_map(Value::as_object_mut) {
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

/// Drops what comes later than its Pod.
pub(super) fn import_pod(object: &mut Value) {
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("ephemeralContainers");
    }
}
