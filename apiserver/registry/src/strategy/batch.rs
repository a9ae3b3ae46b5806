//! Workloads: the labels that tie a Job to its pods, and what a Deployment counts as a change.

use super::access::{at, list_mut};
use crate::Operation;
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

/// How often the template of a DaemonSet was changed, as `apps/v1` still tells it.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Sets the template's generation of a DaemonSet.
pub(super) fn set_template_generation(object: &mut Value, generation: i64) {
    let annotations = meta::metadata_mut(object).entry("annotations").or_insert_with(|| json!({}));
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.insert(TEMPLATE_GENERATION.to_owned(), generation.to_string().into());
    }
}

/// Whoever writes a DaemonSet writes the template's generation too, though only the server counts it.
pub(super) fn default_template_generation(object: &mut Value) {
    if at(object, "metadata.annotations").get(TEMPLATE_GENERATION).is_none() {
        set_template_generation(object, 0);
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

/// What of a StatefulSet's strategy is stored: not what a feature has that is off.
pub(super) fn without_disabled(set: &mut Value) {
    if let Some(rolling) =
        set.pointer_mut("/spec/updateStrategy/rollingUpdate").and_then(Value::as_object_mut)
    {
        rolling.remove("maxUnavailable");
    }
}

/// What was left out of a StatefulSet is no change.
pub(super) fn update_stateful_set(op: &Operation, set: &mut Value, old: &Value) {
    if op.subresource.is_none() && at(set, "spec") == at(old, "spec") {
        let before = at(old, "metadata.generation").clone();
        meta::set(set, "generation", before);
    }
}

/// The templates of a StatefulSet's claims say what they are.
pub(super) fn name_claims(set: &mut Value) {
    for claim in list_mut(set, "spec.volumeClaimTemplates").filter_map(Value::as_object_mut) {
        claim.insert("apiVersion".into(), "v1".into());
        claim.insert("kind".into(), "PersistentVolumeClaim".into());
    }
}
