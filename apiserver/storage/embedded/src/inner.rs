//! What readers, watches and the writer share.

use crate::{
    disk::{Disk, FIRST, closed, io_error, store_error},
    options::{OpenError, Options},
    recent::{Changes, Recent},
};
use freehold_apiserver_storage::{
    Hold, Key, KeyRange, KeyValue, Range, RangeResult, Revision, StoreError, Usage,
};
use parking_lot::{Mutex, RwLock};
use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::sync::watch;

/// What watches wait for changes of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    /// The latest visible revision.
    pub(crate) revision: Revision,
    /// Counted up when watches shall yield their progress.
    pub(crate) progress: u64,
    /// Nothing will come any more.
    pub(crate) closed: bool,
}

pub(crate) struct Inner {
    pub(crate) dir: PathBuf,
    pub(crate) options: Options,
    /// `None` while it is being reopened and after closing. Readers hold the lock, so that reopening waits for them.
    disk: RwLock<Option<Disk>>,
    /// Everything up to this revision is durable. Set before the commit is answered.
    visible: AtomicU64,
    /// Set before anything is deleted; readers look at it after they took their snapshot.
    compacted: AtomicU64,
    /// Revisions that are kept readable though they may be compacted, and how often.
    holds: Mutex<BTreeMap<Revision, usize>>,
    pub(crate) head: watch::Sender<Head>,
    pub(crate) recent: Mutex<Recent>,
}

impl Inner {
    pub(crate) fn open(dir: PathBuf, options: Options) -> Result<Self, OpenError> {
        let disk = Disk::open(&dir, &options)?;
        let damaged = |error: StoreError| OpenError::Damaged { dir: dir.clone(), reason: error.to_string() };
        let (revision, compacted) =
            (disk.last_revision().map_err(damaged)?, disk.compacted().map_err(damaged)?);
        if compacted > revision {
            return Err(damaged(StoreError::Corrupt(format!(
                "compacted at {compacted}, but it ends at {revision}"
            ))));
        }
        Ok(Self {
            recent: Mutex::new(Recent::new(options.recent_changes)),
            dir,
            options,
            disk: RwLock::new(Some(disk)),
            visible: AtomicU64::new(revision),
            compacted: AtomicU64::new(compacted),
            holds: Mutex::default(),
            head: watch::Sender::new(Head { revision, progress: 0, closed: false }),
        })
    }

    pub(crate) fn visible(&self) -> Revision {
        self.visible.load(Ordering::Acquire)
    }

    pub(crate) fn compacted(&self) -> Revision {
        self.compacted.load(Ordering::Acquire)
    }

    pub(crate) fn set_compacted(&self, revision: Revision) {
        self.compacted.store(revision, Ordering::Release);
    }

    /// What may be deleted: what nobody can read who reads at this revision or later.
    pub(crate) fn sweepable(&self) -> Revision {
        let held = self.holds.lock().keys().next().copied();
        held.unwrap_or(Revision::MAX).min(self.compacted())
    }

    /// Keeps the current revision readable until the guard is dropped.
    pub(crate) fn hold(self: &Arc<Self>) -> Hold {
        let mut holds = self.holds.lock();
        let revision = self.visible();
        *holds.entry(revision).or_default() += 1;
        Hold::new(revision, Held { inner: self.clone(), revision })
    }

    fn is_held(&self, revision: Revision) -> bool {
        self.holds.lock().contains_key(&revision)
    }

    /// Runs something on the open database.
    pub(crate) fn with_disk<T>(
        &self,
        run: impl FnOnce(&Disk) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match &*self.disk.read() {
            Some(disk) => run(disk),
            None => Err(closed()),
        }
    }

    /// Makes durable changes visible: to reads, then to watches.
    pub(crate) fn publish(&self, changes: Vec<Changes>) {
        let Some(revision) = changes.last().map(|last| last.revision) else { return };
        let mut recent = self.recent.lock();
        changes.into_iter().for_each(|changes| recent.push(changes));
        drop(recent);
        self.visible.store(revision, Ordering::Release);
        self.head.send_modify(|head| head.revision = revision);
    }

    pub(crate) fn request_progress(&self) {
        self.head.send_modify(|head| head.progress += 1);
    }

    /// Closes the database and opens it again, after a write failed. What was written then and not answered is undone.
    pub(crate) fn reopen(&self) -> Result<(), StoreError> {
        let mut disk = self.disk.write();
        *disk = None;
        let opened =
            Disk::open_checked(&self.dir, &self.dir.join("db"), &self.options).map_err(
                |error| match error {
                    OpenError::Io { source, .. } => io_error(&source),
                    other => StoreError::Unavailable(other.to_string()),
                },
            )?;
        let mut undo = opened.batch();
        let _ = opened.each_record(self.visible() + 1..=Revision::MAX, |revision, changes| {
            changes.iter().for_each(|change| opened.remove_version(&mut undo, &change.key, revision));
            opened.remove_record(&mut undo, revision);
            ControlFlow::Continue(())
        })?;
        undo.commit().map_err(store_error)?;
        *disk = Some(opened);
        Ok(())
    }

