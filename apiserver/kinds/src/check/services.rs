//! Services and the addresses behind them.

use super::{
    field::{Errors, Field},
    rows::{Row, Rule, check},
    rules,
};
use freehold_machinery::{Value, names, status::FieldErrorKind};
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
    fixed_address(&spec, old, errors);
    if ports.is_empty() && !headless && kind.text() != "ExternalName" {
        errors.push(ports.required(""));
    }
    by_type(&spec, headless, errors);
    service_ports(&ports, errors);
    rules::labels(&spec.get("selector"), errors);
    affinity(&spec, errors);
    families(&spec, old, errors);
    external_addresses(&spec, errors);
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
            for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"].map(|field| spec.get(field)) {
                if !field.is_empty() {
                    errors.push(field.forbidden("may not be set for ExternalName services"));
                }
            }
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

const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];
const FAMILY_POLICIES: [&str; 3] = ["PreferDualStack", "RequireDualStack", "SingleStack"];

/// Families of addresses, and the addresses; a service without one of its own has none.
pub(super) fn families(spec: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    if spec.get("type").text() == "ExternalName" {
        return;
    }
    let (one, all, list) = (spec.get("clusterIP"), spec.get("clusterIPs"), spec.get("ipFamilies"));
    match (one.is_empty(), all.texts().next()) {
        (false, None) => errors.push(all.required("")),
        (false, Some(first)) if first != one.text() => {
            errors.push(all.invalid("first value must match `clusterIP`"));
        }
        (true, Some(_)) => errors.push(all.invalid("must be empty when `clusterIP` is not specified")),
        _ => {}
    }
    let mut seen = BTreeSet::new();
    for family in list.items() {
        if !FAMILIES.contains(&family.text()) {
            errors.push(family.not_supported(&FAMILIES));
        }
        if !seen.insert(family.text()) {
            errors.push(family.duplicate());
        }
    }
    rules::optional_one_of(&spec.get("ipFamilyPolicy"), &FAMILY_POLICIES, errors);
    if !well_formed(&all, old, errors) {
        return;
    }
    let sixes = all.texts().filter(|ip| ip.contains(':')).count();
    if all.len() > 1 && (sixes != 1 || all.len() != 2) {
        errors.push(all.invalid("may specify no more than one IP for each IP family"));
    }
    if one.text() == "None" {
        return;
    }
    for (index, (ip, family)) in all.items().zip(list.texts()).enumerate() {
        let six = ip.text().contains(':');
        if FAMILIES.contains(&family) && six != (family == "IPv6") {
            let detail = format!("expected an {family} value as indicated by `ipFamilies[{index}]`");
            errors.push(ip.invalid(detail));
        }
    }
}

/// Whether each is an address, or `None` stands alone.
fn well_formed(all: &Field<'_>, old: Option<&Value>, errors: &mut Errors) -> bool {
    let before = errors.len();
    let known = |ip: &str| {
        old.and_then(|old| old["spec"]["clusterIPs"].as_array()).into_iter().flatten().any(|had| had == ip)
    };
    for (index, ip) in all.items().enumerate() {
        if index == 0 && ip.text() == "None" {
            if all.len() > 1 {
                errors.push(all.invalid("'None' must be the first and only value"));
            }
        } else if !known(ip.text()) {
            rules::address(&ip, errors);
        }
    }
    let good = errors.len() == before;
    if all.len() > 2 {
        errors.push(all.invalid("may only hold up to 2 values"));
    }
    good
}

fn affinity(spec: &Field<'_>, errors: &mut Errors) {
    rules::one_of(&spec.get("sessionAffinity"), &["ClientIP", "None"], errors);
    let seconds = spec.get("sessionAffinityConfig.clientIP.timeoutSeconds");
    if seconds.int().is_some_and(|n| n <= 0 || n > MAX_AFFINITY) {
        errors.push(seconds.invalid(format!("must be greater than 0 and less than {MAX_AFFINITY}")));
    }
}

/// An address stays as it is while the service has one.
fn fixed_address(spec: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    let address = spec.get("clusterIP");
    let before = old.and_then(|old| old["spec"]["clusterIP"].as_str()).unwrap_or_default();
    if !before.is_empty() && address.text() != before && spec.get("type").text() != "ExternalName" {
        let shown = spec.get("clusterIPs").value.clone();
        errors.push(spec.get("clusterIPs[0]").invalid_as(shown, "may not change once set"));
    }
}

