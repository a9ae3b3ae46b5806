//! One change as watchers see it.

use crate::{
    Entry, Stack,
    codec::{self, Stored},
    log_skipped,
};
use bytes::Bytes;
use freehold_apiserver_storage as storage;
use freehold_machinery::PlaneId;
use parking_lot::Mutex;
use std::{
    ops::Range,
    sync::{Arc, OnceLock},
};

/// Encodings of one event that are cached; further ones are made by each watcher.
const MAX_FRAMES: usize = 16;

/// The kind of a change of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// It is new.
    Added,
    /// It changed.
    Modified,
    /// The object was deleted; the entry is its last state, at the revision of its deletion.
    Deleted,
}

/// One change of one object. Decoded on first use, once for all watchers.
pub struct CacheEvent {
    /// The plane of the object.
    pub plane: PlaneId,
    /// When it happened.
    pub revision: u64,
    collection: Range<u16>,
    key: storage::Key,
    layer: Arc<Stack>,
    /// By how many the plane's own keys grew.
    pub(crate) growth: i32,
    /// Bytes that it takes, about: its values as they came or decoded, and encoded.
    pub(crate) cost: usize,
    /// The store's event, until it is decoded.
    raw: Mutex<Option<storage::Event>>,
    /// The object before, where it is known: then it need not be decoded again.
    before: OnceLock<Arc<Entry>>,
    decoded: OnceLock<Decoded>,
    /// Frames of the event with its own kind, [`Change::kind`].
    plain: Frames,
    /// Frames of the event for watchers whose selector the object entered or left.
    turned: Frames,
}

/// A decoded event of the store.
struct Decoded {
    change: Option<Change>,
    /// The plane's own value after the event.
    own: OwnValue,
}

/// The encodings of an event, each made once for all its watchers.
#[derive(Default)]
struct Frames {
    /// The one that was made first, which most want.
    first: OnceLock<(u64, Bytes)>,
    all: Mutex<Vec<(u64, Arc<OnceLock<Bytes>>)>>,
}

impl Frames {
    fn get(&self, encoding: u64, make: impl FnOnce() -> Bytes) -> Bytes {
        if let Some((_, bytes)) = self.first.get().filter(|(id, _)| *id == encoding) {
            return bytes.clone();
        }
        let mut known = self.all.lock();
        let found = known.iter().find(|(id, _)| *id == encoding).map(|(_, cell)| cell.clone());
        let cell = match found {
            Some(cell) => cell,
            None if known.len() >= MAX_FRAMES => return make(),
            None => {
                let cell = Arc::default();
                known.push((encoding, Arc::clone(&cell)));
                cell
            }
        };
        drop(known);
        let bytes = cell.get_or_init(make);
        self.first.get_or_init(|| (encoding, bytes.clone()));
        bytes.clone()
    }
}

/// The meaning of an event with the plane's layers below it.
pub struct Change {
    /// The kind of the change.
    pub kind: EventKind,
    /// The object now, or its last state.
    pub entry: Arc<Entry>,
    /// The object before.
    pub previous: Option<Arc<Entry>>,
    /// The previous object at the revision of the event, for watchers whose selector it left.
    left: OnceLock<Arc<Entry>>,
}

/// The content of a plane's own key.
#[derive(Clone)]
pub(crate) enum OwnValue {
    Absent,
    /// From before the plane was put above its snapshot: it counts as absent, and is taken away little by little.
    Buried,
    Whiteout,
    Object(Arc<Entry>),
}

/// Reads the content of a key. The writer is not trusted: a value that no client can decode, or that is another key's
/// object, counts as absent.
pub(crate) fn read(key: &storage::Key, value: Option<&Bytes>, created: u64, modified: u64) -> OwnValue {
    match value.and_then(codec::decode) {
        None if value.is_none() => OwnValue::Absent,
        Some(Stored::Whiteout) => OwnValue::Whiteout,
        Some(Stored::Json(json)) => match Entry::new(&json, created, modified) {
            // An object has its place in itself; no other than that of its key.
            Ok(entry) if !is_at(&entry, key) => skip(key, &"it is an object of another key"),
            Ok(entry) if entry.uid().is_empty() => skip(key, &"it has no uid"),
            Ok(entry) => OwnValue::Object(Arc::new(entry)),
            Err(error) => skip(key, &error),
        },
        None => skip(key, &"its format is not known"),
    }
}

fn skip(key: &storage::Key, why: &dyn std::fmt::Display) -> OwnValue {
    log_skipped(key, why);
    OwnValue::Absent
}

