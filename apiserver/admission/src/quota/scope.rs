//! Scopes: which Pods a quota is about
//! (<https://kubernetes.io/docs/concepts/policy/resource-quotas/#quota-scopes>).

use crate::{
    json::{items, text},
    resources::of_container,
};
use freehold_machinery::{GroupResource, Value};

/// Whether all scopes of a quota hold for an object. Scopes are about Pods: a quota that has some is about nothing else.
pub(super) fn matches(quota: &Value, resource: &GroupResource, object: &Value) -> bool {
    let pods = resource.group.is_empty() && resource.resource == "pods";
    let mut plain = items(quota, "/spec/scopes");
    let mut selectors = items(quota, "/spec/scopeSelector/matchExpressions");
    plain.all(|scope| pods && holds(object, scope.as_str().unwrap_or_default(), "Exists", &[]))
        && selectors.all(|selector| {
            let values: Vec<&str> = items(selector, "/values").filter_map(Value::as_str).collect();
            pods && holds(object, text(selector, "/scopeName"), text(selector, "/operator"), &values)
        })
}

fn holds(pod: &Value, scope: &str, operator: &str, values: &[&str]) -> bool {
    let terminating = pod["spec"]["activeDeadlineSeconds"].as_i64().is_some_and(|seconds| seconds >= 0);
    match scope {
        "Terminating" => terminating,
        "NotTerminating" => !terminating,
        "BestEffort" => is_best_effort(pod),
        "NotBestEffort" => !is_best_effort(pod),
        "PriorityClass" => selects(text(pod, "/spec/priorityClassName"), operator, values),
        "CrossNamespacePodAffinity" => reaches_other_namespaces(pod),
        _ => false,
    }
}

fn selects(class: &str, operator: &str, values: &[&str]) -> bool {
    match operator {
        "Exists" => !class.is_empty(),
        "DoesNotExist" => class.is_empty(),
        "In" => values.contains(&class),
        "NotIn" => !values.contains(&class),
        _ => false,
    }
}

/// No container says how much cpu or memory it wants or may have.
fn is_best_effort(pod: &Value) -> bool {
    let lists = ["/spec/containers", "/spec/initContainers"];
    let mut containers = lists.into_iter().flat_map(|list| items(pod, list));
    !containers.any(|container| {
        let states = |field| {
            of_container(container, field)
                .iter()
                .any(|(name, q)| (name == "cpu" || name == "memory") && !q.is_zero())
        };
        states("requests") || states("limits")
    })
}

fn reaches_other_namespaces(pod: &Value) -> bool {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let reaches =
        |term: &Value| items(term, "/namespaces").next().is_some() || !term["namespaceSelector"].is_null();
    ["podAffinity", "podAntiAffinity"].into_iter().any(|kind| {
        let affinity = format!("/spec/affinity/{kind}");
        items(pod, &format!("{affinity}/{REQUIRED}")).any(reaches)
            || items(pod, &format!("{affinity}/{PREFERRED}")).any(|term| reaches(&term["podAffinityTerm"]))
    })
}
