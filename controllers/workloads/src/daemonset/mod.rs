//! DaemonSets: a pod on each node that fits (<https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/>).

mod decide;
mod pod;
#[cfg(test)]
mod tests;

use crate::claims::{Pod, claims_where, enqueue_owners, make_claims};
use crate::podcontrol::PodControl;
use decide::{Action, Decision, Observed, decide, differs};
use freehold_client::{Client, Error, PatchOptions};
use freehold_controllers_context::expectations::{Expectations, NOT_YET};
use freehold_controllers_context::kinds::{CONTROLLER_REVISIONS, DAEMON_SETS};
use freehold_controllers_context::node::NodeView;
use freehold_controllers_context::object::{
    controller_reference, namespace_terminates, orphan_entry, selector, selects, status_patch,
};
use freehold_controllers_context::pods::{PodView, burst};
use freehold_controllers_context::revisions::{self, Known, POD_REVISION, Plan, Revision};
use freehold_controllers_context::{Context, Reconcile};
use freehold_machinery::{Value, meta};
use freehold_runtime::{EventType, Key, Outcome, Planes, Queue, Reconciled, Store};
use jiff::Timestamp;
use pod::Template;
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Pods made or deleted by one reconcile.
const BURST: usize = 250;
/// How soon a pod that failed again is replaced, doubled each time.
const FIRST_DELAY: Duration = Duration::from_secs(1);
/// The longest such delay.
const LONGEST_DELAY: Duration = Duration::from_secs(15 * 60);
/// Nodes with failing pods that are remembered.
const MAX_FAILING: usize = 10_000;

struct DaemonSets {
    planes: Planes,
    sets: Store<Value>,
    pods: Store<PodView>,
    nodes: Store<NodeView>,
    revisions: Store<Revision>,
    own_written: Expectations<Key>,
    revisions_written: Expectations<Key>,
    control: PodControl,
    failing: Mutex<HashMap<(String, String), Failing>>,
}

/// When a set's pod on a node was last replaced after it had failed, and how long the next one has to wait.
#[derive(Clone, Copy)]
struct Failing {
    since: Instant,
    delay: Duration,
}

/// A set's present revision and those that it had.
struct Revised {
    current: Known,
    past: Vec<Known>,
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    context.daemon_sets().enqueue_into(&queue);
    let sets = context.daemon_sets().store();
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
    let (on_nodes, all) = (queue.clone(), sets.clone());
    context.nodes().on_change(move |change| {
        let same =
            |old: &Arc<NodeView>, new: &Arc<NodeView>| old.labels == new.labels && old.taints == new.taints;
        if change.old.as_ref().zip(change.new.as_ref()).is_some_and(|(old, new)| same(old, new)) {
            return;
        }
        for (key, _) in all.in_plane(&change.key.plane) {
            on_nodes.add(key);
        }
    });
    let (pods, nodes) = (context.pods().store(), context.nodes().store());
    let revisions = context.revisions().store();
    context.resync(&sets, &queue);
    let controller = DaemonSets {
        planes: context.planes.clone(),
        sets: sets.clone(),
        pods: pods.clone(),
        nodes: nodes.clone(),
        revisions: revisions.clone(),
        own_written: Expectations::default(),
        revisions_written: Expectations::default(),
        control: PodControl::new("daemonset-controller"),
        failing: Mutex::default(),
    };
    context.control("daemon-set", 4, &queue, &[&sets, &pods, &nodes, &revisions], controller);
}

impl Reconcile for DaemonSets {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        if !self.control.has_seen(&key, &self.pods)
            || !self.own_written.are_met(&key, &self.sets)
            || !self.revisions_written.are_met(&key, &self.revisions)
        {
            return Ok(NOT_YET);
        }
        // One that is being deleted has nothing to tell: its revisions may be gone before its pods.
        let Some(set) = self.sets.get(&key).filter(|set| !meta::is_deleting(set)) else {
            return Ok(Outcome::Done);
        };
        let client = self.planes.client(&key.plane);
        let Some(pods) = self.claim_pods(&client, &key, &set).await? else { return Ok(Outcome::Done) };
        let Some(revised) = self.revise(&client, &key, &set).await? else { return Ok(Outcome::Done) };
        let (template, nodes) = (Template::of(&set), self.nodes.in_plane(&key.plane));
        let Decision { actions, status, again } = decide(
            &Observed {
                set: &set,
                hash: revised.current.1.label(POD_REVISION),
                nodes: &nodes,
                pods: &pods,
                now: Timestamp::now(),
            },
            &template,
        );
        let (actions, delay) = self.delayed(&set, actions);
        let acted = self.act_all(&client, &key, &set, &revised, &template, actions).await;
        if differs(&set, &status) {
            self.write(&client, &key, &status).await?;
        }
        acted?;
        self.truncate(&client, &set, &pods, revised.past).await?;
        Ok(again.into_iter().chain(delay).min().map_or(Outcome::Done, Outcome::After))
    }
}

impl DaemonSets {
    /// The pods of a set; `None` where some change hands first.
    async fn claim_pods(&self, client: &Client, key: &Key, set: &Value) -> Result<Option<Vec<Pod>>, Error> {
        let Some(selector) = selector(set) else { return Ok(None) };
        let owned = self.control.not_doomed(self.pods.by_index(&key.plane, meta::uid(set)));
        let orphans = self.pods.by_index(&key.plane, &orphan_entry(&key.namespace));
        let matches = |(_, view): &Pod| selects(&selector, view.labels.as_ref());
        let claims = claims_where(&matches, true, &owned, &orphans);
        if claims.is_empty() {
            return Ok(Some(owned));
        }
        make_claims(client, key, set, claims, None, self.control.written()).await?;
        Ok(None)
    }

