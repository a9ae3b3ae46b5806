//! Waiting for one's own writes to show up in stores.
//!
//! A reconcile that begins before its last write has come back through the watch would see the world without it and do
//! it again. So it notes the resource version that the write gave; resource versions are one order over all objects,
//! and a store tells how far it has seen. The event of the write makes the key come again.

use freehold_controller_manager_runtime::{QueueKey, Store};
use freehold_machinery::{Value, meta};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// After this time a write that never came back is given up.
const PATIENCE: Duration = Duration::from_secs(30);

/// The last writes of each key. An entry is forgotten when it has been seen.
pub(crate) struct Expectations<K> {
    written: Mutex<HashMap<K, (u64, Instant)>>,
}

impl<K> Default for Expectations<K> {
    fn default() -> Self {
        Self { written: Mutex::default() }
    }
}

impl<K: QueueKey> Expectations<K> {
    /// Notes what a write answered with.
    pub(crate) fn expect(&self, key: &K, answer: &Value) {
        let Ok(version) = meta::resource_version(answer).parse::<u64>() else { return };
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = written.entry(key.clone()).or_insert((version, Instant::now()));
        *entry = (entry.0.max(version), Instant::now());
    }

    /// Whether a store has seen all writes of a key.
    pub(crate) fn are_met<T>(&self, key: &K, store: &Store<T>) -> bool {
        self.met(key, |version| store.has_seen(&version.to_string()))
    }

    fn met(&self, key: &K, seen: impl Fn(u64) -> bool) -> bool {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((version, at)) = written.get(key) else { return true };
        let met = seen(*version) || at.elapsed() > PATIENCE;
        if met {
            written.remove(key);
        }
        met
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_controller_manager_runtime::Key;
    use serde_json::json;

    #[test]
    fn a_key_waits_for_the_latest_of_its_writes() {
        let expectations = Expectations::default();
        let key = Key::new(freehold_machinery::PlaneId::core(), "", "a");
        for version in ["7", "5", "unreadable"] {
            expectations.expect(&key, &json!({"metadata": {"resourceVersion": version}}));
        }
        assert!(!expectations.met(&key, |version| version <= 6));
        assert!(expectations.met(&key, |version| version <= 7));
        assert!(expectations.met(&key, |_| false), "it is forgotten once it was met");
    }
}
