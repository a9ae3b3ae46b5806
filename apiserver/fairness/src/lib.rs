//! Fairness: which request is served next, and how much of a server one plane may use.
//!
//! A request passes three things, in this order: the limits of its plane's class ([`Limits`]), the plane's own priority
//! levels (FlowSchema and PriorityLevelConfiguration of `flowcontrol.apiserver.k8s.io/v1`, KEP-1040), and the house, in
//! which organizations and their planes take turns by what their requests cost. Each can let it wait, for a bounded time in
//! a bounded queue.
//!
//! A plane that nobody asks anything of has no state here. Everything counts for one server.
//!
//! This crate must not know: HTTP, how costs are estimated, where objects are kept.

pub mod bootstrap;
mod flows;
pub mod metrics;
mod plane;
mod scheduler;

pub use flows::{Asked, Flows, Matched};
pub use plane::{Limits, PlaneUsage, WatchTicket};

use freehold_machinery::{PlaneId, PlaneMap};
use parking_lot::Mutex;
use plane::PlaneState;
use scheduler::{Entered, Permit, Scheduler};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// Longest wait for a turn.
const PATIENCE: Duration = Duration::from_secs(15);
/// How often who waits looks whether requests that take long have become idle.
const LOOK: Duration = Duration::from_millis(100);
/// A request that is served for longer waits for something else most of the time.
const BUSY: Duration = Duration::from_millis(250);
/// What one processor serves at a time.
const UNITS_PER_PROCESSOR: u64 = 100;
/// Requests of one plane that wait for the house.
const LONGEST_QUEUE: usize = 1_000;
/// Planes whose state is kept before those that are idle are looked for.
const MANY: usize = 256;
/// After which time a plane that does nothing is forgotten.
const FORGET: Duration = Duration::from_secs(600);

/// What a request will take, as it is estimated before it is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Processor time, in microseconds.
    pub micros: u64,
    /// What of it others spend who are told of a write.
    pub told: u64,
    /// What part of a processor it keeps busy while it is served, in hundredths.
    pub units: u64,
    /// Seats of its priority level.
    pub seats: u32,
}

impl Cost {
    /// Reading one object, or a document.
    pub fn get() -> Self {
        Self { micros: 50, told: 0, units: 10, seats: 1 }
    }

    /// Reading what is made anew for who asks, and has so many bytes.
    pub fn made(bytes: usize) -> Self {
        let bytes = bytes as u64;
        Self { micros: 50 + bytes / 32, units: (10 + bytes / 10_000).min(UNITS_PER_PROCESSOR), ..Self::get() }
    }

    /// A list that looks at so many objects, each of which is so many times the work of one that is sent as it is stored.
    pub fn list(objects: usize, work: u64) -> Self {
        let objects = objects as u64;
        Self {
            micros: 60 + 3 * objects * work,
            told: 0,
            units: (10 + objects * work / 20).min(UNITS_PER_PROCESSOR),
            seats: (objects / 100).clamp(1, 10) as u32,
        }
    }

    /// A write of so many bytes, those of what is written over among them, that so many watchers are told of.
    pub fn write(bytes: usize, watchers: usize) -> Self {
        let (bytes, watchers) = (bytes as u64, watchers as u64);
        let told = 10 * watchers;
        Self {
            // Decoded, checked, compared and encoded: some 30 ms for a megabyte.
            micros: 250 + bytes / 32 + told,
            told,
            units: (5 + bytes / 10_000).min(UNITS_PER_PROCESSOR),
            seats: (watchers / 100).clamp(1, 10) as u32,
        }
    }

    /// A delete of so many objects.
    pub fn delete_all(objects: usize) -> Self {
        let seats = 10.min(1 + objects as u32 / 100);
        Self { micros: 250 * (1 + objects as u64), told: 0, units: 20, seats }
    }

    /// What of it the request itself does, in microseconds.
    pub fn own(&self) -> u64 {
        self.micros - self.told
    }
}

/// Who comes in.
#[derive(Clone, Copy)]
pub struct Visitor<'a> {
    /// The plane.
    pub plane: &'a PlaneId,
    /// Who owns it; empty for the platform.
    pub organization: &'a str,
    /// What its class allows.
    pub limits: &'a Limits,
    /// Its priority levels.
    pub flows: &'a Flows,
    /// What the request matched of them.
    pub matched: Matched<'a>,
    /// What it will take.
    pub cost: Cost,
    /// Whether it is part of the platform, which nobody's turn holds up.
    pub exempt: bool,
}

/// Why a request is turned away: 429.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// For the client.
    pub message: String,
    /// After which time it may come again, in seconds.
    pub retry_after: u32,
}

impl Refused {
    fn busy() -> Self {
        Self { message: "Too many requests, please try again later.".to_owned(), retry_after: 1 }
    }
}

/// The fairness of a server.
pub struct Fairness {
    house: Arc<Scheduler<PlaneId>>,
    units: u64,
    /// Seats that the priority levels of a plane divide.
    seats: u32,
    planes: Mutex<PlaneMap<Arc<PlaneState>>>,
}

