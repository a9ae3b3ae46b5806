//! Rules of what objects say: classes, images, Services, node selectors and tolerations.

use super::{Operation, Request, is, name_of};
use crate::rules::{self, CLASSES, ClassRule};
use crate::tenant::Chain;
use freehold_machinery::Value;
use serde_json::json;

/// The annotation of a claim with its StorageClass.
pub const STORAGE_CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
/// The annotation of an Ingress with its class.
pub const INGRESS_CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

/// Where an object names a class.
struct ClassField {
    group: &'static str,
    resource: &'static str,
    pointer: &'static str,
    rule: usize,
    /// The annotation that names the class where the field does not, and counts more: controllers still follow it.
    annotation: Option<&'static str>,
}

/// Fields with classes, by their place in [`CLASSES`].
const FIELDS: [ClassField; 5] = [
    ClassField {
        group: "",
        resource: "persistentvolumeclaims",
        pointer: "/spec/storageClassName",
        rule: 0,
        annotation: Some(STORAGE_CLASS_ANNOTATION),
    },
    ClassField {
        group: "networking.k8s.io",
        resource: "ingresses",
        pointer: "/spec/ingressClassName",
        rule: 1,
        annotation: Some(INGRESS_CLASS_ANNOTATION),
    },
    ClassField {
        group: "gateway.networking.k8s.io",
        resource: "gateways",
        pointer: "/spec/gatewayClassName",
        rule: 2,
        annotation: None,
    },
    ClassField { group: "", resource: "pods", pointer: "/spec/priorityClassName", rule: 3, annotation: None },
    ClassField { group: "", resource: "pods", pointer: "/spec/runtimeClassName", rule: 4, annotation: None },
];

pub(super) fn decide(request: &Request<'_>, chain: &Chain) -> Result<Vec<Value>, String> {
    if !request.subresource.is_empty() && request.subresource != "ephemeralcontainers" {
        return Ok(Vec::new());
    }
    let mut patch = Vec::new();
    for field in FIELDS.iter().filter(|field| is(request, field.group, field.resource)) {
        patch.extend(class(request, chain, field)?);
    }
    if is(request, "", "pods") {
        images(request, chain)?;
        patch.extend(node_selector(request, chain)?);
        tolerations(request, chain)?;
    }
    if is(request, "", "services") {
        service(request, chain)?;
    }
    Ok(patch)
}

fn text<'a>(object: &'a Value, pointer: &str) -> Option<&'a str> {
    object.pointer(pointer).and_then(Value::as_str)
}

fn class(request: &Request<'_>, chain: &Chain, field: &ClassField) -> Result<Vec<Value>, String> {
    let rule: &ClassRule = &CLASSES[field.rule];
    let named = named_classes(request.object, field);
    let old = named_classes(request.old, field);
    if named.is_empty() {
        // An empty name is an answer: a claim for a volume without class.
        let open = request.operation == Operation::Create && request.object.pointer(field.pointer).is_none();
        let default = rules::default_class(chain, rule).filter(|_| open);
        return Ok(default.map(|class| defaulted(request, field, &class)).unwrap_or_default());
    }
    let Some(allowed) = rules::allowed_classes(chain, rule) else { return Ok(Vec::new()) };
    let is_allowed = |name: &&str| old.contains(name) || allowed.iter().any(|class| class == name);
    match named.iter().find(|name| !is_allowed(name)) {
        Some(name) => Err(format!(
            "tenant {:?}: {} {name:?} is not allowed; allowed: {}",
            name_of(chain),
            rule.what,
            listed(&allowed)
        )),
        None => Ok(Vec::new()),
    }
}

/// The classes that an object names, in its field and in the annotation that goes before it.
fn named_classes<'a>(object: &'a Value, field: &ClassField) -> Vec<&'a str> {
    let annotation = field.annotation.and_then(|key| object["metadata"]["annotations"][key].as_str());
    let named = [text(object, field.pointer), annotation];
    named.into_iter().flatten().filter(|name| !name.is_empty()).collect()
}

/// The operations that give an object a class. A Pod's priority was computed for no class before: the server computes it
/// anew where there is none.
fn defaulted(request: &Request<'_>, field: &ClassField, class: &str) -> Vec<Value> {
    let mut operations = vec![json!({"op": "add", "path": field.pointer, "value": class})];
    if field.pointer == "/spec/priorityClassName" {
        let computed = ["/spec/priority", "/spec/preemptionPolicy"];
        let there = computed.iter().filter(|pointer| request.object.pointer(pointer).is_some());
        operations.extend(there.map(|pointer| json!({"op": "remove", "path": pointer})));
    }
    operations
}

fn listed(list: &[String]) -> String {
    if list.is_empty() { "none".to_owned() } else { list.join(", ") }
}

