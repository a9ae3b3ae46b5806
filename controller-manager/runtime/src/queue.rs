//! A work queue over many planes.
//!
//! A key is in at most one of three places: waiting, being worked on, or delayed. A key that is added while it is
//! worked on waits again as soon as that is done. Planes take turns, each with one key. Failures are delayed by
//! 5 ms, doubled each time, up to 1000 s, as client-go's queues do.

use crate::QueueKey;
use freehold_machinery::PlaneId;
use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The delay after the first failure.
const FIRST_DELAY: Duration = Duration::from_millis(5);
/// The longest delay after a failure.
const LONGEST_DELAY: Duration = Duration::from_secs(1000);

/// A work queue. Cheap to share.
pub struct Queue<K> {
    state: Mutex<State<K>>,
    changed: Notify,
}

struct State<K> {
    turns: VecDeque<PlaneId>,
    waiting: HashMap<PlaneId, VecDeque<K>>,
    dirty: HashSet<K>,
    working: HashSet<K>,
    delayed: BinaryHeap<Reverse<Delayed<K>>>,
    due: HashMap<K, Instant>,
    failures: HashMap<K, u32>,
    sequence: u64,
}

struct Delayed<K> {
    at: Instant,
    sequence: u64,
    key: K,
}

impl<K> PartialEq for Delayed<K> {
    fn eq(&self, other: &Self) -> bool {
        self.sequence == other.sequence
    }
}

impl<K> Eq for Delayed<K> {}

impl<K> PartialOrd for Delayed<K> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<K> Ord for Delayed<K> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

impl<K: QueueKey> Queue<K> {
    /// An empty queue.
    pub fn new() -> Arc<Self> {
        let state = State {
            turns: VecDeque::new(),
            waiting: HashMap::new(),
            dirty: HashSet::new(),
            working: HashSet::new(),
            delayed: BinaryHeap::new(),
            due: HashMap::new(),
            failures: HashMap::new(),
            sequence: 0,
        };
        Arc::new(Self { state: Mutex::new(state), changed: Notify::new() })
    }

    /// Adds a key, unless it waits already.
    pub fn add(&self, key: K) {
        self.state.lock().add(key);
        self.changed.notify_one();
    }

    /// Adds a key later, or at the earliest of several such times.
    pub fn add_after(&self, key: K, delay: Duration) {
        if delay.is_zero() {
            return self.add(key);
        }
        self.state.lock().delay(key, Instant::now() + delay);
        self.changed.notify_one();
    }

    /// Takes the next key, waiting for one. Each key taken must be given back with [`Queue::done`]. One caller at a
    /// time: wake-ups are not shared out.
    pub async fn take(&self) -> K {
        loop {
            let next_due = {
                let mut state = self.state.lock();
                state.promote(Instant::now());
                if let Some(key) = state.take() {
                    return key;
                }
                state.delayed.peek().map(|Reverse(d)| d.at)
            };
            match next_due {
                Some(at) => {
                    tokio::select! {
                        () = self.changed.notified() => {}
                        () = tokio::time::sleep_until(at) => {}
                    }
                }
                None => self.changed.notified().await,
            }
        }
    }

    /// Gives a key back.
    pub fn done(&self, key: &K) {
        self.state.lock().done(key);
        self.changed.notify_one();
    }

    /// Adds a key after a delay that doubles with each failure in a row. Gives the number of failures.
    pub fn retry(&self, key: K) -> u32 {
        let mut state = self.state.lock();
        let failures = state.failures.entry(key.clone()).or_insert(0);
        *failures = failures.saturating_add(1);
        let count = *failures;
        let delay = FIRST_DELAY.saturating_mul(1 << (count - 1).min(20)).min(LONGEST_DELAY);
        state.delay(key, Instant::now() + delay);
        drop(state);
        self.changed.notify_one();
        count
    }

    /// Ends a row of failures.
    pub fn forget(&self, key: &K) {
        self.state.lock().failures.remove(key);
    }

