//! Names and amounts of resources: of containers, quotas and limit ranges.

use super::{
    field::{Errors, Field},
    rules,
};
use freehold_machinery::names;

const COMPUTE: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
const HUGE_PAGES: &str = "hugepages-";
/// What a quota counts besides the resources of containers, `count/...` and storage classes.
const COUNTED: &[&str] = &[
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "services.nodeports",
    "services.loadbalancers",
];
/// Resources that come in whole numbers.
const WHOLE: &[&str] = &[
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

fn is_native(resource: &str) -> bool {
    !resource.contains('/') || resource.contains("kubernetes.io/")
}

fn is_extended(resource: &str) -> bool {
    !is_native(resource)
        && !resource.starts_with("requests.")
        && names::qualified_name(&format!("requests.{resource}")).is_empty()
}

fn is_whole(resource: &str) -> bool {
    WHOLE.contains(&resource) || is_extended(resource)
}

/// Whether more of a resource may be limited to than is requested.
fn may_overcommit(resource: &str) -> bool {
    is_native(resource) && !resource.starts_with(HUGE_PAGES)
}

/// The form of a resource's name, then whether it is one of the group's own.
fn resource_name(field: &Field<'_>, name: &str, standard: bool, whose: &str, errors: &mut Errors) {
    errors.extend(names::qualified_name(name).into_iter().map(|why| field.invalid_as(name, why)));
    if !name.contains('/') && !standard {
        errors.push(field.invalid_as(name, format!("must be a standard resource for {whose}")));
    } else if !is_native(name) && !is_extended(name) && whose == "containers" {
        errors.push(field.invalid_as(name, "doesn't follow extended resource name standard"));
    }
}

fn is_of_containers(name: &str) -> bool {
    COMPUTE.contains(&name) || name.starts_with(HUGE_PAGES)
}

fn is_of_quotas(name: &str) -> bool {
    let pages = ["", "requests.", "limits."]
        .iter()
        .any(|prefix| name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(HUGE_PAGES)));
    COMPUTE.contains(&name) || COUNTED.contains(&name) || pages
}

/// Requests and limits of a container.
pub(super) fn container_resources(resources: &Field<'_>, errors: &mut Errors) {
    let (limits, requests) = (resources.get("limits"), resources.get("requests"));
    for (name, limit) in limits.entries() {
        resource_name(&limit, name, is_of_containers(name), "containers", errors);
        rules::resource_amount(&limit, is_whole(name), errors);
    }
    for (name, request) in requests.entries() {
        resource_name(&request, name, is_of_containers(name), "containers", errors);
        rules::resource_amount(&request, is_whole(name), errors);
        let limit = limits.key(name);
        match (rules::amount(&request), rules::amount(&limit)) {
            (Some(wanted), Some(most)) if wanted != most && !may_overcommit(name) => {
                let detail = format!("must be equal to {name} limit of {most}");
                errors.push(requests.invalid_as(wanted.to_string(), detail));
            }
            (Some(wanted), Some(most)) if wanted > most => {
                let detail = format!("must be less than or equal to {name} limit of {most}");
                errors.push(requests.invalid_as(wanted.to_string(), detail));
            }
            (Some(_), None) if !may_overcommit(name) => {
                errors.push(limits.required("Limit must be set for non overcommitable resources"));
            }
            _ => {}
        }
    }
}

const SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
];

/// A ResourceQuota.
pub(super) fn quota(object: &Field<'_>, old: Option<&freehold_machinery::Value>, errors: &mut Errors) {
    for (name, amount) in object.get("spec.hard").entries() {
        resource_name(&amount, name, is_of_quotas(name), "quota", errors);
        rules::resource_amount(&amount, is_whole(name), errors);
    }
    let scopes = object.get("spec.scopes");
    for scope in scopes.texts().filter(|scope| !SCOPES.contains(scope)) {
        errors.push(scopes.invalid_as(scope, "unsupported scope"));
    }
    for (one, other) in [("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")] {
        if [one, other].iter().all(|scope| scopes.texts().any(|given| given == *scope)) {
            errors.push(scopes.invalid("conflicting scopes"));
        }
    }
    if let Some(old) = old {
        rules::immutable(&scopes, &old["spec"]["scopes"], errors);
    }
}

/// A LimitRange.
pub(super) fn limit_range(object: &Field<'_>, _: Option<&freehold_machinery::Value>, errors: &mut Errors) {
    let mut kinds = std::collections::BTreeSet::new();
    for limit in object.get("spec.limits").items() {
        let kind = limit.get("type");
        if !["Container", "Pod", "PersistentVolumeClaim"].contains(&kind.text()) && !kind.text().contains('/')
        {
            let why = "must be a standard limit type or fully qualified";
            errors.push(kind.invalid_as(kind.text(), why));
        }
        if !kinds.insert(kind.text()) {
            errors.push(kind.duplicate());
        }
        if kind.text() == "Pod" {
            for part in ["default", "defaultRequest"].map(|part| limit.get(part)) {
                if !part.is_empty() {
                    errors.push(part.forbidden("may not be specified when `type` is 'Pod'"));
                }
            }
        }
        let storage = |part: &str| limit.get(part).key("storage").is_set();
        if kind.text() == "PersistentVolumeClaim" && !storage("min") && !storage("max") {
            let detail = "either minimum or maximum storage value is required, but neither was provided";
            errors.push(limit.get("limits").required(detail));
        }
        bounds(&limit, errors);
    }
}

/// Pairs of a limit's parts, of which the first is at most the second; the part that is blamed, the part whose value
/// is shown, and both in words.
const ORDER: [(&str, &str, &str, &str, &str, &str); 6] = [
    ("min", "max", "min", "min", "min value", "max value"),
    ("min", "defaultRequest", "defaultRequest", "defaultRequest", "min value", "default request value"),
    ("defaultRequest", "max", "defaultRequest", "defaultRequest", "default request value", "max value"),
    (
        "defaultRequest",
        "default",
        "defaultRequest",
        "defaultRequest",
        "default request value",
        "default limit value",
    ),
    ("min", "default", "default", "min", "min value", "default value"),
    ("default", "max", "default", "max", "default value", "max value"),
];

fn bounds(limit: &Field<'_>, errors: &mut Errors) {
    for (low, high, blamed, shown, low_words, high_words) in ORDER {
        for (name, field) in limit.get(low).entries() {
            let (Some(a), Some(b)) = (rules::amount(&field), rules::amount(&limit.get(high).key(name)))
            else {
                continue;
            };
            if a > b {
                let detail = format!("{low_words} {a} is greater than {high_words} {b}");
                let value = limit.get(shown).key(name).value.clone();
                errors.push(limit.get(blamed).key(name).invalid_as(value, detail));
            }
        }
    }
    for (_, ratio) in limit.get("maxLimitRequestRatio").entries() {
        if let Some(amount) = rules::amount(&ratio).filter(|amount| amount.milli() < 1000) {
            errors.push(ratio.invalid(format!("ratio {amount} is less than 1")));
        }
    }
}
