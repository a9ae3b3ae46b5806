//! Quota's own kinds, which the core plane serves: what is written of them by hand keeps the buckets right, too.

use crate::{
    Ledger,
    accounts::{add_claim, add_grant, check_registered, namespace_of, put},
    plan::{Plan, Posting, path},
};
use freehold_apiserver_cache::ListRequest;
use freehold_apiserver_operation::{Operation, now};
use freehold_apiserver_quota::{
    BUCKETS, Balance, CLAIM_POLICIES, CLAIMS, Consumer, ConsumerKind, GRANT_POLICIES, GRANTS, GROUP,
    REGISTRATIONS, bucket, check_policy,
    objects::{self, CORRECTED_AT, CORRECTED_BY},
};
use freehold_machinery::{GroupResource, PlaneId, Result, Status, Value, meta, status::FieldError};
use std::collections::BTreeMap;
use uuid::Uuid;

/// Who gives claims of planes that are gone back.
const SERVER: &str = "system:apiserver";

impl Ledger {
    /// What a write of one of quota's own objects does to buckets.
    pub(crate) async fn plan_own_kind(
        &self,
        op: &Operation,
        posting: Posting<'_>,
        plan: &mut Plan,
    ) -> Result<()> {
        match op.ty.plural.as_str() {
            GRANTS => self.plan_grant(op, posting, plan).await,
            CLAIMS => self.plan_claim(op, posting, plan).await,
            BUCKETS => self.plan_bucket(op, posting, plan),
            REGISTRATIONS if posting.new.is_none() => self.check_unused(op, posting.old).await,
            REGISTRATIONS if posting.old.is_none() => self.check_first(op, posting.new).await,
            CLAIM_POLICIES | GRANT_POLICIES => match posting.new.map_or(Ok(()), check_policy) {
                Ok(()) => Ok(()),
                Err(why) => Err(invalid(op, "spec", &why)),
            },
            _ => Ok(()),
        }
    }

    /// 422 unless an object is where its consumer's buckets are, and of what is registered.
    async fn check_consumer(
        &self,
        op: &Operation,
        object: &Value,
        amounts: &BTreeMap<String, i64>,
    ) -> Result<Consumer> {
        let consumer = bucket::consumer(object)
            .ok_or_else(|| invalid(op, "spec.consumerRef", "must be an Organization or a Project"))?;
        let organization = match consumer.kind {
            ConsumerKind::Organization => Some(consumer.name.as_str().into()),
            ConsumerKind::Project => self.tenancy.organization_of(&consumer.name).await?,
        };
        let namespace = organization.map(|organization| namespace_of(&organization));
        if namespace.as_deref() != Some(meta::namespace(object)) {
            let why = "must be the organization whose namespace this is in, or one of its projects";
            return Err(invalid(op, "spec.consumerRef.name", why));
        }
        let rules = self.rules().await?;
        for resource in amounts.keys() {
            check_registered(&rules, resource, consumer.kind)
                .map_err(|why| invalid(op, "spec.resourceType", &why))?;
        }
        Ok(consumer)
    }

    async fn plan_grant(&self, op: &Operation, posting: Posting<'_>, plan: &mut Plan) -> Result<()> {
        let mut sums = BTreeMap::new();
        if let Some((old, consumer)) = posting.old.and_then(|old| Some((old, bucket::consumer(old)?))) {
            add_grant(&mut sums, &consumer, &objects::allowances(old), -1);
        }
        if let Some(new) = posting.new {
            let allowances = objects::allowances(new);
            if posting.old.is_none_or(|old| old["spec"] != new["spec"]) {
                self.check_consumer(op, new, &allowances).await?;
            }
            if let Some(consumer) = bucket::consumer(new) {
                add_grant(&mut sums, &consumer, &allowances, 1);
            }
        }
        plan.demand(op.namespace.as_deref().unwrap_or_default(), sums);
        Ok(())
    }

    async fn plan_claim(&self, op: &Operation, posting: Posting<'_>, plan: &mut Plan) -> Result<()> {
        let mut sums = BTreeMap::new();
        if let Some((old, consumer)) = posting.old.and_then(|old| Some((old, bucket::consumer(old)?))) {
            add_claim(&mut sums, &consumer, &objects::requests(old), -1);
        }
        if let Some(new) = posting.new {
            let requests = objects::requests(new);
            if posting.old.is_none_or(|old| old["spec"] != new["spec"]) {
                self.check_consumer(op, new, &requests).await?;
            }
            if let Some(consumer) = bucket::consumer(new) {
                add_claim(&mut sums, &consumer, &requests, 1);
            }
        }
        sums.retain(|_, change| *change != Balance::default());
        let made = |object: &&Value| object["spec"].get("resourceRef").is_some();
        let by_hand = op.user.name != SERVER && !self.ends(op);
        if let Some(old) = posting.old.filter(made).filter(|_| by_hand && !sums.is_empty()) {
            let what = if posting.new.is_none() { "deleted" } else { "changed" };
            let message = format!("{:?} {what} the claim {:?} of an object", op.user.name, meta::name(old));
            self.note(op, old, &message, plan);
        }
        plan.demand(op.namespace.as_deref().unwrap_or_default(), sums);
        Ok(())
    }

