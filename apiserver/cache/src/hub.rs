//! Recent events and who waits for more. All of it is behind one lock that the feed takes for each batch, so that a
//! watch starts at a revision without missing or repeating an event.

use crate::CacheEvent;
use freehold_machinery::PlaneId;
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};
use tokio::sync::mpsc;

/// Events that a watcher may be behind before it is cut off.
const WATCHER_BUFFER: usize = 4_096;

/// What a watcher is interested in: a collection, of one plane or of all.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Interest {
    pub(crate) plane: Option<PlaneId>,
    pub(crate) collection: Box<str>,
}

pub(crate) struct Hub {
    /// Everything up to here has been applied and sent.
    pub(crate) revision: u64,
    /// Events after this revision are in `recent`.
    oldest: u64,
    recent: VecDeque<Arc<CacheEvent>>,
    recent_bytes: usize,
    recent_limit: usize,
    watchers: HashMap<Interest, Vec<mpsc::Sender<Arc<CacheEvent>>>>,
}

impl Hub {
    pub(crate) fn new(revision: u64, recent_limit: usize) -> Self {
        let (recent, watchers) = (VecDeque::new(), HashMap::new());
        Self { revision, oldest: revision, recent, recent_bytes: 0, recent_limit, watchers }
    }

    /// Whether somebody watches this collection of this plane.
    fn send(&mut self, event: &Arc<CacheEvent>) {
        for plane in [Some(event.plane.clone()), None] {
            let interest = Interest { plane, collection: event.collection.clone() };
            let Some(senders) = self.watchers.get_mut(&interest) else { continue };
            // A watcher that is too far behind loses its sender and with that its watch; the others don't wait.
            senders.retain(|sender| sender.try_send(event.clone()).is_ok());
            if senders.is_empty() {
                self.watchers.remove(&interest);
            }
        }
    }

    pub(crate) fn publish(&mut self, event: Arc<CacheEvent>) {
        self.send(&event);
        self.recent_bytes += event.cost();
        self.recent.push_back(event);
        while self.recent_bytes > self.recent_limit {
            let Some(old) = self.recent.pop_front() else { break };
            self.recent_bytes -= old.cost();
            self.oldest = old.revision;
        }
    }

    /// Events of an interest after a revision; `None` where some of them are forgotten.
    pub(crate) fn since(&self, interest: &Interest, after: u64) -> Option<Vec<Arc<CacheEvent>>> {
        if after < self.oldest {
            return None;
        }
        let start = self.recent.partition_point(|event| event.revision <= after);
        let wanted = |event: &&Arc<CacheEvent>| {
            event.collection == interest.collection
                && interest.plane.as_ref().is_none_or(|p| *p == event.plane)
        };
        Some(self.recent.range(start..).filter(wanted).cloned().collect())
    }

    pub(crate) fn subscribe(&mut self, interest: Interest) -> mpsc::Receiver<Arc<CacheEvent>> {
        let (sender, receiver) = mpsc::channel(WATCHER_BUFFER);
        let senders = self.watchers.entry(interest).or_default();
        senders.retain(|sender| !sender.is_closed());
        senders.push(sender);
        receiver
    }

    /// Forgets everything: the feed lost its place and starts again at `revision`. All watches end.
    pub(crate) fn reset(&mut self, revision: u64) {
        *self = Self::new(revision, self.recent_limit);
    }
}
