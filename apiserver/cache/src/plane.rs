//! One plane's objects.

use crate::{
    CacheEvent, Entry, Layer,
    event::{self, Own},
    layer::{Objects, bounds, collection, object_name},
};
use freehold_apiserver_storage::{KeyRange, Range, Store, StoreError};
use freehold_machinery::PlaneId;
use parking_lot::RwLock;
use std::{
    collections::{BTreeMap, btree_map::Entry as Slot},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

/// How many keys one read of a load asks for.
const LOAD_CHUNK: usize = 2_000;

/// A loaded plane.
pub(crate) struct PlaneCache {
    pub(crate) id: PlaneId,
    pub(crate) layer: Arc<Layer>,
    state: RwLock<State>,
    /// When it was asked for last, in seconds of the cache's clock.
    pub(crate) used: AtomicU64,
    /// Open watches on it.
    pub(crate) pins: AtomicUsize,
}

#[derive(Default)]
struct State {
    collections: BTreeMap<Box<str>, Collection>,
    /// The revision at which it was read from the store; events up to it are in it already.
    loaded: u64,
    /// Everything up to here is in it.
    revision: u64,
    /// Events that came while it was loading; `None` once it is loaded.
    pending: Option<Vec<Arc<CacheEvent>>>,
    bytes: usize,
}

/// A plane's own objects of one resource.
#[derive(Default)]
struct Collection {
    objects: Objects,
    /// Hidden objects of the layer, with the revision that hid them.
    whiteouts: BTreeMap<Box<str>, u64>,
    /// The last revision that changed it.
    changed: u64,
}

/// Objects of one collection as of one revision.
pub(crate) struct Snapshot {
    pub(crate) objects: Vec<(Box<str>, Arc<Entry>)>,
    pub(crate) revision: u64,
    /// The last revision that changed the collection.
    pub(crate) changed: u64,
}

impl PlaneCache {
    /// A plane that takes in events but is not loaded.
    pub(crate) fn loading(id: PlaneId, layer: Arc<Layer>) -> Self {
        let state = RwLock::new(State { pending: Some(Vec::new()), ..State::default() });
        Self { id, layer, state, used: AtomicU64::new(0), pins: AtomicUsize::new(0) }
    }

    /// Reads the plane from the store and then applies what happened meanwhile.
    pub(crate) async fn load(&self, store: &dyn Store) -> Result<(), StoreError> {
        let mut loaded = State::default();
        let mut keys = KeyRange::plane(&self.id);
        let mut at = None;
        loop {
            let page =
                store.range(Range { keys: keys.clone(), at, limit: LOAD_CHUNK, keys_only: false }).await?;
            let revision = *at.get_or_insert(page.revision);
            (loaded.loaded, loaded.revision) = (revision, revision);
            let next = page.items.last().map(|last| KeyRange::one(&last.key).end);
            for item in page.items {
                let Some((_, path)) = item.key.object_path() else { continue };
                let own = event::read(&item.key, Some(&item.value), item.created, item.modified);
                let name = object_name(path.namespace.as_deref(), &path.name);
                loaded.put(&collection(&path.group, &path.resource), &name, own, item.modified);
            }
            match next {
                Some(next) if page.more => keys = keys.from_key(next),
                _ => break,
            }
        }
        let mut state = self.state.write();
        for event in state.pending.take().unwrap_or_default() {
            loaded.apply(&event);
        }
        *state = loaded;
        Ok(())
    }

    /// Takes in an event.
    pub(crate) fn apply(&self, event: &Arc<CacheEvent>) {
        let mut state = self.state.write();
        match &mut state.pending {
            Some(pending) => pending.push(event.clone()),
            None => state.apply(event),
        }
    }

    /// An object, from the plane itself or the layer below.
    pub(crate) fn get(&self, collection: &str, name: &str) -> Option<Arc<Entry>> {
        let state = self.state.read();
        if let Some(own) = state.collections.get(collection) {
            if let Some(entry) = own.objects.get(name) {
                return Some(entry.clone());
            }
            if own.whiteouts.contains_key(name) {
                return None;
            }
        }
        self.layer.get(&self.id, collection, name)
    }

    /// Whether the plane itself has a key for the object, a whiteout included, and the revision that wrote it.
    pub(crate) fn own_revision(&self, collection: &str, name: &str) -> u64 {
        let state = self.state.read();
        let Some(own) = state.collections.get(collection) else { return 0 };
        own.objects.get(name).map(|entry| entry.modified).or(own.whiteouts.get(name).copied()).unwrap_or(0)
    }

    /// Objects of a collection, layer included.
    pub(crate) fn snapshot(
        &self,
        collection: &str,
        namespace: Option<&str>,
        base: bool,
        applied: u64,
    ) -> Snapshot {
        let state = self.state.read();
        let revision = state.revision.max(applied);
        let own = state.collections.get(collection);
        let below = if base { self.layer.range(&self.id, collection, namespace) } else { Objects::new() };
        let changed = own.map_or(0, |c| c.changed);
        let mine = own.map(|c| c.objects.range(bounds(namespace)));
        if below.is_empty() {
            let objects = mine.into_iter().flatten().map(|(n, e)| (n.clone(), e.clone())).collect();
            return Snapshot { objects, revision, changed };
        }
        let mut merged = below;
        if let Some(own) = own {
            for hidden in own.whiteouts.keys() {
                merged.remove(hidden);
            }
        }
        merged.extend(mine.into_iter().flatten().map(|(n, e)| (n.clone(), e.clone())));
        Snapshot { objects: merged.into_iter().collect(), revision, changed }
    }

    /// The last revision that changed a collection; the layer's where the plane has nothing of it.
    pub(crate) fn changed(&self, collection: &str) -> u64 {
        self.state.read().collections.get(collection).map_or(0, |c| c.changed).max(self.layer.revision())
    }

    /// Bytes that it takes, about.
    pub(crate) fn bytes(&self) -> usize {
        self.state.read().bytes
    }

    /// Whether nothing of the plane's own is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.state.read().collections.values().all(|c| c.objects.is_empty() && c.whiteouts.is_empty())
    }

    /// Marks it as used now.
    pub(crate) fn touch(&self, now: u64) {
        self.used.store(now, Ordering::Relaxed);
    }
}

impl State {
    fn apply(&mut self, event: &CacheEvent) {
        if event.revision > self.loaded {
            self.put(event.collection(), event.name(), event.own(), event.revision);
            self.revision = self.revision.max(event.revision);
        }
    }

    fn put(&mut self, collection: &str, name: &str, own: Own, revision: u64) {
        if !self.collections.contains_key(collection) {
            if matches!(own, Own::Absent) {
                return;
            }
            self.collections.insert(collection.into(), Collection::default());
        }
        let Some(slot) = self.collections.get_mut(collection) else { return };
        slot.changed = slot.changed.max(revision);
        slot.whiteouts.remove(name);
        let before = match (own, slot.objects.entry(name.into())) {
            (Own::Object(entry), Slot::Occupied(mut old)) => {
                self.bytes += entry.cost();
                Some(old.insert(entry))
            }
            (Own::Object(entry), Slot::Vacant(vacant)) => {
                self.bytes += entry.cost();
                vacant.insert(entry);
                None
            }
            (other, old) => {
                if matches!(other, Own::Whiteout) {
                    slot.whiteouts.insert(name.into(), revision);
                }
                match old {
                    Slot::Occupied(old) => Some(old.remove()),
                    Slot::Vacant(_) => None,
                }
            }
        };
        self.bytes -= before.map_or(0, |entry| entry.cost());
    }
}
