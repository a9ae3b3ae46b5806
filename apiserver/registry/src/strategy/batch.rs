//! Workloads: the labels that tie a Job to its pods, and what a Deployment counts as a change.

use crate::Operation;
use freehold_apiserver_kinds::{
    access::at,
    workloads::{TEMPLATE_GENERATION, set_template_generation},
};
use freehold_machinery::{Value, meta};
use serde_json::json;

/// A Job without a selector gets one of its own, by its uid.
pub(super) fn create_job(_: &Operation, object: &mut Value) {
    let (uid, name) = (meta::uid(object).to_owned(), meta::name(object).to_owned());
    // Kubernetes takes them for the same where the Job has got its labels from the template.
    let inherited = at(object, "metadata.labels") == at(object, "spec.template.metadata.labels");
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
    let selector = &mut spec["selector"]["matchLabels"];
    if ["batch.kubernetes.io/controller-uid", "controller-uid"].iter().all(|key| selector.get(key).is_none())
    {
        selector["batch.kubernetes.io/controller-uid"] = uid.into();
    }
    if inherited {
        meta::set(object, "labels", all);
    }
}

/// A change of the template counts.
pub(super) fn update_daemon_set(op: &Operation, object: &mut Value, old: &Value) {
    let annotations = at(old, "metadata.annotations").get(TEMPLATE_GENERATION);
    let before = annotations.and_then(Value::as_str).and_then(|text| text.parse().ok()).unwrap_or(0);
    let changed = op.subresource.is_none() && at(object, "spec.template") != at(old, "spec.template");
    set_template_generation(object, before + i64::from(changed));
}

/// Annotations count as a change, because they are handed on to replica sets.
pub(super) fn update_deployment(op: &Operation, object: &mut Value, old: &Value) {
    let annotations = |object: &Value| at(object, "metadata.annotations").clone();
    let (now, before) = (at(object, "metadata.generation").as_i64(), at(old, "metadata.generation").as_i64());
    if op.subresource.is_none() && now == before && annotations(object) != annotations(old) {
        meta::set(object, "generation", before.unwrap_or(0) + 1);
    }
}

/// What was left out of a StatefulSet is no change.
pub(super) fn update_stateful_set(op: &Operation, set: &mut Value, old: &Value) {
    if op.subresource.is_none() && at(set, "spec") == at(old, "spec") {
        let before = at(old, "metadata.generation").clone();
        meta::set(set, "generation", before);
    }
}
