//! Metrics of the edge, under kube-apiserver's names and labels, so that its dashboards and alerts work here.

use crate::{backend::Backend, info::RequestInfo};
use freehold_apiserver_fairness::{Fairness, PlaneUsage};
use freehold_machinery::PlaneId;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, MetricEncoder, NoLabelSet as NoLabels},
    metrics::{
        MetricType,
        counter::{ConstCounter, Counter},
        family::Family,
        gauge::{ConstGauge, Gauge},
        histogram::Histogram,
    },
    registry::Registry,
};
use std::{
    fmt, fs,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

/// Most label sets of one metric: beyond, requests are counted without their group, version and resource. Projects
/// bring their own types, so there could be any number.
const MOST_SERIES: usize = 10_000;
/// Upper bounds of the buckets of request durations, in seconds.
const BUCKETS: [f64; 14] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// What a request is counted under.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct Labels {
    component: &'static str,
    verb: String,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    scope: &'static str,
    dry_run: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CountLabels {
    #[prometheus(flatten)]
    request: Labels,
    code: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct KindLabel {
    request_kind: &'static str,
}

/// The edge's metrics and everything else that is registered.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<CountLabels, Counter>,
    seconds: Family<Labels, Histogram, fn() -> Histogram>,
    in_flight: [Gauge; 2],
    long_running: Family<Labels, Gauge>,
    series: AtomicUsize,
    /// Connections that are open.
    pub(crate) connections: Gauge,
}

impl Metrics {
    /// Adds the edge's metrics to a registry.
    pub(crate) fn new(mut registry: Registry) -> Self {
        let requests = Family::<CountLabels, Counter>::default();
        let histogram: fn() -> Histogram = || Histogram::new(BUCKETS);
        let seconds = Family::<Labels, Histogram, fn() -> Histogram>::new_with_constructor(histogram);
        let in_flight = Family::<KindLabel, Gauge>::default();
        let long_running = Family::<Labels, Gauge>::default();
        let connections = Gauge::default();
        registry.register("apiserver_request", "Requests by verb, resource and code.", requests.clone());
        registry.register(
            "apiserver_request_duration_seconds",
            "Response latency in seconds.",
            seconds.clone(),
        );
        registry.register("apiserver_current_inflight_requests", "Requests being served.", in_flight.clone());
        registry.register(
            "apiserver_longrunning_requests",
            "Long-running requests being served.",
            long_running.clone(),
        );
        registry.register("apiserver_open_connections", "Connections that are open.", connections.clone());
        registry.register_collector(Box::new(Process));
        let kind = |request_kind| in_flight.get_or_create_owned(&KindLabel { request_kind });
        let in_flight = [kind("mutating"), kind("readOnly")];
        Self {
            registry,
            requests,
            seconds,
            in_flight,
            long_running,
            series: AtomicUsize::new(0),
            connections,
        }
    }

    /// The text of `/metrics`, in the OpenMetrics format.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String can't fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }

    /// The gauge of requests being served.
    pub(crate) fn in_flight(&self, read_only: bool) -> &Gauge {
        &self.in_flight[usize::from(read_only)]
    }

    /// Counts a request that was answered. Durations of long-running ones say nothing and are left out.
    pub(crate) fn answered(&self, labels: Labels, code: u16, seconds: f64, long_running: bool) {
        let mut counted = CountLabels { request: labels, code };
        if self.requests.get(&counted).is_none() && self.series.fetch_add(1, Relaxed) >= MOST_SERIES {
            counted.request.group.clear();
            counted.request.version.clear();
            counted.request.resource.clear();
            counted.request.subresource.clear();
        }
        if !long_running {
            self.seconds.get_or_create(&counted.request).observe(seconds);
        }
        self.requests.get_or_create(&counted).inc();
    }

    /// Counts a long-running request until the guard is dropped.
    pub(crate) fn long_running(&self, labels: &Labels) -> Held {
        Held::new(&self.long_running.get_or_create_owned(labels))
    }

    /// Counts a long-running request that another server answers.
    pub(crate) fn long_running_of(&self, info: &RequestInfo) -> Held {
        self.long_running(&self.labels(info, false, false, false))
    }

    /// What a request is counted under. `known` says whether its resource is one that is served: any other would let
    /// clients make series at will.
    pub(crate) fn labels(&self, info: &RequestInfo, known: bool, dry_run: bool, apply: bool) -> Labels {
        let resource = info.resource.as_ref().filter(|_| known);
        let text =
            |f: fn(&crate::info::ResourcePath) -> &str| resource.map_or(String::new(), |r| f(r).to_owned());
        Labels {
            component: "apiserver",
            verb: verb(&info.verb, apply).to_owned(),
            group: text(|r| &r.group),
            version: text(|r| &r.version),
            resource: text(|r| &r.resource),
            subresource: text(|r| r.subresource.as_deref().unwrap_or("")),
            scope: scope(info),
            dry_run: if dry_run { "All" } else { "" },
        }
    }
}

fn verb(verb: &str, apply: bool) -> &'static str {
    match verb {
        "get" | "head" => "GET",
        "list" => "LIST",
        "watch" => "WATCH",
        "create" | "post" => "POST",
        "update" | "put" => "PUT",
        "patch" if apply => "APPLY",
        "patch" => "PATCH",
        "delete" => "DELETE",
        "deletecollection" => "DELETECOLLECTION",
        _ => "other",
    }
}

