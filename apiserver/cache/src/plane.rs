//! One plane's objects.

use crate::{
    CacheEvent, Entry, LayerSource, Stack,
    event::{self, OwnValue},
    index::{By, Indexes, WORTHWHILE},
    merge::{Found, Slot, Span, Within, bounds, over},
    objects::{Objects, Run},
};
use bytes::Bytes;
use freehold_apiserver_storage::{Key, KeyRange, KeyValue, Range, Store, StoreError};
use freehold_machinery::PlaneId;
use parking_lot::RwLock;
use std::{
    collections::BTreeMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

/// How many keys one read of a load asks for: what is read lies in memory beside what is kept of it.
const LOAD_CHUNK: usize = 250;
/// Objects that are put into an index before others may write.
const FILL_CHUNK: usize = 500;
/// What a loaded plane takes beside its objects, and what each of its collections does, in bytes, about.
const PLANE_OVERHEAD: usize = 512;
const COLLECTION_OVERHEAD: usize = 256;
/// What a whiteout takes beside its name.
const WHITEOUT: usize = 64;

/// A loaded plane.
pub(crate) struct PlaneCache {
    pub(crate) id: PlaneId,
    stack: OnceLock<Arc<Stack>>,
    state: RwLock<State>,
    /// When it was asked for last, in seconds of the cache's clock.
    pub(crate) used: AtomicU64,
    /// Open watches on it, and requests that load it.
    pins: Arc<AtomicUsize>,
}

#[derive(Default)]
struct State {
    collections: BTreeMap<Box<str>, Collection>,
    /// By which objects of large collections are found; most planes have none.
    indexes: BTreeMap<Box<str>, Indexes>,
    /// The revision at which it was read from the store; events up to it are in it already.
    loaded: u64,
    /// Everything up to here is in it.
    revision: u64,
    /// The revision of what lies below.
    stack: u64,
    /// The revision of the plane's record: own keys that were written before it are buried.
    record: u64,
    /// Events that came while it was loading; `None` once it is loaded.
    pending: Option<Vec<Arc<CacheEvent>>>,
    bytes: usize,
    /// Bytes beyond which a collection is not kept here.
    most: usize,
}

/// A plane's own objects of one resource.
#[derive(Default)]
struct Collection {
    objects: Objects,
    /// Hidden objects of the layer, with the revision that hid them.
    whiteouts: BTreeMap<Box<str>, u64>,
    /// Keys from before the plane was put above its snapshot, with the revision that wrote each, until they are gone.
    buried: BTreeMap<Box<str>, u64>,
    /// The last revision that changed it.
    changed: u64,
    bytes: usize,
    /// It is too large to be kept in memory: nothing of it is here, and readers ask the store.
    large: bool,
}

/// Keeps a plane in memory while there is room, and nothing of one that was dropped.
pub(crate) struct Pin(Arc<AtomicUsize>);

impl Drop for Pin {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What a plane has of its own in a collection as of one revision. What lies below never changes, so it need not be looked
/// at while the plane takes in no events.
pub(crate) struct Snapshot<'a> {
    plane: &'a PlaneCache,
    span: Span<'a>,
    objects: Run,
    whiteouts: Vec<Box<str>>,
    /// How many objects lie behind those, where it was asked for some alone.
    pub(crate) rest: usize,
    pub(crate) revision: u64,
    /// The last revision that changed the collection.
    pub(crate) changed: u64,
}

impl<'a> Snapshot<'a> {
    /// The plane's objects, layers included, in order, none of them copied.
    pub(crate) fn found(&self) -> impl Iterator<Item = Found<'_>> {
        let objects = self.objects.iter().map(|entry| (entry.place(), Some(Found::own(entry))));
        let whiteouts = self.whiteouts.iter().map(|place| -> Slot<'_> { (&**place, None) });
        let below = self.plane.stack.get().map(|stack| stack.slots(self.span, true));
        over(over(objects, whiteouts), below.into_iter().flatten()).filter_map(|(_, found)| found)
    }

    /// An object as the plane shows it.
    pub(crate) fn show(&self, found: Found<'_>) -> Arc<Entry> {
        match self.plane.stack.get() {
            Some(stack) => stack.show(&self.plane.id, self.span.collection, found),
            None => found.entry.clone(),
        }
    }

    /// All of the plane's objects, layers included.
    pub(crate) fn all(self) -> Vec<Arc<Entry>> {
        let below = self.plane.stack.get().is_some_and(|stack| stack.has_collection(self.span.collection));
        match below {
            true => self.found().map(|found| self.show(found)).collect(),
            false => self.objects.to_vec(),
        }
    }
}

impl PlaneCache {
    /// A plane that takes in events but is not loaded.
    /// Collections of more than `most` bytes are left to the store.
    pub(crate) fn loading(id: PlaneId, most: usize) -> Self {
        let state = RwLock::new(State { pending: Some(Vec::new()), most, ..State::default() });
        Self { id, stack: OnceLock::new(), state, used: AtomicU64::new(0), pins: Arc::default() }
    }

    /// What lies below its own objects; `None` until it is loaded.
    pub(crate) fn stack(&self) -> Option<&Arc<Stack>> {
        self.stack.get()
    }

    /// Reads the plane from the store and then applies what happened meanwhile.
    pub(crate) async fn load(&self, store: &dyn Store, layers: &dyn LayerSource) -> Result<(), StoreError> {
        let record_key = Key::stack(&self.id);
        let mut record = None;
        let mut loaded = State { most: self.state.read().most, ..State::default() };
        let mut keys = KeyRange::plane(&self.id);
        let mut at = None;
        loop {
            let page =
                store.range(Range { keys: keys.clone(), at, limit: LOAD_CHUNK, keys_only: false }).await?;
            let revision = *at.get_or_insert(page.revision);
            (loaded.loaded, loaded.revision) = (revision, revision);
            record = record.or_else(|| page.items.iter().find(|item| item.key == record_key).cloned());
            // It is the first of a plane's keys.
            loaded.record = record.as_ref().map_or(0, |record| record.modified);
            page.items.iter().for_each(|item| loaded.load(item));
            let next = page.items.last().map(|last| loaded.behind(&last.key));
            match next {
                Some(next) if page.more => keys = keys.from_key(next),
                _ => break,
            }
        }
        let stack = layers.stack(&self.id, record.as_ref()).await?;
        loaded.stack = stack.revision();
        drop(self.stack.set(stack));
        let mut state = self.state.write();
        for event in state.pending.take().unwrap_or_default() {
            loaded.apply(&event);
        }
        *state = loaded;
        Ok(())
    }

    /// The plane's own object that an event is about, as it is here.
    fn own(&self, event: &CacheEvent) -> Option<Arc<Entry>> {
        let state = self.state.read();
        state.collections.get(event.collection())?.objects.get(event.name()).cloned()
    }

    /// Takes in the events of one revision: a reader sees all of them or none.
    pub(crate) fn apply(&self, events: &[Arc<CacheEvent>]) {
        for event in events {
            // Before what is new there was nothing.
            let known = if event.growth < 1 { self.own(event) } else { None };
            known.iter().for_each(|known| event.follows(known));
            // Decoded here, so that no reader waits for that.
            drop(event.own());
        }
        let mut state = self.state.write();
        match &mut state.pending {
            Some(pending) => pending.extend_from_slice(events),
            None => events.iter().for_each(|event| state.apply(event)),
        }
    }

    /// An object, from the plane itself or the layer below, and the revision of the plane's own key, a whiteout's
    /// included; 0 where there is none. `None` where the collection is not kept in memory.
    pub(crate) fn find(&self, collection: &str, name: &str) -> Option<(Option<Arc<Entry>>, u64)> {
        let state = self.state.read();
        if let Some(own) = state.collections.get(collection) {
            if own.large {
                return None;
            }
            if let Some(entry) = own.objects.get(name) {
                return Some((Some(entry.clone()), entry.modified));
            }
            if let Some(hidden) = own.whiteouts.get(name) {
                return Some((None, *hidden));
            }
            let buried = own.buried.get(name).copied().unwrap_or(0);
            return Some((self.below(collection, name), buried));
        }
        Some((self.below(collection, name), 0))
    }

    /// An object of the layers below.
    pub(crate) fn below(&self, collection: &str, name: &str) -> Option<Arc<Entry>> {
        self.stack.get()?.get(&self.id, collection, name)
    }

    /// Objects of a collection, layers included; `None` where it is not kept in memory. Where no layer has a part in it,
    /// `most` of them alone, and how many more there are.
    /// Of those that `by` names a value of alone, if there is an index; it may be others too.
    pub(crate) fn snapshot<'a>(
        &'a self,
        span: Span<'a>,
        most: usize,
        applied: u64,
        by: Option<(By<&str>, &str)>,
    ) -> Option<Snapshot<'a>> {
        let below = self.has_below(span.collection);
        let most = if below { usize::MAX } else { most };
        let state = self.state.read();
        let revision = state.revision.max(applied);
        let own = state.collections.get(span.collection);
        if own.is_some_and(|own| own.large) {
            return None;
        }
        // What was deleted before it was loaded is not known here.
        let changed = own.map_or(0, |c| c.changed).max(state.stack).max(state.loaded);
        // What of the plane's own is not wanted still hides what lies below.
        let found = by.filter(|_| !below).and_then(|(by, value)| state.found(span.collection, by, value));
        let own_objects = found.unwrap_or_else(|| own.map(|own| &own.objects));
        let objects =
            own_objects.map(|objects| objects.run(span.within, span.after, most)).unwrap_or_default();
        let all = own_objects.map_or(0, |objects| objects.count(span.within, span.after));
        let rest = all - objects.len();
        let (from, to) = bounds(span.within, span.after);
        let bounds = (from.as_ref().map(|place| &**place), to.as_ref().map(|place| &**place));
        let whiteouts = own.iter().flat_map(|own| own.whiteouts.range::<str, _>(bounds));
        Some(Snapshot {
            plane: self,
            span,
            objects,
            whiteouts: whiteouts.map(|(place, _)| place.clone()).collect(),
            rest,
            revision,
            changed,
        })
    }

    fn has_below(&self, collection: &str) -> bool {
        self.stack.get().is_some_and(|stack| stack.has_collection(collection))
    }

    /// Takes note that a collection is asked for by a value, and makes an index of a large one of which that is asked
    /// again.
    pub(crate) fn index(&self, collection: &str, by: By<&str>) {
        if self.has_below(collection) || !self.state.read().lacks(collection, by) {
            return;
        }
        let present = {
            let mut state = self.state.write();
            let Some(own) = state.collections.get(collection) else { return };
            let present = own.objects.run(Within::Everywhere, "", usize::MAX);
            if !state.indexes_of(collection).ask(by) {
                return;
            }
            present
        };
        let mut entries = present.iter().peekable();
        while entries.peek().is_some() {
            let mut state = self.state.write();
            let State { collections, indexes, .. } = &mut *state;
            let own = collections.get(collection);
            let is_present = |entry: &&Arc<Entry>| {
                own.and_then(|own| own.objects.get(entry.place())).is_some_and(|now| Arc::ptr_eq(now, entry))
            };
            let some = entries.by_ref().take(FILL_CHUNK).filter(is_present);
            let indexes = indexes.get_mut(collection);
            if !indexes.is_some_and(|indexes| indexes.fill(by, some)) {
                return;
            }
        }
        self.state.write().indexes_of(collection).finish(by);
    }

    /// How many objects of its own the plane has in a collection, or in one namespace of it; `None` where the collection is
    /// not kept here.
    pub(crate) fn count(&self, collection: &str, namespace: Option<&str>) -> Option<usize> {
        let state = self.state.read();
        let Some(own) = state.collections.get(collection) else { return Some(0) };
        (!own.large).then(|| match namespace {
            None => own.objects.len(),
            Some(_) => own.objects.count(Within::namespace(namespace), ""),
        })
    }

    /// A revision that is another one after each change of a collection; the stack's where the plane has nothing of it.
    pub(crate) fn changed(&self, collection: &str) -> u64 {
        let state = self.state.read();
        // What was deleted before it was loaded is not known here.
        let changed = |c: &Collection| c.changed.max(state.loaded);
        state.collections.get(collection).map_or(0, changed).max(state.stack)
    }

    /// Whether the plane has something of its own in a collection, if only what hides others.
    pub(crate) fn has_own(&self, collection: &str) -> bool {
        let state = self.state.read();
        state.collections.get(collection).is_some_and(Collection::has_own)
    }

    /// Bytes that it takes, about.
    pub(crate) fn bytes(&self) -> usize {
        let state = self.state.read();
        let indexes = state.indexes.values().map(Indexes::bytes).sum::<usize>();
        state.bytes + indexes + PLANE_OVERHEAD + state.collections.len() * COLLECTION_OVERHEAD
    }

    /// Leaves the largest collection to the store from now on, because the plane takes too much as a whole.
    pub(crate) fn shed(&self) {
        let mut state = self.state.write();
        let largest = state.collections.iter().max_by_key(|(_, own)| own.bytes).map(|(name, _)| name.clone());
        if let Some(name) = largest {
            state.leave(&name);
        }
    }

    /// Whether nothing of the plane's own is left.
    pub(crate) fn is_empty(&self) -> bool {
        let state = self.state.read();
        state.collections.values().all(|c| !c.has_own() && c.buried.is_empty())
    }

    /// Keeps it in memory while there is room.
    pub(crate) fn pin(&self) -> Pin {
        self.pins.fetch_add(1, Ordering::AcqRel);
        Pin(self.pins.clone())
    }

    /// Whether it stays although nobody asks for it: somebody watches or loads it, or it is the core plane.
    pub(crate) fn is_pinned(&self) -> bool {
        self.pins.load(Ordering::Acquire) > 0 || self.id.is_core()
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

    /// Takes in what the store has under a key.
    fn load(&mut self, item: &KeyValue) {
        let Some((_, span)) = event::split(&item.key) else { return };
        let (collection, name) = event::names(&item.key, span);
        if self.collections.get(collection).is_some_and(|known| known.large) {
            return;
        }
        self.put(collection, name, event::read_own(item, self.record), item.modified);
    }

    /// The first key behind `key` that is worth loading: what is left of a large collection is not.
    fn behind(&self, key: &Key) -> Bytes {
        let next = || KeyRange::one(key).end;
        let Some((_, span)) = event::split(key) else { return next() };
        if !self.collections.get(event::names(key, span.clone()).0).is_some_and(|known| known.large) {
            return next();
        }
        // '0' is the character behind '/'.
        [&key.as_bytes()[..span.end], b"0"].concat().into()
    }

    /// Whether an index of a collection is worthwhile and not there.
    fn lacks(&self, collection: &str, by: By<&str>) -> bool {
        self.collections.get(collection).is_some_and(|own| own.objects.len() >= WORTHWHILE)
            && self.indexes.get(collection).is_none_or(|indexes| indexes.lacks(by))
    }

    fn indexes_of(&mut self, collection: &str) -> &mut Indexes {
        self.indexes.entry(collection.into()).or_default()
    }

    /// What an index finds, if there is one.
    fn found(&self, collection: &str, by: By<&str>, value: &str) -> Option<Option<&Objects>> {
        self.indexes.get(collection)?.find(by, value)
    }

    /// Leaves a collection to the store.
    fn leave(&mut self, collection: &str) {
        self.indexes.remove(collection);
        let Some(slot) = self.collections.get_mut(collection) else { return };
        self.bytes -= slot.bytes;
        // As of each revision up to now it may be another one.
        *slot = Collection { changed: self.revision.max(slot.changed), large: true, ..Collection::default() };
    }

    fn put(&mut self, collection: &str, name: &str, own: OwnValue, revision: u64) {
        if !self.collections.contains_key(collection) {
            if matches!(own, OwnValue::Absent) {
                return;
            }
            self.collections.insert(collection.into(), Collection::default());
        }
        let Some(slot) = self.collections.get_mut(collection) else { return };
        let bytes = slot.bytes;
        let indexes = self.indexes.get_mut(collection);
        let after = match (&indexes, &own) {
            (Some(_), OwnValue::Object(entry)) => Some(entry.clone()),
            _ => None,
        };
        let before = slot.put(name, own, revision);
        indexes.into_iter().for_each(|indexes| indexes.change(before.as_ref(), after.as_ref()));
        self.bytes = self.bytes + slot.bytes - bytes;
        if slot.bytes > self.most {
            self.leave(collection);
        }
    }
}

impl Collection {
    /// Whether a reader sees something of it.
    fn has_own(&self) -> bool {
        self.large || !self.objects.is_empty() || !self.whiteouts.is_empty()
    }

    /// Puts what the plane has of its own to its place, and gives the object that was there.
    fn put(&mut self, name: &str, own: OwnValue, revision: u64) -> Option<Arc<Entry>> {
        self.changed = self.changed.max(revision);
        if self.large {
            return None;
        }
        if self.whiteouts.remove(name).is_some() || self.buried.remove(name).is_some() {
            self.bytes -= name.len() + WHITEOUT;
        }
        let before = match own {
            OwnValue::Object(entry) => {
                self.bytes += entry.cost();
                self.objects.insert(entry)
            }
            OwnValue::Whiteout => {
                self.bytes += name.len() + WHITEOUT;
                self.whiteouts.insert(name.into(), revision);
                self.objects.remove(name)
            }
            OwnValue::Buried => {
                self.bytes += name.len() + WHITEOUT;
                self.buried.insert(name.into(), revision);
                None
            }
            OwnValue::Absent => self.objects.remove(name),
        };
        self.bytes -= before.as_ref().map_or(0, |entry| entry.cost());
        before
    }
}
