//! Says of each Quota whether its limits can be read, and how many Tenants name it.

use crate::observed::{Informers, Observed, QUOTAS};
use freehold_client::{Patch, PatchOptions};
use freehold_runtime::conditions::{self, Set};
use freehold_runtime::{Controller, Key, Outcome, Queue, Reconciled, Scope};
use freehold_tenancy_api::tenant::Tenant;
use freehold_tenancy_decide::limits::Limits;
use jiff::Timestamp;
use serde_json::json;
use std::sync::Arc;

/// Starts the controller on informers that do not run yet.
pub(crate) fn start(scope: &Scope, informers: &mut Informers, observed: &Observed) {
    let queue = Queue::<Key>::new();
    informers.quotas.enqueue_into(&queue);
    let to = queue.clone();
    informers.tenants.on_change(move |change| {
        let quota = |tenant: &Arc<Tenant>| tenant.spec.quota.clone();
        let (old, new) = (change.old.as_ref().map(quota), change.new.as_ref().map(quota));
        if old != new {
            for name in [old, new].into_iter().flatten().filter(|name| !name.is_empty()) {
                to.add(Key::new(change.key.plane.clone(), "", &name));
            }
        }
    });
    let controller = Controller::new("tenancy-quota", queue).workers(2).metrics(&scope.metrics);
    let (token, observed) = (scope.token.clone(), observed.clone());
    scope.tasks.spawn(async move {
        if observed.synced(&token).await {
            let reconcile = move |key| {
                let observed = observed.clone();
                async move { reconcile(&observed, &key).await }
            };
            controller.run(token, reconcile).await;
        }
    });
}

async fn reconcile(observed: &Observed, key: &Key) -> Reconciled {
    let Some(quota) = observed.quotas.get(key) else { return Ok(Outcome::Done) };
    let limits = Limits::of_quota(&quota);
    let (status, reason, message) = match &limits {
        Ok(_) => ("True", "LimitsRead", ""),
        Err(message) => ("False", "InvalidLimit", message.as_str()),
    };
    let mut list = json!(quota.status.conditions);
    let generation = Some(quota.metadata.generation);
    let ready = Set { type_: "Ready", status, reason, message, generation };
    let changed = conditions::set(&mut list, ready, Timestamp::now());
    let tenants = observed.tenants.count_by_index(&key.plane, &format!("quota/{}", key.name)) as u64;
    if !changed && quota.status.tenants == tenants {
        return Ok(Outcome::Done);
    }
    let status =
        json!({"status": {"tenants": tenants, "observedGeneration": generation, "conditions": list}});
    let client = observed.planes.client(&key.plane);
    match client.patch(&QUOTAS, None, &key.name, &Patch::Merge(status), &PatchOptions::status()).await {
        Err(error) if !error.is_not_found() => Err(error.into()),
        _ => Ok(Outcome::Done),
    }
}
