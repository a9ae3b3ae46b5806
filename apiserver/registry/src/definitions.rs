//! The end of a custom resource definition: its objects go first, and whose finalizers hold it is waited for.
//!
//! Where nothing holds its objects they go with it, in one commit. Otherwise the definition gets a finalizer and the
//! condition `Terminating`, its objects are deleted one by one, and the definition goes with the last of them. There is
//! no controller: whoever takes away the last object finishes, and a server that was killed in between goes on with the
//! next delete or with the next object that goes.

use crate::{DeleteOptions, Object, Operation, Registry, WriteOptions, Written, convert};
use freehold_apiserver_cache::{Entry, ListRequest, Seen, codec};
use freehold_apiserver_storage::{Change, Committed, Key, ObjectPath};
use freehold_machinery::{PlaneId, Result, Status, Value, crd, meta};
use jiff::Timestamp;
use std::sync::Arc;

const GROUP: &str = "apiextensions.k8s.io";
const RESOURCE: &str = "customresourcedefinitions";
/// How often the end of a definition is tried when others write it meanwhile.
const ATTEMPTS: usize = 20;

impl Registry {
    /// Deletes a definition; the revision to wait for when somebody else wrote it meanwhile.
    pub(crate) async fn delete_definition(
        &self,
        op: &Operation,
        path: &ObjectPath,
        own: Seen,
        live: &Value,
        options: &DeleteOptions,
    ) -> Result<Result<Written, u64>> {
        let mut marked = live.clone();
        let is_new = !meta::is_deleting(live);
        // Who deletes it once more gives it no time, which the first did not say.
        let is_again = !is_new && live["metadata"]["deletionGracePeriodSeconds"].is_null();
        if is_new {
            crd::begin_deletion(&mut marked, Timestamp::now());
        } else if is_again {
            meta::set(&mut marked, "deletionGracePeriodSeconds", 0);
        }
        if options.dry_run {
            return Ok(Ok(pending(marked)));
        }
        let objects = self.objects_of(&op.plane, live).await?;
        let others = meta::finalizers(live).iter().any(|f| *f != crd::CLEANUP_FINALIZER);
        let change = match !others && !objects.iter().any(|entry| is_held(entry)) {
            true => self.removal(op, path, live, own.below).await?,
            false => vec![Change::Put(Key::object(&op.plane, path), stored(op, &marked)?)],
        };
        let is_gone = !others && !objects.iter().any(|entry| is_held(entry));
        let also = match is_gone {
            true => self.registrations(op, None, Some(live)).await?,
            false => Vec::new(),
        };
        if is_new || is_again || is_gone {
            match self.ledger.commit(op, path, own, change, also).await? {
                Committed::Done(revision) => {
                    meta::set(&mut marked, "resourceVersion", revision.to_string());
                    if is_gone {
                        self.free_names(op, live, revision).await?;
                    }
                }
                Committed::Refused(now) => return Ok(Err(freehold_apiserver_ledger::newest(&now))),
            }
        }
        if !is_gone {
            self.delete_objects(op, live, &objects).await?;
            self.settle_definition(op, path).await?;
        }
        Ok(Ok(pending(marked)))
    }

    /// After an object of a definition that is being deleted has gone: finishes, if it was the last one.
    pub(crate) async fn object_gone(&self, op: &Operation, revision: u64) -> Result<()> {
        if !op.ty.terminating || revision == 0 {
            return Ok(());
        }
        self.cache.wait_for(revision).await?;
        let name = format!("{}.{}", op.ty.plural, op.ty.group);
        let path =
            ObjectPath { group: GROUP.to_owned(), resource: RESOURCE.to_owned(), namespace: None, name };
        self.settle_definition(op, &path).await
    }

