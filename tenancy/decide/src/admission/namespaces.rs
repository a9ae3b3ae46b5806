//! Rules of namespaces themselves: whose they are, their names, labels and annotations.

use super::{Exempt, Index, Operation, Request, User, chain_of, includes, subjects_of, tenant_label};
use crate::rules::{self, PREFIX};
use crate::target::is_protected;
use crate::tenant::{CREATOR_ANNOTATION, Chain, chain};
use freehold_machinery::Value;
use freehold_tenancy_api::TENANT_LABEL;
use freehold_tenancy_api::supervisor::{SLEEP_ANNOTATION, SLEEP_UNTIL_ANNOTATION};
use freehold_tenancy_api::tenant::Tenant;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Annotations by which owners put a namespace to sleep and wake it; they can keep each workload awake as well.
pub const OWNERS_KEYS: [&str; 2] = [SLEEP_ANNOTATION, SLEEP_UNTIL_ANNOTATION];

/// Whether a key of a label or annotation is the subsystem's own, or decides about the security of Pods.
pub fn is_system_key(key: &str) -> bool {
    (key.starts_with("tenancy.freehold.dev/") && !OWNERS_KEYS.contains(&key))
        || key.starts_with(PREFIX)
        || key.starts_with("pod-security.kubernetes.io/")
        || key == "scheduler.alpha.kubernetes.io/node-selector"
}

/// Whether a user may create namespaces of a tenant: as its owner or editor where members may, or as an owner above.
pub fn may_provision(chain: &Chain, user: &User) -> bool {
    let Some(tenant) = chain.tenant().filter(|tenant| tenant.spec.namespaces.self_service) else {
        return false;
    };
    let writers = tenant.spec.members.iter().filter(|m| m.role == "owner" || m.role == "editor");
    includes(writers, user)
        || chain
            .tenants
            .iter()
            .skip(1)
            .any(|tenant| includes(tenant.spec.members.iter().filter(|member| member.role == "owner"), user))
}

pub(super) fn decide(
    request: &Request<'_>,
    index: &dyn Index,
    exempt: &Exempt,
) -> Result<Vec<Value>, String> {
    if exempt.is_system(request.user) {
        return Ok(Vec::new());
    }
    match request.operation {
        Operation::Create => create(request, index),
        Operation::Update => update(request, index).map(|()| Vec::new()),
        Operation::Delete => delete(request, index).map(|()| Vec::new()),
    }
}

/// The tenants that a user is a member of.
fn memberships(index: &dyn Index, user: &User) -> Vec<Arc<Tenant>> {
    let mut tenants: Vec<Arc<Tenant>> =
        subjects_of(user).iter().flat_map(|subject| index.tenants_of(subject)).collect();
    tenants.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    tenants.dedup_by(|a, b| a.metadata.name == b.metadata.name);
    tenants
}

fn create(request: &Request<'_>, index: &dyn Index) -> Result<Vec<Value>, String> {
    let name = request.object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or(request.name);
    let (chain, labelled) = match tenant_label(request.object) {
        Some(label) => {
            let chain = chain_of(index, Some(label)).filter(|chain| may_provision(chain, request.user));
            (chain.ok_or_else(|| format!("you may not create namespaces of tenant {label:?}"))?, true)
        }
        None => match choose(name, index, request.user)? {
            Some(chain) => (chain, false),
            None => return own_keys(request),
        },
    };
    let Some(tenant) = chain.tenant() else { return Ok(Vec::new()) };
    if is_protected(name) {
        return Err(format!("namespace {name:?} belongs to the plane"));
    }
    if let Some(tenant) = chain.tenants.iter().find(|tenant| tenant.spec.cordoned) {
        return Err(format!("tenant {:?} is cordoned: nothing can be changed", tenant.metadata.name));
    }
    if tenant.metadata.deletion_timestamp.is_some() {
        return Err(format!("tenant {:?} is being deleted", tenant.metadata.name));
    }
    let prefix = format!("{}-", tenant.metadata.name);
    if tenant.spec.namespaces.require_prefix && !name.starts_with(&prefix) {
        return Err(format!("names of the tenant's namespaces begin with {prefix:?}"));
    }
    own_keys(request)?;
    metadata(request, &chain)?;
    let mut patch = Vec::new();
    if !labelled {
        patch.extend(add(request.object, "labels", TENANT_LABEL, &tenant.metadata.name));
    }
    patch.extend(add(request.object, "annotations", CREATOR_ANNOTATION, &request.user.name));
    Ok(patch)
}

