//! What a write costs: ResourceQuotas of its namespace, limits that its namespace shares with others, allowances of its
//! organization and project, limits of its plane.
//! It is charged, and given back, in the commit of the write itself, so that no number of writers together get more than
//! there is, and nothing stays charged for what is not there.
//!
//! A [`Posting`] is what a write makes of an object. [`Registry::commit_posted`] finds out which accounts that touches,
//! waits for its turn with them, and commits them with the object on the condition that they are as they were read.

mod ahead;
pub(crate) mod allocations;
mod allowances;
mod kinds;
mod limits;
mod providers;
mod shared;
mod turns;

pub use ahead::Ahead;
pub(crate) use ahead::server;
pub(crate) use kinds::settle as settle_kind;
pub use limits::PlaneLimits;
pub use providers::ProviderLimit;
pub use shared::{Amounts, Meter, SharedGroup, SharedKinds, SharedLimits};
pub(crate) use turns::Turns;

use crate::{Also, Operation, Registry, delete};
use async_trait::async_trait;
use freehold_apiserver_admission::{
    Verb, chain,
    quota::{self, Surroundings},
};
use freehold_apiserver_cache::{Entry, Seen, codec};
use freehold_apiserver_quota::{Demand, Rules};
use freehold_apiserver_storage::{Change, Committed, Expect, Key, ObjectPath};
use freehold_machinery::{PlaneId, Result, Status, Value, meta};
use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use std::{collections::HashMap, sync::Arc};

use allocations::{Held, Known};

/// How often a commit is tried again because others, on other servers, changed the accounts meanwhile.
const ATTEMPTS: usize = 100;

/// Whose a plane is.
#[derive(Clone, Debug)]
pub struct Owner {
    /// The organization.
    pub organization: Arc<str>,
    /// The project.
    pub project: Arc<str>,
    /// The class of the plane.
    pub class: Arc<str>,
}

/// Who owns which plane.
#[async_trait]
pub trait Tenancy: Send + Sync + 'static {
    /// Whether this server has the core plane, where organizations and their allowances are.
    fn has_core(&self) -> bool;
    /// The owner of a project's plane; `None` for other planes.
    fn owner(&self, plane: &PlaneId) -> Option<Owner>;
    /// The organization of a project, as far as it is known.
    fn known_organization_of(&self, project: &str) -> Option<Arc<str>>;
    /// The organization of a project, as of now.
    async fn organization_of(&self, project: &str) -> Result<Option<Arc<str>>>;
    /// How many projects an organization has that are not being deleted, and one of them.
    async fn projects_of(&self, organization: &str) -> Result<(usize, Option<Arc<str>>)>;
}

/// No plane is owned by anybody: a registry by itself.
pub(crate) struct Nobody;

#[async_trait]
impl Tenancy for Nobody {
    fn has_core(&self) -> bool {
        false
    }

    fn owner(&self, _: &PlaneId) -> Option<Owner> {
        None
    }

    fn known_organization_of(&self, _: &str) -> Option<Arc<str>> {
        None
    }

    async fn organization_of(&self, _: &str) -> Result<Option<Arc<str>>> {
        Ok(None)
    }

    async fn projects_of(&self, _: &str) -> Result<(usize, Option<Arc<str>>)> {
        Ok((0, None))
    }
}

/// A state of objects: the last revision that changed them, and how many they are.
type AsOf = (u64, usize);

/// What the ledger keeps in memory.
#[derive(Default)]
pub(crate) struct Books {
    turns: Turns,
    /// Registrations and policies, as of a revision, and how many they are.
    rules: RwLock<Option<(AsOf, Arc<Rules>)>>,
    /// Limits of classes, as of the revision of their objects.
    limits: Mutex<HashMap<Arc<str>, (u64, PlaneLimits)>>,
    /// What Services hold, by plane.
    allocations: Mutex<Known>,
    /// Compiled limits that namespaces share.
    meters: shared::Meters,
}

/// What a write makes of an object.
#[derive(Clone, Copy)]
pub(crate) struct Posting<'a> {
    /// What it becomes; `None`: it goes.
    pub(crate) new: Option<&'a Value>,
    /// What it was.
    pub(crate) old: Option<&'a Value>,
    /// Where it is stored now, if it is the plane's own.
    pub(crate) entry: Option<&'a Entry>,
    /// What it is stored as; empty where it goes.
    pub(crate) stored: &'a [u8],
}

/// What a posting needs, before anybody's turn.
#[derive(Default)]
struct Plan {
    /// The ResourceQuotas of this namespace.
    quotas: Option<String>,
    /// What is asked of buckets, with their namespaces.
    demands: Vec<(String, Demand)>,
    /// Claims, grants and events that come with it.
    also: Vec<(Expect, Change)>,
    /// Whether the write may go on without the demands where they don't fit.
    optional: bool,
    /// What changes of the plane's own usage, and its limits.
    usage: Option<(limits::Usage, PlaneLimits)>,
    /// What the object comes to hold that no other may.
    held: Held,
    /// Counts of providers that the write changes.
    counted: Vec<providers::Counted>,
    /// What it does to limits that namespaces share.
    shared: shared::Shared,
}