    /// How many keys wait, delayed ones aside.
    pub fn len(&self) -> usize {
        self.state.lock().waiting.values().map(VecDeque::len).sum()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K: QueueKey> State<K> {
    fn add(&mut self, key: K) {
        if !self.dirty.insert(key.clone()) || self.working.contains(&key) {
            return;
        }
        self.push(key);
    }

    fn push(&mut self, key: K) {
        let plane = key.plane().clone();
        let waiting = self.waiting.entry(plane.clone()).or_default();
        if waiting.is_empty() {
            self.turns.push_back(plane);
        }
        waiting.push_back(key);
    }

    fn take(&mut self) -> Option<K> {
        let plane = self.turns.pop_front()?;
        let waiting = self.waiting.get_mut(&plane)?;
        let key = waiting.pop_front()?;
        if waiting.is_empty() {
            self.waiting.remove(&plane);
        } else {
            self.turns.push_back(plane);
        }
        self.dirty.remove(&key);
        self.working.insert(key.clone());
        Some(key)
    }

    fn done(&mut self, key: &K) {
        self.working.remove(key);
        if self.dirty.contains(key) {
            self.push(key.clone());
        }
    }

    fn delay(&mut self, key: K, at: Instant) {
        if self.due.get(&key).is_some_and(|due| *due <= at) {
            return;
        }
        self.due.insert(key.clone(), at);
        self.sequence += 1;
        self.delayed.push(Reverse(Delayed { at, sequence: self.sequence, key }));
    }

    /// Moves what is due to what waits. Entries that an earlier time overtook are dropped.
    fn promote(&mut self, now: Instant) {
        while self.delayed.peek().is_some_and(|Reverse(d)| d.at <= now) {
            let Some(Reverse(Delayed { at, key, .. })) = self.delayed.pop() else { return };
            if self.due.get(&key) == Some(&at) {
                self.due.remove(&key);
                self.add(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;

    fn key(plane: &str, name: &str) -> Key {
        Key::new(plane.parse().unwrap(), "", name)
    }

    #[tokio::test(start_paused = true)]
    async fn planes_take_turns() {
        let queue = Queue::new();
        for (plane, name) in [("a", "1"), ("a", "2"), ("a", "3"), ("b", "1"), ("c", "1"), ("c", "2")] {
            queue.add(key(plane, name));
        }
        let mut order = Vec::new();
        for _ in 0..6 {
            order.push(queue.take().await.to_string());
        }
        assert_eq!(order, ["a:1", "b:1", "c:1", "a:2", "c:2", "a:3"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_waits_once_and_comes_again_if_added_while_worked_on() {
        let queue = Queue::new();
        queue.add(key("a", "1"));
        queue.add(key("a", "1"));
        assert_eq!(queue.len(), 1);
        let taken = queue.take().await;
        queue.add(taken.clone());
        assert!(queue.is_empty());
        queue.done(&taken);
        assert_eq!(queue.take().await, taken);
        queue.done(&taken);
        assert!(queue.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn failures_wait_twice_as_long_each_time_up_to_a_limit() {
        let queue = Queue::new();
        let mut waits = Vec::new();
        for _ in 0..20 {
            let before = Instant::now();
            queue.retry(key("a", "1"));
            queue.take().await;
            queue.done(&key("a", "1"));
            waits.push(before.elapsed().as_millis());
        }
        assert_eq!(waits[..4], [5, 10, 20, 40]);
        assert_eq!(waits[19], 1_000_000);
        queue.forget(&key("a", "1"));
        assert_eq!(queue.retry(key("a", "1")), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn of_several_delays_the_shortest_counts() {
        let queue = Queue::new();
        let before = Instant::now();
        for seconds in [30, 10, 20] {
            queue.add_after(key("a", "1"), Duration::from_secs(seconds));
        }
        let taken = queue.take().await;
        assert_eq!(before.elapsed().as_secs(), 10);
        queue.done(&taken);
        let later = tokio::time::timeout(Duration::from_secs(100), queue.take()).await;
        assert!(later.is_err(), "the overtaken delays came as well");
    }
}
