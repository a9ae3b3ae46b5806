//! Allowances of organizations and projects: what an object claims, what was claimed for it before, and the buckets that
//! the difference is taken from.

use crate::{
    Ledger,
    accounts::{ORGANIZATION, Sums, add_claim, add_grant, check_registered, namespace_of, put, take_away},
    ahead,
    plan::{Plan, Posting, path},
};
use freehold_apiserver_cache::{Entry, ListRequest, Seen};
use freehold_apiserver_operation::{Operation, now};
use freehold_apiserver_quota::{
    BUCKETS, Balance, CLAIM_POLICIES, CLAIMS, CONSUMERS, Claim, ConsumerKind, GRANT_POLICIES, GRANTS, GROUP,
    Grant, REGISTRATIONS, Rules, Subject, bucket,
    objects::{self, For},
};
use freehold_apiserver_storage::{Change, Expect};
use freehold_machinery::{GroupResource, PlaneId, Result, Status, Value, meta};
use serde_json::json;
use std::sync::Arc;

/// Whose an object is.
#[derive(Default)]
struct Belongs {
    organization: Option<String>,
    project: Option<String>,
}

impl Ledger {
    /// Registrations and policies, compiled once for each state of their objects.
    pub(crate) async fn rules(&self) -> Result<Arc<Rules>> {
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
    pub(crate) async fn plan_allowances(
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
            let now = now();
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
                    let mut object = objects::grant(old.as_ref(), grant, of, namespace, &now());
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
    pub(crate) fn check_grant(&self, rules: &Rules, grant: &Value) -> Result<(), String> {
        let consumer = bucket::consumer(grant).ok_or("consumers are Organizations and Projects")?;
        for resource in objects::allowances(grant).into_keys() {
            check_registered(rules, &resource, consumer.kind)?;
        }
        Ok(())
    }

    /// The buckets after the demands.
    pub(crate) async fn book_buckets(
        &self,
        (resource, name): (&GroupResource, &str),
        plan: &Plan,
    ) -> Result<Vec<(Expect, Change)>> {
        let now = now();
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
