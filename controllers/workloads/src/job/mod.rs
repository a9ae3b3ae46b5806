//! Jobs: pods that run until enough of them have succeeded
//! (<https://kubernetes.io/docs/concepts/workloads/controllers/job/>), as kube-controller-manager runs them: indexed or
//! not, with limits and policies for failures and for success, suspended and resumed.
//!
//! Each pod carries a finalizer until the status counts it, so that none is missed and none counts twice. Changes of pods
//! are taken together once a second; changes of the Job itself are acted on at once.

mod decide;
mod facts;
mod indexes;
mod orphans;
mod pod;
mod policy;
mod track;

use crate::claims::{claims, make_claims};
use decide::{BATCH, Chosen, Decision, Manage, decide};
use facts::{Facts, Observed};
use freehold_client::{Client, DeleteOptions, Error, Patch, PatchOptions};
use freehold_controllers_context::expectations::{Expectations, NOT_YET};
use freehold_controllers_context::job_pod;
use freehold_controllers_context::kinds::{JOBS, PODS};
use freehold_controllers_context::object::{conditions_of, orphan_entry, selector, text, unless_gone};
use freehold_controllers_context::pods::{PodView, burst};
use freehold_controllers_context::{Context, Reconcile};
use freehold_machinery::{Value, meta};
use freehold_runtime::{EventType, Key, Outcome, Planes, Queue, Reconciled, Recorder, Store};
use jiff::Timestamp;
use pod::New;
use policy::Backoff;
use serde_json::json;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use track::{Done, Tracking, track};

/// `spec.managedBy` of Jobs that this controller runs; empty says the same.
const CONTROLLER: &str = "kubernetes.io/job-controller";

/// Whether some other controller runs a Job.
pub(crate) fn is_managed_elsewhere(job: &Value) -> bool {
    !matches!(text(job, "/spec/managedBy"), "" | CONTROLLER)
}

/// The condition that says that a Job is over: `Complete` or `Failed`.
pub(crate) fn ended(job: &Value) -> Option<&Value> {
    conditions_of(job)
        .iter()
        .find(|c| (c["type"] == "Complete" || c["type"] == "Failed") && c["status"] == "True")
}

struct Jobs {
    planes: Planes,
    jobs: Store<Value>,
    pods: Store<PodView>,
    written: Expectations<Key>,
    own_written: Expectations<Key>,
    backoffs: Mutex<HashMap<Key, Backoff>>,
    recorder: Recorder,
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    let on_jobs = queue.clone();
    context.jobs().on_change(move |change| {
        let same = matches!((&change.old, &change.new), (Some(old), Some(new))
            if old["metadata"]["generation"] == new["metadata"]["generation"]);
        on_jobs.add_after(change.key.clone(), if same { BATCH } else { Duration::ZERO });
    });
    let jobs = context.jobs().store();
    let (on_pods, owners) = (queue.clone(), jobs.clone());
    context.pods().on_change(move |change| {
        for pod in [&change.old, &change.new].into_iter().flatten().filter(|pod| pod.job.is_some()) {
            for (key, _) in owners.by_index(&change.key.plane, &pod.owner) {
                on_pods.add_after(key, BATCH);
            }
        }
    });
    let pods = context.pods().store();
    context.resync(&jobs, &queue);
    orphans::start(context, &jobs, &pods);
    let controller = Jobs {
        planes: context.planes.clone(),
        jobs: jobs.clone(),
        pods: pods.clone(),
        written: Expectations::default(),
        own_written: Expectations::default(),
        backoffs: Mutex::default(),
        recorder: Recorder::new("job-controller"),
    };
    context.control("job", 8, &queue, &[&jobs, &pods], controller);
}

impl Reconcile for Jobs {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        let job = self.jobs.get(&key);
        let Some(job) = job.filter(|job| !is_managed_elsewhere(job) && ended(job).is_none()) else {
            self.backoffs().remove(&key);
            return Ok(Outcome::Done);
        };
        if !self.written.are_met(&key, &self.pods) || !self.own_written.are_met(&key, &self.jobs) {
            return Ok(NOT_YET);
        }
        let client = self.planes.client(&key.plane);
        let owned = self.pods.by_index(&key.plane, meta::uid(&job));
        if let Some(selector) = selector(&job) {
            let orphans = self.pods.by_index(&key.plane, &orphan_entry(&key.namespace));
            let claims = claims(&selector, !meta::is_deleting(&job), &owned, &orphans);
            if !claims.is_empty() {
                // Decide again when they are what they should be.
                let finalizers = json!([job_pod::TRACKING]);
                make_claims(&client, &key, &job, claims, Some(&finalizers), &self.written).await?;
                return Ok(Outcome::Done);
            }
        }
        let backoff = self.backoffs().get(&key).copied().unwrap_or_default();
        let observed = Observed { job: &job, pods: &owned, backoff, now: Timestamp::now() };
        let facts = match Facts::of(&observed) {
            Ok(facts) => facts,
            Err(message) => {
                self.recorder
                    .event(&client, &job, EventType::Warning, "UnknownCompletionMode", &message)
                    .await;
                return Ok(Outcome::Done);
            }
        };
        let Decision { end, manage, again } = decide(&facts);
        let (done, managed) = self.manage(&client, &key, &job, &manage).await;
        // What fails must not keep the status from being told.
        self.track(&client, &key, &job, track(&facts, end, &manage, done), facts.backoff).await?;
        managed?;
        Ok(again.map_or(Outcome::Done, Outcome::After))
    }
}

