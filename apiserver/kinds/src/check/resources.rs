//! Names and amounts of resources: of containers, quotas and limit ranges.

use super::{
    field::{Errors, Field},
    rules,
};
use freehold_machinery::{names, quantity::Quantity};
use std::collections::BTreeSet;

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

/// Whether it names a resource of Kubernetes.
pub(super) fn is_native(resource: &str) -> bool {
    !resource.contains('/') || resource.contains("kubernetes.io/")
}

/// Whether it names a resource of somebody's own, as devices are.
pub(super) fn is_extended(resource: &str) -> bool {
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

/// Whether a resource without a domain is one that Kubernetes knows.
fn is_standard(name: &str) -> bool {
    is_of_quotas(name) || name == "storage" || name.starts_with(HUGE_PAGES)
}

/// The form of a resource's name, then whether it is one of the group's own.
fn resource_name(field: &Field<'_>, name: &str, standard: bool, whose: &str, errors: &mut Errors) {
    general_name(field, name, errors);
    if !name.contains('/') && !standard {
        errors.push(field.invalid_as(name, format!("must be a standard resource for {whose}")));
    } else if name.contains('/') && !is_native(name) && !is_extended(name) && whose == "containers" {
        errors.push(field.invalid_as(name, "doesn't follow extended resource name standard"));
    }
}

fn general_name(field: &Field<'_>, name: &str, errors: &mut Errors) {
    let wrong = names::qualified_name(name);
    if wrong.is_empty() && !name.contains('/') && !is_standard(name) {
        errors.push(field.invalid_as(name, "must be a standard resource type or fully qualified"));
    }
    errors.extend(wrong.into_iter().map(|why| field.invalid_as(name, why)));
}

/// Resources that a pod as a whole may ask for.
const OF_PODS: [&str; 2] = ["cpu", "memory"];

fn pod_resource_name(field: &Field<'_>, name: &str, errors: &mut Errors) {
    let before = errors.len();
    general_name(field, name, errors);
    if errors.len() == before && !OF_PODS.contains(&name) && !name.starts_with(HUGE_PAGES) {
        errors.push(field.not_supported_as(name, &["cpu", HUGE_PAGES, "memory"]));
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

/// The name of a resource of containers.
pub(super) fn container_resource(field: &Field<'_>, name: &str, errors: &mut Errors) {
    resource_name(field, name, is_of_containers(name), "containers", errors);
}

/// Requests, limits and claims of a container.
pub(super) fn container_resources(spec: &Field<'_>, resources: &Field<'_>, errors: &mut Errors) {
    amounts(resources, container_resource, errors);
    claims(spec, &resources.get("claims"), errors);
}

/// Requests and limits of a pod as a whole.
pub(super) fn pod_resources(spec: &Field<'_>, errors: &mut Errors) {
    let resources = spec.get("resources");
    if !resources.is_set() {
        return;
    }
    if spec.get("os.name").text() == "windows" {
        return errors.push(resources.forbidden("may not be set for a windows pod"));
    }
    if resources.get("claims").is_set() {
        errors.push(resources.get("claims").forbidden("claims may not be set for Resources at pod-level"));
    }
    amounts(&resources, pod_resource_name, errors);
    for (name, request) in resources.get("requests").entries() {
        let Some((given, all)) = rules::amount(&request).zip(of_all_containers(spec, name)) else { continue };
        if all > given {
            let detail = format!("must be greater than or equal to aggregate container requests of {all}");
            errors.push(request.invalid_as(given.to_string(), detail));
        }
    }
    for (index, container) in spec.get("containers").items().enumerate() {
        for (name, limit) in container.get("resources.limits").entries() {
            let most = rules::amount(&resources.get("limits").key(name));
            let Some((limit, most)) = rules::amount(&limit).zip(most) else { continue };
            if limit > most {
                let at = format!("{}.containers[{index}][{name}].limits", resources.path());
                let detail = format!("must be less than or equal to pod limits of {most}");
                errors.push(container.named(&at).invalid_as(limit.to_string(), detail));
            }
        }
    }
}

/// What a pod takes besides its containers.
pub(super) fn overhead(overhead: &Field<'_>, errors: &mut Errors) {
    for (name, amount) in overhead.entries() {
        resource_name(&amount, name, is_of_containers(name), "containers", errors);
        rules::resource_amount(&amount, is_whole(name), errors);
    }
}

/// What containers and sidecars request together.
fn of_all_containers(spec: &Field<'_>, name: &str) -> Option<Quantity> {
    let request = |container: Field<'_>| rules::amount(&container.get("resources.requests").key(name));
    let sidecars = spec.get("initContainers").items().filter(|c| c.get("restartPolicy").text() == "Always");
    let all = spec.get("containers").items().chain(sidecars).filter_map(request);
    all.reduce(|sum, next| sum.plus(&next))
}

fn amounts(resources: &Field<'_>, name_of: impl Fn(&Field<'_>, &str, &mut Errors), errors: &mut Errors) {
    let (limits, requests) = (resources.get("limits"), resources.get("requests"));
    for (name, limit) in limits.entries() {
        name_of(&limit, name, errors);
        rules::resource_amount(&limit, is_whole(name), errors);
        whole_pages(name, &limit, errors);
    }
    for (name, request) in requests.entries() {
        name_of(&request, name, errors);
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
        whole_pages(name, &request, errors);
    }
    let named = |names: &dyn Fn(&str) -> bool| {
        limits.entries().chain(requests.entries()).any(|(name, _)| names(name))
    };
    if named(&|name| name.starts_with(HUGE_PAGES)) && !named(&|name| name == "cpu" || name == "memory") {
        errors.push(resources.forbidden("HugePages require cpu or memory"));
    }
}

/// Memory in huge pages comes in pages.
fn whole_pages(name: &str, field: &Field<'_>, errors: &mut Errors) {
    let Some(page) = name.strip_prefix(HUGE_PAGES).and_then(|size| size.parse::<Quantity>().ok()) else {
        return;
    };
    let Some(amount) = rules::amount(field) else { return };
    if page.milli() > 0 && amount.milli() % page.milli() != 0 {
        let detail = format!("{amount} is not positive integer multiple of {name}");
        errors.push(field.invalid_as(amount.to_string(), detail));
    }
}

/// The devices that a container takes of its pod's.
fn claims(spec: &Field<'_>, claims: &Field<'_>, errors: &mut Errors) {
    let of_pod: BTreeSet<&str> = spec
        .get("resourceClaims")
        .items()
        .map(|claim| claim.get("name").text())
        .filter(|n| !n.is_empty())
        .collect();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for claim in claims.items() {
        let (name, request) = (claim.get("name").text(), claim.get("request"));
        if name.is_empty() {
            errors.push(claim.required(""));
            continue;
        }
        if seen.contains(name) {
            errors.push(claim.duplicate_as(name));
        } else {
            let mut key = name.to_owned();
            if !request.is_empty() {
                rules::name(&request, names::dns1123_label, errors);
                key = format!("{name}/{}", request.text());
            }
            let part = |other: &&String| other.split_once('/').is_some_and(|(whole, _)| whole == name);
            if seen.contains(&key) {
                errors.push(claim.duplicate_as(key.as_str()));
            } else if request.is_empty() {
                errors.extend(seen.iter().filter(part).map(|_| claim.duplicate_as(name)));
            }
            seen.insert(key);
        }
        if !of_pod.contains(name) {
            let mut error = claim.named(claim.path()).not_found();
            error.value = Some(name.into());
            let list: Vec<&str> = of_pod.iter().copied().collect();
            let rest =
                if list.is_empty() { " which is empty".into() } else { format!(": {}", list.join(", ")) };
            error.detail = format!("must be one of the names in pod.spec.resourceClaims{rest}");
            errors.push(error);
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
    let spec = object.get("spec");
    scopes(&spec, errors);
    let selector = spec.get("scopeSelector.matchExpressions");
    selector.items().for_each(|requirement| scope_requirement(&requirement.named(selector.path()), errors));
    let Some(old) = old else { return };
    rules::immutable(&spec.get("scopes"), &old["spec"]["scopes"], errors);
}

/// The status of a ResourceQuota.
pub(super) fn quota_status(object: &Field<'_>, _: &freehold_machinery::Value, errors: &mut Errors) {
    for (name, amount) in ["status.hard", "status.used"]
        .into_iter()
        .flat_map(|map| object.get(map).entries().collect::<Vec<_>>())
    {
        resource_name(&amount, name, is_of_quotas(name), "quota", errors);
        rules::resource_amount(&amount, is_whole(name), errors);
    }
}

/// Scopes that count pods of a sort, of which only some resources are counted.
const OF_PODS_ALONE: [&str; 1] = ["BestEffort"];

fn applies(scope: &str, resource: &str) -> bool {
    let of_pods = resource == "pods"
        || COMPUTE.contains(&resource)
        || resource.starts_with("requests.")
        || resource.starts_with("limits.");
    if OF_PODS_ALONE.contains(&scope) { resource == "pods" } else { of_pods }
}

fn scopes(spec: &Field<'_>, errors: &mut Errors) {
    let scopes = spec.get("scopes");
    for scope in scopes.texts() {
        if !SCOPES.contains(&scope) {
            errors.push(scopes.invalid("unsupported scope"));
            continue;
        }
        let misses = |resource: &str| is_of_quotas(resource) && !applies(scope, resource);
        for _ in spec.get("hard").entries().filter(|(resource, _)| misses(resource)) {
            errors.push(scopes.invalid("unsupported scope applied to resource"));
        }
    }
    for (one, other) in [("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")] {
        if [one, other].iter().all(|scope| scopes.texts().any(|given| given == *scope)) {
            errors.push(scopes.invalid("conflicting scopes"));
        }
    }
}

/// A requirement of a quota's scopes. Errors do not say which.
fn scope_requirement(requirement: &Field<'_>, errors: &mut Errors) {
    let [scope, operator, values] = ["scopeName", "operator", "values"].map(|field| requirement.get(field));
    if !SCOPES.contains(&scope.text()) {
        errors.push(scope.invalid_as(scope.text(), "unsupported scope"));
    }
    let exists_only =
        SCOPES.contains(&scope.text()) && !["PriorityClass", "VolumeAttributesClass"].contains(&scope.text());
    if exists_only && operator.text() != "Exists" {
        let detail = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
        errors.push(operator.invalid_as(operator.text(), detail));
    }
    match operator.text() {
        "In" | "NotIn" if values.is_empty() => {
            let detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
            errors.push(values.required(detail));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
            errors.push(values.invalid(detail));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => errors.push(operator.invalid_as(other, "not a valid selector operator")),
    }
}

/// A LimitRange.
pub(super) fn limit_range(object: &Field<'_>, _: Option<&freehold_machinery::Value>, errors: &mut Errors) {
    let mut kinds = BTreeSet::new();
    for limit in object.get("spec.limits").items() {
        let kind = limit.get("type");
        let wrong = names::qualified_name(kind.text());
        let known = ["Container", "Pod", "PersistentVolumeClaim"].contains(&kind.text());
        if wrong.is_empty() && !known && !kind.text().contains('/') {
            let why = "must be a standard limit type or fully qualified";
            errors.push(kind.invalid_as(kind.text(), why));
        }
        errors.extend(wrong.into_iter().map(|why| kind.invalid_as(kind.text(), why)));
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
        for part in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
            for (name, amount) in limit.get(part).entries() {
                match kind.text() {
                    "Container" | "Pod" => {
                        resource_name(&amount, name, is_of_containers(name), "containers", errors);
                    }
                    _ => general_name(&amount, name, errors),
                }
            }
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
    for (name, ratio) in limit.get("maxLimitRequestRatio").entries() {
        let Some(amount) = rules::amount(&ratio) else { continue };
        if amount.milli() < 1000 {
            errors.push(ratio.invalid(format!("ratio {amount} is less than 1")));
        }
        let ends = ["max", "min"].map(|part| rules::amount(&limit.get(part).key(name)));
        if let [Some(most), Some(least)] = ends
            && least.milli() != 0
        {
            let widest = most.as_f64() / least.as_f64();
            if amount.as_f64() > widest {
                errors.push(ratio.invalid(format!("ratio {amount} is greater than max/min = {widest:.6}")));
            }
        }
    }
}
