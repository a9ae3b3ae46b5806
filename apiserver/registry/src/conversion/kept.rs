//! What webhooks made of which content, for a short while.

use freehold_machinery::{PlaneId, ResourceType, Value};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

/// Bytes of memory that converted objects of a generation may take.
const BUDGET: usize = 16 << 20;
/// How long something is kept at least where there is room; twice as long at most. A webhook that was put right shows
/// after that time.
const AGE: Duration = Duration::from_secs(10);

/// What was converted: the content, its type as it is now, and the version, of a plane.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Key([u8; 32]);

impl Key {
    /// Identifies a conversion of an object's JSON.
    pub(super) fn new(plane: &PlaneId, ty: &ResourceType, json: &[u8]) -> Self {
        let mut digest = Sha256::new();
        for part in [plane.as_str().as_bytes(), ty.hash.as_bytes(), ty.version.as_bytes()] {
            digest.update(part.len().to_le_bytes());
            digest.update(part);
        }
        digest.update(json);
        Self(digest.finalize().into())
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
    /// Makes room for so many bytes more, and forgets what is too old.
    fn age(&mut self, more: usize) {
        let aged = self.since.is_some_and(|since| since.elapsed() >= AGE);
        if aged || self.bytes + more > BUDGET {
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
        kept.age(0);
        kept.young.get(key).or_else(|| kept.old.get(key)).cloned()
    }

    /// Keeps an answer that is small. What it weighs is its own memory: a webhook can answer a short question at length.
    pub(super) fn put(&self, key: Key, value: &Arc<Value>) {
        let bytes = weight(value);
        if bytes > BUDGET / 8 {
            return;
        }
        let mut kept = self.0.lock();
        kept.since.get_or_insert_with(Instant::now);
        kept.age(bytes);
        kept.bytes += bytes;
        kept.young.insert(key, value.clone());
    }
}

/// Bytes of a node of a map, which has room for eleven entries and is at least half full where there are several.
const NODE: usize = 11 * (size_of::<String>() + size_of::<Value>()) + 16;

/// Bytes of memory that a value takes, roughly, and rather more than less.
fn weight(value: &Value) -> usize {
    let inner = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(weight).sum(),
        Value::Object(map) => {
            let entries = map.iter().map(|(key, value)| key.len() + weight(value));
            map.len().div_ceil(6) * NODE + entries.sum::<usize>()
        }
        _ => 0,
    };
    size_of::<Value>() + inner
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn kept(kept: &Kept) -> usize {
        let kept = kept.0.lock();
        kept.young.values().chain(kept.old.values()).map(|value| weight(value)).sum()
    }

    #[test]
    fn long_answers_to_short_questions_stay_within_the_budget() {
        let answers = Kept::default();
        let answer = Arc::new(json!(vec![json!({"": 0}); 2_000]));
        assert!(weight(&answer) > 2_000 * 600 && weight(&answer) < BUDGET / 8);
        for number in 0..1_000_u32 {
            answers.put(Key(std::array::from_fn(|at| number.to_le_bytes()[at % 4])), &answer);
        }
        assert!(kept(&answers) <= 2 * BUDGET, "{}", kept(&answers));
        answers.put(Key([9; 32]), &Arc::new(json!(vec![json!({"": 0}); 100_000])));
        assert!(answers.get(&Key([9; 32])).is_none(), "too large for keeping");
    }
}
