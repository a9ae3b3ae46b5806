//! Services and the addresses behind them.

use super::{
    field::{Errors, Field},
    rules,
};
use freehold_machinery::{Value, names};
use serde_json::json;
use std::{collections::BTreeSet, net::IpAddr};

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const POLICIES: [&str; 2] = ["Cluster", "Local"];
/// The longest that a client sticks to an endpoint, in seconds: a day.
const MAX_AFFINITY: i64 = 86_400;
const MAX_ENDPOINTS: usize = 1000;
const MAX_ADDRESSES: usize = 100;
const MAX_PORTS: usize = 20_000;

/// A Service.
pub(super) fn service(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    let spec = object.get("spec");
    let (kind, ports) = (spec.get("type"), spec.get("ports"));
    let headless = spec.get("clusterIP").text() == "None";
    if ports.is_empty() && !headless && kind.text() != "ExternalName" {
        errors.push(ports.required(""));
    }
    by_type(&spec, headless, errors);
    service_ports(&ports, errors);
    rules::labels(&spec.get("selector"), errors);
    affinity(&spec, errors);
    addresses(&spec, old, errors);
    rules::one_of(&kind, &TYPES, errors);
    repeated_ports(&spec, errors);
    load_balancer(&spec, old, errors);
    policies(&spec, errors);
}

fn by_type(spec: &Field<'_>, headless: bool, errors: &mut Errors) {
    match spec.get("type").text() {
        kind @ ("LoadBalancer" | "NodePort") if headless => {
            let detail = format!("may not be set to 'None' for {kind} services");
            errors.push(spec.get("clusterIPs[0]").invalid_as("None", detail));
        }
        "ExternalName" => {
            let name = spec.get("externalName");
            let bare = name.text().strip_suffix('.').unwrap_or(name.text());
            if bare.is_empty() {
                errors.push(name.required(""));
            } else {
                let wrong = names::dns1123_subdomain(bare);
                errors.extend(wrong.into_iter().map(|why| name.invalid_as(bare, why)));
            }
        }
        _ => {}
    }
}

fn service_ports(ports: &Field<'_>, errors: &mut Errors) {
    let mut names = BTreeSet::new();
    for port in ports.items() {
        let name = port.get("name");
        if !name.is_empty() {
            rules::name(&name, names::dns1123_label, errors);
            if !names.insert(name.text()) {
                errors.push(name.duplicate());
            }
        } else if ports.len() > 1 {
            errors.push(name.required(""));
        }
        rules::port_number(&port.get("port"), errors);
        rules::one_of(&port.get("protocol"), &rules::PROTOCOLS, errors);
        rules::port(&port.get("targetPort"), errors);
        let application = port.get("appProtocol");
        if application.is_set() {
            rules::name(&application, names::qualified_name, errors);
        }
    }
}

fn affinity(spec: &Field<'_>, errors: &mut Errors) {
    rules::one_of(&spec.get("sessionAffinity"), &["ClientIP", "None"], errors);
    let seconds = spec.get("sessionAffinityConfig.clientIP.timeoutSeconds");
    if seconds.int().is_some_and(|n| n <= 0 || n > MAX_AFFINITY) {
        errors.push(seconds.invalid(format!("must be greater than 0 and less than {MAX_AFFINITY}")));
    }
}

fn addresses(spec: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    let address = spec.get("clusterIP");
    let before = old.and_then(|old| old["spec"]["clusterIP"].as_str()).unwrap_or_default();
    if !before.is_empty() && address.text() != before && spec.get("type").text() != "ExternalName" {
        errors.push(spec.get("clusterIPs[0]").invalid_as(address.text(), "may not change once set"));
    }
    if !matches!(address.text(), "" | "None") {
        rules::address(&address.named("spec.clusterIPs[0]"), errors);
    }
    for external in spec.get("externalIPs").items() {
        if let Some(ip) = rules::address(&external, errors) {
            rules::endpoint_address(&external, ip, errors);
        }
    }
}

fn repeated_ports(spec: &Field<'_>, errors: &mut Errors) {
    let (mut ports, mut node_ports) = (BTreeSet::new(), BTreeSet::new());
    for port in spec.get("ports").items() {
        let protocol = port.get("protocol").text();
        let (number, node) = (port.get("port"), port.get("nodePort"));
        let node_port = node.int().unwrap_or(0);
        if node_port != 0 && spec.get("type").text() == "ClusterIP" {
            errors.push(node.forbidden("may not be used when `type` is 'ClusterIP'"));
        }
        if node_port != 0 && !node_ports.insert((protocol, node_port)) {
            errors.push(node.duplicate());
        }
        if !ports.insert((protocol, number.int())) {
            let shown = json!({"protocol": protocol, "port": number.value, "targetPort": 0});
            errors.push(port.duplicate_as(shown));
        }
    }
}

fn load_balancer(spec: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    let balanced = spec.get("type").text() == "LoadBalancer";
    let ranges = spec.get("loadBalancerSourceRanges");
    let named = ranges.named("spec.LoadBalancerSourceRanges");
    if !ranges.is_empty() && !balanced {
        errors.push(named.forbidden("may only be used when `type` is 'LoadBalancer'"));
    }
    for range in named.items() {
        rules::network(&range, errors);
    }
    let class = spec.get("loadBalancerClass");
    for field in [&spec.get("allocateLoadBalancerNodePorts"), &class] {
        if field.is_set() && !balanced {
            errors.push(field.forbidden("may only be used when `type` is 'LoadBalancer'"));
        }
    }
    if let Some(old) = old.filter(|old| balanced && old["spec"]["type"] == "LoadBalancer")
        && class.value != &old["spec"]["loadBalancerClass"]
    {
        errors.push(class.invalid("may not change once set"));
    }
    if class.is_set() {
        rules::name(&class, names::qualified_name, errors);
    }
}

