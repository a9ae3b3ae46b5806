//! Claims of objects that a plane is about to have. A fork, an import or a restore puts a plane above a layer in one small commit,
//! whatever the layer has; what its objects claim is claimed before that, in batches, each on the condition of its accounts.
//!
//! Such a claim says above which record of its plane it was made, and when. As long as the plane still has that record, and for
//! [`HELD`] at most, writes of its object neither give it back nor make it smaller; from the switch on it is a claim as any
//! other. What a killed server has left is claimed once more by the operation that is done again, or given back as claims of
//! objects that are gone are.

use crate::{
    Ledger,
    accounts::{Sums, add_claim, namespace_of, put, take_away},
    plan::{Plan, Posting, newest, path, too_many},
};
use freehold_apiserver_admission::Annotations;
use freehold_apiserver_cache::{Layer, ListRequest};
use freehold_apiserver_catalog::TypeSet;
use freehold_apiserver_operation::{Operation, now, path_of, server};
use freehold_apiserver_quota::{
    CLAIMS, CONSUMERS, Claim, GROUP, Rules, Subject, bucket,
    objects::{self, AHEAD, For},
};
use freehold_apiserver_storage::{Change, Commit, Committed, Expect, Key, ObjectPath, StoreError};
use freehold_machinery::{GroupResource, PlaneId, Result, Status, Value, meta};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use std::{collections::BTreeMap, sync::Arc};

/// How long a claim is held for an operation that does not come to its end.
const HELD: SignedDuration = SignedDuration::from_mins(10);
/// Claims that one commit writes: with their accounts fewer than an etcd takes in a transaction.
const BATCH: usize = 40;
/// How often a batch is tried again because others changed its accounts meanwhile.
const ATTEMPTS: usize = 100;

/// What was claimed for objects that are to come.
#[derive(Default)]
pub struct Ahead {
    project: String,
    namespace: String,
    made: Vec<Written>,
    /// Objects that will claim less than was claimed for them before.
    smaller: Vec<ObjectPath>,
}

/// An object that is to come, and what it will claim of one consumer.
struct Coming {
    path: ObjectPath,
    group: String,
    kind: String,
    claim: Claim,
}

/// A claim that changes, from the revision at which it was read.
#[derive(Clone)]
struct Written {
    path: ObjectPath,
    seen: u64,
    old: Option<Value>,
    new: Option<Value>,
}

/// The mark of a claim that is held for an operation on a plane with this record.
pub(crate) fn mark_of(claim: &Value, record: u64) -> Option<String> {
    let mark = meta::annotation(claim, AHEAD)?;
    let (above, since) = mark.split_once(' ')?;
    let since: Timestamp = since.parse().ok()?;
    let is_held = above == record.to_string() && Timestamp::now().duration_since(since) < HELD;
    is_held.then(|| mark.to_owned())
}

/// A claim that is no smaller than the one that is held.
pub(crate) fn at_least(claim: Option<Claim>, held: &Value) -> Option<Claim> {
    let Some(consumer) = bucket::consumer(held) else { return claim };
    let none = || Claim {
        consumer: consumer.clone(),
        requests: BTreeMap::new(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
    };
    let mut claim = claim.unwrap_or_else(none);
    if claim.consumer == consumer {
        for (resource, amount) in objects::requests(held) {
            let requested = claim.requests.entry(resource).or_default();
            *requested = amount.max(*requested);
        }
    }
    Some(claim)
}

/// What the objects of a layer will claim in a plane.
fn coming(
    rules: &Rules,
    layer: &Layer,
    plane: &PlaneId,
    (organization, project): (&str, &str),
) -> Result<Vec<Coming>> {
    let user = server();
    let mut all = Vec::new();
    for ((stored, resource), entries) in layer.collections() {
        let mut entries = entries.peekable();
        let Some(first) = entries.peek().map(|entry| entry.value()) else { continue };
        let version = first["apiVersion"].as_str().unwrap_or_default();
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let kind = first["kind"].as_str().unwrap_or_default();
        if !rules.concerns(group, kind) {
            continue;
        }
        for entry in entries {
            let object = entry.value();
            let (namespace, name) = (entry.namespace(), entry.name());
            let request = json!({
                "apiGroup": group, "apiVersion": version, "resource": resource, "subresource": "",
                "namespace": namespace, "name": name,
            });
            let (organization, project) = (Some(organization), Some(project));
            let subject = Subject {
                object: &object,
                group,
                kind,
                user: &user,
                request: &request,
                organization,
                project,
            };
            let claims = rules.claims(subject).map_err(|why| {
                Status::forbidden(&GroupResource::new(group, resource), name, &format!("in {plane}: {why}"))
            })?;
            all.extend(claims.into_iter().map(|claim| Coming {
                path: path(stored, resource, namespace, name),
                group: group.to_owned(),
                kind: kind.to_owned(),
                claim,
            }));
        }
    }
    Ok(all)
}

fn projects() -> GroupResource {
    GroupResource::new(CONSUMERS, "projects")
}

/// What claims that change ask of their buckets.
fn sums<'a>(claims: impl IntoIterator<Item = &'a Written>, sums: &mut Sums) {
    for claim in claims {
        for (object, sign) in [(&claim.old, -1), (&claim.new, 1)] {
            if let Some((object, consumer)) = object.as_ref().and_then(|o| Some((o, bucket::consumer(o)?))) {
                add_claim(sums, &consumer, &objects::requests(object), sign);
            }
        }
    }
}

