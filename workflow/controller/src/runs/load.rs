//! Takes up a run: one that is new, or one that another controller had.

use super::{AGAIN, Known, Runs};
use crate::definition::{self, Problem};
use crate::kinds::{CLAIMS, RUNS};
use crate::live::{Live, now};
use crate::pages;
use crate::pods::{claim, owner};
use crate::view::{PodView, RunView};
use freehold_client::Client;
use freehold_machinery::{Value, meta};
use freehold_runtime::{Error, Key};
use freehold_workflow_api::{DAGRun, DagRunStatus, Phase};
use freehold_workflow_engine::{Plan, Run, State};
use serde_json::json;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// What became of taking up a run.
pub(super) enum Loaded {
    Live(Box<Live>),
    /// It can't be taken up yet.
    Wait(Duration),
    /// It is over.
    Ended,
}

impl Runs {
    pub(super) async fn load(&self, key: &Key, view: &RunView) -> Result<Loaded, Error> {
        let written = self.last_written.lock().get(key).cloned();
        if written.is_some_and(|version| !self.runs.has_seen(&version)) {
            return Ok(Loaded::Wait(Duration::from_millis(50)));
        }
        let client = self.client(key);
        let Some(object) = view.object.as_ref() else { return Ok(Loaded::Ended) };
        let has_state = !object["status"]["phase"].is_null();
        // What another controller wrote last may be on its way.
        let object =
            match has_state || !view.over && object["spec"]["retry"]["count"].as_u64().unwrap_or(0) > 0 {
                true => match client.get_opt(&RUNS, key.ns(), &key.name).await? {
                    Some(object) => object,
                    None => return Ok(Loaded::Ended),
                },
                false => object.clone(),
            };
        let run: DAGRun = match serde_json::from_value(object) {
            Ok(run) => run,
            Err(error) => return self.reject(&client, key, view, "InvalidRun", &error.to_string()).await,
        };
        match self.take_up(&client, key, run).await {
            Ok(live) => Ok(Loaded::Live(Box::new(live))),
            Err(Problem::Missing(message)) => {
                self.pending(&client, key, view, &message).await?;
                Ok(Loaded::Wait(AGAIN))
            }
            Err(Problem::Invalid(message)) => {
                self.reject(&client, key, view, "InvalidDefinition", &message).await
            }
            Err(Problem::Failed(error)) => Err(error.into()),
        }
    }

    async fn take_up(&self, client: &Client, key: &Key, run: DAGRun) -> Result<Live, Problem> {
        let pods: Vec<Arc<PodView>> = self
            .pods
            .by_index(&key.plane, &super::entry(&key.namespace, &key.name))
            .into_iter()
            .map(|(_, pod)| pod)
            .filter(|pod| pod.run_uid == run.metadata.uid)
            .collect();
        // Its beginning may not have been written, but Pods say which definition it had.
        let mut revision = run.status.revision.clone();
        if let Some(pod) = pods.iter().find(|pod| revision.is_empty() && !pod.revision.is_empty()) {
            revision = pod.revision.clone();
        }
        let is_new = run.status.state.is_none() && pods.is_empty();
        let (plan, revision) = match is_new && revision.is_empty() {
            true => self.definitions.first(client, key, &run).await?,
            false => self.definitions.again(client, key, &run, &revision).await?,
        };
        let engine = match &run.status.state {
            Some(state) => {
                let mut info = definition::bare(&run);
                definition::secrets(&run, &plan, &mut info);
                let beside = pages::beside(client, key, &run.metadata.uid, state).await?;
                Run::decode(&plan, info, state, &beside)
                    .map_err(|error| Problem::Invalid(format!("its state can't be read: {error}")))?
            }
            None => {
                let info = definition::info(client, key, &run, &plan).await?;
                let engine = Run::new(&plan, info);
                self.workspace(client, &engine, &plan).await?;
                engine
            }
        };
        let namespace_uid = self.namespace_of(client, key, &run, &plan).await?;
        let is_started = engine.is_started();
        let mut live = Live {
            plane: key.plane.clone(),
            namespace_uid,
            run: engine,
            plan,
            revision,
            seen_generation: None,
            todo: VecDeque::new(),
            ended: HashSet::new(),
            polled: HashSet::new(),
            dirty: run.status.state.is_none(),
            written: run.status.state.is_some().then(Instant::now),
            began: Instant::now(),
            said: None,
            locked: false,
            known: Known {
                uid: run.metadata.uid.clone(),
                version: run.metadata.resource_version.clone(),
                writes: run.status.writes,
            },
            lost: false,
            object: run,
        };
        if is_started || !pods.is_empty() {
            self.hold_run(key, &mut live);
            if !is_started {
                live.apply(&freehold_workflow_engine::Event::Start);
                // Pods that exist are found by their names.
            }
            self.recover(client, key, &mut live, &pods).await?;
        }
        Ok(live)
    }

