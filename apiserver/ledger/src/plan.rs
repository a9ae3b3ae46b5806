//! What a write makes of an object, and what has to be committed with it.

use crate::{
    accounts::Sums,
    counted::Counted,
    held::Held,
    limits::{PlaneLimits, Usage},
    meters::Shared,
};
use freehold_apiserver_cache::Entry;
use freehold_apiserver_quota::{Balance, Demand};
use freehold_apiserver_storage::{Change, Expect, KeyValue, ObjectPath};
use freehold_machinery::{PlaneId, Status, Value};

/// A further condition of a commit, and what changes with it.
pub type Also = (Expect, Option<Change>);

/// What a write makes of an object.
#[derive(Clone, Copy)]
pub struct Posting<'a> {
    /// What it becomes; `None`: it goes.
    pub new: Option<&'a Value>,
    /// What it was.
    pub old: Option<&'a Value>,
    /// Where it is stored now, if it is the plane's own.
    pub entry: Option<&'a Entry>,
    /// What it is stored as; empty where it goes.
    pub stored: &'a [u8],
}

/// What a posting needs, before anybody's turn.
#[derive(Default)]
pub(crate) struct Plan {
    /// The ResourceQuotas of this namespace.
    pub(crate) quotas: Option<String>,
    /// What is asked of buckets, with their namespaces.
    pub(crate) demands: Vec<(String, Demand)>,
    /// Claims, grants and events that come with it.
    pub(crate) also: Vec<(Expect, Change)>,
    /// Whether the write may go on without the demands where they don't fit.
    pub(crate) optional: bool,
    /// What changes of the plane's own usage, and its limits.
    pub(crate) usage: Option<(Usage, PlaneLimits)>,
    /// What the object comes to hold that no other may.
    pub(crate) held: Held,
    /// Counts of providers that the write changes.
    pub(crate) counted: Vec<Counted>,
    /// What it does to limits that namespaces share.
    pub(crate) shared: Shared,
}

impl Plan {
    pub(crate) fn accounts(&self, plane: &PlaneId) -> Vec<String> {
        let quotas = self.quotas.iter().map(|namespace| format!("quotas/{plane}/{namespace}"));
        let buckets = self.demands.iter().map(|(namespace, demand)| {
            let name = freehold_apiserver_quota::bucket::name(&demand.consumer, &demand.resource);
            format!("buckets/{namespace}/{name}")
        });
        let usage = self.usage.iter().map(|_| format!("usage/{plane}"));
        let held = (!self.held.is_empty()).then(|| format!("allocations/{plane}"));
        let counted = self.counted.iter().map(Counted::account);
        let shared = self.shared.accounts(plane);
        quotas.chain(buckets).chain(usage).chain(held).chain(counted).chain(shared).collect()
    }

    /// Asks buckets of a namespace for what has been added up.
    pub(crate) fn demand(&mut self, namespace: &str, sums: Sums) {
        let changed = sums.into_iter().filter(|(_, change)| *change != Balance::default());
        self.demands.extend(changed.map(|((consumer, resource), change)| {
            (namespace.to_owned(), Demand { consumer, resource, change })
        }));
    }
}

/// Returns where an object is kept; an empty namespace is none.
pub fn path(group: &str, resource: &str, namespace: &str, name: &str) -> ObjectPath {
    ObjectPath {
        group: group.to_owned(),
        resource: resource.to_owned(),
        namespace: Some(namespace.to_owned()).filter(|n| !n.is_empty()),
        name: name.to_owned(),
    }
}

/// The answer to who lost every turn.
pub(crate) fn too_many() -> Status {
    Status::too_many_requests("what it is charged to is being changed by too many at once", 1)
}

/// What changes on a condition, for a commit.
pub(crate) fn changing((expect, change): (Expect, Change)) -> Also {
    (expect, Some(change))
}

/// The revision that others have brought the expected keys to; 0 where one may have been deleted, which has none.
pub fn newest(now: &[Option<KeyValue>]) -> u64 {
    let revisions: Option<Vec<_>> = now.iter().map(|kv| kv.as_ref().map(|kv| kv.modified)).collect();
    revisions.unwrap_or_default().into_iter().max().unwrap_or(0)
}