/// Checks a value that an untrusted writer puts under an object's key: it must be read back as an object of that
/// place, or as a whiteout.
///
/// # Errors
/// What is wrong with the value, in words.
pub fn check(key: &storage::Key, value: &Bytes) -> Result<(), &'static str> {
    match codec::decode(value) {
        Some(Stored::Whiteout) if value.len() == 1 => Ok(()),
        Some(Stored::Json(json)) => match Entry::new(&json, 1, 1) {
            Ok(entry) if !is_at(&entry, key) => Err("the object's place is that of another key"),
            Ok(entry) if entry.uid().is_empty() => Err("the object has no uid"),
            Ok(_) => Ok(()),
            Err(_) => Err("it is no object that a client can read"),
        },
        _ => Err("its format is unknown"),
    }
}

/// Reads the content of a key in a plane whose record was written at revision `record`.
pub(crate) fn read_own(item: &storage::KeyValue, record: u64) -> OwnValue {
    match item.modified < record {
        true => OwnValue::Buried,
        false => read(&item.key, Some(&item.value), item.created, item.modified),
    }
}

/// Whether namespace and name of an object match its key, in a plane or a layer: the part behind
/// `<sort>/<id>/<group>/<resource>/`.
fn is_at(entry: &Entry, key: &storage::Key) -> bool {
    let before = key.as_bytes().strip_suffix(entry.place().as_bytes());
    before.is_some_and(|before| {
        before.ends_with(b"/") && before.iter().filter(|byte| **byte == b'/').count() == 4
    })
}

/// The range of the collection (`<group>/<resource>`) in the text of an object's key, from the length of the part up to
/// the plane's `/`; the object's name begins behind the next `/`. `None` for keys that are not objects.
pub(crate) fn split(key: &storage::Key) -> Option<(PlaneId, Range<usize>)> {
    let (plane, rest) = key.split_plane()?;
    let start = key.as_bytes().len() - rest.len();
    let group = rest.find('/')?;
    let resource = group + 1 + rest[group + 1..].find('/')?;
    let name = &rest[resource + 1..];
    (!name.is_empty() && name.bytes().filter(|b| *b == b'/').count() < 2)
        .then_some((plane, start..start + resource))
}

fn text(key: &storage::Key, range: Range<usize>) -> &str {
    std::str::from_utf8(&key.as_bytes()[range]).unwrap_or_default()
}

/// The collection that [`split`] found, and the object's name in it.
pub(crate) fn names(key: &storage::Key, collection: Range<usize>) -> (&str, &str) {
    let end = collection.end;
    (text(key, collection), text(key, end + 1..key.as_bytes().len()))
}

impl CacheEvent {
    /// An event of the store, above the layers of its plane. `None` for keys that are not objects.
    pub(crate) fn new(
        raw: storage::Event,
        layer: impl FnOnce(&PlaneId) -> Option<Arc<Stack>>,
    ) -> Option<Self> {
        let (plane, collection) = split(&raw.key)?;
        let layer = layer(&plane)?;
        let bytes = |value: Option<&Bytes>| value.map_or(0, Bytes::len);
        let previous = bytes(raw.previous.as_ref().map(|previous| &previous.value));
        Some(Self {
            collection: u16::try_from(collection.start).ok()?..u16::try_from(collection.end).ok()?,
            revision: raw.revision,
            layer,
            growth: match raw.value {
                Some(_) => i32::from(raw.created == raw.revision),
                None => -1,
            },
            cost: 3 * bytes(raw.value.as_ref()) + 2 * previous + 512,
            key: raw.key.clone(),
            raw: Mutex::new(Some(raw)),
            before: OnceLock::new(),
            decoded: OnceLock::new(),
            plain: Frames::default(),
            turned: Frames::default(),
            plane,
        })
    }

    /// A change that a plane's switch to another stack makes; `None` where nothing changes for a reader.
    pub(crate) fn switched(
        key: storage::Key,
        revision: u64,
        layer: Arc<Stack>,
        before: Option<Arc<Entry>>,
        after: Option<Arc<Entry>>,
    ) -> Option<Self> {
        let change = Change::between(before, after, revision)?;
        let raw = storage::Event { key, revision, value: None, created: 0, previous: None };
        let event = Self::new(raw, |_| Some(layer))?;
        Some(Self { decoded: Decoded { change: Some(change), own: OwnValue::Absent }.into(), ..event })
    }

    /// The object's collection, `<group>/<resource>`, `core` for the empty group.
    pub fn collection(&self) -> &str {
        text(&self.key, self.collection.start.into()..self.collection.end.into())
    }

    /// Whether that is its collection.
    pub(crate) fn is_of(&self, collection: &str) -> bool {
        let own = usize::from(self.collection.start)..usize::from(self.collection.end);
        self.key.as_bytes()[own] == *collection.as_bytes()
    }

    /// The object's name in its collection: `namespace/name` or `name`.
    pub fn name(&self) -> &str {
        names(&self.key, self.collection.start.into()..self.collection.end.into()).1
    }

