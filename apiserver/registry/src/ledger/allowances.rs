//! Allowances of organizations and projects: what an object claims, what was claimed for it before, and the buckets that
//! the difference is taken from.

use super::{Plan, Posting, ahead, path};
use crate::{Operation, Registry, prepare};
use freehold_apiserver_cache::{Entry, ListRequest, Seen, codec};
use freehold_apiserver_quota::{
    BUCKETS, Balance, CLAIM_POLICIES, CLAIMS, CONSUMERS, Claim, Consumer, ConsumerKind, Demand,
    GRANT_POLICIES, GRANTS, GROUP, Grant, REGISTRATIONS, Rules, Subject, bucket,
    objects::{self, For},
};
use freehold_apiserver_storage::{Change, Expect, Key, ObjectPath};
use freehold_machinery::{GroupResource, PlaneId, Result, Status, Value, meta};
use serde_json::json;
use std::{collections::BTreeMap, sync::Arc};
use uuid::Uuid;

/// Namespaces of organizations begin so.
const ORGANIZATION: &str = "organization-";

/// Whose an object is.
#[derive(Default)]
struct Belongs {
    organization: Option<String>,
    project: Option<String>,
}

/// What is asked of one bucket, added up.
pub(super) type Sums = BTreeMap<(Consumer, String), Balance>;

pub(super) fn namespace_of(organization: &str) -> String {
    format!("{ORGANIZATION}{organization}")
}

/// A change of an object of quota, on the condition that it is as it was read.
pub(super) fn put(path: &ObjectPath, modified: u64, mut object: Value) -> (Expect, Change) {
    if meta::uid(&object).is_empty() {
        meta::set(&mut object, "uid", Uuid::new_v4().to_string());
    }
    let key = Key::object(&PlaneId::core(), path);
    (Expect { key: key.clone(), modified }, Change::Put(key, codec::encode(&object)))
}

pub(super) fn take_away(path: &ObjectPath, modified: u64) -> (Expect, Change) {
    let key = Key::object(&PlaneId::core(), path);
    (Expect { key: key.clone(), modified }, Change::Delete(key))
}

/// Adds what a claim uses, or gives back.
pub(super) fn add_claim(sums: &mut Sums, consumer: &Consumer, requests: &BTreeMap<String, i64>, sign: i64) {
    for (resource, amount) in requests {
        let sum = sums.entry((consumer.clone(), resource.clone())).or_default();
        sum.allocated = sum.allocated.saturating_add(amount.saturating_mul(sign));
        sum.claims += sign;
    }
}

/// Adds what a grant gives, or takes back.
pub(super) fn add_grant(sums: &mut Sums, consumer: &Consumer, allowances: &BTreeMap<String, i64>, sign: i64) {
    for (resource, amount) in allowances {
        let sum = sums.entry((consumer.clone(), resource.clone())).or_default();
        sum.limit = sum.limit.saturating_add(amount.saturating_mul(sign));
        sum.grants += sign;
    }
}

impl Registry {
    /// Registrations and policies, compiled once for each state of their objects.
    pub(super) async fn rules(&self) -> Result<Arc<Rules>> {
        let core = PlaneId::core();
        // The number tells of deletes that the revision may not, when the plane was read anew since.
        let resources = [REGISTRATIONS, CLAIM_POLICIES, GRANT_POLICIES];
        let (changed, _) = self.cache.changes(&core, GROUP, resources).await?;
        let count = |resource| self.cache.count(&core, GROUP, resource, None).unwrap_or(usize::MAX >> 2);
        let changed = changed.into_iter().flatten().max().unwrap_or_default();
        let at = (changed, resources.map(count).iter().sum());
        if let Some((known, rules)) = &*self.books.rules.read()
            && *known == at
        {
            return Ok(rules.clone());
        }
        let rules = Arc::new(Box::pin(self.read_rules(&core)).await?);
        *self.books.rules.write() = Some((at, rules.clone()));
        Ok(rules)
    }

    async fn read_rules(&self, core: &PlaneId) -> Result<Rules> {
        let read = async |resource| {
            let request = ListRequest { plane: core, group: GROUP, resource, namespace: None };
            let objects = self.cache.list(request).await?.objects;
            Ok::<_, Status>(objects.iter().map(|entry| entry.value()).collect::<Vec<Value>>())
        };
        let (registrations, claims, grants) =
            (read(REGISTRATIONS).await?, read(CLAIM_POLICIES).await?, read(GRANT_POLICIES).await?);
        Ok(Rules::of(&registrations, &claims, &grants))
    }

