//! What this machine and the containers on it use of CPU and memory, as a kubelet tells it: `/stats/summary` in JSON, and
//! `/metrics/resource` in Prometheus' text format, which metrics-server reads.
//!
//! Everything is read from `/proc`, and only when somebody asks: CPU usage is what was used since the last question, or in the
//! second that is waited for where that is too long ago.

use crate::logbook::Key;
use crate::process_times::{Times, machine_memory, machine_times, of_groups};
use crate::running::RunningContainers;
use freehold_machinery::time;
use jiff::Timestamp;
use serde_json::json;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// For how long an answer is given again.
const FRESH: Duration = Duration::from_secs(5);
/// How old the sample may be that CPU usage is measured from.
const OLDEST: Duration = Duration::from_secs(60);
/// How long is waited for a second sample where there is none to measure from.
const APART: Duration = Duration::from_secs(1);

/// A form in which usage is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `/stats/summary`.
    Summary,
    /// `/metrics/resource`.
    Metrics,
}

impl Form {
    /// The form that a path stands for.
    pub(crate) fn of(path: &str) -> Option<Self> {
        match path {
            "/stats/summary" => Some(Self::Summary),
            "/metrics/resource" => Some(Self::Metrics),
            _ => None,
        }
    }

    /// The media type of the form.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Summary => "application/json",
            Self::Metrics => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Measures the machine and its containers.
pub(crate) struct Usage {
    node: String,
    containers: Arc<RunningContainers>,
    last: Mutex<Option<(Sample, Arc<Report>)>>,
}

/// What was used until a time.
struct Sample {
    at: Instant,
    machine: Times,
    /// By process group, so that a container that has started again is another.
    containers: HashMap<i32, Times>,
}

/// What is used at a time.
struct Report {
    at: Timestamp,
    machine: Amount,
    containers: Vec<(Key, Amount)>,
}

/// CPU and memory of the machine or a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Amount {
    /// All CPU time until now, in nanoseconds.
    cpu_nanos: u64,
    /// CPU usage in billionths of a core.
    nano_cores: u64,
    memory_bytes: u64,
}

impl Usage {
    /// Measures the containers that are listed, of a node of this name.
    pub(crate) fn new(node: &str, containers: Arc<RunningContainers>) -> Self {
        Self { node: node.to_owned(), containers, last: Mutex::default() }
    }

    /// What is used now, in a form. Those who ask at once wait for one answer.
    pub(crate) async fn told(&self, form: Form) -> String {
        let report = self.report().await;
        match form {
            Form::Summary => report.summary(&self.node),
            Form::Metrics => report.metrics(),
        }
    }

    async fn report(&self) -> Arc<Report> {
        let mut last = self.last.lock().await;
        let before = match last.take() {
            Some((sample, report)) if sample.at.elapsed() < FRESH => {
                *last = Some((sample, report.clone()));
                return report;
            }
            Some((sample, _)) if sample.at.elapsed() < OLDEST => sample,
            _ => {
                let sample = self.sample().await.0;
                tokio::time::sleep(APART).await;
                sample
            }
        };
        let (now, keys) = self.sample().await;
        let report = Arc::new(Report::between(&before, &now, &keys));
        *last = Some((now, report.clone()));
        report
    }

    async fn sample(&self) -> (Sample, HashMap<i32, Key>) {
        let keys = self.containers.groups();
        let groups = keys.keys().copied().collect();
        let read = move || {
            let memory_bytes = machine_memory();
            let machine = Times { cpu_nanos: machine_times(), memory_bytes };
            Sample { at: Instant::now(), machine, containers: of_groups(&groups) }
        };
        // The processes of a machine can be many. A reader that panics has read nothing.
        let sample = tokio::task::spawn_blocking(read).await.unwrap_or_else(|_| Sample {
            at: Instant::now(),
            machine: Times::default(),
            containers: HashMap::new(),
        });
        (sample, keys)
    }
}

impl Report {
    fn between(before: &Sample, now: &Sample, keys: &HashMap<i32, Key>) -> Self {
        let elapsed = now.at.saturating_duration_since(before.at);
        let amount = |now: &Times, before: u64| Amount {
            cpu_nanos: now.cpu_nanos,
            nano_cores: rate(now.cpu_nanos.saturating_sub(before), elapsed),
            memory_bytes: now.memory_bytes,
        };
        let containers = now.containers.iter().filter_map(|(group, times)| {
            // One that was not there before has used all that it used since.
            let before = before.containers.get(group).map_or(0, |before| before.cpu_nanos);
            Some((keys.get(group)?.clone(), amount(times, before)))
        });
        let mut containers: Vec<_> = containers.collect();
        containers.sort_by(|(a, _), (b, _)| a.cmp(b));
        Self { at: Timestamp::now(), machine: amount(&now.machine, before.machine.cpu_nanos), containers }
    }