/// The tenant of a namespace that names none: the creator's only one, or the one whose name it begins with.
fn choose(name: &str, index: &dyn Index, user: &User) -> Result<Option<Chain>, String> {
    let all = memberships(index, user);
    if all.is_empty() {
        return Ok(None);
    }
    let chains = all.into_iter().map(|tenant| chain(tenant, |name| index.tenant(name)));
    let mut chains: Vec<Chain> = chains.filter(|chain| may_provision(chain, user)).collect();
    let fits = |chain: &Chain| {
        let prefix = format!("{}-", super::name_of(chain));
        if name.starts_with(&prefix) { prefix.len() } else { 0 }
    };
    match chains.len() {
        0 => Err("none of your tenants lets you create namespaces".to_owned()),
        1 => Ok(chains.pop()),
        _ => {
            let best = chains.into_iter().max_by_key(fits).filter(|chain| fits(chain) > 0);
            best.map(Some).ok_or_else(|| {
                format!("you are a member of several tenants: name one by the label {TENANT_LABEL}")
            })
        }
    }
}

fn add(object: &Value, field: &str, key: &str, value: &str) -> Vec<Value> {
    let mut operations = Vec::new();
    if !object["metadata"][field].is_object() {
        operations.push(json!({"op": "add", "path": format!("/metadata/{field}"), "value": {}}));
    }
    let key = key.replace('~', "~0").replace('/', "~1");
    operations.push(json!({"op": "add", "path": format!("/metadata/{field}/{key}"), "value": value}));
    operations
}

fn texts(object: &Value, field: &str) -> BTreeMap<String, String> {
    let map = object["metadata"][field].as_object().into_iter().flatten();
    map.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// Keys whose values differ between the old and the new object.
fn changed(request: &Request<'_>, field: &str) -> Vec<(String, Option<String>, Option<String>)> {
    let (old, new) = (texts(request.old, field), texts(request.object, field));
    let keys: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let change = |key: &String| (key.clone(), old.get(key).cloned(), new.get(key).cloned());
    keys.into_iter().map(change).filter(|(_, old, new)| old != new).collect()
}

/// Refuses members' changes of keys that are the subsystem's own. The tenant's label may be set at creation, and so may the
/// creator's own name: admission has been here before where it runs once more.
fn own_keys(request: &Request<'_>) -> Result<Vec<Value>, String> {
    for field in ["labels", "annotations"] {
        for (key, _, new) in changed(request, field) {
            let is_creator = || key == CREATOR_ANNOTATION && new.as_deref() == Some(&*request.user.name);
            let at_creation = request.operation == Operation::Create && (key == TENANT_LABEL || is_creator());
            if is_system_key(&key) && !at_creation {
                return Err(format!("metadata.{field}: {key:?} cannot be changed by members"));
            }
        }
    }
    Ok(Vec::new())
}

/// Required, forbidden and protected labels and annotations.
fn metadata(request: &Request<'_>, chain: &Chain) -> Result<(), String> {
    for field in ["labels", "annotations"] {
        let keys = rules::keys(chain, field == "labels");
        let new = texts(request.object, field);
        for (key, values) in &keys.required {
            match new.get(key) {
                None => return Err(format!("metadata.{field}: {key:?} is required")),
                Some(value) if !values.is_empty() && !values.contains(value) => {
                    let allowed = values.join(", ");
                    return Err(format!("metadata.{field}: {key:?} must be one of: {allowed}"));
                }
                Some(_) => {}
            }
        }
        for (key, old, new) in changed(request, field) {
            let is_forbidden = |pattern: &String| match pattern.strip_suffix('*') {
                Some(prefix) => key.starts_with(prefix),
                None => key == *pattern,
            };
            if new.is_some() && keys.forbidden.iter().any(is_forbidden) {
                return Err(format!("metadata.{field}: {key:?} is forbidden by the tenant"));
            }
            if old.is_some() && keys.protected.contains(&key) {
                return Err(format!("metadata.{field}: {key:?} is protected by the tenant"));
            }
        }
    }
    Ok(())
}

fn update(request: &Request<'_>, index: &dyn Index) -> Result<(), String> {
    own_keys(request)?;
    let Some(chain) = chain_of(index, tenant_label(request.old)) else { return Ok(()) };
    if let Some(tenant) = chain.tenants.iter().find(|tenant| tenant.spec.cordoned) {
        return Err(format!("tenant {:?} is cordoned: nothing can be changed", tenant.metadata.name));
    }
    metadata(request, &chain)
}

fn delete(request: &Request<'_>, index: &dyn Index) -> Result<(), String> {
    let Some(chain) = chain_of(index, tenant_label(request.old)) else { return Ok(()) };
    match chain.tenants.iter().find(|tenant| tenant.spec.cordoned) {
        Some(tenant) => Err(format!("tenant {:?} is cordoned: nothing can be changed", tenant.metadata.name)),
        None => Ok(()),
    }
}
