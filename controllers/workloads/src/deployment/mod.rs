//! Deployments: a ReplicaSet for each pod template that a Deployment has had, scaled so that the newest takes over.

mod decide;
mod proportion;
mod rolling;
mod status;
mod template;

use decide::{Action, Observed, decide};
use freehold_client::{Client, DeleteOptions, Error, Patch, PatchOptions};
use freehold_controllers_context::expectations::{Expectations, NOT_YET};
use freehold_controllers_context::kinds::{DEPLOYMENTS, REPLICA_SETS};
use freehold_controllers_context::object::{
    controller_of, controller_reference, labels, namespace_terminates, orphan_entry, own_entry, selector,
    selects, status_patch,
};
use freehold_controllers_context::pods::PodView;
use freehold_controllers_context::{Context, Reconcile, TOGETHER};
use freehold_machinery::{Value, meta};
use freehold_runtime::{EventType, Key, Outcome, Planes, Queue, Reconciled, Recorder, Store};
use jiff::Timestamp;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

struct Deployments {
    planes: Planes,
    deployments: Store<Value>,
    replica_sets: Store<Value>,
    pods: Store<PodView>,
    written: Expectations<Key>,
    own_written: Expectations<Key>,
    recorder: Recorder,
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    context.deployments().enqueue_into(&queue);
    let deployments = context.deployments().store();
    let (on_sets, owners) = (queue.clone(), deployments.clone());
    context.replica_sets().on_change(move |change| {
        let stays = change.old.is_some() && change.new.is_some();
        let delay = if stays { TOGETHER / 2 } else { Duration::ZERO };
        for set in [&change.old, &change.new].into_iter().flatten() {
            enqueue_owner(&on_sets, &owners, &change.key, set, delay);
        }
    });
    let replica_sets = context.replica_sets().store();
    let (on_pods, sets, owners) = (queue.clone(), replica_sets.clone(), deployments.clone());
    context.pods().on_change(move |change| {
        // With `Recreate` the last old pod that goes lets new ones come.
        let Some(gone) = change.old.as_ref().filter(|_| change.new.is_none()) else { return };
        for (key, set) in sets.by_index(&change.key.plane, &own_entry(&gone.owner)) {
            enqueue_owner(&on_pods, &owners, &key, &set, Duration::ZERO);
        }
    });
    let pods = context.pods().store();
    context.resync(&deployments, &queue);
    let controller = Deployments {
        planes: context.planes.clone(),
        deployments: deployments.clone(),
        replica_sets: replica_sets.clone(),
        pods: pods.clone(),
        written: Expectations::default(),
        own_written: Expectations::default(),
        recorder: Recorder::new("deployment-controller"),
    };
    context.control("deployment", 8, &queue, &[&deployments, &replica_sets, &pods], controller);
}

fn enqueue_owner(
    queue: &Arc<Queue<Key>>,
    deployments: &Store<Value>,
    set: &Key,
    object: &Value,
    delay: Duration,
) {
    match controller_of(object) {
        Some(owner) if owner["kind"] == "Deployment" => {
            let name = owner["name"].as_str().unwrap_or_default();
            queue.add_after(Key::new(set.plane.clone(), &set.namespace, name), delay);
        }
        Some(_) => {}
        None => {
            for (key, deployment) in deployments.in_namespace(&set.plane, &set.namespace) {
                if selector(&deployment).is_some_and(|s| selects(&s, labels(object))) {
                    queue.add(key);
                }
            }
        }
    }
}

impl Reconcile for Deployments {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        if !self.written.are_met(&key, &self.replica_sets)
            || !self.own_written.are_met(&key, &self.deployments)
        {
            return Ok(NOT_YET);
        }
        let Some(deployment) = self.deployments.get(&key) else { return Ok(Outcome::Done) };
        let owned = self.replica_sets.by_index(&key.plane, meta::uid(&deployment));
        let orphans = self.replica_sets.by_index(&key.plane, &orphan_entry(&key.namespace));
        let uids: Vec<String> = owned.iter().map(|(_, set)| meta::uid(set).to_owned()).collect();
        let others_run = |new: &str| {
            let others = uids.iter().filter(|uid| *uid != new);
            others.flat_map(|uid| self.pods.by_index(&key.plane, uid)).any(|(_, pod)| !pod.has_ended())
        };
        let decision = decide(&Observed {
            deployment: &deployment,
            others_run: &others_run,
            owned: owned.into_iter().map(|(_, set)| set).collect(),
            orphans: orphans.into_iter().map(|(_, set)| set).collect(),
            now: Timestamp::now(),
        });
        let client = self.planes.client(&key.plane);
        for action in decision.actions {
            self.act(&client, &key, &deployment, action).await?;
        }
        Ok(decision.again.map_or(Outcome::Done, Outcome::After))
    }
}

