//! `ValidateObjectMeta` and `ValidateObjectMetaUpdate`, in the order and words of Kubernetes.

use super::{NameRule, label_value, qualified_name};
use crate::{
    GroupVersion, Map, Value,
    status::{FieldError, FieldErrorKind},
};
use std::collections::HashSet;

/// Bytes of all annotations of an object, keys and values.
const ANNOTATIONS_LIMIT: usize = 256 << 10;
/// Controllers more than one that are complained about.
const MAX_CONTROLLERS: usize = 8;
/// Bytes of a manager's name, and characters of it that are looked at.
const MANAGER_LIMIT: usize = 128;
const IMMUTABLE: &str = "field is immutable";

/// Checks `metadata` of an object that is about to be created, names having been generated already.
pub fn validate_metadata(object: &Value, rule: NameRule, namespaced: bool) -> Vec<FieldError> {
    let empty = Map::new();
    let meta = object.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    let mut errors = check_names(meta, "metadata", rule);
    errors.extend(check_common(meta, "metadata", namespaced));
    errors
}

/// Checks `metadata` of an embedded object at `path`: as on creation, but the name may be absent.
pub fn validate_embedded_metadata(meta: &Map, path: &str) -> Vec<FieldError> {
    let mut errors = check_names(meta, path, NameRule::PathSegment);
    errors.retain(|e| e.kind != FieldErrorKind::Required);
    errors.extend(check_common(meta, path, !text(meta, "namespace").is_empty()));
    errors
}

/// Checks `metadata` of an object that replaces `old`. Fields that the server owns must have been carried over.
pub fn validate_metadata_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let empty = Map::new();
    let new = new.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    let old = old.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    let mut errors = Vec::new();
    if !text(old, "deletionTimestamp").is_empty() {
        errors.extend(no_new_finalizers(new, old));
    }
    if text(new, "resourceVersion").is_empty() {
        errors.push(FieldError::invalid(
            "metadata.resourceVersion",
            "".into(),
            "must be specified for an update",
        ));
    }
    errors.extend(check_generation(new, "metadata"));
    if number(new, "generation") < number(old, "generation") {
        let value = number(new, "generation").into();
        errors.push(FieldError::invalid("metadata.generation", value, "must not be decremented"));
    }
    for field in ["name", "namespace"] {
        if text(new, field) != text(old, field) {
            errors.push(FieldError::invalid(format!("metadata.{field}"), text(new, field).into(), IMMUTABLE));
        }
    }
    for field in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let given = new.get(field).cloned().unwrap_or_default();
        if given != old.get(field).cloned().unwrap_or_default() {
            errors.push(FieldError::invalid(format!("metadata.{field}"), given, IMMUTABLE));
        }
    }
    errors.extend(check_labels(new, "metadata"));
    errors.extend(check_annotations(new, "metadata"));
    errors.extend(check_owners(new, "metadata"));
    errors.extend(check_managers(new, "metadata"));
    errors
}

fn text<'a>(map: &'a Map, field: &str) -> &'a str {
    map.get(field).and_then(Value::as_str).unwrap_or("")
}

fn number(map: &Map, field: &str) -> i64 {
    map.get(field).and_then(Value::as_i64).unwrap_or(0)
}

fn list<'a>(map: &'a Map, field: &str) -> &'a [Value] {
    map.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn strings<'a>(map: &'a Map, field: &str) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
    map.get(field)
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(k, v)| (k.as_str(), v.as_str().unwrap_or("")))
}

fn invalids(path: &str, value: &str, messages: Vec<String>) -> impl Iterator<Item = FieldError> {
    messages.into_iter().map(move |m| FieldError::invalid(path, value.into(), m))
}

fn check_names(meta: &Map, path: &str, rule: NameRule) -> Vec<FieldError> {
    let (name, generate) = (text(meta, "name"), text(meta, "generateName"));
    let mut errors = Vec::new();
    if !generate.is_empty() {
        errors.extend(invalids(&format!("{path}.generateName"), generate, rule.check(generate, true)));
    }
    if name.is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), "name or generateName is required"));
    } else {
        errors.extend(invalids(&format!("{path}.name"), name, rule.check(name, false)));
    }
    errors
}

fn check_common(meta: &Map, path: &str, namespaced: bool) -> Vec<FieldError> {
    let mut errors = check_namespace(meta, path, namespaced);
    errors.extend(check_generation(meta, path));
    errors.extend(check_labels(meta, path));
    errors.extend(check_annotations(meta, path));
    errors.extend(check_owners(meta, path));
    errors.extend(check_finalizers(meta, path));
    errors.extend(check_managers(meta, path));
    errors
}

fn check_namespace(meta: &Map, path: &str, namespaced: bool) -> Vec<FieldError> {
    let (namespace, path) = (text(meta, "namespace"), format!("{path}.namespace"));
    match (namespaced, namespace.is_empty()) {
        (true, true) => vec![FieldError::required(path, "")],
        (true, false) => invalids(&path, namespace, NameRule::Dns1123Label.check(namespace, false)).collect(),
        (false, true) => Vec::new(),
        (false, false) => vec![FieldError::forbidden(path, "not allowed on this type")],
    }
}

