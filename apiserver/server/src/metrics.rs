//! Metrics of the edge, under kube-apiserver's names and labels, so that its dashboards and alerts work here.

use crate::{
    backend::Backend,
    config::MoreMetrics,
    info::{HEALTH, RequestInfo},
    process::Process,
};
use freehold_apiserver_fairness::metrics::Held;
use freehold_apiserver_fairness::{Fairness, PlaneUsage};
use freehold_machinery::PlaneId;
use parking_lot::RwLock;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder, NoLabelSet as NoLabels},
    metrics::{MetricType, counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info},
    registry::Registry,
};
use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

/// Most label sets of one metric: beyond, requests are counted without their group, version and resource. Projects
/// bring their own types, so there could be any number.
const MOST_SERIES: usize = 10_000;
/// Upper bounds of the buckets of request durations, in seconds.
const BUCKETS: [f64; 14] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// Upper bounds of the buckets of the latency by which service levels are judged (kube-apiserver's).
const LEVELS: [f64; 21] = [
    0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];
/// Upper bounds of the buckets of bytes of answers (kube-apiserver's).
const SIZES: [f64; 7] = [1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];

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

/// What a text in the OpenMetrics format ends with.
const END: &str = "# EOF\n";

/// A type of objects, in the words of watches' metrics.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct TypeLabels {
    group: String,
    version: String,
    resource: String,
}

/// Histograms by labels.
type Histograms = Family<Labels, Histogram, fn() -> Histogram>;

fn histograms(make: fn() -> Histogram) -> Histograms {
    Family::new_with_constructor(make)
}

/// All that is counted of answers of one kind, found by one look.
struct Answers {
    labels: Labels,
    count: Counter,
    terminated: Option<Counter>,
    durations: OnceLock<[Histogram; 2]>,
    sizes: OnceLock<Histogram>,
}

/// The edge's metrics and everything else that is registered.
pub(crate) struct Metrics {
    registry: Registry,
    more: Option<MoreMetrics>,
    requests: Family<CountLabels, Counter>,
    seconds: Histograms,
    levels: Histograms,
    sizes: Histograms,
    terminated: Family<CountLabels, Counter>,
    watched: Family<TypeLabels, Counter>,
    /// Connections that failed before they were secure.
    pub(crate) handshakes: Counter,
    /// The last outcome of each check, by its name and path.
    health: Family<[(&'static str, &'static str); 2], Gauge>,
    in_flight: [Gauge; 2],
    in_queue: [Gauge; 2],
    long_running: Family<Labels, Gauge>,
    answers: RwLock<HashMap<CountLabels, Arc<Answers>>>,
    series: AtomicUsize,
    /// Connections that are open.
    pub(crate) connections: Gauge,
}