impl Plan {
    fn accounts(&self, plane: &PlaneId) -> Vec<String> {
        let quotas = self.quotas.iter().map(|namespace| format!("quotas/{plane}/{namespace}"));
        let buckets = self.demands.iter().map(|(namespace, demand)| {
            let name = freehold_apiserver_quota::bucket::name(&demand.consumer, &demand.resource);
            format!("buckets/{namespace}/{name}")
        });
        let usage = self.usage.iter().map(|_| format!("usage/{plane}"));
        let held = (!self.held.is_empty()).then(|| format!("allocations/{plane}"));
        let counted = self.counted.iter().map(providers::Counted::account);
        let shared = self.shared.accounts(plane);
        quotas.chain(buckets).chain(usage).chain(held).chain(counted).chain(shared).collect()
    }
}

pub(crate) fn path(group: &str, resource: &str, namespace: &str, name: &str) -> ObjectPath {
    ObjectPath {
        group: group.to_owned(),
        resource: resource.to_owned(),
        namespace: Some(namespace.to_owned()).filter(|n| !n.is_empty()),
        name: name.to_owned(),
    }
}

/// The answer to who lost every turn.
fn too_many() -> Status {
    Status::too_many_requests("what it is charged to is being changed by too many at once", 1)
}

/// What changes on a condition, for a commit.
fn changing((expect, change): (Expect, Change)) -> Also {
    (expect, Some(change))
}

impl Registry {
    /// The change of one object, with what is charged for it. 403 where that is more than there is.
    pub(crate) async fn commit_posted(
        &self,
        op: &Operation,
        (path, own): (&ObjectPath, Seen),
        changes: Vec<Change>,
        also: Vec<Also>,
        posting: Posting<'_>,
    ) -> Result<Committed> {
        let plan = self.plan(op, own, posting).await?;
        self.commit_planned(op, (path, own), changes, also, (posting, plan)).await
    }

