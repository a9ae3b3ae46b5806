//! Lets Pods go whose ends are in their runs' statuses: keeps their logs, deletes them or not, and takes the finalizer off.
//!
//! It has a queue of its own, so that no step of a run waits for it. Nothing of it has to outlive the process: whoever takes a
//! run up next finds the Pods that still have the finalizer.

use super::Runs;
use crate::kinds::{PODS, SECRETS};
use crate::live::Live;
use crate::view::PodSeen;
use freehold_client::{Client, DeleteOptions, Error, Patch, PatchOptions};
use freehold_machinery::meta;
use freehold_runtime::{Controller, Key, Outcome, Presence, Queue, Reconciled, Scope};
use freehold_workflow_api::{PodRetention, names};
use parking_lot::Mutex;
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Pods of one plane that are let go at once.
const WORKERS: usize = 8;
/// Pods of one run that may wait: as many as may be under way. It creates none beyond them.
const MAX_WAITING: usize = 1000;

/// A Pod whose end is counted.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    /// The name of its run.
    pub(super) run: Box<str>,
    pub(super) run_uid: String,
    pub(super) retention: PodRetention,
}

/// Pods that are to be let go.
pub(super) struct Releases {
    queue: Arc<Queue<Key>>,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    pods: HashMap<Key, Counted>,
    /// How many of them each run has, by its uid.
    of_run: HashMap<String, usize>,
}

impl Waiting {
    fn remove(&mut self, pod: &Key) {
        let Some(counted) = self.pods.remove(pod) else { return };
        if let Some(count) = self.of_run.get_mut(&counted.run_uid) {
            *count -= 1;
            if *count == 0 {
                self.of_run.remove(&counted.run_uid);
            }
        }
    }
}

impl Default for Releases {
    fn default() -> Self {
        Self { queue: Queue::new(), waiting: Mutex::default() }
    }
}

impl Releases {
    /// Has a Pod let go, unless that is under way.
    pub(super) fn add(&self, pod: Key, counted: Counted) {
        let mut waiting = self.waiting.lock();
        if waiting.pods.contains_key(&pod) {
            return;
        }
        *waiting.of_run.entry(counted.run_uid.clone()).or_default() += 1;
        waiting.pods.insert(pod.clone(), counted);
        drop(waiting);
        self.queue.add(pod);
    }

    /// Whether so many Pods of a run wait that no further one should be created.
    pub(super) fn are_behind(&self, run_uid: &str) -> bool {
        self.waiting.lock().of_run.get(run_uid).is_some_and(|count| *count > MAX_WAITING)
    }

    fn get(&self, pod: &Key) -> Option<Counted> {
        self.waiting.lock().pods.get(pod).cloned()
    }

    fn remove(&self, pod: &Key) {
        self.waiting.lock().remove(pod);
    }

    /// Starts to let Pods go.
    pub(super) fn start(scope: &Scope, runs: &Arc<Runs>) {
        let queue = runs.releases.queue.clone();
        let controller = Controller::new("workflow-pod", queue).workers(WORKERS).metrics(&scope.metrics);
        let (runs, token) = (runs.clone(), scope.token.clone());
        scope.tasks.spawn(async move {
            controller.run(token, move |pod| work(runs.clone(), pod)).await;
        });
    }
}

/// Lets a Pod go, if its plane and its share of the work are here.
async fn work(runs: Arc<Runs>, pod: Key) -> Reconciled {
    let Some(counted) = runs.releases.get(&pod) else { return Ok(Outcome::Done) };
    match runs.planes.presence(&pod.plane) {
        Presence::Arriving => return Ok(Outcome::After(Duration::from_millis(100))),
        Presence::Here if !runs.planes.is_handed_over(&pod.plane) => {}
        _ => {
            runs.releases.remove(&pod);
            return Ok(Outcome::Done);
        }
    }
    let planes = runs.planes.clone();
    let letting_go = async { runs.let_go(&pod, &counted).await.map(|()| Outcome::Done).map_err(Into::into) };
    let done = planes.work(&pod.plane, async { runs.options.shared(&pod, letting_go).await }).await.flatten();
    if done.as_ref().is_none_or(|done| matches!(done, Ok(Outcome::Done))) {
        runs.releases.remove(&pod);
    }
    done.unwrap_or(Ok(Outcome::Done))
}

impl Runs {
    /// Has Pods let go whose ends are in the status.
    pub(super) fn release_pods(&self, key: &Key, live: &mut Live) {
        let retention = live.plan.spec().pod_retention;
        for (node, attempt) in live.ended.drain() {
            let name = live.run.pod_name(&live.plan, node, attempt);
            let pod = Key::new(key.plane.clone(), &key.namespace, &name);
            let run_uid = live.run.info.uid.clone();
            self.releases.add(pod, Counted { run: key.name.clone(), run_uid, retention });
        }
    }

    /// Deletes a Pod, or keeps it, and takes the finalizer off.
    async fn let_go(&self, pod: &Key, counted: &Counted) -> Result<(), Error> {
        let client = self.client(pod);
        let view = self.pods.get(pod).filter(|view| view.run_uid == counted.run_uid);
        let run = Key::new(pod.plane.clone(), &pod.namespace, &counted.run);
        if let (Some(observer), Some(_)) = (&self.options.observer, &view)
            && let Err(error) = observer.pod_ended(&client, &run, &pod.name, &counted.run_uid).await
        {
            tracing::warn!(pod = %pod.name, %error, "failed to keep a log; will retry");
            return Err(Error::Decode(error.to_string()));
        }
        let failed = view.as_ref().is_some_and(|view| matches!(view.seen, PodSeen::Failed(_)));
        let kept = match counted.retention {
            PodRetention::Delete => false,
            PodRetention::KeepFailed => failed,
            PodRetention::Keep => true,
        };
        let is_running = view.as_ref().is_some_and(|view| view.running);
        if !kept || is_running {
            match client.delete(&PODS, pod.ns(), &pod.name, &DeleteOptions::default()).await {
                Err(error) if error.is_not_found() => return Ok(()),
                deleted => deleted.map(drop)?,
            }
        }
        if view.is_some_and(|view| view.artifacts) {
            forget_places(&client, pod, &counted.run_uid).await?;
        }
        let patch =
            Patch::Strategic(json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [names::COUNTED]}}));
        match client.patch(&PODS, pod.ns(), &pod.name, &patch, &PatchOptions::default()).await {
            Err(error) if error.is_not_found() => Ok(()),
            patched => patched.map(drop),
        }
    }
}

/// Deletes the Secret that said to a Pod where its artifacts are.
async fn forget_places(client: &Client, pod: &Key, run_uid: &str) -> Result<(), Error> {
    let Some(secret) = super::act::own_secret(client, pod, &pod.name, run_uid).await? else { return Ok(()) };
    match client.delete(&SECRETS, pod.ns(), &pod.name, &DeleteOptions::uid(meta::uid(&secret))).await {
        Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
        deleted => deleted.map(drop),
    }
}
