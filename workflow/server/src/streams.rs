//! Places for streams: so many at once, of all callers and of each.

use crate::caller::Caller;
use crate::reply::{Failure, Reply};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Streams at once.
const ALL: usize = 2048;
/// Streams of one caller at once: whoever leaves them unread takes nothing from others.
const EACH: usize = 64;
/// How long a stream lasts. Whoever goes on asks anew, and is authorized anew.
pub(crate) const LONGEST: Duration = Duration::from_secs(1800);

type Counts = Arc<Mutex<HashMap<[u8; 32], usize>>>;

/// Places for streams.
#[derive(Debug)]
pub(crate) struct Streams {
    all: Arc<Semaphore>,
    by_caller: Counts,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    _one: OwnedSemaphorePermit,
    key: [u8; 32],
    by_caller: Counts,
}

impl Default for Streams {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(ALL)), by_caller: Counts::default() }
    }
}

impl Streams {
    /// A place for a caller, or 429.
    pub(crate) fn take(&self, caller: &Caller) -> Reply<Place> {
        let key = match caller {
            Caller::Forwarded { key, .. } => *key,
            Caller::Known { name, .. } => Sha256::digest(name.as_bytes()).into(),
        };
        let busy = || Failure::too_many("too many streams; close some, or retry later");
        let one = self.all.clone().try_acquire_owned().map_err(|_| busy())?;
        let mut counts = self.by_caller.lock();
        let count = counts.entry(key).or_default();
        if *count >= EACH {
            return Err(busy());
        }
        *count += 1;
        Ok(Place { _one: one, key, by_caller: self.by_caller.clone() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.by_caller.lock();
        if let Some(count) = counts.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(name: &str) -> Caller {
        Caller::Known { name: name.into(), role: freehold_workflow_store::Role::Viewer, token: String::new() }
    }

    #[test]
    fn one_caller_takes_no_places_of_others() {
        let streams = Streams::default();
        let mut held: Vec<Place> = (0..EACH).map(|_| streams.take(&caller("eve")).unwrap()).collect();
        assert_eq!(streams.take(&caller("eve")).unwrap_err().0.code, 429);
        assert!(streams.take(&caller("ada")).is_ok());
        held.pop();
        assert!(streams.take(&caller("eve")).is_ok());
        drop(held);
        assert!(streams.by_caller.lock().is_empty());
    }
}