impl Ledger {
    /// Claims what the objects of a layer will claim in a plane, all of it or nothing: 403 where there is not as much left. What
    /// is claimed for these objects already is claimed once.
    ///
    /// # Errors
    /// A 403 where not as much is left, and whatever the store or the cache fails with; what was claimed by then is given back.
    pub async fn claim_ahead(&self, plane: &PlaneId, layer: &Layer) -> Result<Ahead> {
        let none = Ahead::default();
        let Some(owner) = self.tenancy.owner(plane).filter(|_| self.tenancy.has_core()) else {
            return Ok(none);
        };
        let rules = self.rules().await?;
        let coming = coming(&rules, layer, plane, (&owner.organization, &owner.project))?;
        let record = self.stores.of(plane).get(&Key::stack(plane)).await?.map_or(0, |record| record.modified);
        let mark = format!("{record} {}", now());
        let (project, namespace) = (owner.project.to_string(), namespace_of(&owner.organization));
        let mut ahead = Ahead { project, namespace, ..none };
        let mut asked = Plan::default();
        let mut total = Sums::new();
        for batch in coming.chunks(BATCH) {
            sums(&self.prepare_ahead(plane, batch, &ahead.namespace, &mark).await?, &mut total);
        }
        asked.demand(&ahead.namespace, total);
        self.book_buckets((&projects(), &ahead.project), &asked).await?;
        for batch in coming.chunks(BATCH) {
            if let Err(status) = self.claim_batch(plane, batch, &mark, &mut ahead).await {
                self.take_back(ahead).await?;
                return Err(status);
            }
        }
        Ok(ahead)
    }

    async fn claim_batch(
        &self,
        plane: &PlaneId,
        batch: &[Coming],
        mark: &str,
        ahead: &mut Ahead,
    ) -> Result<()> {
        for _ in 0..ATTEMPTS {
            let claims = self.prepare_ahead(plane, batch, &ahead.namespace, mark).await?;
            let Some(revision) = self.commit_claims(&claims, ahead).await? else { continue };
            let is_smaller = |(coming, claim): &(&Coming, &Written)| {
                claim.new.as_ref().is_some_and(|new| objects::requests(new) != coming.claim.requests)
            };
            let smaller = batch.iter().zip(&claims).filter(is_smaller);
            ahead.smaller.extend(smaller.map(|(coming, _)| coming.path.clone()));
            ahead.made.extend(claims.into_iter().map(|claim| Written { seen: revision, ..claim }));
            return Ok(());
        }
        Err(too_many())
    }

