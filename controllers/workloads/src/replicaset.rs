//! ReplicaSets and ReplicationControllers: as many pods as wanted.
//!
//! The two differ in how they select and in what their status tells: a ReplicationController is kept here with the selector
//! that a ReplicaSet would have.

use crate::claims::{Claim, claims, enqueue_owners, make_claims};
use crate::podcontrol::PodControl;
use freehold_client::{Client, Error, PatchOptions, Resource};
use freehold_controllers_context::expectations::{Expectations, NOT_YET};
use freehold_controllers_context::kinds::{REPLICA_SETS, REPLICATION_CONTROLLERS};
use freehold_controllers_context::object::{
    controller_of, generation, int, namespace_terminates, orphan_entry, owner_and_own, selector, status_patch,
};
use freehold_controllers_context::pods::{Phase, PodView, burst, new_pod};
use freehold_controllers_context::{Context, Reconcile};
use freehold_machinery::{Value, meta, time};
use freehold_runtime::{Informer, Interest, Key, Outcome, Planes, Queue, Reconciled, Store, conditions};
use jiff::Timestamp;
use serde_json::json;
use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Pods made or deleted by one reconcile.
const BURST: usize = 500;

type Pod = (Key, Arc<PodView>);

/// What is known of a ReplicaSet.
struct Observed<'a> {
    set: &'a Value,
    /// The pods that it controls, those that are about to be deleted left out.
    owned: Vec<Pod>,
    /// Pods of its namespace that nothing controls.
    orphans: Vec<Pod>,
    /// The pods of all ReplicaSets that have the same controller.
    related: Vec<Arc<PodView>>,
    now: Timestamp,
}

/// What is to be done with pods.
#[derive(Debug, Default, PartialEq)]
enum Manage {
    #[default]
    Nothing,
    Create(usize),
    Delete(Vec<(Key, String)>),
}

#[derive(Debug, Default, PartialEq)]
struct Decision {
    /// Pods that change hands; where there are any, nothing else is done before that is seen.
    claims: Vec<Claim>,
    manage: Manage,
}

/// Why pods could not be made or deleted.
struct Failure {
    reason: &'static str,
    message: String,
}

fn decide(observed: &Observed<'_>) -> Decision {
    let set = observed.set;
    let Some(selector) = selector(set) else { return Decision::default() };
    let adopting = !meta::is_deleting(set);
    let claims = claims(&selector, adopting, &observed.owned, &observed.orphans);
    let active = observed.active();
    let wanted = usize::try_from(int(set, "/spec/replicas").unwrap_or(1)).unwrap_or(0);
    let manage = match active.len() {
        _ if meta::is_deleting(set) || !claims.is_empty() => Manage::Nothing,
        have if have < wanted => Manage::Create((wanted - have).min(BURST)),
        have if have > wanted => Manage::Delete(victims(observed, &active, have - wanted)),
        _ => Manage::Nothing,
    };
    Decision { claims, manage }
}

impl Observed<'_> {
    fn active(&self) -> Vec<&Pod> {
        self.owned.iter().filter(|(_, pod)| pod.is_active()).collect()
    }
}

/// The pods that are missed least: unscheduled, pending, not ready, cheap to delete, on nodes with many like them, restarted,
/// young ones first. Times are told apart by their order of magnitude alone.
fn victims(observed: &Observed<'_>, active: &[&Pod], count: usize) -> Vec<(Key, String)> {
    let mut on_node: HashMap<&str, usize> = HashMap::new();
    for pod in observed.related.iter().filter(|pod| pod.is_active()) {
        *on_node.entry(pod.node.as_str()).or_default() += 1;
    }
    let now = observed.now;
    let ranks = |pod: &PodView| {
        let near = Reverse(on_node.get(pod.node.as_str()).copied().unwrap_or(0));
        (pod.scheduled, pod.phase, pod.ready, pod.deletion_cost, near)
    };
    let mut ranked: Vec<&&Pod> = active.iter().collect();
    ranked.sort_by(|(_, a), (_, b)| {
        ranks(a)
            .cmp(&ranks(b))
            .then_with(|| magnitudes(&a.ready_since, &b.ready_since, now, a, b))
            .then_with(|| b.restarts.cmp(&a.restarts))
            .then_with(|| magnitudes(&a.created, &b.created, now, a, b))
            .then_with(|| a.uid.cmp(&b.uid))
    });
    ranked.into_iter().take(count.min(BURST)).map(|(key, pod)| (key.clone(), pod.uid.clone())).collect()
}