impl Metrics {
    /// Adds the edge's metrics to a registry.
    pub(crate) fn new(mut registry: Registry, version: &str, more: Option<MoreMetrics>) -> Self {
        let seconds = histograms(|| Histogram::new(BUCKETS));
        let levels = histograms(|| Histogram::new(LEVELS));
        let sizes = histograms(|| Histogram::new(SIZES));
        let in_flight = Family::<KindLabel, Gauge>::default();
        let in_queue = Family::<KindLabel, Gauge>::default();
        let kinds = |of: &Family<KindLabel, Gauge>| {
            ["mutating", "readOnly"].map(|request_kind| of.get_or_create_owned(&KindLabel { request_kind }))
        };
        let new = Self {
            more,
            in_flight: kinds(&in_flight),
            in_queue: kinds(&in_queue),
            requests: Family::default(),
            seconds: seconds.clone(),
            levels: levels.clone(),
            sizes: sizes.clone(),
            terminated: Family::default(),
            watched: Family::default(),
            handshakes: Counter::default(),
            health: Family::default(),
            long_running: Family::default(),
            answers: RwLock::default(),
            series: AtomicUsize::new(0),
            connections: Gauge::default(),
            registry: Registry::default(),
        };
        let mut histogram = |name, help, of| registry.register(name, help, of);
        histogram("apiserver_request_duration_seconds", "Response latency in seconds.", seconds);
        histogram(
            "apiserver_request_sli_duration_seconds",
            "Response latency in seconds, by which service levels are judged.",
            levels,
        );
        histogram("apiserver_response_sizes", "Bytes of answers whose length is known.", sizes);
        let (inflight, running) = (in_flight, new.long_running.clone());
        registry.register("apiserver_request", "Requests by verb, resource and code", new.requests.clone());
        registry.register("apiserver_current_inflight_requests", "Requests being served", inflight);
        registry.register(
            "apiserver_current_inqueue_requests",
            "Requests that wait for their turn",
            in_queue,
        );
        registry.register("apiserver_longrunning_requests", "Long-running requests being served", running);
        let terminated = new.terminated.clone();
        registry.register(
            "apiserver_request_terminations",
            "Requests that were cut off or turned away",
            terminated,
        );
        registry.register("apiserver_watch_events", "Events sent to watchers", new.watched.clone());
        let handshakes = new.handshakes.clone();
        registry.register("apiserver_tls_handshake_errors", "TLS handshakes that failed", handshakes);
        registry.register("apiserver_open_connections", "Connections that are open", new.connections.clone());
        registry.register(
            "kubernetes_healthcheck",
            "Whether a check succeeded when it was asked for last",
            new.health.clone(),
        );
        registry.register("kubernetes_build", "Version of the server", Info::new(build(version)));
        registry.register_collector(Box::new(Process));
        Self { registry, ..new }
    }

