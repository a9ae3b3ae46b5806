//! Dictionaries: the one that the program brings, and those that were trained on a store's own objects.
//!
//! A trained dictionary lies at `system/dictionaries/<id, eight digits>/<group>/<resource>`, in zstd's own format. Its
//! type's values are compressed with the latest of them; each one is kept for good, since values need it. There are at
//! most [`MAX_TRAINED`] of them in a store.

use crate::{
    compress::{Dictionary, LEVEL},
    kinds::Type,
};
use freehold_apiserver_storage::{Key, KeyRange};
use parking_lot::RwLock;
use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

/// The identifier of the dictionary that the program brings. Identifiers below [`FIRST_TRAINED`] are for such ones: a
/// later program may bring another one besides, never instead.
pub(crate) const BUILT_IN: u32 = 1;
/// The identifier of the first dictionary that is trained.
pub(crate) const FIRST_TRAINED: u32 = 64;
/// Most trained dictionaries of a store.
pub(crate) const MAX_TRAINED: usize = 1024;
/// Most trained dictionaries that are digested at a time; further ones take the place of those not used for longest.
const MAX_LOADED: usize = 96;

static BUILT_IN_BYTES: &[u8] = include_bytes!("../data/builtin-1.dictionary");

static BUILT_IN_DICTIONARY: LazyLock<Arc<Dictionary>> = LazyLock::new(|| {
    let made = Dictionary::new(BUILT_IN, BUILT_IN_BYTES, LEVEL);
    Arc::new(made.expect("invariant: the program brings a dictionary of zstd's"))
});

/// What is known of a store's dictionaries.
#[derive(Default)]
pub(crate) struct Dictionaries {
    loaded: RwLock<HashMap<u32, Loaded>>,
    known: RwLock<DictionaryIndex>,
    clock: AtomicU64,
}

struct Loaded {
    dictionary: Arc<Dictionary>,
    used: AtomicU64,
}

#[derive(Default)]
struct DictionaryIndex {
    /// The latest of each type.
    latest: HashMap<Box<str>, u32>,
    ids: BTreeSet<u32>,
}

impl Dictionaries {
    /// A dictionary that is loaded.
    pub(crate) fn get(&self, id: u32) -> Option<Arc<Dictionary>> {
        if id == BUILT_IN {
            return Some(BUILT_IN_DICTIONARY.clone());
        }
        let loaded = self.loaded.read();
        let found = loaded.get(&id)?;
        found.used.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        Some(found.dictionary.clone())
    }

    /// The one to compress with: the latest of the type if it is loaded.
    pub(crate) fn of_type(&self, ty: Type<'_>) -> Arc<Dictionary> {
        let trained = self.latest(ty).and_then(|id| self.get(id));
        trained.unwrap_or_else(|| BUILT_IN_DICTIONARY.clone())
    }

    /// The latest of a type.
    pub(crate) fn latest(&self, ty: Type<'_>) -> Option<u32> {
        self.known.read().latest.get(ty.0).copied()
    }

    /// The latest of a type if it has to be loaded first.
    pub(crate) fn missing(&self, ty: Type<'_>) -> Option<u32> {
        self.latest(ty).filter(|id| !self.loaded.read().contains_key(id))
    }

    /// How many were trained, in all.
    pub(crate) fn trained(&self) -> usize {
        self.known.read().ids.len()
    }

    /// Takes note of one that lies in the store.
    pub(crate) fn note(&self, key: &Key) -> Option<u32> {
        let (id, ty) = parse(key)?;
        let mut known = self.known.write();
        known.ids.insert(id);
        let latest = known.latest.entry(ty.0.into()).or_insert(id);
        *latest = id.max(*latest);
        Some(id)
    }

    /// Digests one for use; false where the bytes are no dictionary.
    pub(crate) fn load(&self, id: u32, bytes: &[u8]) -> bool {
        let Some(dictionary) = Dictionary::new(id, bytes, LEVEL) else { return false };
        let mut loaded = self.loaded.write();
        while loaded.len() >= MAX_LOADED {
            let age = |loaded: &Loaded| loaded.used.load(Ordering::Relaxed);
            let oldest = loaded.iter().min_by_key(|(_, loaded)| age(loaded)).map(|(id, _)| *id);
            oldest.and_then(|id| loaded.remove(&id));
        }
        let used = AtomicU64::new(self.clock.fetch_add(1, Ordering::Relaxed));
        loaded.insert(id, Loaded { dictionary: Arc::new(dictionary), used });
        true
    }
}

/// All of them.
pub(crate) fn keys() -> KeyRange {
    KeyRange::system("dictionaries")
}

/// The key of one, whatever its type.
pub(crate) fn keys_of(id: u32) -> KeyRange {
    KeyRange::system(&format!("dictionaries/{id:08}"))
}

/// The key of one.
pub(crate) fn key(id: u32, ty: Type<'_>) -> Key {
    Key::system(&format!("dictionaries/{id:08}/{}", ty.0))
}

fn parse(key: &Key) -> Option<(u32, Type<'_>)> {
    let text = std::str::from_utf8(key.as_bytes()).ok()?;
    let (id, ty) = text.strip_prefix("system/dictionaries/")?.split_once('/')?;
    Some((id.parse().ok()?, Type(ty)))
}
