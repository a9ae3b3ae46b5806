//! Writes statuses, and clears up after runs that are over or gone.

use super::Runs;
use super::release::Counted;
use crate::kinds::RUNS;
use crate::live::Live;
use crate::notify::deliveries;
use crate::view::RunView;
use freehold_client::{Client, DeleteOptions, Error, Patch, PatchOptions, Propagation};
use freehold_machinery::{Value, meta};
use freehold_runtime::{Key, Outcome, Reconciled};
use freehold_workflow_api::{DagRunStatus, PodRetention, duration};
use freehold_workflow_engine::{Failure, names::digest};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

/// The shortest time between two statuses of a run.
const BETWEEN: Duration = Duration::from_secs(1);
/// How soon the first status is written: runs that are over by then need one status alone.
const FIRST: Duration = Duration::from_millis(300);

/// Notifications of one run that are under way; each restart may bring some.
const MAX_DELIVERIES: usize = 16;

/// What a child gives to the task that it is for.
pub(super) type Result = std::result::Result<BTreeMap<String, Value>, Failure>;

/// How the task ends that a child was run for.
pub(super) fn of_child(child: &RunView) -> Result {
    match (child.over, child.succeeded) {
        (true, true) => Ok(BTreeMap::new()),
        (true, false) => Err(Failure::new("ChildFailed", child.message.clone())),
        (false, _) => Err(Failure::new("ChildDeleted", "the run of the child DAG was deleted")),
    }
}

/// What a controller knows of the status that it replaces.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// The run's uid.
    pub(crate) uid: String,
    /// The resource version, for a status that was never written.
    pub(crate) version: String,
    /// How often the status was written.
    pub(crate) writes: u32,
}

impl Known {
    /// What an object says.
    pub(super) fn of(object: &Value) -> Self {
        let writes = object["status"]["writes"].as_u64().unwrap_or(0);
        Self {
            uid: meta::uid(object).to_owned(),
            version: meta::resource_version(object).to_owned(),
            writes: u32::try_from(writes).unwrap_or(u32::MAX),
        }
    }
}

/// Whether a status was not as it was known.
fn is_refused(error: &Error) -> bool {
    error.is_conflict() || error.code() == 422
}

impl Runs {
    /// Writes the status if it is time; otherwise how long that is not.
    pub(super) async fn write_in_time(
        &self,
        client: &Client,
        key: &Key,
        live: &mut Live,
    ) -> std::result::Result<Option<Duration>, Error> {
        if !live.dirty {
            return Ok(None);
        }
        let wait = match live.written {
            Some(written) => BETWEEN.saturating_sub(written.elapsed()),
            None => FIRST.saturating_sub(live.began.elapsed()),
        };
        if !wait.is_zero() && !live.run.is_over() {
            return Ok(Some(wait));
        }
        self.write(client, key, live).await?;
        Ok(None)
    }

    pub(super) async fn write(
        &self,
        client: &Client,
        key: &Key,
        live: &mut Live,
    ) -> std::result::Result<(), Error> {
        let mut status = DagRunStatus {
            observed_generation: live.seen_generation,
            revision: live.revision.clone(),
            ..DagRunStatus::default()
        };
        live.run.status(&live.plan, &mut status);
        if live.run.is_started() || live.run.is_over() {
            live.keep_outputs(client, key).await?;
            status.state = Some(live.run.encode());
        } else {
            status.phase = freehold_workflow_api::Phase::Queued;
        }
        status.deliveries = std::mem::take(&mut live.object.status.deliveries);
        if live.run.is_over() {
            let restart = live.object.spec.retry.as_ref().map_or(0, |retry| retry.count);
            let new = deliveries(&live.plan, &live.run.info.uid, restart, status.phase);
            let new = new.into_iter().filter(|new| status.deliveries.iter().all(|known| known.id != new.id));
            let new: Vec<_> = new.collect();
            status.deliveries.extend(new);
            // Those of earlier ends give way.
            let surplus = status.deliveries.len().saturating_sub(MAX_DELIVERIES);
            status.deliveries.drain(..surplus);
        }
        live.object.status.deliveries.clone_from(&status.deliveries);
        let said = Some(digest(&[&json!(status).to_string()]));
        if live.said == said {
            live.dirty = false;
            return Ok(());
        }
        status.writes = live.known.writes + 1;
        live.object.status = status;
        if let Some(observer) = &self.options.observer
            && let Err(error) = observer.recorded(&key.plane, &live.namespace_uid, &live.object).await
        {
            live.rewrite();
            return Err(Error::Decode(format!("history: {error}")));
        }
        match self.put_status(client, key, &live.known, json!(live.object.status)).await {
            Ok(()) => live.known.writes += 1,
            // The run is gone; what it had goes when that is seen.
            Err(error) if error.is_not_found() => {}
            // Another controller has written it, or another run has its name: what is known here is of no use.
            Err(error) if is_refused(&error) => {
                live.lost = true;
                return Err(error);
            }
            Err(error) => {
                live.rewrite();
                return Err(error);
            }
        }
        live.written = Some(tokio::time::Instant::now());
        live.dirty = false;
        if live.run.is_over() {
            self.release(key, &(key.clone(), None));
            if let Some(tracer) = &self.tracer {
                tracer.trace(&key.plane, &live.object, &self.figures);
            }
        }
        live.rewrite();
        live.said = said;
        Ok(())
    }

