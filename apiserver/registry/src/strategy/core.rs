//! Namespaces, pods, secrets, config maps, volumes.

use crate::Operation;
use base64::{Engine, prelude::BASE64_STANDARD};
use freehold_machinery::{Map, Value, meta, status::FieldError};
use serde_json::json;

const NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// The most bytes of all values of a Secret or ConfigMap together.
const MAX_DATA: usize = 1 << 20;

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

pub(super) fn check_pod(pod: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let Some(old) = old else { return Vec::new() };
    let fixed = |pod: &Value| {
        let mut spec = pod["spec"].clone();
        let Some(map) = spec.as_object_mut() else { return spec };
        for field in [
            "activeDeadlineSeconds",
            "tolerations",
            "terminationGracePeriodSeconds",
            "schedulingGates",
            "nodeName",
            "ephemeralContainers",
        ] {
            map.remove(field);
        }
        for list in ["containers", "initContainers"] {
            for container in map.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(container) = container.as_object_mut() {
                    container.remove("image");
                }
            }
        }
        spec
    };
    if fixed(pod) == fixed(old) {
        return Vec::new();
    }
    let detail = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,\
                  `spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),\
                  `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
    vec![FieldError::forbidden("spec", detail)]
}

/// `stringData` is written into `data`.
pub(super) fn merge_string_data(_: &Operation, object: &mut Value) {
    let Some(map) = object.as_object_mut() else { return };
    let text = map.remove("stringData");
    if !map.contains_key("type") {
        map.insert("type".into(), "Opaque".into());
    }
    let Some(Value::Object(text)) = text else { return };
    let data = map.entry("data").or_insert_with(|| Value::Object(Map::new()));
    for (key, value) in text {
        data[key] = BASE64_STANDARD.encode(value.as_str().unwrap_or_default()).into();
    }
}

pub(super) fn update_secret(op: &Operation, object: &mut Value, old: &Value) {
    if object.get("type").is_none() {
        object["type"] = old.get("type").cloned().unwrap_or_default();
    }
    merge_string_data(op, object);
}

fn check_data(object: &Value, old: Option<&Value>, parts: &[&str]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut size = 0;
    for part in parts {
        for (key, value) in object[*part].as_object().into_iter().flatten() {
            size += value.as_str().map_or(0, str::len);
            let valid = !key.is_empty()
                && key.len() <= 253
                && key != "."
                && !key.starts_with("..")
                && key.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.'));
            if !valid {
                let detail = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  \
                              or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
                errors.push(FieldError::invalid(format!("{part}[{key}]"), key.clone().into(), detail));
            }
        }
    }
    if size > MAX_DATA + MAX_DATA / 2 {
        let kind = freehold_machinery::status::FieldErrorKind::TooLong;
        errors.push(FieldError::new(kind, parts[0], format!("may not be more than {MAX_DATA} bytes")));
    }
    let Some(old) = old.filter(|old| old.get("immutable") == Some(&Value::Bool(true))) else { return errors };
    if object.get("immutable") != Some(&Value::Bool(true)) {
        errors.push(FieldError::forbidden("immutable", "field is immutable when `immutable` is set"));
    }
    for part in parts.iter().filter(|part| object[**part] != old[**part]) {
        errors.push(FieldError::forbidden(*part, "field is immutable when `immutable` is set"));
    }
    errors
}

pub(super) fn check_secret(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = check_data(object, old, &["data"]);
    for (key, value) in object["data"].as_object().into_iter().flatten() {
        if value.as_str().is_some_and(|text| BASE64_STANDARD.decode(text).is_err()) {
            errors.push(FieldError::invalid(
                format!("data[{key}]"),
                "<base64>".into(),
                "illegal base64 data",
            ));
        }
    }
    if old.is_some_and(|old| old["type"] != object["type"]) {
        errors.push(FieldError::invalid("type", object["type"].clone(), "field is immutable"));
    }
    errors
}

pub(super) fn check_config_map(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = check_data(object, old, &["data", "binaryData"]);
    for key in object["data"].as_object().into_iter().flat_map(Map::keys) {
        if object["binaryData"].get(key).is_some() {
            errors.push(FieldError::invalid(
                format!("data[{key}]"),
                key.clone().into(),
                "duplicate of key present in binaryData",
            ));
        }
    }
    errors
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

    #[test]
    fn keys_of_config_data_are_checked_and_immutable_data_stays() {
        let good = json!({"data": {"a.b-c_D": "x"}, "immutable": true});
        assert!(check_config_map(&good, None).is_empty());
        assert_eq!(check_config_map(&json!({"data": {"a/b": "x"}}), None).len(), 1);
        let changed = json!({"data": {"a": "y"}, "immutable": true});
        assert_eq!(check_config_map(&changed, Some(&good)).len(), 1);
    }
}
