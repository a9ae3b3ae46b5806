//! ReplicaSets: as many pods as wanted.

use crate::context::{Context, Reconcile};
use crate::expectations::Expectations;
use crate::kinds::{PODS, REPLICA_SETS};
use crate::object::{controller_reference, generation, int, orphan_entry, selector, selects, status_patch};
use crate::pods::{PodView, new_pod};
use freehold_client::{Client, DeleteOptions, Error, Patch, PatchOptions};
use freehold_controller_manager_runtime::{
    Change, EventType, Key, Outcome, Planes, Queue, Reconciled, Recorder, Store,
};
use freehold_machinery::{Value, meta, time};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use serde_json::json;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Pods made or deleted by one reconcile.
const BURST: usize = 500;
/// Requests of one reconcile at once.
const CONCURRENT: usize = 16;

type Pod = (Key, Arc<PodView>);

/// What is known of a ReplicaSet.
struct Observed<'a> {
    set: &'a Value,
    /// The pods that it controls, those that are about to be deleted left out.
    owned: Vec<Pod>,
    /// Those of its namespace that nothing controls.
    orphans: Vec<Pod>,
    now: Timestamp,
}

/// What can be done for a ReplicaSet.
#[derive(Debug, PartialEq)]
enum Action {
    Create(usize),
    Delete(Vec<(Key, String)>),
    Adopt(Key, String),
    Release(Key, String),
    SetStatus(Value),
}

#[derive(Debug, Default, PartialEq)]
struct Decision {
    actions: Vec<Action>,
    again: Option<Duration>,
}

fn decide(observed: &Observed<'_>) -> Decision {
    let set = observed.set;
    let Some(selector) = selector(set) else { return Decision::default() };
    let mut actions = Vec::new();
    let matches = |pod: &PodView| selects(&selector, pod.labels.as_ref());
    for (key, pod) in observed.orphans.iter().filter(|(_, pod)| matches(pod) && pod.is_active()) {
        actions.push(Action::Adopt(key.clone(), pod.uid.clone()));
    }
    for (key, pod) in observed.owned.iter().filter(|(_, pod)| !matches(pod) && !pod.deleting) {
        actions.push(Action::Release(key.clone(), pod.uid.clone()));
    }
    let adopting = actions.iter().any(|a| matches!(a, Action::Adopt(..)));
    let active: Vec<&Pod> =
        observed.owned.iter().filter(|(_, pod)| pod.is_active() && matches(pod)).collect();
    let wanted = usize::try_from(int(set, "/spec/replicas").unwrap_or(1)).unwrap_or(0);
    // What is adopted counts only when it has come back.
    if !adopting && !meta::is_deleting(set) {
        match active.len() {
            have if have < wanted => actions.push(Action::Create((wanted - have).min(BURST))),
            have if have > wanted => actions.push(Action::Delete(victims(&active, have - wanted))),
            _ => {}
        }
    }
    let (status, again) = status(set, &active, observed.now);
    if status != set["status"] {
        actions.push(Action::SetStatus(status));
    }
    Decision { actions, again }
}

/// The pods that are missed least: unscheduled, pending, not ready, restarted, young ones first.
fn victims(active: &[&Pod], count: usize) -> Vec<(Key, String)> {
    let mut ranked: Vec<&&Pod> = active.iter().collect();
    ranked.sort_by(|(a_key, a), (b_key, b)| {
        let worth = |pod: &PodView| (pod.scheduled, pod.phase, pod.ready);
        worth(a)
            .cmp(&worth(b))
            .then(b.ready_since.cmp(&a.ready_since))
            .then(b.restarts.cmp(&a.restarts))
            .then(b.created.cmp(&a.created))
            .then(a_key.cmp(b_key))
    });
    ranked.into_iter().take(count.min(BURST)).map(|(key, pod)| (key.clone(), pod.uid.clone())).collect()
}

