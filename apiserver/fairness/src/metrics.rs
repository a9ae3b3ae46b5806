//! Metrics of fairness, under the names of kube-apiserver's flow control. Projects have flow schemas of their own: those that
//! every control plane begins with are told by name, and all others together as `other`.

use crate::{Matched, bootstrap};
use freehold_machinery::meta;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use std::{collections::HashMap, time::Instant};

/// Upper bounds of the buckets of durations, in seconds (kube-apiserver's).
const BUCKETS: [f64; 10] = [0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 15.0];
/// What schemas and levels are called that are a project's own.
const OTHER: &str = "other";

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct FlowLabels {
    priority_level: String,
    flow_schema: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct WaitLabels {
    #[prometheus(flatten)]
    flow: FlowLabels,
    execute: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RefusedLabels {
    #[prometheus(flatten)]
    flow: FlowLabels,
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct LevelLabel {
    priority_level: String,
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// Why a request was turned away, in Kubernetes' words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    QueueFull,
    TimeOut,
}

/// The handles of one flow schema, so that a request looks up nothing but that.
struct Row {
    waiting: Gauge,
    executing: Gauge,
    seats: Gauge,
    dispatched: Counter,
    waited: [Histogram; 2],
    took: Histogram,
    refused: [Counter; 2],
}

/// What fairness did with requests.
pub struct FlowMetrics {
    /// By priority level and flow schema.
    rows: HashMap<String, HashMap<String, Row>>,
}

impl FlowMetrics {
    /// Shows them at `/metrics`. `seats`: what the priority levels of a control plane divide.
    pub fn new(registry: &mut Registry, seats: u32) -> Self {
        let (waiting, executing, taken) = (
            Family::<FlowLabels, Gauge>::default(),
            Family::<FlowLabels, Gauge>::default(),
            Family::default(),
        );
        let dispatched = Family::<FlowLabels, Counter>::default();
        let refused = Family::<RefusedLabels, Counter>::default();
        let waited: Histograms<WaitLabels> = Family::new_with_constructor(|| Histogram::new(BUCKETS));
        let took: Histograms<FlowLabels> = Family::new_with_constructor(|| Histogram::new(BUCKETS));
        let row = |level: &str, schema: &str| {
            let flow = FlowLabels { priority_level: level.to_owned(), flow_schema: schema.to_owned() };
            let wait = |execute| waited.get_or_create_owned(&WaitLabels { flow: flow.clone(), execute });
            let turned_away =
                |reason| refused.get_or_create_owned(&RefusedLabels { flow: flow.clone(), reason });
            Row {
                waiting: waiting.get_or_create_owned(&flow),
                executing: executing.get_or_create_owned(&flow),
                seats: Family::<FlowLabels, Gauge>::get_or_create_owned(&taken, &flow),
                dispatched: dispatched.get_or_create_owned(&flow),
                waited: ["false", "true"].map(wait),
                took: took.get_or_create_owned(&flow),
                refused: ["queue-full", "time-out"].map(turned_away),
            }
        };
        let mut rows: HashMap<String, HashMap<String, Row>> = HashMap::new();
        for schema in bootstrap::flow_schemas() {
            let level = schema["spec"]["priorityLevelConfiguration"]["name"].as_str().unwrap_or_default();
            let name = meta::name(&schema);
            rows.entry(level.to_owned()).or_default().insert(name.to_owned(), row(level, name));
        }
        let levels = bootstrap::priority_levels();
        for level in levels.iter().map(meta::name).chain([OTHER]) {
            rows.entry(level.to_owned()).or_default().insert(OTHER.to_owned(), row(level, OTHER));
        }
        Self::limits(registry, seats);
        registry.register(
            "apiserver_flowcontrol_current_inqueue_requests",
            "Requests that wait for their turn",
            waiting,
        );
        registry.register(
            "apiserver_flowcontrol_current_executing_requests",
            "Requests that have their turn",
            executing,
        );
        registry.register("apiserver_flowcontrol_current_executing_seats", "Seats that they take", taken);
        registry.register(
            "apiserver_flowcontrol_dispatched_requests",
            "Requests that got their turn",
            dispatched,
        );
        registry.register(
            "apiserver_flowcontrol_rejected_requests",
            "Requests that were turned away",
            refused,
        );
        registry.register(
            "apiserver_flowcontrol_request_wait_duration_seconds",
            "How long requests waited for their turn",
            waited,
        );
        registry.register(
            "apiserver_flowcontrol_request_execution_seconds",
            "How long requests had their turn",
            took,
        );
        Self { rows }
    }

    /// The seats of the levels that every control plane begins with. Each plane has as many.
    fn limits(registry: &mut Registry, seats: u32) {
        let nominal = Family::<LevelLabel, Gauge>::default();
        let flows = crate::Flows::bootstrap();
        for (level, own) in flows.seats(seats) {
            let own = i64::try_from(own).unwrap_or(i64::MAX);
            nominal.get_or_create_owned(&LevelLabel { priority_level: level.to_owned() }).set(own);
        }
        registry.register(
            "apiserver_flowcontrol_nominal_limit_seats",
            "Seats of each priority level in each control plane",
            nominal.clone(),
        );
        registry.register(
            "apiserver_flowcontrol_current_limit_seats",
            "The same, as levels lend seats without giving them up",
            nominal,
        );
    }

    fn row(&self, matched: Matched<'_>) -> Option<&Row> {
        let level = self.rows.get(matched.level_name()).or_else(|| self.rows.get(OTHER))?;
        level.get(matched.schema_name()).or_else(|| level.get(OTHER))
    }

    /// A request that begins to wait.
    pub fn waits(&self, matched: Matched<'_>, seats: u32) -> Option<Waiting<'_>> {
        let row = self.row(matched)?;
        Some(Waiting { row, _held: Held::new(&row.waiting), since: Instant::now(), seats: seats.into() })
    }
}

/// A request that waits.
pub struct Waiting<'a> {
    row: &'a Row,
    _held: Held,
    since: Instant,
    seats: i64,
}

impl Waiting<'_> {
    /// It has its turn now.
    pub fn executes(self) -> Executing {
        self.row.waited[1].observe(self.since.elapsed().as_secs_f64());
        self.row.dispatched.inc();
        self.row.seats.inc_by(self.seats);
        Executing {
            _held: Held::new(&self.row.executing),
            seats: (self.row.seats.clone(), self.seats),
            took: self.row.took.clone(),
            since: Instant::now(),
        }
    }

    /// It was turned away: at once, as too many wait, or after a while.
    pub fn refused(self) {
        const AT_ONCE: f64 = 1.0;
        let seconds = self.since.elapsed().as_secs_f64();
        let reason = if seconds < AT_ONCE { Reason::QueueFull } else { Reason::TimeOut };
        self.row.waited[0].observe(seconds);
        self.row.refused[reason as usize].inc();
    }
}

/// A request that has its turn, until it is dropped.
pub struct Executing {
    _held: Held,
    seats: (Gauge, i64),
    took: Histogram,
    since: Instant,
}

impl Drop for Executing {
    fn drop(&mut self) {
        self.seats.0.dec_by(self.seats.1);
        self.took.observe(self.since.elapsed().as_secs_f64());
    }
}

/// One more, until it is dropped.
pub struct Held(Gauge);

impl Held {
    /// Counts one more in a gauge.
    pub fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Asked, Flows};
    use freehold_machinery::{User, user::AUTHENTICATED};
    use serde_json::json;

    fn text(registry: &Registry) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
        text
    }

    #[test]
    fn flows_are_told_by_the_names_that_every_plane_has_and_others_together() {
        let mut registry = Registry::default();
        let metrics = FlowMetrics::new(&mut registry, 600);
        let user = User { name: "jane".into(), groups: vec![AUTHENTICATED.into()], ..User::default() };
        let asked = Asked { user: &user, verb: "get", resource: Some(("", "pods", "a")), path: "" };
        let own = json!({"metadata": {"name": "own"}, "spec": {
            "matchingPrecedence": 1, "priorityLevelConfiguration": {"name": "exempt"},
            "rules": [{"subjects": [{"kind": "User", "user": {"name": "jane"}}],
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]}]}]}});
        let (first, second) = (Flows::bootstrap(), Flows::of(&[own], &[]));
        let executing = metrics.waits(first.classify(asked), 3).unwrap().executes();
        let waiting = metrics.waits(second.classify(asked), 1).unwrap();
        for line in [
            r#"apiserver_flowcontrol_current_executing_requests{priority_level="global-default",flow_schema="global-default"} 1"#,
            r#"apiserver_flowcontrol_current_executing_seats{priority_level="global-default",flow_schema="global-default"} 3"#,
            r#"apiserver_flowcontrol_current_inqueue_requests{priority_level="exempt",flow_schema="other"} 1"#,
            r#"apiserver_flowcontrol_dispatched_requests_total{priority_level="global-default",flow_schema="global-default"} 1"#,
            r#"apiserver_flowcontrol_nominal_limit_seats{priority_level="workload-low"} 245"#,
        ] {
            let text = text(&registry);
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        waiting.refused();
        drop(executing);
        for line in [
            r#"apiserver_flowcontrol_current_executing_requests{priority_level="global-default",flow_schema="global-default"} 0"#,
            r#"apiserver_flowcontrol_rejected_requests_total{priority_level="exempt",flow_schema="other",reason="queue-full"} 1"#,
            r#"apiserver_flowcontrol_request_execution_seconds_count{priority_level="global-default",flow_schema="global-default"} 1"#,
            r#"apiserver_flowcontrol_request_wait_duration_seconds_count{priority_level="exempt",flow_schema="other",execute="false"} 1"#,
        ] {
            let text = text(&registry);
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
