//! Sinks of events: a bounded queue, and the task that drains it.

use crate::{Level, Written};
use async_trait::async_trait;
use parking_lot::Mutex;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use serde::Deserialize;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_util::task::TaskTracker;

/// Deliveries of one batch that are tried; after each the pause is half as long again.
const TRIES: u32 = 5;

/// Brings events to where they are kept.
#[async_trait]
pub trait Deliver: Send + Sync + 'static {
    /// Delivers events, in order: all or none. The error is for the log.
    async fn deliver(&self, events: &[Written]) -> Result<(), String>;

    /// Whether it wants [`Written::line`].
    fn wants_lines(&self) -> bool {
        false
    }
}

/// Whether requests wait for a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Mode {
    /// Never. Where the queue is full, events are dropped and counted.
    Batch,
    /// Until each event is delivered, or could not be.
    Blocking,
    /// Until each event is delivered, or could not be; a request whose first event could not be delivered fails.
    BlockingStrict,
}

impl std::str::FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "batch" => Ok(Self::Batch),
            "blocking" => Ok(Self::Blocking),
            "blocking-strict" => Ok(Self::BlockingStrict),
            _ => Err("known modes are batch, blocking and blocking-strict".to_owned()),
        }
    }
}

/// How events are collected and delivered. What is about batches counts for [`Mode::Batch`] alone.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Events that may wait.
    pub buffer: usize,
    /// Events of a delivery.
    pub max_size: usize,
    /// How long an event may wait for others.
    pub max_wait: Duration,
    /// Deliveries a second, and how many at once after a pause.
    pub throttle: Option<(f64, u32)>,
    /// Deliveries under way at a time.
    pub at_once: usize,
    /// The pause after the first failure; without it, a delivery is tried once.
    pub retry: Option<Duration>,
    /// What is cut off.
    pub truncate: Option<Truncate>,
}

/// How large events may be for a sink. Objects of a larger one are left out; if it is still too large, it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncate {
    /// Bytes of an event.
    pub max_event: usize,
    /// Bytes of a delivery of several; ones of more are made several.
    pub max_batch: usize,
}

impl Batch {
    /// kube-apiserver's numbers for webhooks.
    pub fn webhook() -> Self {
        Self {
            buffer: 10_000,
            max_size: 400,
            max_wait: Duration::from_secs(30),
            throttle: Some((10.0, 15)),
            at_once: 15,
            retry: Some(Duration::from_secs(10)),
            truncate: None,
        }
    }

