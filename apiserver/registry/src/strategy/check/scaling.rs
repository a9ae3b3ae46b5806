//! Disruption budgets and autoscalers.

use super::{
    field::{Errors, Field},
    rules,
};
use freehold_machinery::{Value, names};

/// A PodDisruptionBudget.
pub(super) fn disruption_budget(object: &Field<'_>, _: Option<&Value>, errors: &mut Errors) {
    let spec = object.get("spec");
    let (least, most) = (spec.get("minAvailable"), spec.get("maxUnavailable"));
    if least.is_set() && most.is_set() {
        errors.push(spec.invalid("minAvailable and maxUnavailable cannot be both set"));
    }
    for bound in [least, most] {
        rules::count_or_percent(&bound, errors);
        rules::at_most_all(&bound, errors);
    }
    rules::label_selector(&spec.get("selector"), errors);
    let eviction = spec.get("unhealthyPodEvictionPolicy");
    rules::optional_one_of(&eviction, &["AlwaysAllow", "IfHealthyBudget"], errors);
}

/// Types of metrics, each with the field that describes it.
const METRICS: [(&str, &str); 5] = [
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];
const TARGETS: [&str; 3] = ["Utilization", "Value", "AverageValue"];
const MAX_PERIOD: i64 = 1800;
const MAX_WINDOW: i64 = 3600;

/// A HorizontalPodAutoscaler, of either version.
pub(super) fn autoscaler(object: &Field<'_>, _: Option<&Value>, errors: &mut Errors) {
    let spec = object.get("spec");
    let (least, most) = (spec.get("minReplicas"), spec.get("maxReplicas"));
    if least.int().is_some_and(|n| n < 1) {
        errors.push(least.invalid("must be greater than or equal to 1"));
    }
    match most.int().unwrap_or(0) {
        0 => errors.push(most.required("must be set and greater than 0")),
        n if n < 0 => errors.push(most.invalid("must be greater than or equal to 1")),
        _ => {}
    }
    if least.int().is_some_and(|n| most.int().unwrap_or(0) < n) {
        let shown = most.int().unwrap_or(0);
        errors.push(most.invalid_as(shown, "must be greater than or equal to `minReplicas`"));
    }
    for field in ["kind", "name"] {
        let part = spec.get("scaleTargetRef").get(field);
        rules::required_name(&part, names::path_segment_name, errors);
    }
    spec.get("metrics").items().for_each(|entry| metric(&entry, errors));
    for direction in ["scaleUp", "scaleDown"] {
        let policy = spec.get("behavior").get(direction);
        if policy.is_set() {
            behavior(&policy, errors);
        }
    }
}

fn metric(entry: &Field<'_>, errors: &mut Errors) {
    let kind = entry.get("type");
    let types = METRICS.map(|(name, _)| name);
    if kind.is_empty() {
        errors.push(kind.required("must specify a metric source type"));
    }
    let Some((_, expected)) = METRICS.iter().find(|(name, _)| *name == kind.text()) else {
        return errors.push(kind.not_supported(&types));
    };
    let source = entry.get(expected);
    if !source.is_set() {
        errors.push(source.required("must populate information for the given metric source"));
    }
    for (_, other) in METRICS.iter().filter(|(_, field)| field != expected && entry.get(field).is_set()) {
        errors.push(entry.get(other).forbidden("must populate the given metric source only"));
    }
    let of_resource = expected.to_lowercase().ends_with("resource");
    if source.is_set() && of_resource {
        if source.get("name").is_empty() {
            errors.push(source.get("name").required("must specify a resource name"));
        }
        resource_target(&source.get("target"), errors);
    } else if source.is_set() {
        target(&source.get("target"), errors);
    }
}

fn target(target: &Field<'_>, errors: &mut Errors) {
    let kind = target.get("type");
    if kind.is_empty() {
        errors.push(kind.required("must specify a metric target type"));
    }
    if !TARGETS.contains(&kind.text()) {
        errors.push(kind.invalid_as(kind.text(), "must be either Utilization, Value, or AverageValue"));
    }
    for value in ["value", "averageValue"].map(|field| target.get(field)) {
        if rules::amount(&value).is_some_and(|amount| amount.sign() != 1) {
            errors.push(value.invalid("must be positive"));
        }
    }
    let utilization = target.get("averageUtilization");
    if utilization.int().is_some_and(|n| n < 1) {
        errors.push(utilization.invalid("must be greater than 0"));
    }
}

fn resource_target(field: &Field<'_>, errors: &mut Errors) {
    target(field, errors);
    let (utilization, value) = (field.get("averageUtilization"), field.get("averageValue"));
    match (utilization.is_set(), value.is_set()) {
        (false, false) => {
            let detail = "must set either a target raw value or a target utilization";
            errors.push(utilization.required(detail));
        }
        (true, true) => {
            errors.push(value.forbidden("may not set both a target raw value and a target utilization"));
        }
        _ => {}
    }
}

fn behavior(rule: &Field<'_>, errors: &mut Errors) {
    let window = rule.get("stabilizationWindowSeconds");
    match window.int() {
        Some(n) if n < 0 => errors.push(window.invalid("must be greater than or equal to zero")),
        Some(n) if n > MAX_WINDOW => {
            errors.push(window.invalid(format!("must be less than or equal to {MAX_WINDOW}")));
        }
        _ => {}
    }
    rules::optional_one_of(&rule.get("selectPolicy"), &["Disabled", "Max", "Min"], errors);
    let policies = rule.get("policies");
    if policies.is_empty() {
        errors.push(policies.required("must specify at least one Policy"));
    }
    for policy in policies.items() {
        rules::optional_one_of(&policy.get("type"), &["Percent", "Pods"], errors);
        for field in ["value", "periodSeconds"].map(|field| policy.get(field)) {
            if field.int().unwrap_or(0) <= 0 {
                errors.push(field.invalid("must be greater than zero"));
            }
        }
        let period = policy.get("periodSeconds");
        if period.int().is_some_and(|n| n > MAX_PERIOD) {
            errors.push(period.invalid(format!("must be less than or equal to {MAX_PERIOD}")));
        }
    }
}
