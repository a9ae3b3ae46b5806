//! Options of a cache, and what it says of itself.

use crate::Below;
use freehold_machinery::PlaneId;
use std::time::Duration;

/// How much the cache may keep.
#[derive(Clone, Copy, Debug)]
pub struct CacheOptions {
    /// Bytes of recent events, from which watches resume.
    pub recent_bytes: usize,
    /// A plane without watches is dropped after so long without a request.
    pub idle: Duration,
    /// Budget for objects in bytes. Above it the least recently used planes are evicted, those with open watches last.
    /// A collection of more than an eighth of the budget is read from the store each time.
    pub memory: usize,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self { recent_bytes: 8 << 20, idle: Duration::from_secs(300), memory: 256 << 20 }
    }
}

impl CacheOptions {
    /// Bytes beyond which a collection is not kept in memory, so that one can't take the place of all others.
    pub(crate) fn most(&self) -> usize {
        self.memory / 8
    }
}

/// How the cache is, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheState {
    /// Planes in memory.
    pub planes: usize,
    /// Bytes that they take, about.
    pub bytes: usize,
    /// Bytes that they may take.
    pub budget: usize,
    /// Planes loaded since the start.
    pub loads: u64,
    /// Planes dropped since the start.
    pub evictions: u64,
    /// Approximate bytes of the census of all planes.
    pub census: usize,
}

/// A plane in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resident {
    /// Which plane it is.
    pub plane: PlaneId,
    /// Bytes that it takes, about.
    pub bytes: usize,
    /// How long nobody has asked for it.
    pub idle: Duration,
    /// Whether watches or requests keep it in memory.
    pub is_pinned: bool,
}

/// Revisions that a reader saw for an object's key, for the commit that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The revision of the plane's own key: 0 where it is absent, because the object does not exist or comes from a
    /// layer. A key from before a restore has a revision though it counts as absent.
    pub own: u64,
    /// The revision of the plane's record ([`Key::stack`](freehold_apiserver_storage::Key::stack)): 0 without a record.
    /// Each commit has to expect it; otherwise it could bring back state from before a restore.
    pub record: u64,
    /// What lies below.
    pub below: Below,
}
