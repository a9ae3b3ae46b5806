//! Watches. A watch is a position in the log: it reads on from there, from memory while it keeps up and from disk while
//! it does not, and waits at the end. So nothing is buffered for it, it can't lose, repeat or reorder anything, and a
//! slow one costs no more than a fast one. It costs no task.

use crate::{
    disk::{Replay, closed, cut_off},
    inner::{Head, Inner},
};
use freehold_apiserver_storage::{Event, KeyRange, Revision, StoreError, WatchItem, Watched, stepwise};
use std::sync::Arc;
use tokio::sync::watch::Receiver;

/// How many revisions are looked at in one step.
const REVISIONS_PER_STEP: usize = 512;
/// How many bytes of values are read from disk in one step, give or take one revision.
const BYTES_PER_STEP: usize = 4 << 20;

struct Watch {
    inner: Arc<Inner>,
    keys: KeyRange,
    previous: bool,
    /// The first revision that was not looked at yet.
    next: Revision,
    /// The last revision that was told of: by an event, or as progress.
    told: Revision,
    /// The last request for progress that was answered.
    progress: u64,
    head: Receiver<Head>,
}

/// Begins a watch.
pub(crate) fn watch(inner: Arc<Inner>, keys: KeyRange, after: Revision, previous: bool) -> Watched {
    inner.check_watch(after)?;
    let head = inner.head.subscribe();
    let progress = head.borrow().progress;
    let watch = Watch { inner, keys, previous, next: after + 1, told: after, progress, head };
    Ok(stepwise(watch, |mut watch| async move { Some((watch.step().await, watch)) }))
}

impl Watch {
    async fn step(&mut self) -> Result<WatchItem, StoreError> {
        loop {
            let head = *self.head.borrow_and_update();
            if self.next <= head.revision {
                let events = self.read_on(head.revision).await?;
                if let Some(last) = events.last() {
                    self.told = last.revision;
                    return Ok(WatchItem::Events(events));
                }
            } else if self.told < head.revision || self.progress != head.progress {
                // Whoever waits for a revision that is about other keys alone would wait until it asks.
                (self.told, self.progress) = (head.revision, head.progress);
                return Ok(WatchItem::Progress(head.revision));
            } else if head.closed || self.head.changed().await.is_err() {
                return Err(closed());
            }
        }
    }

    async fn read_on(&mut self, upto: Revision) -> Result<Vec<Event>, StoreError> {
        let recent = self.inner.recent.lock().from(self.next, REVISIONS_PER_STEP);
        let Some(recent) = recent else { return self.replay(upto).await };
        self.next += recent.len() as u64;
        let wanted =
            recent.iter().flat_map(|changes| &changes.events).filter(|event| self.keys.contains(&event.key));
        Ok(wanted.map(|event| self.trimmed(event)).collect())
    }

    fn trimmed(&self, event: &Event) -> Event {
        let previous = if self.previous { event.previous.clone() } else { None };
        Event { key: event.key.clone(), value: event.value.clone(), previous, ..*event }
    }

    async fn replay(&mut self, upto: Revision) -> Result<Vec<Event>, StoreError> {
        let (inner, keys, next, previous) = (self.inner.clone(), self.keys.clone(), self.next, self.previous);
        let read = move || {
            inner.with_disk(|disk| {
                let revisions = next..=upto;
                let ask = Replay {
                    keys: &keys,
                    revisions,
                    previous,
                    max_bytes: BYTES_PER_STEP,
                    max_revisions: REVISIONS_PER_STEP,
                };
                disk.replay(&ask, || inner.check_watch(next - 1))
            })
        };
        let replayed = tokio::task::spawn_blocking(read).await.map_err(|_| cut_off())??;
        self.next = replayed.upto + 1;
        Ok(replayed.events)
    }
}
