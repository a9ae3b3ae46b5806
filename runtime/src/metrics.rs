//! Metrics of controllers and queues.

use crate::queue::Counts;
use crate::{Queue, QueueKey, Render};
use freehold_machinery::PlaneId;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The counters of one controller.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) reconciled: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) panicked: AtomicU64,
    pub(crate) micros: AtomicU64,
    pub(crate) depth: AtomicU64,
}

impl Counters {
    pub(crate) fn record(&self, took: Duration, failed: bool) {
        self.reconciled.fetch_add(1, Ordering::Relaxed);
        self.failed.fetch_add(u64::from(failed), Ordering::Relaxed);
        self.micros.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

/// The family of a metric, as the OpenMetrics format names it: without what its kind adds.
fn family(metric: &str) -> &str {
    metric.trim_end_matches("_total").trim_end_matches("_sum")
}

/// Planes that a metric names at once; all others share one label.
const MAX_PLANES: usize = 10;

/// Figures that a queue exports.
pub(crate) trait Gauge: Send + Sync {
    fn counts(&self) -> Counts;
    fn depth(&self) -> usize;
    fn deepest(&self, limit: usize) -> Vec<(PlaneId, usize)>;
}

impl<K: QueueKey> Gauge for Queue<K> {
    fn counts(&self) -> Counts {
        Queue::counts(self)
    }

    fn depth(&self) -> usize {
        self.len()
    }

    fn deepest(&self, limit: usize) -> Vec<(PlaneId, usize)> {
        Queue::deepest(self, limit)
    }
}

/// Figures that are read when somebody asks for metrics, by the value of their label.
pub type Figures = Arc<dyn Fn() -> BTreeMap<String, u64> + Send + Sync>;

/// The lines of a gauge with one label.
fn gauge(name: &str, label: &str, figures: &BTreeMap<String, u64>) -> String {
    let mut text = format!("# TYPE {name} gauge\n");
    for (value, figure) in figures {
        // Writing to a String can't fail.
        let _ = writeln!(text, "{name}{{{label}=\"{value}\"}} {figure}");
    }
    text
}

/// The counters of all controllers of a process. Cheap to clone.
#[derive(Clone, Default)]
pub struct Metrics {
    controllers: Arc<RwLock<BTreeMap<String, Arc<Counters>>>>,
    queues: Arc<RwLock<BTreeMap<String, Arc<dyn Gauge>>>>,
    /// Leases that this process competes for, and whether it has them.
    leases: Arc<RwLock<BTreeMap<String, bool>>>,
    /// What subsystems and components count beside these, by their names.
    others: Arc<RwLock<BTreeMap<&'static str, Render>>>,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").field("controllers", &self.controllers).finish_non_exhaustive()
    }
}

impl Metrics {
    pub(crate) fn counters(&self, controller: &str) -> Arc<Counters> {
        self.controllers.write().entry(controller.to_owned()).or_default().clone()
    }

    pub(crate) fn follow(&self, controller: &str, queue: Arc<dyn Gauge>) {
        self.queues.write().insert(controller.to_owned(), queue);
    }

    /// Renders what a subsystem or component counts with the rest. A later one of the same name takes its place.
    pub fn add(&self, name: &'static str, render: Render) {
        self.others.write().insert(name, render);
    }

    /// Notes whether this process has a Lease.
    pub(crate) fn leads(&self, lease: &str, leads: bool) {
        self.leases.write().insert(lease.to_owned(), leads);
    }

    /// Shows a gauge with one label until it is hidden. Values of the label are few, and words of the program itself.
    pub fn show(&self, name: &'static str, label: &'static str, figures: Figures) {
        self.add(name, Arc::new(move || gauge(name, label, &figures())));
    }

    /// Shows a gauge no longer.
    pub fn hide(&self, name: &str) {
        self.others.write().remove(name);
    }

    /// How often a controller has reconciled, and how often without success.
    pub fn reconciled(&self, controller: &str) -> (u64, u64) {
        let counters = self.counters(controller);
        (counters.reconciled.load(Ordering::Relaxed), counters.failed.load(Ordering::Relaxed))
    }

