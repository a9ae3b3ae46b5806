//! The database on disk: opening it, and reading versions and log records.
//!
//! Knows the file format; knows nothing of queues, watches or which revision is visible.

use crate::{
    check,
    codec::{self, Logged},
    options::{OpenError, Options},
};
use bytes::Bytes;
use fjall::{
    Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode, Readable, Snapshot,
    config::{FilterPolicy, PartitioningPolicy},
};
use freehold_apiserver_storage::{Event, Key, KeyRange, KeyValue, Revision, StoreError};
use std::{
    fs::{File, Permissions},
    io::ErrorKind,
    ops::{ControlFlow, RangeInclusive},
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    time::{Duration, Instant},
};

/// What the `format` key holds.
pub(crate) const FORMAT: &str = "freehold-embedded 1";
/// The revision of a store in which nothing was committed yet, as in etcd: 0 stays free to mean "before all".
pub(crate) const FIRST: Revision = 1;

/// The mode of the database's directory: other users of the machine read nothing below it.
const OWNERS: u32 = 0o700;
const FORMAT_KEY: &str = "format";
const COMPACTED_KEY: &str = "compacted";
/// A mark that is written after room was reclaimed.
const RECLAIMED_KEY: &str = "reclaimed";
/// After so many versions of one key that are not wanted, seeking is cheaper than reading on.
const SEEK_AFTER: usize = 16;
/// Bytes between two ranges that are read past; seeking costs as much.
const GAP: usize = 16 << 10;
/// Memtables waiting to be written out. Beyond four the database would block a commit without end if writing fails.
const MAX_SEALED: usize = 2;

/// Bytes in memory that are worth sorted files when the database is opened, and when nothing is written any more.
pub(crate) const WORTH: u64 = 1 << 20;
/// How often it is looked whether a memtable was written out.
const POLL: Duration = Duration::from_millis(2);
/// How long writing memtables out may take: they have some megabytes.
const LONGEST_FLUSH: Duration = Duration::from_secs(60);

/// An open database.
pub(crate) struct Disk {
    db: Database,
    data: Keyspace,
    log: Keyspace,
    meta: Keyspace,
}

/// A live version met by a scan.
pub(crate) struct Found<'a> {
    stem: &'a [u8],
    pub(crate) created: Revision,
    pub(crate) modified: Revision,
    pub(crate) value: &'a [u8],
}

impl Found<'_> {
    pub(crate) fn key(&self) -> Result<Key, StoreError> {
        codec::key_of(self.stem)
            .map(Key::from_store)
            .ok_or_else(|| corrupt("a key in `data` can't be decoded"))
    }

    pub(crate) fn key_len(&self) -> usize {
        codec::key_of(self.stem).map_or(0, |key| key.len())
    }

    pub(crate) fn to_key_value(&self, keys_only: bool) -> Result<KeyValue, StoreError> {
        let value = if keys_only { Bytes::new() } else { Bytes::copy_from_slice(self.value) };
        Ok(KeyValue { key: self.key()?, value, created: self.created, modified: self.modified })
    }
}

/// What a replay of the log gives.
pub(crate) struct Replayed {
    pub(crate) events: Vec<Event>,
    /// The last revision that was looked at.
    pub(crate) upto: Revision,
}

/// What a replay of the log is asked for.
pub(crate) struct Replay<'a> {
    pub(crate) keys: &'a KeyRange,
    pub(crate) revisions: RangeInclusive<Revision>,
    pub(crate) previous: bool,
    /// Stops after the revision in which so many bytes of values were gathered.
    pub(crate) max_bytes: usize,
    /// Stops after so many revisions.
    pub(crate) max_revisions: usize,
}

pub(crate) fn corrupt(what: &str) -> StoreError {
    StoreError::Corrupt(what.to_owned())
}

/// What everyone is told once the store is closed.
pub(crate) fn closed() -> StoreError {
    StoreError::Unavailable("the database is closed".into())
}

/// What a reader is told whose thread was ended.
pub(crate) fn cut_off() -> StoreError {
    StoreError::Unavailable("a read was cut off".into())
}

/// Whether the system said that there is no room.
fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge)
}

/// An error of the system, as the port has it.
pub(crate) fn io_error(error: &std::io::Error) -> StoreError {
    if is_full(error) {
        StoreError::Full(error.to_string())
    } else {
        StoreError::Unavailable(error.to_string())
    }
}

