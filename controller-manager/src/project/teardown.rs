//! Emptying a plane that is to go.
//!
//! Everything in it goes with its keys, at once. What may not go so is an object with a finalizer: somebody wants to
//! do something first, and may need the objects around it for that. So those are deleted, waited for, and only then
//! the plane is dropped.

use freehold_client::{Client, DeleteOptions, Error, ListOptions, Propagation};
use freehold_controllers_context::discovery::{Discovered, discover};
use freehold_controllers_context::object::items;
use freehold_machinery::{Value, meta};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use std::collections::BTreeMap;

/// Requests to one plane at once.
const CONCURRENT: usize = 8;
/// Types whose objects the server itself finalizes, by deleting what is in them.
const CONTAINERS: &[(&str, &str)] =
    &[("", "namespaces"), ("apiextensions.k8s.io", "customresourcedefinitions")];

/// An object that holds a finalizer.
#[derive(Debug, PartialEq)]
struct Held {
    namespace: String,
    name: String,
    uid: String,
    deleting: bool,
    finalizers: Vec<String>,
}

/// Those objects of a list of metadata that hold finalizers.
fn held(list: &[Value]) -> Vec<Held> {
    let one = |object: &Value| {
        let finalizers: Vec<String> = items(object, "/metadata/finalizers")
            .iter()
            .filter_map(|f| f.as_str().map(str::to_owned))
            .collect();
        (!finalizers.is_empty()).then(|| Held {
            namespace: meta::namespace(object).to_owned(),
            name: meta::name(object).to_owned(),
            uid: meta::uid(object).to_owned(),
            deleting: meta::is_deleting(object),
            finalizers,
        })
    };
    list.iter().filter_map(one).collect()
}

/// What remains, for people: `2 certificates.cert-manager.io, 1 pods (finalizers: a/b)`. Empty if nothing does.
fn summary(remaining: &[(Discovered, Vec<Held>)]) -> String {
    let mut finalizers: BTreeMap<&str, usize> = BTreeMap::new();
    let mut counts = Vec::new();
    for (ty, held) in remaining.iter().filter(|(_, held)| !held.is_empty()) {
        counts.push(format!("{} {}", held.len(), ty.resource));
        for finalizer in held.iter().flat_map(|h| &h.finalizers) {
            *finalizers.entry(finalizer).or_default() += 1;
        }
    }
    if counts.is_empty() {
        return String::new();
    }
    // As types are read at once, they come in any order.
    counts.sort_unstable();
    let names: Vec<&str> = finalizers.into_keys().take(10).collect();
    format!("{} (finalizers: {})", counts.join(", "), names.join(", "))
}

/// Deletes every object that holds a finalizer. Gives what remains, in words; nothing once the plane can be dropped.
pub(crate) async fn finalize_all(client: &Client) -> Result<String, Error> {
    let discovery = match discover(client).await {
        Err(error) if error.is_not_found() => return Ok(String::new()),
        discovery => discovery?,
    };
    let is_container = |ty: &Discovered| CONTAINERS.contains(&(&*ty.resource.group, &*ty.resource.plural));
    let types = discovery.types.into_iter().filter(|ty| ty.is_deletable() && !is_container(ty));
    let remaining: Vec<(Discovered, Vec<Held>)> = stream::iter(types)
        .map(|ty| async move { finalize_type(client, &ty).await.map(|held| (ty, held)) })
        .buffer_unordered(CONCURRENT)
        .try_collect()
        .await?;
    Ok(summary(&remaining))
}

async fn finalize_type(client: &Client, ty: &Discovered) -> Result<Vec<Held>, Error> {
    let options = ListOptions { metadata_only: true, ..ListOptions::default() };
    let list = match client.list_all(&ty.resource, None, &options).await {
        // A type can go while its plane is being emptied.
        Err(error) if error.is_not_found() => return Ok(Vec::new()),
        list => list?,
    };
    let held = held(&list.items);
    for object in held.iter().filter(|h| !h.deleting) {
        let options = DeleteOptions::uid(&object.uid).propagation(Propagation::Background);
        let namespace = Some(object.namespace.as_str());
        match client.delete(&ty.resource, namespace, &object.name, &options).await {
            Err(error) if !error.is_not_found() && !error.is_conflict() => return Err(error),
            _ => {}
        }
    }
    Ok(held)
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_client::Resource;
    use serde_json::json;

    #[test]
    fn only_objects_with_finalizers_hold_a_plane_back() {
        let list = [
            json!({"metadata": {"name": "a", "namespace": "n", "uid": "1", "finalizers": ["x/y"]}}),
            json!({"metadata": {"name": "b", "finalizers": []}}),
            json!({"metadata": {"name": "c"}}),
            json!(null),
        ];
        let found = held(&list);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].name.as_str(), found[0].deleting), ("a", false));
    }

    #[test]
    fn what_remains_is_said_by_type_and_finalizer() {
        let of = |plural| {
            freehold_controllers_context::discovery::Discovered::with_all_verbs(Resource::namespaced(
                "", "v1", plural,
            ))
        };
        let list = || held(&[json!({"metadata": {"name": "a", "finalizers": ["x/y"]}})]);
        assert_eq!(summary(&[(of("pods"), list())]), "1 pods (finalizers: x/y)");
        assert_eq!(summary(&[(of("pods"), Vec::new())]), "");
        for types in [["pods", "secrets"], ["secrets", "pods"]] {
            let remaining = types.map(|plural| (of(plural), list()));
            assert_eq!(summary(&remaining), "1 pods, 1 secrets (finalizers: x/y)", "in one order");
        }
    }
}
