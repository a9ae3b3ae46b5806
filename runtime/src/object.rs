//! Parts of objects that are JSON values, read and written whatever is wrong with them.
//!
//! This module must not know any kind.

use freehold_client::{Client, Error, Patch, Resource};
use freehold_machinery::{Map, Value, meta, selector::Labels};
use serde_json::json;

/// Returns the number at a JSON pointer.
pub fn int(object: &Value, pointer: &str) -> Option<i64> {
    object.pointer(pointer)?.as_i64()
}

/// Returns the string at a JSON pointer; empty where there is none.
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or("")
}

/// Returns the items of the array at a JSON pointer.
pub fn items<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Reports whether a request failed because its namespace is being deleted: no other one will do better.
pub fn namespace_terminates(error: &Error) -> bool {
    let Error::Api(status) = error else { return false };
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    causes.any(|cause| cause.reason == "NamespaceTerminating")
}

/// Ignores the failure of a write to the object of this uid that no longer exists, whatever has its name by now. A conflict
/// alone does not say that: the object may have changed while it was written to, and is to be written again.
///
/// # Errors
///
/// Returns the write's error if the object still exists, and the read's if the server does not tell.
pub async fn unless_gone(
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

/// Returns the owner reference that has `controller: true`.
pub fn controller_of(object: &Value) -> Option<&Value> {
    items(object, "/metadata/ownerReferences").iter().find(|r| r["controller"] == true)
}

/// Returns an owner reference that makes `owner` the controller of what carries it.
pub fn controller_reference(owner: &Value) -> Value {
    json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta::name(owner), "uid": meta::uid(owner),
        "controller": true, "blockOwnerDeletion": true,
    })
}

/// Reports whether a selector matches the labels of a map.
pub fn selects(selector: &Labels, labels: Option<&Map>) -> bool {
    selector.matches(|key| labels?.get(key)?.as_str())
}

/// Returns the labels of an object.
pub fn labels(object: &Value) -> Option<&Map> {
    meta::metadata(object)?.get("labels")?.as_object()
}

/// Returns a merge patch that adds or removes one of an object's finalizers, refused if the object changed meanwhile. `None`:
/// it is so already.
pub fn finalizer_patch(object: &Value, finalizer: &str, present: bool) -> Option<Patch> {
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
    Some(Patch::Merge(json!({"metadata": metadata})))
}

#[cfg(test)]
mod tests {
    use super::*;

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
