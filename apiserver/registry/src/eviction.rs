//! Evictions: deletions of pods that ask the budgets of disruptions first
//! (<https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/>).
//!
//! What a budget allows is taken from it before the pod is told to go, in a write that names the version that was read: of
//! two evictions that want the last one, one is refused.

use crate::{DeleteOptions, Operation, Registry, WriteOptions};
use freehold_machinery::{GroupResource, Result, Status, Value, meta, selector::Labels, status::Cause};
use serde_json::json;
use std::sync::Arc;

/// How often an eviction that met a conflict is tried again.
const ATTEMPTS: usize = 20;
/// Pods that a budget waits for, at most.
const MAX_DISRUPTED: usize = 2000;
const REFUSED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";
const BUDGETS: (&str, &str, &str) = ("policy", "v1", "poddisruptionbudgets");

impl Registry {
    /// Evicts the Pod of an Eviction that admission has seen.
    pub(crate) async fn evict(&self, op: &Operation, eviction: &Value, options: &WriteOptions) -> Result<()> {
        let given = &eviction["deleteOptions"];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let asked = given["dryRun"].as_array().is_some_and(|list| !list.is_empty());
        let delete = DeleteOptions {
            dry_run: options.dry_run || asked,
            grace_period: given["gracePeriodSeconds"].as_i64(),
            uid: text(&given["preconditions"]["uid"]),
            resource_version: text(&given["preconditions"]["resourceVersion"]),
            propagation: text(&given["propagationPolicy"]),
            orphan_dependents: None,
        };
        let mut whole = op.clone();
        whole.subresource = None;
        let mut attempt = 0;
        loop {
            attempt += 1;
            match self.try_to_evict(&whole, delete.clone(), options).await {
                // Who names a version wants that one.
                Err(status)
                    if status.reason == "Conflict"
                        && attempt < ATTEMPTS
                        && delete.resource_version.is_none() => {}
                Err(status) => return Err(status),
                Ok(()) => return Ok(()),
            }
        }
    }

    async fn try_to_evict(
        &self,
        op: &Operation,
        mut delete: DeleteOptions,
        options: &WriteOptions,
    ) -> Result<()> {
        let pod = self.get(op, "").await?.value();
        let phase = pod["status"]["phase"].as_str().unwrap_or_default();
        let over = matches!(phase, "Succeeded" | "Failed") || meta::is_deleting(&pod);
        let version = || Some(meta::resource_version(&pod).to_owned());
        if over || phase == "Pending" {
            // Nothing is disrupted, unless it begins to run at this moment.
            if !over && delete.resource_version.is_none() {
                delete.resource_version = version();
            }
        } else if self.ask_budgets(op, &pod, delete.dry_run, options).await?
            && delete.resource_version.is_none()
        {
            delete.resource_version = version();
        }
        if !delete.dry_run {
            let announced = self.announce(op, &pod, &delete, options).await?;
            if delete.resource_version.is_some() {
                delete.resource_version = Some(announced);
            }
        }
        self.delete_unasked(op, &delete).await.map(drop)
    }