    /// The revisions of a set; `None` where one is written first.
    async fn revise(&self, client: &Client, key: &Key, set: &Value) -> Result<Option<Revised>, Error> {
        let Some(selector) = selector(set) else { return Ok(None) };
        let (orphans, all) = revisions::of_owner(&self.revisions, key, meta::uid(set), &selector);
        if !orphans.is_empty() {
            for orphan in &orphans {
                self.revisions_written.expect(key, &revisions::adopt(client, orphan, set).await?);
            }
            return Ok(None);
        }
        let encoded = revisions::encode(&revisions::data(&set["spec"]["template"]));
        let answer = match revisions::plan(&all, &revisions::digest(&encoded)) {
            Plan::Keep(current) => {
                let past = all.into_iter().filter(|(key, _)| *key != current.0).collect();
                return Ok(Some(Revised { current, past }));
            }
            Plan::Renumber((revision, _), number) => revisions::renumber(client, &revision, number).await?,
            Plan::Create(number) => match self.create_revision(client, key, set, number).await? {
                Some(answer) => answer,
                None => return Ok(None),
            },
        };
        self.revisions_written.expect(key, &answer);
        Ok(None)
    }

    /// Creates a revision; where another one has its name, the hash of the template takes one more turn.
    async fn create_revision(
        &self,
        client: &Client,
        key: &Key,
        set: &Value,
        number: i64,
    ) -> Result<Option<Value>, Error> {
        let template = &set["spec"]["template"];
        let collisions = set["status"]["collisionCount"].as_i64();
        let hash = crate::template::hash(template, collisions);
        let mut labels = template["metadata"]["labels"].clone();
        labels[POD_REVISION] = hash.clone().into();
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
                let found = client.get(&CONTROLLER_REVISIONS, key.ns(), meta::name(&revision)).await?;
                if found["data"] == revision["data"] {
                    // That of an earlier set with this name, which is about to go.
                    return Err(error);
                }
                self.write(client, key, &json!({"collisionCount": collisions.unwrap_or(0) + 1})).await?;
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// Takes out the replacements of pods that fail again and again and have to wait, and tells for how long.
    fn delayed(&self, set: &Value, actions: Vec<Action>) -> (Vec<Action>, Option<Duration>) {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        if failing.len() > MAX_FAILING {
            failing.clear();
        }
        let (mut due, mut delay) = (Vec::new(), None::<Duration>);
        for action in actions {
            if let Action::Replace { node, failed: true, .. } = &action {
                let entry = failing.entry((meta::uid(set).to_owned(), node.clone()));
                let last = entry.or_insert(Failing { since: Instant::now(), delay: Duration::ZERO });
                let left = last.delay.saturating_sub(last.since.elapsed());
                if !left.is_zero() {
                    delay = Some(delay.map_or(left, |other| other.min(left)));
                    continue;
                }
                let is_quiet = last.since.elapsed() > LONGEST_DELAY * 2;
                let next =
                    if is_quiet { FIRST_DELAY } else { (last.delay * 2).clamp(FIRST_DELAY, LONGEST_DELAY) };
                *last = Failing { since: Instant::now(), delay: next };
            }
            due.push(action);
        }
        due.truncate(BURST);
        (due, delay)
    }

    async fn act_all(
        &self,
        client: &Client,
        key: &Key,
        set: &Value,
        revised: &Revised,
        template: &Template,
        actions: Vec<Action>,
    ) -> Result<(), Error> {
        let hash = revised.current.1.label(POD_REVISION);
        let done = burst(actions, |action| async move {
            match action {
                Action::Create(node) => {
                    self.control.create(client, key, set, &template.pod(set, &node, hash)).await
                }
                Action::Delete(pod, uid) => self.control.delete(client, set, pod, uid).await,
                Action::Replace { pod, uid, node, failed } => {
                    self.tell_end(client, set, (&pod, &node), failed).await;
                    self.control.delete(client, set, pod, uid).await
                }
            }
        });
        match done.await.1 {
            // Its namespace takes the set along.
            Err(error) if namespace_terminates(&error) => Ok(()),
            done => done,
        }
    }

    async fn tell_end(&self, client: &Client, set: &Value, (pod, node): (&Key, &str), failed: bool) {
        let (kind, reason, state, verb) = match failed {
            true => (EventType::Warning, "FailedDaemonPod", "failed", "kill"),
            false => (EventType::Normal, "SucceededDaemonPod", "succeeded", "delete"),
        };
        let (ns, name) = (&pod.namespace, &pod.name);
        let message = format!("Found {state} daemon pod {ns}/{name} on node {node}, will try to {verb} it");
        self.control.recorder().event(client, set, kind, reason, &message).await;
    }

    async fn write(&self, client: &Client, key: &Key, status: &Value) -> Result<(), Error> {
        let options = PatchOptions::status();
        match client.patch(&DAEMON_SETS, key.ns(), &key.name, &status_patch(status), &options).await {
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
        past: Vec<Known>,
    ) -> Result<(), Error> {
        let limit =
            set["spec"]["revisionHistoryLimit"].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(10);
        let surplus = past.len().saturating_sub(limit);
        let live: HashSet<&str> = pods.iter().map(|(_, pod)| pod.label(POD_REVISION)).collect();
        for revision in past.iter().filter(|(_, r)| !live.contains(r.label(POD_REVISION))).take(surplus) {
            revisions::delete(client, revision).await?;
        }
        Ok(())
    }
}
