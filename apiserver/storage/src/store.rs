//! The port.

use crate::{Key, KeyRange};
use async_trait::async_trait;
use bytes::Bytes;
use freehold_machinery::Status;
use futures_util::{
    StreamExt,
    future::try_join_all,
    stream::{self, BoxStream},
};

/// A point in the store's history. Each commit makes the next one; 0 is before all.
pub type Revision = u64;

/// A key with its value, as of some revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: Key,
    /// The value. Never empty for a live key unless an empty value was put.
    pub value: Bytes,
    /// The revision that made the key (since it was last absent).
    pub created: Revision,
    /// The revision that wrote this value.
    pub modified: Revision,
}

/// What a range read asks for.
#[derive(Clone, Debug)]
pub struct Range {
    /// Which keys.
    pub keys: KeyRange,
    /// As of which revision; `None` reads the latest (linearizable).
    pub at: Option<Revision>,
    /// At most so many; 0 means all.
    pub limit: usize,
    /// Leave values out (they come back empty).
    pub keys_only: bool,
}

impl Range {
    /// All of `keys`, at the latest revision.
    pub fn all(keys: KeyRange) -> Self {
        Self { keys, at: None, limit: 0, keys_only: false }
    }
}

/// What a range read gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeResult {
    /// In key order.
    pub items: Vec<KeyValue>,
    /// The store's revision when it was read (also for reads of the past).
    pub revision: Revision,
    /// Whether keys were left out because of the limit. How many is not known: counting costs as much as reading.
    pub more: bool,
}

impl RangeResult {
    /// What is left of the keys that were asked for; `None` where nothing is.
    pub fn rest(&self, keys: &KeyRange) -> Option<KeyRange> {
        let last = self.items.last().filter(|_| self.more)?;
        Some(keys.from_key(KeyRange::one(&last.key).end))
    }
}

/// A condition of a [`Commit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expect {
    /// The key that it is about.
    pub key: Key,
    /// The revision that must have written it last; 0: it must be absent.
    pub modified: Revision,
}

/// A change of a [`Commit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Sets a key.
    Put(Key, Bytes),
    /// Removes a key; nothing happens if it is absent.
    Delete(Key),
    /// Removes all keys of a range.
    DeleteRange(KeyRange),
}

/// A transaction: all changes at one revision if all expectations hold, otherwise nothing.
///
/// Limits: [`MAX_OPERATIONS`], [`MAX_VALUE_BYTES`], [`MAX_KEY_BYTES`]; no key twice among the changes, ranges included.
#[derive(Clone, Debug, Default)]
pub struct Commit {
    /// Conditions, all of which must hold.
    pub expect: Vec<Expect>,
    /// Changes, made together.
    pub changes: Vec<Change>,
}

/// How many expectations and changes together a [`Commit`] can have.
pub const MAX_OPERATIONS: usize = 128;
/// How many bytes the values of a [`Commit`] can have together.
pub const MAX_VALUE_BYTES: usize = 2 << 20;
/// How many keys [`Store::clear`] removes at one revision.
pub const CLEAR_STEP: usize = 250;
/// How long a key can be, in bytes.
pub const MAX_KEY_BYTES: usize = 4 << 10;

impl Commit {
    /// Checks the limits of a commit, which are equal for all engines.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] with the limit that is exceeded.
    pub fn validate(&self) -> Result<(), StoreError> {
        let too_large = |what: &str| Err(StoreError::TooLarge(what.to_owned()));
        if self.expect.len() + self.changes.len() > MAX_OPERATIONS {
            return too_large("it has more than 128 operations");
        }
        let value_bytes = |change: &Change| if let Change::Put(_, value) = change { value.len() } else { 0 };
        if self.changes.iter().map(value_bytes).sum::<usize>() > MAX_VALUE_BYTES {
            return too_large("its values have more than 2 MiB");
        }
        let mut changed: Vec<KeyRange> = self.changes.iter().map(Change::keys).collect();
        let expected = self.expect.iter().map(|expect| expect.key.as_bytes());
        if changed.iter().map(|keys| &keys.start).chain(expected).any(|key| key.len() > MAX_KEY_BYTES) {
            return too_large("a key has more than 4 KiB");
        }
        changed.sort_by(|a, b| a.start.cmp(&b.start));
        if changed.windows(2).any(|pair| pair[0].end > pair[1].start) {
            return too_large("it changes a key twice");
        }
        Ok(())
    }
}

impl Change {
    /// The keys that it can change.
    pub fn keys(&self) -> KeyRange {
        match self {
            Self::Put(key, _) | Self::Delete(key) => KeyRange::one(key),
            Self::DeleteRange(range) => range.clone(),
        }
    }
}

