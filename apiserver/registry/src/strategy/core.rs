//! Namespaces, pods, secrets, config maps, volumes.

use crate::Operation;
use base64::{Engine, prelude::BASE64_STANDARD};
use freehold_machinery::{Map, Value, meta};
use serde_json::json;

const NAME_LABEL: &str = "kubernetes.io/metadata.name";

fn label_with_name(object: &mut Value) {
    let name = meta::name(object).to_owned();
    let labels = meta::metadata_mut(object).entry("labels").or_insert_with(|| Value::Object(Map::new()));
    labels[NAME_LABEL] = name.into();
}

pub(super) fn create_namespace(_: &Operation, object: &mut Value) {
    label_with_name(object);
    object["spec"]["finalizers"] = json!(["kubernetes"]);
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
fn qos(pod: &Value) -> &'static str {
    let lists = ["containers", "initContainers"];
    let containers = || lists.into_iter().flat_map(|list| pod["spec"][list].as_array().into_iter().flatten());
    let amount = |container: &Value, part: &str, what: &str| {
        container["resources"][part].get(what).filter(|v| **v != "0").map(Value::to_string)
    };
    let all = || {
        containers().flat_map(|c| {
            ["cpu", "memory"].map(|what| (amount(c, "requests", what), amount(c, "limits", what)))
        })
    };
    if all().all(|(request, limit)| request.is_none() && limit.is_none()) {
        "BestEffort"
    } else if all().all(|(request, limit)| limit.is_some() && (request.is_none() || request == limit)) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

pub(super) fn create_pod(_: &Operation, object: &mut Value) {
    object["status"] = json!({"phase": "Pending", "qosClass": qos(object)});
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
pub(super) fn merge_string_data(_: &Operation, object: &mut Value) {
    let Some(map) = object.as_object_mut() else { return };
    let text = map.remove("stringData");
    let Some(Value::Object(text)) = text else { return };
    let data = map.entry("data").or_insert_with(|| Value::Object(Map::new()));
    for (key, value) in text {
        data[key] = BASE64_STANDARD.encode(value.as_str().unwrap_or_default()).into();
    }
}

pub(super) fn update_secret(op: &Operation, object: &mut Value, _: &Value) {
    merge_string_data(op, object);
}

pub(super) fn create_claim(_: &Operation, object: &mut Value) {
    object["status"] = json!({"phase": "Pending"});
}

pub(super) fn create_volume(_: &Operation, object: &mut Value) {
    object["status"] = json!({"phase": "Pending"});
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