fn scope(info: &RequestInfo) -> &'static str {
    match &info.resource {
        None => "",
        Some(r) if r.named || info.verb == "create" => "resource",
        Some(r) if r.namespace.is_some() => "namespace",
        Some(_) => "cluster",
    }
}

/// One more, until it is dropped.
pub(crate) struct Held(Gauge);

impl Held {
    /// Counts one.
    pub(crate) fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// The planes that cost most, asked when somebody reads the metrics.
pub(crate) struct TopPlanes {
    fairness: Weak<Fairness>,
    backend: Weak<dyn Backend>,
}

/// How many planes the server's metrics name.
const TOP: usize = 20;

impl fmt::Debug for TopPlanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the planes that cost most")
    }
}

impl TopPlanes {
    pub(crate) fn new(fairness: &Arc<Fairness>, backend: &Arc<dyn Backend>) -> Self {
        Self { fairness: Arc::downgrade(fairness), backend: Arc::downgrade(backend) }
    }
}

/// What is told of a plane's use: name, meaning, whether it only grows, and the number.
type UsageRow = (&'static str, &'static str, bool, fn(&PlaneUsage) -> f64);

const USAGE: [UsageRow; 6] = [
    ("requests", "Requests of the control plane that were served.", true, |u| u.requests as f64),
    ("refused_requests", "Requests that a limit of its class turned away.", true, |u| u.refused as f64),
    ("cost_seconds", "Processor time that its requests took, estimated.", true, |u| {
        u.cost_micros as f64 / 1e6
    }),
    ("sent_bytes", "Bytes of its answers.", true, |u| u.sent_bytes as f64),
    ("requests_in_flight", "Its requests that are being served.", false, |u| u.in_flight as f64),
    ("watches", "Its watches that are open.", false, |u| u.watches as f64),
];

/// Writes one metric with a value for each label set.
fn family(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help, grows): (&str, &str, bool),
    values: &[(Vec<(&str, String)>, f64)],
) -> fmt::Result {
    let kind = if grows { MetricType::Counter } else { MetricType::Gauge };
    let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
    let write = |mut one: MetricEncoder<'_>, value: &f64| match grows {
        true => one.encode_counter::<NoLabels, f64, f64>(value, None),
        false => one.encode_gauge(value),
    };
    for (labels, value) in values.iter().filter(|(labels, _)| !labels.is_empty()) {
        write(metric.encode_family(labels)?, value)?;
    }
    match values {
        [(labels, value)] if labels.is_empty() => write(metric, value),
        _ => Ok(()),
    }
}

impl Collector for TopPlanes {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (Some(fairness), Some(backend)) = (self.fairness.upgrade(), self.backend.upgrade()) else {
            return Ok(());
        };
        let top = fairness.top(TOP);
        for (name, help, grows, number) in USAGE {
            let labels = |plane: &PlaneId| {
                let project = backend.project_of(plane).map_or(String::new(), |name| name.to_string());
                vec![("plane", plane.to_string()), ("project", project)]
            };
            let values: Vec<_> = top.iter().map(|(plane, usage)| (labels(plane), number(usage))).collect();
            family(&mut encoder, (&format!("freehold_top_plane_{name}"), help, grows), &values)?;
        }
        let waiting = [(Vec::new(), fairness.waiting() as f64)];
        let about =
            ("freehold_fairness_waiting_requests", "Requests that wait for their plane's turn.", false);
        family(&mut encoder, about, &waiting)
    }
}

/// One plane's metrics, for its owner: as many lines for every plane.
pub(crate) struct OwnPlane {
    pub(crate) usage: PlaneUsage,
    /// What it has and may have, by the names of limits.
    pub(crate) holdings: Vec<(&'static str, i64, Option<i64>)>,
}

impl fmt::Debug for OwnPlane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a plane's own")
    }
}

