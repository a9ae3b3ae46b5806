//! Reading parts of objects that are JSON values, whatever is wrong with them.

use freehold_machinery::{Value, meta, selector::Labels};
pub use freehold_runtime::object::{
    controller_of, controller_reference, finalizer_patch, int, items, labels, namespace_terminates, selects,
    text, unless_gone,
};
use freehold_runtime::{Informer, Key, Queue, Seen};
use serde_json::json;
use std::sync::Arc;

/// What is kept of a namespace.
#[derive(Clone, Debug, PartialEq)]
pub struct NamespaceView {
    /// Whether its deletion has begun.
    pub deleting: bool,
}

impl NamespaceView {
    /// Returns what is kept of a namespace.
    pub fn of(object: Value) -> Option<Self> {
        Some(Self { deleting: meta::is_deleting(&object) })
    }
}

/// Whether a namespace is there to stay.
pub fn stays(namespace: Option<&NamespaceView>) -> bool {
    namespace.is_some_and(|namespace| !namespace.deleting)
}

/// Adds the namespace of what is deleted to a queue: also where it is of the planes' base, and no list over all planes had it.
pub fn enqueue_namespaces_of_deleted<T: Send + Sync + 'static>(
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

/// Returns `status.conditions`, empty where there are none.
pub fn conditions_of(object: &Value) -> &[Value] {
    items(object, "/status/conditions")
}

/// `metadata.generation`, 0 where it is absent.
pub fn generation(object: &Value) -> i64 {
    int(object, "/metadata/generation").unwrap_or(0)
}

/// Index entries of an object: its controller's uid, or [`orphan_entry`] of its namespace where it has none.
pub fn owner_index(key: &Key, object: &Value) -> Vec<String> {
    match controller_of(object) {
        Some(owner) => vec![owner["uid"].as_str().unwrap_or_default().to_owned()],
        None => vec![orphan_entry(&key.namespace)],
    }
}

/// Index entries of an object: its own uid, and [`owned_entry`] of its controller's.
pub fn uid_and_owner(_: &Key, object: &Value) -> Vec<String> {
    let owner = controller_of(object).and_then(|owner| owner["uid"].as_str());
    owner.map(owned_entry).into_iter().chain([meta::uid(object).to_owned()]).collect()
}

/// Index entries of an object that controls and may be controlled: those of [`owner_index`], and [`own_entry`].
pub fn owner_and_own(key: &Key, object: &Value) -> Vec<String> {
    let mut entries = owner_index(key, object);
    entries.push(own_entry(meta::uid(object)));
    entries
}

/// Index entries of an object: [`own_entry`].
pub fn own_index(_: &Key, object: &Value) -> Vec<String> {
    vec![own_entry(meta::uid(object))]
}

/// The index entry of the object with this uid.
pub fn own_entry(uid: &str) -> String {
    format!("is {uid}")
}

/// The index entry of what a controller with this uid controls.
pub fn owned_entry(uid: &str) -> String {
    format!("owned by {uid}")
}

/// The index entry of objects in a namespace that nothing controls.
pub fn orphan_entry(namespace: &str) -> String {
    format!("orphans of {namespace}")
}

/// The selector at `spec.selector`, if it is a valid one that does not select everything.
pub fn selector(object: &Value) -> Option<Labels> {
    let selector = object.pointer("/spec/selector").filter(|s| !s.is_null())?;
    Labels::from_value(selector).ok().filter(|s| !s.is_empty())
}

/// `status` as a merge patch.
pub fn status_patch(status: &Value) -> freehold_client::Patch {
    freehold_client::Patch::Merge(json!({"status": status}))
}
