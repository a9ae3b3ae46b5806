//! One change as watchers see it.

use crate::{
    Entry, Layer,
    codec::{self, Stored},
    layer::{collection, object_name},
};
use bytes::Bytes;
use freehold_apiserver_storage as storage;
use freehold_machinery::PlaneId;
use std::sync::{Arc, OnceLock};

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// It is new.
    Added,
    /// It changed.
    Modified,
    /// It is gone; the entry is its last state at the revision of its deletion.
    Deleted,
}

/// One change of one object. Decoded when somebody looks, once for all who do.
pub struct CacheEvent {
    /// The plane of the object.
    pub plane: PlaneId,
    /// Its collection, `<group>/<resource>`, `core` for the empty group.
    pub collection: Box<str>,
    /// `namespace/name` or `name`.
    pub name: Box<str>,
    /// When it happened.
    pub revision: u64,
    raw: storage::Event,
    layer: Arc<Layer>,
    change: OnceLock<Option<Change>>,
    frames: [OnceLock<Bytes>; 2],
}

/// What an event means above the plane's layer.
pub struct Change {
    /// What happened.
    pub kind: EventKind,
    /// The object now, or its last state.
    pub entry: Arc<Entry>,
    /// The object before.
    pub previous: Option<Arc<Entry>>,
}

/// What a plane's own key holds.
pub(crate) enum Own {
    Absent,
    Whiteout,
    Object(Arc<Entry>),
}

pub(crate) fn read(key: &storage::Key, value: Option<&Bytes>, created: u64, modified: u64) -> Own {
    match value.and_then(codec::decode) {
        None if value.is_none() => Own::Absent,
        Some(Stored::Whiteout) => Own::Whiteout,
        Some(Stored::Json(json)) => match Entry::new(&json, created, modified) {
            Ok(entry) => Own::Object(Arc::new(entry)),
            Err(error) => {
                tracing::error!(?key, %error, "skipped an object of the store");
                Own::Absent
            }
        },
        None => {
            tracing::error!(?key, "skipped a value of an unknown format");
            Own::Absent
        }
    }
}

impl CacheEvent {
    /// An event of the store, above the layer of its plane. `None` for keys that are not objects.
    pub(crate) fn new(raw: storage::Event, layer: impl FnOnce(&PlaneId) -> Arc<Layer>) -> Option<Self> {
        let (plane, path) = raw.key.object_path()?;
        Some(Self {
            collection: collection(&path.group, &path.resource).into(),
            name: object_name(path.namespace.as_deref(), &path.name).into(),
            revision: raw.revision,
            layer: layer(&plane),
            change: OnceLock::new(),
            frames: [OnceLock::new(), OnceLock::new()],
            plane,
            raw,
        })
    }

    /// The plane's own value after the event.
    pub(crate) fn own(&self) -> Own {
        match (&self.raw.value, self.change()) {
            (Some(_), Some(change)) if change.kind != EventKind::Deleted => Own::Object(change.entry.clone()),
            (value, _) => read(&self.raw.key, value.as_ref(), self.raw.created, self.revision),
        }
    }

    /// What it means; `None` where nothing changes for a reader.
    pub fn change(&self) -> Option<&Change> {
        self.change.get_or_init(|| self.decode()).as_ref()
    }

    fn decode(&self) -> Option<Change> {
        let above = |own: Own| match own {
            Own::Absent => self.layer.get(&self.plane, &self.collection, &self.name),
            Own::Whiteout => None,
            Own::Object(entry) => Some(entry),
        };
        let previous = self.raw.previous.as_ref();
        let before =
            above(previous.map_or(Own::Absent, |p| read(&p.key, Some(&p.value), p.created, p.modified)));
        let after = above(read(&self.raw.key, self.raw.value.as_ref(), self.raw.created, self.revision));
        let (kind, entry) = match (&before, after) {
            (None, None) => return None,
            (None, Some(after)) => (EventKind::Added, after),
            (Some(_), Some(after)) => (EventKind::Modified, after),
            (Some(before), None) => (EventKind::Deleted, Arc::new(before.at_revision(self.revision))),
        };
        Some(Change { kind, entry, previous: before })
    }

    /// Bytes that it takes, about.
    pub(crate) fn cost(&self) -> usize {
        let previous = self.raw.previous.as_ref().map_or(0, |p| p.value.len());
        2 * (self.raw.value.as_ref().map_or(0, Bytes::len) + previous) + 512
    }

    /// A frame that is made once for all watchers; `slot` tells forms apart (0 or 1).
    pub fn frame(&self, slot: usize, make: impl FnOnce() -> Bytes) -> Bytes {
        self.frames[slot].get_or_init(make).clone()
    }
}