impl Collector for OwnPlane {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (name, help, grows, number) in USAGE {
            let values = [(Vec::new(), number(&self.usage))];
            family(&mut encoder, (&format!("freehold_plane_{name}"), help, grows), &values)?;
        }
        let labels = |what: &str| vec![("resource", what.to_owned())];
        let used: Vec<_> = self.holdings.iter().map(|(what, used, _)| (labels(what), *used as f64)).collect();
        let limits =
            self.holdings.iter().filter_map(|(what, _, limit)| Some((labels(what), (*limit)? as f64)));
        let limits: Vec<_> = limits.collect();
        let about = "What the control plane has of its own.";
        family(&mut encoder, ("freehold_plane_used", about, false), &used)?;
        family(&mut encoder, ("freehold_plane_limit", "What its class allows.", false), &limits)
    }
}

impl OwnPlane {
    /// The text of `/metrics` of the plane.
    pub(crate) fn text(self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        // Writing to a String can't fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
        text
    }
}

/// The process, read from `/proc` when somebody asks.
#[derive(Debug)]
struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let stat = process_stat().unwrap_or_default();
        let descriptor = encoder.encode_descriptor(
            "process_cpu_seconds",
            "Total user and system CPU time spent in seconds.",
            None,
            MetricType::Counter,
        )?;
        ConstCounter::<f64>::new(stat.cpu_seconds).encode(descriptor)?;
        let gauges = [
            ("process_resident_memory_bytes", "Resident memory size in bytes.", stat.resident_bytes),
            ("process_virtual_memory_bytes", "Virtual memory size in bytes.", stat.virtual_bytes),
            (
                "process_start_time_seconds",
                "Start time of the process since unix epoch in seconds.",
                stat.started,
            ),
            ("process_open_fds", "Number of open file descriptors.", open_files()),
        ];
        for (name, help, value) in gauges {
            let descriptor = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::<f64>::new(value).encode(descriptor)?;
        }
        Ok(())
    }
}

#[derive(Default)]
struct ProcessStat {
    cpu_seconds: f64,
    resident_bytes: f64,
    virtual_bytes: f64,
    started: f64,
}

/// Ticks per second of times in `/proc`: the kernel's `USER_HZ`, 100 on all platforms that Rust supports.
const TICKS: f64 = 100.0;

fn process_stat() -> Option<ProcessStat> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The command's name, in parentheses, may hold anything; fields are counted from behind it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let kilobytes = |key: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(key))?;
        line.trim().split(' ').next()?.parse::<f64>().ok()
    };
    let boot = fs::read_to_string("/proc/stat").ok()?;
    let boot = boot.lines().find_map(|l| l.strip_prefix("btime "))?.trim().parse::<f64>().ok()?;
    Some(ProcessStat {
        cpu_seconds: (number(11) + number(12)) / TICKS,
        resident_bytes: kilobytes("VmRSS:").unwrap_or(0.0) * 1024.0,
        virtual_bytes: kilobytes("VmSize:").unwrap_or(0.0) * 1024.0,
        started: boot + number(19) / TICKS,
    })
}

fn open_files() -> f64 {
    fs::read_dir("/proc/self/fd").map_or(0.0, |dir| dir.count() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::Query;

    #[test]
    fn the_text_has_kubernetes_names_and_labels() {
        let metrics = Metrics::new(Registry::default());
        let info =
            RequestInfo::read(&http::Method::GET, "/api/v1/namespaces/a/pods", &Query::default()).unwrap();
        metrics.answered(metrics.labels(&info, true, false, false), 200, 0.02, false);
        let held = metrics.long_running(&metrics.labels(&info, true, false, false));
        let text = metrics.text();
        for line in [
            r#"apiserver_request_total{component="apiserver",verb="LIST",group="",version="v1",resource="pods",subresource="",scope="namespace",dry_run="",code="200"} 1"#,
            r#"apiserver_longrunning_requests{component="apiserver",verb="LIST",group="",version="v1",resource="pods""#,
            r#"apiserver_current_inflight_requests{request_kind="readOnly"} 0"#,
            "apiserver_request_duration_seconds_bucket{le=\"0.025\",",
            "process_resident_memory_bytes ",
            "process_cpu_seconds_total ",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        drop(held);
        assert!(metrics.text().contains("scope=\"namespace\",dry_run=\"\"} 0"));
        let resident = metrics
            .text()
            .lines()
            .find_map(|l| l.strip_prefix("process_resident_memory_bytes ").map(str::to_owned));
        assert!(resident.unwrap().parse::<f64>().unwrap() > 1e5);
    }
}