    /// Replaces the status of a run, of that one and no other of its name, and only as it is known.
    pub(super) async fn put_status(
        &self,
        client: &Client,
        key: &Key,
        known: &Known,
        status: Value,
    ) -> std::result::Result<(), Error> {
        let unchanged = match known.writes {
            0 => json!({"op": "test", "path": "/metadata/resourceVersion", "value": known.version}),
            writes => json!({"op": "test", "path": "/status/writes", "value": writes}),
        };
        let patch = Patch::Json(json!([
            {"op": "test", "path": "/metadata/uid", "value": known.uid},
            unchanged,
            {"op": "add", "path": "/status", "value": status},
        ]));
        let written = client.patch(&RUNS, key.ns(), &key.name, &patch, &PatchOptions::status()).await?;
        self.last_written.lock().insert(key.clone(), meta::resource_version(&written).to_owned());
        Ok(())
    }

    /// Clears up after a run that is over.
    pub(super) async fn over(&self, key: &Key, view: &RunView) -> Reconciled {
        self.live.lock().remove(key);
        self.inbox.lock().remove(key);
        self.children.lock().remove(key);
        self.last_written.lock().remove(key);
        self.release(key, &(key.clone(), None));
        let client = self.client(key);
        let dag = self.definitions.dags.get(&Key::new(key.plane.clone(), &key.namespace, &view.dag));
        let retention = dag.as_ref().map(|dag| dag.retention).unwrap_or_default();
        for (pod, of) in self.pods.by_index(&key.plane, &super::entry(&key.namespace, &key.name)) {
            if of.run_uid == view.uid && of.held {
                self.releases
                    .add(pod, Counted { run: key.name.clone(), run_uid: view.uid.clone(), retention });
            }
        }
        if view.untold {
            // It is looked at again when that changes.
            return Ok(Outcome::Done);
        }
        let ttl = dag.as_ref().map(|dag| &*dag.ttl).filter(|ttl| !ttl.is_empty()).unwrap_or(&view.ttl);
        let Some(ttl) = duration::parse(ttl).filter(|_| !ttl.is_empty() && view.ended > 0) else {
            return Ok(Outcome::Done);
        };
        let passed = jiff::Timestamp::now().as_second().saturating_sub(view.ended).max(0).unsigned_abs();
        let left = ttl.saturating_sub(Duration::from_secs(passed));
        if !left.is_zero() {
            return Ok(Outcome::After(left));
        }
        self.delete_run(&client, key, &view.uid).await?;
        Ok(Outcome::Done)
    }

    /// Deletes a run with what it owns.
    pub(crate) async fn delete_run(
        &self,
        client: &Client,
        key: &Key,
        uid: &str,
    ) -> std::result::Result<(), Error> {
        let options = DeleteOptions::uid(uid).propagation(Propagation::Background);
        match client.delete(&RUNS, key.ns(), &key.name, &options).await {
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            deleted => deleted.map(drop),
        }
    }

    /// Clears up after a run that was deleted: its Pods need not be counted.
    pub(super) async fn gone(&self, key: &Key) -> Reconciled {
        let live = self.live.lock().remove(key).flatten();
        self.inbox.lock().remove(key);
        self.children.lock().remove(key);
        self.last_written.lock().remove(key);
        let pods = self.pods.by_index(&key.plane, &super::entry(&key.namespace, &key.name));
        if let Some(live) = &live {
            for (node, _) in live.run.under_way() {
                self.release(key, &(key.clone(), Some(node)));
            }
        }
        self.release(key, &(key.clone(), None));
        if pods.is_empty() {
            return Ok(Outcome::Done);
        }
        let client = self.client(key);
        let current = client.get_opt(&RUNS, key.ns(), &key.name).await?;
        for (pod, of) in pods {
            let is_orphan = current.as_ref().is_none_or(|run| meta::uid(run) != of.run_uid);
            if is_orphan && of.held {
                let (run_uid, retention) = (of.run_uid.clone(), PodRetention::Delete);
                self.releases.add(pod, Counted { run: key.name.clone(), run_uid, retention });
            }
        }
        Ok(Outcome::Done)
    }
}