fn external_addresses(spec: &Field<'_>, errors: &mut Errors) {
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
            let protocol = if protocol.is_empty() { json!("") } else { json!(protocol) };
            let shown = format!(
                "{{\"Name\":\"\",\"Protocol\":{protocol},\"AppProtocol\":null,\"Port\":{},\"TargetPort\":0,\"NodePort\":0}}",
                number.number()
            );
            let mut error = port.invalid_bare(&shown);
            error.kind = FieldErrorKind::Duplicate;
            errors.push(error);
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
    if internal.is_set() && !POLICIES.contains(&internal.text()) {
        errors.push(internal.not_supported(&POLICIES));
    }
    let distribution = spec.get("trafficDistribution");
    rules::optional_one_of(&distribution, &["PreferClose", "PreferSameZone", "PreferSameNode"], errors);
}

/// What a balancer has given a service or an ingress.
pub(super) fn status(object: &Field<'_>, _: &Value, errors: &mut Errors) {
    for ingress in object.get("status.loadBalancer.ingress").items() {
        let [ip, mode, host] = ["ip", "ipMode", "hostname"].map(|field| ingress.get(field));
        if !ip.is_empty() {
            rules::address(&ip, errors);
        } else if mode.is_set() {
            errors.push(mode.forbidden("may not be specified when `ip` is not set"));
        }
        rules::optional_one_of(&mode, &["Proxy", "VIP"], errors);
        if !host.is_empty() {
            rules::name(&host, names::dns1123_subdomain, errors);
            if rules::is_address(host.text()) {
                errors.push(host.invalid("must be a DNS name, not an IP address"));
            }
        }
    }
}

/// Endpoints.
pub(super) fn endpoints(object: &Field<'_>, _: Option<&Value>, errors: &mut Errors) {
    for subset in object.get("subsets").items() {
        let (ready, waiting) = (subset.get("addresses"), subset.get("notReadyAddresses"));
        if ready.is_empty() && waiting.is_empty() {
            errors.push(subset.required("must specify `addresses` or `notReadyAddresses`"));
        }
        for address in ready.items().chain(waiting.items()) {
            let ip = address.get("ip");
            if rules::is_address(ip.text()) {
                reachable(&ip, errors);
            } else {
                // Kubernetes looks twice.
                rules::address(&ip, errors);
                errors.push(ip.invalid_as(ip.text(), "must be a valid IP address"));
            }
            check(&address, HOST, errors);
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
            check(&port, &[("appProtocol", Rule::Name(names::qualified_name))], errors);
        }
    }
}

const HOST: &[Row] =
    &[("hostname", Rule::Name(names::dns1123_label)), ("nodeName", Rule::Name(names::dns1123_subdomain))];

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
        check(
            &port,
            &[
                ("protocol", Rule::AlwaysOneOf(&rules::PROTOCOLS)),
                ("appProtocol", Rule::Name(names::qualified_name)),
            ],
            errors,
        );
    }
    if endpoints.len() > MAX_ENDPOINTS {
        errors.push(endpoints.too_many(MAX_ENDPOINTS));
    } else if old.is_none_or(|old| &old["endpoints"] != endpoints.value) {
        endpoints.items().for_each(|endpoint| slice_endpoint(&endpoint, kind.text(), errors));
    }
    if old.is_some_and(|old| kind.value != &old["addressType"]) {
        errors.push(kind.invalid_as(kind.text(), "field is immutable"));
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
        if !["IPv4", "IPv6"].contains(&kind) {
            continue;
        }
        let wanted = |ip: &IpAddr| ip.is_ipv4() == (kind == "IPv4");
        if let Ok(ip) = address.text().parse::<IpAddr>()
            && ip.to_string() != address.text()
        {
            let canonical = ip.to_string();
            errors.push(address.invalid(format!("must be in canonical form ({canonical:?})")));
        }
        if reachable(&address, errors).is_some_and(|ip| !wanted(&ip)) {
            errors.push(addresses.invalid_as(address.text(), format!("must be an {kind} address")));
        }
    }
    check(endpoint, &[("nodeName", Rule::Name(names::dns1123_subdomain))], errors);
    check(endpoint, &[("hostname", Rule::Name(names::dns1123_label))], errors);
    hints(&endpoint.get("hints"), errors);
}

/// For whom an endpoint is.
fn hints(hints: &Field<'_>, errors: &mut Errors) {
    const MOST: usize = 8;
    let rows: [(&str, rules::NameCheck); 2] =
        [("forZones", names::label_value), ("forNodes", names::dns1123_subdomain)];
    for (list, form) in rows {
        let list = hints.get(list);
        if list.len() > MOST {
            errors.push(list.too_many(MOST));
            continue;
        }
        let mut seen = BTreeSet::new();
        for name in list.items().map(|hint| hint.get("name")) {
            if !seen.insert(name.text()) {
                errors.push(name.duplicate());
            }
            rules::name(&name, form, errors);
        }
    }
}
