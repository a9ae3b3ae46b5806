//! What controllers count.

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

/// The counters of all controllers of a process. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    controllers: Arc<RwLock<BTreeMap<String, Arc<Counters>>>>,
}

impl Metrics {
    pub(crate) fn counters(&self, controller: &str) -> Arc<Counters> {
        self.controllers.write().entry(controller.to_owned()).or_default().clone()
    }

    /// How often a controller has reconciled, and how often without success.
    pub fn reconciled(&self, controller: &str) -> (u64, u64) {
        let counters = self.counters(controller);
        (counters.reconciled.load(Ordering::Relaxed), counters.failed.load(Ordering::Relaxed))
    }

    /// All counters in Prometheus' text format.
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
            let _ = writeln!(text, "# TYPE freehold_controller_{name} {kind}");
            for (controller, counters) in controllers.iter() {
                let _ = writeln!(
                    text,
                    "freehold_controller_{name}{{controller=\"{controller}\"}} {}",
                    value(counters)
                );
            }
        }
        text
    }
}