fn check_generation(meta: &Map, path: &str) -> Option<FieldError> {
    let generation = number(meta, "generation");
    (generation < 0).then(|| {
        let path = format!("{path}.generation");
        FieldError::invalid(path, generation.into(), "must be greater than or equal to 0")
    })
}

fn check_labels(meta: &Map, path: &str) -> Vec<FieldError> {
    let path = format!("{path}.labels");
    let mut errors = Vec::new();
    for (key, value) in strings(meta, "labels") {
        errors.extend(invalids(&path, key, qualified_name(key)));
        errors.extend(invalids(&path, value, label_value(value)));
    }
    errors
}

fn check_annotations(meta: &Map, path: &str) -> Vec<FieldError> {
    let path = format!("{path}.annotations");
    let (mut errors, mut size) = (Vec::new(), 0);
    for (key, value) in strings(meta, "annotations") {
        size += key.len() + value.len();
        errors.extend(invalids(&path, key, qualified_name(&key.to_lowercase())));
    }
    if size > ANNOTATIONS_LIMIT {
        let detail = format!("may not be more than {ANNOTATIONS_LIMIT} bytes");
        errors.push(FieldError::new(FieldErrorKind::TooLong, path, detail));
    }
    errors
}

fn check_owners(meta: &Map, path: &str) -> Vec<FieldError> {
    let path = format!("{path}.ownerReferences");
    let mut errors = Vec::new();
    let (mut controller, mut more): (Option<String>, usize) = (None, 0);
    for owner in list(meta, "ownerReferences") {
        let empty = Map::new();
        let owner = owner.as_object().unwrap_or(&empty);
        errors.extend(check_owner(owner, &path));
        if owner.get("controller") != Some(&Value::Bool(true)) {
            continue;
        }
        let this = format!("{}/{}", text(owner, "kind"), text(owner, "name"));
        if let Some(first) = &controller {
            let detail = format!(
                "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
            );
            more += 1;
            // Each shows all of them.
            if more <= MAX_CONTROLLERS {
                let all = meta.get("ownerReferences").cloned().unwrap_or_default();
                errors.push(FieldError::invalid(&path, all, detail));
            }
        } else {
            controller = Some(this);
        }
    }
    errors
}

fn check_owner(owner: &Map, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let api_version = text(owner, "apiVersion");
    let empty = |field: &str| FieldError::invalid(format!("{path}.{field}"), "".into(), "must not be empty");
    if api_version.is_empty() {
        errors.push(FieldError::invalid(
            format!("{path}.apiVersion"),
            "".into(),
            "version must not be empty",
        ));
    } else if GroupVersion::parse(api_version).is_none() {
        let path = format!("{path}.apiVersion");
        errors.push(FieldError::invalid(path, api_version.into(), "version must not be empty"));
    }
    for field in ["kind", "name", "uid"] {
        if text(owner, field).is_empty() {
            errors.push(empty(field));
        }
    }
    if api_version == "v1" && text(owner, "kind") == "Event" {
        let value = Value::Object(owner.clone());
        errors.push(FieldError::invalid(path, value, "/v1, Kind=Event is disallowed from being an owner"));
    }
    errors
}

fn check_finalizers(meta: &Map, path: &str) -> Vec<FieldError> {
    let path = format!("{path}.finalizers");
    let names: Vec<&str> = list(meta, "finalizers").iter().filter_map(Value::as_str).collect();
    let mut errors: Vec<FieldError> = Vec::new();
    for (index, finalizer) in names.iter().enumerate() {
        errors.extend(invalids(&path, finalizer, qualified_name(finalizer)));
        // Those of Kubernetes itself need no domain.
        let standard = ["kubernetes", "orphan", "foregroundDeletion"].contains(finalizer);
        if !standard && !finalizer.contains('/') {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(format!("{path}[{index}]"), (*finalizer).into(), detail));
        }
    }
    if names.contains(&"orphan") && names.contains(&"foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(path, names.into(), detail));
    }
    errors
}

fn no_new_finalizers(new: &Map, old: &Map) -> Option<FieldError> {
    let had: HashSet<Option<&str>> = list(old, "finalizers").iter().map(Value::as_str).collect();
    let mut extra: Vec<&str> =
        list(new, "finalizers").iter().map(Value::as_str).filter(|f| !had.contains(f)).flatten().collect();
    extra.sort_unstable();
    extra.dedup();
    let quoted: Vec<String> = extra.iter().map(|f| format!("{f:?}")).collect();
    (!extra.is_empty()).then(|| {
        let names = quoted.join(", ");
        let detail = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{names}}}"
        );
        FieldError::forbidden("metadata.finalizers", detail)
    })
}

