//! State of a plane with requests in flight: usage of its class' limits, its priority levels, and its cost so far.

use crate::{Cost, Flows, Refused, Ticket, flows::Limited, scheduler::Scheduler};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{
            AtomicU64, AtomicUsize,
            Ordering::{AcqRel, Acquire, Relaxed},
        },
    },
};
use tokio::time::Instant;

/// What a class allows each of its planes, on each server. `None`: it does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Requests a second, over time; as many at once.
    pub requests_per_second: Option<u32>,
    /// Requests at a time.
    pub in_flight: Option<u32>,
    /// Watches at a time.
    pub watches: Option<u32>,
}

/// What a plane has used of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlaneUsage {
    /// Requests that were served.
    pub requests: u64,
    /// Requests that a limit of the class turned away.
    pub refused: u64,
    /// What they cost, estimated, in microseconds of a processor.
    pub cost_micros: u64,
    /// Bytes of their answers.
    pub sent_bytes: u64,
    /// Requests that are being served.
    pub in_flight: usize,
    /// Watches that are open.
    pub watches: usize,
}

/// The state of a plane.
#[derive(Default)]
pub(crate) struct PlaneState {
    requests: AtomicU64,
    refused: AtomicU64,
    cost: AtomicU64,
    sent: AtomicU64,
    in_flight: AtomicUsize,
    watches: AtomicUsize,
    last: Mutex<Option<Instant>>,
    tokens: Mutex<Option<Tokens>>,
    pub(crate) levels: Levels,
}

/// What is left of a second's requests.
struct Tokens {
    left: f64,
    at: Instant,
}

/// One more of a number, unless that is its limit already.
fn take(count: &AtomicUsize, limit: Option<u32>) -> Result<(), usize> {
    let more = |now: usize| limit.is_none_or(|limit| now < limit as usize).then_some(now + 1);
    count.fetch_update(AcqRel, Acquire, more).map(drop)
}

fn exceeded(what: &str, used: impl std::fmt::Display, limit: u32) -> Refused {
    let message = format!(
        "exceeded limit of this control plane, requested: {what}=1, used: {what}={used}, limited: {what}={limit}"
    );
    Refused { message, retry_after: 1 }
}

impl PlaneState {
    /// Counts a request in, if the class allows one more.
    pub(crate) fn enter(self: &Arc<Self>, limits: &Limits, cost: Cost) -> Result<Visit, Refused> {
        *self.last.lock() = Some(Instant::now());
        let refused = |why| {
            self.refused.fetch_add(1, Relaxed);
            Err(why)
        };
        if let Some(rate) = limits.requests_per_second
            && !self.spend(rate)
        {
            return refused(exceeded("requestsPerSecond", rate, rate));
        }
        if let Err(used) = take(&self.in_flight, limits.in_flight) {
            return refused(exceeded("inFlightRequests", used, limits.in_flight.unwrap_or_default()));
        }
        self.requests.fetch_add(1, Relaxed);
        self.cost.fetch_add(cost.micros, Relaxed);
        Ok(Visit(self.clone()))
    }

    fn spend(&self, rate: u32) -> bool {
        let (rate, now) = (f64::from(rate), Instant::now());
        let mut tokens = self.tokens.lock();
        let tokens = tokens.get_or_insert(Tokens { left: rate, at: now });
        tokens.left = (tokens.left + rate * now.duration_since(tokens.at).as_secs_f64()).min(rate);
        tokens.at = now;
        let has_one = tokens.left >= 1.0;
        if has_one {
            tokens.left -= 1.0;
        }
        has_one
    }

    pub(crate) fn watch(self: Arc<Self>, limits: &Limits) -> Result<WatchTicket, Refused> {
        match take(&self.watches, limits.watches) {
            Ok(()) => Ok(WatchTicket { plane: self, begins: None }),
            Err(used) => {
                self.refused.fetch_add(1, Relaxed);
                Err(exceeded("watches", used, limits.watches.unwrap_or_default()))
            }
        }
    }

    pub(crate) fn watches(&self) -> usize {
        self.watches.load(Relaxed)
    }

    pub(crate) fn usage(&self) -> PlaneUsage {
        PlaneUsage {
            requests: self.requests.load(Relaxed),
            refused: self.refused.load(Relaxed),
            cost_micros: self.cost.load(Relaxed),
            sent_bytes: self.sent.load(Relaxed),
            in_flight: self.in_flight.load(Relaxed),
            watches: self.watches(),
        }
    }

    pub(crate) fn is_idle_for(&self, time: std::time::Duration) -> bool {
        self.last.lock().is_none_or(|last| last.elapsed() >= time)
    }
}

/// A request that is counted, until it is dropped.
pub(crate) struct Visit(Arc<PlaneState>);

impl Visit {
    pub(crate) fn sent(&self, bytes: usize) {
        self.0.sent.fetch_add(bytes as u64, Relaxed);
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, AcqRel);
    }
}