    /// What a write claims, and what it does to quota's own objects.
    pub(super) async fn plan_allowances(
        &self,
        op: &Operation,
        own: Seen,
        posting: Posting<'_>,
        plan: &mut Plan,
    ) -> Result<()> {
        if op.plane == PlaneId::core() && op.ty.group == GROUP {
            return self.plan_own_kind(op, posting, plan).await;
        }
        let rules = self.rules().await?;
        if rules.is_without_registrations() {
            return Ok(());
        }
        let gone = posting.new.is_none();
        let changes_spec = matches!(op.subresource.as_deref(), None | Some("scale" | "resize"));
        let claims = changes_spec && rules.concerns(&op.ty.group, &op.ty.kind);
        if !(gone || claims) {
            return Ok(());
        }
        let Some(object) = posting.new.or(posting.old) else { return Ok(()) };
        let belongs = self.belongs(op, object);
        let Some(organization) = belongs.organization.as_deref() else { return Ok(()) };
        let of = For {
            plane: op.plane.as_str(),
            group: &op.ty.group,
            kind: &op.ty.kind,
            namespace: meta::namespace(object),
            name: meta::name(object),
        };
        let namespace = namespace_of(organization);
        let mut sums = Sums::new();
        self.plan_claims((op, own), posting, (&rules, &belongs), (of, &namespace), &mut sums, plan).await?;
        if op.plane == PlaneId::core() {
            self.plan_grants(op, posting, (&rules, &belongs), (of, &namespace), &mut sums, plan).await?;
        }
        plan.demand(&namespace, sums);
        Ok(())
    }

    /// The organization and project of an object.
    fn belongs(&self, op: &Operation, object: &Value) -> Belongs {
        if let Some(owner) = self.tenancy.owner(&op.plane) {
            let (organization, project) = (owner.organization.to_string(), owner.project.to_string());
            return Belongs { organization: Some(organization), project: Some(project) };
        }
        if op.plane != PlaneId::core() {
            return Belongs::default();
        }
        let name = || Some(meta::name(object).to_owned());
        match (op.ty.group.as_str(), op.ty.plural.as_str()) {
            (CONSUMERS, "organizations") => Belongs { organization: name(), project: None },
            (CONSUMERS, "projects") => Belongs {
                organization: object["spec"]["ownerRef"]["name"].as_str().map(str::to_owned),
                project: name(),
            },
            _ => {
                let organization = meta::namespace(object).strip_prefix(ORGANIZATION).map(str::to_owned);
                Belongs { organization, project: None }
            }
        }
    }

    /// What an object claims by the policies; 403 where one of them can't say.
    async fn claims_of(
        &self,
        op: &Operation,
        object: &Value,
        (rules, belongs): (&Rules, &Belongs),
    ) -> Result<Vec<Claim>> {
        let request = request_info(op, object);
        let subject = subject(op, object, &request, belongs);
        rules.claims(subject).map_err(|why| Status::forbidden(&op.ty.group_resource(), op.name(), &why))
    }