fn check_managers(meta: &Map, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, entry) in list(meta, "managedFields").iter().filter_map(Value::as_object).enumerate() {
        let path = format!("{path}.managedFields[{index}]");
        match text(entry, "operation") {
            "" => errors.push(FieldError::required(format!("{path}.operation"), "must not be empty")),
            "Apply" | "Update" => {}
            other => {
                let path = format!("{path}.operation");
                errors.push(FieldError::not_supported(path, other.into(), &["Apply", "Update"]));
            }
        }
        let kind = text(entry, "fieldsType");
        if !kind.is_empty() && kind != "FieldsV1" {
            errors.push(FieldError::invalid(format!("{path}.fieldsType"), kind.into(), "must be `FieldsV1`"));
        }
        errors.extend(check_manager(text(entry, "manager"), &format!("{path}.manager")));
    }
    errors
}

fn check_manager(manager: &str, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if manager.len() > MANAGER_LIMIT {
        let detail = format!("may not be more than {MANAGER_LIMIT} bytes");
        errors.push(FieldError::new(FieldErrorKind::TooLong, path, detail));
    }
    for (at, c) in manager.char_indices().take(MANAGER_LIMIT).filter(|(_, c)| c.is_control()) {
        let detail = format!("invalid character U+{:04X} (at position {at})", c as u32);
        errors.push(FieldError::invalid(path, manager.into(), detail));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown(errors: &[FieldError]) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn metadata_is_checked_as_kubernetes_does() {
        let rows: &[(Value, &[&str])] = &[
            (json!({"name": "a", "namespace": "b"}), &[]),
            (json!({"namespace": "b"}), &["metadata.name: Required value: name or generateName is required"]),
            (json!({"name": "a"}), &["metadata.namespace: Required value"]),
            (
                json!({"name": "a", "namespace": "b", "labels": {"a/b/c": "-"}}),
                &[
                    "metadata.labels: Invalid value: \"a/b/c\": a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                    "metadata.labels: Invalid value: \"-\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
                ],
            ),
            (
                json!({"name": "a", "namespace": "b", "annotations": {"k": "x".repeat(ANNOTATIONS_LIMIT)}}),
                &["metadata.annotations: Too long: may not be more than 262144 bytes"],
            ),
            (
                json!({"name": "a", "namespace": "b", "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o"}]}),
                &["metadata.ownerReferences.uid: Invalid value: \"\": must not be empty"],
            ),
            (
                json!({"name": "a", "namespace": "b", "finalizers": ["orphan", "foregroundDeletion"]}),
                &[
                    "metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\"]: finalizer orphan and foregroundDeletion cannot be both set",
                ],
            ),
        ];
        for (meta, want) in rows {
            let got = validate_metadata(&json!({ "metadata": meta }), NameRule::Dns1123Subdomain, true);
            assert_eq!(shown(&got), *want);
        }
        let got = validate_metadata(
            &json!({"metadata": {"name": "a", "namespace": "b"}}),
            NameRule::default(),
            false,
        );
        assert_eq!(shown(&got), ["metadata.namespace: Forbidden: not allowed on this type"]);
    }

    #[test]
    fn what_is_wrong_many_times_takes_no_more_than_what_is_sent() {
        let owner = |n: usize| json!({"apiVersion": "v1", "kind": "Pod", "name": format!("o{n}"), "uid": "u", "controller": true});
        let managers = json!([{"manager": "\u{1}".repeat(100_000), "operation": "Update"}]);
        let object = json!({"metadata": {
            "name": "a", "ownerReferences": (0..20_000).map(owner).collect::<Vec<_>>(), "managedFields": managers,
        }});
        let errors = validate_metadata(&object, NameRule::default(), false);
        assert_eq!(errors.len(), MAX_CONTROLLERS + 1 + MANAGER_LIMIT);
        let status = crate::Status::invalid("", "Pod", "a", &errors);
        assert!(status.message.ends_with("more]"), "{}", &status.message[status.message.len() - 100..]);
    }

    #[test]
    fn two_controllers_are_one_too_many() {
        let owner = |name: &str| json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": "u", "controller": true});
        let object = json!({"metadata": {"name": "a", "ownerReferences": [owner("x"), owner("y")]}});
        let got = shown(&validate_metadata(&object, NameRule::default(), false));
        assert_eq!(got.len(), 1);
        assert!(
            got[0].ends_with("Found \"true\" in references for ReplicaSet/x and ReplicaSet/y"),
            "{}",
            got[0]
        );
    }

    #[test]
    fn what_the_server_owns_does_not_change() {
        let old = json!({"metadata": {"name": "a", "uid": "1", "resourceVersion": "7", "deletionTimestamp": "t", "finalizers": ["a"]}});
        assert!(validate_metadata_update(&old, &old).is_empty());
        let new = json!({"metadata": {"name": "b", "uid": "2", "deletionTimestamp": "t", "finalizers": ["a", "b"]}});
        assert_eq!(
            shown(&validate_metadata_update(&new, &old)),
            [
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"b\"}",
                "metadata.resourceVersion: Invalid value: \"\": must be specified for an update",
                "metadata.name: Invalid value: \"b\": field is immutable",
                "metadata.uid: Invalid value: \"2\": field is immutable",
            ]
        );
    }
}
