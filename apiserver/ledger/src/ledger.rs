//! The ledger itself.

use crate::{
    PlaneLimits, ProviderLimits, SharedLimits, Tenancy, allocations, held::Held, meters::Meters,
    tenancy::Nobody, turns::Turns,
};
use freehold_apiserver_cache::Cache;
use freehold_apiserver_operation::PolicySource;
use freehold_apiserver_quota::Rules;
use freehold_apiserver_storage::Placement;
use freehold_machinery::{ResourceType, Value};
use parking_lot::{Mutex, RwLock};
use std::{collections::HashMap, sync::Arc};

/// Returns what objects of a type hold that no other of their plane may.
pub type Holds = fn(&ResourceType) -> fn(&Value) -> Held;

/// Charges writes, and commits them with what they are charged.
pub struct Ledger {
    pub(crate) stores: Placement,
    pub(crate) cache: Arc<Cache>,
    pub(crate) policies: Arc<dyn PolicySource>,
    pub(crate) holds: Holds,
    pub(crate) has_quotas: bool,
    pub(crate) tenancy: Arc<dyn Tenancy>,
    pub(crate) providers: Option<Arc<dyn ProviderLimits>>,
    pub(crate) shared_limits: Option<Arc<dyn SharedLimits>>,
    pub(crate) books: Books,
}

impl Ledger {
    /// Returns a ledger over a store and the cache that follows it, in which no plane is owned by anybody.
    pub fn new(
        stores: impl Into<Placement>,
        cache: Arc<Cache>,
        policies: Arc<dyn PolicySource>,
        holds: Holds,
    ) -> Self {
        Self {
            stores: stores.into(),
            cache,
            policies,
            holds,
            has_quotas: true,
            tenancy: Arc::new(Nobody),
            providers: None,
            shared_limits: None,
            books: Books::default(),
        }
    }

    /// Counts ResourceQuotas, or leaves them alone.
    pub fn with_quotas(self, has_quotas: bool) -> Self {
        Self { has_quotas, ..self }
    }

    /// Knows whose the planes are, so that their organizations' allowances and their classes' limits count.
    pub fn with_tenancy(self, tenancy: Arc<dyn Tenancy>) -> Self {
        Self { tenancy, ..self }
    }

    /// Keeps limits that providers set on consumers of their APIs.
    pub fn with_providers(self, providers: Arc<dyn ProviderLimits>) -> Self {
        Self { providers: Some(providers), ..self }
    }

    /// Keeps limits that namespaces of a plane share.
    pub fn with_shared_limits(self, shared: Arc<dyn SharedLimits>) -> Self {
        Self { shared_limits: Some(shared), ..self }
    }

    /// Returns whose the planes are.
    pub fn tenancy(&self) -> &Arc<dyn Tenancy> {
        &self.tenancy
    }
}

/// A state of objects: the last revision that changed them, and how many they are.
type AsOf = (u64, usize);

/// What the ledger keeps in memory.
#[derive(Default)]
pub(crate) struct Books {
    pub(crate) turns: Turns,
    /// Registrations and policies, as of a revision, and how many they are.
    pub(crate) rules: RwLock<Option<(AsOf, Arc<Rules>)>>,
    /// Limits of classes, as of the revision of their objects.
    pub(crate) limits: Mutex<HashMap<Arc<str>, (u64, PlaneLimits)>>,
    /// What Services hold, by plane.
    pub(crate) allocations: Mutex<allocations::Known>,
    /// Compiled limits that namespaces share.
    pub(crate) meters: Meters,
}