impl Fairness {
    /// For a server with so many processors, which works on at most `seats` requests at a time.
    pub fn new(processors: usize, seats: u32) -> Arc<Self> {
        let units = UNITS_PER_PROCESSOR * processors.max(1) as u64;
        // What is left to the others: one processor, or half of the only one.
        let most = units.saturating_sub(UNITS_PER_PROCESSOR).max(units / 2);
        Arc::new(Self {
            house: Arc::new(Scheduler::new(most, Some(BUSY))),
            units,
            seats,
            planes: Mutex::default(),
        })
    }

    fn plane(&self, plane: &PlaneId) -> Arc<PlaneState> {
        let mut planes = self.planes.lock();
        if let Some(state) = planes.get(plane) {
            return state.clone();
        }
        if planes.len() >= MANY && planes.len() == planes.capacity() {
            planes.retain(|_, state| Arc::strong_count(state) > 1 || !state.is_idle_for(FORGET));
        }
        planes.entry(plane.clone()).or_default().clone()
    }

    /// Waits for the request's turn.
    ///
    /// # Errors
    /// A limit of the class is reached, a queue is full, or it waited for 15 s.
    pub async fn enter(self: &Arc<Self>, visitor: Visitor<'_>) -> Result<Ticket, Refused> {
        let state = self.plane(visitor.plane);
        let until = Instant::now() + PATIENCE;
        let visit = state.enter(visitor.limits, visitor.cost)?;
        let level = match visitor.flows.limited(visitor.matched) {
            Some(level) => {
                let limit = state.levels.limit(&level, visitor.flows, self.seats);
                let seats = u64::from(visitor.cost.seats).min(limit.max(1));
                let scheduler = state.levels.scheduler(level.name);
                let queue = level.queue_of(visitor.matched, &scheduler);
                let entered = scheduler.enter(("", queue), (seats, seats), limit, level.longest_queue);
                let place = wait(&scheduler, entered, limit, until).await?;
                Some((place, plane::SeatHold::new(&state, level.name, seats)))
            }
            None => None,
        };
        let house = match visitor.exempt {
            true => None,
            false => {
                let Cost { micros, units, .. } = visitor.cost;
                let key = (visitor.organization, visitor.plane.clone());
                let entered = self.house.enter(key, (units, micros), self.units, LONGEST_QUEUE);
                Some(wait(&self.house, entered, self.units, until).await?)
            }
        };
        Ok(Ticket { house, _level: level, visit })
    }

    /// Counts a watch that stays open.
    ///
    /// # Errors
    /// The class allows no more.
    pub fn watch(&self, plane: &PlaneId, limits: &Limits) -> Result<WatchTicket, Refused> {
        self.plane(plane).watch(limits)
    }

    /// Watches that are open in a plane.
    pub fn watches(&self, plane: &PlaneId) -> usize {
        self.planes.lock().get(plane).map_or(0, |state| state.watches())
    }

    /// What a plane has used of this server since it was last forgotten.
    pub fn usage(&self, plane: &PlaneId) -> PlaneUsage {
        self.planes.lock().get(plane).map(|state| state.usage()).unwrap_or_default()
    }

    /// The planes that cost most, first.
    pub fn top(&self, most: usize) -> Vec<(PlaneId, PlaneUsage)> {
        let planes = self.planes.lock();
        let mut all: Vec<_> = planes.iter().map(|(plane, state)| (plane.clone(), state.usage())).collect();
        drop(planes);
        all.sort_by(|(a, x), (b, y)| y.cost_micros.cmp(&x.cost_micros).then_with(|| a.cmp(b)));
        all.truncate(most);
        all
    }

    /// Requests that wait for the house.
    pub fn waiting(&self) -> usize {
        self.house.waiting()
    }
}

async fn wait<K: scheduler::Key>(
    scheduler: &Arc<Scheduler<K>>,
    entered: Entered<K>,
    limit: u64,
    until: Instant,
) -> Result<Permit<K>, Refused> {
    let mut granted = match entered {
        Entered::Now(place) => return Ok(place),
        Entered::Full => return Err(Refused::busy()),
        Entered::Later(granted) => granted,
    };
    loop {
        match tokio::time::timeout(LOOK, &mut granted).await {
            Ok(Ok(place)) => return Ok(place),
            Ok(Err(_)) => return Err(Refused::busy()),
            Err(_) if Instant::now() >= until => return Err(Refused::busy()),
            Err(_) => scheduler.reclaim(limit),
        }
    }
}

/// The permits of a request, released when it is dropped: after its answer has been sent.
pub struct Ticket {
    house: Option<Permit<PlaneId>>,
    _level: Option<(Permit<u32>, plane::SeatHold)>,
    visit: plane::Visit,
}

impl Ticket {
    /// Records that another server does the work: the request stops counting towards this server's turns. It counts
    /// towards its plane and priority level until it is answered.
    pub fn passed_on(&mut self) {
        self.house = None;
    }

    /// Counts bytes that were sent.
    pub fn sent(&self, bytes: usize) {
        self.visit.sent(bytes);
    }
}
