//! Deletes: at once, or begun and left to finalizers, a grace period or the garbage collector.

use crate::predicates::is_definition;
use crate::predicates::is_released;
use crate::{DeleteOptions, List, ListOptions, Object, Operation, Registry, Written, strategy};
use freehold_apiserver_cache::{Below, Entry, ListRequest, Seen, codec};
use freehold_apiserver_ledger::Posting;
use freehold_apiserver_storage::{Change, Commit, Committed, Expect, Key, KeyRange, ObjectPath, StoreError};
use freehold_machinery::{GroupResource, Result, Status, Value, crd, meta, status::FieldError};
use futures_util::future::try_join_all;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use std::sync::Arc;

/// How often a delete is tried again when others write the same object meanwhile.
const ATTEMPTS: usize = 50;
/// Objects that one page of a deletecollection reads.
const PAGE: usize = 500;
/// Deletes of a deletecollection that are under way at a time: what commits together waits for the disk once.
const AT_ONCE: usize = 16;

/// Objects of a layer that one commit hides.
const HIDDEN_AT_ONCE: usize = 100;

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

impl Registry {
    /// Deletes one object, or marks it where something has to end first.
    ///
    /// # Errors
    /// A 404 where it is absent, a 409 where it is not the one that the preconditions name, and what admission refuses it with.
    pub async fn delete(&self, op: &Operation, options: &DeleteOptions) -> Result<Written> {
        self.delete_in_any_version(op, options, true).await
    }

    /// Deletes one object without asking admission, as part of something that was admitted.
    pub(crate) async fn delete_unasked(&self, op: &Operation, options: &DeleteOptions) -> Result<Written> {
        self.delete_in_any_version(op, options, false).await
    }

    /// Deletes one object, in the version that it is stored in where that of the operation can't be had.
    async fn delete_in_any_version(
        &self,
        op: &Operation,
        options: &DeleteOptions,
        asks: bool,
    ) -> Result<Written> {
        match (self.delete_one(op, options, asks).await, op.as_stored()) {
            (Err(status), Some(stored)) if status.code == 500 => {
                self.delete_one(&stored, options, asks).await
            }
            (done, _) => done,
        }
    }

    async fn delete_one(&self, op: &Operation, options: &DeleteOptions, asks: bool) -> Result<Written> {
        check_options(options)?;
        let path = op.path();
        let mut refused = None;
        for _ in 0..ATTEMPTS {
            self.see_for(op, refused).await?;
            let (entry, own) = self.cache.get_for_update(&op.plane, &path).await?;
            let entry = entry.ok_or_else(|| op.not_found())?;
            let live = self.converter.to_served(&op.plane, &op.ty, entry.value()).await?;
            check_preconditions(op, options, &live)?;
            if own.below == Below::Kept {
                let why =
                    "it comes from the class of this control plane, which doesn't allow it to be deleted";
                return Err(Status::forbidden(&op.ty.group_resource(), op.name(), why));
            }
            if let Err(status) = self.check_api_deletion(op, (&live, own), options).await {
                self.reopen_binding(op, (&path, own), &live).await?;
                return Err(status);
            }
            self.check_referrers(op).await?;
            let warnings = if asks { self.admit_delete(op, &live, options).await? } else { Vec::new() };
            if !options.dry_run
                && let Some(revision) = self.close_binding(op, (&path, own), &live).await?
            {
                refused = Some(revision);
                continue;
            }
            if is_definition(&op.ty) {
                match self.delete_definition(op, &path, own, &live, options).await? {
                    Ok(written) => return Ok(Written { warnings, ..written }),
                    Err(revision) => refused = Some(revision),
                }
                continue;
            }
            let marked = mark(op, &live, options);
            self.check_projects(op, &live, &marked).await?;
            if is_released(&marked) || (!meta::is_deleting(&marked)) {
                match self.finish(op, &path, own, (&live, &entry), options).await? {
                    Ok(revision) => {
                        self.object_gone(op, revision).await?;
                        return Ok(Written { warnings, ..deleted(op, marked, revision, options) });
                    }
                    Err(revision) => refused = Some(revision),
                }
                continue;
            }
            match self.begin(op, &path, own, &live, marked, options).await? {
                Ok(written) => return Ok(Written { warnings, ..written }),
                Err(revision) => refused = Some(revision),
            }
        }
        Err(Status::modified(&op.ty.group_resource(), op.name()))
    }