impl Jobs {
    fn backoffs(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Backoff>> {
        self.backoffs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn manage(
        &self,
        client: &Client,
        key: &Key,
        job: &Value,
        manage: &Manage,
    ) -> (Done, Result<(), Error>) {
        let mut done = Done::default();
        let result = match manage {
            Manage::Nothing => Ok(()),
            Manage::Create(new) => {
                let (created, result) = burst(new.clone(), |new| self.create(client, key, job, new)).await;
                done.created = i64::try_from(created).unwrap_or(i64::MAX);
                result
            }
            Manage::End(pods) | Manage::Remove(pods) => {
                let strip = matches!(manage, Manage::Remove(_));
                let mut result = Ok(());
                for pod in pods {
                    let deleted = self.delete(client, key, job, pod, strip).await;
                    if deleted.is_ok() {
                        done.removed += 1;
                        done.removed_ready += i64::from(pod.ready);
                    }
                    result = result.and(deleted);
                }
                result
            }
        };
        (done, result)
    }

    async fn create(&self, client: &Client, key: &Key, job: &Value, new: New) -> Result<(), Error> {
        match client.create(&PODS, &pod::pod(job, new)).await {
            Ok(answer) => {
                self.written.expect(key, &answer);
                let message = format!("Created pod: {}", meta::name(&answer));
                self.recorder.event(client, job, EventType::Normal, "SuccessfulCreate", &message).await;
                Ok(())
            }
            Err(error) if freehold_controllers_context::object::namespace_terminates(&error) => Ok(()),
            Err(error) => {
                let message = format!("Error creating: {error}");
                self.recorder.event(client, job, EventType::Warning, "FailedCreate", &message).await;
                Err(error)
            }
        }
    }

    async fn delete(
        &self,
        client: &Client,
        key: &Key,
        job: &Value,
        pod: &Chosen,
        strip: bool,
    ) -> Result<(), Error> {
        if strip && pod.tracked {
            self.release(client, key, pod.clone()).await?;
        }
        match client.delete(&PODS, key.ns(), &pod.name, &DeleteOptions::uid(&pod.uid)).await {
            Ok(answer) => {
                self.written.expect(key, &answer);
                let message = format!("Deleted pod: {}", pod.name);
                self.recorder.event(client, job, EventType::Normal, "SuccessfulDelete", &message).await;
                Ok(())
            }
            Err(error) => {
                let this = (key.ns(), pod.name.as_str(), pod.uid.as_str());
                let Err(error) = unless_gone(client, &PODS, this, error).await else { return Ok(()) };
                let message = format!("Error deleting: {error}");
                self.recorder.event(client, job, EventType::Warning, "FailedDelete", &message).await;
                Err(error)
            }
        }
    }

    async fn release(&self, client: &Client, key: &Key, pod: Chosen) -> Result<(), Error> {
        if let Some(answer) = release(client, key.ns(), &pod.name, &pod.uid).await? {
            self.written.expect(key, &answer);
        }
        Ok(())
    }

    async fn track(
        &self,
        client: &Client,
        key: &Key,
        job: &Value,
        tracking: Tracking,
        backoff: Backoff,
    ) -> Result<(), Error> {
        let mut job = job.clone();
        if tracking.before != job["status"] {
            job = self.write(client, key, job, &tracking.before).await?;
        }
        if backoff != Backoff::default() || self.backoffs().contains_key(key) {
            self.backoffs().insert(key.clone(), backoff);
        }
        self.tell(client, &job, &tracking.events[0]).await;
        let tracked: Vec<Chosen> = tracking.release.into_iter().filter(|pod| pod.tracked).collect();
        burst(tracked, |pod| self.release(client, key, pod)).await.1?;
        if tracking.after != tracking.before {
            job = self.write(client, key, job, &tracking.after).await?;
        }
        self.tell(client, &job, &tracking.events[1]).await;
        Ok(())
    }

    /// Replaces the status of the Job as it was read: who was quicker wins, and this comes again.
    async fn write(
        &self,
        client: &Client,
        key: &Key,
        mut job: Value,
        status: &Value,
    ) -> Result<Value, Error> {
        job["status"] = status.clone();
        match client.update_status(&JOBS, &job).await {
            Ok(answer) => {
                self.own_written.expect(key, &answer);
                Ok(answer)
            }
            // It is gone; its pods are released as orphans.
            Err(error) if error.is_not_found() => Ok(job),
            Err(error) => Err(error),
        }
    }

    async fn tell(&self, client: &Client, job: &Value, events: &[track::Event]) {
        for (kind, reason, message) in events {
            self.recorder.event(client, job, *kind, reason, message).await;
        }
    }
}

/// Takes the finalizer from a pod; gives the pod, unless it is gone.
async fn release(client: &Client, ns: Option<&str>, name: &str, uid: &str) -> Result<Option<Value>, Error> {
    let patch = json!({"metadata": {"uid": uid, "$deleteFromPrimitiveList/finalizers": [job_pod::TRACKING]}});
    match client.patch(&PODS, ns, name, &Patch::Strategic(patch), &PatchOptions::default()).await {
        Ok(answer) => Ok(Some(answer)),
        Err(error) => unless_gone(client, &PODS, (ns, name, uid), error).await.map(|()| None),
    }
}

/// Whether a pod that waits to be counted waits for nobody.
fn is_orphan(pod: &PodView, jobs: &[(Key, Arc<Value>)]) -> bool {
    let tracked = pod.job.as_ref().is_some_and(|job| job.tracked);
    tracked && !jobs.iter().any(|(_, job)| is_managed_elsewhere(job) || ended(job).is_none())
}
