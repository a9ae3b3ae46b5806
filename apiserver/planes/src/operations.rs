//! Operations on whole planes: snapshots, forks, restores, deletion.
//!
//! Each can be killed between any two of its commits and be done again: a snapshot counts when it is sealed and goes on where
//! it was, and a plane is put above other layers, and rid of its own objects, in one small commit.

use crate::planes::is_own;
use crate::{
    Planes, burial,
    directory::{self, ProjectInfo},
    layers::{StackRecord, read_stack},
    stored::{self, LayerRecord, Merged, Origin, Released, Writer},
};
use freehold_apiserver_cache::Layer;
use freehold_apiserver_storage::{
    Change, Commit, Committed, Expect, Hold, Key, KeyRange, KeyValue, LayerId, Range, StoreError,
};
use freehold_machinery::{GroupResource, PlaneId, Result, Status, meta, tenancy::OrganizationName};
use futures_util::FutureExt;
use std::sync::Arc;

/// How often a commit is tried again when others change the same meanwhile.
const ATTEMPTS: usize = 20;

fn planes() -> GroupResource {
    GroupResource::new("", "planes")
}

/// The key that lists a plane among those with a record.
fn listed(plane: &PlaneId) -> Key {
    Key::system(&format!("stacks/{plane}"))
}

/// Removes the records that are kept of a plane beside its own keys.
fn beside(plane: &PlaneId) -> [Change; 2] {
    [Change::Delete(Key::usage(plane)), Change::Delete(Key::allocations(plane))]
}

/// The layer of a plane's record.
fn layer_of(record: Option<&KeyValue>) -> Option<LayerId> {
    read_stack(record?)?.layer.parse().ok()
}

/// What a client sees of a revision that can't be read.
fn gone(error: StoreError) -> Status {
    match error {
        StoreError::Compacted { asked, oldest } => Status::expired(format!(
            "revision {asked} is not kept any more; the oldest that can be read is {oldest}"
        )),
        other => other.into(),
    }
}

/// Writes what is read, and seals it. After an error what was written stays, for the one who goes on with it, unless that
/// can't be.
async fn copy(mut from: Merged, mut writer: Writer) -> Result<LayerRecord> {
    loop {
        match from.next().await {
            Ok(Some((path, item))) => writer.put(&path, item.value).await?,
            Ok(None) => return writer.seal().await,
            Err(error) => {
                if matches!(error, StoreError::Compacted { .. }) {
                    writer.abandon().await?;
                }
                return Err(gone(error));
            }
        }
    }
}

impl Planes {
    /// Copies what a plane has, as of a revision (the latest where none is given), into a layer, and seals that. The
    /// operation is idempotent.
    ///
    /// # Errors
    /// 409 for a layer of another source, 410 for a compacted revision, 400 for a future one, 503 where the store
    /// does not answer.
    pub async fn snapshot(
        self: &Arc<Self>,
        plane: &PlaneId,
        layer: &LayerId,
        at: Option<u64>,
    ) -> Result<LayerRecord> {
        if let Some((record, _)) = stored::record(&**self.stores.of(plane), layer).await?
            && record.sealed
        {
            if record.source != plane.as_str() || at.is_some_and(|at| at != record.revision) {
                let why = format!("it is a snapshot of {} at {}", record.source, record.revision);
                return Err(Status::conflict(&stored::resource(), layer.as_str(), &why));
            }
            return Ok(record);
        }
        let running = {
            let mut all = self.snapshots.0.lock();
            let start = || {
                let (planes, plane, layer) = (self.clone(), plane.clone(), layer.clone());
                let make = async move {
                    let made = planes.make_snapshot(&plane, &layer, at).await;
                    planes.snapshots.0.lock().remove(&layer);
                    made
                };
                let running = make.boxed().shared();
                tokio::spawn(running.clone());
                running
            };
            all.entry(layer.clone()).or_insert_with(start).clone()
        };
        running.await
    }

    /// Whether a project is being deleted, as of now.
    async fn is_deleting(&self, info: &ProjectInfo) -> Result<bool> {
        // What is being deleted stays so.
        Ok(info.deleting || meta::is_deleting(&self.core_object("projects", &info.name).await?.value()))
    }

