//! What the server talks to: planes, registry and everything that decides beside them.

use crate::{
    authentication::Authentication, authorization::Authorization, fairness::KnownFlows, host::Host,
    lookup::Lookup, nodes::Nodes, resource_metrics::ResourceMetrics, shown_lately::ShownLately,
    sleep::Sleepers,
};
use freehold_apiserver_aggregation::Aggregator;
use freehold_apiserver_audit::Trail;
use freehold_apiserver_authn::TokenIssuer;
use freehold_apiserver_outbound::Outbound;
use freehold_apiserver_planes::Planes;
use freehold_apiserver_registry::Registry;
use freehold_apiserver_storage::Store;
use freehold_apiserver_storage_sealed::Sealed;
use std::sync::Arc;

/// What the server talks to.
pub struct LocalBackend {
    pub(crate) planes: Arc<Planes>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) authentication: Authentication,
    pub(crate) authorization: Arc<Authorization>,
    pub(crate) tokens: Arc<TokenIssuer>,
    pub(crate) lookup: Lookup,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) sealed: Option<Sealed>,
    /// How webhooks and aggregated servers of planes are reached.
    pub outbound: Arc<Outbound>,
    /// How the nodes of planes are reached, and what they use.
    pub(crate) resource_metrics: Arc<ResourceMetrics>,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) aggregator: Arc<Aggregator>,
    pub(crate) host: Option<Arc<Host>>,
    pub(crate) trail: Option<Arc<Trail>>,
    pub(crate) flows: KnownFlows,
    pub(crate) sleepers: Arc<Sleepers>,
    pub(crate) shown_lately: Arc<ShownLately>,
}