    /// Takes the finalizer from a definition that is being deleted and has no objects any more, or says that they are
    /// being deleted.
    async fn settle_definition(&self, op: &Operation, path: &ObjectPath) -> Result<()> {
        for _ in 0..ATTEMPTS {
            self.cache.catch_up().await?;
            let (Some(entry), own) = self.cache.get_for_update(&op.plane, path).await? else { return Ok(()) };
            let mut live = entry.value();
            let held = meta::finalizers(&live).contains(&crd::CLEANUP_FINALIZER);
            if !meta::is_deleting(&live) || !held {
                return Ok(());
            }
            let is_empty = self.objects_of(&op.plane, &live).await?.is_empty();
            let mut also = Vec::new();
            let change = if is_empty {
                let rest: Vec<String> = meta::finalizers(&live)
                    .into_iter()
                    .filter(|f| *f != crd::CLEANUP_FINALIZER)
                    .map(str::to_owned)
                    .collect();
                if rest.is_empty() {
                    if let Some(one) = about(op, &path.name) {
                        also = self.registrations(&one, None, Some(&live)).await?;
                    }
                    self.removal_of_definition(op, path, &live, own.below).await?
                } else {
                    meta::set(&mut live, "finalizers", rest);
                    vec![Change::Put(Key::object(&op.plane, path), codec::encode(&live))]
                }
            } else if crd::deletion_in_progress(&mut live, Timestamp::now()) {
                vec![Change::Put(Key::object(&op.plane, path), codec::encode(&live))]
            } else {
                return Ok(());
            };
            if let Committed::Done(revision) = self.ledger.commit(op, path, own, change, also).await? {
                return if is_empty { self.free_names(op, &live, revision).await } else { Ok(()) };
            }
        }
        Err(Status::modified(&freehold_machinery::GroupResource::new(GROUP, RESOURCE), &path.name))
    }

    /// Names that a definition no longer has go to those that wanted them.
    async fn free_names(&self, op: &Operation, gone: &Value, revision: u64) -> Result<()> {
        self.cache.wait_for(revision).await?;
        let request = ListRequest { plane: &op.plane, group: GROUP, resource: RESOURCE, namespace: None };
        for entry in self.cache.list(request).await?.objects {
            let waiting = entry.value();
            if waiting["spec"]["group"] != gone["spec"]["group"] || crd::has_its_names(&waiting) {
                continue;
            }
            let Some(one) = about(op, meta::name(&waiting)) else { return Ok(()) };
            let options = WriteOptions { field_manager: "freehold".to_owned(), ..WriteOptions::default() };
            // Whoever writes it meanwhile gives it its names as well.
            match Box::pin(self.replace(&one, waiting, &options)).await {
                Err(status) if !status.is_conflict() && !status.is_not_found() => return Err(status),
                _ => {}
            }
        }
        Ok(())
    }

    /// What the plane has of a definition's objects.
    async fn objects_of(&self, plane: &PlaneId, definition: &Value) -> Result<Vec<Arc<Entry>>> {
        let group = definition["spec"]["group"].as_str().unwrap_or_default();
        let resource = definition["spec"]["names"]["plural"].as_str().unwrap_or_default();
        // Of names that are taken by others, the objects are theirs.
        if !crd::is_established(definition) {
            return Ok(Vec::new());
        }
        Ok(self.cache.list(ListRequest { plane, group, resource, namespace: None }).await?.objects)
    }

    /// Deletes the objects of a definition; nobody is asked whether they may go.
    async fn delete_objects(&self, op: &Operation, definition: &Value, objects: &[Arc<Entry>]) -> Result<()> {
        let Some(ty) = crd::compile(definition).ok().and_then(|types| types.into_iter().next()) else {
            return Ok(());
        };
        let options =
            DeleteOptions { propagation: Some("Background".to_owned()), ..DeleteOptions::default() };
        for entry in objects {
            let namespace = Some(entry.namespace().to_owned()).filter(|namespace| !namespace.is_empty());
            let one = Operation {
                ty: ty.clone(),
                namespace,
                name: Some(entry.name().to_owned()),
                subresource: None,
                ..op.clone()
            };
            match Box::pin(self.delete_unasked(&one, &options)).await {
                Err(status) if !status.is_not_found() => return Err(status),
                _ => {}
            }
        }
        Ok(())
    }
}

/// An operation on a definition, for the sake of another one in the same plane.
fn about(op: &Operation, name: &str) -> Option<Operation> {
    let ty = op.types.find(GROUP, "v1", RESOURCE)?.clone();
    Some(Operation { ty, namespace: None, name: Some(name.to_owned()), subresource: None, ..op.clone() })
}

fn stored(op: &Operation, marked: &Value) -> Result<bytes::Bytes> {
    let mut stored = convert::to_stored(&op.ty, marked.clone())?;
    meta::remove(&mut stored, "resourceVersion");
    Ok(codec::encode(&stored))
}

fn pending(object: Value) -> Written {
    Written { object: Object::Value(Arc::new(object)), created: false, pending: false, warnings: Vec::new() }
}

/// Whether an object has finalizers.
fn is_held(entry: &Entry) -> bool {
    !meta::finalizers(&entry.value()).is_empty()
}
