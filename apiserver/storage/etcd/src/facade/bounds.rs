//! How much a client that is confined to a plane may store, and ask for at a time.
//!
//! A dedicated pair belongs to a project. Whoever has got hold of one must not fill the disk, the memory or the time that all
//! projects share. What is over a bound is refused before it is read, kept or committed.

use crate::error::TOO_MANY;
use freehold_apiserver_storage::{Change, Commit, KeyRange, Store, StoreError, Usage};
use freehold_machinery::{PlaneId, PlaneMap};
use parking_lot::Mutex;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

/// Requests of one client that are here at a time.
const CALLS: usize = 256;
/// Watches of one client: its apiserver has one, and short ones that catch up.
const WATCHES: usize = 64;
/// Values of one client that are in memory at a time, each of at most 2 MiB. Who wants more waits.
const VALUES: usize = 256;
/// Most clients that are remembered. Who is forgotten is counted anew.
const CLIENTS: usize = 4096;
/// Seconds for which a client that was idle may write at any rate.
const BURST: f64 = 2.0;
/// How soon what a client stores is counted again.
const AGAIN: Duration = Duration::from_secs(5);

/// What one client may have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// Keys.
    pub keys: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// Changed keys a second, over time.
    pub writes_per_second: f64,
    /// Written bytes a second, over time.
    pub bytes_per_second: f64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            keys: 2_000_000,
            bytes: 8 << 30,
            writes_per_second: 5_000.0,
            bytes_per_second: f64::from(64 << 20),
        }
    }
}

/// Says what the client of a plane may have.
pub type BoundsOf = Arc<dyn Fn(&PlaneId) -> Bounds + Send + Sync>;

/// The clients that are known.
#[derive(Default)]
pub(super) struct Clients(Mutex<PlaneMap<Arc<Client>>>);

/// One client: all that comes with a certificate of one plane.
pub(super) struct Client {
    calls: Arc<Semaphore>,
    watches: Arc<Semaphore>,
    values: Arc<Semaphore>,
    rate: Mutex<Rate>,
    stored: Mutex<Stored>,
}

impl Clients {
    pub(super) fn get(&self, plane: &PlaneId) -> Arc<Client> {
        let mut known = self.0.lock();
        if let Some(client) = known.get(plane) {
            return client.clone();
        }
        if known.len() >= CLIENTS {
            known.retain(|_, client| Arc::strong_count(client) > 1);
        }
        let client = Arc::new(Client {
            calls: Arc::new(Semaphore::new(CALLS)),
            watches: Arc::new(Semaphore::new(WATCHES)),
            values: Arc::new(Semaphore::new(VALUES)),
            rate: Mutex::new(Rate::full(Instant::now())),
            stored: Mutex::default(),
        });
        known.insert(plane.clone(), client.clone());
        client
    }
}

fn busy() -> Status {
    Status::resource_exhausted(TOO_MANY)
}

impl Client {
    /// A place for a request.
    pub(super) fn call(&self) -> Result<OwnedSemaphorePermit, Status> {
        self.calls.clone().try_acquire_owned().map_err(|_| busy())
    }

    /// A place for a watch.
    pub(super) fn watch(&self) -> Result<OwnedSemaphorePermit, StoreError> {
        self.watches.clone().try_acquire_owned().map_err(|_| StoreError::Busy(TOO_MANY.into()))
    }

    /// Waits until there is room for so many values.
    pub(super) async fn values(&self, count: usize) -> Result<OwnedSemaphorePermit, Status> {
        let count = u32::try_from(count.clamp(1, VALUES)).unwrap_or(1);
        self.values.clone().acquire_many_owned(count).await.map_err(|_| busy())
    }

    /// Whether a commit may be made: by its rate, and by what is stored already.
    pub(super) fn admit(
        self: &Arc<Self>,
        commit: &Commit,
        bounds: &Bounds,
        store: &Arc<dyn Store>,
        plane: &PlaneId,
    ) -> Result<(), StoreError> {
        let puts = commit.changes.iter().filter_map(|change| match change {
            Change::Put(key, value) => Some((key.as_bytes().len() + value.len()) as u64),
            Change::Delete(_) | Change::DeleteRange(_) => None,
        });
        let added =
            puts.fold(Usage::default(), |sum, bytes| Usage { keys: sum.keys + 1, bytes: sum.bytes + bytes });
        let now = Instant::now();
        // What fails a comparison costs, too.
        let operations = (commit.changes.len() + commit.expect.len()).max(1) as f64;
        if !self.rate.lock().take(bounds, (operations, added.bytes as f64), now) {
            return Err(StoreError::Busy(TOO_MANY.into()));
        }
        let (fits, count) = self.stored.lock().add(bounds, added, now);
        if count {
            tokio::spawn(self.clone().count(store.clone(), plane.clone()));
        }
        if fits { Ok(()) } else { Err(StoreError::Full("the plane has as much as it may have".into())) }
    }

