//! The loop that takes keys and reconciles them.

use crate::metrics::Counters;
use crate::{Error, Key, Metrics, Queue, QueueKey, Store};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

/// How long running reconciles may take to end when the process stops.
const DRAIN: Duration = Duration::from_secs(4);
/// How many planes may have all the keys worked on at once that they may have, before others wait.
const PLANES_AT_ONCE: usize = 8;
/// Into how many steps a resync is spread.
const RESYNC_STEPS: u64 = 60;

/// The next step after a successful reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing, until something changes.
    Done,
    /// Reconcile the key again after this time.
    After(Duration),
}

/// The result of a reconcile.
pub type Reconciled = Result<Outcome, Error>;

/// A loop over a queue, with a bounded number of reconciles at once, for each plane and for all together.
pub struct Controller<K> {
    name: &'static str,
    queue: Arc<Queue<K>>,
    workers: usize,
    counters: Arc<Counters>,
}

type Running<K> = HashMap<Id, (K, Instant)>;

impl<K: QueueKey> Controller<K> {
    /// A controller with 4 workers that counts for itself.
    pub fn new(name: &'static str, queue: Arc<Queue<K>>) -> Self {
        Self { name, queue, workers: 4, counters: Arc::default() }
    }

    /// How many keys of one plane are worked on at once; of all planes eight times as many.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers.max(1);
        self
    }

    /// Counts reconciles and queue lengths in `metrics`, under the controller's name.
    pub fn metrics(mut self, metrics: &Metrics) -> Self {
        self.counters = metrics.counters(self.name);
        metrics.follow(self.name, self.queue.clone());
        self
    }

    /// Reconciles until the token is cancelled, then waits a few seconds for reconciles in flight.
    pub async fn run<F, W>(self, token: CancellationToken, reconcile: F)
    where
        F: Fn(K) -> W,
        W: Future<Output = Reconciled> + Send + 'static,
    {
        self.queue.limit_each_plane(self.workers);
        let mut tasks: JoinSet<Reconciled> = JoinSet::new();
        let mut running: Running<K> = HashMap::new();
        loop {
            tokio::select! {
                biased;
                () = token.cancelled() => break,
                Some(ended) = tasks.join_next_with_id(), if !tasks.is_empty() => self.ended(&mut running, ended),
                key = self.queue.take(), if running.len() < self.workers.saturating_mul(PLANES_AT_ONCE) => {
                    self.counters.depth.store(self.queue.len() as u64, Ordering::Relaxed);
                    let id = tasks.spawn(reconcile(key.clone())).id();
                    running.insert(id, (key, Instant::now()));
                }
            }
        }
        let drained = tokio::time::timeout(DRAIN, async { while tasks.join_next().await.is_some() {} }).await;
        if drained.is_err() {
            tracing::warn!(controller = self.name, running = tasks.len(), "reconciles did not end in time");
        }
    }

    fn ended(&self, running: &mut Running<K>, ended: Result<(Id, Reconciled), JoinError>) {
        let (id, result) = match ended {
            Ok((id, result)) => (id, result),
            Err(error) => {
                self.counters.panicked.fetch_add(1, Ordering::Relaxed);
                (error.id(), Err(Error::from(error)))
            }
        };
        let Some((key, started)) = running.remove(&id) else { return };
        self.counters.record(started.elapsed(), result.is_err());
        match result {
            Ok(outcome) => {
                self.queue.forget(&key);
                if let Outcome::After(delay) = outcome {
                    self.queue.add_after(key.clone(), delay);
                }
            }
            Err(error) => {
                let failures = self.queue.retry(key.clone());
                self.report(&key, failures, &error);
            }
        }
        self.queue.done(&key);
    }

    /// Single failures are ordinary (conflicts, a server that restarts); a row of them is news.
    fn report(&self, key: &K, failures: u32, error: &Error) {
        if failures >= 5 {
            tracing::warn!(controller = self.name, ?key, failures, %error, "reconcile fails");
        } else {
            tracing::debug!(controller = self.name, ?key, failures, %error, "reconcile failed");
        }
    }
}

