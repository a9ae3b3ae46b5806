//! Limits of a plane by its class, and what the plane uses of them: a record beside the plane's objects that each of its
//! writes changes in its own commit. Only planes whose class limits what they hold have one; it is counted anew from the
//! plane's objects where there is none, or where the plane was put above another snapshot since.

use crate::{
    Ledger,
    limits::{PlaneLimits, Usage, webhooks},
    plan::{Plan, Posting, path},
};
use freehold_apiserver_cache::{Seen, codec};
use freehold_apiserver_operation::Operation;
use freehold_apiserver_storage::{Change, Commit, Expect, Key, KeyRange, Range, StoreError};
use freehold_machinery::{PlaneId, Result, Status};
use serde::Deserialize;
use std::sync::Arc;

/// Objects that are read at a time to count them.
const PAGE: usize = 500;

impl Ledger {
    /// What the class of a plane allows; `None` for planes of Freehold itself, and where it allows everything.
    pub fn limits(&self, plane: &PlaneId) -> Option<PlaneLimits> {
        self.limits_and_class(plane).map(|(_, limits)| limits)
    }

    /// Limits, and the revision of the class that has them.
    fn limits_and_class(&self, plane: &PlaneId) -> Option<(u64, PlaneLimits)> {
        let owner = self.tenancy.owner(plane)?;
        let path = path("resourcemanager.freehold.dev", "controlplaneclasses", "", &owner.class);
        let entry = self.cache.peek(&PlaneId::core(), &path)?;
        let mut known = self.books.limits.lock();
        if let Some((modified, limits)) = known.get(&owner.class)
            && *modified == entry.modified
        {
            return Some((*modified, limits.clone())).filter(|(_, limits)| *limits != PlaneLimits::default());
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Class {
            spec: Spec,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Spec {
            limits: PlaneLimits,
        }
        let class: Class = serde_json::from_slice(&entry.json()).unwrap_or_default();
        // As many as there are classes, and those that were there before.
        if known.len() > 1000 {
            known.clear();
        }
        known.insert(Arc::clone(&owner.class), (entry.modified, class.spec.limits.clone()));
        Some((entry.modified, class.spec.limits)).filter(|(_, limits)| *limits != PlaneLimits::default())
    }

    pub(crate) fn plan_usage(
        &self,
        op: &Operation,
        own: Seen,
        posting: Posting<'_>,
        plan: &mut Plan,
    ) -> Result<()> {
        let Some((class, limits)) = self.limits_and_class(&op.plane) else { return Ok(()) };
        let size = posting.stored.len().saturating_sub(1);
        if let Some(limit) = limits.object_bytes.filter(|limit| size as i64 > *limit) {
            let why = format!(
                "Request entity too large: the object has {size} bytes, and objects of this control plane can have {limit}"
            );
            return Err(Status::new(413, "RequestEntityTooLarge", why));
        }
        if !limits.counts() {
            return Ok(());
        }
        let (group, resource) = (op.ty.storage.group.as_str(), op.ty.storage.resource.as_str());
        let (mut before, mut after) = (Usage::default(), Usage::default());
        if let Some(entry) = posting.entry.filter(|entry| own.own != 0 && entry.modified == own.own) {
            let version = format!("\"resourceVersion\":\"{}\",", entry.modified).len();
            let bytes = entry.json().len().saturating_sub(version);
            before.add_object(group, resource, bytes, || posting.old.map_or(0, webhooks));
        }
        if let Some(new) = posting.new {
            after.add_object(group, resource, size, || webhooks(new));
        }
        let delta = Usage {
            objects: after.objects - before.objects,
            bytes: after.bytes - before.bytes,
            definitions: after.definitions - before.definitions,
            webhooks: after.webhooks - before.webhooks,
            stack: own.record,
            class,
        };
        plan.usage = Some((delta, limits));
        Ok(())
    }

    pub(crate) async fn book_usage(
        &self,
        op: &Operation,
        delta: Usage,
        limits: &PlaneLimits,
    ) -> Result<(Expect, Change)> {
        let key = Key::usage(&op.plane);
        let store = self.stores.of(&op.plane);
        let found = store.get(&key).await.map_err(StoreError::of_commit)?;
        let known = found.as_ref().and_then(|kv| serde_json::from_slice::<Usage>(&kv.value).ok());
        let is_current = |known: &Usage| known.stack == delta.stack && known.class == delta.class;
        let before = match known.filter(is_current) {
            Some(known) => known,
            None => Usage { class: delta.class, ..self.count(&op.plane, delta.stack).await? },
        };
        let after = before.plus(&delta);
        let rows = limits.rows(&after).into_iter().zip(limits.rows(&before)).zip(limits.rows(&delta));
        for (((what, sum, limit), (_, used, _)), (_, asked, _)) in rows {
            if let Some(limit) = limit.filter(|limit| asked > 0 && sum > *limit) {
                let why = format!(
                    "exceeded limit of this control plane, requested: {what}={asked}, used: {what}={used}, \
                     limited: {what}={limit}"
                );
                return Err(Status::forbidden(&op.ty.group_resource(), op.name(), &why));
            }
        }
        let modified = found.map_or(0, |kv| kv.modified);
        let value = serde_json::to_vec(&after).map_err(Status::internal)?;
        Ok((Expect { key: key.clone(), modified }, Change::Put(key, value.into())))
    }

    /// Counts what a plane has of its own, from its objects.
    async fn count(&self, plane: &PlaneId, stack: u64) -> Result<Usage> {
        let mut usage = Usage { stack, ..Usage::default() };
        let mut range = Range { limit: PAGE, ..Range::all(KeyRange::plane_objects(plane)) };
        loop {
            let page = self.stores.of(plane).range(range.clone()).await;
            let page = page.map_err(StoreError::of_commit)?;
            // All pages are of one moment: the commit fails where the plane has changed since.
            range.at = Some(range.at.unwrap_or(page.revision));
            for item in page.items.iter().filter(|item| item.modified >= stack) {
                let (Some((_, path)), Some(codec::Stored::Json(json))) =
                    (item.key.object_path(), codec::decode(&item.value))
                else {
                    continue;
                };
                let count = || serde_json::from_slice(&json).map_or(0, |object| webhooks(&object));
                usage.add_object(&path.group, &path.resource, json.len(), count);
            }
            let Some(last) = page.items.last().filter(|_| page.more) else { return Ok(usage) };
            range.keys = range.keys.from_key(KeyRange::one(&last.key).end);
        }
    }

    /// What makes the next write count the plane anew, as part of a commit that changes more than one object of it.
    pub(crate) async fn recount_later(&self, plane: &PlaneId) -> Result<Option<(Expect, Change)>> {
        let key = Key::usage(plane);
        let found = self.stores.of(plane).get(&key).await.map_err(StoreError::of_commit)?;
        Ok(found.map(|kv| (Expect { key: key.clone(), modified: kv.modified }, Change::Delete(key))))
    }

    /// Forgets what a plane uses: the next write counts it anew. For what brings many of its objects at once.
    ///
    /// # Errors
    /// Fails where the store does.
    pub async fn forget_usage(&self, plane: &PlaneId) -> Result<()> {
        let commit = Commit { expect: Vec::new(), changes: vec![Change::Delete(Key::usage(plane))] };
        let done = self.stores.of(plane).commit(commit).await;
        done.map(drop).map_err(StoreError::of_commit)
    }

    /// Returns what a plane uses of its own, as it was counted last or is counted now.
    ///
    /// # Errors
    /// Fails where the store or the cache does.
    pub async fn usage(&self, plane: &PlaneId) -> Result<Usage> {
        let key = Key::usage(plane);
        let stack = self.cache.stack(plane).await?.record();
        let class = self.limits_and_class(plane).map_or(0, |(class, _)| class);
        let found = self.stores.of(plane).get(&key).await.map_err(StoreError::of_commit)?;
        let known = found.and_then(|kv| serde_json::from_slice::<Usage>(&kv.value).ok());
        match known.filter(|known| known.stack == stack && known.class == class) {
            Some(known) => Ok(known),
            None => self.count(plane, stack).await,
        }
    }
}