/// How a [`Commit`] ended.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a commit that was refused changed nothing"]
pub enum Committed {
    /// It is durable, at this revision. If no key was changed, the revision is the current one.
    Done(Revision),
    /// An expectation did not hold. For each expected key what is there now (`None`: absent), in the order of `expect`.
    Refused(Vec<Option<KeyValue>>),
}

/// One change of one key.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The key.
    pub key: Key,
    /// The revision of the change.
    pub revision: Revision,
    /// The new value; `None` after a delete.
    pub value: Option<Bytes>,
    /// The revision that made the key; equal to `revision` for a key that was absent before. 0 for a delete.
    pub created: Revision,
    /// What was there before, where the watch asked for it and it is not compacted.
    pub previous: Option<KeyValue>,
}

/// What a watch yields.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchItem {
    /// Changes, in revision order; all changes of one revision are in one item.
    Events(Vec<Event>),
    /// All changes up to and with this revision have been yielded.
    Progress(Revision),
}

/// A running watch. It ends after an error; dropping it stops it.
pub type WatchStream = BoxStream<'static, Result<WatchItem, StoreError>>;

/// Why a store could not do it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The revision asked for is gone.
    #[error("revision {asked} is compacted; the oldest that can be read is {oldest}")]
    Compacted {
        /// The revision that was asked for.
        asked: Revision,
        /// The oldest that is there.
        oldest: Revision,
    },
    /// The revision asked for has not happened yet.
    #[error("revision {asked} is in the future; the store is at {current}")]
    Future {
        /// The revision that was asked for.
        asked: Revision,
        /// The store's own.
        current: Revision,
    },
    /// No leader, no connection, or no answer in time. A commit that fails so may or may not have happened.
    #[error("the store can't be reached: {0}")]
    Unavailable(String),
    /// No space is left: reads continue, writes are refused.
    #[error("the store is full: {0}")]
    Full(String),
    /// The caller exceeds a limit on concurrent work; nothing was done.
    #[error("{0}")]
    Busy(String),
    /// The transaction is over a limit.
    #[error("the transaction is too large: {0}")]
    TooLarge(String),
    /// The caller's credentials are not enough.
    #[error("the store refused access: {0}")]
    Denied(String),
    /// Data on disk cannot be read.
    #[error("the store is corrupt: {0}")]
    Corrupt(String),
    /// Values are sealed with a missing key, which the message names.
    #[error("a value can't be opened: {0}")]
    Unreadable(String),
}

/// The result of [`Store::watch`].
pub type Watched = Result<WatchStream, StoreError>;

/// The status that an API client gets for a failed store. A commit with an indeterminate result has another one
/// ([`StoreError::of_commit`]).
impl From<StoreError> for Status {
    fn from(error: StoreError) -> Self {
        match &error {
            StoreError::Compacted { .. } => {
                Self::expired("The resourceVersion for the provided list is too old.")
            }
            StoreError::Future { asked, current } => Self::version_too_large(*asked, *current),
            StoreError::TooLarge(why) => {
                let message = format!("etcdserver: request is too large: {why}");
                Self::new(413, "RequestEntityTooLarge", message)
            }
            StoreError::Busy(why) => Self::too_many_requests(why, 1),
            StoreError::Full(_) => Self::new(507, "InsufficientStorage", error.to_string()),
            StoreError::Unavailable(_) => Self::unavailable(error.to_string()).retry_after(1),
            StoreError::Denied(_) | StoreError::Corrupt(_) | StoreError::Unreadable(_) => {
                Self::internal(error)
            }
        }
    }
}

impl StoreError {
    /// The status that a client gets for a failed commit: a timeout where the result is indeterminate.
    pub fn of_commit(self) -> Status {
        match self {
            Self::Unavailable(_) => Status::timeout(self.to_string()).retry_after(1),
            other => other.into(),
        }
    }
}