    /// Counts what the plane has.
    async fn count(self: Arc<Self>, store: Arc<dyn Store>, plane: PlaneId) {
        let usage = store.usage(KeyRange::plane(&plane)).await;
        if let Err(error) = &usage {
            tracing::warn!(%plane, %error, "failed to count the keys of a dedicated plane; will retry");
        }
        self.stored.lock().counted(usage.ok(), Instant::now());
    }
}

/// Two buckets of tokens that fill over time: operations and bytes.
struct Rate {
    /// Seconds of each that are left.
    left: (f64, f64),
    at: Instant,
}

impl Rate {
    fn full(at: Instant) -> Self {
        Self { left: (BURST, BURST), at }
    }

    /// Takes what a commit costs, if it is there.
    fn take(&mut self, bounds: &Bounds, (operations, bytes): (f64, f64), now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = now;
        self.left = ((self.left.0 + passed).min(BURST), (self.left.1 + passed).min(BURST));
        let cost = (operations / bounds.writes_per_second, bytes / bounds.bytes_per_second);
        // Whoever has anything left may overdraw, so that no single commit is too large for a slow rate.
        let fits = self.left.0 > 0.0 && self.left.1 > 0.0;
        if fits {
            self.left = (self.left.0 - cost.0, self.left.1 - cost.1);
        }
        fits
    }
}

/// What a plane has, as far as that is known without counting at each write.
#[derive(Default)]
struct Stored {
    /// As it was counted last.
    counted: Option<Usage>,
    /// What was written since the last count began, replaced values included: so it is too much rather than too little.
    since: Usage,
    counting: bool,
    next: Option<Instant>,
}

impl Stored {
    /// Adds what is to be written, if there is room; also whether to count now.
    fn add(&mut self, bounds: &Bounds, added: Usage, now: Instant) -> (bool, bool) {
        let counted = self.counted.unwrap_or_default();
        let room = |limit: u64, counted: u64| limit.saturating_sub(counted);
        let (keys, bytes) = (room(bounds.keys, counted.keys), room(bounds.bytes, counted.bytes));
        let (with_keys, with_bytes) = (self.since.keys + added.keys, self.since.bytes + added.bytes);
        let fits = added.keys == 0 || (with_keys <= keys && with_bytes <= bytes);
        // In time, so that nobody is refused for values that were replaced.
        let soon = self.counted.is_none() || with_keys > keys / 2 || with_bytes > bytes / 2;
        let count = soon && !self.counting && self.next.is_none_or(|next| now >= next);
        if count {
            self.counting = true;
            self.since = Usage::default();
        }
        if fits {
            self.since.keys += added.keys;
            self.since.bytes += added.bytes;
        }
        (fits, count)
    }

    fn counted(&mut self, usage: Option<Usage>, now: Instant) {
        self.counting = false;
        self.next = Some(now + AGAIN);
        if usage.is_some() {
            self.counted = usage;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds =
        Bounds { keys: 100, bytes: 1000, writes_per_second: 10.0, bytes_per_second: 100.0 };

    fn usage(keys: u64, bytes: u64) -> Usage {
        Usage { keys, bytes }
    }

    #[test]
    fn a_rate_counts_operations_and_bytes_and_fills_again() {
        let start = Instant::now();
        let mut rate = Rate::full(start);
        let taken = (0..100).take_while(|_| rate.take(&BOUNDS, (1.0, 1.0), start)).count();
        assert_eq!(taken, 20);
        let later = start + Duration::from_secs(1);
        assert!(rate.take(&BOUNDS, (1.0, 500.0), later), "one commit may overdraw");
        assert!(!rate.take(&BOUNDS, (1.0, 1.0), later + Duration::from_secs(1)));
        assert!(rate.take(&BOUNDS, (1.0, 1.0), later + Duration::from_secs(10)));
    }

    #[test]
    fn what_is_over_a_bound_is_refused_until_a_count_shows_room() {
        let mut stored = Stored::default();
        let start = Instant::now();
        assert_eq!(stored.add(&BOUNDS, usage(1, 10), start), (true, true), "nothing is known yet");
        assert_eq!(stored.add(&BOUNDS, usage(1, 10), start), (true, false), "one count at a time");
        stored.counted(Some(usage(90, 500)), start);
        assert_eq!(stored.add(&BOUNDS, usage(8, 10), start), (true, false));
        assert_eq!(stored.add(&BOUNDS, usage(8, 10), start), (false, false), "too many keys");
        assert_eq!(stored.add(&BOUNDS, usage(0, 0), start), (true, false), "deletions go on");
        let later = start + AGAIN;
        assert_eq!(stored.add(&BOUNDS, usage(1, 600), later), (false, true), "too many bytes");
        stored.counted(Some(usage(10, 100)), later);
        assert_eq!(stored.add(&BOUNDS, usage(8, 10), later), (true, false));
    }
}
