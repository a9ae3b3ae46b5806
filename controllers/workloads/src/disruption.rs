//! PodDisruptionBudgets: how many pods may be evicted now
//! (<https://kubernetes.io/docs/tasks/run-application/configure-pdb/>). Evictions count the number down themselves, and name
//! their pods; this controller counts it anew, without those pods, as pods come and go.

use freehold_client::{Client, Error, Patch, PatchOptions, RawRequest};
use freehold_controllers_context::discovery::group_version;
use freehold_controllers_context::kinds::{DISRUPTION_BUDGETS, PODS};
use freehold_controllers_context::object::{controller_of, generation, int, own_entry, text, unless_gone};
use freehold_controllers_context::pods::PodView;
use freehold_controllers_context::{Context, Reconcile};
use freehold_machinery::{Value, meta, selector::Labels, time};
use freehold_runtime::{
    Change, EventType, Informer, Interest, Key, Outcome, Planes, Queue, Reconciled, Recorder, Store,
    conditions,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// A pod that was to be evicted is gone after this time, or stays.
const DELETION: SignedDuration = SignedDuration::from_secs(120);

type Pod = (Key, Arc<PodView>);

/// What is known of a budget.
struct Observed<'a> {
    budget: &'a Value,
    /// The pods that it selects.
    pods: &'a [Pod],
    /// How many pods their controllers want, or why that is not known.
    scale: Result<i64, String>,
    now: Timestamp,
}

/// What follows: the status, whom to tell of pods that are still there, and when to look again.
#[derive(Debug, PartialEq)]
struct Decision {
    status: Value,
    undeleted: Vec<Key>,
    again: Option<Duration>,
}

/// Whether the number depends on what controllers want.
fn needs_scale(budget: &Value) -> bool {
    let limit = |field: &str| &budget["spec"][field];
    !limit("maxUnavailable").is_null() || limit("minAvailable").is_string()
}

fn decide(observed: &Observed<'_>) -> Decision {
    let (budget, now) = (observed.budget, observed.now);
    let mut status = budget["status"].clone();
    let (expected, desired) = match count(observed) {
        Ok(numbers) => numbers,
        Err(message) => {
            status["disruptionsAllowed"] = 0.into();
            let observed = int(&status, "/observedGeneration").unwrap_or(0);
            set(&mut status, "False", "SyncFailed", &message, observed, now);
            return Decision { status, undeleted: Vec::new(), again: None };
        }
    };
    let (mut disrupted, mut undeleted, mut again) = (BTreeMap::new(), Vec::new(), None::<Duration>);
    for (key, _) in observed.pods.iter().filter(|(_, pod)| !pod.deleting) {
        let told = &budget["status"]["disruptedPods"][&*key.name];
        let Some(at) = told.as_str().and_then(time::parse) else { continue };
        match Duration::try_from((at + DELETION).duration_since(now)) {
            Ok(left) => {
                again = Some(again.map_or(left, |a| a.min(left)));
                disrupted.insert(key.name.to_string(), told.clone());
            }
            Err(_) => undeleted.push(key.clone()),
        }
    }
    let healthy = observed.pods.iter().filter(|(key, pod)| {
        let going = disrupted.contains_key(&*key.name);
        pod.ready && !pod.deleting && !going
    });
    let healthy = i64::try_from(healthy.count()).unwrap_or(i64::MAX);
    let allowed = if expected > 0 { (healthy - desired).max(0) } else { 0 };
    status["currentHealthy"] = healthy.into();
    status["desiredHealthy"] = desired.into();
    status["expectedPods"] = expected.into();
    status["disruptionsAllowed"] = allowed.into();
    status["observedGeneration"] = generation(budget).into();
    if let Some(status) = status.as_object_mut() {
        status.remove("disruptedPods");
    }
    if !disrupted.is_empty() {
        status["disruptedPods"] = json!(disrupted);
    }
    let (word, reason) = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    set(&mut status, word, reason, "", generation(budget), now);
    Decision { status, undeleted, again: again.map(|a| a + Duration::from_millis(10)) }
}

