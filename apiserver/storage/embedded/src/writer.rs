//! The one thread that writes. It collects what is queued into groups, so that many commits share one sync of the disk,
//! and compacts in small steps in between.
//!
//! After a failed write the database takes no more of them. The thread then keeps it for reading, answers commits with
//! what went wrong, and reopens it once a trial file can be written.

use crate::{
    disk::{Disk, WORTH, io_error, store_error},
    evaluate::Group,
    inner::Inner,
    recent::Changes,
    sweep::{Step, Sweeper},
};
use fjall::OwnedWriteBatch;
use freehold_apiserver_storage::{Change, Commit, Committed, Revision, StoreError};
use std::{
    collections::VecDeque,
    io::Write,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, TryRecvError},
    },
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

const MAX_GROUP_COMMITS: usize = 512;
const MAX_GROUP_BYTES: usize = 8 << 20;
/// Revisions that are compacted before it is time for that.
const MUCH: u64 = 1_000;
/// When nothing is written any more.
const CALM: Duration = Duration::from_secs(1);
/// The time between attempts to write again.
const RETRY: Duration = Duration::from_millis(200);

/// What the writer is asked for.
pub(crate) enum Request {
    Commit(Commit, Answer<Committed>),
    Compact(Revision, Answer<()>),
    Close,
}

type Answer<T> = oneshot::Sender<Result<T, StoreError>>;
type Queued = (Commit, Answer<Committed>);

/// Why nothing can be written at the moment.
struct Broken {
    error: StoreError,
    retry: Instant,
}

pub(crate) struct Writer {
    inner: Arc<Inner>,
    queue: Receiver<Request>,
    sweeper: Sweeper,
    /// The revision at some times of the past, oldest first.
    samples: VecDeque<(Instant, Revision)>,
    next_tick: Instant,
    /// When history that is too old is looked for, unless there is much of it.
    next_compaction: Instant,
    /// Whether there may be more in memory than when it was looked at last.
    gathered: bool,
    last_commit: Instant,
    broken: Option<Broken>,
}

impl Writer {
    pub(crate) fn new(inner: Arc<Inner>, queue: Receiver<Request>) -> Self {
        // A compaction that was cut off by the end of the last process goes on.
        let next_tick = Instant::now() + inner.options.progress_every;
        let (sweeper, samples, next_compaction) = (Sweeper::default(), VecDeque::new(), next_tick);
        Self {
            inner,
            queue,
            sweeper,
            samples,
            next_tick,
            next_compaction,
            gathered: false,
            last_commit: Instant::now(),
            broken: None,
        }
    }

