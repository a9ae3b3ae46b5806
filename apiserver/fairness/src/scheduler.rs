//! A scheduler with a number of permits, for which flows queue: fair by accumulated cost, among groups of flows first
//! and then among the flows of a group (start-time fair queueing, Goyal et al. 1996).

use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    hash::Hash,
    sync::Arc,
    time::Duration,
};
use tokio::{sync::oneshot, time::Instant};

/// The identity of a flow.
pub(crate) trait Key: Clone + Eq + Hash + Send + 'static {}
impl<T: Clone + Eq + Hash + Send + 'static> Key for T {}

/// Minimum time for which a flow counts as active after its last request.
const RECENT: Duration = Duration::from_secs(1);
/// Multiple of the busy time after which a flow may also use the permits of its own slow requests.
const OWN: u32 = 8;

/// Hands out permits to queued flows.
pub(crate) struct Scheduler<K: Key> {
    state: Mutex<State<K>>,
    /// Units that one flow may hold while others are active.
    most: u64,
    /// Time after which a request counts as waiting for something else, so that others may use its permit. For its own
    /// flow it counts for longer, as the flow might be the one that takes all the time.
    busy: Option<Duration>,
}

struct State<K: Key> {
    used: u64,
    waiting: usize,
    clock: u64,
    next: u64,
    groups: HashMap<Arc<str>, Group<K>>,
    running: BTreeMap<u64, Running<K>>,
    /// Flows that were active in this period and in the previous one.
    recent: [HashSet<K>; 2],
    period: Instant,
}

struct Group<K: Key> {
    /// Virtual start time of its next request, in accumulated cost.
    start: u64,
    clock: u64,
    flows: HashMap<K, Flow<K>>,
}

struct Flow<K: Key> {
    start: u64,
    used: u64,
    running: usize,
    queue: VecDeque<Waiter<K>>,
}

struct Waiter<K: Key> {
    units: u64,
    cost: u64,
    grant: oneshot::Sender<Permit<K>>,
}

struct Running<K> {
    since: Instant,
    units: u64,
    group: Arc<str>,
    key: K,
    /// Whether its permit is lent to others.
    lent: bool,
}

/// The outcome of a request for a permit.
pub(crate) enum Entered<K: Key> {
    /// The permit is granted.
    Now(Permit<K>),
    /// The request is queued.
    Later(oneshot::Receiver<Permit<K>>),
    /// The queue is full.
    Full,
}

/// A permit, released when it is dropped.
pub(crate) struct Permit<K: Key> {
    /// `None`: it was never taken.
    scheduler: Option<Arc<Scheduler<K>>>,
    id: u64,
    limit: u64,
}

impl<K: Key> Drop for Permit<K> {
    fn drop(&mut self) {
        if let Some(scheduler) = self.scheduler.take() {
            scheduler.leave(self.id, self.limit);
        }
    }
}

impl<K: Key> Scheduler<K> {
    pub(crate) fn new(most: u64, busy: Option<Duration>) -> Self {
        let state = State {
            used: 0,
            waiting: 0,
            clock: 0,
            next: 1,
            groups: HashMap::new(),
            running: BTreeMap::new(),
            recent: [HashSet::new(), HashSet::new()],
            period: Instant::now(),
        };
        Self { state: Mutex::new(state), most, busy }
    }

    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().waiting
    }

    /// Requests of a flow that wait.
    pub(crate) fn queued(&self, (group, key): (&str, &K)) -> usize {
        let state = self.state.lock();
        state.groups.get(group).and_then(|g| g.flows.get(key)).map_or(0, |flow| flow.queue.len())
    }

    /// Whether no request holds a permit or is queued.
    pub(crate) fn is_empty(&self) -> bool {
        let state = self.state.lock();
        state.groups.is_empty() && state.running.is_empty()
    }

    /// Takes `units` of `limit`, at once or later. `longest` is how many of the flow may wait.
    pub(crate) fn enter(
        self: &Arc<Self>,
        (group, key): (&str, K),
        (units, cost): (u64, u64),
        limit: u64,
        longest: usize,
    ) -> Entered<K> {
        let mut state = self.state.lock();
        state.came(&key);
        let group: Arc<str> = match state.groups.get_key_value(group) {
            Some((known, _)) => known.clone(),
            None => group.into(),
        };
        let clock = state.clock;
        let of_group = state.groups.entry(group.clone()).or_insert_with(|| Group {
            start: clock,
            clock: 0,
            flows: HashMap::new(),
        });
        let fresh = || Flow { start: 0, used: 0, running: 0, queue: VecDeque::new() };
        let flow = of_group.flows.entry(key.clone()).or_insert_with(fresh);
        if !flow.queue.is_empty() && flow.queue.len() >= longest {
            return Entered::Full;
        }
        let (grant, mut granted) = oneshot::channel();
        flow.queue.push_back(Waiter { units, cost, grant });
        state.waiting += 1;
        state.dispatch(limit, self);
        match granted.try_recv() {
            Ok(place) => Entered::Now(place),
            // Nobody may wait here.
            Err(_) if longest == 0 => {
                state.withdraw(&group, &key);
                Entered::Full
            }
            Err(_) => Entered::Later(granted),
        }
    }

    fn leave(self: &Arc<Self>, id: u64, limit: u64) {
        let mut state = self.state.lock();
        state.leave(id);
        state.dispatch(limit, self);
    }

    /// Gives places of requests that take long to those who wait.
    pub(crate) fn reclaim(self: &Arc<Self>, limit: u64) {
        let Some(busy) = self.busy else { return };
        let mut state = self.state.lock();
        let now = Instant::now();
        let for_longer = |running: &Running<K>, time| now.duration_since(running.since) >= time;
        while let Some((&id, _)) =
            state.running.first_key_value().filter(|(_, running)| for_longer(running, busy * OWN))
        {
            state.leave(id);
        }
        let State { running, used, .. } = &mut *state;
        for running in running.values_mut().take_while(|running| for_longer(running, busy)) {
            if !std::mem::replace(&mut running.lent, true) {
                *used = used.saturating_sub(running.units);
            }
        }
        state.dispatch(limit, self);
    }
}