fn set(status: &mut Value, word: &str, reason: &str, message: &str, generation: i64, now: Timestamp) {
    let set = conditions::Set {
        type_: "DisruptionAllowed",
        status: word,
        reason,
        message,
        generation: Some(generation),
    };
    conditions::set(&mut status["conditions"], set, now);
}

/// Pods that are expected, and that have to be healthy.
fn count(observed: &Observed<'_>) -> Result<(i64, i64), String> {
    let spec = &observed.budget["spec"];
    let pods = i64::try_from(observed.pods.len()).unwrap_or(i64::MAX);
    if !spec["maxUnavailable"].is_null() {
        let expected = observed.scale.clone()?;
        return Ok((expected, (expected - scaled(&spec["maxUnavailable"], expected)?).max(0)));
    }
    match &spec["minAvailable"] {
        Value::Null => Ok((0, 0)),
        Value::Number(number) => Ok((pods, number.as_i64().unwrap_or(0))),
        percent => {
            let expected = observed.scale.clone()?;
            Ok((expected, scaled(percent, expected)?))
        }
    }
}

/// A number, or a percentage of `total`, rounded up.
fn scaled(value: &Value, total: i64) -> Result<i64, String> {
    match value {
        Value::Number(number) => Ok(number.as_i64().unwrap_or(0)),
        Value::String(text) => {
            let percent = text.strip_suffix('%').and_then(|p| p.parse::<i64>().ok());
            let percent = percent.ok_or_else(|| {
                format!("invalid value for IntOrString: invalid type: {text:?} is not a percentage")
            })?;
            Ok((percent.saturating_mul(total) + 99) / 100)
        }
        other => Err(format!("invalid value for IntOrString: {other}")),
    }
}

struct Budgets {
    planes: Planes,
    budgets: Store<Value>,
    pods: Store<PodView>,
    sets: Store<Value>,
    deployments: Store<Value>,
    recorder: Recorder,
}

/// Starts the controller, and what takes back announcements of evictions that did not happen.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    let mut informer = Informer::new(&context.planes, Interest::objects(DISRUPTION_BUDGETS));
    informer.enqueue_into(&queue);
    let budgets = context.run_informer(informer);
    let (on_pods, selecting) = (queue.clone(), budgets.clone());
    context.pods().on_change(move |change| enqueue_budgets(&on_pods, &selecting, change));
    let (on_sets, all, of_sets) = (queue.clone(), budgets.clone(), context.pods().store());
    context.replica_sets().on_change(move |change| {
        let size = |set: &Option<Arc<Value>>| set.as_ref().map(|set| set["spec"]["replicas"].clone());
        if size(&change.old) == size(&change.new) {
            return;
        }
        let uid = [&change.old, &change.new].into_iter().flatten().next().map(|set| meta::uid(set));
        let pods = uid.map(|uid| of_sets.by_index(&change.key.plane, uid)).unwrap_or_default();
        for (key, budget) in all.in_namespace(&change.key.plane, &change.key.namespace) {
            if selector(&budget).is_some_and(|s| pods.iter().any(|(_, pod)| selects(&s, pod))) {
                on_sets.add(key);
            }
        }
    });
    let (pods, sets) = (context.pods().store(), context.replica_sets().store());
    let deployments = context.deployments().store();
    context.resync(&budgets, &queue);
    start_stale(context);
    let controller = Budgets {
        planes: context.planes.clone(),
        budgets: budgets.clone(),
        pods: pods.clone(),
        sets: sets.clone(),
        deployments: deployments.clone(),
        recorder: Recorder::new("controllermanager"),
    };
    context.control("disruption", 4, &queue, &[&budgets, &pods, &sets, &deployments], controller);
}

/// The selector of a budget: an empty one selects all pods, an absent one none.
fn selector(budget: &Value) -> Option<Labels> {
    Labels::from_value(budget.pointer("/spec/selector").filter(|s| s.is_object())?).ok()
}

fn selects(selector: &Labels, pod: &PodView) -> bool {
    freehold_controllers_context::object::selects(selector, pod.labels.as_ref())
}

