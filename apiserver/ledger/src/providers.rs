//! Limits that a provider sets on its consumers: how many objects of an exported kind a project or organization has.
//!
//! The count of each consumer is an AllowanceBucket in the namespace of the provider's organization, written in the commit
//! of the object. It is counted anew before anybody is refused, and after each change of the export, so that nothing
//! that went past it (a restore, a deleted project) stays charged.

use crate::{
    Ledger,
    accounts::{put, take_away},
    counted::{COUNTED, Counted},
    plan::{Plan, Posting, path},
};
use freehold_apiserver_cache::{Entry, ListRequest};
use freehold_apiserver_operation::{Operation, now};
use freehold_apiserver_quota::{BUCKETS, Consumer, ConsumerKind, GROUP, bucket::Balance};
use freehold_apiserver_storage::{Change, Expect};
use freehold_machinery::{PlaneId, Result, Status, meta};
use std::sync::Arc;

impl Ledger {
    /// What a provider counts of an object that comes or goes.
    pub(crate) fn plan_provider(&self, op: &Operation, posting: Posting<'_>, plan: &mut Plan) {
        let change = match (posting.new, posting.old) {
            (Some(_), None) => 1,
            (None, Some(_)) => -1,
            _ => return,
        };
        let Some(providers) = self.providers.as_ref().filter(|_| op.ty.since > 0) else { return };
        let Some(owner) = self.tenancy.owner(&op.plane) else { return };
        for limit in providers.limits(&op.ty, &owner) {
            let name = match limit.kind {
                ConsumerKind::Organization => owner.organization.to_string(),
                ConsumerKind::Project => owner.project.to_string(),
            };
            let consumer = Consumer { kind: limit.kind, name };
            let resource = format!("{}/{}/{}.{}", limit.project, limit.export, op.ty.plural, op.ty.group);
            plan.counted.push(Counted { limit, consumer, resource, change });
        }
    }

    /// The buckets of providers after the write.
    pub(crate) async fn book_counted(&self, op: &Operation, plan: &Plan) -> Result<Vec<(Expect, Change)>> {
        let now = now();
        let mut changes = Vec::with_capacity(plan.counted.len());
        for counted in &plan.counted {
            let path = path(GROUP, BUCKETS, &counted.namespace(), &counted.bucket());
            let (entry, seen) = self.cache.get_for_update(&PlaneId::core(), &path).await?;
            let old = entry.as_deref().map(Entry::value);
            let revision = counted.limit.revision.to_string();
            let known = old.as_ref().filter(|old| meta::annotation(old, COUNTED) == Some(&*revision));
            let mut used = match known {
                Some(old) => Balance::read(Some(old)).allocated,
                None => self.count_of(op, counted).await?,
            };
            if counted.change > 0 && used >= counted.limit.count {
                used = self.count_of(op, counted).await?;
                if used >= counted.limit.count {
                    let why = counted.shortage(used).to_string();
                    return Err(Status::forbidden(&op.ty.group_resource(), op.name(), &why));
                }
            }
            match counted.filled(old.as_ref(), used.saturating_add(counted.change), &now) {
                Some(object) => changes.push(put(&path, seen.own, object)),
                None if seen.own != 0 => changes.push(take_away(&path, seen.own)),
                None => {}
            }
        }
        Ok(changes)
    }

    /// How many objects of a type a consumer has now.
    async fn count_of(&self, op: &Operation, counted: &Counted) -> Result<i64> {
        let (group, resource) = (&*op.ty.group, &*op.ty.storage.resource);
        let count = match counted.consumer.kind {
            ConsumerKind::Project => {
                let request = ListRequest { plane: &op.plane, group, resource, namespace: None };
                self.cache.list(request).await?.objects.len()
            }
            ConsumerKind::Organization => {
                let mut count = 0;
                let visit = |plane: &PlaneId, _: Arc<Entry>| {
                    let owner = self.tenancy.owner(plane);
                    if owner.is_some_and(|owner| *owner.organization == *counted.consumer.name) {
                        count += 1;
                    }
                };
                self.cache.list_planes(group, resource, visit).await?;
                count
            }
        };
        Ok(i64::try_from(count).unwrap_or(i64::MAX))
    }
}
