//! Does what the engine says.

use super::{Holder, Runs};
use crate::artifacts::PodArtifacts;
use crate::kinds::{PODS, RUNS, SECRETS};
use crate::live::Live;
use crate::pods::{self, Made, PLACES, owner};
use crate::view::PodView;
use freehold_client::{Client, DeleteOptions, Error, Patch, PatchOptions};
use freehold_machinery::{Value, meta};
use freehold_runtime::{EventType, Key};
use freehold_workflow_api::{ConcurrencyPolicy, Phase, TaskEvents, TaskKind};
use freehold_workflow_engine::{Action, Event, Failure, LockNeed, NodeId, Notice, PodState};
use futures_util::stream::{self, StreamExt as _};
use serde_json::json;

/// The image of this program where nothing else is said.
const IMAGE: &str = "freehold";
/// The type of Secrets that say to Pods where their artifacts are.
const PLACES_TYPE: &str = "workflow.freehold.dev/places";

/// The Secret that says to a Pod where its artifacts are.
fn places(live: &Live, pod: &str, artifacts: &PodArtifacts) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": PLACES_TYPE,
        "metadata": {"name": pod, "namespace": live.run.info.namespace, "ownerReferences": [owner(&live.run)]},
        "stringData": {PLACES: artifacts.places.to_string()},
    })
}

/// The Secret of a Pod, if it was made for this run: what a Pod says of itself, anybody may have written who writes Pods.
pub(super) async fn own_secret(
    client: &Client,
    key: &Key,
    name: &str,
    run_uid: &str,
) -> Result<Option<Value>, Error> {
    let is_own = |secret: &Value| {
        let owners = secret["metadata"]["ownerReferences"].as_array();
        secret["type"] == PLACES_TYPE && owners.into_iter().flatten().any(|owner| owner["uid"] == run_uid)
    };
    Ok(client.get_opt(&SECRETS, key.ns(), name).await?.filter(is_own))
}

/// Pods that are created at once for one run.
const CREATES: usize = 16;

impl Runs {
    /// Does everything that is to be done, and what follows from that.
    pub(super) async fn act(&self, client: &Client, key: &Key, live: &mut Live) -> Result<(), Error> {
        let polled: Vec<_> = live.polled.drain().collect();
        live.todo.extend(polled.into_iter().map(|(node, attempt)| Action::Execute { node, attempt }));
        let mut later = Vec::new();
        let mut failed = None;
        let is_behind = self.releases.are_behind(&live.run.info.uid);
        while !live.todo.is_empty() {
            let mut creates = Vec::new();
            while let Some(action) = live.todo.pop_front() {
                match action {
                    Action::CreatePod { .. } if is_behind => later.push(action),
                    Action::CreatePod { node, attempt } => creates.push((node, attempt)),
                    // Nobody else would ask for the lock again.
                    Action::Acquire { .. } if !self.holders_are_known(key) => later.push(action),
                    other => {
                        if let Err(error) = self.one(client, key, live, &other).await {
                            later.push(other);
                            failed = Some(error);
                        }
                    }
                }
            }
            for ((node, attempt), created) in self.create(client, key, live, creates).await {
                match created {
                    Ok(event) => live.apply(&event),
                    Err(error) => {
                        later.push(Action::CreatePod { node, attempt });
                        failed = Some(error);
                    }
                }
            }
        }
        live.todo.extend(later);
        failed.map_or(Ok(()), Err)
    }

    /// Creates Pods, several at once, and returns what that means.
    async fn create(
        &self,
        client: &Client,
        key: &Key,
        live: &Live,
        wanted: Vec<(NodeId, u32)>,
    ) -> Vec<((NodeId, u32), Result<Event, Error>)> {
        // One that is not wanted any more is not created.
        let wanted = wanted.into_iter().filter(|(node, attempt)| {
            live.run.node(*node).is_some_and(|of| u32::from(of.attempt) == *attempt && !of.state.is_over())
        });
        let each = wanted.map(|(node, attempt)| async move {
            ((node, attempt), self.create_one(client, key, live, node, attempt).await)
        });
        stream::iter(each).buffer_unordered(CREATES).collect().await
    }

