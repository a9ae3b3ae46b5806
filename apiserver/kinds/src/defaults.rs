//! Defaults that depend on something else in the object; those that don't are declared with the schemas.
//!
//! Pure functions, idempotent: what they wrote once they leave as it is. They run wherever a client's object is read,
//! before managed fields are computed. Facts: `SetDefaults_*` of Kubernetes' API packages.

use crate::{
    access::{at, at_mut, fill, is_empty, list, list_mut, object_mut, text},
    pod_defaults::{pod, pod_spec},
    workloads,
};
use base64::{Engine, prelude::BASE64_STANDARD};
use freehold_machinery::{Map, ResourceType, Value, meta, schema::default::Empty};
use serde_json::json;

type Default = fn(&mut Value);

/// Where a kind keeps a pod template, and what else it fills in.
struct Row {
    group: &'static str,
    resource: &'static str,
    /// The dotted path of its pod spec.
    pods: Option<&'static str>,
    fill: Default,
}

const fn row(group: &'static str, resource: &'static str, fill: Default) -> Row {
    Row { group, resource, pods: None, fill }
}

/// A row of a kind that makes pods.
const fn workload(group: &'static str, resource: &'static str, pods: &'static str, fill: Default) -> Row {
    Row { pods: Some(pods), ..row(group, resource, fill) }
}

const TEMPLATE: &str = "spec.template.spec";
const NAME_LABEL: &str = "kubernetes.io/metadata.name";
const RBAC: &str = "rbac.authorization.k8s.io";

static TABLE: &[Row] = &[
    workload("", "pods", "spec", pod),
    workload("", "podtemplates", "template.spec", |_| {}),
    workload("", "replicationcontrollers", TEMPLATE, replication_controller),
    workload("apps", "deployments", TEMPLATE, deployment),
    workload("apps", "replicasets", TEMPLATE, |_| {}),
    workload("apps", "statefulsets", TEMPLATE, stateful_set),
    workload("apps", "daemonsets", TEMPLATE, daemon_set),
    workload("batch", "jobs", TEMPLATE, job),
    workload("batch", "cronjobs", "spec.jobTemplate.spec.template.spec", |_| {}),
    row("", "services", service),
    row("", "limitranges", limit_range),
    row("", "nodes", node),
    row("", "namespaces", label_with_name),
    row("", "secrets", merge_string_data),
    row("autoscaling", "horizontalpodautoscalers", autoscaler),
    row("networking.k8s.io", "networkpolicies", network_policy),
    row(RBAC, "rolebindings", binding),
    row(RBAC, "clusterrolebindings", binding),
    row("apiextensions.k8s.io", "customresourcedefinitions", freehold_machinery::crd::default),
    row("resource.k8s.io", "resourceclaims", |claim| device_requests(claim, "spec.devices.requests")),
    row("resource.k8s.io", "resourceclaimtemplates", |template| {
        device_requests(template, "spec.spec.devices.requests");
    }),
];

/// Fills in the defaults of a built-in kind.
pub fn apply(ty: &ResourceType, object: &mut Value, empties: &[Empty]) {
    if ty.custom {
        return;
    }
    let Some(row) = TABLE.iter().find(|row| row.group == ty.group && row.resource == ty.plural) else {
        return;
    };
    let kept = |empty: &&Empty| {
        EMPTY_STAYS.iter().any(|(resource, at)| row.resource == *resource && empty.is_at(at))
    };
    empties.iter().filter(kept).for_each(|empty| empty.restore(object));
    run(row, object);
}

/// Lists that are filled in where they are absent, and not where they are empty.
const EMPTY_STAYS: [(&str, &str); 2] = [
    ("horizontalpodautoscalers", "spec.behavior.scaleUp.policies"),
    ("horizontalpodautoscalers", "spec.behavior.scaleDown.policies"),
];

/// Leaves out of a kind's pods what Kubernetes does not store.
pub fn drop_disabled(ty: &ResourceType, object: &mut Value) {
    let row = TABLE.iter().find(|row| !ty.custom && row.group == ty.group && row.resource == ty.plural);
    if let Some(spec) = row.and_then(|row| row.pods).and_then(|path| at_mut(object, path)) {
        crate::pod::drop_disabled(spec);
    }
    if row.is_some_and(|row| row.resource == "statefulsets") {
        workloads::without_disabled(object);
    }
}

fn run(row: &Row, object: &mut Value) {
    if let Some(spec) = row.pods.and_then(|path| at_mut(object, path)) {
        pod_spec(spec);
    }
    (row.fill)(object);
}