/// A watch that is counted, until it is dropped.
pub struct WatchTicket {
    plane: Arc<PlaneState>,
    /// The permit of a request, while the watch sends the existing objects.
    begins: Option<Box<Ticket>>,
}

impl WatchTicket {
    /// Holds a request's permit until the watch has [`begun`](Self::begun).
    pub fn beginning(mut self, ticket: Ticket) -> Self {
        self.begins = Some(Box::new(ticket));
        self
    }

    /// Says that all was sent that there was before: from now on it waits for what happens.
    pub fn begun(&mut self) {
        self.begins = None;
    }
}

impl Drop for WatchTicket {
    fn drop(&mut self) {
        self.plane.watches.fetch_sub(1, AcqRel);
    }
}

/// Seats that are taken, and queues, of the priority levels in use.
#[derive(Default)]
pub(crate) struct Levels {
    levels: Mutex<HashMap<String, Level>>,
}

#[derive(Default)]
struct Level {
    scheduler: Option<Arc<Scheduler<u32>>>,
    taken: u64,
}

impl Levels {
    /// The scheduler of a priority level.
    pub(crate) fn scheduler(&self, level: &str) -> Arc<Scheduler<u32>> {
        let mut levels = self.levels.lock();
        let level = levels.entry(level.to_owned()).or_default();
        level.scheduler.get_or_insert_with(|| Arc::new(Scheduler::new(u64::MAX, None))).clone()
    }

    /// How many seats a level may take now: its own, and what others lend and do not use.
    pub(crate) fn limit(&self, level: &Limited<'_>, flows: &Flows, seats: u32) -> u64 {
        let own = flows.nominal(level.name, seats);
        let levels = self.levels.lock();
        let lent: u64 = flows
            .lenders(seats)
            .filter(|(name, ..)| *name != level.name)
            .map(|(name, nominal, lendable)| {
                let taken = levels.get(name).map_or(0, |other| other.taken);
                lendable.min(nominal.saturating_sub(taken))
            })
            .sum();
        own + level.borrows.map_or(lent, |percent| lent.min(own * u64::from(percent) / 100))
    }
}

/// Seats of a level that are taken, until it is dropped.
pub(crate) struct SeatHold {
    state: Arc<PlaneState>,
    level: String,
    seats: u64,
}

impl SeatHold {
    pub(crate) fn new(state: &Arc<PlaneState>, level: &str, seats: u64) -> Self {
        state.levels.levels.lock().entry(level.to_owned()).or_default().taken += seats;
        Self { state: state.clone(), level: level.to_owned(), seats }
    }
}

impl Drop for SeatHold {
    fn drop(&mut self) {
        let mut levels = self.state.levels.levels.lock();
        let Some(level) = levels.get_mut(&self.level) else { return };
        level.taken = level.taken.saturating_sub(self.seats);
        // The scheduler is dropped with its last permit.
        let unused = level
            .scheduler
            .as_ref()
            .is_none_or(|scheduler| Arc::strong_count(scheduler) == 1 && scheduler.is_empty());
        if level.taken == 0 && unused {
            levels.remove(&self.level);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_the_class_are_exact() {
        let state = Arc::new(PlaneState::default());
        let limits = Limits { in_flight: Some(3), watches: Some(2), ..Limits::default() };
        let admitted = std::thread::scope(|scope| {
            let enter = || state.enter(&limits, Cost::get());
            let all: Vec<_> = (0..16).map(|_| scope.spawn(enter)).collect();
            all.into_iter().filter_map(|thread| thread.join().unwrap().ok()).collect::<Vec<_>>()
        });
        assert_eq!(admitted.len(), 3);
        let refused = state.enter(&limits, Cost::get()).err().unwrap();
        assert_eq!(
            refused.message,
            "exceeded limit of this control plane, requested: inFlightRequests=1, used: inFlightRequests=3, \
             limited: inFlightRequests=3"
        );
        drop(admitted);
        assert!(state.enter(&limits, Cost::get()).is_ok());
        let watches: Vec<_> = (0..3).map(|_| state.clone().watch(&limits)).collect();
        assert_eq!(watches.iter().filter(|watch| watch.is_ok()).count(), 2);
        drop(watches);
        assert_eq!(state.usage().watches, 0);
        assert!(state.usage().refused >= 14);
    }

    #[tokio::test(start_paused = true)]
    async fn a_rate_is_kept_over_time() {
        let state = Arc::new(PlaneState::default());
        let limits = Limits { requests_per_second: Some(5), ..Limits::default() };
        let served = |n: usize| (0..n).filter(|_| state.enter(&limits, Cost::get()).is_ok()).count();
        assert_eq!(served(20), 5);
        tokio::time::advance(std::time::Duration::from_millis(400)).await;
        assert_eq!(served(20), 2);
        tokio::time::advance(std::time::Duration::from_secs(60)).await;
        assert_eq!(served(20), 5);
    }
}
