//! Disruption budgets and autoscalers.

use super::{
    field::{Errors, Field, same},
    resources,
    rows::{Row, Rule, check},
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

/// Types of metrics, each with the field that describes it and its rules, in the order in which Kubernetes looks at them.
const METRICS: [(&str, &str, &[Row]); 5] = [
    ("Object", "object", OBJECT),
    ("External", "external", EXTERNAL),
    ("Pods", "pods", PODS),
    ("Resource", "resource", RESOURCE),
    ("ContainerResource", "containerResource", CONTAINER_RESOURCE),
];
const TYPES: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];
const TARGETS: [&str; 3] = ["Utilization", "Value", "AverageValue"];
const MAX_PERIOD: i64 = 1800;
const MAX_WINDOW: i64 = 3600;

const REFERENCE: &[Row] = &[
    ("kind", Rule::RequiredName(names::path_segment_name)),
    ("name", Rule::RequiredName(names::path_segment_name)),
];

const IDENTIFIER: &[Row] =
    &[("name", Rule::Required("must specify a metric name")), ("name", Rule::Name(names::path_segment_name))];

const OBJECT: &[Row] = &[
    ("describedObject", Rule::Always(REFERENCE)),
    ("metric", Rule::Always(IDENTIFIER)),
    ("target", Rule::Always(TARGET)),
    (
        "target",
        Rule::Also(|target, errors| either(target, "must set either a target value or averageValue", errors)),
    ),
];

const EXTERNAL: &[Row] = &[
    ("metric", Rule::Always(IDENTIFIER)),
    ("target", Rule::Always(TARGET)),
    ("target", Rule::Also(external_target)),
];

const PODS: &[Row] = &[
    ("metric", Rule::Always(IDENTIFIER)),
    ("target", Rule::Always(TARGET)),
    ("target.averageValue", Rule::Required("must specify a positive target averageValue")),
];

const RESOURCE: &[Row] = &[
    ("name", Rule::Required("must specify a resource name")),
    ("target", Rule::Always(TARGET)),
    ("target", Rule::Also(resource_target)),
];

const CONTAINER_RESOURCE: &[Row] = &[
    ("name", Rule::Required("must specify a resource name")),
    ("name", Rule::Also(resource_of_containers)),
    ("container", Rule::Required("must specify a container")),
    (
        "container",
        Rule::Also(|container, errors| rules::optional_name(container, names::dns1123_label, errors)),
    ),
    ("target", Rule::Always(TARGET)),
    ("target", Rule::Also(resource_target)),
];

const TARGET: &[Row] = &[
    ("type", Rule::Required("must specify a metric target type")),
    ("type", Rule::Also(target_type)),
    ("value", Rule::Also(positive)),
    ("averageValue", Rule::Also(positive)),
    ("averageUtilization", Rule::Also(utilization)),
];

const SCALING: &[Row] = &[
    ("stabilizationWindowSeconds", Rule::Also(window)),
    ("selectPolicy", Rule::OneOf(&["Disabled", "Max", "Min"])),
    ("policies", Rule::Required("must specify at least one Policy")),
    ("policies", Rule::Each(POLICY)),
];

const POLICY: &[Row] = &[
    ("type", Rule::AlwaysOneOf(&["Percent", "Pods"])),
    ("value", Rule::Positive),
    ("periodSeconds", Rule::Positive),
    ("periodSeconds", Rule::Also(|period, errors| at_most(period, MAX_PERIOD, errors))),
];

/// A HorizontalPodAutoscaler, of either version.
pub(super) fn autoscaler(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    let spec = object.get("spec");
    let (least, most) = (spec.get("minReplicas"), spec.get("maxReplicas"));
    let lowest = i64::from(old.is_none_or(|old| old["spec"]["minReplicas"] != 0));
    if least.int().is_some_and(|n| n < lowest) {
        errors.push(least.invalid(format!("must be greater than or equal to {lowest}")));
    }
    match most.number() {
        0 => errors.push(most.required("must be set and greater than 0")),
        n if n < 0 => errors.push(most.invalid("must be greater than or equal to 1")),
        _ => {}
    }
    if least.int().is_some_and(|n| most.number() < n) {
        errors.push(most.invalid_as(most.number(), "must be greater than or equal to `minReplicas`"));
    }
    target_reference(&spec.get("scaleTargetRef"), old.map(|old| &old["spec"]["scaleTargetRef"]), errors);
    let metrics = spec.get("metrics");
    metrics.items().for_each(|entry| metric(&entry, errors));
    if spec.get("targetCPUUtilizationPercentage").is_set() {
        let path = format!("{}[0].resource.target.averageUtilization", metrics.path());
        utilization(&spec.get("targetCPUUtilizationPercentage").named(&path), errors);
    }
    let counts_others = |entry: Field<'_>| matches!(entry.get("type").text(), "Object" | "External");
    if least.int() == Some(0) && !metrics.items().any(counts_others) {
        let detail =
            "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.push(metrics.forbidden(detail));
    }
    for direction in ["scaleUp", "scaleDown"] {
        check(&spec.get("behavior").get(direction), &[("", Rule::Fields(SCALING))], errors);
    }
}

