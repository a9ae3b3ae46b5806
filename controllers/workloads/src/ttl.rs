//! Jobs that ended are deleted after `spec.ttlSecondsAfterFinished`
//! (<https://kubernetes.io/docs/concepts/workloads/controllers/ttlafterfinished/>), whoever ran them.

use crate::job::ended;
use freehold_client::{DeleteOptions, Propagation};
use freehold_controllers_context::kinds::JOBS;
use freehold_controllers_context::object::{int, text, unless_gone};
use freehold_controllers_context::{Context, Reconcile};
use freehold_machinery::{Value, meta, time};
use freehold_runtime::{Key, Outcome, Planes, Queue, Reconciled, Store};
use jiff::Timestamp;
use std::time::Duration;

/// How long a Job still stays; `None`: until somebody deletes it.
fn decide(job: &Value, now: Timestamp) -> Option<Duration> {
    if meta::is_deleting(job) {
        return None;
    }
    let ttl = int(job, "/spec/ttlSecondsAfterFinished").and_then(|s| u64::try_from(s).ok())?;
    let ended = time::parse(text(ended(job)?, "/lastTransitionTime"))?;
    // The clock that wrote it may be ahead of this one: then it stays longer.
    let passed = now.duration_since(ended);
    match Duration::try_from(passed) {
        Ok(passed) => Some(Duration::from_secs(ttl).saturating_sub(passed)),
        Err(_) => Some(Duration::from_secs(ttl) + passed.unsigned_abs()),
    }
}

struct Expiry {
    planes: Planes,
    jobs: Store<Value>,
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    let on_jobs = queue.clone();
    context.jobs().on_change(move |change| {
        if change.new.as_ref().is_some_and(|job| decide(job, Timestamp::now()).is_some()) {
            on_jobs.add(change.key.clone());
        }
    });
    let jobs = context.jobs().store();
    context.resync(&jobs, &queue);
    let controller = Expiry { planes: context.planes.clone(), jobs: jobs.clone() };
    context.control("ttl-after-finished", 2, &queue, &[&jobs], controller);
}

impl Reconcile for Expiry {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        let left = |job: &Value| decide(job, Timestamp::now());
        match self.jobs.get(&key).and_then(|job| left(&job)) {
            None => return Ok(Outcome::Done),
            Some(left) if !left.is_zero() => return Ok(Outcome::After(left)),
            Some(_) => {}
        }
        // Somebody may just have given it more time.
        let client = self.planes.client(&key.plane);
        let Some(job) = client.get_opt(&JOBS, key.ns(), &key.name).await? else { return Ok(Outcome::Done) };
        match left(&job) {
            Some(left) if left.is_zero() => {
                let options = DeleteOptions::uid(meta::uid(&job)).propagation(Propagation::Foreground);
                if let Err(error) = client.delete(&JOBS, key.ns(), &key.name, &options).await {
                    unless_gone(&client, &JOBS, (key.ns(), &key.name, meta::uid(&job)), error).await?;
                }
                Ok(Outcome::Done)
            }
            Some(left) => Ok(Outcome::After(left)),
            None => Ok(Outcome::Done),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_job_goes_so_long_after_its_end() {
        let job = |ttl: Value, type_: &str| {
            json!({
                "metadata": {}, "spec": {"ttlSecondsAfterFinished": ttl},
                "status": {"conditions": [{"type": type_, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
            })
        };
        let end: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let after = |seconds: i64| end + jiff::SignedDuration::from_secs(seconds);
        let rows = [
            (job(json!(60), "Complete"), 20, Some(40)),
            (job(json!(60), "Failed"), 61, Some(0)),
            (job(json!(0), "Complete"), 0, Some(0)),
            (job(json!(60), "Complete"), -10, Some(70)),
            (job(json!(60), "Suspended"), 61, None),
            (job(json!(null), "Complete"), 61, None),
        ];
        for (job, seconds, left) in rows {
            assert_eq!(decide(&job, after(seconds)), left.map(Duration::from_secs), "{job}");
        }
    }
}
