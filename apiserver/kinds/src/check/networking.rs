//! Ingresses and network policies.

use super::{
    field::{Errors, Field, same},
    rows::{Row, Rule, check},
    rules,
};
use freehold_machinery::{Value, names};

const PATH_TYPES: [&str; 3] = ["Exact", "ImplementationSpecific", "Prefix"];
const BAD_SEQUENCES: [&str; 5] = ["//", "/./", "/../", "%2f", "%2F"];
const BAD_ENDS: [&str; 2] = ["/..", "/."];
const POLICY_TYPES: [&str; 2] = ["Ingress", "Egress"];

/// An Ingress.
pub(super) fn ingress(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    let spec = object.get("spec");
    let (rules_of, default) = (spec.get("rules"), spec.get("defaultBackend"));
    if rules_of.is_empty() && !default.is_set() {
        let shown = rules_of.value.clone();
        errors.push(spec.invalid_as(shown, "either `defaultBackend` or `rules` must be specified"));
    }
    if default.is_set() {
        backend(&default, errors);
    }
    for rule in rules_of.items() {
        let name = rule.get("host");
        if rules::is_address(name.text()) {
            errors.push(name.invalid("must be a DNS name, not an IP address"));
        }
        host(&name, errors);
        let http = rule.get("http");
        if http.is_set() {
            rules::required(&http.get("paths"), errors);
            http.get("paths").items().for_each(|path| ingress_path(&path, errors));
        }
    }
    for tls in spec.get("tls").items() {
        tls.get("hosts").items().for_each(|name| rules::name(&name, form_of_host(name.text()), errors));
        rules::optional_name(&tls.get("secretName"), names::dns1123_subdomain, errors);
    }
    let class = spec.get("ingressClassName");
    if class.is_set() {
        rules::name(&class, names::dns1123_subdomain, errors);
    }
    // Who says it in both ways on creation says the same.
    let noted = object.get("metadata.annotations").key(CLASS);
    if old.is_none() && noted.is_set() && class.is_set() && noted.text() != class.text() {
        let named = noted.named(&format!("annotations.{CLASS}"));
        errors.push(named.invalid_as(noted.text(), "must match `ingressClassName` when both are specified"));
    }
}

/// How the class of an Ingress was told before it had a field for it.
const CLASS: &str = "kubernetes.io/ingress.class";

fn form_of_host(host: &str) -> rules::NameCheck {
    if host.contains('*') { rules::wildcard_host } else { names::dns1123_subdomain }
}

fn host(host: &Field<'_>, errors: &mut Errors) {
    rules::optional_name(host, form_of_host(host.text()), errors);
}

fn ingress_path(entry: &Field<'_>, errors: &mut Errors) {
    let (kind, path) = (entry.get("pathType"), entry.get("path"));
    if !kind.is_set() {
        return errors.push(kind.required("pathType must be specified"));
    }
    let relative = !path.text().starts_with('/');
    match kind.text() {
        "Exact" | "Prefix" => {
            if relative {
                errors.push(path.invalid_as(path.text(), "must be an absolute path"));
            }
            for bad in BAD_SEQUENCES.iter().filter(|bad| path.text().contains(**bad)) {
                errors.push(path.invalid(format!("must not contain '{bad}'")));
            }
            for bad in BAD_ENDS.iter().filter(|bad| path.text().ends_with(**bad)) {
                errors.push(path.invalid(format!("cannot end with '{bad}'")));
            }
        }
        "ImplementationSpecific" if relative && !path.is_empty() => {
            errors.push(path.invalid("must be an absolute path"));
        }
        "ImplementationSpecific" => {}
        _ => errors.push(kind.not_supported(&PATH_TYPES)),
    }
    backend(&entry.get("backend"), errors);
}

fn backend(backend: &Field<'_>, errors: &mut Errors) {
    let (service, resource) = (backend.get("service"), backend.get("resource"));
    match (service.is_set(), resource.is_set()) {
        (true, true) => {
            errors.push(backend.invalid_as("", "cannot set both resource and service backends"));
        }
        (false, true) => {
            check(&resource, RESOURCE, errors);
        }
        (true, false) => service_backend(backend, &service, errors),
        (false, false) => errors.push(backend.invalid_as("", "resource or service backend is required")),
    }
}

const RESOURCE: &[Row] = &[
    ("apiGroup", Rule::Name(names::dns1123_subdomain)),
    ("kind", Rule::RequiredName(names::path_segment_name)),
    ("name", Rule::RequiredName(names::path_segment_name)),
];

fn service_backend(backend: &Field<'_>, service: &Field<'_>, errors: &mut Errors) {
    rules::required_name(&service.get("name"), names::dns1123_label, errors);
    let (name, number) = (service.get("port.name"), service.get("port.number"));
    match (!name.is_empty(), !number.is_empty()) {
        (true, true) => errors.push(backend.invalid_as("", "cannot set both port name & port number")),
        (true, false) => rules::name(&name, rules::port_name, errors),
        (false, true) => rules::port_number(&number, errors),
        (false, false) => errors.push(backend.required("port name or number is required")),
    }
}

