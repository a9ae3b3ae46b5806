//! StatefulSets: pods with names, claims and an order (<https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/>).
//!
//! Everything that is decided follows from what informers hold. The template of an earlier revision is read when a pod of it
//! has to be created, which is seldom, and not kept.

mod decide;
mod pod;
mod retention;
#[cfg(test)]
mod tests;

use crate::claims::{Pod, claims_where, enqueue_owners, make_claims};
use decide::{Action, Decision, Observed, decide, differs, is_parallel};
use freehold_client::{Client, DeleteOptions, Error, Patch, PatchOptions};
use freehold_controllers_context::expectations::{Expectations, NOT_YET};
use freehold_controllers_context::kinds::{CLAIMS, CONTROLLER_REVISIONS, PODS, STATEFUL_SETS};
use freehold_controllers_context::object::{
    controller_reference, namespace_terminates, orphan_entry, selector, selects, status_patch, unless_gone,
};
use freehold_controllers_context::pods::{PodView, burst};
use freehold_controllers_context::revisions::{self, Known, Plan, Revision};
use freehold_controllers_context::{Context, Reconcile};
use freehold_machinery::{Value, meta};
use freehold_runtime::{EventType, Key, Outcome, Planes, Queue, Reconciled, Recorder, Store};
use jiff::Timestamp;
use retention::{Member, owners};
use serde_json::json;
use std::collections::HashSet;

struct StatefulSets {
    planes: Planes,
    sets: Store<Value>,
    pods: Store<PodView>,
    revisions: Store<Revision>,
    claims: Store<Value>,
    written: Expectations<Key>,
    own_written: Expectations<Key>,
    revisions_written: Expectations<Key>,
    claims_written: Expectations<Key>,
    recorder: Recorder,
}

/// A set with its revisions.
struct Revised {
    all: Vec<Known>,
    current: Known,
    update: Known,
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    context.stateful_sets().enqueue_into(&queue);
    let sets = context.stateful_sets().store();
    let (on_pods, owners) = (queue.clone(), sets.clone());
    context.pods().on_change(move |change| enqueue_owners(&on_pods, &owners, change));
    let (on_revisions, owners) = (queue.clone(), sets.clone());
    context.revisions().on_change(move |change| {
        let both = [&change.old, &change.new];
        for uid in both.into_iter().flatten().map(|revision| &revision.owner) {
            for (key, _) in
                owners.by_index(&change.key.plane, &freehold_controllers_context::object::own_entry(uid))
            {
                on_revisions.add(key);
            }
        }
    });
    let (pods, revisions) = (context.pods().store(), context.revisions().store());
    let claims = context.claims().store();
    context.resync(&sets, &queue);
    let controller = StatefulSets {
        planes: context.planes.clone(),
        sets: sets.clone(),
        pods: pods.clone(),
        revisions: revisions.clone(),
        claims: claims.clone(),
        written: Expectations::default(),
        own_written: Expectations::default(),
        revisions_written: Expectations::default(),
        claims_written: Expectations::default(),
        recorder: Recorder::new("statefulset-controller"),
    };
    context.control("stateful-set", 8, &queue, &[&sets, &pods, &revisions, &claims], controller);
}

impl Reconcile for StatefulSets {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        if !self.has_seen_its_writes(&key) {
            return Ok(NOT_YET);
        }
        let Some(set) = self.sets.get(&key) else { return Ok(Outcome::Done) };
        let client = self.planes.client(&key.plane);
        let Some(pods) = self.claim_pods(&client, &key, &set).await? else { return Ok(Outcome::Done) };
        let Some(revised) = self.revise(&client, &key, &set).await? else { return Ok(Outcome::Done) };
        let claim = |name: &str| self.claims.get(&Key::new(key.plane.clone(), &key.namespace, name));
        let Decision { actions, status, again } = decide(&Observed {
            set: &set,
            current: &revised.current.0.name,
            update: &revised.update.0.name,
            pods: &pods,
            claim: &claim,
            now: Timestamp::now(),
        });
        let acted = self.act_all(&client, &key, &set, &revised, actions).await;
        if differs(&set, &status) {
            self.write(&client, &key, &status).await?;
        }
        acted?;
        self.truncate(&client, &set, &pods, &revised).await?;
        Ok(again.map_or(Outcome::Done, Outcome::After))
    }
}

impl StatefulSets {
    fn has_seen_its_writes(&self, key: &Key) -> bool {
        self.written.are_met(key, &self.pods)
            && self.own_written.are_met(key, &self.sets)
            && self.revisions_written.are_met(key, &self.revisions)
            && self.claims_written.are_met(key, &self.claims)
    }