    /// Refuses to delete an organization with projects that nobody asked to delete.
    async fn check_projects(&self, op: &Operation, live: &Value, marked: &Value) -> Result<()> {
        let asked = meta::annotation(marked, strategy::DELETE_PROJECTS) == Some("true");
        if !strategy::of(&op.ty).has_projects || meta::is_deleting(live) || asked || !op.plane.is_core() {
            return Ok(());
        }
        let (count, Some(one)) = self.ledger.tenancy().projects_of(op.name()).await? else { return Ok(()) };
        let why = format!(
            "it has {count} projects, {one:?} among them: delete those first, or all together with --cascade=foreground"
        );
        Err(Status::conflict(&op.ty.group_resource(), op.name(), &why))
    }

    /// Takes the object away; the revision to wait for when somebody else wrote it meanwhile.
    async fn finish(
        &self,
        op: &Operation,
        path: &ObjectPath,
        own: Seen,
        (live, entry): (&Value, &Entry),
        options: &DeleteOptions,
    ) -> Result<Result<u64, u64>> {
        if options.dry_run {
            return Ok(Ok(0));
        }
        let also = self.companions(op, None, Some(live)).await?;
        let change = self.removal(op, path, live, own.below).await?;
        let posting = Posting { new: None, old: Some(live), entry: Some(entry), stored: &[] };
        Ok(match self.ledger.commit_posted(op, (path, own), change, also, posting).await? {
            Committed::Done(revision) => Ok(revision),
            Committed::Refused(now) => Err(freehold_apiserver_ledger::newest(&now)),
        })
    }

    /// Marks the object as being deleted; the revision to wait for when somebody else wrote it meanwhile.
    async fn begin(
        &self,
        op: &Operation,
        path: &ObjectPath,
        own: Seen,
        live: &Value,
        mut marked: Value,
        options: &DeleteOptions,
    ) -> Result<Result<Written, u64>> {
        let written = |value: Value| Written {
            object: Object::Value(Arc::new(value)),
            created: false,
            pending: true,
            warnings: Vec::new(),
        };
        if marked == *live || options.dry_run {
            return Ok(Ok(written(marked)));
        }
        meta::remove(&mut marked, "resourceVersion");
        let stored = self.to_stored(op, marked.clone()).await?;
        let change = vec![Change::Put(Key::object(&op.plane, path), codec::encode(&stored))];
        let also = self.platform_changes(op, Some(&marked), Some(live)).await?;
        Ok(match self.ledger.commit(op, path, own, change, also).await? {
            Committed::Done(revision) => {
                meta::set(&mut marked, "resourceVersion", revision.to_string());
                Ok(written(marked))
            }
            Committed::Refused(now) => Err(freehold_apiserver_ledger::newest(&now)),
        })
    }

