//! Makes runs when they are due, tells whether definitions are valid, and deletes old runs.

use crate::Options;
use crate::kinds::{DAGS, RUNS};
use crate::runs::{Runs, entry};
use crate::view::{DagView, RunView};
use freehold_client::{Client, Error, Patch, PatchOptions};
use freehold_machinery::{Value, meta, time};
use freehold_runtime::{
    Change, Controller, Key, Outcome, Presence, Queue, Reconciled, Scope, Store, conditions,
};
use freehold_workflow_api::{DagSpec, names};
use freehold_workflow_engine::names::{label, scheduled_run};
use freehold_workflow_engine::schedule::{self, Due};
use jiff::Timestamp;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// How many DAGs of one plane are worked on at once.
const WORKERS: usize = 4;
/// Runs that are deleted at once when there are too many.
const DELETES: usize = 50;
/// A tick further away is looked at again by then, or by twice that: clocks are set.
const FAR: Duration = Duration::from_secs(3600);

struct Dags {
    runs: Arc<Runs>,
    instance: String,
}

/// Starts the controller of DAGs.
pub(crate) fn start(scope: &Scope, options: &Options, runs: Arc<Runs>) {
    let controller =
        Controller::new("workflow-dag", runs.dag_queue.clone()).workers(WORKERS).metrics(&scope.metrics);
    let dags = Arc::new(Dags { runs, instance: options.instance.clone() });
    let (token, planes) = (scope.token.clone(), scope.planes.clone());
    scope.tasks.spawn(async move {
        let (store, of_runs) = (dags.runs.definitions.dags.clone(), dags.runs.runs.clone());
        if !store.synced(&token).await || !of_runs.synced(&token).await {
            return;
        }
        let reconcile = move |key: Key| {
            let (dags, planes) = (dags.clone(), planes.clone());
            async move {
                match planes.presence(&key.plane) {
                    Presence::Arriving => return Ok(Outcome::After(Duration::from_millis(100))),
                    Presence::Here if !planes.is_handed_over(&key.plane) => {}
                    _ => return Ok(Outcome::Done),
                }
                let (plane, of) = (key.plane.clone(), key.clone());
                let options = dags.runs.options.clone();
                let working = planes.work(&plane, options.shared(&of, dags.reconcile(key)));
                working.await.flatten().unwrap_or(Ok(Outcome::Done))
            }
        };
        controller.run(token, reconcile).await;
    });
}

impl Dags {
    async fn reconcile(self: Arc<Self>, key: Key) -> Reconciled {
        let Some(view) = self.runs.definitions.dags.get(&key).filter(|view| !view.deleting) else {
            return Ok(Outcome::Done);
        };
        let client = self.runs.client(&key);
        let now = Timestamp::now();
        self.prune(&client, &key, &view).await?;
        if let Some(outcome) = at_rest(&view, now) {
            return Ok(outcome);
        }
        let Some(dag) = client.get_opt(&DAGS, key.ns(), &key.name).await? else { return Ok(Outcome::Done) };
        let runs = self.runs.runs.by_index(&key.plane, &entry(&key.namespace, &key.name));
        let (valid, problem, spec) = match serde_json::from_value::<DagSpec>(dag["spec"].clone()) {
            Err(error) => (false, error.to_string(), DagSpec::default()),
            Ok(spec) => match self.runs.definitions.compile(&key, &spec) {
                Ok(_) => (true, String::new(), spec),
                Err(errors) => {
                    let texts =
                        errors.iter().take(10).map(|error| format!("{}: {}", error.field, error.body()));
                    (false, texts.collect::<Vec<_>>().join("; "), spec)
                }
            },
        };
        let schedules = if valid { schedule::schedules(&spec) } else { Vec::new() };
        let active: Vec<&(Key, Arc<RunView>)> = runs.iter().filter(|(_, run)| !run.over).collect();
        let due = schedule::due(&spec, &schedules, since(&dag, now), now, active.len());
        if due.replace {
            self.terminate(&client, &active).await?;
        }
        for tick in &due.run {
            self.make(&client, &key, &dag, *tick).await?;
        }
        self.tell(&client, &key, &dag, (valid, &problem), &due, active.len() + due.run.len(), now).await?;
        Ok(until(due.next.map_or(0, |next| next.as_second()), Timestamp::now()))
    }

    /// Makes the run of a tick, unless it was made.
    async fn make(&self, client: &Client, key: &Key, dag: &Value, tick: Timestamp) -> Result<(), Error> {
        let mut labels = json!({names::DAG: label(&key.name)});
        if !self.instance.is_empty() {
            labels[names::INSTANCE] = self.instance.as_str().into();
        }
        let run = json!({
            "apiVersion": RUNS.api_version(), "kind": "DAGRun",
            "metadata": {
                "name": scheduled_run(&key.name, meta::uid(dag), tick.as_second()), "namespace": &*key.namespace, "labels": labels,
                "annotations": {names::TICK: time::format_seconds(tick)},
                "ownerReferences": [{
                    "apiVersion": DAGS.api_version(), "kind": "DAG", "name": &*key.name, "uid": meta::uid(dag), "controller": true,
                }],
            },
            "spec": {"dag": &*key.name},
        });
        match client.create(&RUNS, &run).await {
            Err(error) if error.is_already_exists() => Ok(()),
            created => created.map(drop),
        }
    }

    async fn terminate(&self, client: &Client, active: &[&(Key, Arc<RunView>)]) -> Result<(), Error> {
        for (key, _) in active {
            let patch = Patch::Merge(json!({"spec": {"state": "Terminated"}}));
            match client.patch(&RUNS, key.ns(), &key.name, &patch, &PatchOptions::default()).await {
                Err(error) if error.is_not_found() => {}
                patched => drop(patched?),
            }
        }
        Ok(())
    }