    /// For files: in order, and written as they come.
    pub fn file() -> Self {
        Self {
            buffer: 10_000,
            max_size: 400,
            max_wait: Duration::ZERO,
            throttle: None,
            at_once: 1,
            retry: None,
            truncate: None,
        }
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Plugin {
    plugin: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Leveled {
    level: &'static str,
}

/// What is counted, under kube-apiserver's names.
#[derive(Clone, Default)]
pub struct Counters {
    events: Counter,
    rejected: Counter,
    errors: Family<Plugin, Counter>,
    levels: Family<Leveled, Counter>,
}

impl Counters {
    /// Counters that `/metrics` shows.
    pub fn register(registry: &mut Registry) -> Self {
        let new = Self::default();
        registry.register("apiserver_audit_event", "Audit events made", new.events.clone());
        registry.register(
            "apiserver_audit_requests_rejected",
            "Requests refused because they could not be audited",
            new.rejected.clone(),
        );
        registry.register(
            "apiserver_audit_error",
            "Audit events that were not delivered",
            new.errors.clone(),
        );
        registry.register(
            "apiserver_audit_level",
            "Requests by the level that the policy gives them",
            new.levels.clone(),
        );
        new
    }

    pub(crate) fn event(&self) {
        self.events.inc();
    }

    /// Counts a request of the operator's policy.
    pub(crate) fn level(&self, level: Level) {
        self.levels.get_or_create(&Leveled { level: level.name() }).inc();
    }

    pub(crate) fn rejected(&self) {
        self.rejected.inc();
    }

    /// Counts an event of a stranger that was left out of a trail.
    pub(crate) fn left_out(&self) {
        self.lost("trail-rate", 1);
    }

    fn lost(&self, plugin: &'static str, count: usize) {
        self.errors.get_or_create(&Plugin { plugin }).inc_by(count as u64);
    }
}

/// An event, and who waits for its delivery.
type Item = (Written, Option<oneshot::Sender<bool>>);

/// A queue of events and who empties it.
pub struct Sink {
    name: &'static str,
    mode: Mode,
    lines: bool,
    truncate: Option<Truncate>,
    queue: Mutex<Option<mpsc::Sender<Item>>>,
    counters: Counters,
    tasks: TaskTracker,
}

impl Sink {
    /// Begins to deliver. To be called within a runtime.
    pub fn start(
        name: &'static str,
        to: Arc<dyn Deliver>,
        mode: Mode,
        batch: Batch,
        counters: Counters,
    ) -> Arc<Self> {
        let (sender, queue) = mpsc::channel(batch.buffer.max(1));
        let tasks = TaskTracker::new();
        let (lines, truncate) = (to.wants_lines(), batch.truncate);
        let worker = Worker {
            name,
            to,
            places: Arc::new(Semaphore::new(batch.at_once.max(1))),
            throttle: batch.throttle.map(Throttle::new),
            waits: mode == Mode::Batch && !batch.max_wait.is_zero(),
            batch,
            counters: counters.clone(),
            tasks: tasks.clone(),
        };
        tasks.spawn(worker.run(queue));
        Arc::new(Self { name, mode, lines, truncate, queue: Mutex::new(Some(sender)), counters, tasks })
    }

    pub(crate) fn wants_lines(&self) -> bool {
        self.lines
    }

    /// Takes an event as it is or, where that is too large for the sink, as `smaller` makes it. False where it must have
    /// been delivered and was not.
    pub(crate) async fn process_cut(
        &self,
        event: &Written,
        smaller: impl FnOnce() -> Option<Written>,
    ) -> bool {
        let fits = |event: &Written| self.truncate.is_none_or(|cut| event.json.len() <= cut.max_event);
        if fits(event) {
            return self.process(event).await;
        }
        match smaller().filter(fits) {
            Some(event) => self.process(&event).await,
            None => {
                self.counters.lost("truncate", 1);
                true
            }
        }
    }

    /// Takes an event. False where it must have been delivered and was not.
    pub(crate) async fn process(&self, event: &Written) -> bool {
        let Some(queue) = self.queue.lock().clone() else {
            self.counters.lost(self.name, 1);
            return self.mode != Mode::BlockingStrict;
        };
        if self.mode == Mode::Batch {
            if queue.try_send((event.clone(), None)).is_err() {
                self.counters.lost("buffered", 1);
            }
            return true;
        }
        let (done, delivered) = oneshot::channel();
        let delivered = match queue.send((event.clone(), Some(done))).await {
            Ok(()) => delivered.await.unwrap_or(false),
            Err(_) => false,
        };
        delivered || self.mode == Mode::Blocking
    }

    /// Takes no more events, and delivers those that it has, for at most that long.
    pub(crate) async fn close(&self, patience: Duration) {
        drop(self.queue.lock().take());
        self.tasks.close();
        if tokio::time::timeout(patience, self.tasks.wait()).await.is_err() {
            tracing::warn!(sink = self.name, "audit events were dropped at shutdown");
        }
    }
}

struct Worker {
    name: &'static str,
    to: Arc<dyn Deliver>,
    batch: Batch,
    /// Whether a batch waits for further events.
    waits: bool,
    places: Arc<Semaphore>,
    throttle: Option<Throttle>,
    counters: Counters,
    tasks: TaskTracker,
}

impl Worker {
    async fn run(mut self, mut queue: mpsc::Receiver<Item>) {
        while let Some(first) = queue.recv().await {
            // A place first: while all are taken the queue fills, and what comes then goes out together.
            let Ok(place) = self.places.clone().acquire_owned().await else { return };
            let items = self.collect(first, &mut queue).await;
            if let Some(throttle) = &mut self.throttle {
                tokio::time::sleep(throttle.next()).await;
            }
            let (to, retry) = (self.to.clone(), self.batch.retry);
            let (name, counters) = (self.name, self.counters.clone());
            self.tasks.spawn(async move {
                let (events, waiting): (Vec<_>, Vec<_>) = items.into_iter().unzip();
                let delivered = deliver(name, &*to, &events, retry).await;
                if !delivered {
                    counters.lost(name, events.len());
                }
                for done in waiting.into_iter().flatten() {
                    let _ = done.send(delivered);
                }
                drop(place);
            });
        }
    }

    async fn collect(&self, first: Item, queue: &mut mpsc::Receiver<Item>) -> Vec<Item> {
        // So that one more event always fits.
        let most = self.batch.truncate.map_or(usize::MAX, |cut| cut.max_batch.saturating_sub(cut.max_event));
        let mut bytes = first.0.json.len();
        let mut items = vec![first];
        let end = tokio::time::Instant::now() + self.batch.max_wait;
        while items.len() < self.batch.max_size && bytes <= most {
            let next = match queue.try_recv() {
                Ok(item) => Some(item),
                Err(_) if !self.waits => break,
                Err(_) => tokio::time::timeout_at(end, queue.recv()).await.unwrap_or(None),
            };
            match next {
                Some(item) => {
                    bytes += item.0.json.len();
                    items.push(item);
                }
                None => break,
            }
        }
        items
    }
}

async fn deliver(name: &str, to: &dyn Deliver, events: &[Written], retry: Option<Duration>) -> bool {
    let mut pause = retry;
    for tried in 1..=TRIES {
        match (to.deliver(events).await, pause) {
            (Ok(()), _) => return true,
            (Err(error), Some(wait)) if tried < TRIES => {
                tracing::debug!(sink = name, error, "failed to deliver audit events; will retry");
                tokio::time::sleep(wait).await;
                pause = Some(wait * 3 / 2);
            }
            (Err(error), _) => {
                tracing::error!(sink = name, events = events.len(), error, "audit events are lost");
                return false;
            }
        }
    }
    false
}

/// A token bucket.
struct Throttle {
    rate: f64,
    burst: f64,
    tokens: f64,
    last: Instant,
}

impl Throttle {
    fn new((rate, burst): (f64, u32)) -> Self {
        Self { rate, burst: f64::from(burst), tokens: f64::from(burst), last: Instant::now() }
    }

    /// How long the next delivery has to wait.
    fn next(&mut self) -> Duration {
        let now = Instant::now();
        let gained = now.duration_since(self.last).as_secs_f64() * self.rate;
        self.tokens = (self.tokens + gained).min(self.burst) - 1.0;
        self.last = now;
        Duration::from_secs_f64((-self.tokens / self.rate).max(0.0))
    }
}