    /// The object's namespace; `None` for one at the cluster scope.
    pub fn namespace(&self) -> Option<&str> {
        self.name().split_once('/').map(|(namespace, _)| namespace)
    }

    /// The object's collection and namespace, `<group>/<resource>/<namespace>`.
    pub(crate) fn collection_and_namespace(&self) -> Option<&str> {
        let behind = self.namespace()?.len() + 1;
        let (start, end) = (usize::from(self.collection.start), usize::from(self.collection.end));
        Some(text(&self.key, start..end + behind))
    }

    /// The object's collection and place, `<group>/<resource>/[<namespace>/]<name>`.
    pub(crate) fn collection_and_place(&self) -> &str {
        text(&self.key, usize::from(self.collection.start)..self.key.as_bytes().len())
    }

    /// The plane's own value after the event.
    pub(crate) fn own(&self) -> OwnValue {
        match self.growth {
            // A deletion need not be decoded for it.
            -1 => OwnValue::Absent,
            _ => self.decoded().own.clone(),
        }
    }

    /// The change that readers see; `None` where nothing changes for them.
    pub fn change(&self) -> Option<&Change> {
        self.decoded().change.as_ref()
    }

    /// Notes an object of this key that is known, which may be the one before.
    pub(crate) fn follows(&self, known: &Arc<Entry>) {
        let raw = self.raw.lock();
        let previous = raw.as_ref().and_then(|raw| raw.previous.as_ref());
        if previous.is_some_and(|previous| previous.modified == known.modified) {
            drop(self.before.set(known.clone()));
        }
    }

    /// Decodes the event and releases the store's bytes, of which entries have copies.
    fn decoded(&self) -> &Decoded {
        self.decoded.get_or_init(|| {
            let raw = self.raw.lock().take();
            let own = |value: Option<&Bytes>, created| read(&self.key, value, created, self.revision);
            let after = raw.as_ref().map_or(OwnValue::Absent, |raw| own(raw.value.as_ref(), raw.created));
            let previous = raw.as_ref().and_then(|raw| raw.previous.as_ref());
            let before = match (previous, self.before.get()) {
                (Some(previous), Some(_)) if previous.modified < self.layer.record() => OwnValue::Buried,
                (Some(_), Some(known)) => OwnValue::Object(known.clone()),
                (Some(previous), None) => read_own(previous, self.layer.record()),
                (None, _) => OwnValue::Absent,
            };
            Decoded { change: self.between(before, after.clone()), own: after }
        })
    }

    fn between(&self, before: OwnValue, after: OwnValue) -> Option<Change> {
        let above = |own: OwnValue| match own {
            OwnValue::Absent | OwnValue::Buried => {
                self.layer.get(&self.plane, self.collection(), self.name())
            }
            OwnValue::Whiteout => None,
            OwnValue::Object(entry) => Some(entry),
        };
        if let (OwnValue::Buried, OwnValue::Absent) = (&before, &after) {
            // It was absent for every reader before it was taken away.
            return None;
        }
        Change::between(above(before), above(after), self.revision)
    }

    /// The event as a frame of some encoding, made once for all watchers that use this encoding.
    ///
    /// `kind` is what the watcher sees: with a selector it can differ from [`Change::kind`]. `encoding` names everything
    /// else that the bytes depend on (version, form, what a view adds). Of each event 16 encodings are kept; whoever
    /// comes later makes its own.
    pub fn frame(&self, kind: EventKind, encoding: u64, make: impl FnOnce() -> Bytes) -> Bytes {
        let plain = self.change().is_some_and(|change| change.kind == kind);
        // A change can be turned in one way only: an object that comes is added, one that leaves is deleted. Both at
        // once for different watchers happens too, so the kind is part of the name.
        match plain {
            true => self.plain.get(encoding, make),
            false => self.turned.get(encoding.rotate_left(2) ^ kind as u64, make),
        }
    }
}

impl Change {
    fn between(before: Option<Arc<Entry>>, after: Option<Arc<Entry>>, revision: u64) -> Option<Self> {
        let (kind, entry) = match (&before, after) {
            (None, None) => return None,
            (None, Some(after)) => (EventKind::Added, after),
            (Some(_), Some(after)) => (EventKind::Modified, after),
            (Some(before), None) => (EventKind::Deleted, Arc::new(before.at_revision(revision))),
        };
        Some(Self { kind, entry, previous: before, left: OnceLock::new() })
    }

    /// The object's last state before it left a selection, at the revision of the change.
    pub fn left(&self, revision: u64) -> Option<Arc<Entry>> {
        let previous = self.previous.as_ref()?;
        Some(self.left.get_or_init(|| Arc::new(previous.at_revision(revision))).clone())
    }
}
