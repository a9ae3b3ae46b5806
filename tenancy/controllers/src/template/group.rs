//! TemplateGroupInstances: a TemplateInstance in each namespace of the target, wave by wave.

use super::views::{GroupView, InstanceView};
use super::{GROUPS, INSTANCES, Shared};
use crate::running::Reconcile;
use freehold_client::{Client, DeleteOptions, Error, Patch, PatchOptions};
use freehold_machinery::Value;
use freehold_runtime::{Key, Outcome, Reconciled, conditions};
use freehold_tenancy_api::template::{GROUP_LABEL, TemplateInstanceSpec};
use freehold_tenancy_api::{GROUP, VERSION};
use freehold_tenancy_decide::template::{Child, RolloutPlan, RolloutState, rollout};
use futures_util::{FutureExt as _, StreamExt as _};
use jiff::Timestamp;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How many instances of a group are written at once.
const WRITES: usize = 32;

/// The controller of TemplateGroupInstances.
pub(super) struct Grouping(pub(super) Arc<Shared>);

/// The name of a group's instance in each namespace.
pub(super) fn child_name(group: &str) -> &str {
    group
}

impl Reconcile for Grouping {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        let shared = &self.0;
        let Some(group) = shared.groups.get(&key).filter(|group| !group.deleting) else {
            shared.end_unused(&key.plane);
            return Ok(Outcome::Done);
        };
        let world = shared.world(&key.plane);
        if !world.synced().await {
            return Ok(Outcome::Done);
        }
        let targets = match &group.targets {
            Ok(targets) => targets,
            Err(error) => return self.refuse(&key, &group, "Invalid", error).await,
        };
        let newest = || shared.newest(&key.plane, &group.spec.template).map(|view| view.revision);
        let Some(revision) = group.spec.revision.or_else(newest) else {
            let message = format!("there is no Template {}", group.spec.template);
            return self.refuse(&key, &group, "TemplateNotFound", &message).await;
        };
        let namespaces = world.namespaces.in_plane(&key.plane).into_iter();
        let namespaces: BTreeSet<String> = namespaces
            .filter(|(key, view)| !view.terminating && targets.matches(&key.name, &view.labels))
            .map(|(key, _)| key.name.to_string())
            .collect();
        let spec = serde_json::to_value(child_spec(&group, revision))?;
        let instances = shared.instances.by_index(&key.plane, &format!("g/{}", group.uid));
        let instances: BTreeMap<String, (Key, Arc<InstanceView>)> =
            instances.into_iter().map(|(key, view)| (key.namespace.to_string(), (key, view))).collect();
        let children: Vec<Child> =
            namespaces.iter().map(|name| child(name, instances.get(name), &spec, revision)).collect();
        let plan = match rollout(&children, revision, &group.spec.rollout) {
            Ok(plan) => plan,
            Err(error) => return self.refuse(&key, &group, "Invalid", &error).await,
        };
        let client = shared.planes.client(&key.plane);
        update(&client, &key, &group, &spec, &plan.update).await?;
        for (namespace, (child, view)) in &instances {
            if !namespaces.contains(namespace) && !view.deleting {
                delete(&client, child, view).await?;
            }
        }
        self.report(&key, &group, revision, namespaces.len(), &plan).await?;
        Ok(Outcome::Done)
    }
}

/// The spec of a group's instances.
fn child_spec(group: &GroupView, revision: i64) -> TemplateInstanceSpec {
    let spec = &group.spec;
    TemplateInstanceSpec {
        template: spec.template.clone(),
        parameters: spec.parameters.clone(),
        revision: Some(revision),
        sync: spec.sync,
        prune: spec.prune,
        force: spec.force,
        dry_run: spec.dry_run,
        service_account: String::new(),
    }
}

/// How far the instance in a namespace is. One with another spec counts as one of another revision.
fn child(namespace: &str, instance: Option<&(Key, Arc<InstanceView>)>, spec: &Value, revision: i64) -> Child {
    let Some((_, view)) = instance else {
        return Child { namespace: namespace.to_owned(), ..Child::default() };
    };
    let same = without_defaults(&view.raw_spec) == *spec && !view.deleting;
    let observed = view.status["observedGeneration"].as_i64() == Some(view.generation);
    let ready =
        conditions::find(&view.status["conditions"], "Ready").map(|condition| condition["status"] == "True");
    let state = match (observed, ready) {
        (true, Some(true)) => RolloutState::Ready,
        (true, Some(false)) => RolloutState::Failed,
        _ => RolloutState::Pending,
    };
    Child { namespace: namespace.to_owned(), revision: same.then_some(revision).or(Some(0)), state }
}

/// A spec as it is written: the server adds defaults.
fn without_defaults(spec: &Value) -> Value {
    serde_json::from_value::<TemplateInstanceSpec>(spec.clone())
        .and_then(serde_json::to_value)
        .unwrap_or_default()
}