    /// Buckets are made by the server. Who corrects one is named in it and in an event.
    fn plan_bucket(&self, op: &Operation, posting: Posting<'_>, plan: &mut Plan) -> Result<()> {
        let forbidden = |why: &str| Err(Status::forbidden(&op.ty.group_resource(), op.name(), why));
        match (posting.old, posting.new) {
            (None, _) => forbidden("buckets are made by grants"),
            (Some(_), None) if !self.ends(op) => forbidden("buckets go with the last grant and claim"),
            (Some(old), Some(new)) if old["status"] != new["status"] => {
                let (before, after) = (Balance::read(Some(old)), Balance::read(Some(new)));
                let message = format!(
                    "{:?} corrected what is allocated of {} from {} to {}",
                    op.user.name, old["spec"]["resourceType"], before.allocated, after.allocated
                );
                self.note(op, old, &message, plan);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Whether the namespace is on its way out, with all that it has.
    fn ends(&self, op: &Operation) -> bool {
        let namespace = path("", "namespaces", "", op.namespace.as_deref().unwrap_or_default());
        self.cache.peek(&PlaneId::core(), &namespace).is_none_or(|entry| entry.is_deleting())
    }

    /// An event in the same commit.
    fn note(&self, op: &Operation, about: &Value, message: &str, plan: &mut Plan) {
        let id = Uuid::new_v4().simple().to_string();
        let name = format!("{}.{}", meta::name(about), &id[..16]);
        let event = objects::event(about, (&name, &op.user.name), message, &now());
        plan.also.push(put(&path("", "events", meta::namespace(about), &name), 0, event));
    }

    /// A registration that something is granted of stays: what is granted would be claimed without one.
    async fn check_unused(&self, op: &Operation, old: Option<&Value>) -> Result<()> {
        let resource = old.map_or("", |old| old["spec"]["resourceType"].as_str().unwrap_or_default());
        let request =
            ListRequest { plane: &PlaneId::core(), group: GROUP, resource: BUCKETS, namespace: None };
        let buckets = self.cache.list(request).await?.objects;
        match buckets.iter().find(|entry| entry.field("spec.resourceType") == resource) {
            Some(bucket) => {
                let why = format!("it is granted in namespace {:?}", bucket.namespace());
                Err(Status::conflict(&GroupResource::new(GROUP, REGISTRATIONS), op.name(), &why))
            }
            None => Ok(()),
        }
    }

    /// A resource is registered once.
    async fn check_first(&self, op: &Operation, new: Option<&Value>) -> Result<()> {
        let resource = new.map_or("", |new| new["spec"]["resourceType"].as_str().unwrap_or_default());
        match self.rules().await?.registration(resource) {
            Some(_) => Err(invalid(op, "spec.resourceType", "is registered already")),
            None => Ok(()),
        }
    }
}

fn invalid(op: &Operation, field: &str, why: &str) -> Status {
    let error = FieldError::new(freehold_machinery::status::FieldErrorKind::Invalid, field, why);
    Status::invalid(&op.ty.group, &op.ty.kind, op.name(), &[error])
}

/// Fills in the status of quota's own kinds: it says what the server makes of the spec, and nobody else writes it but who
/// corrects a bucket.
pub fn settle(op: &Operation, draft: &mut Value, old: Option<&Value>) {
    if op.plane != PlaneId::core() || op.ty.group != GROUP {
        return;
    }
    let now = now();
    let generation = draft["metadata"]["generation"].as_i64().unwrap_or(1);
    let condition = match op.ty.plural.as_str() {
        REGISTRATIONS => ["Active", "RegistrationActive", "Registration counts"],
        GRANTS => ["Active", "GrantActive", "Grant counts"],
        CLAIM_POLICIES | GRANT_POLICIES if draft["spec"]["disabled"] == true => {
            ["Ready", "PolicyDisabled", "Policy does nothing"]
        }
        CLAIM_POLICIES | GRANT_POLICIES => ["Ready", "PolicyReady", "Policy counts"],
        CLAIMS => {
            draft["status"] = objects::granted(draft, old, &now);
            return;
        }
        BUCKETS => return correct(op, draft, old, &now),
        _ => return,
    };
    draft["status"] = serde_json::json!({
        "observedGeneration": generation, "conditions": objects::conditions(old, condition, generation, &now),
    });
}

/// What is allocated of a bucket, and to how many, can be corrected; all else of its status follows from it and from its
/// grants.
fn correct(op: &Operation, draft: &mut Value, old: Option<&Value>, now: &str) {
    let Some(old) = old else { return };
    let (before, given) = (Balance::read(Some(old)), Balance::read(Some(draft)));
    let after = match op.subresource.as_deref() {
        Some("status") => Balance { allocated: given.allocated, claims: given.claims, ..before },
        _ => before,
    };
    draft["status"] = after.status();
    if after != before {
        draft["metadata"]["annotations"][CORRECTED_BY] = op.user.name.clone().into();
        draft["metadata"]["annotations"][CORRECTED_AT] = now.into();
    }
}