/// Compares how long ago two times were: the power of two of it, then the pods' uids, which stand for chance.
fn magnitudes(a: &str, b: &str, now: Timestamp, a_pod: &PodView, b_pod: &PodView) -> Ordering {
    if a == b {
        return Ordering::Equal;
    }
    let rank = |at: &str| {
        let nanos = now.duration_since(time::parse(at)?).as_nanos();
        Some(nanos.checked_ilog2().map_or(-1, i64::from))
    };
    match (rank(a), rank(b)) {
        (Some(a), Some(b)) => a.cmp(&b).then_with(|| a_pod.uid.cmp(&b_pod.uid)),
        (a, b) => a.is_some().cmp(&b.is_some()),
    }
}

/// The status, and when a pod that is ready becomes available.
fn status(observed: &Observed<'_>, failure: Option<&Failure>) -> (Value, Option<Duration>) {
    let (set, now, active) = (observed.set, observed.now, observed.active());
    let wait = int(set, "/spec/minReadySeconds").and_then(|s| u64::try_from(s).ok()).unwrap_or(0);
    let wait = Duration::from_secs(wait);
    // How long each still has to stay ready.
    let left: Vec<Duration> = active.iter().filter_map(|(_, pod)| pod.available_in(wait, now)).collect();
    let labels = set.pointer("/spec/template/metadata/labels").and_then(Value::as_object);
    let fully = |pod: &PodView| {
        let own = pod.labels.as_ref();
        labels.is_none_or(|labels| {
            labels.iter().all(|(key, value)| own.is_some_and(|o| o.get(key) == Some(value)))
        })
    };
    let terminating = observed
        .owned
        .iter()
        .filter(|(_, p)| p.deleting && !matches!(p.phase, Phase::Succeeded | Phase::Failed));
    let mut status = set["status"].clone();
    status["observedGeneration"] = generation(set).into();
    status["replicas"] = active.len().into();
    if set["kind"] != "ReplicationController" {
        status["terminatingReplicas"] = terminating.count().into();
    }
    let numbers = [
        ("fullyLabeledReplicas", active.iter().filter(|(_, pod)| fully(pod)).count()),
        ("readyReplicas", left.len()),
        ("availableReplicas", left.iter().filter(|left| left.is_zero()).count()),
    ];
    for (field, number) in numbers {
        match number {
            0 if status.get(field).is_none_or(Value::is_null) => {}
            0 => status[field] = Value::Null,
            number => status[field] = number.into(),
        }
    }
    set_failure(&mut status, failure, now);
    (status, left.into_iter().filter(|left| !left.is_zero()).min())
}

/// Tells of a failure until there is none; another one of the same kind changes nothing.
fn set_failure(status: &mut Value, failure: Option<&Failure>, now: Timestamp) {
    const TYPE: &str = "ReplicaFailure";
    let told = status.get("conditions").is_some_and(|list| conditions::find(list, TYPE).is_some());
    match failure {
        Some(failure) if !told => {
            let (reason, message) = (failure.reason, failure.message.as_str());
            let set = conditions::Set { type_: TYPE, status: "True", reason, message, generation: None };
            conditions::set(&mut status["conditions"], set, now);
        }
        None if told => {
            conditions::remove(&mut status["conditions"], TYPE);
            if status["conditions"] == json!([]) {
                status["conditions"] = Value::Null;
            }
        }
        _ => {}
    }
}

struct ReplicaSets {
    resource: Resource,
    planes: Planes,
    sets: Store<Value>,
    pods: Store<PodView>,
    own_written: Expectations<Key>,
    control: PodControl,
}

/// Starts the controller of ReplicaSets.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    context.replica_sets().enqueue_into(&queue);
    let sets = context.replica_sets().store();
    follow(context, "replica-set", queue, sets, (REPLICA_SETS, "replicaset-controller"));
}

/// Starts the controller of ReplicationControllers.
pub(crate) fn replication_controllers(context: &mut Context) {
    let queue = Queue::new();
    let interest = Interest::projected(REPLICATION_CONTROLLERS, as_replica_set).index(owner_and_own);
    let mut informer = Informer::new(&context.planes, interest);
    informer.enqueue_into(&queue);
    let sets = context.run_informer(informer);
    let about = (REPLICATION_CONTROLLERS, "replication-controller");
    follow(context, "replication-controller", queue, sets, about);
}

