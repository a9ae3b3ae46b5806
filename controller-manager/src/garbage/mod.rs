//! The garbage collector: objects go with their owners.
//!
//! Each type is watched once over all planes, for metadata only. From that comes a [`Graph`] of who depends on whom;
//! what it says is checked with the server before anything is deleted.

mod decide;
mod exported;
mod graph;
mod remote;
mod tenants;
mod types;

use decide::{Action, Observed, decide};
use freehold_client::{Client, DeleteOptions, Error, Patch, PatchOptions, Resource};
use freehold_controllers_context::discovery::group_version;
use freehold_controllers_context::object::items;
use freehold_controllers_context::{Context, Reconcile, Synced};
use freehold_machinery::{PlaneId, Value, meta};
use freehold_runtime::{Outcome, Planes, Queue, Reconciled};
use futures_util::future::BoxFuture;
use graph::{FOREGROUND, Graph, Item, ORPHAN, Owner, OwnerState, is_finalizing, owners};
use serde_json::json;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tenants::Tenants;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Objects looked at once.
const WORKERS: usize = 16;
/// How often every object with owners is looked at without a cause.
const RECHECK: Duration = Duration::from_secs(600);
/// In how many steps that is done, and the time between two of them.
const STEPS: usize = 300;
const STEP: Duration = Duration::from_secs(1);
/// Kinds whose resource is remembered.
const MAX_KINDS: usize = 4096;

/// A plane (none for built-in groups, which are the same everywhere), an `apiVersion` and a kind.
type KindKey = (Option<PlaneId>, String, String);

struct Garbage {
    planes: Planes,
    graph: Arc<Mutex<Graph>>,
    queue: Arc<Queue<Item>>,
    kinds: Mutex<HashMap<KindKey, Arc<Resource>>>,
    tenants: Tenants,
}

/// The types' first lists, as something to wait for.
struct Ready(watch::Receiver<bool>);

impl Synced for Ready {
    fn wait(&self, token: CancellationToken) -> BoxFuture<'static, bool> {
        let mut ready = self.0.clone();
        Box::pin(async move {
            tokio::select! {
                done = ready.wait_for(|ready| *ready) => done.is_ok(),
                () = token.cancelled() => false,
            }
        })
    }
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    let graph = Arc::new(Mutex::new(Graph::default()));
    let ready = Ready(types::Types::start(context, graph.clone(), queue.clone()));
    remote::Remotes::start(context, graph.clone(), queue.clone());
    let planes = context.planes.clone();
    context.tasks.spawn(recheck(planes, graph.clone(), queue.clone(), context.token.clone()));
    // A pair's manager knows of no projects, and needs none.
    let projects = context.planes.only().is_none().then(|| context.projects().store());
    if let Some(projects) = &projects {
        context.wait_for(projects.clone());
    }
    let controller = Garbage {
        planes: context.planes.clone(),
        graph,
        queue: queue.clone(),
        kinds: Mutex::default(),
        tenants: Tenants(projects),
    };
    context.control("garbage-collector", WORKERS, &queue, &[&ready], controller);
}