    /// All counters in the OpenMetrics format, without the mark of the end.
    pub fn render(&self) -> String {
        type Column = (&'static str, &'static str, fn(&Counters) -> f64);
        let columns: [Column; 5] = [
            ("reconcile_total", "counter", |c| c.reconciled.load(Ordering::Relaxed) as f64),
            ("reconcile_errors_total", "counter", |c| c.failed.load(Ordering::Relaxed) as f64),
            ("reconcile_panics_total", "counter", |c| c.panicked.load(Ordering::Relaxed) as f64),
            ("reconcile_seconds_total", "counter", |c| c.micros.load(Ordering::Relaxed) as f64 / 1e6),
            ("queue_depth", "gauge", |c| c.depth.load(Ordering::Relaxed) as f64),
        ];
        let mut text = String::new();
        let controllers = self.controllers.read();
        for (name, kind, value) in columns {
            // Writing to a String can't fail.
            let _ = writeln!(text, "# TYPE freehold_controller_{} {kind}", family(name));
            for (controller, counters) in controllers.iter() {
                let _ = writeln!(
                    text,
                    "freehold_controller_{name}{{controller=\"{controller}\"}} {}",
                    value(counters)
                );
            }
        }
        drop(controllers);
        self.render_queues(&mut text);
        let _ = writeln!(text, "# TYPE leader_election_master_status gauge");
        for (lease, leads) in self.leases.read().iter() {
            let _ = writeln!(text, "leader_election_master_status{{name=\"{lease}\"}} {}", u8::from(*leads));
        }
        for render in self.others.read().values() {
            text.push_str(&render());
        }
        text
    }

    /// The queues under the names that Kubernetes' dashboards use. Of the planes that wait only the deepest are named.
    fn render_queues(&self, text: &mut String) {
        let queues = self.queues.read();
        let controllers = self.controllers.read();
        let work = |name: &str| {
            let counters = controllers.get(name);
            let count =
                |of: fn(&Counters) -> &AtomicU64| counters.map_or(0, |c| of(c).load(Ordering::Relaxed));
            (count(|c| &c.reconciled), count(|c| &c.micros) as f64 / 1e6)
        };
        type Column<'a> = (&'static str, Option<&'static str>, &'a dyn Fn(&str, &dyn Gauge) -> f64);
        let columns: [Column<'_>; 7] = [
            ("depth", Some("gauge"), &|_, queue| queue.depth() as f64),
            ("adds_total", Some("counter"), &|_, queue| queue.counts().adds as f64),
            ("retries_total", Some("counter"), &|_, queue| queue.counts().retries as f64),
            ("queue_duration_seconds_sum", Some("summary"), &|_, queue| queue.counts().waited.as_secs_f64()),
            ("queue_duration_seconds_count", None, &|_, queue| queue.counts().taken as f64),
            ("work_duration_seconds_sum", Some("summary"), &|name, _| work(name).1),
            ("work_duration_seconds_count", None, &|name, _| work(name).0 as f64),
        ];
        for (column, kind, value) in columns {
            if let Some(kind) = kind {
                let _ = writeln!(text, "# TYPE workqueue_{} {kind}", family(column));
            }
            for (name, queue) in queues.iter() {
                let _ = writeln!(text, "workqueue_{column}{{name=\"{name}\"}} {}", value(name, &**queue));
            }
        }
        let _ = writeln!(text, "# TYPE freehold_workqueue_plane_depth gauge");
        for (name, queue) in queues.iter() {
            for (plane, depth) in queue.deepest(MAX_PLANES) {
                let _ = writeln!(
                    text,
                    "freehold_workqueue_plane_depth{{name=\"{name}\",plane=\"{plane}\"}} {depth}"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_of_a_component_is_shown_until_it_is_hidden() {
        let metrics = Metrics::default();
        metrics.show("things", "state", Arc::new(|| BTreeMap::from([("Ready".to_owned(), 3)])));
        assert!(metrics.render().ends_with("# TYPE things gauge\nthings{state=\"Ready\"} 3\n"));
        metrics.hide("things");
        assert!(!metrics.render().contains("things"));
    }
}