/// The status, and when a pod that is ready becomes available.
fn status(set: &Value, active: &[&Pod], now: Timestamp) -> (Value, Option<Duration>) {
    let wait = int(set, "/spec/minReadySeconds").and_then(|s| u64::try_from(s).ok()).unwrap_or(0);
    let wait = Duration::from_secs(wait);
    let ready: Vec<&&Pod> = active.iter().filter(|(_, pod)| pod.ready).collect();
    // How long each still has to stay ready.
    let left = ready.iter().map(|(_, pod)| {
        let since = time::parse(&pod.ready_since).unwrap_or(now);
        wait.saturating_sub(now.duration_since(since).unsigned_abs())
    });
    let left: Vec<Duration> = left.collect();
    let labels = set.pointer("/spec/template/metadata/labels").and_then(Value::as_object);
    let fully = |pod: &PodView| {
        let own = pod.labels.as_ref();
        labels.is_none_or(|labels| {
            labels.iter().all(|(key, value)| own.is_some_and(|o| o.get(key) == Some(value)))
        })
    };
    let mut status = set["status"].clone();
    status["observedGeneration"] = generation(set).into();
    status["replicas"] = active.len().into();
    let numbers = [
        ("fullyLabeledReplicas", active.iter().filter(|(_, pod)| fully(pod)).count()),
        ("readyReplicas", ready.len()),
        ("availableReplicas", left.iter().filter(|left| left.is_zero()).count()),
    ];
    for (field, number) in numbers {
        match number {
            0 if status.get(field).is_none_or(Value::is_null) => {}
            0 => status[field] = Value::Null,
            number => status[field] = number.into(),
        }
    }
    (status, left.into_iter().filter(|left| !left.is_zero()).min())
}

struct ReplicaSets {
    planes: Planes,
    sets: Store<Value>,
    pods: Store<PodView>,
    written: Expectations<Key>,
    own_written: Expectations<Key>,
    /// Pods that were deleted and may still show up as there.
    doomed: Mutex<HashSet<String>>,
    recorder: Recorder,
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    let by_uid_queue = queue.clone();
    context.replica_sets().enqueue_into(&queue);
    let sets = context.replica_sets().store();
    let owners = sets.clone();
    context.pods().on_change(move |change| enqueue_owners(&by_uid_queue, &owners, change));
    let pods = context.pods().store();
    context.resync(&sets, &queue);
    let controller = ReplicaSets {
        planes: context.planes.clone(),
        sets: sets.clone(),
        pods: pods.clone(),
        written: Expectations::default(),
        own_written: Expectations::default(),
        doomed: Mutex::default(),
        recorder: Recorder::new("replicaset-controller"),
    };
    context.control("replica-set", 8, &queue, &[&sets, &pods], controller);
}

/// A pod concerns the ReplicaSet that controls it or, if nothing does, those that select it.
fn enqueue_owners(queue: &Arc<Queue<Key>>, sets: &Store<Value>, change: &Change<PodView>) {
    let (plane, namespace) = (&change.key.plane, &change.key.namespace);
    let pods: Vec<&Arc<PodView>> = [&change.old, &change.new].into_iter().flatten().collect();
    for (key, set) in sets.in_namespace(plane, namespace) {
        let concerns = |pod: &&Arc<PodView>| {
            pod.owner == meta::uid(&set)
                || (pod.owner.is_empty() && selector(&set).is_some_and(|s| selects(&s, pod.labels.as_ref())))
        };
        if pods.iter().any(concerns) {
            queue.add(key);
        }
    }
}

impl Reconcile for ReplicaSets {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        if !self.written.are_met(&key, &self.pods) || !self.own_written.are_met(&key, &self.sets) {
            return Ok(Outcome::After(Duration::from_secs(31)));
        }
        let Some(set) = self.sets.get(&key) else { return Ok(Outcome::Done) };
        let orphans = self.pods.by_index(&key.plane, &orphan_entry(&key.namespace));
        let owned = self.pods.by_index(&key.plane, meta::uid(&set));
        let decision =
            decide(&Observed { set: &set, owned: self.not_doomed(owned), orphans, now: Timestamp::now() });
        let client = self.planes.client(&key.plane);
        // What fails must not keep the status from being told.
        let mut done = Ok(());
        for action in decision.actions {
            done = done.and(self.act(&client, &key, &set, action).await);
        }
        done?;
        Ok(decision.again.map_or(Outcome::Done, Outcome::After))
    }
}