    /// Says in the pod's status why it goes; gives its version.
    async fn announce(
        &self,
        op: &Operation,
        pod: &Value,
        delete: &DeleteOptions,
        options: &WriteOptions,
    ) -> Result<String> {
        let differs = |wanted: &Option<String>, found: &str| {
            wanted.as_deref().is_some_and(|w| !w.is_empty() && w != found)
        };
        let conflict = |what: &str| {
            Err(Status::conflict(
                &GroupResource::new("", "Pod"),
                op.name(),
                &format!("the {what} in the precondition does not match the {what} in record"),
            ))
        };
        if differs(&delete.uid, meta::uid(pod)) {
            return conflict("UID");
        }
        if differs(&delete.resource_version, meta::resource_version(pod)) {
            return conflict("ResourceVersion");
        }
        let mut pod = pod.clone();
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting", "lastProbeTime": null, "lastTransitionTime": freehold_apiserver_operation::now(),
        });
        match pod["status"]["conditions"].as_array_mut() {
            Some(list) if list.iter().any(|c| c["type"] == "DisruptionTarget" && c["status"] == "True") => {
                return Ok(meta::resource_version(&pod).to_owned());
            }
            Some(list) => {
                list.retain(|c| c["type"] != "DisruptionTarget");
                list.push(condition);
            }
            None => pod["status"]["conditions"] = json!([condition]),
        }
        let mut status = op.clone();
        status.subresource = Some("status".into());
        let options = WriteOptions { dry_run: false, admitted: true, ..options.clone() };
        let written = self.replace(&status, pod, &options).await?;
        Ok(meta::resource_version(&written.object.value()).to_owned())
    }

    /// Takes the eviction of a running pod from its budget, if it has one. Gives whether the pod must not have changed.
    async fn ask_budgets(
        &self,
        op: &Operation,
        pod: &Value,
        dry_run: bool,
        options: &WriteOptions,
    ) -> Result<bool> {
        let (group, version, resource) = BUDGETS;
        let namespace = op.namespace.as_deref();
        let request = freehold_apiserver_cache::ListRequest { plane: &op.plane, group, resource, namespace };
        let all = self.cache.list(request).await?.objects;
        let mut budgets =
            all.iter().map(|entry| (entry.value(), entry.modified)).filter(|(b, _)| chooses(b, pod));
        let Some((budget, modified)) = budgets.next() else { return Ok(false) };
        if budgets.next().is_some() {
            let message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(Status::new(500, "", message));
        }
        let status = &budget["status"];
        let number = |field: &str| status[field].as_i64().unwrap_or(0);
        let ready = |c: &Value| c["type"] == "Ready" && c["status"] == "True";
        if !pod["status"]["conditions"].as_array().is_some_and(|list| list.iter().any(ready)) {
            let healthy =
                number("currentHealthy") >= number("desiredHealthy") && number("desiredHealthy") > 0;
            if budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow" || healthy {
                return Ok(true);
            }
        }
        check(&budget)?;
        if dry_run {
            return Ok(false);
        }
        let mut spent = budget.clone();
        meta::set(&mut spent, "resourceVersion", modified.to_string());
        let left = number("disruptionsAllowed") - 1;
        spent["status"]["disruptionsAllowed"] = left.into();
        spent["status"]["disruptedPods"][op.name()] = freehold_apiserver_operation::now().into();
        if left == 0 {
            set_insufficient(&mut spent);
        }
        let Some(ty) = op.types.find(group, version, resource) else { return Ok(false) };
        let mut write = op.clone();
        write.ty = ty.clone();
        write.name = Some(meta::name(&budget).to_owned());
        write.subresource = Some("status".into());
        // The budget is the server's to spend: who evicts need not be allowed to.
        write.user = Arc::new(freehold_apiserver_operation::server());
        self.replace(&write, spent, options).await?;
        Ok(false)
    }
}

fn chooses(budget: &Value, pod: &Value) -> bool {
    let selector = budget["spec"].get("selector").filter(|s| s.is_object());
    let selector = selector.and_then(|s| Labels::from_value(s).ok());
    selector.is_some_and(|s| s.matches(|key| meta::label(pod, key)))
}

/// Whether a budget can spare a pod.
fn check(budget: &Value) -> Result<()> {
    let (name, status) = (meta::name(budget), &budget["status"]);
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    let because = |message: String, seconds: u32| {
        let cause = Cause { reason: "DisruptionBudget".into(), message, ..Cause::default() };
        Err(Status::too_many_requests(REFUSED, seconds).with_details(|details| details.causes.push(cause)))
    };
    if number("observedGeneration") < budget["metadata"]["generation"].as_i64().unwrap_or(0) {
        return because(format!("The disruption budget {name} is still being processed by the server."), 10);
    }
    let forbidden =
        |why: &str| Err(Status::forbidden(&GroupResource::new("policy", "poddisruptionbudget"), name, why));
    if number("disruptionsAllowed") < 0 {
        return forbidden("pdb disruptions allowed is negative");
    }
    if status["disruptedPods"].as_object().is_some_and(|pods| pods.len() > MAX_DISRUPTED) {
        return forbidden("DisruptedPods map too big - too many evictions not confirmed by PDB controller");
    }
    if number("disruptionsAllowed") > 0 {
        return Ok(());
    }
    let conditions = status["conditions"].as_array();
    let why =
        conditions.into_iter().flatten().find(|c| c["type"] == "DisruptionAllowed" && c["status"] == "False");
    let text = |field: &str| why.and_then(|c| c[field].as_str()).unwrap_or_default();
    let (reason, message) = (text("reason"), text("message"));
    because(
        match (reason, message) {
            ("SyncFailed", message) if !message.is_empty() => format!(
                "The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}"
            ),
            _ if number("currentHealthy") <= number("desiredHealthy") => format!(
                "The disruption budget {name} needs {} healthy pods and has {} currently",
                number("desiredHealthy"),
                number("currentHealthy")
            ),
            (reason, message) if !message.is_empty() => {
                format!(
                    "The disruption budget {name} does not allow evicting pods currently ({reason}): {message}"
                )
            }
            _ => format!("The disruption budget {name} does not allow evicting pods currently"),
        },
        0,
    )
}

fn set_insufficient(budget: &mut Value) {
    let generation = budget["status"]["observedGeneration"].clone();
    let Some(list) = budget["status"]["conditions"].as_array_mut() else { return };
    for condition in list.iter_mut().filter(|c| c["type"] == "DisruptionAllowed" && c["status"] != "False") {
        *condition = json!({
            "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
            "observedGeneration": generation, "lastTransitionTime": freehold_apiserver_operation::now(),
        });
    }
}
