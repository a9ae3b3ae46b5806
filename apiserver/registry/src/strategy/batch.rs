//! Workloads: the labels that tie a Job to its pods, and what a Deployment counts as a change.

use super::access::{at, is_empty};
use crate::Operation;
use freehold_machinery::{Value, meta};
use serde_json::json;

/// A Job without a selector gets one of its own, by its uid.
pub(super) fn create_job(_: &Operation, object: &mut Value) {
    let (uid, name) = (meta::uid(object).to_owned(), meta::name(object).to_owned());
    let spec = &mut object["spec"];
    if spec.get("manualSelector") == Some(&Value::Bool(true)) || !spec["template"].is_object() {
        return;
    }
    let labels = meta::metadata_mut(&mut spec["template"]).entry("labels").or_insert_with(|| json!({}));
    for (key, value) in [
        ("batch.kubernetes.io/controller-uid", &uid),
        ("controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
        ("job-name", &name),
    ] {
        labels[key] = value.clone().into();
    }
    let all = labels.clone();
    if spec.get("selector").is_none() {
        spec["selector"] = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
    }
    if is_empty(at(object, "metadata.labels")) {
        meta::set(object, "labels", all);
    }
}

/// Annotations count as a change, because they are handed on to replica sets.
pub(super) fn update_deployment(op: &Operation, object: &mut Value, old: &Value) {
    let annotations = |object: &Value| at(object, "metadata.annotations").clone();
    let (now, before) = (at(object, "metadata.generation").as_i64(), at(old, "metadata.generation").as_i64());
    if op.subresource.is_none() && now == before && annotations(object) != annotations(old) {
        meta::set(object, "generation", before.unwrap_or(0) + 1);
    }
}