async fn update(
    client: &Client,
    key: &Key,
    group: &GroupView,
    spec: &Value,
    namespaces: &[String],
) -> Result<(), Error> {
    let one = |namespace: &String| {
        let namespace = namespace.clone();
        async move {
            let object = json!({
                "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "TemplateInstance",
                "metadata": {
                    "name": child_name(&key.name), "namespace": namespace,
                    "labels": {GROUP_LABEL: label(&key.name)},
                    "ownerReferences": [{
                        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "TemplateGroupInstance", "name": key.name,
                        "uid": group.uid, "controller": true,
                    }],
                },
                "spec": spec,
            });
            match client.apply(&INSTANCES, "freehold-template-group", &object).await {
                // The namespace is going.
                Err(error) if error.is_not_found() || error.code() == 403 => {
                    tracing::debug!(group = %key, namespace, %error, "instance not written");
                    Ok(())
                }
                written => written.map(drop),
            }
        }
    };
    let writes: Vec<_> = namespaces.iter().map(|namespace| one(namespace).boxed()).collect();
    let results: Vec<Result<(), Error>> =
        futures_util::stream::iter(writes).buffer_unordered(WRITES).collect().await;
    results.into_iter().collect()
}

/// A label's value is at most 63 characters long.
fn label(name: &str) -> &str {
    name.get(..63).unwrap_or(name).trim_end_matches(['-', '.'])
}

async fn delete(client: &Client, key: &Key, view: &InstanceView) -> Result<(), Error> {
    match client.delete(&INSTANCES, key.ns(), &key.name, &DeleteOptions::uid(&*view.uid)).await {
        Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error),
        _ => Ok(()),
    }
}

impl Grouping {
    async fn report(
        &self,
        key: &Key,
        group: &GroupView,
        revision: i64,
        namespaces: usize,
        plan: &RolloutPlan,
    ) -> Result<(), freehold_runtime::Error> {
        let updated = plan.updated + plan.update.len();
        let (status, reason, message) = if plan.halted {
            (
                "False",
                "Halted",
                format!(
                    "{} namespaces failed; the rollout goes on when at most {} do",
                    plan.failed, group.spec.rollout.max_failures
                ),
            )
        } else if plan.failed > 0 {
            (
                "False",
                "Failing",
                format!(
                    "{} namespaces failed; look at their TemplateInstances named {}",
                    plan.failed, key.name
                ),
            )
        } else if plan.ready < namespaces {
            ("False", "Progressing", format!("{} of {namespaces} namespaces are ready", plan.ready))
        } else {
            ("True", "Applied", String::new())
        };
        let new = json!({
            "revision": revision, "namespaces": namespaces, "updated": updated, "ready": plan.ready, "failed": plan.failed,
            "wave": plan.wave,
        });
        self.write(
            key,
            group,
            new,
            [
                ("Ready", status, reason, &message),
                ("Halted", if plan.halted { "True" } else { "False" }, "Failures", ""),
            ],
        )
        .await
    }

    async fn refuse(&self, key: &Key, group: &GroupView, reason: &str, message: &str) -> Reconciled {
        let new = group.status.clone();
        let new = if new.is_object() { new } else { json!({}) };
        self.write(
            key,
            group,
            new,
            [("Ready", "False", reason, message), ("Halted", "False", "Failures", "")],
        )
        .await?;
        Ok(Outcome::Done)
    }

    async fn write(
        &self,
        key: &Key,
        group: &GroupView,
        mut new: Value,
        rows: [(&str, &str, &str, &str); 2],
    ) -> Result<(), freehold_runtime::Error> {
        new["observedGeneration"] = group.generation.into();
        new["conditions"] = group.status["conditions"].clone();
        for (type_, status, reason, message) in rows {
            let set = conditions::Set { type_, status, reason, message, generation: Some(group.generation) };
            conditions::set(&mut new["conditions"], set, Timestamp::now());
        }
        if new == group.status {
            return Ok(());
        }
        let client = self.0.planes.client(&key.plane);
        let patch = Patch::Merge(json!({"status": new}));
        match client.patch(&GROUPS, None, &key.name, &patch, &PatchOptions::status()).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_with_the_servers_defaults_has_the_groups_spec() {
        let spec = TemplateInstanceSpec {
            template: "t".into(),
            revision: Some(1),
            sync: true,
            prune: true,
            ..Default::default()
        };
        let spec = serde_json::to_value(spec).unwrap();
        let stored = json!({"template": "t", "revision": 1, "sync": true, "prune": true, "force": false, "parameters": {}});
        assert_eq!(without_defaults(&stored), spec);
        assert_ne!(without_defaults(&json!({"template": "t", "revision": 1, "prune": false})), spec);
    }
}