    async fn commit_planned(
        &self,
        op: &Operation,
        (path, own): (&ObjectPath, Seen),
        mut changes: Vec<Change>,
        mut also: Vec<Also>,
        (posting, mut plan): (Posting<'_>, Plan),
    ) -> Result<Committed> {
        let accounts = plan.accounts(&op.plane);
        if changes.iter().any(|change| matches!(change, Change::DeleteRange(_))) {
            also.extend(self.recount_later(&op.plane).await?.map(changing));
            plan.usage = None;
        }
        changes.extend(plan.shared.take_forgotten());
        if accounts.is_empty() {
            also.extend(plan.also.into_iter().map(changing));
            return self.commit(op, path, own, changes, also).await;
        }
        let key = Key::object(&op.plane, path);
        for _ in 0..ATTEMPTS {
            let mut turn = self.books.turns.take(accounts.clone()).await;
            self.cache.wait_for(turn.seen()).await?;
            let mut fixed = also.clone();
            let Some(record) = self.book_held(op, &plan.held).await? else {
                // Somebody else took it since it was found free: the write is drafted again.
                return Ok(Committed::Refused(Vec::new()));
            };
            let mut booked = self.book(op, own, posting, &plan).await?;
            booked.accounts.extend(record);
            fixed.extend(booked.with.into_iter().map(changing));
            // The object itself, the plane's record and what comes along: who changed those is the caller's matter.
            let conditions = [own.own, own.record].into_iter().chain(fixed.iter().map(|(e, _)| e.modified));
            let conditions: Vec<u64> = conditions.collect();
            let charged = booked.accounts.into_iter().filter(|(expect, _)| expect.key != key);
            fixed.extend(charged.map(changing));
            fixed.extend(booked.shared);
            match self.commit(op, path, own, changes.clone(), fixed).await? {
                Committed::Done(revision) => {
                    turn.done(revision);
                    return Ok(Committed::Done(revision));
                }
                Committed::Refused(now) => {
                    let held = conditions.iter().zip(&now);
                    let mut found = held.map(|(want, now)| *want == now.as_ref().map_or(0, |kv| kv.modified));
                    if !found.all(|same| same) {
                        return Ok(Committed::Refused(now));
                    }
                    drop(turn);
                    self.see(delete::newest(&now)).await?;
                }
            }
        }
        Err(too_many())
    }

    /// Whether a write could be charged, as of now: a dry run.
    pub(crate) async fn check_posted(&self, op: &Operation, own: Seen, posting: Posting<'_>) -> Result<()> {
        let plan = self.plan(op, own, posting).await?;
        self.book(op, own, posting, &plan).await.map(drop)
    }

    async fn plan(&self, op: &Operation, own: Seen, posting: Posting<'_>) -> Result<Plan> {
        let mut plan = Plan { held: allocations::taken(op, posting), ..Plan::default() };
        if self.chain.runs(chain::QUOTA)
            && let Some(namespace) = op.namespace.as_deref().filter(|_| op.ty.namespaced)
            && !self.cache.peek_list(&op.plane, "", "resourcequotas", Some(namespace)).is_empty()
        {
            plan.quotas = Some(namespace.to_owned());
        }
        self.plan_usage(op, own, posting, &mut plan)?;
        self.plan_shared(op, posting, &mut plan).await?;
        if self.tenancy.has_core() {
            self.plan_allowances(op, own, posting, &mut plan).await?;
            self.plan_provider(op, posting, &mut plan);
        }
        Ok(plan)
    }

    /// The accounts as they are after the write, each on the condition that it is as it was read.
    async fn book(&self, op: &Operation, own: Seen, posting: Posting<'_>, plan: &Plan) -> Result<Booked> {
        let mut accounts = Vec::new();
        if let Some(namespace) = &plan.quotas {
            accounts.extend(self.book_quotas(op, posting, namespace)?);
        }
        if let Some((delta, limits)) = &plan.usage {
            accounts.push(self.book_usage(op, *delta, limits).await?);
        }
        accounts.extend(self.book_counted(op, plan).await?);
        let mut with = plan.also.clone();
        match self.book_buckets((&op.ty.group_resource(), op.name()), plan).await {
            Ok(buckets) => accounts.extend(buckets),
            Err(status) if plan.optional && status.code == 403 => with.clear(),
            Err(status) => return Err(status),
        }
        let shared = self.book_shared(op, own, posting, plan).await?;
        Ok(Booked { with, accounts, shared })
    }

    fn book_quotas(
        &self,
        op: &Operation,
        posting: Posting<'_>,
        namespace: &str,
    ) -> Result<Vec<(Expect, Change)>> {
        let entries = self.cache.peek_list(&op.plane, "", "resourcequotas", Some(namespace));
        let quotas: Vec<Value> = entries.iter().map(|entry| entry.value()).collect();
        let mut new = posting.new.cloned();
        let verb = match (posting.new, posting.old) {
            (Some(_), Some(_)) => Verb::Update,
            (Some(_), None) => Verb::Create,
            (None, _) => Verb::Delete,
        };
        let mut attributes =
            crate::admit::attributes(op, verb, new.as_mut(), posting.old, (false, &Value::Null));
        if verb == Verb::Delete {
            // The last finalizer may go with an update of any subresource.
            attributes.subresource = "";
        }
        let around = self.surroundings(op, posting, namespace);
        let changed = quota::check(&attributes, &quotas, &around)?;
        let put = |mut quota: Value| {
            let modified = meta::resource_version(&quota).parse().ok()?;
            let path = path("", "resourcequotas", meta::namespace(&quota), meta::name(&quota));
            let key = Key::object(&op.plane, &path);
            meta::remove(&mut quota, "resourceVersion");
            let value = codec::encode(&quota);
            Some((Expect { key: key.clone(), modified }, Change::Put(key, value)))
        };
        Ok(changed.into_iter().filter_map(put).collect())
    }

    /// What decides what a write uses of quotas besides its object: of claims for devices their classes, and where one was made
    /// for a Pod that Pod and the namespace's other claims.
    fn surroundings(&self, op: &Operation, posting: Posting<'_>, namespace: &str) -> Surroundings {
        let around = Surroundings::at(Timestamp::now());
        let (group, claims) = (op.ty.group.as_str(), op.ty.plural.as_str());
        if (group, claims) != ("resource.k8s.io", "resourceclaims") {
            return around;
        }
        let read = |group, resource, namespace| {
            let entries = self.cache.peek_list(&op.plane, group, resource, namespace);
            entries.iter().map(|entry| entry.value()).collect::<Vec<Value>>()
        };
        let made_for = [posting.new, posting.old].into_iter().flatten().find_map(quota::made_for);
        let pod = made_for.and_then(|(pod, _)| self.cache.peek(&op.plane, &path("", "pods", namespace, pod)));
        let mut claims = pod.as_ref().map_or_else(Vec::new, |_| read(group, claims, Some(namespace)));
        claims.extend(posting.new.filter(|_| pod.is_some() && posting.old.is_none()).cloned());
        let pods: Vec<Value> = pod.iter().map(|pod| pod.value()).collect();
        around.with_devices(&read(group, "deviceclasses", None), &claims, &pods)
    }
}

/// What is committed besides the object.
struct Booked {
    /// What comes with it and has its own conditions.
    with: Vec<(Expect, Change)>,
    /// Accounts.
    accounts: Vec<(Expect, Change)>,
    /// Ledgers of limits that namespaces share, and what they rest on.
    shared: Vec<Also>,
}