fn policies(spec: &Field<'_>, errors: &mut Errors) {
    let kind = spec.get("type").text();
    let external = spec.get("externalTrafficPolicy");
    let reachable = matches!(kind, "LoadBalancer" | "NodePort")
        || (kind == "ClusterIP" && !spec.get("externalIPs").is_empty());
    if reachable {
        rules::one_of(&external, &POLICIES, errors);
    } else if !external.is_empty() {
        errors.push(external.invalid("may only be set for externally-accessible services"));
    }
    let checked = kind == "LoadBalancer" && external.text() == "Local";
    let health = spec.get("healthCheckNodePort");
    match (checked, health.int().unwrap_or(0)) {
        (true, 0) => errors.push(health.required("")),
        (true, _) => rules::port_number(&health, errors),
        (false, 0) => {}
        (false, _) => {
            errors.push(health.invalid(
                "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
            ))
        }
    }
    let internal = spec.get("internalTrafficPolicy");
    if kind == "ExternalName" && internal.is_set() {
        errors.push(internal.forbidden("may not be set for ExternalName services"));
    } else {
        rules::optional_one_of(&internal, &POLICIES, errors);
    }
    let distribution = spec.get("trafficDistribution");
    rules::optional_one_of(&distribution, &["PreferClose", "PreferSameNode", "PreferSameZone"], errors);
}

/// Endpoints.
pub(super) fn endpoints(object: &Field<'_>, _: Option<&Value>, errors: &mut Errors) {
    for subset in object.get("subsets").items() {
        let (ready, waiting) = (subset.get("addresses"), subset.get("notReadyAddresses"));
        if ready.is_empty() && waiting.is_empty() {
            errors.push(subset.required("must specify `addresses` or `notReadyAddresses`"));
        }
        for address in ready.items().chain(waiting.items()) {
            reachable(&address.get("ip"), errors);
            rules::optional_name(&address.get("hostname"), names::dns1123_label, errors);
            rules::optional_name(&address.get("nodeName"), names::dns1123_subdomain, errors);
        }
        let ports = subset.get("ports");
        for port in ports.items() {
            let name = port.get("name");
            if ports.len() > 1 && name.is_empty() {
                errors.push(name.required(""));
            }
            rules::optional_name(&name, names::dns1123_label, errors);
            rules::port_number(&port.get("port"), errors);
            rules::one_of(&port.get("protocol"), &rules::PROTOCOLS, errors);
        }
    }
}

fn reachable(address: &Field<'_>, errors: &mut Errors) -> Option<IpAddr> {
    let ip = rules::address(address, errors)?;
    rules::endpoint_address(address, ip, errors);
    Some(ip)
}

/// An EndpointSlice.
pub(super) fn endpoint_slice(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    let kind = object.get("addressType");
    rules::one_of(&kind, &["FQDN", "IPv4", "IPv6"], errors);
    let (ports, endpoints) = (object.get("ports"), object.get("endpoints"));
    if ports.len() > MAX_PORTS {
        errors.push(ports.too_many(MAX_PORTS));
    }
    let mut names = BTreeSet::new();
    for port in ports.items() {
        let name = port.get("name");
        rules::optional_name(&name, names::dns1123_label, errors);
        if !names.insert(name.text()) {
            errors.push(name.duplicate_as(name.text()));
        }
        rules::one_of(&port.get("protocol"), &rules::PROTOCOLS, errors);
    }
    if endpoints.len() > MAX_ENDPOINTS {
        errors.push(endpoints.too_many(MAX_ENDPOINTS));
    } else if old.is_none_or(|old| &old["endpoints"] != endpoints.value) {
        endpoints.items().for_each(|endpoint| slice_endpoint(&endpoint, kind.text(), errors));
    }
    if let Some(old) = old {
        rules::immutable(&kind, &old["addressType"], errors);
    }
}

fn slice_endpoint(endpoint: &Field<'_>, kind: &str, errors: &mut Errors) {
    let addresses = endpoint.get("addresses");
    if addresses.is_empty() {
        errors.push(addresses.required("must contain at least 1 address"));
    } else if addresses.len() > MAX_ADDRESSES {
        errors.push(addresses.too_many(MAX_ADDRESSES));
    }
    for address in addresses.items() {
        if kind == "FQDN" {
            rules::name(&address, names::dns1123_subdomain, errors);
            continue;
        }
        let wanted = |ip: &IpAddr| ip.is_ipv4() == (kind == "IPv4");
        if reachable(&address, errors).is_some_and(|ip| !wanted(&ip)) {
            errors.push(addresses.invalid_as(address.text(), format!("must be an {kind} address")));
        }
    }
    rules::optional_name(&endpoint.get("nodeName"), names::dns1123_subdomain, errors);
    rules::optional_name(&endpoint.get("hostname"), names::dns1123_label, errors);
}