    /// Holds what a plane has now. 409 where its project is being deleted, and with it what it has, little by little.
    pub(crate) async fn hold(&self, plane: &PlaneId) -> Result<Hold> {
        let hold = self.stores.of(plane).hold().await?;
        if !is_own(plane) && self.root.is_core() {
            // Asked after the hold: what is not being deleted by now was whole then.
            match self.directory.find_plane(plane).await? {
                Some(info) if self.is_deleting(&info).await? => {
                    return Err(Status::conflict(
                        &crate::planes::resource("projects"),
                        &info.name,
                        "it is being deleted",
                    ));
                }
                None if self.is_empty(plane).await? => {
                    return Err(Status::not_found(&planes(), plane.as_str()));
                }
                _ => {}
            }
        }
        Ok(hold)
    }

    async fn make_snapshot(&self, plane: &PlaneId, layer: &LayerId, at: Option<u64>) -> Result<LayerRecord> {
        let hold = self.hold(plane).await?;
        let revision = at.unwrap_or(hold.revision);
        if revision > hold.revision {
            // Without the latest one, which is another each time: who notes this in an object makes the next.
            return Err(Status::bad_request(format!("revision {revision} is yet to come")));
        }
        let unfinished = Writer::unfinished(self.stores.of(plane), layer, plane.as_str()).await?;
        if let Some(writer) = unfinished.filter(|writer| at.is_none_or(|at| at == writer.revision())) {
            match self.go_on(plane, writer).await {
                // What it was begun as of is not kept any more: then it is begun as of now.
                Err(status) if status.code == 410 && at.is_none() => {}
                done => return done,
            }
        }
        let mut from = Merged::new(self.stores.of(plane), plane, revision, "").await.map_err(gone)?;
        // Before anything is written.
        from.peek().await.map_err(gone)?;
        let organization = self.organization_of(plane).await?.map(|organization| organization.to_string());
        let origin = Origin { source: plane.to_string(), organization, revision };
        let writer = Writer::begin(self.stores.of(plane).clone(), layer.clone(), origin).await?;
        copy(from, writer).await
    }

    async fn go_on(&self, plane: &PlaneId, writer: Writer) -> Result<LayerRecord> {
        let from = Merged::new(self.stores.of(plane), plane, writer.revision(), writer.cursor()).await;
        copy(from.map_err(gone)?, writer).await
    }

    /// The organization that owns a plane's project, as of now; `None` for a plane without a project.
    pub(crate) async fn organization_of(&self, plane: &PlaneId) -> Result<Option<OrganizationName>> {
        let info = self.directory.find_plane(plane).await?;
        Ok(info.and_then(|info| OrganizationName::named(&info.organization)))
    }

    /// Whether a plane can be put above a layer: one that is sealed, and of the plane's own organization. That of the layer was
    /// noted when it was begun, so it outlives the project that the layer is from.
    async fn is_open_to(&self, record: &LayerRecord, plane: &PlaneId) -> Result<bool> {
        let own = self.organization_of(plane).await?;
        let own = own.as_ref().map(OrganizationName::as_str);
        Ok(record.sealed && !record.released && record.organization.as_deref() == own)
    }