    /// The text of `/metrics`, in the OpenMetrics format.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String can't fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        if let Some(more) = &self.more {
            // The mark of the end comes last.
            text.truncate(text.trim_end_matches(END).len());
            text.push_str(&more());
            text.push_str(END);
        }
        text
    }

    /// Notes the outcome of a check of `livez`, `readyz` or `healthz`.
    pub(crate) fn checked(&self, path: &str, name: &'static str, succeeded: bool) {
        let known = HEALTH.iter().find(|known| **known == path);
        if let Some(path) = known {
            self.health.get_or_create(&[("name", name), ("type", *path)]).set(succeeded.into());
        }
    }

    /// The gauge of requests being served.
    pub(crate) fn in_flight(&self, read_only: bool) -> &Gauge {
        &self.in_flight[usize::from(read_only)]
    }

    /// The gauge of requests that wait for their turn.
    pub(crate) fn in_queue(&self, read_only: bool) -> &Gauge {
        &self.in_queue[usize::from(read_only)]
    }

    /// Counts a request that was answered, with its bytes where they are known. Durations of long-running ones say nothing
    /// and are left out.
    pub(crate) fn answered(
        &self,
        labels: Labels,
        code: u16,
        seconds: f64,
        bytes: Option<usize>,
        long_running: bool,
    ) {
        let counted = CountLabels { request: labels, code };
        let known = self.answers.read().get(&counted).cloned();
        let answers = known.unwrap_or_else(|| self.answers_of(counted));
        let of = &answers.labels;
        if !long_running {
            let make = || [&self.seconds, &self.levels].map(|durations| durations.get_or_create_owned(of));
            answers.durations.get_or_init(make).iter().for_each(|durations| durations.observe(seconds));
        }
        if let Some(bytes) = bytes {
            answers.sizes.get_or_init(|| self.sizes.get_or_create_owned(of)).observe(bytes as f64);
        }
        if let Some(terminated) = &answers.terminated {
            terminated.inc();
        }
        answers.count.inc();
    }

    /// Where answers are counted that were not met before.
    fn answers_of(&self, mut counted: CountLabels) -> Arc<Answers> {
        let mut all = self.answers.write();
        if all.len() >= MOST_SERIES {
            counted.request.group.clear();
            counted.request.version.clear();
            counted.request.resource.clear();
            counted.request.subresource.clear();
        }
        let make = |counted: &CountLabels| {
            let terminated = matches!(counted.code, 429 | 504);
            Arc::new(Answers {
                labels: counted.request.clone(),
                count: self.requests.get_or_create_owned(counted),
                terminated: terminated.then(|| self.terminated.get_or_create_owned(counted)),
                durations: OnceLock::new(),
                sizes: OnceLock::new(),
            })
        };
        all.entry(counted).or_insert_with_key(make).clone()
    }

    /// The counter of events that watches of a type are sent; `known` as for [`Self::labels`].
    pub(crate) fn watched(&self, info: &RequestInfo) -> Counter {
        let path = info.resource.as_ref();
        let text =
            |f: fn(&crate::info::ResourcePath) -> &str| path.map_or(String::new(), |r| f(r).to_owned());
        let mut labels = TypeLabels {
            group: text(|r| &r.group),
            version: text(|r| &r.version),
            resource: text(|r| &r.resource),
        };
        if self.watched.get(&labels).is_none() && self.series.fetch_add(1, Relaxed) >= MOST_SERIES {
            labels = TypeLabels { group: String::new(), version: String::new(), resource: String::new() };
        }
        self.watched.get_or_create_owned(&labels)
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

/// What `/version` says, as labels.
fn build(version: &str) -> Vec<(String, String)> {
    let fields = crate::version::version(version);
    let names = [
        ("build_date", "buildDate"),
        ("compiler", "compiler"),
        ("git_commit", "gitCommit"),
        ("git_tree_state", "gitTreeState"),
        ("git_version", "gitVersion"),
        ("go_version", "goVersion"),
        ("major", "major"),
        ("minor", "minor"),
        ("platform", "platform"),
    ];
    let text = |field: &str| fields[field].as_str().unwrap_or_default().to_owned();
    names.map(|(label, field)| (label.to_owned(), text(field))).into()
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

/// The planes that cost most, asked when somebody reads the metrics.
pub(crate) struct TopPlanes {
    fairness: Weak<Fairness>,
    backend: Weak<dyn Backend>,
}

/// How many planes the server's metrics name.
const TOP: usize = 20;
/// How many types of objects they name: those with most objects.
const MOST_TYPES: usize = 500;

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
        let objects: Vec<_> = backend.objects().into_iter().take(MOST_TYPES).collect();
        let one = |group: &str, resource: &str| match group {
            "" => vec![("resource", resource.to_owned())],
            group => vec![("resource", format!("{resource}.{group}"))],
        };
        let two = |group: &str, resource: &str| {
            vec![("group", group.to_owned()), ("resource", resource.to_owned())]
        };
        let stored: Vec<_> = objects.iter().map(|(g, r, count)| (one(g, r), *count as f64)).collect();
        let counted: Vec<_> = objects.iter().map(|(g, r, count)| (two(g, r), *count as f64)).collect();
        let about = "Objects that are stored, of all control planes together.";
        family(&mut encoder, ("apiserver_storage_objects", about, false), &stored)?;
        family(&mut encoder, ("apiserver_resource_objects", about, false), &counted)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::Query;

    #[test]
    fn the_text_has_kubernetes_names_and_labels() {
        let metrics = Metrics::new(Registry::default(), "v1.36.0+freehold-0.1.0", None);
        let info =
            RequestInfo::read(&http::Method::GET, "/api/v1/namespaces/a/pods", &Query::default()).unwrap();
        metrics.answered(metrics.labels(&info, true, false, false), 200, 0.02, Some(2_000), false);
        let held = metrics.long_running(&metrics.labels(&info, true, false, false));
        let text = metrics.text();
        for line in [
            r#"apiserver_request_total{component="apiserver",verb="LIST",group="",version="v1",resource="pods",subresource="",scope="namespace",dry_run="",code="200"} 1"#,
            r#"apiserver_longrunning_requests{component="apiserver",verb="LIST",group="",version="v1",resource="pods""#,
            r#"apiserver_current_inflight_requests{request_kind="readOnly"} 0"#,
            r#"apiserver_current_inqueue_requests{request_kind="mutating"} 0"#,
            "apiserver_request_duration_seconds_bucket{le=\"0.025\",",
            "apiserver_request_sli_duration_seconds_bucket{le=\"0.05\",",
            "apiserver_response_sizes_bucket{le=\"10000.0\",",
            "kubernetes_build_info{build_date=",
            "process_resident_memory_bytes ",
            "process_max_fds ",
            "process_network_receive_bytes_total ",
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