/// An error of the database, as the port has it.
pub(crate) fn store_error(error: fjall::Error) -> StoreError {
    match error {
        fjall::Error::Io(error) | fjall::Error::Storage(fjall::LsmError::Io(error)) => io_error(&error),
        fjall::Error::Poisoned => StoreError::Unavailable("an earlier write failed".into()),
        other => StoreError::Corrupt(other.to_string()),
    }
}

fn open_error(dir: &Path, error: fjall::Error) -> OpenError {
    let dir = dir.to_owned();
    match error {
        fjall::Error::Io(source) | fjall::Error::Storage(fjall::LsmError::Io(source))
            if source.kind() != ErrorKind::UnexpectedEof && source.kind() != ErrorKind::NotFound =>
        {
            OpenError::Io { dir, source }
        }
        other => OpenError::Damaged { dir, reason: other.to_string() },
    }
}

fn damaged(dir: &Path, reason: &str) -> OpenError {
    OpenError::Damaged { dir: dir.to_owned(), reason: reason.to_owned() }
}

impl Disk {
    /// Opens or makes the database below `dir`. One that is there is checked first, each byte of it.
    pub(crate) fn open(dir: &Path, options: &Options) -> Result<Self, OpenError> {
        let path = dir.join("db");
        if path.exists() {
            if let Err(error) = std::fs::set_permissions(&path, Permissions::from_mode(OWNERS)) {
                tracing::warn!(%error, dir = %dir.display(), "failed to restrict the store's directory to its owner");
            }
            check::database(&path).map_err(|error| match error {
                check::Error::Damaged(reason) => OpenError::Damaged { dir: dir.to_owned(), reason },
                check::Error::Io(source) => OpenError::Io { dir: dir.to_owned(), source },
            })?;
        } else {
            Self::create(dir, options, |_| Ok(()))?;
        }
        let disk = Self::open_checked(dir, &path, options)?;
        if disk.buffered() >= WORTH
            && let Err(error) = disk.empty_memory()
        {
            tracing::warn!(%error, dir = %dir.display(), "failed to flush the journal; its content stays in memory");
        }
        Ok(disk)
    }

    /// Opens it again after a write failed, in a process that checked its files when it began.
    pub(crate) fn open_checked(dir: &Path, path: &Path, options: &Options) -> Result<Self, OpenError> {
        // The database has assertions on what it reads; on damaged files they are no bugs of this process.
        let disk = match catch_unwind(AssertUnwindSafe(|| Self::open_keyspaces(path, options))) {
            Ok(opened) => opened.map_err(|error| open_error(dir, error))?,
            Err(_) => return Err(damaged(dir, "its files contradict each other")),
        };
        disk.check_format(dir)?;
        Ok(disk)
    }

    /// Makes a database aside, lets it be filled, and moves it to its place: one that was made by halves is never taken
    /// for one.
    pub(crate) fn create<E: From<OpenError>>(
        dir: &Path,
        options: &Options,
        fill: impl FnOnce(&Self) -> Result<(), E>,
    ) -> Result<(), E> {
        let failed = |source| OpenError::Io { dir: dir.to_owned(), source };
        let aside = dir.join("db.new");
        if aside.exists() {
            std::fs::remove_dir_all(&aside).map_err(failed)?;
        }
        std::fs::DirBuilder::new().recursive(true).mode(OWNERS).create(&aside).map_err(failed)?;
        let made = Self::open_keyspaces(&aside, options).and_then(|disk| {
            let mut batch = disk.batch();
            batch.insert(&disk.meta, FORMAT_KEY, FORMAT);
            batch.commit().map(|()| disk)
        });
        let disk = made.map_err(|error| open_error(dir, error))?;
        fill(&disk)?;
        drop(disk);
        let moved = std::fs::rename(&aside, dir.join("db")).and_then(|()| File::open(dir)?.sync_all());
        Ok(moved.map_err(failed)?)
    }

    fn open_keyspaces(path: &Path, options: &Options) -> fjall::Result<Self> {
        let db = Database::builder(path)
            .cache_size(options.block_cache)
            .worker_threads(2)
            .max_cached_files(Some(64))
            .max_journaling_size(128 << 20)
            .manual_journal_persist(true)
            .open()?;
        let sized = |bytes: u64| {
            KeyspaceCreateOptions::default()
                .max_memtable_size(bytes)
                // What is looked for is the version as of a revision: a range, of which a filter can't tell.
                .filter_policy(FilterPolicy::disabled())
                // A file's index in one piece takes a megabyte and more, and is read for a lookup unless it is in memory.
                .index_block_partitioning_policy(PartitioningPolicy::all(true))
        };
        Ok(Self {
            data: db.keyspace("data", || sized(options.write_buffer))?,
            log: db.keyspace("log", || sized(options.write_buffer / 4))?,
            meta: db.keyspace("meta", || sized(1 << 20))?,
            db,
        })
    }