fn enqueue_budgets(queue: &Arc<Queue<Key>>, budgets: &Store<Value>, change: &Change<PodView>) {
    for (key, budget) in budgets.in_namespace(&change.key.plane, &change.key.namespace) {
        let Some(selector) = selector(&budget) else { continue };
        if [&change.old, &change.new].into_iter().flatten().any(|pod| selects(&selector, pod)) {
            queue.add(key);
        }
    }
}

impl Reconcile for Budgets {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        let Some(budget) = self.budgets.get(&key) else { return Ok(Outcome::Done) };
        let client = self.planes.client(&key.plane);
        let Some(selector) = selector(&budget) else { return Ok(Outcome::Done) };
        let mut pods = self.pods.in_namespace(&key.plane, &key.namespace);
        pods.retain(|(_, pod)| selects(&selector, pod));
        if pods.is_empty() {
            self.tell(&client, &budget, EventType::Normal, "NoPods", "No matching pods found").await;
        }
        let scale =
            if needs_scale(&budget) { self.scale(&client, &key, &budget, &pods).await? } else { Ok(0) };
        if let Err(message) = &scale {
            let message = format!("Failed to calculate the number of expected pods: {message}");
            self.tell(&client, &budget, EventType::Warning, "CalculateExpectedPodCountFailed", &message)
                .await;
        }
        let decision = decide(&Observed { budget: &budget, pods: &pods, scale, now: Timestamp::now() });
        for pod in &decision.undeleted {
            let message =
                format!("Pod was expected by PDB {}/{} to be deleted but it wasn't", key.namespace, key.name);
            if let Some(pod) = client.get_opt(&PODS, pod.ns(), &pod.name).await? {
                self.tell(&client, &pod, EventType::Warning, "NotDeleted", &message).await;
            }
        }
        if decision.status != budget["status"] {
            let mut budget = (*budget).clone();
            budget["status"] = decision.status;
            match client.update_status(&DISRUPTION_BUDGETS, &budget).await {
                // An eviction was quicker: its write comes as a change.
                Err(error) if !error.is_not_found() => return Err(error.into()),
                _ => {}
            }
        }
        Ok(decision.again.map_or(Outcome::Done, Outcome::After))
    }
}

impl Budgets {
    async fn tell(&self, client: &Client, about: &Value, kind: EventType, reason: &str, message: &str) {
        self.recorder.event(client, about, kind, reason, message).await;
    }

    /// How many pods the controllers of some pods want. A pod without one is not counted, and told of.
    async fn scale(
        &self,
        client: &Client,
        key: &Key,
        budget: &Value,
        pods: &[Pod],
    ) -> Result<Result<i64, String>, Error> {
        let mut scales: HashMap<String, i64> = HashMap::new();
        let mut known: HashMap<&str, ()> = HashMap::new();
        let mut unmanaged = false;
        for (pod_key, pod) in pods {
            if pod.owner.is_empty() {
                unmanaged = true;
                continue;
            }
            if known.insert(&pod.owner, ()).is_some() {
                continue;
            }
            let sets = self.sets.by_index(&key.plane, &own_entry(&pod.owner));
            let found = match sets.first() {
                Some((_, set)) => self.scale_of_set(client, key, set).await?,
                None => self.scale_of_owner(client, pod_key).await?,
            };
            let Some((uid, scale)) = found else {
                return Ok(Err(format!("found no controllers for pod {:?}", &*pod_key.name)));
            };
            scales.insert(uid, scale);
        }
        if unmanaged {
            let message = "Pods selected by this PodDisruptionBudget were found to be unmanaged. As a result, the status of \
                 the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods \
                 please set \".spec.minAvailable\" field of the PDB to an integer value.";
            self.tell(client, budget, EventType::Warning, "UnmanagedPods", message).await;
        }
        Ok(Ok(scales.values().sum()))
    }