impl<K: Key> State<K> {
    fn came(&mut self, key: &K) {
        if self.period.elapsed() >= RECENT {
            let [now, before] = &mut self.recent;
            std::mem::swap(now, before);
            now.clear();
            self.period = Instant::now();
        }
        if !self.recent[0].contains(key) {
            self.recent[0].insert(key.clone());
        }
    }

    /// Whether a flow is not the only one.
    fn has_others(&self) -> bool {
        let [now, before] = &self.recent;
        now.len() > 1 || before.len() > 1 || now.iter().chain(before).any(|key| !now.contains(key))
    }

    /// Grants permits to the next waiters while units are free.
    fn dispatch(&mut self, limit: u64, scheduler: &Arc<Scheduler<K>>) {
        let most = if self.has_others() { scheduler.most } else { limit };
        while self.waiting > 0 {
            let Some((group, key)) = self.next(most) else { return };
            let Some(of_group) = self.groups.get_mut(&group) else { return };
            let Some(flow) = of_group.flows.get_mut(&key) else { return };
            let Some(waiter) = flow.queue.front() else { return };
            let gone = waiter.grant.is_closed();
            if !gone && (limit == 0 || self.used > 0 && self.used + waiter.units > limit) {
                return;
            }
            let Some(waiter) = flow.queue.pop_front() else { return };
            self.waiting -= 1;
            let id = self.next;
            let place = Permit { scheduler: Some(scheduler.clone()), id, limit };
            if let Err(mut place) = waiter.grant.send(place) {
                // It was given up; what it would have taken is not taken yet.
                place.scheduler = None;
                self.forget(&group, &key);
                continue;
            }
            self.next += 1;
            let (start, of_flow) = (of_group.start.max(self.clock), flow.start.max(of_group.clock));
            (self.clock, of_group.clock) = (start, of_flow);
            of_group.start = start + waiter.cost;
            flow.start = of_flow + waiter.cost;
            flow.used += waiter.units;
            flow.running += 1;
            self.used += waiter.units;
            let (since, units) = (Instant::now(), waiter.units);
            self.running.insert(id, Running { since, units, group, key, lent: false });
        }
    }

    /// The flow whose turn it is, of those that have not taken too much.
    fn next(&self, most: u64) -> Option<(Arc<str>, K)> {
        let fits = |flow: &Flow<K>| {
            flow.queue.front().is_some_and(|head| flow.used == 0 || flow.used + head.units <= most)
        };
        let first = |group: &Group<K>| {
            let waiting = group.flows.iter().filter(|(_, flow)| fits(flow));
            waiting.min_by_key(|(_, flow)| flow.start).map(|(key, _)| key.clone())
        };
        let groups = self.groups.iter().filter_map(|(name, group)| Some((name, group.start, first(group)?)));
        groups.min_by_key(|(_, start, _)| *start).map(|(name, _, key)| (name.clone(), key))
    }

    fn leave(&mut self, id: u64) {
        let Some(running) = self.running.remove(&id) else { return };
        if !running.lent {
            self.used = self.used.saturating_sub(running.units);
        }
        if let Some(flow) =
            self.groups.get_mut(&running.group).and_then(|group| group.flows.get_mut(&running.key))
        {
            flow.used = flow.used.saturating_sub(running.units);
            flow.running = flow.running.saturating_sub(1);
        }
        self.forget(&running.group, &running.key);
    }

    /// Takes back the last that came of a flow.
    fn withdraw(&mut self, group: &Arc<str>, key: &K) {
        if let Some(flow) = self.groups.get_mut(group).and_then(|group| group.flows.get_mut(key))
            && flow.queue.pop_back().is_some()
        {
            self.waiting -= 1;
        }
        self.forget(group, key);
    }