/// The labels of a template, where it has some.
fn template_labels(object: &Value) -> Option<Value> {
    let labels = at(object, "spec.template.metadata.labels");
    (!is_empty(labels)).then(|| labels.clone())
}

fn inherit_labels(object: &mut Value, labels: &Value) {
    if is_empty(at(object, "metadata.labels")) {
        meta::set(object, "labels", labels.clone());
    }
}

fn replication_controller(object: &mut Value) {
    let Some(labels) = template_labels(object) else { return };
    if is_empty(at(object, "spec.selector")) {
        object["spec"]["selector"] = labels.clone();
    }
    inherit_labels(object, &labels);
}

fn deployment(object: &mut Value) {
    rolling(object, "spec.strategy", "25%".into(), "25%".into());
}

fn daemon_set(object: &mut Value) {
    workloads::default_template_generation(object);
    rolling(object, "spec.updateStrategy", 1.into(), 0.into());
    // Inside of Kubernetes these are plain numbers, which are never absent.
    const ROLLING: &str = "spec.updateStrategy.rollingUpdate";
    if at(object, ROLLING).is_object() {
        ["maxUnavailable", "maxSurge"].iter().for_each(|field| fill(object, ROLLING, field, 0));
    }
}

fn rolling(object: &mut Value, path: &str, unavailable: Value, surge: Value) {
    if text(object, &format!("{path}.type")) == "RollingUpdate" {
        let inner = format!("{path}.rollingUpdate");
        fill(object, &inner, "maxUnavailable", unavailable);
        fill(object, &inner, "maxSurge", surge);
    }
}

fn stateful_set(object: &mut Value) {
    workloads::name_claims(object);
    const STRATEGY: &str = "spec.updateStrategy";
    if at(object, STRATEGY).is_object() && is_empty(at(object, "spec.updateStrategy.type")) {
        fill(object, STRATEGY, "rollingUpdate", json!({}));
        object["spec"]["updateStrategy"]["type"] = "RollingUpdate".into();
    }
    let rolling = at(object, "spec.updateStrategy.rollingUpdate").is_object();
    if rolling && text(object, "spec.updateStrategy.type") == "RollingUpdate" {
        fill(object, "spec.updateStrategy.rollingUpdate", "partition", 0);
    }
}