    fn check_format(&self, dir: &Path) -> Result<(), OpenError> {
        match self.meta.get(FORMAT_KEY).map_err(|error| open_error(dir, error))? {
            Some(found) if *found == *FORMAT.as_bytes() => Ok(()),
            Some(found) => Err(OpenError::Version {
                dir: dir.to_owned(),
                found: format!("{:?}", String::from_utf8_lossy(&found)),
                expected: FORMAT,
            }),
            None => Err(damaged(dir, "it does not say which format it has")),
        }
    }

    /// A view that does not change. Short-lived: while it is open, nothing that it sees is deleted from disk.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.db.snapshot()
    }

    /// The last revision in the log.
    pub(crate) fn last_revision(&self) -> Result<Revision, StoreError> {
        let Some(last) = self.log.last_key_value() else { return Ok(FIRST) };
        revision_of(&last.key().map_err(store_error)?)
    }

    /// The oldest revision that can be read.
    pub(crate) fn compacted(&self) -> Result<Revision, StoreError> {
        match self.meta.get(COMPACTED_KEY).map_err(store_error)? {
            Some(revision) => revision_of(&revision),
            None => Ok(FIRST),
        }
    }

    /// The version of a key as of a revision.
    pub(crate) fn version_at(
        &self,
        snapshot: &Snapshot,
        key: &Key,
        at: Revision,
    ) -> Result<Option<KeyValue>, StoreError> {
        let stem = codec::first_version(key.as_bytes());
        let Some(found) =
            snapshot.range(&self.data, codec::version_of(&stem, at)..codec::behind(&stem)).next()
        else {
            return Ok(None);
        };
        let (place, content) = found.into_inner().map_err(store_error)?;
        let version = read_version(&place, &content)?;
        if version.created == 0 {
            return Ok(None);
        }
        let value = Bytes::copy_from_slice(version.value);
        Ok(Some(KeyValue { key: key.clone(), value, created: version.created, modified: version.modified }))
    }

    /// Visits each key of a range that is live as of a revision, in order.
    pub(crate) fn scan(
        &self,
        snapshot: &Snapshot,
        range: &KeyRange,
        at: Revision,
        visit: impl FnMut(Found<'_>) -> Result<ControlFlow<()>, StoreError>,
    ) -> Result<(), StoreError> {
        self.scan_some(snapshot, range, at, usize::MAX, visit).map(drop)
    }

    /// Visits each live key of a range as of a revision, looking at no more than `most` versions. Returns whether
    /// that was enough.
    pub(crate) fn scan_some(
        &self,
        snapshot: &Snapshot,
        range: &KeyRange,
        at: Revision,
        most: usize,
        mut visit: impl FnMut(Found<'_>) -> Result<ControlFlow<()>, StoreError>,
    ) -> Result<bool, StoreError> {
        self.scan_each(snapshot, std::slice::from_ref(range), at, most, |_, found| visit(found))
    }

    /// Visits each live key of ranges as of a revision, with the number of its range, looking at no more than `most` versions.
    /// Returns whether that was enough. The ranges are in order and apart; a visit that breaks ends its range.
    pub(crate) fn scan_each(
        &self,
        snapshot: &Snapshot,
        ranges: &[KeyRange],
        at: Revision,
        most: usize,
        mut visit: impl FnMut(usize, Found<'_>) -> Result<ControlFlow<()>, StoreError>,
    ) -> Result<bool, StoreError> {
        let mut bounds = ranges.iter().map(|range| (codec::escape(&range.start), codec::escape(&range.end)));
        let Some(last) = ranges.last().map(|range| codec::escape(&range.end)) else { return Ok(true) };
        let Some((mut start, mut end)) = bounds.next() else { return Ok(true) };
        let (mut nth, mut seen, mut passed) = (0, 0, 0);
        let mut from = start.clone();
        let mut stem: Vec<u8> = Vec::new();
        let (mut decided, mut skipped) = (false, 0);
        'seek: while from < last {
            for guard in snapshot.range(&self.data, from.as_slice()..last.as_slice()) {
                let (place, content) = guard.into_inner().map_err(store_error)?;
                while *place >= *end {
                    let Some(next) = bounds.next() else { return Ok(true) };
                    ((start, end), nth, passed) = (next, nth + 1, 0);
                }
                if *place < *start {
                    passed += place.len() + content.len();
                    if passed > GAP {
                        (from, passed) = (start.clone(), 0);
                        continue 'seek;
                    }
                    continue;
                }
                let found = read_version(&place, &content)?;
                seen += 1;
                if seen > most {
                    return Ok(false);
                }
                if found.stem != stem {
                    stem.clear();
                    stem.extend_from_slice(found.stem);
                    (decided, skipped) = (false, 0);
                }
                if decided || found.modified > at {
                    skipped += 1;
                    if skipped > SEEK_AFTER {
                        from = if decided { codec::behind(&stem) } else { codec::version_of(&stem, at) };
                        skipped = 0;
                        continue 'seek;
                    }
                    continue;
                }
                decided = true;
                if found.created != 0 && visit(nth, found)?.is_break() {
                    let Some(next) = bounds.next() else { return Ok(true) };
                    ((start, end), nth, passed) = (next, nth + 1, 0);
                    from = start.clone();
                    continue 'seek;
                }
            }
            return Ok(true);
        }
        Ok(true)
    }

    /// The changes to some keys in some revisions. `check` is called once nothing can be deleted from under it.
    pub(crate) fn replay(
        &self,
        ask: &Replay<'_>,
        check: impl FnOnce() -> Result<(), StoreError>,
    ) -> Result<Replayed, StoreError> {
        let snapshot = self.snapshot();
        check()?;
        let mut replayed = Replayed { events: Vec::new(), upto: *ask.revisions.end() };
        let mut bytes = 0;
        let places = ask.revisions.start().to_be_bytes()..=ask.revisions.end().to_be_bytes();
        for (nth, guard) in snapshot.range(&self.log, places).enumerate() {
            let (place, record) = guard.into_inner().map_err(store_error)?;
            let revision = revision_of(&place)?;
            for change in decode_record(&record)? {
                let key = Key::from_store(change.key.clone());
                if ask.keys.contains(&key) {
                    let event = self.event(&snapshot, key, revision, &change, ask.previous)?;
                    bytes += event.value.as_ref().map_or(0, Bytes::len);
                    bytes += event.previous.as_ref().map_or(0, |previous| previous.value.len());
                    replayed.events.push(event);
                }
            }
            if bytes >= ask.max_bytes || nth + 1 >= ask.max_revisions {
                replayed.upto = revision;
                break;
            }
        }
        Ok(replayed)
    }

    fn event(
        &self,
        snapshot: &Snapshot,
        key: Key,
        revision: Revision,
        change: &Logged,
        previous: bool,
    ) -> Result<Event, StoreError> {
        let exactly = |at: Revision| -> Result<Option<KeyValue>, StoreError> {
            Ok(self.version_at(snapshot, &key, at)?.filter(|found| found.modified == at))
        };
        let value = match change.created {
            0 => None,
            _ => Some(exactly(revision)?.ok_or_else(|| corrupt("a logged version is not there"))?.value),
        };
        let previous = if previous && change.previous != 0 { exactly(change.previous)? } else { None };
        Ok(Event { key, revision, value, created: change.created, previous })
    }

    /// Visits the records of the log in some revisions, until `visit` is told enough.
    pub(crate) fn each_record(
        &self,
        revisions: RangeInclusive<Revision>,
        mut visit: impl FnMut(Revision, Vec<Logged>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, StoreError> {
        let places = revisions.start().to_be_bytes()..=revisions.end().to_be_bytes();
        for guard in self.log.range(places) {
            let (place, record) = guard.into_inner().map_err(store_error)?;
            if visit(revision_of(&place)?, decode_record(&record)?).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// An empty batch that will be durable once it is committed.
    pub(crate) fn batch(&self) -> OwnedWriteBatch {
        self.db.batch().durability(Some(PersistMode::SyncData))
    }

    pub(crate) fn put_version(
        &self,
        batch: &mut OwnedWriteBatch,
        key: &Key,
        revision: Revision,
        created: Revision,
        value: &[u8],
    ) {
        batch.insert(
            &self.data,
            codec::version(key.as_bytes(), revision),
            codec::encode_version(created, value),
        );
    }

    pub(crate) fn remove_version(&self, batch: &mut OwnedWriteBatch, key: &[u8], revision: Revision) {
        batch.remove(&self.data, codec::version(key, revision));
    }

    pub(crate) fn put_record(&self, batch: &mut OwnedWriteBatch, revision: Revision, record: Vec<u8>) {
        batch.insert(&self.log, revision.to_be_bytes(), record);
    }

    pub(crate) fn remove_record(&self, batch: &mut OwnedWriteBatch, revision: Revision) {
        batch.remove(&self.log, revision.to_be_bytes());
    }

    pub(crate) fn put_compacted(&self, batch: &mut OwnedWriteBatch, revision: Revision) {
        batch.insert(&self.meta, COMPACTED_KEY, revision.to_be_bytes());
    }

    /// Waits until the database has room for another batch in memory. Fails if an earlier write failed.
    pub(crate) fn wait_for_room(&self) -> Result<(), StoreError> {
        self.db.persist(PersistMode::Buffer).map_err(store_error)?;
        let full = |keyspace: &Keyspace| keyspace.sealed_memtable_count() >= MAX_SEALED;
        self.wait_while(|| full(&self.data) || full(&self.log))
    }

    /// Waits while memtables have to be written out first. Fails where an earlier write failed, and where it takes so long
    /// that nothing will come of it.
    fn wait_while(&self, busy: impl Fn() -> bool) -> Result<(), StoreError> {
        let begun = Instant::now();
        while busy() {
            if begun.elapsed() > LONGEST_FLUSH {
                return Err(StoreError::Unavailable("the disk takes too long to write".into()));
            }
            std::thread::sleep(POLL);
            self.db.persist(PersistMode::Buffer).map_err(store_error)?;
        }
        Ok(())
    }

    /// How many versions there may be, deleted ones that still take room among them.
    pub(crate) fn approximate_versions(&self) -> usize {
        self.data.approximate_len()
    }

    /// Writes the sorted files anew without what was deleted from them. Takes long, and holds nobody up.
    pub(crate) fn reclaim(&self) -> Result<(), StoreError> {
        for keyspace in [&self.data, &self.log] {
            self.flush(keyspace)?;
            keyspace.major_compact().map_err(store_error)?;
        }
        // The database lets go of files that were replaced when it next flushes anything.
        self.meta.insert(RECLAIMED_KEY, []).map_err(store_error)?;
        self.flush(&self.meta)
    }

    /// Bytes of keys and values that are in memory and in no sorted file, and what it takes to keep them there, about.
    pub(crate) fn buffered(&self) -> u64 {
        self.db.write_buffer_size()
    }

    /// Has what the journal brought into memory written to sorted files, before others take memory between it.
    pub(crate) fn empty_memory(&self) -> Result<(), StoreError> {
        [&self.data, &self.log, &self.meta].into_iter().try_for_each(|keyspace| self.flush(keyspace))
    }

    /// Has what is in memory written to sorted files, in the background.
    pub(crate) fn begin_flush(&self) -> Result<(), StoreError> {
        let keyspaces = [&self.data, &self.log, &self.meta];
        keyspaces
            .into_iter()
            .try_for_each(|keyspace| keyspace.rotate_memtable().map(drop).map_err(store_error))
    }

    /// Writes what a keyspace has in memory to sorted files.
    fn flush(&self, keyspace: &Keyspace) -> Result<(), StoreError> {
        keyspace.rotate_memtable().map_err(store_error)?;
        self.wait_while(|| keyspace.sealed_memtable_count() > 0)
    }

    /// Sorted files of `data`.
    #[cfg(test)]
    pub(crate) fn files(&self) -> usize {
        self.data.table_count()
    }

    #[cfg(test)]
    pub(crate) fn stored_versions(&self) -> (usize, usize) {
        (self.data.len().unwrap(), self.log.len().unwrap())
    }

    #[cfg(test)]
    pub(crate) fn overwrite_format(&self, format: &str) {
        let mut batch = self.batch();
        batch.insert(&self.meta, FORMAT_KEY, format);
        batch.commit().unwrap();
    }
}

fn read_version<'a>(place: &'a [u8], content: &'a [u8]) -> Result<Found<'a>, StoreError> {
    let (stem, modified) =
        codec::split_version(place).ok_or_else(|| corrupt("a place in `data` is malformed"))?;
    let (created, value) =
        codec::decode_version(content).ok_or_else(|| corrupt("a version in `data` is cut short"))?;
    Ok(Found { stem, created, modified, value })
}

fn revision_of(bytes: &[u8]) -> Result<Revision, StoreError> {
    let bytes = bytes.try_into().map_err(|_| corrupt("a revision does not have eight bytes"))?;
    Ok(Revision::from_be_bytes(bytes))
}

fn decode_record(record: &[u8]) -> Result<Vec<Logged>, StoreError> {
    codec::decode_log(record).ok_or_else(|| corrupt("a log record is cut short"))
}
