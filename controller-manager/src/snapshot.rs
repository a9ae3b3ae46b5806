//! Snapshots of projects: made once, kept until they are deleted. The data of a deleted one stays as long as projects stand on
//! it, which the apiserver sees to.

use crate::plane::{Actions, Refusal, refusal, set_phase};
use crate::references::{Layer, References, no_project};
use crate::turns::Turns;
use freehold_client::{Client, Error, PatchOptions};
use freehold_controllers_context::kinds::SNAPSHOTS;
use freehold_controllers_context::object::{finalizer_patch, int, status_patch, text};
use freehold_controllers_context::{Context, Reconcile};
use freehold_machinery::{Value, meta};
use freehold_runtime::{Informer, Interest, Key, Outcome, Queue, Reconciled, Store};
use std::sync::Arc;
use std::time::Duration;

/// Held until the layer was let go.
const FINALIZER: &str = "resourcemanager.freehold.dev/snapshot";
/// When a snapshot that can't be made yet is looked at again.
const AGAIN: Duration = Duration::from_secs(2);

/// Snapshots that are made at once: of one organization, and of all.
const OF_ORGANIZATION: usize = 2;
const WORKERS: usize = 8;

struct Snapshots {
    client: Client,
    actions: Actions,
    snapshots: Store<Value>,
    turns: Arc<Turns>,
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    let mut informer = Informer::new(&context.core, Interest::objects(SNAPSHOTS));
    informer.enqueue_into(&queue);
    let snapshots = context.run_informer(informer);
    context.resync(&snapshots, &queue);
    let controller = Snapshots {
        client: context.core.everywhere(),
        actions: Actions(context.core.root()),
        snapshots: snapshots.clone(),
        turns: Turns::new(OF_ORGANIZATION),
    };
    context.control("snapshot", WORKERS, &queue, &[&snapshots], controller);
}

/// Whether its phase is one that stays.
pub(crate) fn is_settled(object: &Value) -> bool {
    matches!(text(object, "/status/phase"), "Ready" | "Failed" | "Completed")
}

impl Reconcile for Snapshots {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        let Some(snapshot) = self.snapshots.get(&key) else { return Ok(Outcome::Done) };
        if meta::is_deleting(&snapshot) {
            if meta::finalizers(&snapshot).contains(&FINALIZER) {
                self.actions.release(&Layer::of_snapshot(&snapshot)).await?;
                self.finalizer(&key, &snapshot, false).await?;
            }
            return Ok(Outcome::Done);
        }
        if is_settled(&snapshot) {
            return Ok(Outcome::Done);
        }
        let Some(_turn) = self.turns.take(&key.namespace) else { return Ok(Outcome::After(AGAIN)) };
        self.finalizer(&key, &snapshot, true).await?;
        let mut status = snapshot["status"].clone();
        let made = self.make(&key, &snapshot, &mut status).await?;
        let phase = match &made {
            None => "Ready",
            Some(why) if why.is_final => "Failed",
            Some(_) => "Pending",
        };
        set_phase(&mut status, &snapshot, phase, made.as_ref());
        if status != snapshot["status"] {
            let options = PatchOptions::status();
            self.client.patch(&SNAPSHOTS, key.ns(), &key.name, &status_patch(&status), &options).await?;
        }
        Ok(if phase == "Pending" { Outcome::After(AGAIN) } else { Outcome::Done })
    }
}

impl Snapshots {
    async fn make(&self, key: &Key, snapshot: &Value, status: &mut Value) -> Result<Option<Refusal>, Error> {
        let name = text(snapshot, "/spec/projectRef/name");
        let Some(references) = References::of_namespace(&self.client, &key.namespace) else {
            return Ok(Some(no_project(name)));
        };
        let plane = match references.plane(name).await? {
            Ok(found) => found,
            Err(why) => return Ok(Some(why)),
        };
        let layer = Layer::of_snapshot(snapshot);
        let record = match self.actions.snapshot(&plane, &layer, int(snapshot, "/spec/revision")).await {
            Ok(record) => record,
            Err(error) => return refusal(error).map(Some),
        };
        for field in ["revision", "objects", "bytes"] {
            status[field] = record[field].clone();
        }
        // For people: nothing is decided by what stands here.
        status["plane"] = plane.id().as_str().into();
        status["layer"] = layer.as_str().into();
        Ok(None)
    }

    async fn finalizer(&self, key: &Key, snapshot: &Value, present: bool) -> Result<(), Error> {
        let Some(patch) = finalizer_patch(snapshot, FINALIZER, present) else { return Ok(()) };
        match self.client.patch(&SNAPSHOTS, key.ns(), &key.name, &patch, &PatchOptions::default()).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }
}
