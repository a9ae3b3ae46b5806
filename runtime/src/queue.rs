//! A work queue over many planes.
//!
//! A key is in at most one of three places: waiting, being worked on, or delayed. A key that is added while it is
//! worked on waits again as soon as that is done. Planes take turns, each with one key. Keys that nothing happened to (a
//! resync, the first list) wait behind those that something did, but for one turn in [`SHARE`]. Of one plane only so many
//! keys are worked on at once: a plane whose server or webhooks hang keeps no other waiting.
//!
//! Failures are delayed by 5 ms, doubled each time, up to 1000 s, as client-go's queues do; and of each plane 10 a second
//! come again, beyond the first 100: a plane whose objects make a controller fail backs off alone.

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
/// Average time between retries of failures in one plane.
const FAILURE_INTERVAL: Duration = Duration::from_millis(100);
/// Burst of retries of failures in one plane.
const FAILURE_BURST: u32 = 100;
/// One of so many turns is that of keys that nothing happened to.
const SHARE: u64 = 8;
/// Capacity that the queue keeps after a burst.
const ROOM: usize = 4096;

/// A work queue. Cheap to share.
pub struct Queue<K> {
    state: Mutex<State<K>>,
    changed: Notify,
}

/// Why a key waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Priority {
    Changed,
    Routine,
}

struct State<K> {
    changed: Level<K>,
    routine: Level<K>,
    /// Keys that are queued or delayed, with time and priority.
    dirty: HashMap<K, (Instant, Priority)>,
    working: HashSet<K>,
    /// How many keys of each plane are worked on.
    busy: HashMap<PlaneId, usize>,
    /// How many may be.
    share: usize,
    /// Delayed keys, each held once with its time in `due`: there may be a million of them.
    delayed: BinaryHeap<Reverse<Delayed<K>>>,
    due: HashMap<Arc<K>, Instant>,
    failures: HashMap<K, u32>,
    /// Time up to which the retries of a plane are used up.
    failing: HashMap<PlaneId, Instant>,
    sequence: u64,
    /// Whether nothing is queued any more.
    closed: bool,
    /// Keys in `dirty` that are worked on.
    again: usize,
    counts: Counts,
}

/// Keys of one priority by plane. A key whose priority rose meanwhile is skipped.
struct Level<K> {
    turns: VecDeque<PlaneId>,
    waiting: HashMap<PlaneId, VecDeque<K>>,
    /// Planes at their limit of keys in flight, which wait until one of theirs is done.
    held: HashSet<PlaneId>,
}

/// Counters of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// Keys that were added and did not wait already.
    pub adds: u64,
    /// Failures that came again.
    pub retries: u64,
    /// Keys that were taken.
    pub taken: u64,
    /// How long these had waited, together.
    pub waited: Duration,
}

struct Delayed<K> {
    at: Instant,
    sequence: u64,
    key: Arc<K>,
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

impl<K> Default for Level<K> {
    fn default() -> Self {
        Self { turns: VecDeque::new(), waiting: HashMap::new(), held: HashSet::new() }
    }
}

impl<K: QueueKey> Queue<K> {
    /// Creates an empty queue, shared by its producers and workers.
    pub fn new() -> Arc<Self> {
        let state = State {
            changed: Level::default(),
            routine: Level::default(),
            dirty: HashMap::new(),
            working: HashSet::new(),
            busy: HashMap::new(),
            share: usize::MAX,
            delayed: BinaryHeap::new(),
            due: HashMap::new(),
            failures: HashMap::new(),
            failing: HashMap::new(),
            sequence: 0,
            closed: false,
            again: 0,
            counts: Counts::default(),
        };
        Arc::new(Self { state: Mutex::new(state), changed: Notify::new() })
    }

    /// From now on so many keys of one plane, at most, are worked on at once.
    pub fn limit_each_plane(&self, share: usize) {
        self.state.lock().share = share.max(1);
    }

    /// Drops what is added from now on: no controller of this process takes from the queue.
    pub fn close(&self) {
        self.state.lock().closed = true;
    }

    /// Adds a key, unless it waits already.
    pub fn add(&self, key: K) {
        self.state.lock().add(key, Priority::Changed);
        self.changed.notify_one();
    }

