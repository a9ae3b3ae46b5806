//! Workloads: selectors that match their templates, and the labels that tie a Job to its pods.

use crate::Operation;
use freehold_machinery::{Value, meta, selector::Labels, status::FieldError};
use serde_json::json;

/// A selector must choose the pods that its template makes, and stays as it is.
pub(super) fn check_workload(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let spec = &object["spec"];
    let mut errors = Vec::new();
    let empty = |part: &str| {
        spec["selector"].get(part).is_none_or(|v| {
            v.as_object().is_none_or(|m| m.is_empty()) && v.as_array().is_none_or(Vec::is_empty)
        })
    };
    if empty("matchLabels") && empty("matchExpressions") {
        let detail = "empty selector is invalid for deployment";
        errors.push(FieldError::invalid("spec.selector", spec["selector"].clone(), detail));
    }
    let labels = &spec["template"]["metadata"]["labels"];
    match Labels::from_value(&spec["selector"]) {
        Ok(selector) if !selector.matches(|key| labels.get(key).and_then(Value::as_str)) => {
            let detail = "`selector` does not match template `labels`";
            errors.push(FieldError::invalid("spec.template.metadata.labels", labels.clone(), detail));
        }
        Ok(_) => {}
        Err(why) => errors.push(FieldError::invalid("spec.selector", spec["selector"].clone(), why)),
    }
    if old.is_some_and(|old| old["spec"]["selector"] != spec["selector"]) {
        errors.push(FieldError::invalid("spec.selector", spec["selector"].clone(), "field is immutable"));
    }
    if spec.get("replicas").and_then(Value::as_i64).is_some_and(|n| n < 0) {
        errors.push(FieldError::invalid(
            "spec.replicas",
            spec["replicas"].clone(),
            "must be greater than or equal to 0",
        ));
    }
    errors
}

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
    if spec.get("selector").is_none() {
        spec["selector"] = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
    }
}

pub(super) fn check_job(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = &object["spec"];
    let policy = spec["template"]["spec"]["restartPolicy"].as_str().unwrap_or("Always");
    if old.is_none() && policy == "Always" {
        let field = "spec.template.spec.restartPolicy";
        errors.push(FieldError::not_supported(field, policy.into(), &["OnFailure", "Never"]));
    }
    for field in ["completions", "selector", "template"] {
        let changed = old.is_some_and(|old| old["spec"].get(field) != spec.get(field));
        let elastic = field == "completions" && spec["completionMode"] == "Indexed";
        let suspended = field == "template" && old.is_some_and(|old| old["spec"]["suspend"] == true);
        if changed && !elastic && !suspended {
            errors.push(FieldError::invalid(
                format!("spec.{field}"),
                spec[field].clone(),
                "field is immutable",
            ));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_must_choose_the_template_and_stay() {
        let with = |selector: Value, label: &str| {
            json!({"spec": {"selector": {"matchLabels": selector},
            "template": {"metadata": {"labels": {"app": label}}}}})
        };
        let good = with(json!({"app": "a"}), "a");
        assert!(check_workload(&good, Some(&good)).is_empty());
        assert_eq!(check_workload(&with(json!({"app": "a"}), "b"), None).len(), 1);
        assert_eq!(check_workload(&with(json!({}), "b"), None).len(), 1);
        assert_eq!(check_workload(&with(json!({"app": "b"}), "b"), Some(&good)).len(), 1);
    }
}
