//! Pods whose Job is gone or over before it counted them: nobody else takes their finalizer away.

use super::{is_orphan, release};
use freehold_controllers_context::pods::PodView;
use freehold_controllers_context::{Context, Reconcile};
use freehold_machinery::{Value, meta};
use freehold_runtime::{Key, Outcome, Planes, Queue, Reconciled, Store};

struct Orphans {
    planes: Planes,
    jobs: Store<Value>,
    pods: Store<PodView>,
}

/// Starts releasing pods.
pub(super) fn start(context: &mut Context, jobs: &Store<Value>, pods: &Store<PodView>) {
    let queue = Queue::new();
    let (on_pods, owners) = (queue.clone(), jobs.clone());
    context.pods().on_change(move |change| {
        let Some(pod) = &change.new else { return };
        if is_orphan(pod, &owners.by_index(&change.key.plane, &pod.owner)) {
            on_pods.add(change.key.clone());
        }
    });
    let (on_jobs, owned) = (queue.clone(), pods.clone());
    context.jobs().on_change(move |change| {
        let over = change.new.as_ref().is_none_or(|job| super::ended(job).is_some());
        let Some(job) = change.old.as_ref().filter(|_| over) else { return };
        for (key, _) in owned.by_index(&change.key.plane, meta::uid(job)) {
            on_jobs.add(key);
        }
    });
    let controller = Orphans { planes: context.planes.clone(), jobs: jobs.clone(), pods: pods.clone() };
    context.control("job-orphans", 4, &queue, &[jobs, pods], controller);
}

impl Reconcile for Orphans {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        let Some(pod) = self.pods.get(&key) else { return Ok(Outcome::Done) };
        // What something else controls is that one's business.
        let jobs = self.jobs.by_index(&key.plane, &pod.owner);
        if pod.of_other || !is_orphan(&pod, &jobs) {
            return Ok(Outcome::Done);
        }
        release(&self.planes.client(&key.plane), key.ns(), &key.name, &pod.uid).await?;
        Ok(Outcome::Done)
    }
}