/// Adds every key of a store once a `period`, spread over it, so that missed changes are repaired without a burst.
pub async fn resync<T>(store: Store<T>, queue: Arc<Queue<Key>>, period: Duration, token: CancellationToken) {
    let mut step: u64 = 0;
    loop {
        tokio::select! {
            () = token.cancelled() => return,
            () = tokio::time::sleep(period / u32::try_from(RESYNC_STEPS).unwrap_or(60)) => {}
        }
        for key in store.keys() {
            let mut hasher = DefaultHasher::new();
            key.hash(&mut hasher);
            if hasher.finish() % RESYNC_STEPS == step % RESYNC_STEPS {
                queue.add_routine(key);
            }
        }
        step += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_machinery::PlaneId;
    use parking_lot::Mutex;

    fn key(name: &str) -> Key {
        Key::new(PlaneId::core(), "", name)
    }

    /// Runs a controller over the keys until `until` holds of what was reconciled.
    async fn seen(
        keys: &[&str],
        metrics: &Metrics,
        until: impl Fn(&[Key]) -> bool + Send + Sync + 'static,
        reconcile: impl Fn(&Key, usize) -> Reconciled + Send + Sync + 'static,
    ) -> Vec<Key> {
        let queue = Queue::new();
        for name in keys {
            queue.add(key(name));
        }
        let (token, log) = (CancellationToken::new(), Arc::new(Mutex::new(Vec::new())));
        let (stop, written) = (token.clone(), log.clone());
        let shared = Arc::new((until, reconcile));
        Controller::new("test", queue)
            .metrics(metrics)
            .run(token, move |key| {
                let (stop, written, shared) = (stop.clone(), written.clone(), shared.clone());
                async move {
                    let nth = {
                        let mut log = written.lock();
                        log.push(key.clone());
                        if (shared.0)(&log) {
                            stop.cancel();
                        }
                        log.iter().filter(|k| **k == key).count()
                    };
                    (shared.1)(&key, nth)
                }
            })
            .await;
        log.lock().clone()
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_key_comes_again_and_others_are_not_held_up() {
        let metrics = Metrics::default();
        let log = seen(
            &["bad", "good"],
            &metrics,
            |log| log.len() == 4,
            |key, nth| {
                if &*key.name == "bad" && nth < 3 { Err("not yet".into()) } else { Ok(Outcome::Done) }
            },
        )
        .await;
        assert_eq!(log.iter().filter(|k| **k == key("bad")).count(), 3);
        assert_eq!(metrics.reconciled("test").1, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_plane_whose_requests_hang_keeps_no_other_waiting() {
        let (queue, token) = (Queue::new(), CancellationToken::new());
        for nth in 0..20 {
            queue.add(Key::new("hangs".parse().unwrap(), "", &nth.to_string()));
        }
        queue.add(key("fine"));
        let (stop, begin) = (token.clone(), tokio::time::Instant::now());
        Controller::new("test", queue)
            .workers(2)
            .run(token, move |key| {
                let stop = stop.clone();
                async move {
                    if key.plane.as_str() == "hangs" {
                        tokio::time::sleep(Duration::from_secs(30)).await;
                    } else {
                        assert_eq!(begin.elapsed(), Duration::ZERO);
                        stop.cancel();
                    }
                    Ok(Outcome::Done)
                }
            })
            .await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_is_a_failure_of_its_key_alone() {
        let metrics = Metrics::default();
        let log = seen(
            &["bad", "good"],
            &metrics,
            |log| log.len() == 3,
            |key, nth| {
                assert!(&*key.name == "good" || nth > 1, "on purpose");
                Ok(Outcome::Done)
            },
        )
        .await;
        assert_eq!(log.iter().filter(|k| **k == key("bad")).count(), 2);
        assert!(
            metrics.render().contains("freehold_controller_reconcile_panics_total{controller=\"test\"} 1")
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_asks_for_it_comes_again() {
        let after = |_: &Key, _| Ok(Outcome::After(Duration::from_secs(60)));
        assert_eq!(seen(&["a"], &Metrics::default(), |log| log.len() == 3, after).await.len(), 3);
    }
}
