//! Layers, which many planes share, and the stack of them below a plane's own objects.

use crate::layer_kind::LayerKind;
use crate::{
    Entry,
    event::{self, OwnValue},
    merge::{Found, Slots, Span, Within, bounds, over},
};
use async_trait::async_trait;
use freehold_apiserver_storage::{Event, KeyValue, ObjectPath, StoreError};
use freehold_machinery::PlaneId;
use std::{collections::BTreeMap, fmt, sync::Arc};
use uuid::Uuid;

/// What a layer has under a name: an object, or that what lies below is hidden.
type Objects = BTreeMap<Box<str>, Option<Arc<Entry>>>;

/// An immutable set of objects below planes' own objects, shared by all planes above it.
#[derive(Debug, Default)]
pub struct Layer {
    collections: BTreeMap<Box<str>, Objects>,
    /// Texts that differ for each plane.
    texts: Option<Texts>,
    bytes: usize,
    objects: usize,
}

/// The layers below one plane, uppermost first.
///
/// Namespaces of the base get a uid of their own in each plane, and `kube-system` does in every layer, because clients
/// take its uid for the identity of a cluster; every other object has the same uid wherever its layer is shown.
#[derive(Debug)]
pub struct Stack {
    layers: Vec<(LayerKind, Arc<Layer>)>,
    revision: u64,
    content: u64,
    record: u64,
    keeps: bool,
}

/// How a [`Stack`] was put together.
#[derive(Clone, Copy, Debug, Default)]
pub struct StackInfo {
    /// The revision since which the plane has had it. Its objects have no lower resource version, and watches from
    /// before it are too old.
    pub revision: u64,
    /// Equal for stacks of the same layers.
    pub content: u64,
    /// The revision of the plane's record ([`Key::stack`](freehold_apiserver_storage::Key::stack)): 0 without a record.
    /// Each commit has to expect it; otherwise it could bring back state from before a restore.
    pub record: u64,
    /// Whether objects of class and base are protected from deletion.
    pub keeps: bool,
}

/// The object below a plane's own key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Below {
    /// Nothing: deleting the plane's own key deletes the object.
    Nothing,
    /// An object that a whiteout can hide.
    Hideable,
    /// An object that the plane's class doesn't allow to be deleted.
    Kept,
}

/// Which planes' stacks an event of the store changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Switch {
    /// The stack of one plane.
    Plane(PlaneId),
    /// The stacks of all planes of a class.
    Class(String),
}

/// Source of the layers below planes.
#[async_trait]
pub trait LayerSource: Send + Sync + 'static {
    /// The stack of a plane with this record, its layers loaded.
    async fn stack(&self, plane: &PlaneId, record: Option<&KeyValue>) -> Result<Arc<Stack>, StoreError>;

    /// The stack of a plane as the events that were followed say it, where all its layers are in memory.
    fn known(&self, plane: &PlaneId) -> Option<Arc<Stack>>;

    /// The stack of a plane as the followed events say it, with its layers loaded, as of a revision at which it was
    /// its stack: others may since have removed layers that it no longer stands on.
    async fn following(&self, plane: &PlaneId, at: u64) -> Result<Arc<Stack>, StoreError>;

    /// Applies an event of a record and returns the stacks that it changes; `None` for other events.
    async fn follow(&self, event: &Event) -> Result<Option<Switch>, StoreError>;

    /// The planes that have a snapshot below them.
    fn above_snapshots(&self) -> Vec<PlaneId>;

    /// Whether a plane is of a class.
    fn is_of_class(&self, plane: &PlaneId, class: &str) -> bool;

    /// Reads all records again, because events were missed.
    async fn refresh(&self) -> Result<(), StoreError>;

    /// Bytes that loaded layers take, about.
    fn bytes(&self) -> usize;
}

/// The ConfigMap in `kube-system` from which aggregated servers learn how to authenticate their users. In the base it
/// has [`PLANE`] where each plane is to have its own identifier.
pub const EXTENSION_AUTHENTICATION: &str = "extension-apiserver-authentication";
/// The placeholder for a plane's identifier in that ConfigMap.
pub const PLANE: &str = "{plane}";