/// A ReplicationController with the selector that a ReplicaSet would have.
fn as_replica_set(mut controller: Value) -> Option<Value> {
    let labels = controller["spec"]["selector"].take();
    controller["spec"]["selector"] = json!({"matchLabels": labels});
    Some(controller)
}

/// Runs a controller over sets of one kind: of which resource, and the component that its events name.
fn follow(
    context: &mut Context,
    name: &'static str,
    queue: Arc<Queue<Key>>,
    sets: Store<Value>,
    (resource, component): (Resource, &'static str),
) {
    let (by_uid_queue, owners) = (queue.clone(), sets.clone());
    context.pods().on_change(move |change| enqueue_owners(&by_uid_queue, &owners, change));
    let pods = context.pods().store();
    context.resync(&sets, &queue);
    let controller = ReplicaSets {
        resource,
        planes: context.planes.clone(),
        sets: sets.clone(),
        pods: pods.clone(),
        own_written: Expectations::default(),
        control: PodControl::new(component),
    };
    context.control(name, 8, &queue, &[&sets, &pods], controller);
}

impl Reconcile for ReplicaSets {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        if !self.control.has_seen(&key, &self.pods) || !self.own_written.are_met(&key, &self.sets) {
            return Ok(NOT_YET);
        }
        let Some(set) = self.sets.get(&key).filter(|set| selector(set).is_some()) else {
            return Ok(Outcome::Done);
        };
        let observed = self.observe(&key, &set);
        let Decision { claims, manage } = decide(&observed);
        let client = self.planes.client(&key.plane);
        if !claims.is_empty() {
            make_claims(&client, &key, &set, claims, None, self.control.written()).await?;
            return Ok(Outcome::Done);
        }
        let managed = self.manage(&client, &key, &set, manage).await;
        // What was made or deleted is counted when it shows up, which makes the key come again.
        if let Ok(true) = managed {
            return Ok(Outcome::Done);
        }
        // What failed is told in the status, and tried again.
        let failure =
            managed.as_ref().err().map(|(reason, error)| Failure { reason, message: error.to_string() });
        let (status, again) = status(&observed, failure.as_ref());
        if status != set["status"] {
            self.write(&client, &key, &status).await?;
        }
        managed.map_err(|(_, error)| error)?;
        Ok(again.map_or(Outcome::Done, Outcome::After))
    }
}

