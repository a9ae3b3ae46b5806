//! Reading parts of objects that are JSON values, whatever is wrong with them.

use freehold_client::{Client, Error, Resource};
use freehold_machinery::{Map, Value, meta, selector::Labels};
use freehold_runtime::{Informer, Key, Queue, Seen};
use serde_json::json;
use std::sync::Arc;

/// What is kept of a namespace.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NamespaceView {
    pub(crate) deleting: bool,
}

impl NamespaceView {
    pub(crate) fn of(object: Value) -> Option<Self> {
        Some(Self { deleting: meta::is_deleting(&object) })
    }
}

/// Whether a namespace is there to stay.
pub(crate) fn stays(namespace: Option<&NamespaceView>) -> bool {
    namespace.is_some_and(|namespace| !namespace.deleting)
}

/// Adds the namespace of what is deleted to a queue: also where it is of the planes' base, and no list over all planes had it.
pub(crate) fn enqueue_namespaces_of_deleted<T: Send + Sync + 'static>(
    informer: &mut Informer<T>,
    queue: &Arc<Queue<Key>>,
) {
    let queue = queue.clone();
    informer.on_object(move |key, _, seen| {
        if seen == Seen::Gone {
            queue.add(Key::new(key.plane.clone(), "", &key.namespace));
        }
    });
}

/// A number at a JSON pointer.
pub(crate) fn int(object: &Value, pointer: &str) -> Option<i64> {
    object.pointer(pointer)?.as_i64()
}

/// A string at a JSON pointer; empty where there is none.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or("")
}

/// Items of an array at a JSON pointer.
pub(crate) fn items<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// `status.conditions`.
pub(crate) fn conditions_of(object: &Value) -> &[Value] {
    items(object, "/status/conditions")
}

/// Whether a request failed because its namespace is being deleted: no other one will do better.
pub(crate) fn namespace_terminates(error: &Error) -> bool {
    let Error::Api(status) = error else { return false };
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    causes.any(|cause| cause.reason == "NamespaceTerminating")
}

/// Makes nothing of the failure of a write to the object of this uid that is not there any more, whatever has its name by
/// now. A conflict alone does not say that: the object may have changed while it was written to, and is to be written again.
pub(crate) async fn unless_gone(
    client: &Client,
    resource: &Resource,
    (ns, name, uid): (Option<&str>, &str, &str),
    error: Error,
) -> Result<(), Error> {
    if error.is_not_found() {
        return Ok(());
    }
    if error.code() == 409 && client.get_opt(resource, ns, name).await?.is_none_or(|o| meta::uid(&o) != uid) {
        return Ok(());
    }
    Err(error)
}

/// `metadata.generation`, 0 where it is absent.
pub(crate) fn generation(object: &Value) -> i64 {
    int(object, "/metadata/generation").unwrap_or(0)
}

/// The owner reference that has `controller: true`.
pub(crate) fn controller_of(object: &Value) -> Option<&Value> {
    items(object, "/metadata/ownerReferences").iter().find(|r| r["controller"] == true)
}

/// Index entries of an object: its controller's uid, or [`orphan_entry`] of its namespace where it has none.
pub(crate) fn owner_index(key: &Key, object: &Value) -> Vec<String> {
    match controller_of(object) {
        Some(owner) => vec![owner["uid"].as_str().unwrap_or_default().to_owned()],
        None => vec![orphan_entry(&key.namespace)],
    }
}

/// Index entries of an object: its own uid, and [`owned_entry`] of its controller's.
pub(crate) fn uid_and_owner(_: &Key, object: &Value) -> Vec<String> {
    let owner = controller_of(object).and_then(|owner| owner["uid"].as_str());
    owner.map(owned_entry).into_iter().chain([meta::uid(object).to_owned()]).collect()
}

/// Index entries of an object that controls and may be controlled: those of [`owner_index`], and [`own_entry`].
pub(crate) fn owner_and_own(key: &Key, object: &Value) -> Vec<String> {
    let mut entries = owner_index(key, object);
    entries.push(own_entry(meta::uid(object)));
    entries
}

/// Index entries of an object: [`own_entry`].
pub(crate) fn own_index(_: &Key, object: &Value) -> Vec<String> {
    vec![own_entry(meta::uid(object))]
}

/// The index entry of the object with this uid.
pub(crate) fn own_entry(uid: &str) -> String {
    format!("is {uid}")
}

/// The index entry of what a controller with this uid controls.
pub(crate) fn owned_entry(uid: &str) -> String {
    format!("owned by {uid}")
}

/// The index entry of objects in a namespace that nothing controls.
pub(crate) fn orphan_entry(namespace: &str) -> String {
    format!("orphans of {namespace}")
}

/// An owner reference that makes `owner` the controller of what carries it.
pub(crate) fn controller_reference(owner: &Value) -> Value {
    json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta::name(owner), "uid": meta::uid(owner),
        "controller": true, "blockOwnerDeletion": true,
    })
}

/// The selector at `spec.selector`, if it is a valid one that does not select everything.
pub(crate) fn selector(object: &Value) -> Option<Labels> {
    let selector = object.pointer("/spec/selector").filter(|s| !s.is_null())?;
    Labels::from_value(selector).ok().filter(|s| !s.is_empty())
}

/// Whether a selector matches the labels of a map.
pub(crate) fn selects(selector: &Labels, labels: Option<&Map>) -> bool {
    selector.matches(|key| labels?.get(key)?.as_str())
}

/// The labels of an object.
pub(crate) fn labels(object: &Value) -> Option<&Map> {
    meta::metadata(object)?.get("labels")?.as_object()
}

/// `status` as a merge patch.
pub(crate) fn status_patch(status: &Value) -> freehold_client::Patch {
    freehold_client::Patch::Merge(json!({"status": status}))
}

/// A merge patch that adds or removes one of an object's finalizers, refused if the object changed meanwhile. `None`:
/// it is so already.
pub(crate) fn finalizer_patch(
    object: &Value,
    finalizer: &str,
    present: bool,
) -> Option<freehold_client::Patch> {
    let mut finalizers = meta::finalizers(object);
    if finalizers.contains(&finalizer) == present {
        return None;
    }
    if present {
        finalizers.push(finalizer);
    } else {
        finalizers.retain(|f| *f != finalizer);
    }
    let metadata = json!({"finalizers": finalizers, "resourceVersion": meta::resource_version(object)});
    Some(freehold_client::Patch::Merge(json!({"metadata": metadata})))
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_client::Patch;

    #[test]
    fn a_finalizer_is_added_and_removed_once() {
        let object = json!({"metadata": {"finalizers": ["a"], "resourceVersion": "3"}});
        assert!(
            finalizer_patch(&object, "a", true).is_none() && finalizer_patch(&object, "b", false).is_none()
        );
        let Some(Patch::Merge(added)) = finalizer_patch(&object, "b", true) else { panic!("no patch") };
        assert_eq!(added, json!({"metadata": {"finalizers": ["a", "b"], "resourceVersion": "3"}}));
        let Some(Patch::Merge(removed)) = finalizer_patch(&object, "a", false) else { panic!("no patch") };
        assert_eq!(removed["metadata"]["finalizers"], json!([]));
    }
}