/// A watch that is made of steps. It ends after an error.
pub fn stepwise<W, F>(watch: W, step: impl Fn(W) -> F + Send + 'static) -> WatchStream
where
    W: Send + 'static,
    F: Future<Output = Option<(Result<WatchItem, StoreError>, W)>> + Send + 'static,
{
    let steps = stream::unfold((Some(watch), step), |(watch, step)| async move {
        let (item, watch) = step(watch?).await?;
        let rest = item.is_ok().then_some(watch);
        Some((item, (rest, step)))
    });
    steps.boxed()
}

/// An engine.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Reads keys in order.
    async fn range(&self, range: Range) -> Result<RangeResult, StoreError>;

    /// Reads several ranges as of one revision, each up to so many keys (0 for all). An engine that has its keys in order reads
    /// ranges that follow one another with little between them as it reads one.
    async fn ranges(
        &self,
        ranges: &[KeyRange],
        at: Revision,
        limit: usize,
    ) -> Result<Vec<RangeResult>, StoreError> {
        let one =
            |keys: &KeyRange| self.range(Range { keys: keys.clone(), at: Some(at), limit, keys_only: false });
        try_join_all(ranges.iter().map(one)).await
    }

    /// Commits a transaction. When it returns `Done` the changes are on disk (or on a quorum).
    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError>;

    /// Yields each change to `keys` after revision `after`, then live. With `previous`, deletes and updates carry what
    /// was there before. Yields progress at least every few seconds when nothing happens and soon after
    /// [`Store::request_progress`]; nothing that is yielded later lies at or before a progress.
    ///
    /// `after` can't be below the compacted revision ([`StoreError::Compacted`], here or as the stream's end) nor above
    /// the current one ([`StoreError::Future`]).
    async fn watch(&self, keys: KeyRange, after: Revision, previous: bool) -> Watched;

    /// Requests that all watches yield their progress soon.
    async fn request_progress(&self) -> Result<(), StoreError>;

    /// The latest revision, linearizable.
    async fn revision(&self) -> Result<Revision, StoreError>;

    /// Compacts versions that were overwritten or deleted before `revision`; later reads below it fail. Fails with
    /// [`StoreError::Compacted`] if that was done already, and with [`StoreError::Future`].
    async fn compact(&self, revision: Revision) -> Result<(), StoreError>;

    /// How many keys a range has and how many bytes their keys and values take, at the latest revision.
    async fn usage(&self, keys: KeyRange) -> Result<Usage, StoreError>;

    /// Keeps the current revision readable, as far as the engine can, until the hold is dropped: [`Store::range`] reads at
    /// it even if it was compacted meanwhile. Watches and other revisions are not concerned. An engine that can't hold
    /// (etcd, where it is five minutes) still says at which revision everything can be read for a while.
    async fn hold(&self) -> Result<Hold, StoreError> {
        Ok(Hold::new(self.revision().await?, ()))
    }

    /// Removes all keys of a range, however many, in steps with a revision each, so that other writes proceed in
    /// between and watches receive the deletions step by step. It is not atomic: after an error some keys may be
    /// deleted, and another call removes the rest. Keys that are created meanwhile may remain.
    async fn clear(&self, keys: KeyRange) -> Result<(), StoreError> {
        let mut rest = Some(keys);
        while let Some(keys) = rest {
            rest = self.clear_some(keys).await?.rest;
        }
        Ok(())
    }

    /// One step of [`Store::clear`], for callers that wait in between until others have applied it.
    async fn clear_some(&self, keys: KeyRange) -> Result<Cleared, StoreError> {
        let ask = Range { limit: CLEAR_STEP, keys_only: true, ..Range::all(keys.clone()) };
        let page = self.range(ask).await?;
        if page.items.is_empty() {
            return Ok(Cleared { revision: page.revision, rest: None });
        }
        let rest = page.rest(&keys);
        let end = rest.as_ref().map_or(keys.end, |rest| rest.start.clone());
        let changes = vec![Change::DeleteRange(KeyRange { start: keys.start, end })];
        match self.commit(Commit { expect: Vec::new(), changes }).await? {
            Committed::Done(revision) => Ok(Cleared { revision, rest }),
            Committed::Refused(_) => Err(StoreError::Corrupt("it refused what expects nothing".into())),
        }
    }

    /// Reads one key, at the latest revision.
    async fn get(&self, key: &Key) -> Result<Option<KeyValue>, StoreError> {
        let mut found = self.range(Range { limit: 1, ..Range::all(KeyRange::one(key)) }).await?;
        Ok(found.items.pop())
    }
}

/// The result of one step of [`Store::clear`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cleared {
    /// The revision at which keys were removed; the latest where there were none.
    pub revision: Revision,
    /// The rest of the range.
    pub rest: Option<KeyRange>,
}

/// A revision that is kept readable. See [`Store::hold`].
pub struct Hold {
    /// The revision.
    pub revision: Revision,
    _guard: Box<dyn Send + Sync>,
}

impl Hold {
    /// For engines: a hold that lasts until `guard` is dropped.
    pub fn new(revision: Revision, guard: impl Send + Sync + 'static) -> Self {
        Self { revision, _guard: Box::new(guard) }
    }
}

/// The size of a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Number of keys.
    pub keys: u64,
    /// Bytes of keys and values, as the engine was given them: sealed ones as they are sealed, uncompressed by itself.
    pub bytes: u64,
}