fn job(object: &mut Value) {
    if !object["spec"].is_object() {
        return;
    }
    let spec = |field: &str| !at(&object["spec"], field).is_null();
    let alone = !spec("completions") && !spec("parallelism");
    let backoff = if spec("backoffLimitPerIndex") { i32::MAX } else { 6 };
    let replacement = if spec("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    let completions = alone.then_some(("completions", json!(1)));
    let others = [
        ("parallelism", json!(1)),
        ("backoffLimit", json!(backoff)),
        ("completionMode", json!("NonIndexed")),
        ("suspend", json!(false)),
        ("podReplacementPolicy", json!(replacement)),
        ("manualSelector", json!(false)),
    ];
    for (field, value) in completions.into_iter().chain(others) {
        fill(object, "spec", field, value);
    }
    if let Some(labels) = template_labels(object) {
        inherit_labels(object, &labels);
    }
}

fn service(object: &mut Value) {
    let Some(spec) = object.get_mut("spec").filter(|spec| spec.is_object()) else { return };
    affinity(spec);
    for port in list_mut(spec, "ports").filter(|port| port.is_object()) {
        if is_empty(&port["targetPort"]) {
            port["targetPort"] = port["port"].clone();
        }
    }
    let kind = text(spec, "type").to_owned();
    let balanced = kind == "LoadBalancer";
    let external = !list(spec, "externalIPs").is_empty() && kind == "ClusterIP";
    let wanted = [
        ("externalTrafficPolicy", json!("Cluster"), balanced || kind == "NodePort" || external),
        ("internalTrafficPolicy", json!("Cluster"), kind != "ExternalName"),
        ("allocateLoadBalancerNodePorts", json!(true), balanced),
    ];
    let Some(map) = spec.as_object_mut() else { return };
    for (field, value, applies) in wanted {
        // The one is a pointer in Kubernetes, and empty is not absent there.
        let absent = |value: &Value| value.is_null() || (value == "" && field != "internalTrafficPolicy");
        if applies && map.get(field).is_none_or(absent) {
            map.insert(field.to_owned(), value);
        }
    }
    if balanced {
        for ingress in list_mut(object, "status.loadBalancer.ingress").filter(|i| !is_empty(&i["ip"])) {
            if ingress["ipMode"].is_null() {
                ingress["ipMode"] = "VIP".into();
            }
        }
    }
}

fn affinity(spec: &mut Value) {
    match text(spec, "sessionAffinity") {
        "ClientIP" => fill(spec, "sessionAffinityConfig.clientIP", "timeoutSeconds", 10_800),
        "None" => {
            if let Some(map) = spec.as_object_mut() {
                map.remove("sessionAffinityConfig");
            }
        }
        _ => {}
    }
}

/// For containers: limits from maxima, requests from limits and minima.
fn limit_range(object: &mut Value) {
    for item in list_mut(object, "spec.limits").filter(|item| text(item, "type") == "Container") {
        for (target, source) in [("default", "max"), ("defaultRequest", "default"), ("defaultRequest", "min")]
        {
            let Some(given) = item.get(source).and_then(Value::as_object).cloned() else { continue };
            for (key, value) in given {
                fill(item, target, &key, value);
            }
        }
    }
}

fn node(object: &mut Value) {
    // The first of its networks stands in a field of its own as well.
    let (one, all) = (at(object, "spec.podCIDR").clone(), at(object, "spec.podCIDRs").clone());
    match (one.as_str().is_some_and(|one| !one.is_empty()), all.as_array().and_then(|all| all.first())) {
        (true, None) => object["spec"]["podCIDRs"] = json!([one]),
        // Where the two differ, the field that is older counts.
        (true, Some(first)) if *first != one => object["spec"]["podCIDRs"] = json!([one]),
        (false, Some(first)) => object["spec"]["podCIDR"] = first.clone(),
        _ => {}
    }
    let capacity = at(object, "status.capacity").clone();
    if capacity.is_object() {
        fill(object, "status", "allocatable", capacity);
    }
}

fn autoscaler(object: &mut Value) {
    if !object["spec"].is_object() {
        return;
    }
    if text(object, "apiVersion").ends_with("/v1") {
        const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
        if meta::annotation(object, METRICS).is_none_or(str::is_empty) {
            fill(object, "spec", "targetCPUUtilizationPercentage", 80);
        }
        return;
    }
    if list(object, "spec.metrics").is_empty() {
        object["spec"]["metrics"] = json!([{"type": "Resource", "resource": {
            "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]);
    }
    if !at(object, "spec.behavior").is_object() {
        return;
    }
    let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
    let up = json!([{"type": "Pods", "value": 4, "periodSeconds": 15}, percent]);
    fill(object, "spec.behavior.scaleUp", "stabilizationWindowSeconds", 0);
    for (direction, policies) in [("scaleUp", up), ("scaleDown", json!([percent]))] {
        let path = format!("spec.behavior.{direction}");
        fill(object, &path, "selectPolicy", "Max");
        fill(object, &path, "policies", policies);
    }
}

fn network_policy(object: &mut Value) {
    if list(object, "spec.policyTypes").is_empty() {
        let egress = !list(object, "spec.egress").is_empty();
        let types = if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
        if let Some(spec) = object_mut(object, "spec") {
            spec.insert("policyTypes".into(), types);
        }
    }
}

fn binding(object: &mut Value) {
    for subject in list_mut(object, "subjects") {
        if matches!(text(subject, "kind"), "User" | "Group") && is_empty(at(subject, "apiGroup")) {
            subject["apiGroup"] = RBAC.into();
        }
    }
}

fn device_requests(object: &mut Value, path: &str) {
    let exact_count = |request: &mut Value| {
        if text(request, "allocationMode") == "ExactCount" && is_empty(at(request, "count")) {
            request["count"] = 1.into();
        }
    };
    for request in list_mut(object, path) {
        at_mut(request, "exactly").into_iter().for_each(exact_count);
        list_mut(request, "firstAvailable").for_each(exact_count);
    }
}

/// A namespace is labelled with its name.
pub fn label_with_name(object: &mut Value) {
    let name = meta::name(object).to_owned();
    let labels = meta::metadata_mut(object).entry("labels").or_insert_with(|| Value::Object(Map::new()));
    labels[NAME_LABEL] = name.into();
}

/// `stringData` is written into `data`.
pub fn merge_string_data(object: &mut Value) {
    let Some(map) = object.as_object_mut() else { return };
    let text = map.remove("stringData");
    let Some(Value::Object(text)) = text else { return };
    let data = map.entry("data").or_insert_with(|| Value::Object(Map::new()));
    for (key, value) in text {
        data[key] = BASE64_STANDARD.encode(value.as_str().unwrap_or_default()).into();
    }
}

#[cfg(test)]
#[path = "defaults_tests.rs"]
mod tests;