    /// Takes in all Pods of a run, and begins again what is not there.
    async fn recover(
        &self,
        client: &Client,
        key: &Key,
        live: &mut Live,
        pods: &[Arc<PodView>],
    ) -> Result<(), Problem> {
        for (id, node) in live.run.under_way() {
            let holds = matches!(node.state, State::Starting | State::Running | State::Deciding);
            let needs = live.plan.task(id.task).locks();
            if holds && !needs.is_empty() {
                self.locks
                    .lock()
                    .entry(Self::namespace(key))
                    .or_default()
                    .hold(&(key.clone(), Some(id)), &needs);
            }
        }
        let mut sorted: Vec<_> = pods.iter().collect();
        // Ends first: others follow from them.
        sorted.sort_by_key(|pod| (pod.attempt, !pod.has_ended(), pod.node));
        self.inbox.lock().remove(key);
        for pod in sorted {
            self.pod_news(client, key, live, pod, false).await?;
        }
        let exists: HashSet<_> = pods.iter().map(|pod| (pod.node, pod.attempt)).collect();
        let actions = live.run.recover(&live.plan, |node, attempt| exists.contains(&(node, attempt)), now());
        live.todo.extend(actions);
        live.dirty |= live.run.take_dirty();
        Ok(())
    }

    /// The uid of a run's namespace, where history or artifacts are kept by it.
    async fn namespace_of(
        &self,
        client: &Client,
        key: &Key,
        run: &DAGRun,
        plan: &Plan,
    ) -> Result<String, Problem> {
        let has_artifacts = || plan.tasks().iter().any(|task| task.task.template.artifacts.is_some());
        if self.options.observer.is_none() && !has_artifacts() {
            return Ok(String::new());
        }
        let created = run.metadata.creation_timestamp.as_deref().unwrap_or_default();
        let found = crate::namespace_uid(client, &key.namespace, created).await?;
        found.ok_or_else(|| Problem::Missing("its namespace is not there any more".into()))
    }

    async fn workspace(&self, client: &Client, run: &Run, plan: &Plan) -> Result<(), Problem> {
        let Some(workspace) =
            plan.spec().workspace.as_ref().filter(|workspace| workspace.claim_name.is_empty())
        else {
            return Ok(());
        };
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": claim(run, plan), "namespace": run.info.namespace, "ownerReferences": [owner(run)]},
            "spec": workspace.claim,
        });
        match client.create(&CLAIMS, &claim).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_already_exists() => Ok(()),
            Err(error) if matches!(error.code(), 400 | 422) => {
                Err(Problem::Invalid(format!("workspace: {error}")))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Says that a run waits for something that is not there.
    async fn pending(&self, client: &Client, key: &Key, view: &RunView, message: &str) -> Result<(), Error> {
        let known = view.object.as_ref().is_some_and(|object| object["status"]["message"] == message);
        if known {
            return Ok(());
        }
        let known = view.object.as_ref().map(Known::of).unwrap_or_default();
        let status = DagRunStatus {
            phase: Phase::Pending,
            reason: "Missing".into(),
            message: message.into(),
            writes: known.writes + 1,
            ..DagRunStatus::default()
        };
        self.put_status(client, key, &known, json!(status)).await?;
        Ok(())
    }

    /// Ends a run that can't begin, or go on.
    async fn reject(
        &self,
        client: &Client,
        key: &Key,
        view: &RunView,
        reason: &str,
        message: &str,
    ) -> Result<Loaded, Error> {
        // What is known of it here has not all of its status.
        let object =
            client.get_opt(&RUNS, key.ns(), &key.name).await?.filter(|run| meta::uid(run) == view.uid);
        let object = object.as_ref();
        let known = object.map(Known::of).unwrap_or_default();
        let at = freehold_machinery::time::format_seconds(jiff::Timestamp::now());
        let mut status: Value = object
            .map(|object| object["status"].clone())
            .filter(Value::is_object)
            .unwrap_or_else(|| json!({}));
        let ended = DagRunStatus {
            phase: Phase::Failed,
            reason: reason.into(),
            message: message.chars().take(2000).collect(),
            finished_at: Some(at.clone()),
            observed_generation: object.and_then(|object| object["metadata"]["generation"].as_i64()),
            conditions: vec![freehold_workflow_api::Condition {
                type_: "Succeeded".into(),
                status: "False".into(),
                reason: reason.into(),
                message: message.chars().take(2000).collect(),
                last_transition_time: at,
                observed_generation: None,
            }],
            writes: known.writes + 1,
            ..DagRunStatus::default()
        };
        if let (Some(status), Value::Object(ended)) = (status.as_object_mut(), json!(ended)) {
            status.extend(ended);
        }
        self.put_status(client, key, &known, status).await?;
        Ok(Loaded::Ended)
    }
}