    /// The claims of objects that are to come, each no smaller than it was, and marked.
    async fn prepare_ahead(
        &self,
        plane: &PlaneId,
        batch: &[Coming],
        namespace: &str,
        mark: &str,
    ) -> Result<Vec<Written>> {
        let mut claims = Vec::with_capacity(batch.len());
        for Coming { path: at, group, kind, claim } in batch {
            let inside = at.namespace.as_deref().unwrap_or_default();
            let of = For { plane: plane.as_str(), group, kind, namespace: inside, name: &at.name };
            let path = path(GROUP, CLAIMS, namespace, &objects::claim_name(of, claim.consumer.kind));
            let (entry, seen) = self.cache.get_for_update(&PlaneId::core(), &path).await?;
            let old = entry.map(|entry| entry.value());
            let claim = match &old {
                Some(old) => at_least(Some(claim.clone()), old).unwrap_or_else(|| claim.clone()),
                None => claim.clone(),
            };
            let mut new = objects::claim(old.as_ref(), &claim, of, namespace, &now());
            new["metadata"]["annotations"][AHEAD] = mark.into();
            claims.push(Written { path, seen: seen.own, old, new: Some(new) });
        }
        Ok(claims)
    }

    /// Writes claims together with their buckets; `None` where others have changed them meanwhile.
    async fn commit_claims(&self, claims: &[Written], ahead: &Ahead) -> Result<Option<u64>> {
        let (mut plan, mut asked) = (Plan::default(), Sums::new());
        sums(claims, &mut asked);
        plan.demand(&ahead.namespace, asked);
        let core = PlaneId::core();
        let mut turn = self.books.turns.take(plan.accounts(&core)).await;
        self.cache.wait_for(turn.seen()).await?;
        let buckets = self.book_buckets((&projects(), &ahead.project), &plan).await?;
        let written = claims.iter().map(|claim| match claim.new.clone() {
            Some(mut new) => {
                meta::remove(&mut new, "resourceVersion");
                put(&claim.path, claim.seen, new)
            }
            None => take_away(&claim.path, claim.seen),
        });
        let (expect, changes): (Vec<Expect>, Vec<Change>) = written.chain(buckets).unzip();
        let commit = self.stores.of(&core).commit(Commit { expect, changes }).await;
        match commit.map_err(StoreError::of_commit)? {
            Committed::Done(revision) => {
                turn.done(revision);
                self.cache.wait_for(revision).await?;
                Ok(Some(revision))
            }
            Committed::Refused(now) => {
                drop(turn);
                self.cache.see(newest(&now)).await?;
                Ok(None)
            }
        }
    }

    /// Makes claims what they were before, but those that others have changed since.
    ///
    /// # Errors
    /// Fails where the store or the cache does.
    pub async fn take_back(&self, mut ahead: Ahead) -> Result<()> {
        let made = std::mem::take(&mut ahead.made);
        for batch in made.chunks(BATCH) {
            let back =
                |claim: &Written| Written { old: claim.new.clone(), new: claim.old.clone(), ..claim.clone() };
            let back: Vec<Written> = batch.iter().map(back).collect();
            let mut done = None;
            for _ in 0..ATTEMPTS {
                done = self.commit_claims(&back, &ahead).await?;
                if done.is_some() || self.is_changed(&back).await? {
                    break;
                }
            }
            for claim in back.chunks(1).filter(|_| done.is_none()) {
                while self.commit_claims(claim, &ahead).await?.is_none() && !self.is_changed(claim).await? {}
            }
        }
        Ok(())
    }

