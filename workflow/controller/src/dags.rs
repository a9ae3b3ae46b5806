//! Makes runs when they are due, tells whether definitions are valid, and deletes old runs.

use crate::Options;
use crate::kinds::{DAGS, RUNS};
use crate::runs::{Runs, entry};
use crate::view::RunView;
use freehold_client::{Client, Error, Patch, PatchOptions};
use freehold_machinery::{Value, meta, time};
use freehold_runtime::{Controller, Key, Outcome, Presence, Reconciled, Scope, conditions};
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
/// A tick further away is looked at again by then: clocks are set.
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
        let Some(dag) = self.runs.definitions.dags.get(&key).filter(|dag| !meta::is_deleting(dag)) else {
            return Ok(Outcome::Done);
        };
        let client = self.runs.client(&key);
        let runs = self.runs.runs.by_index(&key.plane, &entry(&key.namespace, &key.name));
        let now = Timestamp::now();
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
        let mut since = since(&dag, now);
        let mut due = schedule::due(&spec, &schedules, since, now, active.len());
        if !due.run.is_empty() && self.runs.options.shares.is_some() {
            // The controller that had this share before may have made runs that are over and gone.
            let Some(fresh) = client.get_opt(&DAGS, key.ns(), &key.name).await? else {
                return Ok(Outcome::Done);
            };
            since = since.max(self::since(&fresh, now));
            due = schedule::due(&spec, &schedules, since, now, active.len());
        }
        if due.replace {
            self.terminate(&client, &active).await?;
        }
        for tick in &due.run {
            self.make(&client, &key, &dag, *tick).await?;
        }
        self.prune(&client, &spec, &runs).await?;
        self.tell(&client, &key, &dag, (valid, &problem), &due, active.len() + due.run.len(), now).await?;
        Ok(due.next.map_or(Outcome::Done, |next| {
            let wait = Duration::try_from(next.duration_since(Timestamp::now())).unwrap_or_default();
            // A moment later, so that it is due by all means.
            Outcome::After((wait + Duration::from_millis(5)).min(FAR))
        }))
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
    async fn prune(
        &self,
        client: &Client,
        spec: &DagSpec,
        runs: &[(Key, Arc<RunView>)],
    ) -> Result<(), Error> {
        for (succeeded, keep) in [(true, spec.history.successful), (false, spec.history.failed)] {
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
