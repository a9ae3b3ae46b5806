//! Waiting for one's own writes to show up in stores.
//!
//! A reconcile that begins before its last write has come back through the watch would see the world without it and do
//! it again. So it notes the resource version that the write gave; resource versions are one order over all objects,
//! and a store tells how far it has seen. The event of the write makes the key come again; but a store that is listed anew
//! tells how far it has seen only when all of it is there, with no event: so a key that waits also looks by itself.

use freehold_machinery::{Value, meta};
use freehold_runtime::{Outcome, QueueKey, Store};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// After this time a write that never came back is given up.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a reconcile gives whose own writes have not shown up yet. Looking costs no request.
pub const NOT_YET: Outcome = Outcome::After(Duration::from_secs(1));

/// The last writes of each key. An entry is forgotten when it has been seen.
pub struct Expectations<K> {
    written: Mutex<HashMap<K, (u64, Instant)>>,
}

impl<K> Default for Expectations<K> {
    fn default() -> Self {
        Self { written: Mutex::default() }
    }
}

impl<K: QueueKey> Expectations<K> {
    /// Notes what a write answered with.
    pub fn expect(&self, key: &K, answer: &Value) {
        let Ok(version) = meta::resource_version(answer).parse::<u64>() else { return };
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = written.entry(key.clone()).or_insert((version, Instant::now()));
        *entry = (entry.0.max(version), Instant::now());
    }

    /// Whether a store has seen all writes of a key.
    pub fn are_met<T>(&self, key: &K, store: &Store<T>) -> bool {
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
    use freehold_runtime::{Controller, Key, Queue};
    use serde_json::json;
    use std::sync::Arc;
    use tokio_util::sync::CancellationToken;

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

    /// Looks until a key's write of version 7 is met, with no event, and gives after how many seconds it was.
    async fn waited(seen: impl Fn(Duration) -> u64 + Send + Sync + 'static) -> u64 {
        let (expectations, queue, begin) = (Expectations::default(), Queue::new(), Instant::now());
        let key = Key::new(freehold_machinery::PlaneId::core(), "", "a");
        expectations.expect(&key, &json!({"metadata": {"resourceVersion": "7"}}));
        queue.add(key);
        let token = CancellationToken::new();
        let (shared, end) = (Arc::new((expectations, seen)), token.clone());
        let controller = Controller::new("test", queue);
        controller
            .run(token, move |key| {
                let (shared, end) = (shared.clone(), end.clone());
                async move {
                    if !shared.0.met(&key, |version| version <= (shared.1)(begin.elapsed())) {
                        return Ok(NOT_YET);
                    }
                    end.cancel();
                    Ok(Outcome::Done)
                }
            })
            .await;
        begin.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn what_shows_up_with_no_event_is_found_soon_and_what_never_does_is_given_up() {
        assert!(waited(|passed| if passed.as_secs() < 3 { 6 } else { 7 }).await <= 4);
        assert!(waited(|_| 6).await <= PATIENCE.as_secs() + 1);
    }
}