    async fn create_one(
        &self,
        client: &Client,
        key: &Key,
        live: &Live,
        node: NodeId,
        attempt: u32,
    ) -> Result<Event, Error> {
        let refused = |message: String| Event::Refused { node, attempt, message };
        if let Some(outputs) = live.remembered(client, key, node, attempt).await? {
            self.figures.memoized.add();
            return Ok(Event::Pod { node, attempt, state: PodState::Memoized(outputs) });
        }
        let artifacts =
            live.artifacts(client, key, (node, attempt), self.options.artifacts.as_deref()).await?;
        let artifacts = match artifacts.transpose() {
            Ok(artifacts) => artifacts,
            Err(error) => return Ok(refused(error)),
        };
        let made = Made {
            revision: &live.revision,
            instance: &self.options.instance,
            artifacts: artifacts.as_ref(),
            image: if self.options.image.is_empty() { IMAGE } else { &self.options.image },
        };
        let pod = match pods::pod(&live.run, &live.plan, node, attempt, &made) {
            Ok(pod) => pod,
            Err(error) => return Ok(refused(error)),
        };
        if let Some(artifacts) = &artifacts
            && let Err(error) = client.create(&SECRETS, &places(live, meta::name(&pod), artifacts)).await
        {
            let name = meta::name(&pod);
            match error.is_already_exists() {
                true if own_secret(client, key, name, &live.run.info.uid).await?.is_some() => {}
                true => return Ok(refused(format!("Secret {name:?} belongs to somebody else"))),
                false if error.is_transient() => return Err(error),
                false => return Ok(refused(error.to_string())),
            }
        }
        // A controller that was held up may have lost the run, which may have had this Pod since.
        if !self.options.is_ours(key) {
            return Err(Error::Decode("the run's share of the work went to another controller".into()));
        }
        match client.create(&PODS, &pod).await {
            Ok(_) => Ok(Event::Pod { node, attempt, state: PodState::Pending }),
            Err(error) if error.is_already_exists() => {
                let Some(found) = client.get_opt(&PODS, key.ns(), meta::name(&pod)).await? else {
                    return Err(error);
                };
                match PodView::of(&found).filter(|found| found.run_uid == live.run.info.uid) {
                    Some(view) => live.pod_event(client, key, &view).await,
                    None => Ok(refused(format!("Pod {:?} belongs to somebody else", meta::name(&pod)))),
                }
            }
            // A quota may have room later.
            Err(error) if error.code() == 403 && error.to_string().contains("quota") => Err(error),
            Err(error) if matches!(error.code(), 400 | 403 | 404 | 405 | 413 | 422) => {
                Ok(refused(error.to_string()))
            }
            Err(error) => Err(error),
        }
    }

    async fn one(&self, client: &Client, key: &Key, live: &mut Live, action: &Action) -> Result<(), Error> {
        match action {
            Action::CreatePod { .. } => {}
            Action::DeletePod { node, attempt } => {
                let name = live.run.pod_name(&live.plan, *node, *attempt);
                live.ended.insert((*node, *attempt));
                if let Err(error) = client.delete(&PODS, key.ns(), &name, &DeleteOptions::default()).await
                    && !error.is_not_found()
                {
                    return Err(error);
                }
            }
            Action::Execute { node, attempt } => self.execute(client, live, *node, *attempt).await?,
            Action::Cancel { node, attempt } => {
                live.polled.remove(&(*node, *attempt));
                if live.plan.task(node.task).kind == TaskKind::Dag {
                    self.terminate_child(client, key, live, *node, *attempt).await?;
                }
            }
            Action::Acquire { node } => {
                let needs = live.plan.task(node.task).locks();
                let priority = live.plan.task(node.task).task.priority.saturating_add(live.run.info.priority);
                if self.acquire(key, (key.clone(), Some(*node)), &needs, priority) {
                    live.apply(&Event::Granted { node: *node });
                }
            }
            Action::Release { node } => self.release(key, &(key.clone(), Some(*node))),
            Action::Notify(notice) => self.notify(client, live, notice).await,
        }
        Ok(())
    }

