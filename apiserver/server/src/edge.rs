//! What all requests share.

use crate::{
    backend::Backend,
    certificate_tokens::{self, Shown},
    config::{Config, DebugDocuments, EtcdHandler, Limits, Pages, ReadApi},
    host::Connection,
    kept::Documents,
    metrics::{Metrics, TopPlanes},
    origins::Origins,
    places::Places,
    secure::Secure,
    slow::SlowRequests,
};
use arc_swap::ArcSwap;
use freehold_apiserver_audit::Auditor;
use freehold_apiserver_fairness::{Fairness, metrics::FlowMetrics};
use freehold_apiserver_transport::{untaken::Untaken, upstream::Upstream};
use http::{HeaderMap, HeaderValue};
use ipnet::IpNet;
use std::{
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};
use tokio_util::sync::CancellationToken;

/// For how long a client may take nothing of an answer.
const UNTAKEN: Duration = Duration::from_secs(60);

/// What all requests share.
pub(crate) struct Edge {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) metrics: Metrics,
    pub(crate) limits: Limits,
    pub(crate) version: String,
    pub(crate) front_proxy: Option<Upstream>,
    /// How many requests wait for the answer of each pair.
    pub(crate) pairs: Places,
    pub(crate) nodes: Option<Upstream>,
    /// Cancelled when the server stops.
    pub(crate) stop: CancellationToken,
    pub(crate) documents: Documents,
    /// What stands behind a project's name in its host name.
    pub(crate) domain: Option<String>,
    pub(crate) fairness: Arc<Fairness>,
    pub(crate) flows: FlowMetrics,
    pub(crate) etcd: Option<EtcdHandler>,
    pub(crate) pages: Option<Pages>,
    /// What new connections are secured with, and whose certificates count.
    pub(crate) secure: Arc<ArcSwap<Secure>>,
    pub(crate) reads: Vec<ReadApi>,
    pub(crate) auditor: Option<Arc<Auditor>>,
    /// Networks of proxies whose word on where a request came from counts.
    pub(crate) proxies: Vec<IpNet>,
    pub(crate) origins: Origins,
    pub(crate) untaken: Untaken,
    pub(crate) strict_transport: Option<HeaderValue>,
    pub(crate) slow: SlowRequests,
    /// Documents about the process, beside the edge's own.
    pub(crate) debug: Option<DebugDocuments>,
    pub(crate) present: AtomicUsize,
    pub(crate) mutating: AtomicUsize,
    pub(crate) read_only: AtomicUsize,
}

impl Edge {
    pub(crate) fn new(config: Config, backend: Arc<dyn Backend>, secure: Arc<ArcSwap<Secure>>) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let seats = config.limits.read_only.saturating_add(config.limits.mutating);
        let seats = u32::try_from(seats).unwrap_or(u32::MAX);
        let fairness = Fairness::new(processors, seats);
        let mut registry = config.registry;
        let flows = FlowMetrics::new(&mut registry, seats);
        registry.register_collector(Box::new(TopPlanes::new(&fairness, &backend)));
        Self {
            backend,
            metrics: Metrics::new(registry, &config.version, config.more_metrics),
            fairness,
            flows,
            limits: config.limits,
            version: config.version,
            front_proxy: config.front_proxy.map(Upstream::new),
            pairs: Places::default(),
            nodes: config.nodes.map(Upstream::new),
            stop: CancellationToken::new(),
            documents: Documents::new(),
            domain: config.domain,
            etcd: config.etcd,
            pages: config.pages,
            secure,
            reads: config.reads,
            auditor: config.audit,
            proxies: config.proxies,
            origins: config.origins,
            untaken: Untaken::new(UNTAKEN),
            strict_transport: HeaderValue::from_str(&config.strict_transport).ok().filter(|v| !v.is_empty()),
            slow: SlowRequests::default(),
            debug: config.debug,
            present: AtomicUsize::new(0),
            mutating: AtomicUsize::new(0),
            read_only: AtomicUsize::new(0),
        }
    }

    /// What the token of a request stands for, where it stands for a certificate of this process.
    pub(crate) fn shown(&self, connection: &Connection, headers: &HeaderMap) -> Option<Arc<Shown>> {
        let tokens = self.pages.as_ref().map(|pages| &pages.tokens);
        certificate_tokens::shown(tokens, &self.secure, &connection.peer, headers)
    }
}
