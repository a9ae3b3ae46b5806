//! The objects of an informer, projected and indexed, for reads without a request.

use crate::Key;
use freehold_machinery::PlaneId;
use parking_lot::RwLock;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Gives the index entries of an object: arbitrary strings within its plane.
pub(crate) type IndexFn<T> = Arc<dyn Fn(&Key, &T) -> Vec<String> + Send + Sync>;

/// The objects of an informer. Cheap to clone.
pub struct Store<T> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    objects: RwLock<Objects<T>>,
    index: Option<IndexFn<T>>,
    synced: watch::Sender<bool>,
    revision: AtomicU64,
}

struct Objects<T> {
    by_key: BTreeMap<Key, Arc<T>>,
    by_index: HashMap<(PlaneId, String), BTreeSet<Key>>,
}

impl<T> Clone for Store<T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<T> Store<T> {
    pub(crate) fn new(index: Option<IndexFn<T>>) -> Self {
        let objects = RwLock::new(Objects { by_key: BTreeMap::new(), by_index: HashMap::new() });
        Self {
            shared: Arc::new(Shared {
                objects,
                index,
                synced: watch::Sender::new(false),
                revision: AtomicU64::new(0),
            }),
        }
    }

    /// The object under a key, where the store has it.
    pub fn get(&self, key: &Key) -> Option<Arc<T>> {
        self.shared.objects.read().by_key.get(key).cloned()
    }

    /// All objects of a plane.
    pub fn in_plane(&self, plane: &PlaneId) -> Vec<(Key, Arc<T>)> {
        self.range(Key::new(plane.clone(), "", ""), |key| key.plane == *plane)
    }

    /// All objects of a namespace.
    pub fn in_namespace(&self, plane: &PlaneId, namespace: &str) -> Vec<(Key, Arc<T>)> {
        let start = Key::new(plane.clone(), namespace, "");
        self.range(start, |key| key.plane == *plane && *key.namespace == *namespace)
    }

    /// The objects that the index function gave `entry` for.
    pub fn by_index(&self, plane: &PlaneId, entry: &str) -> Vec<(Key, Arc<T>)> {
        let objects = self.shared.objects.read();
        let Some(keys) = objects.by_index.get(&(plane.clone(), entry.to_owned())) else { return Vec::new() };
        keys.iter().filter_map(|key| Some((key.clone(), objects.by_key.get(key)?.clone()))).collect()
    }

    /// How many objects the index function gave `entry` for.
    pub fn count_by_index(&self, plane: &PlaneId, entry: &str) -> usize {
        let objects = self.shared.objects.read();
        objects.by_index.get(&(plane.clone(), entry.to_owned())).map_or(0, BTreeSet::len)
    }

    /// All keys, in order.
    pub fn keys(&self) -> Vec<Key> {
        self.shared.objects.read().by_key.keys().cloned().collect()
    }

    /// How many objects are there.
    pub fn len(&self) -> usize {
        self.shared.objects.read().by_key.len()
    }

    /// Whether the store has no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until everything that was there at the start has been seen. `false`: the token was cancelled before.
    pub async fn synced(&self, token: &CancellationToken) -> bool {
        let mut synced = self.shared.synced.subscribe();
        tokio::select! {
            done = synced.wait_for(|synced| *synced) => done.is_ok(),
            () = token.cancelled() => false,
        }
    }

    /// Whether everything that was there at the start has been seen.
    pub fn is_synced(&self) -> bool {
        *self.shared.synced.borrow()
    }

    /// Whether the store has everything up to a resource version, for instance that of a write. Unreadable versions
    /// count as seen.
    pub fn has_seen(&self, resource_version: &str) -> bool {
        resource_version
            .parse()
            .map_or(true, |wanted: u64| self.shared.revision.load(Ordering::Acquire) >= wanted)
    }