    async fn execute(
        &self,
        client: &Client,
        live: &mut Live,
        node: NodeId,
        attempt: u32,
    ) -> Result<(), Error> {
        if live.run.node(node).is_none_or(|of| u32::from(of.attempt) != attempt || of.state.is_over()) {
            return Ok(());
        }
        if let Some(result) = live.execute(client, node, attempt, self.options.http).await? {
            live.apply(&Event::Executed { node, attempt, result });
        } else if live.plan.task(node.task).kind == TaskKind::Resource {
            live.polled.insert((node, attempt));
        } else if let Some(result) = self.child_result(live, node, attempt) {
            live.apply(&Event::Executed { node, attempt, result });
        }
        Ok(())
    }

    fn child_key(&self, live: &Live, node: NodeId, attempt: u32) -> String {
        let (info, task) = (&live.run.info, live.plan.task(node.task));
        freehold_workflow_engine::names::child_run(&info.name, &info.uid, task.name(), node, attempt)
    }

    /// How a child ended, if it did before anybody looked.
    fn child_result(&self, live: &Live, node: NodeId, attempt: u32) -> Option<super::finish::Result> {
        let name = self.child_key(live, node, attempt);
        let found = self
            .runs
            .by_index(&live.plane, &super::entry(&live.run.info.namespace, &self.child_dag(live, node)));
        let child = found.into_iter().find(|(key, _)| *key.name == *name)?.1;
        child.over.then(|| super::finish::of_child(&child))
    }

    fn child_dag(&self, live: &Live, node: NodeId) -> String {
        let name = live
            .plan
            .task(node.task)
            .task
            .template
            .dag
            .as_ref()
            .map(|dag| dag.name.clone())
            .unwrap_or_default();
        freehold_workflow_engine::values::expand_text(&live.run, &live.plan, node, 0, &name).unwrap_or(name)
    }

