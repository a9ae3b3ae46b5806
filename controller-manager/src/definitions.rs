//! CustomResourceDefinitions whose deletion was interrupted: it is asked for again.
//!
//! The apiserver that takes a delete goes on to the end by itself, and whoever takes away the last object finishes. Only
//! where a server was killed in between nobody would, so each definition that is still there after a while is deleted
//! once more, which goes on where the first delete ended.

use freehold_client::DeleteOptions;
use freehold_controllers_context::kinds::CRDS;
use freehold_controllers_context::object::unless_gone;
use freehold_controllers_context::{Context, Reconcile};
use freehold_machinery::{Value, crd, meta};
use freehold_runtime::{Informer, Interest, Key, Outcome, Planes, Queue, Reconciled, Store};
use std::time::Duration;

/// How long the server that took the delete is left to it.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is asked again while objects are held by finalizers of others.
const AGAIN: Duration = Duration::from_secs(60);

/// What is kept of a definition that is being deleted: its uid. Nothing of others.
fn ending(definition: Value) -> Option<String> {
    let held = meta::finalizers(&definition).contains(&crd::CLEANUP_FINALIZER);
    (held && meta::is_deleting(&definition)).then(|| meta::uid(&definition).to_owned())
}

struct Definitions {
    planes: Planes,
    ending: Store<String>,
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    let interest = Interest::projected(CRDS, ending).metadata_only();
    let mut informer = Informer::new(&context.planes, interest);
    let on_ending = queue.clone();
    informer.on_change(move |change| {
        if change.old.is_none() && change.new.is_some() {
            on_ending.add_after(change.key.clone(), PATIENCE);
        }
    });
    let ending = context.run_informer(informer);
    let (planes, waits) = (context.planes.clone(), ending.clone());
    context.control("definition-deletion", 4, &queue, &[&waits], Definitions { planes, ending });
}

impl Reconcile for Definitions {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        let Some(uid) = self.ending.get(&key) else { return Ok(Outcome::Done) };
        let client = self.planes.client(&key.plane);
        match client.delete(&CRDS, None, &key.name, &DeleteOptions::uid((*uid).clone())).await {
            Err(error) => {
                unless_gone(&client, &CRDS, (None, &key.name, &uid), error).await?;
                Ok(Outcome::Done)
            }
            Ok(_) => Ok(Outcome::After(AGAIN)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_definition_is_ended_that_is_deleted_and_held_for_its_objects() {
        let of = |finalizers: Value, deleted: Value| {
            ending(json!({"metadata": {"uid": "u", "finalizers": finalizers, "deletionTimestamp": deleted}}))
        };
        let now = json!("2026-01-01T00:00:00Z");
        assert_eq!(of(json!([crd::CLEANUP_FINALIZER]), now.clone()), Some("u".to_owned()));
        assert_eq!(of(json!([crd::CLEANUP_FINALIZER]), Value::Null), None);
        assert_eq!(of(json!(["other"]), now), None);
    }
}
