//! What webhooks made of which content, for a short while.

use freehold_machinery::{PlaneId, ResourceType, Value};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

/// Bytes of content that are kept, twice.
const BUDGET: usize = 16 << 20;
/// How long something is kept at least where there is room; twice as long at most. A webhook that was put right shows
/// after that time.
const AGE: Duration = Duration::from_secs(10);

/// What was converted: the content, its type as it is now, and the version, of a plane.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Key([u8; 32], usize);

impl Key {
    /// Identifies a conversion of an object's JSON.
    pub(super) fn new(plane: &PlaneId, ty: &ResourceType, json: &[u8]) -> Self {
        let mut digest = Sha256::new();
        for part in [plane.as_str().as_bytes(), ty.hash.as_bytes(), ty.version.as_bytes()] {
            digest.update(part.len().to_le_bytes());
            digest.update(part);
        }
        digest.update(json);
        Self(digest.finalize().into(), json.len())
    }
}

/// Two generations: the younger takes what comes, and becomes the older when it is full or old.
#[derive(Default)]
pub(super) struct Kept(Mutex<Generations>);

#[derive(Default)]
struct Generations {
    young: HashMap<Key, Arc<Value>>,
    old: HashMap<Key, Arc<Value>>,
    bytes: usize,
    since: Option<Instant>,
}

impl Generations {
    fn age(&mut self) {
        let aged = self.since.is_some_and(|since| since.elapsed() >= AGE);
        if aged || self.bytes > BUDGET {
            let twice = self.since.is_some_and(|since| since.elapsed() >= 2 * AGE);
            self.old = std::mem::take(&mut self.young);
            if twice {
                self.old.clear();
            }
            self.bytes = 0;
            self.since = Some(Instant::now());
        }
    }
}

impl Kept {
    pub(super) fn get(&self, key: &Key) -> Option<Arc<Value>> {
        let mut kept = self.0.lock();
        kept.age();
        kept.young.get(key).or_else(|| kept.old.get(key)).cloned()
    }

    pub(super) fn put(&self, key: Key, value: &Arc<Value>) {
        if key.1 > BUDGET / 8 {
            return;
        }
        let mut kept = self.0.lock();
        kept.since.get_or_insert_with(Instant::now);
        kept.age();
        kept.bytes += key.1;
        kept.young.insert(key, value.clone());
    }
}
