//! Scopes: which Pods and claims of volumes a quota is about
//! (<https://kubernetes.io/docs/concepts/policy/resource-quotas/#quota-scopes>).

use crate::{
    json::{items, text},
    resources::of_container,
};
use freehold_machinery::{GroupResource, Value};

/// What a scope that names classes is about.
#[derive(Clone, Copy)]
enum About {
    Pods,
    Claims,
    Nothing,
}

/// Whether all scopes of a quota hold for an object. Scopes are about Pods or, of one sort, about claims of volumes: a quota
/// that has some is about nothing else.
pub fn matches(quota: &Value, resource: &GroupResource, object: &Value) -> bool {
    let about = match (resource.group.as_str(), resource.resource.as_str()) {
        ("", "pods") => About::Pods,
        ("", "persistentvolumeclaims") => About::Claims,
        _ => About::Nothing,
    };
    let mut plain = items(quota, "/spec/scopes");
    let mut selectors = items(quota, "/spec/scopeSelector/matchExpressions");
    plain.all(|scope| holds(about, object, scope.as_str().unwrap_or_default(), "Exists", &[]))
        && selectors.all(|selector| {
            let values: Vec<&str> = items(selector, "/values").filter_map(Value::as_str).collect();
            holds(about, object, text(selector, "/scopeName"), text(selector, "/operator"), &values)
        })
}

fn holds(about: About, object: &Value, scope: &str, operator: &str, values: &[&str]) -> bool {
    match (about, scope) {
        (About::Pods, "Terminating") => is_terminating(object),
        (About::Pods, "NotTerminating") => !is_terminating(object),
        (About::Pods, "BestEffort") => is_best_effort(object),
        (About::Pods, "NotBestEffort") => !is_best_effort(object),
        (About::Pods, "PriorityClass") => {
            selects(&[text(object, "/spec/priorityClassName")], operator, values)
        }
        (About::Pods, "CrossNamespacePodAffinity") => reaches_other_namespaces(object),
        (About::Claims, "VolumeAttributesClass") => {
            let classes = [
                "/spec/volumeAttributesClassName",
                "/status/currentVolumeAttributesClassName",
                "/status/modifyVolumeStatus/targetVolumeAttributesClassName",
            ];
            selects(&classes.map(|class| text(object, class)), operator, values)
        }
        _ => false,
    }
}

/// Whether a Pod's time is limited.
pub fn is_terminating(pod: &Value) -> bool {
    pod["spec"]["activeDeadlineSeconds"].as_i64().is_some_and(|seconds| seconds >= 0)
}

/// Whether any of the classes that an object names is selected, or that it names none.
fn selects(classes: &[&str], operator: &str, values: &[&str]) -> bool {
    let mut named = classes.iter().filter(|class| !class.is_empty());
    match operator {
        "Exists" => named.next().is_some(),
        "DoesNotExist" => named.next().is_none(),
        "In" => named.any(|class| values.contains(class)),
        "NotIn" => classes.iter().all(|class| class.is_empty()) || named.any(|class| !values.contains(class)),
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