impl ReplicaSets {
    fn observe<'a>(&self, key: &Key, set: &'a Value) -> Observed<'a> {
        let pods_of = |uid: &str| self.pods.by_index(&key.plane, uid);
        let siblings = controller_of(set).and_then(|owner| owner["uid"].as_str());
        let siblings = siblings.map(|uid| self.sets.by_index(&key.plane, uid)).unwrap_or_default();
        let of_siblings =
            siblings.iter().filter(|(other, _)| other != key).flat_map(|(_, s)| pods_of(meta::uid(s)));
        let owned = self.control.not_doomed(pods_of(meta::uid(set)));
        Observed {
            set,
            orphans: self.pods.by_index(&key.plane, &orphan_entry(&key.namespace)),
            related: of_siblings
                .map(|(_, pod)| pod)
                .chain(owned.iter().map(|(_, pod)| pod.clone()))
                .collect(),
            owned,
            now: Timestamp::now(),
        }
    }

    /// Makes or deletes pods; whether it did.
    async fn manage(
        &self,
        client: &Client,
        key: &Key,
        set: &Value,
        manage: Manage,
    ) -> Result<bool, (&'static str, Error)> {
        match manage {
            Manage::Nothing => Ok(false),
            Manage::Create(count) => {
                let pod = &new_pod(set, &set["spec"]["template"]);
                let made = burst(vec![(); count], |()| self.control.create(client, key, set, pod)).await.1;
                match made {
                    // Its namespace takes the ReplicaSet along.
                    Err(error) if namespace_terminates(&error) => Ok(false),
                    made => made.map(|()| true).map_err(|error| ("FailedCreate", error)),
                }
            }
            Manage::Delete(pods) => {
                let gone = burst(pods, |(pod, uid)| self.control.delete(client, set, pod, uid)).await.1;
                gone.map(|()| true).map_err(|error| ("FailedDelete", error))
            }
        }
    }

    async fn write(&self, client: &Client, key: &Key, status: &Value) -> Result<(), Error> {
        let options = PatchOptions::status();
        match client.patch(&self.resource, key.ns(), &key.name, &status_patch(status), &options).await {
            Ok(answer) => self.own_written.expect(key, &answer),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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

    fn observed(set: &Value, owned: Vec<Pod>, orphans: Vec<Pod>) -> Observed<'_> {
        let related = owned.iter().map(|(_, pod)| pod.clone()).collect();
        Observed { set, owned, orphans, related, now: Timestamp::from_second(100).unwrap() }
    }

    fn decided(set: &Value, owned: Vec<Pod>, orphans: Vec<Pod>) -> Decision {
        decide(&observed(set, owned, orphans))
    }

    #[test]
    fn missing_pods_are_made_and_ended_ones_do_not_count() {
        let ended = pod("b", |p| p.phase = Phase::Failed);
        let going = pod("c", |p| p.deleting = true);
        let decision = decided(&set(3), vec![pod("a", |_| {}), ended, going], vec![]);
        assert_eq!(decision.manage, Manage::Create(2));
    }

    #[test]
    fn surplus_pods_go_in_the_order_of_their_worth() {
        let owned = vec![
            pod("ready-long", ready_since(-1000)),
            pod("ready-short", ready_since(90)),
            pod("ready-cheap", |p| (p.ready, p.deletion_cost) = (true, -5)),
            pod("ready-among-others", |p| (p.ready, p.node) = (true, "crowded".into())),
            pod("running", |p| p.node = "crowded".into()),
            pod("running-restarted", |p| p.restarts = (3, 0)),
            pod("pending", |p| p.phase = Phase::Pending),
            pod("unscheduled", |p| p.scheduled = false),
        ];
        // Names of nodes are empty where the test has nothing to say of them: those are one node too.
        let mut observed = observed(&Value::Null, owned, vec![]);
        observed.related.retain(|pod| pod.node == "crowded");
        let gone = victims(&observed, &observed.active(), 7);
        let names: Vec<&str> = gone.iter().map(|(_, uid)| uid.as_str()).collect();
        let expected = [
            "unscheduled",
            "pending",
            "running",
            "running-restarted",
            "ready-cheap",
            "ready-among-others",
            "ready-short",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_pod_is_available_after_it_was_ready_for_long_enough() {
        let owned =
            vec![pod("a", ready_since(80)), pod("b", ready_since(96)), pod("c", |p| p.deleting = true)];
        let (status, again) = status(&observed(&set(2), owned, vec![]), None);
        let expected = json!({
            "observedGeneration": 3, "replicas": 2, "fullyLabeledReplicas": 2, "readyReplicas": 2,
            "availableReplicas": 1, "terminatingReplicas": 1,
        });
        assert_eq!((status, again), (expected, Some(Duration::from_secs(6))));
    }

    #[test]
    fn a_failure_is_told_until_there_is_none() {
        let failure = Failure { reason: "FailedCreate", message: "quota".into() };
        let mut failing = set(1);
        failing["status"] = status(&observed(&failing, vec![], vec![]), Some(&failure)).0;
        assert_eq!(failing["status"]["conditions"][0]["reason"], "FailedCreate");
        assert_eq!(status(&observed(&failing, vec![], vec![]), Some(&failure)).0, failing["status"]);
        assert!(status(&observed(&failing, vec![], vec![]), None).0["conditions"].is_null());
    }

    #[test]
    fn matching_orphans_are_adopted_and_strangers_released() {
        let orphan = pod("orphan", |p| p.owner.clear());
        let stranger = pod("stranger", |p| p.labels = None);
        let decision = decided(&set(1), vec![stranger.clone()], vec![orphan.clone()]);
        let expected =
            [Claim::Adopt(orphan.0, "orphan".into()), Claim::Release(stranger.0, "stranger".into())];
        assert_eq!(decision.claims, expected);
        assert_eq!(decision.manage, Manage::Nothing, "not before the adoption counts");
    }

    #[test]
    fn a_set_that_is_being_deleted_or_makes_no_sense_makes_no_pods() {
        let mut deleting = set(3);
        deleting["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        assert_eq!(decided(&deleting, vec![], vec![]).manage, Manage::Nothing);
        for broken in [Value::Null, json!({"spec": {"selector": {"matchLabels": 3}}})] {
            assert_eq!(decided(&broken, vec![], vec![]), Decision::default());
        }
    }
}