    async fn plan_claims(
        &self,
        (op, own): (&Operation, Seen),
        posting: Posting<'_>,
        known: (&Rules, &Belongs),
        (of, namespace): (For<'_>, &str),
        sums: &mut Sums,
        plan: &mut Plan,
    ) -> Result<()> {
        let wanted = match posting.new {
            Some(object) => self.claims_of(op, object, known).await?,
            None => Vec::new(),
        };
        let mut had_any = false;
        for kind in ConsumerKind::ALL {
            let path = path(GROUP, CLAIMS, namespace, &objects::claim_name(of, kind));
            let (entry, seen) = self.cache.get_for_update(&PlaneId::core(), &path).await?;
            let old = entry.as_deref().map(Entry::value);
            if let Some(old) = &old {
                had_any = true;
                if let Some(consumer) = bucket::consumer(old) {
                    add_claim(sums, &consumer, &objects::requests(old), -1);
                }
            }
            let now = prepare::now();
            let mark = old.as_ref().and_then(|old| ahead::mark_of(old, own.record));
            let claim = wanted.iter().find(|claim| claim.consumer.kind == kind).cloned();
            let claim = match (&old, &mark) {
                (Some(old), Some(_)) => ahead::at_least(claim, old),
                _ => claim,
            };
            match (claim, &old) {
                (Some(claim), old) => {
                    add_claim(sums, &claim.consumer, &claim.requests, 1);
                    let same = old.as_ref().is_some_and(|old| {
                        objects::requests(old) == claim.requests
                            && bucket::consumer(old).as_ref() == Some(&claim.consumer)
                    });
                    if !same {
                        let mut object = objects::claim(old.as_ref(), &claim, of, namespace, &now);
                        if let Some(mark) = mark {
                            object["metadata"]["annotations"][objects::AHEAD] = mark.into();
                        }
                        plan.also.push(put(&path, seen.own, object));
                    }
                }
                (None, Some(_)) => plan.also.push(take_away(&path, seen.own)),
                (None, None) => {}
            }
        }
        sums.retain(|_, change| *change != Balance::default());
        // What was there before its policy is claimed with the first write after it, if there is room; without room only
        // what grows is refused.
        if let (false, Some(old)) = (had_any, posting.old) {
            let before = self.claims_of(op, old, known).await.unwrap_or_default();
            plan.optional = wanted.iter().all(|claim| {
                let old = before.iter().find(|old| old.consumer == claim.consumer);
                claim.requests.iter().all(|(resource, amount)| {
                    old.and_then(|old| old.requests.get(resource)).is_some_and(|old| amount <= old)
                })
            });
        }
        // What is on its way out is never refused.
        plan.optional |= posting.new.is_some_and(meta::is_deleting);
        Ok(())
    }

    async fn plan_grants(
        &self,
        op: &Operation,
        posting: Posting<'_>,
        (rules, belongs): (&Rules, &Belongs),
        (of, namespace): (For<'_>, &str),
        sums: &mut Sums,
        plan: &mut Plan,
    ) -> Result<()> {
        let Some(object) = posting.new.or(posting.old) else { return Ok(()) };
        let request = request_info(op, object);
        let forbidden = |why: &str| Status::forbidden(&op.ty.group_resource(), op.name(), why);
        let wanted: Vec<Grant> = match posting.new {
            Some(new) => rules.grants(subject(op, new, &request, belongs)).map_err(|why| forbidden(&why))?,
            None => Vec::new(),
        };
        for policy in rules.grant_policies(&op.ty.group, &op.ty.kind) {
            let path = path(GROUP, GRANTS, namespace, &objects::grant_name(of, policy));
            let (entry, seen) = self.cache.get_for_update(&PlaneId::core(), &path).await?;
            let old = entry.as_deref().map(Entry::value);
            if let Some((old, consumer)) = old.as_ref().and_then(|old| Some((old, bucket::consumer(old)?))) {
                add_grant(sums, &consumer, &objects::allowances(old), -1);
            }
            match (wanted.iter().find(|grant| grant.policy == policy), &old) {
                (Some(grant), old) => {
                    let (consumer, its) = (&grant.consumer, belongs);
                    let own = match consumer.kind {
                        ConsumerKind::Organization => its.organization.as_ref(),
                        ConsumerKind::Project => its.project.as_ref(),
                    };
                    if own != Some(&consumer.name) {
                        let why =
                            format!("GrantCreationPolicy {policy:?}: {consumer} is not what it belongs to");
                        return Err(forbidden(&why));
                    }
                    let mut object = objects::grant(old.as_ref(), grant, of, namespace, &prepare::now());
                    own_by(&mut object, op, posting.new);
                    self.check_grant(rules, &object).map_err(|why| forbidden(&why))?;
                    add_grant(sums, consumer, &objects::allowances(&object), 1);
                    if old.as_ref().is_none_or(|old| old["spec"] != object["spec"]) {
                        plan.also.push(put(&path, seen.own, object));
                    }
                }
                (None, Some(_)) => plan.also.push(take_away(&path, seen.own)),
                (None, None) => {}
            }
        }
        Ok(())
    }

    /// Whether a grant is of what is registered for such consumers.
    pub(super) fn check_grant(&self, rules: &Rules, grant: &Value) -> Result<(), String> {
        let consumer = bucket::consumer(grant).ok_or("consumers are Organizations and Projects")?;
        for resource in objects::allowances(grant).into_keys() {
            check_registered(rules, &resource, consumer.kind)?;
        }
        Ok(())
    }

    /// The buckets after the demands.
    pub(super) async fn book_buckets(
        &self,
        (resource, name): (&GroupResource, &str),
        plan: &Plan,
    ) -> Result<Vec<(Expect, Change)>> {
        let now = prepare::now();
        let mut changes = Vec::with_capacity(plan.demands.len());
        for (namespace, demand) in &plan.demands {
            let path = path(GROUP, BUCKETS, namespace, &bucket::name(&demand.consumer, &demand.resource));
            let (entry, seen) = self.cache.get_for_update(&PlaneId::core(), &path).await?;
            let old = entry.as_deref().map(Entry::value);
            let settled = bucket::settle(old.as_ref(), demand, (namespace, &now))
                .map_err(|shortage| Status::forbidden(resource, name, &shortage.to_string()))?;
            match settled {
                Some(object) => changes.push(put(&path, seen.own, object)),
                None if seen.own != 0 => changes.push(take_away(&path, seen.own)),
                None => {}
            }
        }
        Ok(changes)
    }

    /// Gives back all that was claimed for objects of a plane that is gone. It is done in small commits, and may be done
    /// again.
    pub async fn release_claims(&self, op: &Operation, plane: &PlaneId) -> Result<()> {
        if !self.tenancy.has_core() {
            return Ok(());
        }
        let request =
            ListRequest { plane: &PlaneId::core(), group: GROUP, resource: CLAIMS, namespace: None };
        let of_plane = |entry: &&Arc<Entry>| entry.label(objects::PLANE_LABEL) == Some(plane.as_str());
        let listed = self.cache.list(request).await?.objects;
        for entry in listed.iter().filter(of_plane) {
            let mut one = op.clone();
            one.namespace = Some(entry.namespace().to_owned());
            one.name = Some(entry.name().to_owned());
            match self.delete_unasked(&one, &crate::DeleteOptions::default()).await {
                Ok(_) => {}
                Err(status) if status.is_not_found() => {}
                Err(status) => return Err(status),
            }
        }
        Ok(())
    }
}

/// Whether a resource is registered for consumers of a kind.
pub(super) fn check_registered(rules: &Rules, resource: &str, kind: ConsumerKind) -> Result<(), String> {
    match rules.registration(resource) {
        None => Err(format!("{resource:?} is not registered")),
        Some(registration) if registration.consumer != kind => {
            Err(format!("{resource:?} is of each {}", registration.consumer.as_str()))
        }
        Some(_) => Ok(()),
    }
}

impl Plan {
    /// Asks buckets of a namespace for what has been added up.
    pub(super) fn demand(&mut self, namespace: &str, sums: Sums) {
        let changed = sums.into_iter().filter(|(_, change)| *change != Balance::default());
        self.demands.extend(changed.map(|((consumer, resource), change)| {
            (namespace.to_owned(), Demand { consumer, resource, change })
        }));
    }
}

fn subject<'a>(
    op: &'a Operation,
    object: &'a Value,
    request: &'a Value,
    belongs: &'a Belongs,
) -> Subject<'a> {
    Subject {
        object,
        group: &op.ty.group,
        kind: &op.ty.kind,
        user: &op.user,
        request,
        organization: belongs.organization.as_deref(),
        project: belongs.project.as_deref(),
    }
}

fn request_info(op: &Operation, object: &Value) -> Value {
    json!({
        "apiGroup": op.ty.group, "apiVersion": op.ty.version, "resource": op.ty.plural,
        "subresource": op.subresource.as_deref().unwrap_or_default(),
        "namespace": meta::namespace(object), "name": meta::name(object),
    })
}

/// The garbage collector takes the grant away with its object, should its policy be gone by then.
fn own_by(grant: &mut Value, op: &Operation, object: Option<&Value>) {
    let Some(object) = object.filter(|_| !op.ty.namespaced) else { return };
    let owner = json!([{
        "apiVersion": op.ty.api_version(), "kind": op.ty.kind, "name": meta::name(object), "uid": meta::uid(object),
    }]);
    meta::set(grant, "ownerReferences", owner);
}
