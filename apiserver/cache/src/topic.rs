//! Events of a topic: the ring that its readers follow.

use crate::{CacheEvent, layer_switch::SwitchedPlane};
use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Waker},
};

/// Bytes of events that a watcher may be behind before it is cut off.
pub(crate) const BEHIND: usize = 16 << 20;

/// Bytes that a watcher may be behind where the watchers of all topics together hold too much.
pub(crate) const BEHIND_WHEN_FULL: usize = 64 << 10;

/// An item of a topic's ring.
#[derive(Clone)]
pub(crate) enum TopicItem {
    Event(Arc<CacheEvent>),
    /// A layer switch, whose events in the collection the watcher generates.
    SwitchedPlane(Arc<SwitchedPlane>),
}

impl TopicItem {
    /// Bytes that it takes, about.
    pub(crate) fn cost(&self) -> usize {
        match self {
            Self::Event(event) => event.cost,
            Self::SwitchedPlane(_) => size_of::<SwitchedPlane>(),
        }
    }
}

/// A collection that is watched.
pub(crate) struct Topic {
    pub(crate) ring: Mutex<Ring>,
    pub(crate) unread: Arc<AtomicUsize>,
}

#[derive(Default)]
pub(crate) struct Ring {
    /// Events with the number of readers that have not read them yet.
    pub(crate) events: VecDeque<(TopicItem, usize)>,
    /// The number of the first event; events are numbered from 0 as they come.
    pub(crate) first: u64,
    pub(crate) bytes: usize,
    pub(crate) readers: usize,
    /// Wakers of readers that wait for the next event, by reader number; free numbers are `None`.
    pub(crate) waiting: Vec<Option<Waker>>,
    pub(crate) free: Vec<usize>,
    pub(crate) closed: bool,
}

impl Ring {
    pub(crate) fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// Takes the wakers to call once the lock is released.
    pub(crate) fn woken(&mut self) -> Vec<Waker> {
        self.waiting.iter_mut().filter_map(Option::take).collect()
    }

    /// Registers a reader to be woken by the next event.
    pub(crate) fn wait(&mut self, number: usize, cx: &Context<'_>) {
        match &mut self.waiting[number] {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
    }

    pub(crate) fn pop(&mut self) -> usize {
        let freed = self.events.pop_front().map_or(0, |(event, _)| event.cost());
        self.first += 1;
        self.bytes -= freed;
        freed
    }
}

impl Topic {
    /// Adds an event. `false` where the topic has no readers any more.
    pub(crate) fn publish(&self, event: TopicItem, full: bool) -> bool {
        let mut ring = self.ring.lock();
        if ring.readers == 0 {
            return false;
        }
        let (cost, readers) = (event.cost(), ring.readers);
        ring.events.push_back((event, readers));
        ring.bytes += cost;
        self.unread.fetch_add(cost, Ordering::Relaxed);
        let limit = if full { BEHIND_WHEN_FULL } else { BEHIND };
        // Readers of what is dropped here are cut off; the others don't notice.
        while ring.bytes > limit && ring.events.len() > 1 {
            let freed = ring.pop();
            self.unread.fetch_sub(freed, Ordering::Relaxed);
        }
        let woken = ring.woken();
        drop(ring);
        woken.into_iter().for_each(Waker::wake);
        true
    }

    pub(crate) fn close(&self) {
        let mut ring = self.ring.lock();
        ring.closed = true;
        let woken = ring.woken();
        drop(ring);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Marks events from `next` to `upto` as read by one more, and drops what all have read.
    pub(crate) fn pass(&self, ring: &mut Ring, next: u64, upto: u64) {
        let (from, to) = (next.max(ring.first) - ring.first, upto - ring.first);
        for (_, left) in ring.events.range_mut(from as usize..to as usize) {
            *left -= 1;
        }
        let mut freed = 0;
        while ring.events.front().is_some_and(|(_, left)| *left == 0) {
            freed += ring.pop();
        }
        self.unread.fetch_sub(freed, Ordering::Relaxed);
    }
}
