//! Discovery: the documents of `/api` and `/apis`.
//!
//! Pure functions of a [`TypeSet`]. [`TypeSet::hash`] is their ETag: equal sets give equal documents.

mod ordered;

pub use ordered::Ordered;

use crate::set::{Group, ServedVersion, TypeSet};
use base64::{Engine, engine::general_purpose::STANDARD};
use freehold_machinery::{GroupVersionKind, ResourceType, Value, resource::Subresource};
use serde_json::json;
use sha2::{Digest, Sha256};

/// Media type parameters' version of aggregated discovery that is given by [`aggregated`].
pub const AGGREGATED_API_VERSION: &str = "apidiscovery.k8s.io/v2";

/// `/api`: the versions of core. `server_address` is where the client finds the server (`host:port`).
pub fn api_versions(set: &TypeSet, server_address: &str) -> Value {
    let versions = set.group("").map(|group| &*group.versions).unwrap_or_default();
    json!({
        "kind": "APIVersions",
        "versions": versions.iter().map(|v| &*v.version).collect::<Vec<_>>(),
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}],
    })
}

/// `/apis`: all groups but core, in order of priority.
pub fn group_list(set: &TypeSet) -> Value {
    let groups: Vec<_> =
        set.groups().iter().filter(|group| !group.name.is_empty()).map(|g| entry(g)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/<group>`. `None` where there is no such group.
pub fn group(set: &TypeSet, name: &str) -> Option<Value> {
    let group = set.group(name).filter(|group| !group.name.is_empty())?;
    let mut document = entry(group);
    document["kind"] = "APIGroup".into();
    document["apiVersion"] = "v1".into();
    Some(document)
}

fn entry(group: &Group) -> Value {
    let version = |served: &ServedVersion| json!({"groupVersion": format!("{}/{}", group.name, served.version), "version": served.version});
    let versions: Vec<_> = group.versions.iter().map(version).collect();
    json!({"name": group.name, "preferredVersion": versions.first(), "versions": versions})
}

/// `/api/v1`, `/apis/<group>/<version>`: the resources of a version. `None` where there is no such version, or
/// another server serves it.
pub fn resource_list(set: &TypeSet, group: &str, version: &str) -> Option<Value> {
    let served = set.version(group, version).filter(|served| !served.types.is_empty())?;
    let mut resources: Vec<Value> = Vec::new();
    for ty in &served.types {
        resources.push(resource(ty));
        resources.extend(sorted_subresources(ty).into_iter().map(|sub| subresource(ty, sub)));
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let mut document =
        json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": resources});
    if !group.is_empty() {
        document["apiVersion"] = "v1".into();
    }
    Some(document)
}

fn resource(ty: &ResourceType) -> Value {
    let mut resource = json!({
        "name": ty.plural,
        "singularName": ty.singular,
        "namespaced": ty.namespaced,
        "kind": ty.kind,
        "verbs": verbs(ty),
    });
    names(&mut resource, ty);
    if ty.verbs.contains(&"get") && ty.verbs.contains(&"create") {
        resource["storageVersionHash"] = storage_version_hash(ty).into();
    }
    resource
}

fn names(resource: &mut Value, ty: &ResourceType) {
    for (field, names) in [("shortNames", &ty.short_names), ("categories", &ty.categories)] {
        if !names.is_empty() {
            resource[field] = json!(names);
        }
    }
}

fn subresource(ty: &ResourceType, sub: &Subresource) -> Value {
    let mut resource = json!({
        "name": format!("{}/{}", ty.plural, sub.name),
        "singularName": "",
        "namespaced": ty.namespaced,
        "kind": sub.kind.kind,
        "verbs": sorted(&sub.verbs),
    });
    if !is_own(ty, &sub.kind) {
        if !sub.kind.group.is_empty() {
            resource["group"] = json!(sub.kind.group);
        }
        resource["version"] = json!(sub.kind.version);
    }
    resource
}

/// What can still be done with objects of a type whose definition is being deleted.
const ENDING: [&str; 5] = ["delete", "deletecollection", "get", "list", "watch"];

fn verbs(ty: &ResourceType) -> Vec<&'static str> {
    // The order in which kube-apiserver lists the verbs of custom resources.
    const ORDER: [&str; 8] =
        ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
    match (ty.terminating, ty.custom) {
        (true, _) => ENDING.to_vec(),
        (false, true) => ORDER.into_iter().filter(|verb| ty.verbs.contains(verb)).collect(),
        (false, false) => sorted(&ty.verbs),
    }
}

fn sorted(verbs: &[&'static str]) -> Vec<&'static str> {
    let mut verbs = verbs.to_vec();
    verbs.sort_unstable();
    verbs
}

fn is_own(ty: &ResourceType, kind: &GroupVersionKind) -> bool {
    kind.group == ty.group && kind.version == ty.version
}

fn sorted_subresources(ty: &ResourceType) -> Vec<&Subresource> {
    let mut subresources: Vec<_> = ty.subresources.iter().collect();
    subresources.sort_by(|a, b| a.name.cmp(&b.name));
    subresources
}

/// Names the version in which objects are stored, so that a storage migrator sees when it changes: the first bytes
/// of the hash of `group/version/kind`, as kube-apiserver makes it.
pub fn storage_version_hash(ty: &ResourceType) -> String {
    let stored = &ty.storage.api_version;
    let (group, version) = stored.split_once('/').unwrap_or(("", stored));
    // What kube-apiserver still keeps in an older version than it prefers.
    let older = match ty.kind.as_str() {
        "CustomResourceDefinition" => group == "apiextensions.k8s.io",
        "MutatingAdmissionPolicy" | "MutatingAdmissionPolicyBinding" => {
            group == "admissionregistration.k8s.io"
        }
        _ => false,
    };
    let version = if older && !ty.custom { "v1beta1" } else { version };
    STANDARD.encode(&Sha256::digest(format!("{group}/{version}/{}", ty.kind))[..8])
}

/// `/api` (`core`) or `/apis` in aggregated form (`APIGroupDiscoveryList`, KEP-3352): all groups, versions and
/// resources in one document.
pub fn aggregated(set: &TypeSet, core: bool) -> Value {
    let groups = set.groups().iter().filter(|group| group.name.is_empty() == core);
    let item = |group: &Group| {
        let metadata = if group.name.is_empty() { json!({}) } else { json!({"name": group.name}) };
        json!({"metadata": metadata, "versions": group.versions.iter().map(version_discovery).collect::<Vec<_>>()})
    };
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": AGGREGATED_API_VERSION,
        "metadata": {},
        "items": groups.map(|group| item(group)).collect::<Vec<_>>(),
    })
}

fn version_discovery(served: &ServedVersion) -> Value {
    let (resources, fresh) = match &served.remote {
        Some(remote) => (remote.resources.clone(), remote.fresh),
        None => (served.types.iter().map(|ty| resource_discovery(ty)).collect(), true),
    };
    let freshness = if fresh { "Current" } else { "Stale" };
    json!({"version": served.version, "resources": resources, "freshness": freshness})
}

fn resource_discovery(ty: &ResourceType) -> Value {
    let mut resource = json!({
        "resource": ty.plural,
        "responseKind": response_kind(ty, &ty.gvk()),
        "scope": if ty.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": ty.singular,
        "verbs": if ty.terminating { ENDING.to_vec() } else { ty.verbs.clone() },
    });
    names(&mut resource, ty);
    let subresources: Vec<_> = sorted_subresources(ty)
        .into_iter()
        .map(|sub| {
            json!({"subresource": sub.name, "responseKind": response_kind(ty, &sub.kind), "verbs": sub.verbs})
        })
        .collect();
    if !subresources.is_empty() {
        resource["subresources"] = subresources.into();
    }
    resource
}

/// A kind as aggregated discovery states it: for built-in types without a group and version where they are the
/// resource's own.
fn response_kind(ty: &ResourceType, kind: &GroupVersionKind) -> Value {
    if !ty.custom && is_own(ty, kind) {
        json!({"group": "", "version": "", "kind": kind.kind})
    } else {
        json!({"group": kind.group, "version": kind.version, "kind": kind.kind})
    }
}
