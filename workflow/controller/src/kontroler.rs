//! Kontroler's kinds: each object is converted to the one of the same name in the subsystem's own group, which it owns.
//!
//! What cannot be converted is told in its status with the path of each field, and so is how runs stand. An object of that name
//! that somebody else made is left alone. Runs are converted once: they are what they were when they were made.

use crate::Options;
use crate::runs::Runs;
use freehold_client::{Client, Error, Patch, PatchOptions, Resource};
use freehold_machinery::{Value, meta};
use freehold_runtime::{
    Controller, Informer, Interest, Key, Outcome, Presence, Queue, Reconciled, Scope, Shared, Store,
};
use freehold_workflow_api::kontroler::{GROUP, VERSION};
use freehold_workflow_convert::convert_with;
use serde_json::json;
use std::sync::Arc;

/// Objects of one plane and kind that are worked on at once.
const WORKERS: usize = 2;
const MANAGER: &str = "freehold-workflow-kontroler";

/// A kind of Kontroler's, and what it becomes.
#[derive(Clone)]
struct Conversion {
    from: Resource,
    kind: &'static str,
    to: Resource,
}

const DAGS: Conversion =
    Conversion { from: Resource::namespaced(GROUP, VERSION, "dags"), kind: "DAG", to: crate::kinds::DAGS };
const TASKS: Conversion = Conversion {
    from: Resource::namespaced(GROUP, VERSION, "dagtasks"),
    kind: "DagTask",
    to: crate::kinds::TASKS,
};
const RUNS: Conversion = Conversion {
    from: Resource::namespaced(GROUP, VERSION, "dagruns"),
    kind: "DagRun",
    to: crate::kinds::RUNS,
};

/// The kind of runs of Kontroler's, by which owners are told.
pub(crate) const RUN_KIND: &str = "DagRun";

/// The controllers of Kontroler's kinds.
pub(crate) struct Kontroler {
    runs: Arc<Runs>,
    /// Shared tasks, whose parameters DAGs that use them need.
    tasks: Store<Value>,
    /// Objects of each kind, and those that are to be looked at.
    kinds: [(Store<Value>, Arc<Queue<Key>>); 3],
}

/// Starts the controllers of Kontroler's kinds.
pub(crate) fn start(scope: &Scope, runs: &Arc<Runs>) -> Arc<Kontroler> {
    let mut tasks = Informer::new(&scope.planes, Interest::objects(TASKS.from.clone()));
    let (dag_queue, task_queue) = (Queue::new(), Queue::new());
    let mut dags = Informer::new(&scope.planes, Interest::objects(DAGS.from.clone()));
    let mut found = Informer::new(&scope.planes, Interest::objects(RUNS.from.clone()));
    let kinds = [
        (dags.store(), dag_queue.clone()),
        (tasks.store(), task_queue.clone()),
        (found.store(), runs.kontroler_queue.clone()),
    ];
    let shared = Arc::new(Kontroler { runs: runs.clone(), tasks: tasks.store(), kinds });
    dags.enqueue_into(&dag_queue);
    tasks.enqueue_into(&task_queue);
    found.enqueue_into(&runs.kontroler_queue);
    // A DAG that came before a shared task of it is looked at again.
    let (all, again) = (dags.store(), dag_queue.clone());
    tasks.on_change(move |change| {
        for (key, _) in all.in_namespace(&change.key.plane, &change.key.namespace) {
            again.add(key);
        }
    });
    let parts = [
        (DAGS, "workflow-kontroler-dag", dags, dag_queue),
        (TASKS, "workflow-kontroler-task", tasks, task_queue),
        (RUNS, "workflow-kontroler-run", found, runs.kontroler_queue.clone()),
    ];
    for (conversion, name, informer, queue) in parts {
        let (store, token, shared) = (informer.store(), scope.token.clone(), shared.clone());
        scope.tasks.spawn(informer.run(token.clone()));
        let controller = Controller::new(name, queue).workers(WORKERS).metrics(&scope.metrics);
        scope.tasks.spawn(async move {
            if !store.synced(&token).await || !shared.tasks.synced(&token).await {
                return;
            }
            controller
                .run(token, move |key| {
                    let (shared, object, conversion) = (shared.clone(), store.get(&key), conversion.clone());
                    async move { shared.work(key, object, &conversion).await }
                })
                .await;
        });
    }
    shared
}

impl Kontroler {
    /// Takes up a part of the work that came.
    pub(crate) fn moved(&self, change: Shared) {
        let (Shared::Came(part), Some(shares)) = (change, &self.runs.options.shares) else { return };
        for (store, queue) in &self.kinds {
            let keys = store.keys().into_iter().filter(|key| Options::part(shares, key) == part);
            keys.for_each(|key| queue.add(key));
        }
    }

    async fn work(&self, key: Key, object: Option<Arc<Value>>, conversion: &Conversion) -> Reconciled {
        let planes = &self.runs.planes;
        match planes.presence(&key.plane) {
            Presence::Arriving => return Ok(Outcome::After(std::time::Duration::from_millis(100))),
            Presence::Here if !planes.is_handed_over(&key.plane) => {}
            _ => return Ok(Outcome::Done),
        }
        // What it owns goes with it.
        let Some(object) = object.filter(|object| !meta::is_deleting(object)) else {
            return Ok(Outcome::Done);
        };
        let client = self.runs.client(&key);
        let work = async {
            let said = self.convert(&client, &key, &object, conversion).await?;
            self.tell(&client, &key, &object, conversion, said).await?;
            Ok(Outcome::Done)
        };
        let working = planes.work(&key.plane, self.runs.options.shared(&key, work));
        working.await.flatten().unwrap_or(Ok(Outcome::Done))
    }