/// What is scaled. All that can be are in a group, but ReplicationControllers.
fn target_reference(reference: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    check(reference, REFERENCE, errors);
    let version = reference.get("apiVersion");
    let is_same = |old: &Value| ["apiVersion", "kind"].iter().all(|f| same(reference.get(f).value, &old[*f]));
    if old.is_some_and(is_same) {
        return;
    }
    if version.text().matches('/').count() > 1 {
        let detail = format!("unexpected GroupVersion string: {}", version.text());
        errors.push(version.invalid_as(version.text(), detail));
    } else if !version.text().contains('/') && reference.get("kind").text() != "ReplicationController" {
        errors.push(version.invalid_as(version.text(), "apiVersion must specify API group"));
    }
}

fn metric(entry: &Field<'_>, errors: &mut Errors) {
    let kind = entry.get("type");
    let unsupported = (!TYPES.contains(&kind.text())).then(|| kind.not_supported(&TYPES));
    check(&kind, &[("", Rule::Required("must specify a metric source type"))], errors);
    errors.extend(unsupported.clone());
    let sources: Vec<_> = METRICS.iter().filter(|(_, field, _)| entry.get(field).is_set()).collect();
    if let Some((_, field, rows)) = sources.first() {
        check(&entry.get(field), rows, errors);
    }
    let expected = METRICS.iter().find(|(name, ..)| *name == kind.text()).map(|(_, field, _)| *field);
    if let Some(field) = expected {
        let words = "must populate information for the given metric source";
        check(&entry.get(field), &[("", Rule::There(words))], errors);
    }
    errors.extend(unsupported);
    if sources.len() != 1 {
        let others = sources.iter().filter(|(_, field, _)| Some(*field) != expected);
        errors.extend(
            others.map(|(_, field, _)| {
                entry.get(field).forbidden("must populate the given metric source only")
            }),
        );
    }
}

fn target_type(kind: &Field<'_>, errors: &mut Errors) {
    if !TARGETS.contains(&kind.text()) {
        errors.push(kind.invalid_as(kind.text(), "must be either Utilization, Value, or AverageValue"));
    }
}

fn positive(value: &Field<'_>, errors: &mut Errors) {
    if rules::amount(value).is_some_and(|amount| amount.sign() != 1) {
        errors.push(value.invalid("must be positive"));
    }
}

fn utilization(percent: &Field<'_>, errors: &mut Errors) {
    if percent.int().is_some_and(|n| n < 1) {
        errors.push(percent.invalid("must be greater than 0"));
    }
}

fn resource_of_containers(name: &Field<'_>, errors: &mut Errors) {
    if !name.is_empty() {
        resources::container_resource(name, name.text(), errors);
    }
}

/// One of the two ways to say how much there is to be.
fn either(target: &Field<'_>, words: &str, errors: &mut Errors) {
    if !target.get("value").is_set() && !target.get("averageValue").is_set() {
        errors.push(target.get("averageValue").required(words));
    }
}

fn external_target(target: &Field<'_>, errors: &mut Errors) {
    either(target, "must set either a target value for metric or a per-pod target", errors);
    if target.get("value").is_set() && target.get("averageValue").is_set() {
        let detail = "may not set both a target value for metric and a per-pod target";
        errors.push(target.get("value").forbidden(detail));
    }
}

fn resource_target(field: &Field<'_>, errors: &mut Errors) {
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

fn window(window: &Field<'_>, errors: &mut Errors) {
    if window.number() < 0 {
        errors.push(window.invalid("must be greater than or equal to zero"));
    }
    at_most(window, MAX_WINDOW, errors);
}

fn at_most(field: &Field<'_>, most: i64, errors: &mut Errors) {
    if field.number() > most {
        errors.push(field.invalid(format!("must be less than or equal to {most}")));
    }
}
