//! An object's usage, by the resource names of quotas.

use crate::{
    devices::{self, OF_DEVICE_CLASS, Surroundings},
    json::{items, text},
    resources::{self, Amounts, amounts, of_container, of_pod},
};
use freehold_machinery::{
    GroupResource, Value,
    quantity::{Format, Quantity},
    time,
};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// Amounts by the name that quotas have for them (`requests.cpu`, `count/deployments.apps`).
pub type Usage = BTreeMap<String, Quantity>;

/// Core resources whose objects are counted under their plain name, too.
const PLAIN: [&str; 6] = [
    "configmaps",
    "persistentvolumeclaims",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
];
/// What every container has to state where a quota limits it.
const STATED: [&str; 6] = ["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];
/// Resources that are named with and without `requests.`, and have limits.
const NATIVE: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
/// What names of limits for one class end with, before the resource that is limited.
const OF_STORAGE_CLASS: &str = ".storageclass.storage.k8s.io/";

fn count(n: usize) -> Quantity {
    Quantity::from_units(i64::try_from(n).unwrap_or(i64::MAX), Format::DecimalSi)
}

/// The types, as `resource.group`, whose objects a limit of this name counts; none where there is no such limit.
pub fn counted_types(name: &str) -> impl Iterator<Item = &str> {
    counted_type(name).into_iter().chain(devices::limits_extended(name).then_some(devices::CLAIMS))
}

fn counted_type(name: &str) -> Option<&str> {
    if let Some(resource) = name.strip_prefix("count/") {
        return Some(resource);
    }
    if name.contains(OF_STORAGE_CLASS) || name == "requests.storage" {
        return Some("persistentvolumeclaims");
    }
    if name.ends_with(OF_DEVICE_CLASS) {
        return Some(devices::CLAIMS);
    }
    let of_pods = name == "pods"
        || NATIVE.contains(&name)
        || ["requests.", "limits.", "hugepages-"].iter().any(|start| name.starts_with(start));
    match name {
        "services.loadbalancers" | "services.nodeports" => Some("services"),
        _ if of_pods => Some("pods"),
        plain => PLAIN.contains(&plain).then_some(plain),
    }
}

/// What one object uses. A Pod that has ended, or should have by now, uses nothing but its place in `count/pods`.
pub fn usage(resource: &GroupResource, object: &Value, around: &Surroundings) -> Usage {
    let mut used = Usage::from([(format!("count/{resource}"), count(1))]);
    if !resource.group.is_empty() {
        if devices::are_claimed_by(resource) {
            used.extend(around.devices(object));
        }
        return used;
    }
    if PLAIN.contains(&resource.resource.as_str()) {
        used.insert(resource.resource.clone(), count(1));
    }
    match resource.resource.as_str() {
        "pods" => used.extend(pod(object, around.now)),
        "services" => used.extend(service(object)),
        "persistentvolumeclaims" => used.extend(claim(object)),
        _ => {}
    }
    used
}

/// Whether a Pod has ended, or was told to and has not in the time that it had: nobody may hear of its end.
fn has_ended(pod: &Value, now: Timestamp) -> bool {
    let told = time::parse(text(pod, "/metadata/deletionTimestamp"));
    let grace = pod["metadata"]["deletionGracePeriodSeconds"].as_i64();
    let overdue = told.zip(grace).is_some_and(|(told, grace)| now.duration_since(told).as_secs() > grace);
    overdue || matches!(text(pod, "/status/phase"), "Failed" | "Succeeded")
}

pub(crate) fn pod(pod: &Value, now: Timestamp) -> Usage {
    if has_ended(pod, now) {
        return Usage::new();
    }
    let (mut requests, mut limits) = (of_pod(pod, "requests"), of_pod(pod, "limits"));
    let overhead = amounts(pod.pointer("/spec/overhead"));
    resources::add(&mut requests, &overhead);
    for (name, amount) in &mut limits {
        if let Some(overhead) = overhead.get(name) {
            *amount = amount.plus(overhead);
        }
    }
    let mut used = computed(&requests, &limits);
    used.insert("pods".into(), count(1));
    used
}

/// Requests and limits under the names of quotas.
fn computed(requests: &Amounts, limits: &Amounts) -> Usage {
    let mut used = Usage::new();
    for (name, amount) in requests {
        if NATIVE.contains(&name.as_str()) || name.starts_with("hugepages-") {
            used.insert(name.clone(), *amount);
            used.insert(format!("requests.{name}"), *amount);
        } else if devices::is_extended(name) {
            used.insert(format!("requests.{name}"), *amount);
        }
    }
    let native = limits.iter().filter(|(name, _)| NATIVE.contains(&name.as_str()));
    used.extend(native.map(|(name, amount)| (format!("limits.{name}"), *amount)));
    used
}

fn service(service: &Value) -> Usage {
    let ports = items(service, "/spec/ports").count();
    let balanced = text(service, "/spec/type") == "LoadBalancer";
    let allocates = service["spec"]["allocateLoadBalancerNodePorts"] != false;
    let given =
        items(service, "/spec/ports").filter(|port| port["nodePort"].as_i64().is_some_and(|p| p > 0)).count();
    let node_ports = match text(service, "/spec/type") {
        "NodePort" => ports,
        "LoadBalancer" if allocates => ports,
        "LoadBalancer" => given,
        _ => 0,
    };
    [("services.nodeports", node_ports), ("services.loadbalancers", usize::from(balanced))]
        .map(|(name, n)| (name.to_owned(), count(n)))
        .into()
}

fn claim(claim: &Value) -> Usage {
    let beta = freehold_machinery::meta::annotation(claim, "volume.beta.kubernetes.io/storage-class");
    let class = beta.unwrap_or_else(|| text(claim, "/spec/storageClassName"));
    let asked = amounts(claim.pointer("/spec/resources/requests")).remove("storage");
    let given = amounts(claim.pointer("/status/allocatedResources")).remove("storage");
    let storage = asked.map(|asked| whole(given.filter(|given| *given > asked).unwrap_or(asked)));
    let mut used: Usage = storage.iter().map(|amount| ("requests.storage".to_owned(), *amount)).collect();
    if !class.is_empty() {
        let of_class = |name: &str| format!("{class}{OF_STORAGE_CLASS}{name}");
        used.insert(of_class("persistentvolumeclaims"), count(1));
        used.extend(storage.map(|amount| (of_class("requests.storage"), amount)));
    }
    used
}

/// Whole bytes.
fn whole(amount: Quantity) -> Quantity {
    if amount.is_integer() { amount } else { Quantity::from_units(amount.units(), amount.format()) }
}

/// Whether a quota's limit is about what Pods compute with, though this one does not mention it: it has to.
pub fn is_computed(usage: &Usage, name: &str) -> bool {
    usage.contains_key("pods") && STATED.contains(&name)
}

/// Checks that each container of a Pod states the compute resources that a quota limits. Objects other than Pods
/// pass.
///
/// # Errors
/// Kubernetes' `must specify NAME for: CONTAINERS`, with every missing resource.
pub fn check_stated(resource: &GroupResource, object: &Value, hard: &Amounts) -> Result<(), String> {
    if resource.resource != "pods" || !resource.group.is_empty() {
        return Ok(());
    }
    let whole = computed(
        &amounts(object.pointer("/spec/resources/requests")),
        &amounts(object.pointer("/spec/resources/limits")),
    );
    // What a Pod states for itself as a whole, its containers needn't.
    if !whole.is_empty() {
        return Ok(());
    }
    let required = || hard.keys().filter(|name| STATED.contains(&name.as_str()));
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for container in
        ["/spec/containers", "/spec/initContainers"].into_iter().flat_map(|list| items(object, list))
    {
        let stated = computed(&of_container(container, "requests"), &of_container(container, "limits"));
        for name in required().filter(|name| !stated.contains_key(*name)) {
            missing.entry(name).or_default().insert(text(container, "/name"));
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let words = |(name, containers): (&str, BTreeSet<&str>)| {
        format!("{name} for: {}", containers.into_iter().collect::<Vec<_>>().join(","))
    };
    Err(format!("must specify {}", missing.into_iter().map(words).collect::<Vec<_>>().join("; ")))
}