    /// Converts an object; an inner error is what is wrong with it.
    async fn convert(
        &self,
        client: &Client,
        key: &Key,
        object: &Value,
        conversion: &Conversion,
    ) -> Result<Result<(), String>, Error> {
        let existing = client.get_opt(&conversion.to, key.ns(), &key.name).await?;
        if existing.as_ref().is_some_and(|existing| !is_owned(existing, object)) {
            let kind = format!("{}/{}", conversion.to.group, conversion.to.plural);
            return Ok(Err(format!(
                "there is an object of {kind} with this name that is not of this one's making"
            )));
        }
        // It begins once: it is not made again when its counterpart has gone.
        let began = existing.is_some() || object["status"]["dagRunId"].is_u64();
        if began && conversion.kind == RUN_KIND {
            return Ok(Ok(()));
        }
        let mut document = object.clone();
        document["apiVersion"] = format!("{GROUP}/{VERSION}").into();
        document["kind"] = conversion.kind.into();
        let known: Vec<Value> = self
            .tasks
            .in_namespace(&key.plane, &key.namespace)
            .into_iter()
            .map(|(_, task)| {
                let mut task = (*task).clone();
                task["apiVersion"] = document["apiVersion"].clone();
                task["kind"] = TASKS.kind.into();
                task
            })
            .collect();
        let converted = convert_with(&[document], &known).pop().unwrap_or_default();
        if !converted.problems.is_empty() {
            let texts: Vec<String> = converted.problems.iter().take(10).map(ToString::to_string).collect();
            return Ok(Err(texts.join("; ")));
        }
        let Some(mut made) = converted.objects.into_iter().next() else {
            return Ok(Err("nothing comes of it".into()));
        };
        made["metadata"] = json!({
            "name": &*key.name, "namespace": &*key.namespace, "labels": object["metadata"]["labels"],
            "ownerReferences": [{
                "apiVersion": format!("{GROUP}/{VERSION}"), "kind": conversion.kind, "name": meta::name(object),
                "uid": meta::uid(object), "controller": true,
            }],
        });
        if made["metadata"]["labels"].is_null() {
            made["metadata"].as_object_mut().map(|metadata| metadata.remove("labels"));
        }
        let written = match conversion.kind {
            RUN_KIND => client.create(&conversion.to, &made).await,
            _ => client.apply(&conversion.to, MANAGER, &made).await,
        };
        match written {
            Ok(_) => Ok(Ok(())),
            Err(error) if error.is_already_exists() => Ok(Ok(())),
            Err(error) if matches!(error.code(), 400 | 403 | 413 | 422) => Ok(Err(error.to_string())),
            Err(error) => Err(error),
        }
    }

    /// Says in the status how it stands, if that is new.
    async fn tell(
        &self,
        client: &Client,
        key: &Key,
        object: &Value,
        conversion: &Conversion,
        said: Result<(), String>,
    ) -> Result<(), Error> {
        let status = match (said, conversion.kind) {
            (Err(problem), _) => json!({"phase": "Failed", "message": problem}),
            (Ok(()), RUN_KIND) => self.run_status(key, object),
            (Ok(()), _) => json!({"phase": "Successful", "message": ""}),
        };
        if object["status"] == status {
            return Ok(());
        }
        let patch = Patch::Json(json!([
            {"op": "test", "path": "/metadata/uid", "value": meta::uid(object)},
            {"op": "add", "path": "/status", "value": status},
        ]));
        match client.patch(&conversion.from, key.ns(), &key.name, &patch, &PatchOptions::status()).await {
            Err(error) if error.is_not_found() || error.code() == 422 => Ok(()),
            written => written.map(drop),
        }
    }

    /// The status of a run in Kontroler's words. Its number follows from the run's uid.
    fn run_status(&self, key: &Key, object: &Value) -> Value {
        let run = self.runs.runs.get(key);
        if run.is_none() && matches!(object["status"]["phase"].as_str(), Some("success" | "failed")) {
            return object["status"].clone();
        }
        let phase = match run.as_deref().map(|run| (run.over, run.succeeded)) {
            None | Some((false, _)) => "running",
            Some((true, true)) => "success",
            Some((true, false)) => "failed",
        };
        let message = run.map(|run| run.message.clone()).unwrap_or_default();
        json!({"dagRunId": number(meta::uid(object)), "phase": phase, "message": message})
    }
}

/// Whether an object was made for another.
fn is_owned(object: &Value, by: &Value) -> bool {
    let owners = object["metadata"]["ownerReferences"].as_array();
    owners.into_iter().flatten().any(|owner| owner["uid"] == meta::uid(by))
}

/// A number from 1 on that fits into 31 bits.
fn number(uid: &str) -> u32 {
    let digits: String = uid.chars().filter(char::is_ascii_hexdigit).take(8).collect();
    (u32::from_str_radix(&digits, 16).unwrap_or(1) & 0x7fff_ffff).max(1)
}
