//! CronJobs: Jobs at the times of a schedule (<https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/>).
//!
//! A Job is named after its time, so none is made twice, whatever stops in between.

mod decide;
mod schedule;

use decide::{Decision, Observed, Start, decide};
use freehold_client::{Client, DeleteOptions, Error, Propagation};
use freehold_controllers_context::expectations::{Expectations, NOT_YET};
use freehold_controllers_context::kinds::{CRON_JOBS, JOBS};
use freehold_controllers_context::object::{controller_of, controller_reference, owned_entry, unless_gone};
use freehold_controllers_context::{Context, Reconcile};
use freehold_machinery::{Value, meta, time};
use freehold_runtime::{
    EventType, Informer, Interest, Key, Outcome, Planes, Queue, Reconciled, Recorder, Store,
};
use jiff::Timestamp;
use serde_json::json;
use std::sync::Arc;

/// The annotation of a Job with the time that it is for.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

struct CronJobs {
    planes: Planes,
    crons: Store<Value>,
    jobs: Store<Value>,
    written: Expectations<Key>,
    own_written: Expectations<Key>,
    recorder: Recorder,
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    let mut informer = Informer::new(&context.planes, Interest::objects(CRON_JOBS));
    informer.enqueue_into(&queue);
    let crons = context.run_informer(informer);
    let on_jobs = queue.clone();
    context.jobs().on_change(move |change| {
        for job in [&change.old, &change.new].into_iter().flatten() {
            if let Some(owner) = controller_of(job).filter(|owner| owner["kind"] == "CronJob") {
                let name = owner["name"].as_str().unwrap_or_default();
                on_jobs.add(Key::new(change.key.plane.clone(), &change.key.namespace, name));
            }
        }
    });
    let jobs = context.jobs().store();
    context.resync(&crons, &queue);
    let controller = CronJobs {
        planes: context.planes.clone(),
        crons: crons.clone(),
        jobs: jobs.clone(),
        written: Expectations::default(),
        own_written: Expectations::default(),
        recorder: Recorder::new("cronjob-controller"),
    };
    context.control("cron-job", 4, &queue, &[&crons, &jobs], controller);
}

impl Reconcile for CronJobs {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        if !self.written.are_met(&key, &self.jobs) || !self.own_written.are_met(&key, &self.crons) {
            return Ok(NOT_YET);
        }
        let Some(cron) = self.crons.get(&key) else { return Ok(Outcome::Done) };
        let jobs = self.jobs.by_index(&key.plane, &owned_entry(meta::uid(&cron)));
        let jobs: Vec<Arc<Value>> = jobs.into_iter().map(|(_, job)| job).collect();
        let decision = decide(&Observed { cron: &cron, jobs: &jobs, now: Timestamp::now() });
        let client = self.planes.client(&key.plane);
        let again = decision.again;
        self.act(&client, &key, &cron, decision).await?;
        Ok(again.map_or(Outcome::Done, Outcome::After))
    }
}

impl CronJobs {
    async fn act(&self, client: &Client, key: &Key, cron: &Value, decision: Decision) -> Result<(), Error> {
        let mut status = decision.status;
        for (kind, reason, message) in &decision.events {
            self.recorder.event(client, cron, *kind, reason, message).await;
        }
        let mut failed = Ok(());
        for job in &decision.delete {
            let deleted = self.delete(client, key, cron, job).await;
            if deleted.is_ok() {
                decide::forget(&mut status, &job.uid);
            }
            failed = failed.and(deleted);
        }
        if let Some(start) = &decision.start {
            failed = failed.and(self.start(client, key, cron, start, &mut status).await);
        }
        // What was done is told, whatever was not.
        if status != cron["status"] {
            let mut cron = cron.clone();
            cron["status"] = status;
            match client.update_status(&CRON_JOBS, &cron).await {
                Ok(answer) => self.own_written.expect(key, &answer),
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        failed
    }

    async fn delete(&self, client: &Client, key: &Key, cron: &Value, job: &decide::Old) -> Result<(), Error> {
        let options = DeleteOptions::uid(&job.uid).propagation(Propagation::Background);
        let deleted = match client.delete(&JOBS, key.ns(), &job.name, &options).await {
            Ok(_) => Ok(()),
            Err(error) => unless_gone(client, &JOBS, (key.ns(), &job.name, &job.uid), error).await,
        };
        let (kind, reason, message, result) = match deleted {
            Err(error) => (EventType::Warning, "FailedDelete", format!("Deleted job: {error}"), Err(error)),
            Ok(()) => (EventType::Normal, "SuccessfulDelete", format!("Deleted job {}", job.name), Ok(())),
        };
        self.recorder.event(client, cron, kind, reason, &message).await;
        result
    }

    async fn start(
        &self,
        client: &Client,
        key: &Key,
        cron: &Value,
        start: &Start,
        status: &mut Value,
    ) -> Result<(), Error> {
        for job in &start.replaces {
            self.delete(client, key, cron, job).await?;
            decide::forget(status, &job.uid);
        }
        let job = match client.create(&JOBS, &new_job(cron, start)).await {
            Ok(job) => {
                let message = format!("Created job {}", meta::name(&job));
                self.recorder.event(client, cron, EventType::Normal, "SuccessfulCreate", &message).await;
                job
            }
            Err(error) if error.is_already_exists() => {
                let job = client.get(&JOBS, key.ns(), &start.name).await?;
                if controller_of(&job).is_none_or(|owner| owner["uid"] != meta::uid(cron)) {
                    return Ok(());
                }
                job
            }
            Err(error) if freehold_controllers_context::object::namespace_terminates(&error) => return Ok(()),
            Err(error) => {
                let message = format!("Error creating job: {error}");
                self.recorder.event(client, cron, EventType::Warning, "FailedCreate", &message).await;
                return Err(error);
            }
        };
        self.written.expect(key, &job);
        decide::note(status, &job, start.at);
        Ok(())
    }
}

/// The Job of one time.
fn new_job(cron: &Value, start: &Start) -> Value {
    let template = &cron["spec"]["jobTemplate"];
    let mut metadata = json!({
        "name": start.name, "namespace": meta::namespace(cron), "ownerReferences": [controller_reference(cron)],
    });
    for field in ["labels", "annotations"] {
        if template["metadata"][field].is_object() {
            metadata[field] = template["metadata"][field].clone();
        }
    }
    metadata["annotations"][SCHEDULED] = start.zone.format(start.at).into();
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": template["spec"]})
}

/// A time as the status has it.
fn at(time: Timestamp) -> Value {
    time::format_seconds(time).into()
}