    /// Puts a plane above a layer; from the revision on that is returned, all that it had of its own before counts as
    /// absent. The keys are taken away afterwards, little by little. An operation that was done already changes nothing.
    ///
    /// # Errors
    /// 404 for a layer that is not there, not sealed, released, or of another organization.
    pub async fn switch(&self, plane: &PlaneId, layer: &LayerId, operation: &str) -> Result<u64> {
        if is_own(plane) {
            return Err(Status::conflict(
                &planes(),
                plane.as_str(),
                "only planes of projects have snapshots",
            ));
        }
        // Loaded before, so that the switch takes no time.
        let loaded = self.layers.layer(layer).await;
        for _ in 0..ATTEMPTS {
            let before = self.stores.of(plane).get(&Key::stack(plane)).await?;
            let stands = before.as_ref().and_then(read_stack);
            if let Some(before) =
                before.as_ref().filter(|_| stands.as_ref().is_some_and(|stands| stands.has_done(operation)))
            {
                self.cache.wait_for(before.modified).await?;
                return Ok(before.modified);
            }
            let sealed = match stored::record(&**self.stores.of(plane), layer).await? {
                Some((record, modified)) if self.is_open_to(&record, plane).await? => modified,
                _ => return Err(Status::not_found(&stored::resource(), layer.as_str())),
            };
            let expect = vec![
                Expect { key: Key::layer(layer), modified: sealed },
                Expect { key: Key::stack(plane), modified: before.as_ref().map_or(0, |kv| kv.modified) },
            ];
            let record = StackRecord::after(stands, layer, operation);
            let value = serde_json::to_vec(&record).map_err(Status::internal)?;
            let mut changes = vec![
                Change::Put(Key::stack(plane), value.into()),
                Change::Put(Key::layer_plane(layer, plane), b"{}"[..].into()),
                Change::Put(listed(plane), b"{}"[..].into()),
                Change::Put(burial::note(plane), b"{}"[..].into()),
            ];
            let left = layer_of(before.as_ref()).filter(|left| left != layer);
            changes.extend(left.iter().map(|left| Change::Delete(Key::layer_plane(left, plane))));
            if let Committed::Done(revision) =
                self.stores.of(plane).commit(Commit { expect, changes }).await?
            {
                self.cache.wait_for(revision).await?;
                drop(loaded);
                self.upkeep.notify_one();
                return Ok(revision);
            }
        }
        Err(Status::modified(&planes(), plane.as_str()))
    }

    /// Whether an operation has put a plane above its layer already.
    ///
    /// # Errors
    /// 503 where the store does not answer.
    pub async fn has_done(&self, plane: &PlaneId, operation: &str) -> Result<bool> {
        let record = self.stores.of(plane).get(&Key::stack(plane)).await?;
        Ok(record.as_ref().and_then(read_stack).is_some_and(|found| found.has_done(operation)))
    }

    /// The record of a layer that a plane can be put above.
    async fn open_layer(&self, layer: &LayerId, plane: &PlaneId) -> Result<LayerRecord> {
        match stored::record(&**self.stores.of(plane), layer).await? {
            Some((record, _)) if self.is_open_to(&record, plane).await? => Ok(record),
            _ => Err(Status::not_found(&stored::resource(), layer.as_str())),
        }
    }

    /// Whether a layer is a snapshot of the plane that is to go back to it.
    ///
    /// # Errors
    /// 404 for a layer that the plane can't be put above, 409 for a snapshot of another plane.
    pub async fn check_source(&self, layer: &LayerId, plane: &PlaneId) -> Result<()> {
        match self.open_layer(layer, plane).await?.source == plane.as_str() {
            true => Ok(()),
            false => Err(Status::conflict(
                &stored::resource(),
                layer.as_str(),
                "it is a snapshot of an earlier project of this name; a fork can be made from it",
            )),
        }
    }

    /// What a layer has, for a plane that is to be put above it.
    ///
    /// # Errors
    /// 404 for a layer that the plane can't be put above.
    pub async fn layer(&self, layer: &LayerId, plane: &PlaneId) -> Result<Arc<Layer>> {
        self.open_layer(layer, plane).await?;
        match self.layers.layer(layer).await {
            Err(StoreError::Corrupt(_)) => Err(Status::not_found(&stored::resource(), layer.as_str())),
            found => Ok(found?),
        }
    }

    /// Releases a layer: at once, or with the last plane that stands on it.
    ///
    /// # Errors
    /// 503 where the store does not answer.
    pub async fn release(&self, layer: &LayerId) -> Result<Released> {
        stored::release(self.stores.of_layer(layer), layer).await
    }

    /// Whether a plane has nothing of its own and stands on no snapshot.
    pub(crate) async fn is_empty(&self, plane: &PlaneId) -> Result<bool> {
        let range = Range { limit: 1, keys_only: true, ..Range::all(KeyRange::plane(plane)) };
        Ok(self.stores.of(plane).range(range).await?.items.is_empty())
    }