    /// Deletes the oldest runs beyond those that are kept.
    async fn prune(&self, client: &Client, key: &Key, dag: &DagView) -> Result<(), Error> {
        let of_dag = entry(&key.namespace, &key.name);
        if self.runs.runs.count_by_index(&key.plane, &of_dag) <= dag.successful.min(dag.failed) as usize {
            return Ok(());
        }
        let runs = self.runs.runs.by_index(&key.plane, &of_dag);
        for (succeeded, keep) in [(true, dag.successful), (false, dag.failed)] {
            let mut ended: Vec<_> = runs
                .iter()
                .filter(|(_, run)| {
                    run.over && !run.untold && run.succeeded == succeeded && run.parent.is_none()
                })
                .collect();
            let surplus = ended.len().saturating_sub(keep as usize);
            ended.sort_by_key(|(_, run)| run.ended);
            for (key, run) in ended.into_iter().take(surplus.min(DELETES)) {
                self.runs.delete_run(client, key, &run.uid).await?;
            }
        }
        Ok(())
    }

    /// Writes the status, if it says something new.
    #[allow(clippy::too_many_arguments, reason = "what one status is made of")]
    async fn tell(
        &self,
        client: &Client,
        key: &Key,
        dag: &Value,
        (valid, problem): (bool, &str),
        due: &Due,
        active: usize,
        now: Timestamp,
    ) -> Result<(), Error> {
        let mut status = dag["status"].as_object().cloned().unwrap_or_default();
        let before = status.clone();
        let generation = dag["metadata"]["generation"].clone();
        let last = due.last.or_else(|| is_changed(dag).then_some(now));
        if let Some(last) = last {
            status.insert("lastScheduled".into(), time::format_seconds(last).into());
        }
        match due.next {
            Some(next) => status.insert("nextScheduled".into(), time::format_seconds(next).into()),
            None => status.remove("nextScheduled"),
        };
        // How many run is told with the rest, not by a write of its own for each run.
        let mut conditions = status.get("conditions").cloned().unwrap_or_else(|| json!([]));
        let set = conditions::Set {
            type_: "Valid",
            status: if valid { "True" } else { "False" },
            reason: if valid { "Valid" } else { "Invalid" },
            message: problem,
            generation: generation.as_i64(),
        };
        conditions::set(&mut conditions, set, now);
        status.insert("conditions".into(), conditions);
        status.insert("observedGeneration".into(), generation);
        if status == before {
            return Ok(());
        }
        status.insert("active".into(), active.into());
        let patch = Patch::Json(json!([
            {"op": "test", "path": "/metadata/uid", "value": meta::uid(dag)},
            {"op": "add", "path": "/status", "value": status},
        ]));
        match client.patch(&DAGS, key.ns(), &key.name, &patch, &PatchOptions::status()).await {
            Err(error) if error.is_not_found() || error.code() == 422 => Ok(()),
            written => written.map(drop),
        }
    }
}

/// Has a DAG looked at that changed. One that was there before and rests waits for its tick alone: there may be a million.
pub(crate) fn enqueue(queue: &Queue<Key>, change: &Change<DagView>) {
    let rests =
        change.new.as_ref().filter(|_| change.initial).and_then(|view| at_rest(view, Timestamp::now()));
    match rests {
        Some(Outcome::After(wait)) => queue.add_after(change.key.clone(), wait),
        Some(Outcome::Done) => {}
        None if change.initial => queue.add_routine(change.key.clone()),
        None => queue.add(change.key.clone()),
    }
}

/// Has DAGs looked at that may be valid now that a shared task changed; of a cluster's own task those of all namespaces.
pub(crate) fn enqueue_invalid(queue: &Queue<Key>, dags: &Store<DagView>, task: &Key) {
    let all = match task.ns() {
        Some(namespace) => dags.in_namespace(&task.plane, namespace),
        None => dags.in_plane(&task.plane),
    };
    all.into_iter().filter(|(_, dag)| dag.invalid).for_each(|(dag, _)| queue.add(dag));
}

/// When a DAG is looked at again of which nothing is due; `None`: something may be.
fn at_rest(view: &DagView, now: Timestamp) -> Option<Outcome> {
    (view.settled && !view.invalid && (view.next == 0 || view.next > now.as_second()))
        .then(|| until(view.next, now))
}

/// When a DAG is looked at for its next tick, in seconds since 1970; 0 without one.
fn until(next: i64, now: Timestamp) -> Outcome {
    let Ok(at) = Timestamp::from_second(next) else { return Outcome::Done };
    if next == 0 {
        return Outcome::Done;
    }
    let wait = Duration::try_from(at.duration_since(now)).unwrap_or_default();
    // Of a million that were seen at once not all are looked at again at once.
    let spread = u64::from(now.subsec_nanosecond().unsigned_abs()) % FAR.as_secs();
    // A moment later, so that it is due by all means.
    Outcome::After((wait + Duration::from_millis(5)).min(FAR + Duration::from_secs(spread)))
}

/// Whether the definition changed after its schedules were looked at.
fn is_changed(dag: &Value) -> bool {
    let seen = &dag["status"]["observedGeneration"];
    !seen.is_null() && *seen != dag["metadata"]["generation"]
}

/// The time after which ticks are to be looked at: a schedule that changed begins now.
fn since(dag: &Value, now: Timestamp) -> Timestamp {
    if is_changed(dag) {
        return now;
    }
    let last = dag["status"]["lastScheduled"].as_str().and_then(time::parse);
    last.or_else(|| time::parse(meta::text(dag, "creationTimestamp"))).unwrap_or(now)
}