    /// A ReplicaSet's own size, or that of the Deployment that controls it.
    async fn scale_of_set(
        &self,
        client: &Client,
        key: &Key,
        set: &Value,
    ) -> Result<Option<(String, i64)>, Error> {
        let Some(owner) = controller_of(set) else {
            return Ok(Some((meta::uid(set).to_owned(), int(set, "/spec/replicas").unwrap_or(1))));
        };
        let uid = text(owner, "/uid");
        let deployment = Key::new(key.plane.clone(), &key.namespace, text(owner, "/name"));
        match self.deployments.get(&deployment).filter(|found| meta::uid(found) == uid) {
            Some(found) => Ok(Some((uid.to_owned(), int(&found, "/spec/replicas").unwrap_or(1)))),
            None => scale_of(client, key.ns(), owner).await,
        }
    }

    /// What the `scale` subresource of a pod's controller says.
    async fn scale_of_owner(&self, client: &Client, pod: &Key) -> Result<Option<(String, i64)>, Error> {
        let Some(pod) = client.get_opt(&PODS, pod.ns(), &pod.name).await? else { return Ok(None) };
        match controller_of(&pod) {
            Some(owner) => scale_of(client, Some(meta::namespace(&pod)), owner).await,
            None => Ok(None),
        }
    }
}