    /// Serves requests until it is closed.
    pub(crate) fn run(mut self) {
        loop {
            let mut idle = true;
            match self.next_request() {
                Ok(Some(request)) => {
                    idle = false;
                    if !self.serve(request) {
                        return;
                    }
                }
                Ok(None) => {}
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if idle {
                self.sweep_some();
                self.empty_memory();
            }
            if Instant::now() >= self.next_tick {
                self.tick();
            }
        }
    }

    /// The next request. Does not wait while there is something to compact.
    fn next_request(&self) -> Result<Option<Request>, RecvTimeoutError> {
        if self.sweeper.is_active() && self.broken.is_none() {
            return match self.queue.try_recv() {
                Ok(request) => Ok(Some(request)),
                Err(TryRecvError::Empty) => Ok(None),
                Err(TryRecvError::Disconnected) => Err(RecvTimeoutError::Disconnected),
            };
        }
        let until = |when: Instant| when.saturating_duration_since(Instant::now());
        let mut wait = until(self.next_tick);
        if self.gathered {
            wait = wait.min(until(self.last_commit + CALM));
        }
        self.queue.recv_timeout(if self.broken.is_some() { wait.min(RETRY) } else { wait }).map(Some)
    }

    /// Serves a request and the commits queued behind it. Returns whether to go on.
    fn serve(&mut self, first: Request) -> bool {
        let mut group = Vec::new();
        let mut bytes = 0;
        let mut next = Some(first);
        while let Some(Request::Commit(commit, answer)) = next {
            bytes += value_bytes(&commit);
            group.push((commit, answer));
            let full = group.len() >= MAX_GROUP_COMMITS || bytes >= MAX_GROUP_BYTES;
            next = if full { None } else { self.queue.try_recv().ok() };
        }
        if !group.is_empty() {
            self.commit(group);
            self.gathered = true;
            self.last_commit = Instant::now();
        }
        match next {
            Some(Request::Close) => return false,
            Some(Request::Compact(revision, answer)) => {
                let compacted = self.compact(revision);
                let _ = answer.send(compacted);
            }
            Some(Request::Commit(..)) | None => {}
        }
        true
    }

    fn commit(&mut self, group: Vec<Queued>) {
        if let Err(error) = self.recover() {
            return refuse(group.into_iter().map(|(_, answer)| answer), &error);
        }
        let (commits, answers): (Vec<_>, Vec<_>) = group.into_iter().unzip();
        let (inner, sweeper) = (&self.inner, &self.sweeper);
        let written = inner.with_disk(|disk| {
            let mut batch = disk.batch();
            let step = sweeper.step(disk, inner.sweepable(), &mut batch)?;
            let (committed, changes) = write_group(disk, batch, inner.visible(), commits)?;
            Ok((committed, changes, step))
        });
        match written {
            Ok((committed, changes, step)) => {
                self.inner.publish(changes);
                self.swept(step);
                for (committed, answer) in committed.into_iter().zip(answers) {
                    // Whoever asked may have gone; the commit stands.
                    let _ = answer.send(committed);
                }
            }
            Err(error) => {
                let error = self.fail(error);
                refuse(answers.into_iter(), &error);
            }
        }
    }

    /// Notes that a write failed. Returns the error, or a fuller one if the disk is known to be full.
    fn fail(&mut self, error: StoreError) -> StoreError {
        let error = match (error, self.try_room()) {
            (StoreError::Unavailable(_), Err(full @ StoreError::Full(_))) => full,
            (error, _) => error,
        };
        tracing::error!(%error, dir = %self.inner.dir.display(), "writing to the store failed");
        self.broken = Some(Broken { error: error.clone(), retry: Instant::now() + RETRY });
        error
    }

    /// Makes the database writable again if it is not.
    fn recover(&mut self) -> Result<(), StoreError> {
        let Some(broken) = &self.broken else { return Ok(()) };
        if Instant::now() < broken.retry {
            return Err(broken.error.clone());
        }
        match self.try_room().and_then(|()| self.inner.reopen()) {
            Ok(()) => {
                tracing::info!(dir = %self.inner.dir.display(), "the store is writable again");
                self.broken = None;
                Ok(())
            }
            Err(error) => {
                self.broken = Some(Broken { error: error.clone(), retry: Instant::now() + RETRY });
                Err(error)
            }
        }
    }

    /// Whether a file of some size can be written.
    fn try_room(&self) -> Result<(), StoreError> {
        let path = self.inner.dir.join("TRIAL");
        let written = std::fs::File::create(&path).and_then(|mut file| {
            file.write_all(&vec![0x5a; self.inner.options.room_to_recover])?;
            file.sync_all()
        });
        let removed = std::fs::remove_file(&path);
        written.and(removed).map_err(|error| io_error(&error))
    }

    fn compact(&mut self, revision: Revision) -> Result<(), StoreError> {
        let (current, oldest) = (self.inner.visible(), self.inner.compacted());
        if revision > current {
            return Err(StoreError::Future { asked: revision, current });
        }
        if revision <= oldest {
            return Err(StoreError::Compacted { asked: revision, oldest });
        }
        self.recover()?;
        let marked = self.inner.with_disk(|disk| {
            disk.wait_for_room()?;
            let mut batch = disk.batch();
            disk.put_compacted(&mut batch, revision);
            batch.commit().map_err(store_error)
        });
        marked.map_err(|error| self.fail(error))?;
        self.inner.set_compacted(revision);
        self.sweeper.go_on();
        Ok(())
    }

    /// One step of the deletion of what is compacted, while nothing else is to be written.
    fn sweep_some(&mut self) {
        if !self.sweeper.is_active() || self.broken.is_some() {
            return;
        }
        let swept = self.inner.with_disk(|disk| {
            let mut batch = disk.batch();
            let step = self.sweeper.step(disk, self.inner.sweepable(), &mut batch)?;
            write(disk, batch)?;
            Ok(step)
        });
        match swept {
            Ok(step) => self.swept(step),
            Err(error) => {
                self.fail(error);
            }
        }
    }

    /// Has what is in memory written to sorted files once nobody has written for a while: a server that rests needs that
    /// memory for nothing.
    fn empty_memory(&mut self) {
        if !self.gathered || self.broken.is_some() || self.last_commit.elapsed() < CALM {
            return;
        }
        self.gathered = false;
        let flush = |disk: &Disk| if disk.buffered() < WORTH { Ok(()) } else { disk.begin_flush() };
        if let Err(error) = self.inner.with_disk(flush) {
            self.fail(error);
        }
    }

    fn swept(&mut self, step: Step) {
        if self.sweeper.took(step) {
            self.sweeper.reclaim(&self.inner);
        }
    }

    fn tick(&mut self) {
        let now = Instant::now();
        self.next_tick = now + self.inner.options.progress_every;
        self.inner.request_progress();
        if self.sweeper.is_behind(self.inner.sweepable()) {
            self.sweeper.go_on();
        }
        if self.recover().is_ok()
            && let Some(revision) = self.outdated(now)
            && let Err(error) = self.compact(revision)
        {
            tracing::warn!(%error, "automatic compaction failed");
        }
    }

    /// The revision to compact at, if some history is older than it has to be kept.
    fn outdated(&mut self, now: Instant) -> Option<Revision> {
        let retention = self.inner.options.retention?;
        let current = self.inner.visible();
        if self.samples.back().is_none_or(|(_, revision)| *revision != current) {
            self.samples.push_back((now, current));
        }
        let mut old = 0;
        while let Some((seen, revision)) = self.samples.front().copied() {
            if now.duration_since(seen) < retention.age {
                break;
            }
            old = revision;
            if revision >= current.saturating_sub(retention.revisions) {
                break;
            }
            self.samples.pop_front();
        }
        let revision = old.min(current.saturating_sub(retention.revisions));
        let gained = revision.saturating_sub(self.inner.compacted());
        // Each compaction is a write that waits for the disk: a quiet server does few of them.
        if gained == 0 || gained < MUCH && now < self.next_compaction {
            return None;
        }
        self.next_compaction = now + retention.age / 5;
        Some(revision)
    }
}

fn value_bytes(commit: &Commit) -> usize {
    commit.changes.iter().map(|change| if let Change::Put(_, value) = change { value.len() } else { 0 }).sum()
}

fn refuse(answers: impl Iterator<Item = Answer<Committed>>, error: &StoreError) {
    answers.for_each(|answer| {
        let _ = answer.send(Err(error.clone()));
    });
}

type Written = (Vec<Result<Committed, StoreError>>, Vec<Changes>);

fn write_group(
    disk: &Disk,
    mut batch: OwnedWriteBatch,
    revision: Revision,
    commits: Vec<Commit>,
) -> Result<Written, StoreError> {
    let mut group = Group::new(disk, revision);
    let committed: Vec<_> = commits.into_iter().map(|commit| group.add(commit)).collect();
    group.write(&mut batch);
    write(disk, batch)?;
    Ok((committed, group.into_changes()))
}

fn write(disk: &Disk, batch: OwnedWriteBatch) -> Result<(), StoreError> {
    if batch.is_empty() {
        return Ok(());
    }
    disk.wait_for_room()?;
    batch.commit().map_err(store_error)
}