    /// Forgets a flow of which there is nothing any more.
    fn forget(&mut self, group: &Arc<str>, key: &K) {
        let Some(of_group) = self.groups.get_mut(group) else { return };
        if of_group.flows.get(key).is_some_and(|flow| flow.running == 0 && flow.queue.is_empty()) {
            of_group.flows.remove(key);
        }
        if of_group.flows.is_empty() {
            self.groups.remove(group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUSY: Duration = Duration::from_millis(250);

    type Waits = oneshot::Receiver<Permit<u32>>;

    fn later(entered: Entered<u32>) -> Waits {
        match entered {
            Entered::Later(waits) => waits,
            Entered::Now(_) => panic!("it got in"),
            Entered::Full => panic!("it was full"),
        }
    }

    fn now(entered: Entered<u32>) -> Permit<u32> {
        match entered {
            Entered::Now(place) => place,
            _ => panic!("it did not get in"),
        }
    }

    fn scheduler(most: u64) -> Arc<Scheduler<u32>> {
        Arc::new(Scheduler::new(most, Some(BUSY)))
    }

    #[test]
    fn flows_take_turns_by_what_they_took() {
        let scheduler = scheduler(10);
        let mut last = now(scheduler.enter(("a", 1), (10, 10), 10, 100));
        let mut expensive: Vec<Waits> =
            (0..5).map(|_| later(scheduler.enter(("a", 1), (10, 100), 10, 100))).collect();
        let mut cheap: Vec<Waits> =
            (0..5).map(|_| later(scheduler.enter(("b", 2), (10, 10), 10, 100))).collect();
        let mut order = String::new();
        for _ in 0..10 {
            drop(last);
            let a = expensive.iter_mut().find_map(|w| w.try_recv().ok());
            let b = cheap.iter_mut().find_map(|w| w.try_recv().ok());
            order.push(if a.is_some() { 'a' } else { 'b' });
            last = a.or(b).unwrap();
        }
        assert!(order[..6].matches('b').count() >= 5, "{order}");
        drop(last);
        assert!(scheduler.is_empty(), "nothing is left of flows that are served");
    }

    #[test]
    fn a_flow_alone_takes_all_and_beside_others_leaves_them_room() {
        let scheduler = scheduler(50);
        let mut alone: Vec<_> = (0..10).map(|_| now(scheduler.enter(("a", 1), (10, 1), 100, 100))).collect();
        let full = later(scheduler.enter(("a", 1), (10, 1), 100, 100));
        let mut other = later(scheduler.enter(("b", 2), (10, 1), 100, 100));
        alone.pop();
        let _other = other.try_recv().expect("who has taken less is next");
        alone.truncate(4);
        drop(full);
        let entered: Vec<_> = (0..5).map(|_| scheduler.enter(("a", 1), (10, 1), 100, 100)).collect();
        let waiting = entered.iter().filter(|entered| matches!(entered, Entered::Later(_))).count();
        assert_eq!(waiting, 4, "it takes half of it beside others");
        drop(now(scheduler.enter(("b", 2), (10, 1), 100, 100)));
    }

    #[test]
    fn queues_are_bounded_and_who_gives_up_is_passed_over() {
        let scheduler = scheduler(1);
        let first = now(scheduler.enter(("", 1), (1, 1), 1, 0));
        assert!(matches!(scheduler.enter(("", 1), (1, 1), 1, 0), Entered::Full), "nobody waits here");
        let gives_up = later(scheduler.enter(("", 1), (1, 1), 1, 2));
        let granted_too_late = later(scheduler.enter(("", 1), (1, 1), 1, 2));
        assert!(matches!(scheduler.enter(("", 1), (1, 1), 1, 2), Entered::Full));
        drop(gives_up);
        drop(first);
        let mut stays = later(scheduler.enter(("", 1), (1, 1), 1, 2));
        drop(granted_too_late);
        let last = stays.try_recv().unwrap();
        assert_eq!(scheduler.waiting(), 0);
        drop(last);
        assert!(scheduler.is_empty());
    }

    #[test]
    fn one_that_needs_more_than_there_is_gets_in_alone() {
        let scheduler = scheduler(5);
        let wide = now(scheduler.enter(("", 1), (100, 1), 10, 5));
        let mut next = later(scheduler.enter(("", 2), (1, 1), 10, 5));
        drop(wide);
        assert!(next.try_recv().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn the_place_of_what_takes_long_is_given_to_others() {
        let scheduler = scheduler(1);
        let slow = now(scheduler.enter(("", 1), (1, 1), 1, 5));
        let mut next = later(scheduler.enter(("", 2), (1, 1), 1, 5));
        scheduler.reclaim(1);
        assert!(next.try_recv().is_err());
        tokio::time::advance(BUSY).await;
        scheduler.reclaim(1);
        let next = next.try_recv().unwrap();
        // To its own flow it counts for longer.
        let mut own = later(scheduler.enter(("", 1), (1, 1), 2, 5));
        let other = now(scheduler.enter(("", 3), (1, 1), 3, 5));
        scheduler.reclaim(3);
        assert!(own.try_recv().is_err());
        tokio::time::advance(BUSY * OWN).await;
        scheduler.reclaim(3);
        drop((other, own.try_recv().unwrap()));
        drop(slow);
        drop(next);
        assert!(scheduler.is_empty());
    }
}