    /// Deletes every object that the options select; gives what was found.
    ///
    /// # Errors
    /// A 400 for selectors that make no sense, and what the first deletion that fails is refused with.
    pub async fn delete_collection(
        &self,
        op: &Operation,
        selection: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<List> {
        match (self.delete_selected(op, selection, options).await, op.as_stored()) {
            // Of fields to select by, another version may have none.
            (Err(status), Some(stored)) if status.code == 500 && selection.field_selector.is_empty() => {
                self.delete_selected(&stored, selection, options).await
            }
            (done, _) => done,
        }
    }

    async fn delete_selected(
        &self,
        op: &Operation,
        selection: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<List> {
        check_options(options)?;
        let mut page = ListOptions {
            limit: if selection.limit > 0 { selection.limit } else { PAGE },
            ..selection.clone()
        };
        let mut all = List { items: Vec::new(), revision: 0, continue_token: String::new(), remaining: None };
        loop {
            let found = self.list(op, &page).await?;
            for some in found.items.chunks(AT_ONCE) {
                let mut deletes = Vec::with_capacity(AT_ONCE);
                for object in some {
                    deletes.push(self.delete_found(op, object, options));
                }
                try_join_all(deletes).await?;
            }
            all.revision = found.revision;
            all.items.extend(found.items);
            if found.continue_token.is_empty() || selection.limit > 0 {
                return Ok(all);
            }
            page =
                ListOptions { continue_token: found.continue_token, resource_version: String::new(), ..page };
        }
    }

    /// Deletes one object of a collection. That it is gone or another already is no error, unless the client had a condition.
    async fn delete_found(&self, op: &Operation, object: &Object, options: &DeleteOptions) -> Result<()> {
        let asked = options.uid.is_some() || options.resource_version.is_some();
        let value = object.value();
        let mut one = op.clone();
        one.name = Some(meta::name(&value).to_owned());
        if op.ty.namespaced {
            one.namespace = Some(meta::namespace(&value).to_owned());
        }
        let mut options = options.clone();
        // Without the client's own, what is deleted is what was found; another of its name stays.
        options.uid = options.uid.or_else(|| Some(meta::uid(&value).to_owned()));
        match self.delete(&one, &options).await {
            Ok(_) => Ok(()),
            Err(status) if status.is_not_found() || status.is_conflict() && !asked => Ok(()),
            Err(status) => Err(status),
        }
    }

    /// What is taken away with an object: its own key, hidden where a layer has one of that name; and with a CRD all of
    /// its objects.
    pub(crate) async fn removal(
        &self,
        op: &Operation,
        path: &ObjectPath,
        last: &Value,
        below: Below,
    ) -> Result<Vec<Change>> {
        let anew = match self.registered_anew(op, last).await? {
            None => self.standing_anew(op, below).await?,
            anew => anew,
        };
        if let Some(anew) = anew {
            return Ok(vec![Change::Put(Key::object(&op.plane, path), codec::encode(&anew))]);
        }
        match is_definition(&op.ty) {
            true => self.removal_of_definition(op, path, last, below).await,
            false => Ok(vec![gone(Key::object(&op.plane, path), below)]),
        }
    }

    /// What is taken away with a CRD. Objects that a layer has a part in are hidden one by one before. Of names that it
    /// never had, the objects are another's.
    pub(crate) async fn removal_of_definition(
        &self,
        op: &Operation,
        path: &ObjectPath,
        last: &Value,
        below: Below,
    ) -> Result<Vec<Change>> {
        let mut changes = vec![gone(Key::object(&op.plane, path), below)];
        let (group, plural) = (last["spec"]["group"].as_str(), last["spec"]["names"]["plural"].as_str());
        if let (Some(group), Some(plural), true) = (group, plural, crd::is_established(last))
            && !self.hide_all(op, group, plural).await?
        {
            changes.push(Change::DeleteRange(KeyRange::resource(&op.plane, group, plural, None)));
        }
        changes.extend(self.ledger.forget_shared(&op.plane));
        Ok(changes)
    }

    /// Takes away every object of a resource that a layer has objects of, in commits of bounded size; `false` where none
    /// has.
    async fn hide_all(&self, op: &Operation, group: &str, resource: &str) -> Result<bool> {
        if !self.cache.stack(&op.plane).await?.has(group, resource) {
            return Ok(false);
        }
        let request = ListRequest { plane: &op.plane, group, resource, namespace: None };
        let objects = self.cache.list(request).await?.objects;
        for chunk in objects.chunks(HIDDEN_AT_ONCE) {
            let mut commit = Commit::default();
            for entry in chunk {
                let namespace = Some(entry.namespace().to_owned()).filter(|namespace| !namespace.is_empty());
                let (group, resource) = (group.to_owned(), resource.to_owned());
                let path = ObjectPath { group, resource, namespace, name: entry.name().to_owned() };
                let (_, seen) = self.cache.get_for_update(&op.plane, &path).await?;
                commit.expect = vec![Expect { key: Key::stack(&op.plane), modified: seen.record }];
                commit.changes.push(gone(Key::object(&op.plane, &path), seen.below));
            }
            let done = self.stores.of(&op.plane).commit(commit).await.map_err(StoreError::of_commit)?;
            if let Committed::Refused(_) = done {
                return Err(Status::modified(&op.ty.group_resource(), op.name()));
            }
        }
        Ok(true)
    }
}

/// The removal of an object's own key, above what lies below.
pub(crate) fn gone(key: Key, below: Below) -> Change {
    if below == Below::Hideable { Change::Put(key, codec::whiteout()) } else { Change::Delete(key) }
}

/// What a finished delete answers.
fn deleted(op: &Operation, mut last: Value, revision: u64, options: &DeleteOptions) -> Written {
    if !options.dry_run {
        meta::set(&mut last, "resourceVersion", revision.to_string());
    }
    let object = if strategy::of(&op.ty).returns_deleted {
        last
    } else {
        let (name, uid) = (meta::name(&last), meta::uid(&last));
        let mut details = json!({"name": name, "kind": op.ty.plural, "uid": uid});
        if !op.ty.group.is_empty() {
            details["group"] = op.ty.group.clone().into();
        }
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
    };
    Written { object: Object::Value(Arc::new(object)), created: false, pending: false, warnings: Vec::new() }
}

fn check_options(options: &DeleteOptions) -> Result<()> {
    let invalid = |error| Err(Status::invalid("meta.k8s.io", "DeleteOptions", "", &[error]));
    let known = ["Background", "Foreground", "Orphan"];
    match (&options.propagation, options.orphan_dependents) {
        (Some(_), Some(_)) => {
            let detail = "orphanDependents and deletionPropagation cannot be both set";
            invalid(FieldError::invalid("propagationPolicy", json!(options.propagation), detail))
        }
        (Some(policy), None) if !known.contains(&policy.as_str()) => {
            let supported = ["Background", "Foreground", "Orphan", "nil"];
            invalid(FieldError::not_supported("propagationPolicy", json!(policy), &supported))
        }
        _ => Ok(()),
    }
}

fn check_preconditions(op: &Operation, options: &DeleteOptions, live: &Value) -> Result<()> {
    let checks = [
        ("UID", "deleted and then recreated", &options.uid, meta::uid(live)),
        ("ResourceVersion", "modified", &options.resource_version, meta::resource_version(live)),
    ];
    for (what, fate, wanted, actual) in checks {
        if let Some(wanted) = wanted
            && wanted != actual
        {
            let why = format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record ({actual}). \
                 The object might have been {fate}"
            );
            // Kubernetes names the kind here, where other conflicts name the resource.
            return Err(Status::conflict(&GroupResource::new(&op.ty.group, &op.ty.kind), op.name(), &why));
        }
    }
    Ok(())
}

/// The object with its deletion begun: finalizers by propagation policy, time and grace period. Without a finalizer or
/// a grace period it has no `deletionTimestamp`: it can go at once.
fn mark(op: &Operation, live: &Value, options: &DeleteOptions) -> Value {
    let mut marked = live.clone();
    let mut finalizers: Vec<String> = meta::finalizers(live).into_iter().map(str::to_owned).collect();
    let policy = options
        .propagation
        .as_deref()
        .or(options.orphan_dependents.map(|o| if o { "Orphan" } else { "Background" }));
    let wanted = match policy {
        Some("Foreground") => Some(FOREGROUND),
        Some("Orphan") => Some(ORPHAN),
        Some(_) => None,
        None => finalizers.iter().find_map(|f| [FOREGROUND, ORPHAN].into_iter().find(|known| known == f)),
    };
    finalizers.retain(|f| f != FOREGROUND && f != ORPHAN);
    finalizers.extend(wanted.map(str::to_owned));
    if finalizers.is_empty() {
        meta::remove(&mut marked, "finalizers");
    } else {
        meta::set(&mut marked, "finalizers", finalizers.clone());
    }
    let default = strategy::of(&op.ty).grace(live);
    let grace = options.grace_period.filter(|_| default > 0).unwrap_or(default).max(0);
    let held = live["spec"]["finalizers"].as_array().is_some_and(|f| !f.is_empty());
    // What can be waited for is marked even where there is nothing to wait for.
    let at_once = grace == 0 && !strategy::of(&op.ty).is_graceful();
    if finalizers.is_empty() && at_once && !held && !meta::is_deleting(live) {
        return marked;
    }
    let before = live["metadata"]["deletionGracePeriodSeconds"].as_i64();
    if !meta::is_deleting(live) || before.is_some_and(|before| grace < before) {
        let at = Timestamp::now()
            .checked_add(SignedDuration::from_secs(grace))
            .unwrap_or_else(|_| Timestamp::now());
        meta::set(&mut marked, "deletionTimestamp", at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        meta::set(&mut marked, "deletionGracePeriodSeconds", grace);
        if op.ty.generation && !meta::is_deleting(live) {
            meta::set(&mut marked, "generation", live["metadata"]["generation"].as_i64().unwrap_or(0) + 1);
        }
    }
    (strategy::of(&op.ty).begin_delete)(&mut marked);
    marked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_propagation_policy_is_refused() {
        let options = DeleteOptions { propagation: Some("Sideways".into()), ..DeleteOptions::default() };
        assert_eq!(check_options(&options).unwrap_err().code, 422);
    }

    #[test]
    fn now_has_whole_seconds() {
        assert_eq!(freehold_apiserver_operation::now().len(), "2026-01-01T00:00:00Z".len());
    }
}