    /// Whether others have changed one of these claims.
    async fn is_changed(&self, claims: &[Written]) -> Result<bool> {
        for claim in claims {
            let (_, seen) = self.cache.get_for_update(&PlaneId::core(), &claim.path).await?;
            if seen.own != claim.seen {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns what is to be settled after a switch that happened already, and whose server may have been killed then: all that was claimed
    /// ahead in the plane and not written since.
    ///
    /// # Errors
    /// Fails where the store or the cache does.
    pub async fn left_ahead(&self, plane: &PlaneId, types: &TypeSet) -> Result<Ahead> {
        let Some(owner) = self.tenancy.owner(plane).filter(|_| self.tenancy.has_core()) else {
            return Ok(Ahead::default());
        };
        let namespace = namespace_of(&owner.organization);
        let core = PlaneId::core();
        let request =
            ListRequest { plane: &core, group: GROUP, resource: CLAIMS, namespace: Some(&namespace) };
        let listed = self.cache.list(request).await?.objects;
        let of_plane =
            listed.iter().filter(|entry| entry.label(objects::PLANE_LABEL) == Some(plane.as_str()));
        let object = |claim: Value| {
            meta::annotation(&claim, AHEAD)?;
            let of = &claim["spec"]["resourceRef"];
            let part = |field: &str| of[field].as_str().unwrap_or_default();
            let kinds = types.group(part("apiGroup"))?.versions.iter().flat_map(|version| &version.types);
            let ty = kinds.into_iter().find(|ty| ty.kind == part("kind"))?;
            Some(path_of(ty, Some(part("namespace")).filter(|n| !n.is_empty()), part("name")))
        };
        let smaller = of_plane.filter_map(|entry| object(entry.value())).collect();
        Ok(Ahead { project: owner.project.to_string(), namespace, smaller, made: Vec::new() })
    }

    /// Gives back what objects claim less now that their plane stands where it was put. An object that was written since
    /// has seen to that itself.
    ///
    /// # Errors
    /// A 429 where others change the accounts all the time, and whatever the store or the cache fails with.
    pub async fn settle_ahead(&self, plane: &PlaneId, types: &Arc<TypeSet>, ahead: Ahead) -> Result<()> {
        for path in &ahead.smaller {
            let Some(ty) = types.by_resource(&path.group, &path.resource) else { continue };
            let op = Operation {
                plane: plane.clone(),
                ty: ty.clone(),
                types: types.clone(),
                user: Arc::new(server()),
                namespace: path.namespace.clone(),
                name: Some(path.name.clone()),
                subresource: None,
                seen: 0,
                narrowed: false,
                annotations: Annotations::default(),
            };
            self.settle_object(&op, path).await?;
        }
        Ok(())
    }

    /// Again where its key was changed meanwhile: what is buried below the switch is taken away at the same time.
    async fn settle_object(&self, op: &Operation, path: &ObjectPath) -> Result<()> {
        for _ in 0..ATTEMPTS {
            let (entry, own) = self.cache.get_for_update(&op.plane, path).await?;
            let Some(entry) = entry else { return Ok(()) };
            let value = entry.value();
            let posting = Posting { new: Some(&value), old: Some(&value), entry: Some(&entry), stored: &[] };
            let mut plan = Plan::default();
            self.plan_allowances(op, own, posting, &mut plan).await?;
            if plan.also.is_empty() && plan.demands.is_empty() {
                return Ok(());
            }
            match self.commit_planned(op, (path, own), Vec::new(), Vec::new(), (posting, plan)).await? {
                Committed::Done(_) => return Ok(()),
                Committed::Refused(now) => self.cache.see(newest(&now)).await?,
            }
        }
        Err(too_many())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_held_above_the_record_that_it_was_made_above_and_for_a_while() {
        let claim = |mark: String| json!({"metadata": {"annotations": {AHEAD: mark}}});
        let now = Timestamp::now();
        let fresh = claim(format!("7 {now}"));
        assert!(mark_of(&fresh, 7).is_some());
        assert_eq!(mark_of(&fresh, 8), None, "the plane stands where it was put");
        assert_eq!(mark_of(&claim(format!("7 {}", now - HELD * 2)), 7), None);
        for other in [json!({}), claim("7".into()), claim("7 soon".into())] {
            assert_eq!(mark_of(&other, 7), None);
        }
    }

    #[test]
    fn a_claim_that_is_held_grows_and_never_shrinks() {
        let held = json!({"spec": {
            "consumerRef": {"kind": "Organization", "name": "acme"},
            "requests": [{"resourceType": "a", "amount": 3}, {"resourceType": "b", "amount": 1}],
        }});
        let requests = |claim: Option<Claim>| claim.unwrap().requests.into_iter().collect::<Vec<_>>();
        let same = at_least(None, &held);
        assert_eq!(requests(same.clone()), [("a".to_owned(), 3), ("b".to_owned(), 1)]);
        let other = same.map(|claim| Claim { requests: [("b".to_owned(), 4)].into(), ..claim });
        assert_eq!(requests(at_least(other, &held)), [("a".to_owned(), 3), ("b".to_owned(), 4)]);
    }
}