/// The scale of an owner: its uid, and how many pods it wants.
async fn scale_of(
    client: &Client,
    namespace: Option<&str>,
    owner: &Value,
) -> Result<Option<(String, i64)>, Error> {
    let types = match group_version(client, text(owner, "/apiVersion")).await {
        Ok(types) => types,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error),
    };
    let Some(found) = types.into_iter().find(|t| t.kind == text(owner, "/kind")) else { return Ok(None) };
    let path = found.resource.object_path(namespace, text(owner, "/name"), Some("scale"));
    match client.json(RawRequest::get(path)).await {
        Ok(scale) if meta::uid(&scale) == text(owner, "/uid") => {
            Ok(Some((meta::uid(&scale).to_owned(), int(&scale, "/spec/replicas").unwrap_or(0))))
        }
        Ok(_) => Ok(None),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Pods that were to be evicted and are still there.
struct Stale {
    planes: Planes,
    pods: Store<PodView>,
}

/// How long the announcement still stands; `None`: there is none.
fn stale_in(pod: &PodView, now: Timestamp) -> Option<Duration> {
    if pod.deleting || pod.has_ended() {
        return None;
    }
    let left = (time::parse(&pod.disrupted_since)? + DELETION).duration_since(now);
    Some(Duration::try_from(left).unwrap_or(Duration::ZERO))
}

fn start_stale(context: &mut Context) {
    let queue = Queue::new();
    let on_pods = queue.clone();
    context.pods().on_change(move |change| {
        if let Some(left) = change.new.as_ref().and_then(|pod| stale_in(pod, Timestamp::now())) {
            on_pods.add_after(change.key.clone(), left);
        }
    });
    let pods = context.pods().store();
    let controller = Stale { planes: context.planes.clone(), pods: pods.clone() };
    context.control("stale-disruption", 1, &queue, &[&pods], controller);
}

impl Reconcile for Stale {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        let Some(pod) = self.pods.get(&key) else { return Ok(Outcome::Done) };
        match stale_in(&pod, Timestamp::now()) {
            None => return Ok(Outcome::Done),
            Some(left) if !left.is_zero() => return Ok(Outcome::After(left)),
            Some(_) => {}
        }
        let condition = json!({
            "type": "DisruptionTarget", "status": "False", "reason": "", "message": "",
            "lastTransitionTime": time::format_seconds(Timestamp::now()),
        });
        let patch =
            Patch::Strategic(json!({"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}));
        let client = self.planes.client(&key.plane);
        match client.patch(&PODS, key.ns(), &key.name, &patch, &PatchOptions::status()).await {
            Ok(_) => Ok(Outcome::Done),
            Err(error) => {
                unless_gone(&client, &PODS, (key.ns(), &key.name, &pod.uid), error).await?;
                Ok(Outcome::Done)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_machinery::PlaneId;

    fn pods(ready: usize, all: usize) -> Vec<Pod> {
        let one = |at: usize| {
            let view = PodView { ready: at < ready, ..PodView::default() };
            (Key::new(PlaneId::core(), "n", &format!("p{at}")), Arc::new(view))
        };
        (0..all).map(one).collect()
    }

    fn decided(budget: &Value, pods: &[Pod], scale: Result<i64, String>) -> Decision {
        decide(&Observed { budget, pods, scale, now: "2026-01-01T00:10:00Z".parse().unwrap() })
    }

    #[test]
    fn as_many_may_go_as_are_healthy_beyond_what_is_wanted() {
        let rows = [
            // spec, healthy, pods, scale -> expected, desired, allowed
            (json!({"minAvailable": 2}), 3, 4, 0, 4, 2, 1),
            (json!({"minAvailable": 5}), 3, 3, 0, 3, 5, 0),
            (json!({"minAvailable": "50%"}), 3, 3, 5, 5, 3, 0),
            (json!({"minAvailable": "30%"}), 3, 3, 5, 5, 2, 1),
            (json!({"maxUnavailable": 1}), 3, 3, 3, 3, 2, 1),
            (json!({"maxUnavailable": "34%"}), 3, 3, 3, 3, 1, 2),
            (json!({"maxUnavailable": 9}), 3, 3, 3, 3, 0, 3),
            (json!({"maxUnavailable": 1}), 0, 0, 0, 0, 0, 0),
        ];
        for (spec, healthy, all, scale, expected, desired, allowed) in rows {
            let budget = json!({"metadata": {"generation": 4}, "spec": spec});
            let status = decided(&budget, &pods(healthy, all), Ok(scale)).status;
            let number = |field: &str| status[field].as_i64().unwrap();
            assert_eq!(
                (number("expectedPods"), number("desiredHealthy"), number("disruptionsAllowed")),
                (expected, desired, allowed),
                "{budget}"
            );
            assert_eq!((number("currentHealthy"), number("observedGeneration")), (healthy as i64, 4));
            assert_eq!(status["conditions"][0]["status"], if allowed > 0 { "True" } else { "False" });
        }
    }

    #[test]
    fn pods_on_their_way_out_are_not_counted_until_they_should_be_gone() {
        let budget = json!({
            "metadata": {"generation": 1}, "spec": {"minAvailable": 1},
            "status": {"disruptedPods": {
                "p0": "2026-01-01T00:09:00Z", "p1": "2026-01-01T00:01:00Z", "gone": "2026-01-01T00:09:00Z",
            }},
        });
        let decision = decided(&budget, &pods(3, 3), Ok(0));
        assert_eq!(decision.status["disruptedPods"], json!({"p0": "2026-01-01T00:09:00Z"}));
        assert_eq!(
            (&decision.status["currentHealthy"], &decision.status["disruptionsAllowed"]),
            (&json!(2), &json!(1))
        );
        assert_eq!(decision.undeleted.iter().map(|key| &*key.name).collect::<Vec<_>>(), ["p1"]);
        assert_eq!(decision.again, Some(Duration::from_millis(60_010)));
    }

    #[test]
    fn what_cannot_be_counted_allows_nothing_and_says_why() {
        for (spec, scale) in [
            (json!({"maxUnavailable": 1}), Err("found no controllers for pod \"p0\"".to_owned())),
            (json!({"maxUnavailable": "many"}), Ok(3)),
        ] {
            let budget =
                json!({"metadata": {"generation": 1}, "spec": spec, "status": {"disruptionsAllowed": 2}});
            let status = decided(&budget, &pods(3, 3), scale).status;
            assert_eq!(status["disruptionsAllowed"], 0);
            assert_eq!(status["conditions"][0]["reason"], "SyncFailed");
        }
    }

    #[test]
    fn an_eviction_that_did_not_happen_is_taken_back() {
        let now = "2026-01-01T00:10:00Z".parse().unwrap();
        let pod =
            |since: &str, deleting| PodView { disrupted_since: since.into(), deleting, ..PodView::default() };
        assert_eq!(stale_in(&pod("", false), now), None);
        assert_eq!(stale_in(&pod("2026-01-01T00:09:00Z", false), now), Some(Duration::from_secs(60)));
        assert_eq!(stale_in(&pod("2026-01-01T00:01:00Z", false), now), Some(Duration::ZERO));
        assert_eq!(stale_in(&pod("2026-01-01T00:01:00Z", true), now), None);
    }
}
