//! Cells of pods.

use crate::{
    cells::{Function, condition, holds, int, items, text},
    duration,
};
use freehold_machinery::{Value, meta};
use jiff::Timestamp;
use serde_json::json;

pub(crate) const CELLS: &[(&str, Function)] = &[
    ("pod-ip", |o, _, _| ip(o).into()),
    ("pod-readiness-gates", |o, _, _| readiness_gates(o).into()),
    ("pod-ready", |o, _, _| Summary::of(o).ready().into()),
    ("pod-restarts", |o, _, now| Summary::of(o).restarts(now).into()),
    ("pod-status", |o, _, _| Summary::of(o).reason.into()),
];

/// The condition of a row whose pod has ended.
pub(crate) fn row_condition(pod: &Value) -> Option<Value> {
    let (reason, message) = match text(pod, "/status/phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!({"type": "Completed", "status": "True", "reason": reason, "message": message}))
}

/// What a pod's containers add up to.
struct Summary {
    reason: String,
    total: usize,
    ready: usize,
    restarts: Restarts,
}

/// How often containers were restarted, and when last.
#[derive(Clone, Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, status: &Value) {
        self.count += int(status, "/restartCount");
        self.last = self.last.max(duration::parse(text(status, "/lastState/terminated/finishedAt")));
    }
}

impl Summary {
    fn of(pod: &Value) -> Self {
        let mut summary = Self {
            reason: phase(pod),
            total: items(pod, "/spec/containers").len() + sidecars(pod).count(),
            ready: 0,
            restarts: Restarts::default(),
        };
        let (initializing, of_sidecars) = summary.init_containers(pod);
        if !initializing || holds(pod, "Initialized") {
            summary.restarts = of_sidecars;
            summary.containers(pod);
        }
        if meta::is_deleting(pod) {
            summary.deleting(pod);
        }
        summary
    }

    /// Counts init containers up to the first that hasn't done its part. Gives whether there is one, and the
    /// restarts of those that go on beside the containers.
    fn init_containers(&mut self, pod: &Value) -> (bool, Restarts) {
        let mut of_sidecars = Restarts::default();
        for (at, status) in items(pod, "/status/initContainerStatuses").iter().enumerate() {
            self.restarts.add(status);
            let sidecar = sidecars(pod).any(|name| name == text(status, "/name"));
            if sidecar {
                of_sidecars.add(status);
            }
            let flag = |field: &str| status.get(field).and_then(Value::as_bool).unwrap_or(false);
            if status.pointer("/state/terminated").is_some_and(|state| int(state, "/exitCode") == 0) {
                continue;
            }
            if sidecar && flag("started") {
                self.ready += usize::from(flag("ready"));
                continue;
            }
            self.reason = init_reason(status, at, items(pod, "/spec/initContainers").len());
            return (true, of_sidecars);
        }
        (false, of_sidecars)
    }

    fn containers(&mut self, pod: &Value) {
        let mut running = false;
        for status in items(pod, "/status/containerStatuses").iter().rev() {
            self.restarts.add(status);
            let ready = status.get("ready").and_then(Value::as_bool).unwrap_or(false);
            if let Some(reason) = stopped_reason(status) {
                self.reason = reason;
            } else if ready && status.pointer("/state/running").is_some() {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" && running {
            self.reason = if holds(pod, "Ready") { "Running" } else { "NotReady" }.to_owned();
        }
    }

    fn deleting(&mut self, pod: &Value) {
        if text(pod, "/status/reason") == "NodeLost" {
            self.reason = "Unknown".to_owned();
        } else if !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed") {
            self.reason = "Terminating".to_owned();
        }
    }

    fn ready(&self) -> String {
        format!("{}/{}", self.ready, self.total)
    }

    fn restarts(&self, now: Timestamp) -> String {
        match self.restarts.last {
            Some(last) if self.restarts.count > 0 => {
                let ago = duration::human(now.duration_since(last).as_secs());
                format!("{} ({ago} ago)", self.restarts.count)
            }
            _ => self.restarts.count.to_string(),
        }
    }
}

/// The phase, or the reason that says it better.
fn phase(pod: &Value) -> String {
    if condition(pod, "PodScheduled").is_some_and(|c| text(c, "/reason") == "SchedulingGated") {
        return "SchedulingGated".to_owned();
    }
    let reason = text(pod, "/status/reason");
    if reason.is_empty() { text(pod, "/status/phase") } else { reason }.to_owned()
}

/// Names of the init containers that go on beside the containers.
fn sidecars(pod: &Value) -> impl Iterator<Item = &str> {
    let always = |container: &&Value| text(container, "/restartPolicy") == "Always";
    items(pod, "/spec/initContainers").iter().filter(always).map(|container| text(container, "/name"))
}

fn init_reason(status: &Value, at: usize, total: usize) -> String {
    if let Some(state) = status.pointer("/state/terminated") {
        return format!("Init:{}", terminated_reason(state));
    }
    match text(status, "/state/waiting/reason") {
        "" | "PodInitializing" => format!("Init:{at}/{total}"),
        reason => format!("Init:{reason}"),
    }
}

/// Why a container doesn't run; `None` where it does, or nothing is known.
fn stopped_reason(status: &Value) -> Option<String> {
    match text(status, "/state/waiting/reason") {
        "" => status.pointer("/state/terminated").map(terminated_reason),
        reason => Some(reason.to_owned()),
    }
}

fn terminated_reason(state: &Value) -> String {
    match (text(state, "/reason"), int(state, "/signal")) {
        ("", 0) => format!("ExitCode:{}", int(state, "/exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn ip(pod: &Value) -> String {
    let one = text(pod, "/status/podIP");
    let ip = if one.is_empty() { text(pod, "/status/podIPs/0/ip") } else { one };
    if ip.is_empty() { "<none>".to_owned() } else { ip.to_owned() }
}

fn readiness_gates(pod: &Value) -> String {
    let gates = items(pod, "/spec/readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let met = gates.iter().filter(|gate| holds(pod, text(gate, "/conditionType"))).count();
    format!("{met}/{}", gates.len())
}