impl ReplicaSets {
    /// Leaves out what was deleted already, and forgets what shows up as such.
    fn not_doomed(&self, pods: Vec<Pod>) -> Vec<Pod> {
        let mut doomed = self.doomed.lock().unwrap_or_else(PoisonError::into_inner);
        if doomed.len() > 10_000 {
            doomed.clear();
        }
        let stays = |(_, pod): &Pod| {
            if pod.deleting {
                doomed.remove(&pod.uid);
            }
            !doomed.contains(&pod.uid)
        };
        pods.into_iter().filter(stays).collect()
    }

    async fn act(&self, client: &Client, key: &Key, set: &Value, action: Action) -> Result<(), Error> {
        match action {
            Action::Create(count) => self.create(client, key, set, count).await,
            Action::Delete(pods) => {
                let deleted = stream::iter(pods).map(|(pod, uid)| self.delete(client, set, pod, uid));
                deleted.buffer_unordered(CONCURRENT).try_collect().await
            }
            Action::Adopt(pod, uid) => {
                let references = [controller_reference(set)];
                self.own(client, key, &pod, &json!({"metadata": {"uid": uid, "ownerReferences": references}}))
                    .await
            }
            Action::Release(pod, uid) => {
                let gone = json!([{"$patch": "delete", "uid": meta::uid(set)}]);
                self.own(client, key, &pod, &json!({"metadata": {"uid": uid, "ownerReferences": gone}})).await
            }
            Action::SetStatus(status) => {
                let options = PatchOptions::status();
                match client.patch(&REPLICA_SETS, key.ns(), &key.name, &status_patch(&status), &options).await
                {
                    Ok(answer) => self.own_written.expect(key, &answer),
                    Err(error) if error.is_not_found() => {}
                    Err(error) => return Err(error),
                }
                Ok(())
            }
        }
    }