    /// Adds an unchanged key with low priority, for a resync.
    pub fn add_routine(&self, key: K) {
        self.state.lock().add(key, Priority::Routine);
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

    /// Waits for the next key and takes it. Each key must be returned with [`Queue::done`]. Supports one caller at a
    /// time: wake-ups are not distributed.
    pub async fn take(&self) -> K {
        loop {
            let next_due = {
                let mut state = self.state.lock();
                let now = Instant::now();
                state.promote(now);
                if let Some(key) = state.take(now) {
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
        let now = Instant::now();
        let at = (now + delay).max(state.next_failure(key.plane(), now));
        state.counts.retries += 1;
        state.delay(key, at);
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
        let state = self.state.lock();
        state.dirty.len() - state.again
    }

    /// Whether no key waits, delayed ones aside.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The counters so far.
    pub fn counts(&self) -> Counts {
        self.state.lock().counts
    }

    /// The planes with most keys waiting, at most `limit` of them.
    pub fn deepest(&self, limit: usize) -> Vec<(PlaneId, usize)> {
        let mut depths: HashMap<PlaneId, usize> = HashMap::new();
        let state = self.state.lock();
        for level in [&state.changed, &state.routine] {
            for (plane, keys) in &level.waiting {
                *depths.entry(plane.clone()).or_default() += keys.len();
            }
        }
        drop(state);
        let mut depths: Vec<_> = depths.into_iter().collect();
        depths.sort_by(|(a_plane, a), (b_plane, b)| b.cmp(a).then_with(|| a_plane.cmp(b_plane)));
        depths.truncate(limit);
        depths
    }
}

impl<K: QueueKey> Level<K> {
    fn push(&mut self, key: K) {
        let plane = key.plane().clone();
        let waiting = self.waiting.entry(plane.clone()).or_default();
        if waiting.is_empty() {
            self.turns.push_back(plane);
        }
        waiting.push_back(key);
    }

    /// The next key of a plane that has not its share yet.
    fn pop(&mut self, has_its_share: impl Fn(&PlaneId) -> bool) -> Option<K> {
        loop {
            let plane = self.turns.pop_front()?;
            if has_its_share(&plane) {
                self.held.insert(plane);
                continue;
            }
            let Some(waiting) = self.waiting.get_mut(&plane) else { continue };
            let key = waiting.pop_front();
            if waiting.is_empty() {
                self.waiting.remove(&plane);
            } else {
                self.turns.push_back(plane);
            }
            if key.is_some() {
                return key;
            }
        }
    }

    /// Gives a plane its turn again.
    fn release(&mut self, plane: &PlaneId) {
        if let Some(plane) = self.held.take(plane) {
            self.turns.push_back(plane);
        }
    }
}

impl<K: QueueKey> State<K> {
    fn add(&mut self, key: K, priority: Priority) {
        if self.closed {
            return;
        }
        let worked_on = self.working.contains(&key);
        match self.dirty.get_mut(&key) {
            Some((_, known)) if *known == priority || priority == Priority::Routine => return,
            Some((_, known)) => *known = priority,
            None => {
                self.dirty.insert(key.clone(), (Instant::now(), priority));
                self.counts.adds += 1;
                self.again += usize::from(worked_on);
            }
        }
        if !worked_on {
            self.level(priority).push(key);
        }
    }

    fn level(&mut self, priority: Priority) -> &mut Level<K> {
        match priority {
            Priority::Changed => &mut self.changed,
            Priority::Routine => &mut self.routine,
        }
    }

    fn take(&mut self, now: Instant) -> Option<K> {
        let order = match self.counts.taken % SHARE {
            0 => [Priority::Routine, Priority::Changed],
            _ => [Priority::Changed, Priority::Routine],
        };
        for priority in order {
            loop {
                let (busy, share) = (&self.busy, self.share);
                let level = match priority {
                    Priority::Changed => &mut self.changed,
                    Priority::Routine => &mut self.routine,
                };
                let popped = level.pop(|plane| busy.get(plane).is_some_and(|busy| *busy >= share));
                let Some(key) = popped else { break };
                if self.dirty.get(&key).is_none_or(|(_, waits_as)| *waits_as != priority)
                    || self.working.contains(&key)
                {
                    continue;
                }
                if let Some((since, _)) = self.dirty.remove(&key) {
                    self.counts.waited += now.saturating_duration_since(since);
                }
                // A first look at everything has room for everything, which nothing after it needs.
                if self.dirty.capacity() > ROOM && self.dirty.len() < self.dirty.capacity() / 8 {
                    self.dirty.shrink_to(ROOM.max(2 * self.dirty.len()));
                }
                self.counts.taken += 1;
                *self.busy.entry(key.plane().clone()).or_default() += 1;
                self.working.insert(key.clone());
                return Some(key);
            }
        }
        None
    }

    fn done(&mut self, key: &K) {
        if !self.working.remove(key) {
            return;
        }
        if let Some(busy) = self.busy.get_mut(key.plane()) {
            *busy -= 1;
            if *busy == 0 {
                self.busy.remove(key.plane());
            }
        }
        for level in [&mut self.changed, &mut self.routine] {
            level.release(key.plane());
        }
        if let Some((_, priority)) = self.dirty.get(key).copied() {
            self.again -= 1;
            self.level(priority).push(key.clone());
        }
    }

    /// The earliest time for a retry in a plane, within its rate.
    fn next_failure(&mut self, plane: &PlaneId, now: Instant) -> Instant {
        if self.failing.len() > 1024 {
            self.failing.retain(|_, until| *until > now);
        }
        let used = self.failing.entry(plane.clone()).or_insert(now);
        *used = (*used).max(now) + FAILURE_INTERVAL;
        let burst = FAILURE_INTERVAL * FAILURE_BURST;
        now + used.saturating_duration_since(now).saturating_sub(burst)
    }

    fn delay(&mut self, key: K, at: Instant) {
        if self.closed || self.due.get(&key).is_some_and(|due| *due <= at) {
            return;
        }
        let key = Arc::new(key);
        self.due.insert(key.clone(), at);
        self.sequence += 1;
        self.delayed.push(Reverse(Delayed { at, sequence: self.sequence, key }));
    }

    /// Moves due keys to the queue. Entries that were superseded by an earlier time are dropped.
    fn promote(&mut self, now: Instant) {
        while self.delayed.peek().is_some_and(|Reverse(d)| d.at <= now) {
            let Some(Reverse(Delayed { at, key, .. })) = self.delayed.pop() else { return };
            if self.due.get(&key) == Some(&at) {
                self.due.remove(&key);
                self.add(Arc::unwrap_or_clone(key), Priority::Changed);
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
    async fn a_plane_of_which_nothing_ends_keeps_no_other_waiting() {
        let queue = Queue::new();
        queue.limit_each_plane(2);
        for name in ["1", "2", "3", "4"] {
            queue.add(key("bad", name));
        }
        queue.add_routine(key("bad", "5"));
        let mut order = vec![queue.take().await, queue.take().await];
        for name in ["1", "2"] {
            queue.add(key("good", name));
            let taken = queue.take().await;
            assert_eq!(taken, key("good", name));
            queue.done(&taken);
        }
        let none = tokio::time::timeout(Duration::from_secs(9), queue.take()).await;
        assert!(none.is_err(), "{none:?}");
        assert_eq!(queue.len(), 3);
        while let Some(key) = order.pop() {
            queue.done(&key);
            if !queue.is_empty() {
                order.push(queue.take().await);
            }
        }
        assert_eq!(queue.counts().taken, 7);
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
    async fn what_changed_goes_before_what_did_not_and_neither_waits_forever() {
        let queue = Queue::new();
        for name in ["r1", "r2", "both"] {
            queue.add_routine(key("a", name));
        }
        for number in 0..10 {
            queue.add(key("a", &format!("c{number}")));
        }
        queue.add(key("a", "both"));
        assert_eq!(queue.len(), 13);
        let mut order = Vec::new();
        for _ in 0..13 {
            let key = queue.take().await;
            order.push(key.name.to_string());
            queue.done(&key);
        }
        assert!(queue.is_empty());
        assert_eq!(order.join(" "), "r1 c0 c1 c2 c3 c4 c5 c6 r2 c7 c8 c9 both");
        assert_eq!((queue.counts().adds, queue.counts().taken), (13, 13));
    }

    #[tokio::test(start_paused = true)]
    async fn a_plane_that_fails_much_backs_off_alone() {
        let queue = Queue::new();
        let begin = Instant::now();
        for number in 0..200 {
            queue.retry(key("bad", &number.to_string()));
        }
        queue.retry(key("good", "1"));
        let mut good = None;
        for _ in 0..201 {
            let key = queue.take().await;
            if key.plane.as_str() == "good" {
                good = Some(begin.elapsed());
            }
            queue.done(&key);
        }
        assert_eq!(good, Some(Duration::from_millis(5)));
        assert_eq!(begin.elapsed().as_secs(), 10, "100 at once, and 10 a second from then on");
        assert_eq!(queue.deepest(3), []);
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
