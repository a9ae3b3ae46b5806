//! What many planes have in common, held once.

use crate::{Entry, entry::Unreadable};
use freehold_machinery::{PlaneId, Value, meta};
use std::{collections::BTreeMap, ops::Bound, sync::Arc};
use uuid::Uuid;

/// The objects of one collection, by `namespace/name` or `name`.
pub(crate) type Objects = BTreeMap<Box<str>, Arc<Entry>>;

/// An immutable set of objects that lies below a plane's own.
///
/// Namespaces get a uid of their own in each plane, because clients take the uid of `kube-system` for the identity of a
/// cluster; every other object has the same uid everywhere.
#[derive(Debug, Default)]
pub struct Layer {
    collections: BTreeMap<Box<str>, Objects>,
    revision: u64,
}

/// Says which layer lies below a plane.
pub trait LayerSource: Send + Sync + 'static {
    /// The layer of a plane.
    fn layer(&self, plane: &PlaneId) -> Arc<Layer>;
}

const NAMESPACES: &str = "core/namespaces";

/// The name of a collection: the part of a key between plane and object.
pub(crate) fn collection(group: &str, resource: &str) -> String {
    format!("{}/{resource}", if group.is_empty() { "core" } else { group })
}

/// The name of an object within its collection.
pub(crate) fn object_name(namespace: Option<&str>, name: &str) -> String {
    namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"))
}

/// The bounds of what lies in a namespace, or of everything.
pub(crate) fn bounds(namespace: Option<&str>) -> (Bound<Box<str>>, Bound<Box<str>>) {
    match namespace {
        // '0' is the character behind '/'.
        Some(ns) => (Bound::Included(format!("{ns}/").into()), Bound::Excluded(format!("{ns}0").into())),
        None => (Bound::Unbounded, Bound::Unbounded),
    }
}

impl Layer {
    /// A layer of `(group, resource, object)`s, installed at a revision, which is the resource version of all of them.
    pub fn new(objects: Vec<(String, String, Value)>, revision: u64) -> Result<Self, Unreadable> {
        let mut layer = Self { revision, ..Self::default() };
        for (group, resource, mut object) in objects {
            meta::remove(&mut object, "resourceVersion");
            let namespace = Some(meta::namespace(&object)).filter(|n| !n.is_empty());
            let name = object_name(namespace, meta::name(&object));
            let entry = Entry::new(object.to_string().as_bytes(), revision, revision)?;
            let objects = layer.collections.entry(collection(&group, &resource).into()).or_default();
            objects.insert(name.into(), Arc::new(entry));
        }
        Ok(layer)
    }

    /// The revision at which it was installed.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn get(&self, plane: &PlaneId, collection: &str, name: &str) -> Option<Arc<Entry>> {
        let entry = self.collections.get(collection)?.get(name)?;
        Some(own(plane, collection, entry))
    }

    pub(crate) fn range(&self, plane: &PlaneId, collection: &str, namespace: Option<&str>) -> Objects {
        let Some(objects) = self.collections.get(collection) else { return Objects::new() };
        objects
            .range(bounds(namespace))
            .map(|(name, entry)| (name.clone(), own(plane, collection, entry)))
            .collect()
    }
}

fn own(plane: &PlaneId, collection: &str, entry: &Arc<Entry>) -> Arc<Entry> {
    if collection != NAMESPACES {
        return entry.clone();
    }
    let seed = format!("{plane}/{}", entry.name());
    let uid = Uuid::new_v5(&Uuid::NAMESPACE_URL, seed.as_bytes()).to_string();
    Arc::new(entry.with_uid(&uid))
}