    /// A plane's identifier as keys of the store have it: its text is held once for all objects of the plane.
    pub(crate) fn shared_plane(&self, plane: PlaneId) -> PlaneId {
        let objects = self.shared.objects.read();
        let first = objects.by_key.range(Key::new(plane.clone(), "", "")..).next();
        first.filter(|(key, _)| key.plane == plane).map_or(plane, |(key, _)| key.plane.clone())
    }

    pub(crate) fn set_revision(&self, resource_version: &str) {
        if let Ok(seen) = resource_version.parse() {
            self.shared.revision.fetch_max(seen, Ordering::AcqRel);
        }
    }

    fn range(&self, start: Key, within: impl Fn(&Key) -> bool) -> Vec<(Key, Arc<T>)> {
        let objects = self.shared.objects.read();
        let from = objects.by_key.range((Bound::Included(start), Bound::Unbounded));
        from.take_while(|(key, _)| within(key)).map(|(key, object)| (key.clone(), object.clone())).collect()
    }

    pub(crate) fn set_synced(&self) {
        self.shared.synced.send_if_modified(|synced| !std::mem::replace(synced, true));
    }

    /// Puts or removes an object and returns the previous one.
    pub fn replace(&self, key: &Key, new: Option<Arc<T>>) -> Option<Arc<T>> {
        let mut objects = self.shared.objects.write();
        let new_entries = self.entries(key, new.as_deref());
        let old = match new {
            Some(new) => objects.by_key.insert(key.clone(), new),
            None => objects.by_key.remove(key),
        };
        let old_entries = self.entries(key, old.as_deref());
        objects.reindex(key, old_entries, new_entries);
        old
    }

    fn entries(&self, key: &Key, object: Option<&T>) -> Vec<String> {
        match (&self.shared.index, object) {
            (Some(index), Some(object)) => index(key, object),
            _ => Vec::new(),
        }
    }
}

impl<T> Objects<T> {
    fn reindex(&mut self, key: &Key, old: Vec<String>, new: Vec<String>) {
        if old == new {
            return;
        }
        for entry in old {
            let at = (key.plane.clone(), entry);
            if let Some(keys) = self.by_index.get_mut(&at) {
                keys.remove(key);
                if keys.is_empty() {
                    self.by_index.remove(&at);
                }
            }
        }
        for entry in new {
            self.by_index.entry((key.plane.clone(), entry)).or_default().insert(key.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(plane: &str, namespace: &str, name: &str) -> Key {
        Key::new(plane.parse().unwrap(), namespace, name)
    }

    #[test]
    fn a_plane_or_namespace_is_read_without_its_neighbours() {
        let store = Store::new(None);
        for k in [
            key("a", "n", "1"),
            key("a", "n", "2"),
            key("a", "n2", "1"),
            key("a-b", "n", "1"),
            key("b", "", "x"),
        ] {
            store.replace(&k, Some(Arc::new(())));
        }
        let names = |list: Vec<(Key, Arc<()>)>| list.iter().map(|(k, _)| k.to_string()).collect::<Vec<_>>();
        assert_eq!(names(store.in_namespace(&"a".parse().unwrap(), "n")), ["a:n/1", "a:n/2"]);
        assert_eq!(names(store.in_plane(&"a".parse().unwrap())), ["a:n/1", "a:n/2", "a:n2/1"]);
        assert_eq!(names(store.in_plane(&"b".parse().unwrap())), ["b:x"]);
    }

    #[test]
    fn the_index_follows_changes_and_deletes() {
        let store = Store::new(Some(Arc::new(|_: &Key, owner: &String| vec![owner.clone()])));
        let plane = PlaneId::core();
        let k = key("core", "n", "1");
        store.replace(&k, Some(Arc::new("x".to_owned())));
        assert_eq!(store.by_index(&plane, "x").len(), 1);
        store.replace(&k, Some(Arc::new("y".to_owned())));
        assert_eq!((store.by_index(&plane, "x").len(), store.by_index(&plane, "y").len()), (0, 1));
        store.replace(&k, None);
        assert!(store.by_index(&plane, "y").is_empty() && store.is_empty());
    }
}
