//! The registry itself, and reads of single objects.

use crate::questions::Webhooks;
use crate::ranges::ServiceRanges;
use crate::{AdmissionMetrics, Exports, TokenSecrets, conversion::Converter, convert, strategy};
use freehold_apiserver_admission::{Chain, chain};
use freehold_apiserver_cache::Cache;
use freehold_apiserver_ledger::{Ledger, Owner, ProviderLimit, ProviderLimits, SharedLimits, Tenancy};
use freehold_apiserver_operation::{Operation, PolicySource};
use freehold_apiserver_storage::Placement;
use freehold_machinery::{ResourceType, Result, Status, Value};
use std::num::{IntErrorKind, ParseIntError};
use std::sync::Arc;

/// Serves every resource of every plane.
pub struct Registry {
    pub(crate) stores: Placement,
    pub(crate) cache: Arc<Cache>,
    pub(crate) policies: Arc<dyn PolicySource>,
    pub(crate) services: ServiceRanges,
    pub(crate) webhooks: Arc<dyn Webhooks>,
    pub(crate) converter: Arc<Converter>,
    pub(crate) chain: Chain,
    pub(crate) ledger: Ledger,
    pub(crate) admission: AdmissionMetrics,
    pub(crate) tokens: Arc<TokenSecrets>,
    /// `None` where APIs are neither published nor consumed.
    pub(crate) exports: Option<Arc<dyn Exports>>,
}

/// Limits that providers state in their exports.
struct LimitsOfExports(Arc<dyn Exports>);

impl ProviderLimits for LimitsOfExports {
    fn limits(&self, ty: &ResourceType, consumer: &Owner) -> Vec<ProviderLimit> {
        self.0.limits(ty, consumer)
    }
}

impl Registry {
    /// A registry over a store and the cache that follows it.
    pub fn new(
        stores: impl Into<Placement>,
        cache: Arc<Cache>,
        policies: Arc<dyn PolicySource>,
        webhooks: Arc<dyn Webhooks>,
    ) -> Self {
        let services = ServiceRanges::default();
        let converter = Arc::new(Converter::new(webhooks.clone()));
        let plugins = Chain::default();
        let stores = stores.into();
        let holds = |ty: &ResourceType| strategy::of(ty).holds;
        let ledger = Ledger::new(stores.clone(), cache.clone(), policies.clone(), holds);
        Self {
            admission: AdmissionMetrics::of(&plugins),
            ledger: ledger.with_quotas(plugins.runs(chain::QUOTA)),
            stores,
            cache,
            policies,
            services,
            webhooks,
            converter,
            chain: plugins,
            tokens: Arc::default(),
            exports: None,
        }
    }

    /// Seals continue tokens with secrets that other servers have too.
    pub fn with_token_secrets(self, tokens: &Arc<TokenSecrets>) -> Self {
        Self { tokens: tokens.clone(), ..self }
    }

    /// Runs these admission plugins in place of the default ones.
    pub fn with_admission(self, plugins: Chain) -> Self {
        let ledger = self.ledger.with_quotas(plugins.runs(chain::QUOTA));
        Self { admission: AdmissionMetrics::of(&plugins), chain: plugins, ledger, ..self }
    }

    /// Knows whose the planes are, so that their organizations' allowances and their classes' limits count.
    pub fn with_tenancy(self, tenancy: Arc<dyn Tenancy>) -> Self {
        Self { ledger: self.ledger.with_tenancy(tenancy), ..self }
    }

    /// Keeps limits that namespaces of a plane share.
    pub fn with_shared_limits(self, shared: Arc<dyn SharedLimits>) -> Self {
        Self { ledger: self.ledger.with_shared_limits(shared), ..self }
    }

    /// Knows the exports of all planes, so that projects can publish and consume APIs.
    pub fn with_exports(self, exports: Arc<dyn Exports>) -> Self {
        let ledger = self.ledger.with_providers(Arc::new(LimitsOfExports(exports.clone())));
        Self { exports: Some(exports), ledger, ..self }
    }

    /// Returns the ledger that writes are charged to.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// What admission took and refused.
    pub fn admission_metrics(&self) -> &AdmissionMetrics {
        &self.admission
    }

    /// The cache that reads are served from.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }
}

impl Registry {
    /// Waits until everything that was committed before an operation came is visible here; up to which revision it is.
    pub(crate) async fn catch_up(&self, op: &Operation) -> Result<u64> {
        match op.seen {
            0 => self.cache.catch_up().await,
            seen => Ok(seen),
        }
    }

    /// Waits until the cache has what an attempt at an operation needs, after one that was refused or before all.
    pub(crate) async fn see_for(&self, op: &Operation, refused: Option<u64>) -> Result<()> {
        match refused {
            None => self.catch_up(op).await.map(drop),
            Some(refused) => self.cache.see(refused).await,
        }
    }

    /// An object as it is stored, from the version that was asked for: pruned and defaulted like what a client sends in
    /// that version.
    pub(crate) async fn to_stored(&self, op: &Operation, object: Value) -> Result<Value> {
        let mut stored = self.converter.to_stored(&op.plane, &op.ty, object).await?;
        convert::settle_stored(&op.ty, &mut stored);
        Ok(stored)
    }
}

/// A resource version as a number; `None` where it is not given. What is no number is a 500 without a reason, as
/// kube-apiserver answers it to gets and watches.
pub(crate) fn parse_version(text: &str) -> Result<Option<u64>> {
    if text.is_empty() {
        return Ok(None);
    }
    let number = |error: ParseIntError| {
        let why = match error.kind() {
            IntErrorKind::PosOverflow => "value out of range",
            _ => "invalid syntax",
        };
        format!("resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: {why}")
    };
    text.parse().map(Some).map_err(number).map_err(|why| Status::new(500, "", why))
}