    pub(crate) fn close(&self) {
        *self.disk.write() = None;
        self.head.send_modify(|head| head.closed = true);
    }

    /// Runs a read on a snapshot that holds all of the revision that is read.
    fn read<T>(
        &self,
        at: Option<Revision>,
        run: impl Fn(&Disk, &fjall::Snapshot, Revision) -> Result<T, StoreError>,
    ) -> Result<(T, Revision), StoreError> {
        self.with_disk(|disk| {
            loop {
                let current = self.visible();
                let revision = at.unwrap_or(current);
                if revision > current {
                    return Err(StoreError::Future { asked: revision, current });
                }
                let snapshot = disk.snapshot();
                let oldest = self.compacted();
                if revision >= oldest || self.is_held(revision) {
                    return Ok((run(disk, &snapshot, revision)?, current));
                }
                if at.is_some() {
                    return Err(StoreError::Compacted { asked: revision, oldest });
                }
            }
        })
    }

    /// Reads a range; `None` if it would take a look at more than `most` versions.
    pub(crate) fn range(&self, range: &Range, most: usize) -> Result<Option<RangeResult>, StoreError> {
        let limit = if range.limit == 0 { usize::MAX } else { range.limit };
        let (read, revision) = self.read(range.at, |disk, snapshot, at| {
            let (mut items, mut more) = (Vec::new(), false);
            let all = disk.scan_some(snapshot, &range.keys, at, most, |found| {
                more = items.len() == limit;
                if more {
                    return Ok(ControlFlow::Break(()));
                }
                items.push(found.to_key_value(range.keys_only)?);
                Ok(ControlFlow::Continue(()))
            })?;
            Ok(all.then_some((items, more)))
        })?;
        Ok(read.map(|(items, more)| RangeResult { items, more, revision }))
    }

    /// Reads several ranges, which are in order and apart, each up to a limit.
    pub(crate) fn ranges(
        &self,
        ranges: &[KeyRange],
        at: Revision,
        limit: usize,
    ) -> Result<Vec<RangeResult>, StoreError> {
        let limit = if limit == 0 { usize::MAX } else { limit };
        let (read, revision) = self.read(Some(at), |disk, snapshot, at| {
            let mut read: Vec<(Vec<KeyValue>, bool)> = ranges.iter().map(|_| Default::default()).collect();
            disk.scan_each(snapshot, ranges, at, usize::MAX, |nth, found| {
                let Some((items, more)) = read.get_mut(nth) else { return Ok(ControlFlow::Break(())) };
                *more = items.len() == limit;
                if *more {
                    return Ok(ControlFlow::Break(()));
                }
                items.push(found.to_key_value(false)?);
                Ok(ControlFlow::Continue(()))
            })?;
            Ok(read)
        })?;
        let result = |(items, more)| RangeResult { items, more, revision };
        Ok(read.into_iter().map(result).collect())
    }

    pub(crate) fn get(&self, key: &Key) -> Result<Option<KeyValue>, StoreError> {
        Ok(self.read(None, |disk, snapshot, at| disk.version_at(snapshot, key, at))?.0)
    }

    pub(crate) fn usage(&self, keys: &KeyRange) -> Result<Usage, StoreError> {
        let (usage, _) = self.read(None, |disk, snapshot, at| {
            let mut usage = Usage::default();
            disk.scan(snapshot, keys, at, |found| {
                usage.keys += 1;
                usage.bytes += (found.key_len() + found.value.len()) as u64;
                Ok(ControlFlow::Continue(()))
            })?;
            Ok(usage)
        })?;
        Ok(usage)
    }

    /// Whether a watch can begin after a revision.
    pub(crate) fn check_watch(&self, after: Revision) -> Result<(), StoreError> {
        let (current, oldest) = (self.visible(), self.compacted());
        if after > current {
            return Err(StoreError::Future { asked: after, current });
        }
        if after + 1 < oldest.max(FIRST) {
            return Err(StoreError::Compacted { asked: after, oldest });
        }
        Ok(())
    }
}

/// One hold of a revision.
struct Held {
    inner: Arc<Inner>,
    revision: Revision,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut holds = self.inner.holds.lock();
        if let Some(count) = holds.get_mut(&self.revision) {
            *count -= 1;
            if *count == 0 {
                holds.remove(&self.revision);
            }
        }
    }
}