    async fn own(&self, client: &Client, key: &Key, pod: &Key, patch: &Value) -> Result<(), Error> {
        let patch = Patch::Strategic(patch.clone());
        match client.patch(&PODS, pod.ns(), &pod.name, &patch, &PatchOptions::default()).await {
            Ok(answer) => self.written.expect(key, &answer),
            // It is gone, or another one of its name is there.
            Err(error) if matches!(error.code(), 404 | 409 | 422) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn create(&self, client: &Client, key: &Key, set: &Value, count: usize) -> Result<(), Error> {
        let pod = new_pod(set, &set["spec"]["template"]);
        // The first alone: where one is refused, all are.
        self.create_one(client, key, set, &pod).await?;
        let rest = stream::iter(1..count).map(|_| self.create_one(client, key, set, &pod));
        rest.buffer_unordered(CONCURRENT).try_collect().await
    }

    async fn create_one(&self, client: &Client, key: &Key, set: &Value, pod: &Value) -> Result<(), Error> {
        match client.create(&PODS, pod).await {
            Ok(answer) => {
                self.written.expect(key, &answer);
                let message = format!("Created pod: {}", meta::name(&answer));
                self.recorder.event(client, set, EventType::Normal, "SuccessfulCreate", &message).await;
                Ok(())
            }
            Err(error) => {
                let message = format!("Error creating: {error}");
                self.recorder.event(client, set, EventType::Warning, "FailedCreate", &message).await;
                Err(error)
            }
        }
    }

    async fn delete(&self, client: &Client, set: &Value, pod: Key, uid: String) -> Result<(), Error> {
        match client.delete(&PODS, pod.ns(), &pod.name, &DeleteOptions::uid(&uid)).await {
            Err(error) if !matches!(error.code(), 404 | 409) => Err(error),
            _ => {
                self.doomed.lock().unwrap_or_else(PoisonError::into_inner).insert(uid);
                let message = format!("Deleted pod: {}", pod.name);
                self.recorder.event(client, set, EventType::Normal, "SuccessfulDelete", &message).await;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pods::Phase;
    use freehold_machinery::PlaneId;

    fn set(replicas: i64) -> Value {
        json!({
            "metadata": {"name": "web", "namespace": "n", "uid": "s", "generation": 3},
            "spec": {
                "replicas": replicas, "minReadySeconds": 10, "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}},
            },
        })
    }

    fn pod(name: &str, change: impl FnOnce(&mut PodView)) -> Pod {
        let mut view = PodView {
            uid: name.into(),
            owner: "s".into(),
            labels: json!({"app": "web"}).as_object().cloned(),
            phase: Phase::Running,
            scheduled: true,
            ..PodView::default()
        };
        change(&mut view);
        (Key::new(PlaneId::core(), "n", name), Arc::new(view))
    }

    fn ready_since(second: i64) -> impl FnOnce(&mut PodView) {
        move |pod| {
            pod.ready = true;
            pod.ready_since = time::format_seconds(Timestamp::from_second(second).unwrap());
        }
    }

    fn decided(set: &Value, owned: Vec<Pod>, orphans: Vec<Pod>) -> Decision {
        decide(&Observed { set, owned, orphans, now: Timestamp::from_second(100).unwrap() })
    }

    #[test]
    fn missing_pods_are_made_and_ended_ones_do_not_count() {
        let ended = pod("b", |p| p.phase = Phase::Failed);
        let going = pod("c", |p| p.deleting = true);
        let decision = decided(&set(3), vec![pod("a", |_| {}), ended, going], vec![]);
        assert_eq!(decision.actions[0], Action::Create(2));
    }

    #[test]
    fn surplus_pods_go_in_the_order_of_their_worth() {
        let owned = vec![
            pod("ready-long", ready_since(10)),
            pod("ready-short", ready_since(90)),
            pod("running", |_| {}),
            pod("pending", |p| p.phase = Phase::Pending),
            pod("unscheduled", |p| p.scheduled = false),
        ];
        let decision = decided(&set(1), owned, vec![]);
        let Action::Delete(gone) = &decision.actions[0] else { panic!("{decision:?}") };
        let names: Vec<&str> = gone.iter().map(|(_, uid)| uid.as_str()).collect();
        assert_eq!(names, ["unscheduled", "pending", "running", "ready-short"]);
    }

    #[test]
    fn a_pod_is_available_after_it_was_ready_for_long_enough() {
        let decision = decided(&set(2), vec![pod("a", ready_since(80)), pod("b", ready_since(96))], vec![]);
        let Some(Action::SetStatus(status)) = decision.actions.last() else { panic!("{decision:?}") };
        let expected = json!({
            "observedGeneration": 3, "replicas": 2, "fullyLabeledReplicas": 2, "readyReplicas": 2, "availableReplicas": 1,
        });
        assert_eq!((status, decision.again), (&expected, Some(Duration::from_secs(6))));
    }

    #[test]
    fn matching_orphans_are_adopted_and_strangers_released() {
        let orphan = pod("orphan", |p| p.owner.clear());
        let stranger = pod("stranger", |p| p.labels = None);
        let decision = decided(&set(1), vec![stranger.clone()], vec![orphan.clone()]);
        assert_eq!(decision.actions[0], Action::Adopt(orphan.0, "orphan".into()));
        assert_eq!(decision.actions[1], Action::Release(stranger.0, "stranger".into()));
        assert!(
            !decision.actions.iter().any(|a| matches!(a, Action::Create(_))),
            "not before the adoption counts"
        );
    }

    #[test]
    fn a_set_that_is_being_deleted_or_makes_no_sense_makes_no_pods() {
        let mut deleting = set(3);
        deleting["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        assert!(!decided(&deleting, vec![], vec![]).actions.iter().any(|a| matches!(a, Action::Create(_))));
        for broken in [Value::Null, json!({"spec": {"selector": {"matchLabels": 3}}})] {
            assert_eq!(decided(&broken, vec![], vec![]), Decision::default());
        }
    }
}
