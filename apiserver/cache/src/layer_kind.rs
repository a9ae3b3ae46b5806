//! Roles of layers, and keys of what they hold.

use freehold_apiserver_storage::{Key, ObjectPath};
use freehold_machinery::PlaneId;

/// The role of a layer for the planes above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerKind {
    /// A snapshot of a project: its objects count as the plane's own, and are shown in views over all planes.
    Snapshot,
    /// The objects that a class adds to its planes.
    Class,
    /// The objects that every plane starts with.
    Base,
}

/// The key of an object by its collection and place.
pub(crate) fn key_of(plane: &PlaneId, collection: &str, place: &str) -> Key {
    let (group, resource) = collection.split_once('/').unwrap_or_default();
    let group = if group == "core" { "" } else { group };
    let (namespace, name) = match place.split_once('/') {
        Some((namespace, name)) => (Some(namespace.to_owned()), name),
        None => (None, place),
    };
    let (group, resource, name) = (group.to_owned(), resource.to_owned(), name.to_owned());
    Key::object(plane, &ObjectPath { group, resource, namespace, name })
}