/// Whether an image is of one of the registries.
pub fn image_is_allowed(image: &str, registries: &[String]) -> bool {
    let first = image.split('/').next().unwrap_or_default();
    let has_registry = image.contains('/') && (first.contains(['.', ':']) || first == "localhost");
    let full = match (has_registry, image.contains('/')) {
        (true, _) => image.to_owned(),
        (false, true) => format!("docker.io/{image}"),
        (false, false) => format!("docker.io/library/{image}"),
    };
    registries.iter().any(|registry| {
        full.strip_prefix(registry.trim_end_matches('/')).is_some_and(|rest| rest.starts_with('/'))
    })
}

fn images(request: &Request<'_>, chain: &Chain) -> Result<(), String> {
    let lists: Vec<&Vec<String>> = rules::lists(chain, rules::LISTS[0].1).collect();
    if lists.is_empty() {
        return Ok(());
    }
    let containers = ["containers", "initContainers", "ephemeralContainers"];
    let containers = containers.iter().filter_map(|field| request.object["spec"][field].as_array()).flatten();
    let volumes = request.object["spec"]["volumes"].as_array().into_iter().flatten();
    let images = containers.map(|c| &c["image"]).chain(volumes.map(|v| &v["image"]["reference"]));
    for image in images.filter_map(Value::as_str) {
        if let Some(list) = lists.iter().find(|list| !image_is_allowed(image, list)) {
            let (tenant, allowed) = (name_of(chain), listed(list));
            return Err(format!(
                "tenant {tenant:?}: image {image:?} is not of an allowed registry; allowed: {allowed}"
            ));
        }
    }
    Ok(())
}

fn node_selector(request: &Request<'_>, chain: &Chain) -> Result<Vec<Value>, String> {
    let wanted = rules::node_selector(chain);
    if request.operation != Operation::Create || wanted.is_empty() {
        return Ok(Vec::new());
    }
    let existing = request.object["spec"]["nodeSelector"].as_object();
    let mut merged = existing.cloned().unwrap_or_default();
    for (key, value) in &wanted {
        if let Some(other) =
            merged.insert(key.clone(), value.as_str().into()).filter(|old| old != value.as_str())
        {
            let tenant = name_of(chain);
            return Err(format!(
                "tenant {tenant:?}: node selector {key}={other} is not allowed; it must be {value:?}"
            ));
        }
    }
    if existing == Some(&merged) {
        return Ok(Vec::new());
    }
    Ok(vec![json!({"op": "add", "path": "/spec/nodeSelector", "value": merged})])
}

fn tolerations(request: &Request<'_>, chain: &Chain) -> Result<(), String> {
    let lists: Vec<&Vec<String>> = rules::lists(chain, rules::LISTS[4].1).collect();
    let given = |object: &Value| object["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    let before = given(request.old);
    for toleration in given(request.object).iter().filter(|toleration| !before.contains(toleration)) {
        let key = toleration["key"].as_str().unwrap_or_default();
        // The server itself lets Pods tolerate nodes that are away for a while.
        let own = key.starts_with("node.kubernetes.io/");
        if !own && lists.iter().any(|list| !list.iter().any(|allowed| allowed == key)) {
            let (tenant, key) = (name_of(chain), if key.is_empty() { "of all taints" } else { key });
            return Err(format!("tenant {tenant:?}: toleration {key:?} is not allowed"));
        }
    }
    Ok(())
}

fn service(request: &Request<'_>, chain: &Chain) -> Result<(), String> {
    let tenant = name_of(chain);
    let type_ = text(request.object, "/spec/type").unwrap_or("ClusterIP");
    for list in rules::lists(chain, rules::LISTS[2].1) {
        if !list.iter().any(|allowed| allowed == type_) {
            let allowed = listed(list);
            return Err(format!(
                "tenant {tenant:?}: Service type {type_} is not allowed; allowed: {allowed}"
            ));
        }
    }
    let addresses = request.object["spec"]["externalIPs"].as_array().into_iter().flatten();
    for address in addresses.filter_map(Value::as_str) {
        let outside = |list: &&Vec<String>| !list.iter().any(|range| contains(range, address));
        if let Some(list) = rules::lists(chain, rules::LISTS[3].1).find(outside) {
            let allowed = listed(list);
            return Err(format!(
                "tenant {tenant:?}: external IP {address} is not allowed; allowed: {allowed}"
            ));
        }
    }
    Ok(())
}

/// Whether an address range in CIDR notation, or a single address, contains an address.
fn contains(range: &str, address: &str) -> bool {
    use std::net::IpAddr;
    let Ok(address) = address.parse::<IpAddr>() else { return false };
    let (network, bits) = range.split_once('/').unwrap_or((range, ""));
    let (Ok(network), bits) = (network.parse::<IpAddr>(), bits.parse::<u32>().ok()) else { return false };
    match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            let bits = bits.unwrap_or(32).min(32);
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            network.to_bits() & mask == address.to_bits() & mask
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => {
            let bits = bits.unwrap_or(128).min(128);
            let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            network.to_bits() & mask == address.to_bits() & mask
        }
        _ => false,
    }
}
