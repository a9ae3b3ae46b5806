//! Deployments: a ReplicaSet for each pod template that a Deployment has had, scaled so that the newest takes over.

mod decide;
mod rolling;
mod status;
mod template;

use crate::context::{Context, Reconcile};
use crate::expectations::Expectations;
use crate::kinds::{DEPLOYMENTS, REPLICA_SETS};
use crate::object::{
    controller_of, controller_reference, labels, orphan_entry, selector, selects, status_patch,
};
use decide::{Action, Observed, decide};
use freehold_client::{Client, DeleteOptions, Error, Patch, PatchOptions};
use freehold_controller_manager_runtime::{
    EventType, Informer, Interest, Key, Outcome, Planes, Queue, Reconciled, Recorder, Store,
};
use freehold_machinery::{Value, meta};
use jiff::Timestamp;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

struct Deployments {
    planes: Planes,
    deployments: Store<Value>,
    replica_sets: Store<Value>,
    written: Expectations<Key>,
    own_written: Expectations<Key>,
    recorder: Recorder,
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    let by_uid = |_: &Key, object: &Value| vec![meta::uid(object).to_owned()];
    let mut informer = Informer::new(&context.planes, Interest::objects(DEPLOYMENTS).index(by_uid));
    informer.enqueue_into(&queue);
    let deployments = context.run_informer(informer);
    let (on_sets, owners) = (queue.clone(), deployments.clone());
    context.replica_sets().on_change(move |change| {
        for set in [&change.old, &change.new].into_iter().flatten() {
            enqueue_owner(&on_sets, &owners, &change.key, set);
        }
    });
    let replica_sets = context.replica_sets().store();
    context.resync(&deployments, &queue);
    let controller = Deployments {
        planes: context.planes.clone(),
        deployments: deployments.clone(),
        replica_sets: replica_sets.clone(),
        written: Expectations::default(),
        own_written: Expectations::default(),
        recorder: Recorder::new("deployment-controller"),
    };
    context.control("deployment", 8, &queue, &[&deployments, &replica_sets], controller);
}

fn enqueue_owner(queue: &Arc<Queue<Key>>, deployments: &Store<Value>, set: &Key, object: &Value) {
    match controller_of(object) {
        Some(owner) if owner["kind"] == "Deployment" => {
            queue.add(Key::new(
                set.plane.clone(),
                &set.namespace,
                owner["name"].as_str().unwrap_or_default(),
            ));
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
            return Ok(Outcome::After(Duration::from_secs(31)));
        }
        let Some(deployment) = self.deployments.get(&key) else { return Ok(Outcome::Done) };
        if meta::is_deleting(&deployment) {
            return Ok(Outcome::Done);
        }
        let owned = self.replica_sets.by_index(&key.plane, meta::uid(&deployment));
        let orphans = self.replica_sets.by_index(&key.plane, &orphan_entry(&key.namespace));
        let decision = decide(&Observed {
            deployment: &deployment,
            owned: owned.into_iter().map(|(_, set)| set).collect(),
            orphans: orphans.into_iter().map(|(_, set)| set).collect(),
            now: Timestamp::now(),
        });
        let client = self.planes.client(&key.plane);
        // What fails must not keep the status from being told.
        let mut done = Ok(());
        for action in decision.actions {
            done = done.and(self.act(&client, &key, &deployment, action).await);
        }
        done?;
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
            Action::Annotate(revision) => {
                let annotations = json!({"metadata": {"annotations": {template::REVISION: revision}}});
                self.own(
                    key,
                    client.patch(&DEPLOYMENTS, ns, &key.name, &Patch::Merge(annotations), &options).await,
                )
            }
            Action::SetStatus(status) => {
                let options = PatchOptions::status();
                self.own(
                    key,
                    client.patch(&DEPLOYMENTS, ns, &key.name, &status_patch(&status), &options).await,
                )
            }
        }
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
                let message = format!("Scaled up replica set {name} from 0 to {replicas}");
                self.recorder
                    .event(client, deployment, EventType::Normal, "ScalingReplicaSet", &message)
                    .await;
                Ok(())
            }
            Err(error) if error.is_already_exists() => self.name_taken(client, key, deployment, set).await,
            Err(error) => {
                let message = format!("Failed to create new replica set {:?}: {error}", meta::name(set));
                self.recorder
                    .event(client, deployment, EventType::Warning, "ReplicaSetCreateError", &message)
                    .await;
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