/// Replacements in that ConfigMap of a plane, each as it is written within a JSON string.
#[derive(Clone)]
pub struct Texts(pub Arc<TextsOf>);

/// Returns the texts of one plane; called on each read of the object.
pub type TextsOf = dyn Fn(&PlaneId) -> Vec<(&'static str, String)> + Send + Sync;

impl fmt::Debug for Texts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Texts")
    }
}

const NAMESPACES: &str = "core/namespaces";
const CONFIG_MAPS: &str = "core/configmaps";
const KUBE_SYSTEM: &str = "kube-system";

/// The name of a collection: the part of a key between plane and object.
pub(crate) fn collection(group: &str, resource: &str) -> String {
    let group = if group.is_empty() { "core" } else { group };
    [group, "/", resource].concat()
}

/// The name of an object within its collection.
pub(crate) fn object_name(namespace: Option<&str>, name: &str) -> String {
    namespace.map_or_else(|| name.to_owned(), |namespace| [namespace, "/", name].concat())
}

impl Layer {
    /// Adds a stored value under a path: an object or a whiteout. Values that cannot be read are left out.
    pub fn add(&mut self, path: &ObjectPath, stored: &KeyValue) {
        let slot = match event::read(&stored.key, Some(&stored.value), stored.created, stored.modified) {
            OwnValue::Object(entry) => Some(entry),
            OwnValue::Whiteout => None,
            OwnValue::Absent | OwnValue::Buried => return,
        };
        self.put(path, slot);
    }

    /// Adds an object, or a whiteout for `None`.
    pub fn put(&mut self, path: &ObjectPath, slot: Option<Arc<Entry>>) {
        self.bytes += slot.as_ref().map_or(64, |entry| entry.cost());
        self.objects += usize::from(slot.is_some());
        let slots = self.collections.entry(collection(&path.group, &path.resource).into()).or_default();
        slots.insert(object_name(path.namespace.as_deref(), &path.name).into(), slot);
    }

    /// Puts each plane's own words into the ConfigMap [`EXTENSION_AUTHENTICATION`].
    pub fn with_texts(self, texts: Texts) -> Self {
        Self { texts: Some(texts), ..self }
    }

    /// Bytes that it takes, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many objects it has.
    pub fn len(&self) -> usize {
        self.objects
    }

    /// Whether it has no objects.
    pub fn is_empty(&self) -> bool {
        self.objects == 0
    }

    /// Its objects by the group and resource under which they are stored.
    pub fn collections(&self) -> impl Iterator<Item = ((&str, &str), impl Iterator<Item = &Arc<Entry>>)> {
        self.collections.iter().map(|(name, objects)| {
            let (group, resource) = name.split_once('/').unwrap_or_default();
            ((if group == "core" { "" } else { group }, resource), objects.values().flatten())
        })
    }

    fn find(&self, collection: &str, name: &str) -> Option<&Option<Arc<Entry>>> {
        self.collections.get(collection)?.get(name)
    }
}

impl Stack {
    /// A stack, uppermost layer first.
    pub fn new(layers: Vec<(LayerKind, Arc<Layer>)>, info: StackInfo) -> Self {
        let StackInfo { revision, content, record, keeps } = info;
        Self { layers, revision, content, record, keeps }
    }

    /// The revision since which the plane has had it.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Equal for stacks of the same layers.
    pub fn content(&self) -> u64 {
        self.content
    }

    /// The revision of the plane's record; 0 without one. OwnValue keys of the plane that were written before it count as
    /// absent: the record is how a restore takes them away, in one small commit.
    pub fn record(&self) -> u64 {
        self.record
    }

    /// An object as the layers have it, whatever the plane itself has above them.
    pub fn object(&self, plane: &PlaneId, path: &ObjectPath) -> Option<Arc<Entry>> {
        let name = object_name(path.namespace.as_deref(), &path.name);
        self.get(plane, &collection(&path.group, &path.resource), &name)
    }

