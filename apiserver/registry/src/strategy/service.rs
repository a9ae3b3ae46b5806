//! Services: what an update keeps of their addresses and ports.

use freehold_apiserver_operation::Operation;
use freehold_machinery::{Map, Value};

pub(crate) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["spec"].get(field).and_then(Value::as_str).unwrap_or("")
}

/// Whether a service has a field.
type Has = fn(&Value) -> bool;

/// Fields that only services of some types have: each with what it depends on.
const DEPENDENT: [(&str, Has); 5] = [
    ("healthCheckNodePort", is_checked),
    ("allocateLoadBalancerNodePorts", is_balanced),
    ("loadBalancerClass", is_balanced),
    ("externalTrafficPolicy", is_external),
    ("internalTrafficPolicy", |service| text(service, "type") != "ExternalName"),
];

pub(crate) fn is_balanced(service: &Value) -> bool {
    text(service, "type") == "LoadBalancer"
}

fn is_external(service: &Value) -> bool {
    let named = service["spec"]["externalIPs"].as_array().is_some_and(|ips| !ips.is_empty());
    needs_node_ports(service) || is_balanced(service) || (named && text(service, "type") == "ClusterIP")
}

pub(crate) fn is_checked(service: &Value) -> bool {
    is_balanced(service) && text(service, "externalTrafficPolicy") == "Local"
}

pub(crate) fn needs_node_ports(service: &Value) -> bool {
    let wanted = service["spec"].get("allocateLoadBalancerNodePorts") != Some(&Value::Bool(false));
    text(service, "type") == "NodePort" || (is_balanced(service) && wanted)
}

/// Keeps what the server gave the service, and drops what its new type does not have.
pub(super) fn update(_: &Operation, object: &mut Value, old: &Value) {
    let stays = object["spec"]["type"] == old["spec"]["type"] || text(old, "type") != "ExternalName";
    if object["spec"].get("clusterIP").is_none() && stays && !text(old, "clusterIP").is_empty() {
        object["spec"]["clusterIP"] = old["spec"]["clusterIP"].clone();
    }
    let of_type: Vec<_> =
        DEPENDENT.iter().filter(|(_, has)| has(old) && !has(object)).map(|(field, _)| *field).collect();
    let has_ports = |service: &Value| is_balanced(service) || text(service, "type") == "NodePort";
    let (had, has) = (has_ports(old), has_ports(object));
    if text(old, "type") != "ExternalName" && text(object, "type") == "ExternalName" {
        drop_addresses(object, old);
    }
    let Some(spec) = object["spec"].as_object_mut() else { return };
    for field in of_type {
        if spec.get(field) == old["spec"].get(field) {
            spec.remove(field);
        }
    }
    if had {
        let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
        keep_node_ports(ports.into_iter().flatten(), &old["spec"]["ports"], has);
    }
}

/// A service that becomes a name only has no address any more; one that its client gives it at the same time is refused.
fn drop_addresses(object: &mut Value, old: &Value) {
    let Some(spec) = object["spec"].as_object_mut() else { return };
    let same = |spec: &Map, field: &str| spec.get(field) == old["spec"].get(field);
    if same(spec, "clusterIP") && (same(spec, "clusterIPs") || spec.get("clusterIPs").is_none()) {
        ["clusterIP", "clusterIPs"].iter().for_each(|field| drop(spec.remove(*field)));
    }
    for field in ["ipFamilies", "ipFamilyPolicy"] {
        if same(spec, field) {
            spec.remove(field);
        }
    }
}

/// Ports are the same by name; where they are not wanted any more, those that did not change go.
fn keep_node_ports<'a>(ports: impl Iterator<Item = &'a mut Value>, old: &Value, wanted: bool) {
    let name = |port: &Value| port.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    for port in ports {
        let before = old.as_array().into_iter().flatten().find(|before| name(before) == name(port));
        let given = before.and_then(|before| before.get("nodePort")).filter(|port| port.as_i64() != Some(0));
        let (Some(given), Some(port)) = (given, port.as_object_mut()) else { continue };
        let own = port.get("nodePort").filter(|port| port.as_i64() != Some(0));
        match (wanted, own) {
            (true, None) => drop(port.insert("nodePort".into(), given.clone())),
            (false, Some(own)) if own == given => drop(port.remove("nodePort")),
            _ => {}
        }
    }
}
