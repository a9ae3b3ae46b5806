//! Rules of host names of Ingresses, routes and Gateways.

use super::{Index, Request, is, name_of};
use crate::rules;
use crate::tenant::Chain;
use freehold_machinery::{GroupResource, Value};
use freehold_tenancy_api::tenant::CollisionScope;
use std::collections::BTreeSet;

/// An object that uses a host name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostUse {
    /// Its namespace.
    pub namespace: String,
    /// The tenant of the namespace.
    pub tenant: Option<String>,
    /// Its name.
    pub name: String,
}

/// The host names of an object with their paths. The empty name stands for all hosts: a rule of an Ingress without a host, and
/// its default backend.
pub fn hosts_of(resource: &GroupResource, object: &Value) -> BTreeSet<(String, String)> {
    let list = |pointer: &str| object.pointer(pointer).and_then(Value::as_array).cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_ascii_lowercase();
    match (resource.group.as_str(), resource.resource.as_str()) {
        ("networking.k8s.io", "ingresses") => {
            let mut hosts = BTreeSet::new();
            if object.pointer("/spec/defaultBackend").is_some_and(Value::is_object) {
                hosts.insert((String::new(), "/".to_owned()));
            }
            for rule in list("/spec/rules") {
                let paths =
                    rule.pointer("/http/paths").and_then(Value::as_array).cloned().unwrap_or_default();
                for path in &paths {
                    let path = path["path"].as_str().unwrap_or("/").to_owned();
                    hosts.insert((text(&rule["host"]), path));
                }
                if paths.is_empty() {
                    hosts.insert((text(&rule["host"]), "/".to_owned()));
                }
            }
            hosts
        }
        ("gateway.networking.k8s.io", "httproutes" | "grpcroutes" | "tlsroutes") => {
            let hosts = list("/spec/hostnames");
            hosts.iter().map(|host| (text(host), "/".to_owned())).collect()
        }
        ("gateway.networking.k8s.io", "gateways") => {
            let listeners = list("/spec/listeners");
            listeners.iter().map(|listener| (text(&listener["hostname"]), "/".to_owned())).collect()
        }
        _ => BTreeSet::new(),
    }
}

/// Whether a route has all hosts of the Gateways that it is behind, for it names none. It collides with no other: whose
/// Gateway that is says what it gets.
fn takes_all(resource: &GroupResource, object: &Value) -> bool {
    let is_route = resource.group == "gateway.networking.k8s.io"
        && matches!(resource.resource.as_str(), "httproutes" | "grpcroutes" | "tlsroutes");
    is_route && object.is_object() && hosts_of(resource, object).is_empty()
}

/// Host names of certificates, which are checked but do not collide.
fn tls_hosts(object: &Value) -> Vec<String> {
    let entries = object.pointer("/spec/tls").and_then(Value::as_array).cloned().unwrap_or_default();
    let hosts = entries.iter().filter_map(|entry| entry["hosts"].as_array()).flatten();
    hosts.filter_map(Value::as_str).map(str::to_ascii_lowercase).collect()
}

/// Whether a host name is one of a list; `*.example.com` stands for all names below it.
fn is_listed(host: &str, list: &[String]) -> bool {
    list.iter().any(|allowed| {
        host == allowed
            || allowed
                .strip_prefix('*')
                .is_some_and(|suffix| host.strip_suffix(suffix).is_some_and(|label| !label.is_empty()))
    })
}

pub(super) fn check(request: &Request<'_>, chain: &Chain, index: &dyn Index) -> Result<(), String> {
    let hosts = hosts_of(&request.resource, request.object);
    let before = hosts_of(&request.resource, request.old);
    let tenant = name_of(chain);
    let new: BTreeSet<&(String, String)> = hosts.difference(&before).collect();
    let takes_all =
        takes_all(&request.resource, request.object) && !takes_all(&request.resource, request.old);
    let names = new.iter().map(|(host, _)| host.clone()).chain(tls_hosts(request.object));
    let names = names.chain(takes_all.then(String::new));
    for host in names {
        for list in rules::lists(chain, rules::LISTS[1].1) {
            if !is_listed(&host, list) {
                let allowed = list.join(", ");
                return Err(format!("tenant {tenant:?}: host {host:?} is not allowed; allowed: {allowed}"));
            }
        }
        let forbidden = chain.tenants.iter().any(|tenant| tenant.spec.hosts.forbid_wildcards);
        if forbidden && (host.starts_with('*') || host.is_empty()) {
            return Err(format!("tenant {tenant:?}: wildcard host {host:?} is not allowed"));
        }
    }
    let scope = chain.tenant().map(|tenant| tenant.spec.hosts.collision_scope).unwrap_or_default();
    // A Gateway's listeners share hosts with the routes behind them.
    if scope == CollisionScope::Disabled || is(request, "gateway.networking.k8s.io", "gateways") {
        return Ok(());
    }
    for (host, path) in new {
        let other = index.host_uses(host, path).into_iter().find(|other| {
            let itself = other.namespace == request.namespace && other.name == request.name;
            !itself
                && match scope {
                    CollisionScope::Cluster => true,
                    CollisionScope::Tenant => other.tenant.as_deref() == Some(tenant),
                    CollisionScope::Namespace => other.namespace == request.namespace,
                    CollisionScope::Disabled => false,
                }
        });
        if let Some(other) = other {
            // Names of other tenants' objects are none of the member's business.
            let place = match other.tenant.as_deref() == Some(tenant) {
                true => format!("{}/{}", other.namespace, other.name),
                false => "another tenant".to_owned(),
            };
            return Err(format!("tenant {tenant:?}: host {host:?} with path {path:?} is used by {place}"));
        }
    }
    Ok(())
}
