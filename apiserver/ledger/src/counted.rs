//! Counts of objects that providers limit, and the buckets that they are kept in.

use crate::{Owner, accounts::namespace_of};
use freehold_apiserver_quota::{
    Consumer, ConsumerKind,
    bucket::{self, Balance, Demand, Shortage},
};
use freehold_machinery::{ResourceType, Value, meta};
use std::sync::Arc;

/// Limits that providers set on consumers of their APIs.
pub trait ProviderLimits: Send + Sync + 'static {
    /// Returns how many objects of an exported type its provider lets a consumer have, one limit for each kind of consumer.
    fn limits(&self, ty: &ResourceType, consumer: &Owner) -> Vec<ProviderLimit>;
}

/// On a bucket: the state of the export that its objects were counted for.
pub(crate) const COUNTED: &str = "quota.freehold.dev/counted-for";

/// On a bucket: the export of a provider that set its limit, `<project>.<export>`.
const EXPORT: &str = "quota.freehold.dev/export";

/// How many objects of a resource a provider lets consumers have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderLimit {
    /// Whether objects of a project or of all of an organization are counted.
    pub kind: ConsumerKind,
    /// How many there may be, for a consumer of this name.
    pub count: i64,
    /// The organization of the provider.
    pub organization: Arc<str>,
    /// The project of the provider.
    pub project: Arc<str>,
    /// The export.
    pub export: Box<str>,
    /// Its state.
    pub revision: u64,
}

/// A count that a write changes.
pub(crate) struct Counted {
    pub(crate) limit: ProviderLimit,
    pub(crate) consumer: Consumer,
    pub(crate) resource: String,
    pub(crate) change: i64,
}

impl Counted {
    pub(crate) fn namespace(&self) -> String {
        namespace_of(&self.limit.organization)
    }

    pub(crate) fn bucket(&self) -> String {
        bucket::name(&self.consumer, &self.resource)
    }

    pub(crate) fn account(&self) -> String {
        format!("buckets/{}/{}", self.namespace(), self.bucket())
    }

    /// The bucket with a count; `None` with nothing in it.
    pub(crate) fn filled(&self, old: Option<&Value>, count: i64, now: &str) -> Option<Value> {
        let demand = Demand {
            consumer: self.consumer.clone(),
            resource: self.resource.clone(),
            change: Balance { limit: self.limit.count, allocated: count, ..Balance::default() },
        };
        if count <= 0 {
            return None;
        }
        let mut object = bucket::made(&demand, (&self.namespace(), now));
        if let Some(old) = old {
            object["metadata"] = old["metadata"].clone();
        }
        meta::remove(&mut object, "resourceVersion");
        object["metadata"]["annotations"][EXPORT] =
            format!("{}.{}", self.limit.project, self.limit.export).into();
        object["metadata"]["annotations"][COUNTED] = self.limit.revision.to_string().into();
        object["status"] = demand.change.status();
        Some(object)
    }

    pub(crate) fn shortage(&self, used: i64) -> Shortage {
        Shortage {
            consumer: self.consumer.clone(),
            resource: self.resource.clone(),
            requested: self.change,
            used,
            limited: self.limit.count,
        }
    }
}