    /// `Summary` of `stats/v1alpha1`, without disks and networks.
    fn summary(&self, node: &str) -> String {
        let at = time::format_seconds(self.at);
        let stats = |amount: &Amount| {
            let cpu = json!({"time": at, "usageNanoCores": amount.nano_cores, "usageCoreNanoSeconds": amount.cpu_nanos});
            let bytes = amount.memory_bytes;
            (cpu, json!({"time": at, "usageBytes": bytes, "workingSetBytes": bytes}))
        };
        let (cpu, memory) = stats(&self.machine);
        let node = json!({"nodeName": node, "cpu": cpu, "memory": memory});
        let pods = self.containers.chunk_by(|((a_in, a, _), _), ((b_in, b, _), _)| (a_in, a) == (b_in, b));
        let pods = pods.filter_map(|containers| {
            let ((namespace, name, _), _) = containers.first()?;
            let containers = containers.iter().map(|((_, _, name), amount)| {
                let (cpu, memory) = stats(amount);
                json!({"name": name, "cpu": cpu, "memory": memory})
            });
            let containers: Vec<_> = containers.collect();
            Some(json!({"podRef": {"namespace": namespace, "name": name}, "containers": containers}))
        });
        json!({"node": node, "pods": pods.collect::<Vec<_>>()}).to_string()
    }

    /// The metrics of kubelet's `/metrics/resource`. Names of objects need no escaping.
    fn metrics(&self) -> String {
        let at = self.at.as_millisecond();
        let mut text = String::new();
        let seconds = |amount: &Amount| amount.cpu_nanos as f64 / 1e9;
        let mut metric = |name: &str, kind: &str, help: &str, of: &dyn Fn(&Amount) -> f64| {
            // Writing to a String can't fail.
            let _ = writeln!(text, "# HELP {name} [STABLE] {help}\n# TYPE {name} {kind}");
            if name.starts_with("node_") {
                let _ = writeln!(text, "{name} {} {at}", of(&self.machine));
                return;
            }
            for ((namespace, pod, container), amount) in &self.containers {
                let labels = format!(r#"container="{container}",namespace="{namespace}",pod="{pod}""#);
                let _ = writeln!(text, "{name}{{{labels}}} {} {at}", of(amount));
            }
        };
        let memory = |amount: &Amount| amount.memory_bytes as f64;
        let cpu = "Cumulative cpu time consumed by the";
        let working_set = "Current working set in bytes of the";
        for of in ["container", "node"] {
            metric(
                &format!("{of}_cpu_usage_seconds_total"),
                "counter",
                &format!("{cpu} {of} in core-seconds"),
                &seconds,
            );
            metric(
                &format!("{of}_memory_working_set_bytes"),
                "gauge",
                &format!("{working_set} {of}"),
                &memory,
            );
        }
        text
    }
}

/// CPU time within a time, in billionths of a core.
fn rate(cpu_nanos: u64, elapsed: Duration) -> u64 {
    let rate = u128::from(cpu_nanos) * 1_000_000_000 / elapsed.as_nanos().max(1);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_machinery::Value;

    fn key(name: &str) -> Key {
        ("a".to_owned(), "p".to_owned(), name.to_owned())
    }

    fn report() -> Report {
        let begun = Instant::now();
        let times = |cpu_nanos, memory_bytes| Times { cpu_nanos, memory_bytes };
        let before =
            Sample { at: begun, machine: times(0, 0), containers: HashMap::from([(7, times(1_000, 5))]) };
        let now = Sample {
            at: begun + Duration::from_secs(2),
            machine: times(4_000_000_000, 1 << 20),
            containers: HashMap::from([
                (7, times(3_000, 6)),
                (8, times(500_000_000, 4096)),
                (9, times(1, 1)),
            ]),
        };
        Report::between(&before, &now, &HashMap::from([(7, key("x")), (8, key("y"))]))
    }

    #[test]
    fn usage_is_what_was_used_in_between() {
        let report = report();
        assert_eq!((report.machine.nano_cores, report.machine.memory_bytes), (2_000_000_000, 1 << 20));
        let found: Vec<_> =
            report.containers.iter().map(|((_, _, name), a)| (&**name, a.nano_cores)).collect();
        assert_eq!(found, [("x", 1_000), ("y", 250_000_000)]);
    }

    #[test]
    fn both_forms_are_those_of_a_kubelet() {
        let report = report();
        let summary: Value = serde_json::from_str(&report.summary("n")).unwrap();
        assert_eq!(summary["node"]["cpu"]["usageNanoCores"], 2_000_000_000_u64);
        assert_eq!(summary["pods"].as_array().unwrap().len(), 1);
        assert_eq!(summary["pods"][0]["podRef"]["name"], "p");
        assert_eq!(summary["pods"][0]["containers"][1]["memory"]["workingSetBytes"], 4096);
        let at = report.at.as_millisecond();
        let metrics = report.metrics();
        for line in [
            format!(r#"container_cpu_usage_seconds_total{{container="y",namespace="a",pod="p"}} 0.5 {at}"#),
            format!("node_cpu_usage_seconds_total 4 {at}"),
            format!("node_memory_working_set_bytes 1048576 {at}"),
        ] {
            assert!(metrics.lines().any(|found| found == line), "{line} in {metrics}");
        }
    }

    #[tokio::test]
    async fn a_machine_uses_something() {
        let usage = Usage::new("n", Arc::default());
        let (first, second) = tokio::join!(usage.told(Form::Summary), usage.told(Form::Summary));
        assert_eq!(first, second, "both wait for one answer");
        let summary: Value = serde_json::from_str(&first).unwrap();
        assert!(summary["node"]["memory"]["workingSetBytes"].as_u64().unwrap() > 0, "{summary}");
        assert!(summary["node"]["cpu"]["usageCoreNanoSeconds"].as_u64().unwrap() > 0, "{summary}");
    }
}