/// An IngressClass.
pub(super) fn ingress_class(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    const LONGEST: usize = 250;
    let controller = object.get("spec.controller");
    if old.is_some_and(|old| !same(controller.value, &old["spec"]["controller"])) {
        errors.push(controller.invalid_as(controller.text(), "field is immutable"));
    }
    if controller.text().len() > LONGEST {
        errors.push(controller.too_long(LONGEST));
    }
    domain_and_path(&controller, errors);
    check(&object.get("spec.parameters"), &[("", Rule::Fields(PARAMETERS))], errors);
}

const PARAMETERS: &[Row] = &[
    ("apiGroup", Rule::Name(names::dns1123_subdomain)),
    ("kind", Rule::RequiredName(names::path_segment_name)),
    ("name", Rule::RequiredName(names::path_segment_name)),
    ("scope", Rule::There("")),
    ("scope", Rule::OneOf(&["Cluster", "Namespace"])),
    ("", Rule::Also(scope_of_parameters)),
];

fn scope_of_parameters(parameters: &Field<'_>, errors: &mut Errors) {
    let namespace = parameters.get("namespace");
    match (parameters.get("scope").text(), namespace.is_set()) {
        ("Namespace", false) => {
            errors.push(namespace.required("`parameters.scope` is set to 'Namespace'"));
        }
        ("Namespace", true) => rules::name(&namespace, names::dns1123_label, errors),
        ("Cluster", true) => errors.push(namespace.forbidden("`parameters.scope` is set to 'Cluster'")),
        _ => {}
    }
}

/// A domain and a path in it (`acme.io/foo`).
fn domain_and_path(field: &Field<'_>, errors: &mut Errors) {
    if field.is_empty() {
        return errors.push(field.required(""));
    }
    match field.text().split_once('/').filter(|(host, path)| !host.is_empty() && !path.is_empty()) {
        None => errors.push(field.invalid("must be a domain-prefixed path (such as \"acme.io/foo\")")),
        Some((host, path)) => {
            let wrong = names::dns1123_subdomain(host).into_iter();
            errors.extend(wrong.map(|why| field.invalid_as(host, why)));
            let of_path = |c: char| c.is_ascii_alphanumeric() || "/-._~%!$&'()*+,;=:".contains(c);
            if !path.chars().all(of_path) {
                let detail = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
                errors.push(field.invalid_as(path, detail));
            }
        }
    }
}

/// A NetworkPolicy.
pub(super) fn network_policy(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    let spec = object.get("spec");
    rules::label_selector(&spec.get("podSelector"), errors);
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for rule in spec.get(direction).items() {
            rule.get("ports").items().for_each(|port| policy_port(&port, errors));
            rule.get(peers).items().for_each(|peer| policy_peer(&peer, old.is_none(), errors));
        }
    }
    let types = spec.get("policyTypes");
    if types.len() > POLICY_TYPES.len() {
        return errors.push(types.invalid("may not specify more than two policyTypes"));
    }
    types.items().for_each(|kind| rules::optional_one_of(&kind, &POLICY_TYPES, errors));
}

fn policy_port(entry: &Field<'_>, errors: &mut Errors) {
    rules::optional_one_of(&entry.get("protocol"), &["TCP", "UDP", "SCTP"], errors);
    let (port, end) = (entry.get("port"), entry.get("endPort"));
    if port.is_set() {
        rules::port(&port, errors);
    }
    let Some(last) = end.int() else { return };
    if !port.is_set() {
        errors.push(end.invalid("may not be specified when `port` is not specified"));
    } else if let Some(first) = port.int() {
        if last < first {
            errors.push(end.invalid_as(first, "must be greater than or equal to `port`"));
        }
        rules::port_number(&end, errors);
    } else {
        errors.push(end.invalid("may not be specified when `port` is non-numeric"));
    }
}

fn policy_peer(peer: &Field<'_>, is_new: bool, errors: &mut Errors) {
    let block = peer.get("ipBlock");
    let selectors = ["podSelector", "namespaceSelector"].map(|field| peer.get(field));
    selectors.iter().for_each(|selector| rules::label_selector(selector, errors));
    let selecting = selectors.iter().any(Field::is_set);
    if block.is_set() {
        address_block(&block, is_new, errors);
    }
    if !selecting && !block.is_set() {
        errors.push(peer.required("must specify a peer"));
    } else if selecting && block.is_set() {
        errors.push(peer.forbidden("may not specify both ipBlock and another peer"));
    }
}

fn address_block(block: &Field<'_>, is_new: bool, errors: &mut Errors) {
    let cidr = block.get("cidr");
    if cidr.is_empty() {
        return errors.push(cidr.required(""));
    }
    let Some(whole) = rules::network(&cidr, errors) else { return };
    if is_new && whole.has_host_bits() {
        errors.push(cidr.invalid("must not have bits set beyond the prefix length"));
    }
    for except in block.get("except").items() {
        let Some(part) = rules::network(&except, errors) else { continue };
        if !whole.contains(&part) || whole.length >= part.length {
            errors.push(except.invalid("must be a strict subset of `cidr`"));
        }
    }
}