    /// The objects of a resource, as a plane shows them that has nothing of its own of it.
    pub fn objects(&self, plane: &PlaneId, group: &str, resource: &str) -> Vec<Arc<Entry>> {
        let collection = &*collection(group, resource);
        let found = self.slots(Span { collection, within: Within::Everywhere, after: "" }, true);
        found.filter_map(|(_, found)| found).map(|found| self.show(plane, collection, found)).collect()
    }

    /// Whether a layer has something of a resource.
    pub fn has(&self, group: &str, resource: &str) -> bool {
        self.has_collection(&collection(group, resource))
    }

    /// Whether the snapshot has something of a resource.
    pub fn has_in_snapshot(&self, group: &str, resource: &str) -> bool {
        let collection = &*collection(group, resource);
        let snapshots = self.layers.iter().filter(|(kind, _)| *kind == LayerKind::Snapshot);
        snapshots.into_iter().any(|(_, layer)| layer.collections.contains_key(collection))
    }

    pub(crate) fn has_collection(&self, collection: &str) -> bool {
        self.layers.iter().any(|(_, layer)| layer.collections.contains_key(collection))
    }

    /// The objects below a plane's own, of all layers or of the snapshot alone.
    pub(crate) fn slots<'a>(&'a self, span: Span<'_>, all: bool) -> Slots<'a> {
        let (from, to) = bounds(span.within, span.after);
        let bounds = (from.as_ref().map(|place| &**place), to.as_ref().map(|place| &**place));
        let mut merged: Slots<'a> = Box::new(std::iter::empty());
        let layers = self.layers.iter().filter(|(kind, _)| all || *kind == LayerKind::Snapshot);
        for (nth, (kind, objects)) in layers
            .rev()
            .filter_map(|(kind, layer)| Some((*kind, layer.collections.get(span.collection)?)))
            .enumerate()
        {
            let found = move |entry: &'a Arc<Entry>| Found { layer: Some(kind), entry };
            let slots = objects
                .range::<str, _>(bounds)
                .map(move |(place, slot)| (&**place, slot.as_ref().map(found)));
            merged = if nth == 0 { Box::new(slots) } else { Box::new(over(slots, merged)) };
        }
        merged
    }

    /// An object as a plane shows it.
    pub(crate) fn show(&self, plane: &PlaneId, collection: &str, found: Found<'_>) -> Arc<Entry> {
        match found.layer {
            Some(kind) => self.own(plane, collection, kind, found.entry),
            None => found.entry.clone(),
        }
    }

    /// The objects of the snapshot that have finalizers: collection and name.
    pub(crate) fn held(&self) -> impl Iterator<Item = (&str, &str)> {
        let snapshots = self.layers.iter().filter(|(kind, _)| *kind == LayerKind::Snapshot);
        let slots = snapshots.flat_map(|(_, layer)| layer.collections.iter());
        slots.flat_map(|(collection, slots)| {
            let held =
                slots.iter().filter(|(_, slot)| slot.as_ref().is_some_and(|entry| entry.has_finalizers()));
            held.map(|(name, _)| (&**collection, &**name))
        })
    }

    /// Whether it has a snapshot.
    pub(crate) fn has_snapshot(&self) -> bool {
        self.layers.iter().any(|(kind, _)| *kind == LayerKind::Snapshot)
    }

    pub(crate) fn get(&self, plane: &PlaneId, collection: &str, name: &str) -> Option<Arc<Entry>> {
        let found = self.layers.iter().find_map(|(kind, layer)| Some((*kind, layer.find(collection, name)?)));
        let (kind, slot) = found?;
        slot.as_ref().map(|entry| self.own(plane, collection, kind, entry))
    }

    pub(crate) fn below(&self, collection: &str, name: &str) -> Below {
        let mut found = Below::Nothing;
        for (kind, layer) in &self.layers {
            match layer.find(collection, name) {
                None => {}
                Some(None) => break,
                Some(Some(_)) if *kind != LayerKind::Snapshot && self.keeps => return Below::Kept,
                Some(Some(_)) => found = Below::Hideable,
            }
        }
        found
    }