    /// The pods of a set; `None` where some change hands first.
    async fn claim_pods(&self, client: &Client, key: &Key, set: &Value) -> Result<Option<Vec<Pod>>, Error> {
        let Some(selector) = selector(set) else { return Ok(None) };
        let owned = self.pods.by_index(&key.plane, meta::uid(set));
        let orphans = self.pods.by_index(&key.plane, &orphan_entry(&key.namespace));
        let is_member = |(pod, view): &Pod| {
            selects(&selector, view.labels.as_ref()) && pod::ordinal(&key.name, &pod.name).is_some()
        };
        let claims = claims_where(&is_member, !meta::is_deleting(set), &owned, &orphans);
        if claims.is_empty() {
            return Ok(Some(owned));
        }
        make_claims(client, key, set, claims, None, &self.written).await?;
        Ok(None)
    }

    /// The revisions of a set; `None` where one is written first.
    async fn revise(&self, client: &Client, key: &Key, set: &Value) -> Result<Option<Revised>, Error> {
        let Some(selector) = selector(set) else { return Ok(None) };
        let (orphans, all) = revisions::of_owner(&self.revisions, key, meta::uid(set), &selector);
        if !orphans.is_empty() && !meta::is_deleting(set) {
            for orphan in &orphans {
                let answer = revisions::adopt(client, orphan, set).await?;
                self.revisions_written.expect(key, &answer);
            }
            return Ok(None);
        }
        let encoded = revisions::encode(&revisions::data(&set["spec"]["template"]));
        let answer = match revisions::plan(&all, &revisions::digest(&encoded)) {
            Plan::Keep(update) => {
                let name = set["status"]["currentRevision"].as_str().unwrap_or_default();
                let current = all.iter().find(|(key, _)| *key.name == *name).unwrap_or(&update).clone();
                return Ok(Some(Revised { all, current, update }));
            }
            Plan::Renumber((revision, _), number) => revisions::renumber(client, &revision, number).await?,
            Plan::Create(number) => match self.create_revision(client, key, set, &encoded, number).await? {
                Some(answer) => answer,
                None => return Ok(None),
            },
        };
        self.revisions_written.expect(key, &answer);
        Ok(None)
    }

