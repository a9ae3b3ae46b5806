//! Restores: a project goes back to one of its snapshots, once.

use crate::plane::{Actions, Refusal, refusal, set_phase};
use crate::references::{Layer, References, no_project, no_snapshot};
use crate::snapshot::is_settled;
use crate::turns::Turns;
use freehold_client::{Client, Error, PatchOptions};
use freehold_controllers_context::kinds::RESTORES;
use freehold_controllers_context::object::{status_patch, text};
use freehold_controllers_context::{Context, Reconcile};
use freehold_machinery::{Value, meta, time};
use freehold_runtime::{Informer, Interest, Key, Outcome, Queue, Reconciled, Store};
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;
use std::time::Duration;

/// When a restore that can't be done yet is looked at again.
const AGAIN: Duration = Duration::from_secs(2);

/// Restores of all organizations that are made at once.
const WORKERS: usize = 8;

/// How long a restore waits for a snapshot that is not there.
const SNAPSHOT: SignedDuration = SignedDuration::from_secs(60);

struct Restores {
    client: Client,
    actions: Actions,
    restores: Store<Value>,
    turns: Arc<Turns>,
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    let mut informer = Informer::new(&context.core, Interest::objects(RESTORES));
    informer.enqueue_into(&queue);
    let restores = context.run_informer(informer);
    context.resync(&restores, &queue);
    let controller = Restores {
        client: context.core.everywhere(),
        actions: Actions(context.core.root()),
        restores: restores.clone(),
        // One after the other: two restores of one project would otherwise race.
        turns: Turns::new(1),
    };
    context.control("restore", WORKERS, &queue, &[&restores], controller);
}

/// The layer of a snapshot that a project can go back to, as far as its object tells: whether it is of the very plane, and not
/// of an earlier project of this name, the server knows.
fn layer(snapshot: &Value, project: &str) -> Result<Layer, Refusal> {
    let name = meta::name(snapshot);
    if text(snapshot, "/spec/projectRef/name") != project {
        let message = format!("snapshot {name:?} is of another project");
        return Err(Refusal::failed("WrongProject", message));
    }
    match text(snapshot, "/status/phase") {
        "Ready" => Ok(Layer::of_snapshot(snapshot)),
        "Failed" => Err(Refusal::failed("SnapshotFailed", format!("snapshot {name:?} has failed"))),
        _ => Err(Refusal::waiting("SnapshotNotReady", format!("snapshot {name:?} is not ready yet"))),
    }
}

/// A snapshot that is not there may be made by the same hand, in whatever order; but who made a mistake must not have it
/// come true on another day.
fn missing(snapshot: &str, made: Option<Timestamp>, now: Timestamp) -> Refusal {
    let message = no_snapshot(snapshot);
    let is_final = made.is_none_or(|made| now.duration_since(made) > SNAPSHOT);
    Refusal { reason: "SnapshotNotFound", message, is_final }
}

impl Reconcile for Restores {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        let Some(restore) = self.restores.get(&key) else { return Ok(Outcome::Done) };
        if is_settled(&restore) || meta::is_deleting(&restore) {
            return Ok(Outcome::Done);
        }
        let Some(_turn) = self.turns.take(&key.namespace) else { return Ok(Outcome::After(AGAIN)) };
        // What the store has may be older than the status that was written last.
        let restore = match self.client.get_opt(&RESTORES, key.ns(), &key.name).await? {
            Some(restore) if !is_settled(&restore) => restore,
            _ => return Ok(Outcome::Done),
        };
        let mut status = restore["status"].clone();
        let done = self.restore(&key, &restore, &mut status).await?;
        let phase = match &done {
            None => "Completed",
            Some(why) if why.is_final => "Failed",
            Some(_) => "Pending",
        };
        set_phase(&mut status, &restore, phase, done.as_ref());
        if status != restore["status"] {
            let options = PatchOptions::status();
            self.client.patch(&RESTORES, key.ns(), &key.name, &status_patch(&status), &options).await?;
        }
        Ok(if phase == "Pending" { Outcome::After(AGAIN) } else { Outcome::Done })
    }
}

impl Restores {
    async fn restore(
        &self,
        key: &Key,
        restore: &Value,
        status: &mut Value,
    ) -> Result<Option<Refusal>, Error> {
        let name = text(restore, "/spec/projectRef/name");
        let Some(references) = References::of_namespace(&self.client, &key.namespace) else {
            return Ok(Some(no_project(name)));
        };
        let plane = match references.plane(name).await? {
            Ok(found) => found,
            Err(why) => return Ok(Some(why)),
        };
        let from = text(restore, "/spec/snapshotRef/name");
        let Some(snapshot) = references.snapshot(from).await? else {
            let made = time::parse(meta::text(restore, "creationTimestamp"));
            return Ok(Some(missing(from, made, Timestamp::now())));
        };
        let layer = match layer(&snapshot, name) {
            Ok(layer) => layer,
            Err(why) => return Ok(Some(why)),
        };
        let operation = format!("restore-{}", meta::uid(restore));
        match self.actions.restore(&plane, &layer, &operation).await {
            Ok(revision) => status["revision"] = revision.into(),
            Err(error) if error.code() == 409 => {
                return Ok(Some(Refusal { reason: "WrongProject", ..refusal(error)? }));
            }
            // Nobody wants to go back at a time that somebody else's deletes choose.
            Err(error) => return Ok(Some(Refusal { is_final: true, ..refusal(error)? })),
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_project_goes_back_to_its_own_snapshots_alone() {
        let snapshot = |project: &str, phase: &str| {
            json!({
                "metadata": {"name": "s1", "uid": "u"}, "spec": {"projectRef": {"name": project}},
                "status": {"phase": phase, "plane": "theirs", "layer": "snapshot-theirs"},
            })
        };
        let rows = [
            (snapshot("web", "Ready"), Ok("snapshot-u")),
            (snapshot("other", "Ready"), Err("WrongProject")),
            (snapshot("web", "Pending"), Err("SnapshotNotReady")),
            (snapshot("web", "Failed"), Err("SnapshotFailed")),
        ];
        for (snapshot, expected) in rows {
            let found = layer(&snapshot, "web").map(|layer| layer.as_str().to_owned());
            assert_eq!(found.map_err(|why| why.reason), expected.map(str::to_owned), "{snapshot}");
        }
    }

    #[test]
    fn a_snapshot_that_is_not_there_is_waited_for_for_a_minute() {
        let made = "2026-01-01T00:00:00Z".parse().ok();
        let rows = [("2026-01-01T00:01:00Z", false), ("2026-01-01T00:01:01Z", true)];
        for (now, is_final) in rows {
            let why = missing("s1", made, now.parse().unwrap());
            assert_eq!((why.reason, why.is_final), ("SnapshotNotFound", is_final), "{now}");
        }
    }
}