    /// An object as this plane has it.
    fn own(&self, plane: &PlaneId, collection: &str, kind: LayerKind, entry: &Arc<Entry>) -> Arc<Entry> {
        let named = collection == CONFIG_MAPS
            && kind == LayerKind::Base
            && (entry.namespace(), entry.name()) == (KUBE_SYSTEM, EXTENSION_AUTHENTICATION);
        if named {
            let base = self.layers.iter().find(|(kind, _)| *kind == LayerKind::Base);
            let texts = base.and_then(|(_, layer)| layer.texts.as_ref()).map(|texts| texts.0(plane));
            let own =
                entry.with_texts([(PLANE, plane.to_string())].into_iter().chain(texts.unwrap_or_default()));
            return Arc::new(if own.modified < self.revision { own.at_revision(self.revision) } else { own });
        }
        let renamed =
            collection == NAMESPACES && (kind != LayerKind::Snapshot || entry.name() == KUBE_SYSTEM);
        let newer = entry.modified < self.revision;
        match (renamed, newer) {
            (false, false) => entry.clone(),
            (false, true) => Arc::new(entry.at_revision(self.revision)),
            (true, _) => {
                let seed = format!("{plane}/{}", entry.name());
                let uid = Uuid::new_v5(&Uuid::NAMESPACE_URL, seed.as_bytes()).to_string();
                let own = entry.with_uid(&uid);
                Arc::new(if newer { own.at_revision(self.revision) } else { own })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_apiserver_storage::Key;
    use serde_json::json;

    fn path(name: &str) -> ObjectPath {
        ObjectPath { group: String::new(), resource: "namespaces".into(), namespace: None, name: name.into() }
    }

    fn layer(names: &[(&str, bool)], revision: u64) -> Arc<Layer> {
        let mut layer = Layer::default();
        for (name, there) in names {
            let object = json!({"metadata": {"name": name, "uid": "00000000-0000-0000-0000-000000000000"}});
            let value = if *there { crate::codec::encode(&object) } else { crate::codec::whiteout() };
            let key = Key::object(&PlaneId::core(), &path(name));
            layer.add(&path(name), &KeyValue { key, value, created: revision, modified: revision });
        }
        Arc::new(layer)
    }

    fn stack(keeps: bool) -> Stack {
        let base = layer(&[("a", true), ("b", true), ("kube-system", true)], 3);
        let snapshot = layer(&[("a", false), ("b", true), ("c", true), ("kube-system", true)], 5);
        let layers = vec![(LayerKind::Snapshot, snapshot), (LayerKind::Base, base)];
        Stack::new(layers, StackInfo { revision: 9, content: 1, record: 9, keeps })
    }

    #[test]
    fn layers_merge_from_the_top_and_whiteouts_hide() {
        let (plane, stack) = ("p".parse().unwrap(), stack(false));
        let span = Span { collection: NAMESPACES, within: Within::Everywhere, after: "" };
        let found = stack.slots(span, true).filter_map(|(_, found)| found);
        let listed: Vec<_> = found.map(|found| stack.show(&plane, NAMESPACES, found)).collect();
        assert_eq!(listed.iter().map(|entry| entry.place()).collect::<Vec<_>>(), ["b", "c", "kube-system"]);
        assert!(
            listed.iter().all(|entry| entry.modified == 9),
            "no resource version is from before the stack"
        );
        assert!(stack.get(&plane, NAMESPACES, "a").is_none());
        assert_eq!(stack.below(NAMESPACES, "a"), Below::Nothing);
        assert_eq!(stack.below(NAMESPACES, "b"), Below::Hideable);
        assert_eq!(self::stack(true).below(NAMESPACES, "b"), Below::Kept);
        assert_eq!(self::stack(true).below(NAMESPACES, "c"), Below::Hideable);
    }

    #[test]
    fn a_plane_has_an_identity_of_its_own_and_keeps_the_others() {
        let stack = stack(false);
        let uid = |plane: &str, name: &str| {
            stack.get(&plane.parse().unwrap(), NAMESPACES, name).unwrap().uid().to_owned()
        };
        assert_ne!(uid("p", "kube-system"), uid("q", "kube-system"));
        assert_eq!(uid("p", "c"), uid("q", "c"));
    }
}