    /// Removes a plane and all its keys.
    ///
    /// # Errors
    /// 409 for the core and infra planes and for a plane whose project exists and is not being deleted; 503 where
    /// the store does not answer.
    pub async fn delete(&self, plane: &PlaneId) -> Result<()> {
        let reserved = is_own(plane);
        let project = self.directory.find_plane(plane).await?;
        let wanted = match &project {
            Some(info) => !self.is_deleting(info).await?,
            None => false,
        };
        if reserved || wanted {
            let why = "it is in use: delete its project instead";
            return Err(Status::conflict(&planes(), plane.as_str(), why));
        }
        let found = self.cache.survey(plane).await?;
        if let Some(object) = found.held {
            let why = format!("{object} has finalizers: delete it first");
            return Err(Status::conflict(&planes(), plane.as_str(), &why));
        }
        // A fork that was not finished.
        let fork = format!("fork-{plane}").parse().map_err(Status::internal)?;
        if !found.is_small || !self.delete_at_once(plane, &fork).await? {
            self.delete_keys(plane).await?;
            self.release(&fork).await?;
            let commit = Commit { expect: Vec::new(), changes: beside(plane).into() };
            drop(self.stores.of(plane).commit(commit).await?);
        }
        self.cache.forget(plane);
        self.types.forget(plane);
        self.policies.forget(plane);
        self.endpoints.lock().remove(plane);
        Ok(())
    }

    /// Removes the few keys of a plane that stands on nothing, as most do; `false` if it does, or has a fork that was not
    /// finished.
    async fn delete_at_once(&self, plane: &PlaneId, fork: &LayerId) -> Result<bool> {
        let absent = |key| Expect { key, modified: 0 };
        let expect = vec![absent(Key::stack(plane)), absent(Key::layer(fork))];
        let range = std::iter::once(Change::DeleteRange(KeyRange::plane(plane)));
        let changes = range.chain(beside(plane)).collect();
        let done = self.stores.of(plane).commit(Commit { expect, changes }).await?;
        Ok(matches!(done, Committed::Done(_)))
    }

    /// Takes a plane from above its layers, and then its keys, in steps between which others get their turn.
    async fn delete_keys(&self, plane: &PlaneId) -> Result<()> {
        self.bury(plane).await?;
        for _ in 0..ATTEMPTS {
            let record = self.stores.of(plane).get(&Key::stack(plane)).await?;
            let Some(left) = layer_of(record.as_ref()) else {
                return self.clear(plane).await;
            };
            // In memory until the plane is off it, or those who follow the store would have to wait for it to be read.
            let loaded = self.layers.layer(&left).await;
            let modified = record.as_ref().map_or(0, |kv| kv.modified);
            let changes = vec![
                Change::Delete(Key::stack(plane)),
                Change::Delete(Key::layer_plane(&left, plane)),
                Change::Delete(listed(plane)),
            ];
            let expect = vec![Expect { key: Key::stack(plane), modified }];
            if let Committed::Done(revision) =
                self.stores.of(plane).commit(Commit { expect, changes }).await?
            {
                self.cache.wait_for(revision).await?;
                drop(loaded);
                stored::collect(self.stores.of(plane), &left).await?;
            }
        }
        Err(Status::modified(&planes(), plane.as_str()))
    }

    /// Removes a plane's keys, no faster than the cache follows: who asks it for something else meanwhile waits for one
    /// step, however many there are.
    async fn clear(&self, plane: &PlaneId) -> Result<()> {
        let mut rest = Some(KeyRange::plane(plane));
        while let Some(keys) = rest {
            let cleared = self.stores.of(plane).clear_some(keys).await?;
            burial::pace(&self.cache, cleared.revision).await;
            rest = cleared.rest;
        }
        Ok(())
    }

    /// Takes away what is buried in a plane.
    async fn bury(&self, plane: &PlaneId) -> Result<()> {
        burial::finish(&**self.stores.of(plane), &self.cache, plane).await.map_err(Status::from)
    }

    /// 503 for a project that is to be a fork and is not one yet.
    pub(crate) fn check_forked(info: &directory::ProjectInfo) -> Result<()> {
        match info.forking {
            true => {
                Err(Status::unavailable(format!("project {:?} is being forked", info.name)).retry_after(1))
            }
            false => Ok(()),
        }
    }
}