    /// Creates a revision; where another one has its name, its hash takes one more turn.
    async fn create_revision(
        &self,
        client: &Client,
        key: &Key,
        set: &Value,
        encoded: &str,
        number: i64,
    ) -> Result<Option<Value>, Error> {
        let collisions = set["status"]["collisionCount"].as_i64().unwrap_or(0);
        let hash = revisions::hash(encoded, collisions);
        let template = &set["spec"]["template"];
        let mut labels = template["metadata"]["labels"].clone();
        labels[revisions::HASH] = hash.clone().into();
        let revision = json!({
            "apiVersion": "apps/v1", "kind": "ControllerRevision",
            "metadata": {
                "name": revisions::name(set, &hash), "namespace": meta::namespace(set), "labels": labels,
                "annotations": set["metadata"].get("annotations").cloned().unwrap_or_else(|| json!({})),
                "ownerReferences": [controller_reference(set)],
            },
            "data": revisions::data(template), "revision": number,
        });
        match client.create(&CONTROLLER_REVISIONS, &revision).await {
            Err(error) if error.is_already_exists() => {
                let name = meta::name(&revision);
                let found = client.get(&CONTROLLER_REVISIONS, key.ns(), name).await?;
                if revisions::encode(&found["data"]) == encoded {
                    // That of an earlier set with this name, which is about to go.
                    return Err(error);
                }
                self.write(client, key, &json!({"collisionCount": collisions + 1})).await?;
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// Takes all steps: one after the other, or some at once where no pod waits for another.
    async fn act_all(
        &self,
        client: &Client,
        key: &Key,
        set: &Value,
        revised: &Revised,
        actions: Vec<Action>,
    ) -> Result<(), Error> {
        let wants_current = |action: &Action| matches!(action, Action::Create { of_current: true, .. });
        let earlier = match actions.iter().any(wants_current) && revised.current.0 != revised.update.0 {
            true => revisions::template(
                &client.get(&CONTROLLER_REVISIONS, key.ns(), &revised.current.0.name).await?,
            ),
            false => None,
        };
        let template = |of_current: bool| match &earlier {
            Some(earlier) if of_current => (earlier, &revised.current.0.name),
            _ => (&set["spec"]["template"], &revised.update.0.name),
        };
        let act = |action: Action| async {
            match action {
                Action::Create { ordinal, of_current } => {
                    let (template, revision) = template(of_current);
                    self.create(client, key, set, &pod::pod(set, template, ordinal, revision), ordinal).await
                }
                other => self.act(client, key, set, other).await,
            }
        };
        if is_parallel(set) {
            return burst(actions, act).await.1;
        }
        for action in actions {
            act(action).await?;
        }
        Ok(())
    }

    async fn act(&self, client: &Client, key: &Key, set: &Value, action: Action) -> Result<(), Error> {
        match action {
            Action::Create { .. } => Ok(()),
            Action::Claims { ordinal } => {
                let name = format!("{}-{ordinal}", key.name);
                self.create_claims(client, key, set, ordinal, &name).await
            }
            Action::Own { claim, owners } => {
                let patch = Patch::Merge(json!({"metadata": {"ownerReferences": owners}}));
                match client.patch(&CLAIMS, key.ns(), &claim, &patch, &PatchOptions::default()).await {
                    Ok(answer) => self.claims_written.expect(key, &answer),
                    Err(error) if error.is_not_found() => {}
                    Err(error) => return Err(error),
                }
                Ok(())
            }
            Action::Repair { pod, ordinal } => {
                let Some(mut object) = client.get_opt(&PODS, pod.ns(), &pod.name).await? else {
                    return Ok(());
                };
                pod::identify(&mut object, ordinal);
                pod::mount(set, &mut object, ordinal);
                let done =
                    client.update(&PODS, &object).await.map(|answer| self.written.expect(key, &answer));
                self.tell(client, set, "Update", &pod.name, done.as_ref().err()).await;
                done
            }
            Action::Delete { pod, uid } => {
                let deleted = match client.delete(&PODS, pod.ns(), &pod.name, &DeleteOptions::uid(&uid)).await
                {
                    Ok(answer) => {
                        self.written.expect(key, &answer);
                        Ok(())
                    }
                    Err(error) => unless_gone(client, &PODS, (pod.ns(), &pod.name, &uid), error).await,
                };
                self.tell(client, set, "Delete", &pod.name, deleted.as_ref().err()).await;
                deleted
            }
        }
    }

    async fn create(
        &self,
        client: &Client,
        key: &Key,
        set: &Value,
        pod: &Value,
        ordinal: i64,
    ) -> Result<(), Error> {
        let name = meta::name(pod);
        if let Err(error) = self.create_claims(client, key, set, ordinal, name).await {
            self.tell(client, set, "Create", name, Some(&error)).await;
            return Err(error);
        }
        match client.create(&PODS, pod).await {
            Ok(answer) => {
                self.written.expect(key, &answer);
                self.tell(client, set, "Create", name, None).await;
                Ok(())
            }
            // Its namespace takes the set along.
            Err(error) if namespace_terminates(&error) => Ok(()),
            Err(error) if error.is_already_exists() => Err(error),
            Err(error) => {
                self.tell(client, set, "Create", name, Some(&error)).await;
                Err(error)
            }
        }
    }

    async fn create_claims(
        &self,
        client: &Client,
        key: &Key,
        set: &Value,
        ordinal: i64,
        pod: &str,
    ) -> Result<(), Error> {
        let member = Member { name: pod, uid: "", ordinal };
        for template in pod::templates(set) {
            let name = pod::claim_name(set, template, ordinal);
            if self.claims.get(&Key::new(key.plane.clone(), &key.namespace, &name)).is_some() {
                continue;
            }
            let claim = pod::claim(set, template, ordinal, owners(set, member));
            let created = match client.create(&CLAIMS, &claim).await {
                Err(error) if error.is_already_exists() => continue,
                other => other.map(|answer| self.claims_written.expect(key, &answer)),
            };
            let (kind, reason, how) = match &created {
                Ok(()) => (EventType::Normal, "SuccessfulCreate", "success".to_owned()),
                Err(error) => (EventType::Warning, "FailedCreate", format!("failed error: {error}")),
            };
            let whose = if created.is_ok() { "" } else { "for " };
            let message = format!("Create Claim {name} {whose}Pod {pod} in StatefulSet {} {how}", key.name);
            self.recorder.event(client, set, kind, reason, &message).await;
            created?;
        }
        Ok(())
    }

    /// Tells in an event what was done to a pod, or why it could not be.
    async fn tell(&self, client: &Client, set: &Value, verb: &str, pod: &str, error: Option<&Error>) {
        let about = format!("{verb} Pod {pod} in StatefulSet {}", meta::name(set));
        let (kind, reason, message) = match error {
            None => (EventType::Normal, format!("Successful{verb}"), format!("{about} successful")),
            Some(error) => {
                (EventType::Warning, format!("Failed{verb}"), format!("{about} failed error: {error}"))
            }
        };
        self.recorder.event(client, set, kind, &reason, &message).await;
    }

    async fn write(&self, client: &Client, key: &Key, status: &Value) -> Result<(), Error> {
        let options = PatchOptions::status();
        match client.patch(&STATEFUL_SETS, key.ns(), &key.name, &status_patch(status), &options).await {
            Ok(answer) => self.own_written.expect(key, &answer),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Deletes revisions that no pod has, beyond the limit of the set.
    async fn truncate(
        &self,
        client: &Client,
        set: &Value,
        pods: &[Pod],
        revised: &Revised,
    ) -> Result<(), Error> {
        let Ok(limit) = usize::try_from(set["spec"]["revisionHistoryLimit"].as_i64().unwrap_or(10)) else {
            return Ok(());
        };
        let mut live: HashSet<&str> =
            pods.iter().map(|(_, pod)| pod.label(revisions::POD_REVISION)).collect();
        live.extend([&*revised.current.0.name, &*revised.update.0.name]);
        let past: Vec<&Known> = revised.all.iter().filter(|(key, _)| !live.contains(&*key.name)).collect();
        for revision in past.iter().take(past.len().saturating_sub(limit)) {
            revisions::delete(client, revision).await?;
        }
        Ok(())
    }
}
