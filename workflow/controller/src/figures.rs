//! What the controllers count. Labels are outcomes alone: nothing that tenants name is one.

use freehold_workflow_api::Phase;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Outcomes of runs and tasks.
const OUTCOMES: [(&str, Phase); 4] = [
    ("succeeded", Phase::Succeeded),
    ("failed", Phase::Failed),
    ("skipped", Phase::Skipped),
    ("stopped", Phase::Stopped),
];
/// Limits of the buckets of durations, in seconds.
const BUCKETS: [u64; 8] = [1, 5, 15, 60, 300, 900, 3600, 21_600];

/// Durations by buckets.
#[derive(Debug, Default)]
pub(crate) struct Durations {
    buckets: [AtomicU64; BUCKETS.len() + 1],
    millis: AtomicU64,
}

impl Durations {
    fn add(&self, millis: u64) {
        let bucket = BUCKETS.iter().position(|limit| millis <= limit * 1000).unwrap_or(BUCKETS.len());
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.millis.fetch_add(millis, Ordering::Relaxed);
    }
}

/// What became of notifications and traces.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    pub(crate) delivered: Counter,
    pub(crate) failed: Counter,
    pub(crate) dropped: Counter,
}

/// What the controllers of a process count.
#[derive(Debug, Default)]
pub struct Figures {
    runs: [Counter; OUTCOMES.len()],
    tasks: [Counter; OUTCOMES.len()],
    durations: Durations,
    pub(crate) retries: Counter,
    pub(crate) memoized: Counter,
    pub(crate) notifications: Sent,
    pub(crate) traces: Sent,
}

impl Figures {
    pub(crate) fn run(&self, phase: Phase, (began, ended): (i64, i64)) {
        count(&self.runs, phase);
        if began > 0 {
            self.durations.add(ended.saturating_sub(began).max(0).unsigned_abs());
        }
    }

    pub(crate) fn task(&self, phase: Phase) {
        count(&self.tasks, phase);
    }

    /// Renders all figures in the format of Prometheus.
    pub fn render(&self) -> String {
        let mut text = String::new();
        for (name, counters) in [("runs", &self.runs), ("tasks", &self.tasks)] {
            let rows: Vec<(&str, u64)> = OUTCOMES
                .iter()
                .zip(counters)
                .map(|((outcome, _), counter)| (*outcome, counter.get()))
                .collect();
            family(&mut text, name, &rows);
        }
        for (name, sent) in [("notifications", &self.notifications), ("traces", &self.traces)] {
            let rows = [
                ("delivered", sent.delivered.get()),
                ("failed", sent.failed.get()),
                ("dropped", sent.dropped.get()),
            ];
            family(&mut text, name, &rows);
        }
        for (name, counter) in [("task_retries", &self.retries), ("tasks_memoized", &self.memoized)] {
            let _ = writeln!(text, "# TYPE freehold_workflow_{name} counter");
            let _ = writeln!(text, "freehold_workflow_{name}_total {}", counter.get());
        }
        let _ = writeln!(text, "# TYPE freehold_workflow_run_duration_seconds histogram");
        let mut sum = 0;
        for (n, bucket) in self.durations.buckets.iter().enumerate() {
            sum += bucket.load(Ordering::Relaxed);
            let limit = BUCKETS.get(n).map_or_else(|| "+Inf".to_owned(), u64::to_string);
            let _ = writeln!(text, "freehold_workflow_run_duration_seconds_bucket{{le=\"{limit}\"}} {sum}");
        }
        let seconds = self.durations.millis.load(Ordering::Relaxed) as f64 / 1e3;
        let _ = writeln!(text, "freehold_workflow_run_duration_seconds_sum {seconds}");
        let _ = writeln!(text, "freehold_workflow_run_duration_seconds_count {sum}");
        text
    }
}

fn count(counters: &[Counter; OUTCOMES.len()], phase: Phase) {
    if let Some(n) = OUTCOMES.iter().position(|(_, outcome)| *outcome == phase) {
        counters[n].add();
    }
}

fn family(text: &mut String, name: &str, rows: &[(&str, u64)]) {
    // Writing to a String can't fail.
    let _ = writeln!(text, "# TYPE freehold_workflow_{name} counter");
    for (outcome, count) in rows {
        let _ = writeln!(text, "freehold_workflow_{name}_total{{outcome=\"{outcome}\"}} {count}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_outcomes_as_their_only_labels() {
        let figures = Figures::default();
        figures.run(Phase::Succeeded, (1000, 3500));
        figures.run(Phase::Failed, (0, 0));
        figures.task(Phase::Skipped);
        let text = figures.render();
        for line in [
            "freehold_workflow_runs_total{outcome=\"succeeded\"} 1",
            "freehold_workflow_tasks_total{outcome=\"skipped\"} 1",
            "freehold_workflow_run_duration_seconds_bucket{le=\"1\"} 0",
            "freehold_workflow_run_duration_seconds_bucket{le=\"+Inf\"} 1",
            "freehold_workflow_run_duration_seconds_sum 2.5",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
}
