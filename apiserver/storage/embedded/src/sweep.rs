//! The deletion of what is compacted: in steps, each in one batch with a group of commits or, when there are none, on its
//! own. When much was deleted, the sorted files are written anew without it.

use crate::{disk::Disk, inner::Inner};
use fjall::OwnedWriteBatch;
use freehold_apiserver_storage::{Revision, StoreError};
use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

/// Deletions in one step, give or take one.
const STEP: usize = 512;
/// So many deletions are worth writing files anew, if they are a quarter of what is stored.
const WORTHWHILE: usize = 10_000;

/// Where the deletion is.
pub(crate) struct Sweeper {
    /// The first change that was not looked at yet: its revision, and its place there.
    next: (Revision, usize),
    active: bool,
    /// Versions deleted since files were last written anew.
    deleted: usize,
    reclaiming: Arc<AtomicBool>,
}

impl Default for Sweeper {
    /// One that begins at the start: a compaction that was cut off by the end of the last process goes on.
    fn default() -> Self {
        Self { next: (0, 0), active: true, deleted: 0, reclaiming: Arc::default() }
    }
}

/// What one step did, once its batch is written.
pub(crate) struct Step {
    next: (Revision, usize),
    ended: bool,
    deleted: usize,
}

impl Sweeper {
    /// Whether there is something to delete at once.
    pub(crate) fn is_active(&self) -> bool {
        self.active
    }

    /// Begins again where it ended: there is more to delete.
    pub(crate) fn go_on(&mut self) {
        self.active = true;
    }

    /// Whether it ended before `until`, since a revision was held.
    pub(crate) fn is_behind(&self, until: Revision) -> bool {
        self.next.0 < until
    }

    /// Adds to a batch the deletion of what some log records up to `until` say is replaced, and of the records themselves.
    /// The record of `until` stays, as the log's beginning, and so do deletions that it made; what it replaced does not.
    pub(crate) fn step(
        &self,
        disk: &Disk,
        until: Revision,
        batch: &mut OwnedWriteBatch,
    ) -> Result<Step, StoreError> {
        let mut step = Step { next: (until, 0), ended: true, deleted: 0 };
        let (first, done) = self.next;
        if !self.active || first > until {
            return Ok(Step { next: self.next, ..step });
        }
        let walked = disk.each_record(first..=until, |revision, changes| {
            let done = if revision == first { done } else { 0 };
            for (nth, change) in changes.iter().enumerate().skip(done) {
                if batch.len() >= STEP {
                    step.next = (revision, nth);
                    return ControlFlow::Break(());
                }
                if change.previous != 0 {
                    disk.remove_version(batch, &change.key, change.previous);
                    step.deleted += 1;
                }
                if change.created == 0 && revision < until {
                    disk.remove_version(batch, &change.key, revision);
                    step.deleted += 1;
                }
            }
            if revision < until {
                disk.remove_record(batch, revision);
            }
            ControlFlow::Continue(())
        })?;
        step.ended = walked.is_continue();
        Ok(step)
    }

    /// Notes that a step is on disk. Returns whether files should be written anew.
    pub(crate) fn took(&mut self, step: Step) -> bool {
        if !self.active {
            return false;
        }
        self.next = step.next;
        self.active = !step.ended;
        self.deleted += step.deleted;
        step.ended && self.deleted >= WORTHWHILE
    }

    /// Writes the sorted files anew, on a thread of its own, if that gives back enough.
    pub(crate) fn reclaim(&mut self, inner: &Arc<Inner>) {
        let stored = inner.with_disk(|disk| Ok(disk.approximate_versions())).unwrap_or(usize::MAX);
        if self.deleted < stored / 4 || self.reclaiming.swap(true, Ordering::AcqRel) {
            return;
        }
        self.deleted = 0;
        let (inner, reclaiming) = (inner.clone(), self.reclaiming.clone());
        let run = move || {
            if let Err(error) = inner.with_disk(Disk::reclaim) {
                tracing::warn!(%error, "failed to reclaim the space of deleted objects");
            }
            reclaiming.store(false, Ordering::Release);
        };
        if let Err(error) = thread::Builder::new().name("store-reclaim".into()).spawn(run) {
            self.reclaiming.store(false, Ordering::Release);
            tracing::warn!(%error, "failed to start the thread that reclaims space");
        }
    }
}