/// What was missed while a watch was broken is put right by looking again.
async fn recheck(
    planes: Planes,
    graph: Arc<Mutex<Graph>>,
    queue: Arc<Queue<Item>>,
    token: CancellationToken,
) {
    loop {
        tokio::select! {
            () = token.cancelled() => return,
            () = tokio::time::sleep(RECHECK) => {}
        }
        let items = lock(&graph).items();
        // Spread: the queue is never long for it, and what belongs to an owner is looked at together, which asks for it once.
        for some in items.chunks(items.len() / STEPS + 1) {
            for item in some {
                if planes.is_ours(&item.plane) {
                    queue.add_routine(item.clone());
                } else {
                    lock(&graph).unlink(item);
                }
            }
            tokio::select! {
                () = token.cancelled() => return,
                () = tokio::time::sleep(STEP) => {}
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Reconcile for Garbage {
    type Key = Item;

    async fn reconcile(&self, item: Item) -> Reconciled {
        let client = self.planes.client(&item.plane);
        let (seen_owners, seen_uid, finalizing) = {
            let graph = lock(&self.graph);
            (graph.owners_of(&item), graph.uid_of(&item), graph.finalizes(&item))
        };
        let states = self.states(&client, &item, seen_owners).await?;
        // The usual case, a new object whose owner is there, costs no read of the object itself.
        if !finalizing && states.iter().all(|(_, state)| *state == OwnerState::Present) {
            return Ok(Outcome::Done);
        }
        let Some(object) = client.get_opt(&item.resource, item.ns(), &item.name).await? else {
            for affected in lock(&self.graph).missed(&item, seen_uid) {
                self.queue.add(affected);
            }
            return Ok(Outcome::Done);
        };
        let states = self.states(&client, &item, owners(&object)).await?;
        let (dependents, circle) = {
            let graph = lock(&self.graph);
            let bond = |dependent: &Item| self.tenants.bond(dependent, &item);
            let dependents = graph.dependents_of(&item.plane, meta::uid(&object), bond);
            let circle = dependents.all.iter().any(|dependent| graph.finalizes(dependent));
            (dependents, circle)
        };
        let observed = Observed {
            object: &object,
            owners: states,
            dependents: dependents.all.len(),
            blocking: dependents.blocking,
            circle,
        };
        match decide(&observed) {
            Action::Nothing => {}
            Action::Detach(uids) => detach(&client, &item, &object, &uids).await?,
            Action::Delete(propagation) => delete(&client, &item, &object, propagation).await?,
            Action::Unblock => {
                let mut references = items(&object, "/metadata/ownerReferences").to_vec();
                for reference in references.iter_mut().filter_map(Value::as_object_mut) {
                    reference.remove("blockOwnerDeletion");
                }
                patch(&client, &item, &object, "ownerReferences", json!(references)).await?;
                // It is deleted as it is then.
                self.queue.add(item);
            }
            Action::RemoveFinalizer => remove_finalizer(&client, &item, &object, FOREGROUND).await?,
            Action::DeleteDependents => {
                // They must find out now that their owner waits.
                let uid = meta::uid(&object).to_owned();
                lock(&self.graph).answer(item.clone(), uid, OwnerState::Waiting);
                for dependent in dependents.staying {
                    self.queue.add(dependent);
                }
            }
            Action::OrphanDependents => {
                self.orphan(&client, &dependents.all, meta::uid(&object)).await?;
                remove_finalizer(&client, &item, &object, ORPHAN).await?;
            }
        }
        Ok(Outcome::Done)
    }
}

impl Garbage {
    async fn states(
        &self,
        client: &Client,
        item: &Item,
        owners: Vec<Owner>,
    ) -> Result<Vec<(Owner, OwnerState)>, Error> {
        let mut states = Vec::with_capacity(owners.len());
        for owner in owners {
            let state = self.state(client, item, &owner).await?;
            states.push((owner, state));
        }
        Ok(states)
    }

    /// How an owner is, from what is known or from the server.
    async fn state(&self, client: &Client, item: &Item, owner: &Owner) -> Result<OwnerState, Error> {
        if !self.tenants.allow(item, owner) {
            // It neither keeps the object nor takes it along.
            return Ok(OwnerState::Present);
        }
        let Some(resource) = self.resource(client, &item.plane, owner).await? else {
            // A kind that is not served now may be served again: nothing is deleted for it.
            return Ok(OwnerState::Present);
        };
        if resource.namespaced && item.namespace.is_empty() {
            // Not an allowed reference: a namespaced owner of a cluster-scoped object can't be found by its name.
            return Ok(OwnerState::Present);
        }
        let namespace = if resource.namespaced { item.namespace.clone() } else { "".into() };
        let place = Item::new(item.plane.clone(), resource.clone(), namespace, owner.name.as_str().into());
        if let Some(known) = lock(&self.graph).known(&place, &owner.uid) {
            return Ok(known);
        }
        let found = client.get_opt(&resource, item.ns(), &owner.name).await?;
        let state = match found {
            Some(found) if meta::uid(&found) == owner.uid => {
                let waits = is_finalizing(&found) && meta::finalizers(&found).contains(&FOREGROUND);
                if waits { OwnerState::Waiting } else { OwnerState::Present }
            }
            _ => OwnerState::Absent,
        };
        Ok(lock(&self.graph).learn(&place, owner.uid.clone(), state))
    }

    /// The resource of an owner's kind; `None` where the plane does not serve it.
    async fn resource(
        &self,
        client: &Client,
        plane: &PlaneId,
        owner: &Owner,
    ) -> Result<Option<Arc<Resource>>, Error> {
        let key = kind_key(plane, owner);
        if let Some(known) = lock(&self.kinds).get(&key) {
            return Ok(Some(known.clone()));
        }
        let types = match group_version(client, &owner.api_version).await {
            Err(error) if error.is_not_found() => return Ok(None),
            types => types?,
        };
        let Some(found) = types.into_iter().find(|ty| ty.kind == owner.kind) else { return Ok(None) };
        let mut kinds = lock(&self.kinds);
        if kinds.len() >= MAX_KINDS {
            kinds.clear();
        }
        let resource = Arc::new(found.resource);
        kinds.insert(key, resource.clone());
        Ok(Some(resource))
    }

    async fn orphan(&self, client: &Client, dependents: &[Item], owner: &str) -> Result<(), Error> {
        for dependent in dependents {
            if let Some(object) = client.get_opt(&dependent.resource, dependent.ns(), &dependent.name).await?
            {
                detach(client, dependent, &object, &[owner.to_owned()]).await?;
            }
        }
        Ok(())
    }
}

fn kind_key(plane: &PlaneId, owner: &Owner) -> KindKey {
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    let built_in = !group.contains('.') || group.ends_with(".k8s.io") && !group.contains(".x-");
    let plane = if built_in { None } else { Some(plane.clone()) };
    (plane, owner.api_version.clone(), owner.kind.clone())
}

/// Removes an object's references to owners.
async fn detach(client: &Client, item: &Item, object: &Value, uids: &[String]) -> Result<(), Error> {
    let all = items(object, "/metadata/ownerReferences");
    let kept: Vec<&Value> = all.iter().filter(|r| !uids.iter().any(|uid| r["uid"] == *uid)).collect();
    if kept.len() == all.len() {
        return Ok(());
    }
    patch(client, item, object, "ownerReferences", json!(kept)).await
}

async fn remove_finalizer(
    client: &Client,
    item: &Item,
    object: &Value,
    finalizer: &str,
) -> Result<(), Error> {
    let kept: Vec<&str> = meta::finalizers(object).into_iter().filter(|f| *f != finalizer).collect();
    patch(client, item, object, "finalizers", json!(kept)).await
}

/// Replaces a field of an object's metadata, if the object is still the same.
async fn patch(client: &Client, item: &Item, object: &Value, field: &str, value: Value) -> Result<(), Error> {
    let version = meta::resource_version(object);
    let patch = Patch::Merge(json!({"metadata": {"resourceVersion": version, field: value}}));
    match client.patch(&item.resource, item.ns(), &item.name, &patch, &PatchOptions::default()).await {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

async fn delete(
    client: &Client,
    item: &Item,
    object: &Value,
    propagation: freehold_client::Propagation,
) -> Result<(), Error> {
    // Only as it was decided upon: an owner may have been added meanwhile.
    let mut options = DeleteOptions::uid(meta::uid(object)).propagation(propagation);
    options.resource_version = meta::resource_version(object).to_owned();
    match client.delete(&item.resource, item.ns(), &item.name, &options).await {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn custom_kinds_are_remembered_by_plane_and_built_in_ones_once() {
        let owner = |api_version: &str| Owner {
            api_version: api_version.into(),
            kind: "K".into(),
            name: String::new(),
            uid: String::new(),
            blocks: false,
        };
        let rows = [
            ("v1", true),
            ("apps/v1", true),
            ("rbac.authorization.k8s.io/v1", true),
            ("cert-manager.io/v1", false),
        ];
        for (api_version, shared) in rows {
            assert_eq!(kind_key(&PlaneId::core(), &owner(api_version)).0.is_none(), shared, "{api_version}");
        }
    }
}