impl Deployments {
    async fn act(&self, client: &Client, key: &Key, deployment: &Value, action: Action) -> Result<(), Error> {
        let (ns, options) = (key.ns(), PatchOptions::default());
        match action {
            Action::Create(set) => self.create(client, key, deployment, &set).await,
            Action::Adopt(name) => {
                let references = json!({"metadata": {"ownerReferences": [controller_reference(deployment)]}});
                let answer =
                    client.patch(&REPLICA_SETS, ns, &name, &Patch::Strategic(references), &options).await?;
                self.written.expect(key, &answer);
                Ok(())
            }
            Action::Patch { name, patch, event } => {
                let answer = client.patch(&REPLICA_SETS, ns, &name, &Patch::Merge(patch), &options).await?;
                self.written.expect(key, &answer);
                if let Some(message) = event {
                    let reason = "ScalingReplicaSet";
                    self.recorder.event(client, deployment, EventType::Normal, reason, &message).await;
                }
                Ok(())
            }
            Action::Delete { name, uid } => {
                match client.delete(&REPLICA_SETS, ns, &name, &DeleteOptions::uid(uid)).await {
                    Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error),
                    _ => Ok(()),
                }
            }
            Action::PatchOwn(patch) => {
                let patch = Patch::Merge(patch);
                self.own(key, client.patch(&DEPLOYMENTS, ns, &key.name, &patch, &options).await)
            }
            Action::SetStatus(status, revision) => {
                let mut patch = json!({ "status": status });
                if let Some(revision) = revision {
                    patch["metadata"]["annotations"][template::REVISION] = revision.into();
                }
                self.set_status(client, key, patch).await
            }
            Action::Event(kind, reason, message) => {
                self.recorder.event(client, deployment, kind, reason, &message).await;
                Ok(())
            }
        }
    }

    async fn set_status(&self, client: &Client, key: &Key, patch: Value) -> Result<(), Error> {
        let options = PatchOptions::status();
        self.own(key, client.patch(&DEPLOYMENTS, key.ns(), &key.name, &Patch::Merge(patch), &options).await)
    }

    fn own(&self, key: &Key, answer: Result<Value, Error>) -> Result<(), Error> {
        match answer {
            Ok(answer) => self.own_written.expect(key, &answer),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn create(&self, client: &Client, key: &Key, deployment: &Value, set: &Value) -> Result<(), Error> {
        match client.create(&REPLICA_SETS, set).await {
            Ok(answer) => {
                self.written.expect(key, &answer);
                let (name, replicas) = (meta::name(set), set["spec"]["replicas"].as_i64().unwrap_or(0));
                if replicas > 0 {
                    let message = format!("Scaled up replica set {name} from 0 to {replicas}");
                    let reason = "ScalingReplicaSet";
                    self.recorder.event(client, deployment, EventType::Normal, reason, &message).await;
                }
                Ok(())
            }
            Err(error) if namespace_terminates(&error) => Err(error),
            Err(error) if error.is_already_exists() => self.name_taken(client, key, deployment, set).await,
            Err(error) => {
                let message = format!("Failed to create new replica set {:?}: {error}", meta::name(set));
                self.recorder
                    .event(client, deployment, EventType::Warning, "ReplicaSetCreateError", &message)
                    .await;
                if let Some(failed) = status::failed_create(deployment, message, Timestamp::now()) {
                    self.set_status(client, key, json!({ "status": failed })).await?;
                }
                Err(error)
            }
        }
    }

    /// The name is a hash of the template: another ReplicaSet can have it, and then the hash takes one more turn.
    async fn name_taken(
        &self,
        client: &Client,
        key: &Key,
        deployment: &Value,
        set: &Value,
    ) -> Result<(), Error> {
        let found = client.get(&REPLICA_SETS, key.ns(), meta::name(set)).await?;
        let ours = controller_of(&found).is_some_and(|owner| owner["uid"] == meta::uid(deployment));
        if ours && template::equal(&found["spec"]["template"], &deployment["spec"]["template"]) {
            return Ok(());
        }
        let collisions = deployment["status"]["collisionCount"].as_i64().unwrap_or(0) + 1;
        let status = json!({"collisionCount": collisions});
        let options = PatchOptions::status();
        self.own(key, client.patch(&DEPLOYMENTS, key.ns(), &key.name, &status_patch(&status), &options).await)
    }
}