    async fn terminate_child(
        &self,
        client: &Client,
        key: &Key,
        live: &Live,
        node: NodeId,
        attempt: u32,
    ) -> Result<(), Error> {
        let name = self.child_key(live, node, attempt);
        let patch = Patch::Merge(json!({"spec": {"state": "Terminated"}}));
        match client.patch(&RUNS, key.ns(), &name, &patch, &PatchOptions::default()).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    /// The locks that a run holds from its start to its end.
    fn needs_of_run(live: &Live) -> Vec<LockNeed> {
        let mut needs = live.plan.locks();
        if live.plan.spec().concurrency_policy == ConcurrencyPolicy::Queue && !live.run.info.dag.is_empty() {
            needs.push(LockNeed { name: format!("dag/{}", live.run.info.dag), limit: 1, weight: 1 });
        }
        needs
    }

    /// Takes the locks of a run that begins. `false`: it waits for them.
    pub(super) fn lock_run(&self, key: &Key, live: &mut Live) -> bool {
        let needs = Self::needs_of_run(live);
        if needs.is_empty() || live.locked {
            return true;
        }
        live.locked = self.acquire(key, (key.clone(), None), &needs, live.run.info.priority);
        live.locked
    }

    /// Notes that a run has its locks from before.
    pub(super) fn hold_run(&self, key: &Key, live: &mut Live) {
        let needs = Self::needs_of_run(live);
        if !needs.is_empty() && !live.run.is_over() {
            self.locks.lock().entry(Self::namespace(key)).or_default().hold(&(key.clone(), None), &needs);
            live.locked = true;
        }
    }

    fn acquire(&self, key: &Key, holder: Holder, needs: &[LockNeed], priority: i32) -> bool {
        if !self.holders_are_known(key) {
            // Whoever holds something is taken up first; then everybody is looked at again.
            return false;
        }
        self.locks.lock().entry(Self::namespace(key)).or_default().acquire(&holder, needs, priority)
    }

    /// Whether all runs of a namespace that may hold locks were taken up. Those that were not are.
    fn holders_are_known(&self, key: &Key) -> bool {
        let namespace = Self::namespace(key);
        if self.settled.lock().contains(&namespace) {
            return true;
        }
        let mut known = true;
        for (other, run) in self.runs.in_namespace(&key.plane, &key.namespace) {
            let began = run.object.as_ref().is_some_and(|object| object["status"]["startedAt"].is_string());
            if !run.over && began && other != *key && !self.live.lock().contains_key(&other) {
                known = false;
                self.queue.add(other);
            }
        }
        if known {
            self.settled.lock().insert(namespace);
        } else {
            self.queue.add_after(key.clone(), std::time::Duration::from_millis(100));
        }
        known
    }

    /// Gives locks back; holders that have theirs now are looked at.
    pub(super) fn release(&self, key: &Key, holder: &Holder) {
        let namespace = Self::namespace(key);
        let mut locks = self.locks.lock();
        let Some(of_namespace) = locks.get_mut(&namespace) else { return };
        let granted = of_namespace.release(holder);
        drop(locks);
        for (run, node) in granted {
            if let Some(node) = node {
                self.children.lock().entry(run.clone()).or_default().push(Event::Granted { node });
            }
            self.queue.add(run);
        }
    }

    /// Tells people, by Kubernetes events about the run.
    async fn notify(&self, client: &Client, live: &Live, notice: &Notice) {
        match notice {
            Notice::RunEnded(phase) => self.figures.run(*phase, live.run.times()),
            Notice::TaskEnded { phase, .. } => self.figures.task(*phase),
            Notice::TaskRetried { .. } => self.figures.retries.add(),
            Notice::RunStarted | Notice::ApprovalWanted { .. } => {}
        }
        let wanted = live.plan.spec().notifications.as_ref().map(|wanted| wanted.events).unwrap_or_default();
        let task = |node: &NodeId| live.run.title(&live.plan, *node);
        let (kind, reason, message) = match notice {
            Notice::RunStarted | Notice::TaskEnded { phase: Phase::Skipped | Phase::Stopped, .. } => return,
            Notice::TaskEnded { phase: Phase::Succeeded, .. } if wanted != TaskEvents::All => return,
            Notice::RunEnded(_) | Notice::TaskEnded { .. } if wanted == TaskEvents::None => return,
            Notice::TaskEnded { node, phase: Phase::Succeeded } => {
                (EventType::Normal, "TaskSucceeded", format!("task {} succeeded", task(node)))
            }
            Notice::RunEnded(Phase::Succeeded) => {
                (EventType::Normal, "Succeeded", "the run succeeded".to_owned())
            }
            Notice::RunEnded(phase) => {
                let (reason, message) = live.run.reason();
                (
                    EventType::Warning,
                    if *phase == Phase::Failed { "Failed" } else { "Stopped" },
                    format!("{reason}: {message}"),
                )
            }
            Notice::TaskEnded { node, .. } => {
                (EventType::Warning, "TaskFailed", format!("task {} failed", task(node)))
            }
            Notice::TaskRetried { node, failure: Failure { reason, message, .. } } => (
                EventType::Warning,
                "TaskRetried",
                format!("task {} is tried again: {reason} {message}", task(node)),
            ),
            Notice::ApprovalWanted { node } => {
                (EventType::Normal, "ApprovalWanted", format!("task {} waits for a decision", task(node)))
            }
        };
        let about: Value = json!({
            "apiVersion": RUNS.api_version(), "kind": "DAGRun",
            "metadata": {"name": live.run.info.name, "namespace": live.run.info.namespace, "uid": live.run.info.uid},
        });
        self.recorder.event(client, &about, kind, reason, &message).await;
    }
}
