//! TemplateInstances: rendered, compared with what is there, applied and pruned.

use super::apply::{self, Applying, Pending, kept_id};
use super::render::{Refusal, Wanted, render};
use super::views::{GroupView, InstanceView, RevisionView};
use super::world::World;
use super::{INSTANCES, Shared};
use crate::running::Reconcile;
use freehold_client::{Patch, PatchOptions};
use freehold_machinery::{Map, Value, time};
use freehold_runtime::{Error, Key, Outcome, Reconciled, conditions};
use freehold_tenancy_api::template::{
    AppliedRevision, INSTANCE_FINALIZER, KeptObject, TemplateInstanceStatus,
};
use freehold_tenancy_decide::target::is_protected;
use freehold_tenancy_decide::template::{RenderError, Rendered, digest};
use jiff::Timestamp;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How many revisions a status remembers.
const HISTORY: usize = 10;
/// How often copied objects are compared with their source.
const COPIES: Duration = Duration::from_secs(60);
/// How often an instance that was refused is tried again: rights change without a sign.
const REFUSED: Duration = Duration::from_secs(60);
/// The field manager of instances' objects.
const MANAGER: &str = "freehold-template";

/// The controller of TemplateInstances.
pub(super) struct Instances(pub(super) Arc<Shared>);

/// What an instance is to be, by itself or by its group.
struct Intent {
    revision: Arc<RevisionView>,
    parameters: Map,
    sync: bool,
    prune: bool,
    force: bool,
    dry_run: bool,
    user: String,
    groups: Vec<String>,
}

/// What came of a look at an instance.
struct Report {
    revision: i64,
    digest: String,
    objects: Vec<KeptObject>,
    diff: Value,
    reason: &'static str,
    again: Option<Duration>,
}

impl Reconcile for Instances {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        let shared = &self.0;
        let Some(instance) = shared.instances.get(&key) else {
            shared.applied.lock().remove(&key);
            shared.end_unused(&key.plane);
            return Ok(Outcome::Done);
        };
        let world = shared.world(&key.plane);
        if !world.synced().await {
            return Ok(Outcome::Done);
        }
        if instance.deleting {
            return self.remove(&key, &instance, &world).await;
        }
        let result = match self.intent(&key, &instance) {
            Ok(intent) => self.bring(&key, &instance, &intent, &world).await,
            Err(error) => Err(Refusal::Final(error)),
        };
        match result {
            Ok(Some(report)) => {
                self.write_status(&key, &instance, status_of(&instance, &report)).await?;
                Ok(report.again.map_or(Outcome::Done, Outcome::After))
            }
            Ok(None) => Ok(Outcome::Done),
            Err(Refusal::Final(error)) => {
                self.write_status(&key, &instance, refused(&instance, &error)).await?;
                Ok(Outcome::After(REFUSED))
            }
            Err(Refusal::Again(error)) => Err(error),
        }
    }
}

impl Shared {
    /// The watches of a plane.
    pub(super) fn world(self: &Arc<Self>, plane: &freehold_machinery::PlaneId) -> Arc<World> {
        let (of_groups, of_instances, here, there) =
            (self.clone(), self.clone(), plane.clone(), plane.clone());
        self.worlds.get_or_begin(
            plane,
            move |change| {
                let views = [change.old.as_deref(), change.new.as_deref()];
                let groups = of_groups.groups.in_plane(&here).into_iter();
                let concerned = groups.filter(|(_, group)| {
                    group.targets.as_ref().is_ok_and(|targets| {
                        views.iter().flatten().any(|view| targets.matches(&change.key.name, &view.labels))
                    })
                });
                concerned.map(|(key, _)| key).collect()
            },
            move |namespace| {
                of_instances
                    .instances
                    .in_namespace(&there, namespace)
                    .into_iter()
                    .map(|(key, _)| key)
                    .collect()
            },
        )
    }
}

impl Instances {
    /// What an instance is to be. One that a group keeps is what its group says, whatever its own spec says: members of
    /// the namespace may change that, but not the rights that the group acts with.
    fn intent(&self, key: &Key, instance: &InstanceView) -> Result<Intent, RenderError> {
        let shared = &self.0;
        let spec = instance.spec.as_ref().map_err(|error| RenderError::new("Invalid", error.clone()))?;
        let Some((group_name, group_uid)) = &instance.group else {
            let (user, groups) = self.identity_of_instance(key, instance, &spec.service_account)?;
            return Ok(Intent {
                revision: self.revision(key, &spec.template, spec.revision)?,
                parameters: spec.parameters.clone(),
                sync: spec.sync,
                prune: spec.prune,
                force: spec.force,
                dry_run: spec.dry_run,
                user,
                groups,
            });
        };
        let group = shared.groups.get(&Key::new(key.plane.clone(), "", group_name));
        let group = group.filter(|group| group.uid == *group_uid && !group.deleting);
        let group = group.ok_or_else(|| {
            RenderError::new("GroupNotFound", format!("TemplateGroupInstance {group_name} is not there"))
        })?;
        let namespace =
            shared.world(&key.plane).namespaces.get(&Key::new(key.plane.clone(), "", &key.namespace));
        let selected = namespace.is_some_and(|view| {
            group.targets.as_ref().is_ok_and(|targets| targets.matches(&key.namespace, &view.labels))
        });
        if !selected || &*key.name != super::group::child_name(group_name) {
            return Err(RenderError::new(
                "NotSelected",
                format!("{group_name} does not select this namespace"),
            ));
        }
        let (user, groups) = self.identity_of_group(&group)?;
        Ok(Intent {
            revision: self.revision(key, &group.spec.template, spec.revision)?,
            parameters: group.spec.parameters.clone(),
            sync: group.spec.sync,
            prune: group.spec.prune,
            force: group.spec.force,
            dry_run: group.spec.dry_run,
            user,
            groups,
        })
    }

    fn revision(
        &self,
        key: &Key,
        template: &str,
        number: Option<i64>,
    ) -> Result<Arc<RevisionView>, RenderError> {
        let found = match number {
            Some(number) => self.0.revision(&key.plane, template, number),
            None => self.0.newest(&key.plane, template),
        };
        found.ok_or_else(|| match number {
            Some(number) => {
                RenderError::new("RevisionNotFound", format!("Template {template} has no revision {number}"))
            }
            None => RenderError::new("TemplateNotFound", format!("there is no Template {template}")),
        })
    }

    fn identity_of_instance(
        &self,
        key: &Key,
        instance: &InstanceView,
        account: &str,
    ) -> Result<(String, Vec<String>), RenderError> {
        if account.is_empty()
            && self.0.options.trust_creators
            && let Some(creator) = &instance.created_by
        {
            return creator_of(creator);
        }
        account_of(&key.namespace, if account.is_empty() { "default" } else { account })
    }

    fn identity_of_group(&self, group: &GroupView) -> Result<(String, Vec<String>), RenderError> {
        if let Some(account) = &group.spec.service_account {
            return account_of(&account.namespace, &account.name);
        }
        match &group.created_by {
            Some(creator) if self.0.options.trust_creators => creator_of(creator),
            _ => Err(RenderError::new(
                "IdentityMissing",
                "spec.serviceAccount is required: its rights decide what may be written",
            )),
        }
    }

    /// Renders, compares, and writes what differs. `None`: there is nothing to do and nothing new to say.
    async fn bring(
        &self,
        key: &Key,
        instance: &InstanceView,
        intent: &Intent,
        world: &World,
    ) -> Result<Option<Report>, Refusal> {
        let status = previous(instance);
        let done = status.observed_generation == Some(instance.generation) && !status.applied.is_empty();
        let is_ready = conditions::is_true(&instance.status["conditions"], "Ready");
        if !intent.sync && !intent.dry_run && done && is_ready {
            return Ok(None);
        }
        let client = world.client().acting_as(&intent.user, &intent.groups)?;
        let wanted =
            Wanted { revision: &intent.revision, parameters: &intent.parameters, prune: intent.prune };
        let (mut rendered, kinds) = render(&self.0, world, key, instance, &wanted, &client).await?;
        let adopted = apply::outlive_adopted(world, &mut rendered, &kinds, &status.objects);
        let memory = self.0.applied.lock().get(key).cloned().unwrap_or_default();
        let pending = apply::pending(world, &rendered, &kinds, &memory);
        let names: BTreeSet<String> = rendered.iter().map(|rendered| apply::id(&rendered.object)).collect();
        let leaving: Vec<KeptObject> =
            status.objects.iter().filter(|kept| !names.contains(&kept_id(kept))).cloned().collect();
        let mut report = Report {
            revision: intent.revision.revision,
            digest: digest(&rendered),
            objects: status.objects.clone(),
            diff: Value::Null,
            reason: "Applied",
            again: has_copies(&intent.revision).then_some(COPIES),
        };
        let applying =
            Applying { client: &client, own: world.client(), manager: MANAGER, force: intent.force };
        if intent.dry_run {
            let leaving = if intent.prune { leaving.as_slice() } else { &[] };
            let diff = apply::dry_run(&applying, &pending, leaving).await?;
            report.diff = serde_json::to_value(diff).unwrap_or_default();
            report.reason = "DryRun";
            return Ok(Some(report));
        }
        if intent.prune {
            self.before_writing(key, instance, &rendered, &status).await?;
        }
        report.objects = self.write(key, &applying, &rendered, &pending, adopted).await?;
        if intent.prune {
            apply::prune(world, &client, &leaving, key).await?;
        }
        Ok(Some(report))
    }

    /// Notes cluster-scoped objects before they are created, so that none is forgotten if this process ends. Namespaced ones
    /// have the instance as owner.
    async fn before_writing(
        &self,
        key: &Key,
        instance: &InstanceView,
        rendered: &[Rendered],
        status: &TemplateInstanceStatus,
    ) -> Result<(), Refusal> {
        let cluster: Vec<Rendered> =
            rendered.iter().filter(|rendered| !rendered.namespaced).cloned().collect();
        let known: BTreeSet<String> = status.objects.iter().map(kept_id).collect();
        if cluster.iter().all(|rendered| known.contains(&apply::id(&rendered.object))) {
            return Ok(());
        }
        let client = self.0.planes.client(&key.plane);
        if !instance.finalizers.iter().any(|name| name == INSTANCE_FINALIZER) {
            let mut finalizers = instance.finalizers.clone();
            finalizers.push(INSTANCE_FINALIZER.to_owned());
            let patch = Patch::Merge(json!({"metadata": {"uid": instance.uid, "finalizers": finalizers}}));
            client.patch(&INSTANCES, key.ns(), &key.name, &patch, &PatchOptions::default()).await?;
        }
        let mut union = apply::inventory(&cluster, &BTreeSet::new());
        let names: BTreeSet<String> = union.iter().map(kept_id).collect();
        union.extend(status.objects.iter().filter(|kept| !names.contains(&kept_id(kept))).cloned());
        let patch = Patch::Merge(json!({"status": {"objects": union}}));
        client.patch(&INSTANCES, key.ns(), &key.name, &patch, &PatchOptions::status()).await?;
        Ok(())
    }

    /// Writes objects, and gives those that the instance keeps afterwards.
    async fn write(
        &self,
        key: &Key,
        applying: &Applying<'_>,
        rendered: &[Rendered],
        pending: &[Pending<'_>],
        mut adopted: BTreeSet<String>,
    ) -> Result<Vec<KeptObject>, Refusal> {
        let outcome = apply::apply(applying, pending).await;
        if !outcome.applied.is_empty() {
            self.0.applied.lock().entry(key.clone()).or_default().extend(outcome.applied);
        }
        if let Some(error) = outcome.failed {
            return Err(Refusal::Again(error.into()));
        }
        if let Some(refused) = outcome.refused {
            return Err(Refusal::Final(refused));
        }
        adopted.extend(outcome.adopted);
        Ok(apply::inventory(rendered, &adopted))
    }

    /// Deletes cluster-scoped objects of an instance that goes; the others have it as owner.
    async fn remove(&self, key: &Key, instance: &InstanceView, world: &World) -> Reconciled {
        if !instance.finalizers.iter().any(|name| name == INSTANCE_FINALIZER) {
            return Ok(Outcome::Done);
        }
        let status = previous(instance);
        let cluster: Vec<KeptObject> =
            status.objects.into_iter().filter(|kept| kept.namespace.is_empty()).collect();
        // What it may not delete any more with its own rights goes with those of the controller: it was let create it.
        match apply::prune(world, world.client(), &cluster, key).await {
            Ok(()) => {}
            Err(Refusal::Final(error)) => return Err(error.into()),
            Err(Refusal::Again(error)) => return Err(error),
        }
        let left: Vec<&String> =
            instance.finalizers.iter().filter(|name| *name != INSTANCE_FINALIZER).collect();
        let patch = Patch::Merge(json!({"metadata": {"uid": instance.uid, "finalizers": left}}));
        let client = self.0.planes.client(&key.plane);
        match client.patch(&INSTANCES, key.ns(), &key.name, &patch, &PatchOptions::default()).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(Outcome::Done),
        }
    }

    async fn write_status(&self, key: &Key, instance: &InstanceView, new: Value) -> Result<(), Error> {
        if new == instance.status {
            return Ok(());
        }
        let mut patch = new;
        for (field, _) in instance.status.as_object().into_iter().flatten() {
            if patch.get(field).is_none() {
                patch[field] = Value::Null;
            }
        }
        let client = self.0.planes.client(&key.plane);
        let patch = Patch::Merge(json!({"status": patch}));
        match client.patch(&INSTANCES, key.ns(), &key.name, &patch, &PatchOptions::status()).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }
}

fn has_copies(revision: &RevisionView) -> bool {
    revision.parsed.as_ref().as_ref().is_ok_and(|template| !template.copies.is_empty())
}

fn previous(instance: &InstanceView) -> TemplateInstanceStatus {
    serde_json::from_value(instance.status.clone()).unwrap_or_default()
}

/// A user as admission noted it.
/// The service account that an instance acts as. Those of the control plane are nobody's to act as, whoever names them.
fn account_of(namespace: &str, name: &str) -> Result<(String, Vec<String>), RenderError> {
    if namespace != "default" && is_protected(namespace) {
        let message = format!("service account {namespace}/{name} belongs to the control plane");
        return Err(RenderError::new("AccountProtected", message));
    }
    Ok((format!("system:serviceaccount:{namespace}:{name}"), Vec::new()))
}

fn creator_of(annotation: &str) -> Result<(String, Vec<String>), RenderError> {
    let read = || -> Option<(String, Vec<String>)> {
        let value: Value = serde_json::from_str(annotation).ok()?;
        let groups = value["groups"].as_array().into_iter().flatten();
        Some((
            value["username"].as_str().filter(|name| !name.is_empty())?.to_owned(),
            groups.filter_map(|group| group.as_str().map(str::to_owned)).collect(),
        ))
    };
    read()
        .ok_or_else(|| RenderError::new("IdentityMissing", "the annotation with the creator cannot be read"))
}

/// The status after success.
fn status_of(instance: &InstanceView, report: &Report) -> Value {
    let before = previous(instance);
    let now = Timestamp::now();
    let mut history = before.history.clone();
    if report.reason != "DryRun" && before.revision != Some(report.revision) {
        history.insert(0, AppliedRevision { revision: report.revision, time: time::format_seconds(now) });
        history.truncate(HISTORY);
    }
    let mut new = json!({
        "observedGeneration": instance.generation,
        "conditions": instance.status["conditions"].clone(),
    });
    if report.reason == "DryRun" {
        if let Some(revision) = before.revision {
            new["revision"] = revision.into();
            new["applied"] = before.applied.clone().into();
        }
    } else {
        new["revision"] = report.revision.into();
        new["applied"] = report.digest.clone().into();
    }
    for (field, value) in [
        ("objects", serde_json::to_value(&report.objects).unwrap_or_default()),
        ("history", serde_json::to_value(&history).unwrap_or_default()),
        ("diff", report.diff.clone()),
    ] {
        if value.as_array().is_some_and(|items| !items.is_empty()) {
            new[field] = value;
        }
    }
    let message =
        if report.reason == "DryRun" { "nothing is written; status.diff has what would be" } else { "" };
    let ready = conditions::Set {
        type_: "Ready",
        status: "True",
        reason: report.reason,
        message,
        generation: Some(instance.generation),
    };
    conditions::set(&mut new["conditions"], ready, now);
    new
}

/// The status after a refusal: what was applied before stays.
fn refused(instance: &InstanceView, error: &RenderError) -> Value {
    let mut new = instance.status.clone();
    if !new.is_object() {
        new = json!({});
    }
    new["observedGeneration"] = instance.generation.into();
    let ready = conditions::Set {
        type_: "Ready",
        status: "False",
        reason: error.reason,
        message: &error.message,
        generation: Some(instance.generation),
    };
    conditions::set(&mut new["conditions"], ready, Timestamp::now());
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_of_the_control_plane_are_nobodys_to_act_as() {
        for namespace in ["kube-system", "kube-public", "freehold-tenancy", "openshift-config"] {
            let refused = account_of(namespace, "generic-garbage-collector").err();
            assert_eq!(refused.map(|error| error.reason), Some("AccountProtected"), "{namespace}");
        }
        let (user, groups) = account_of("shared", "writer").unwrap();
        assert_eq!((user.as_str(), groups.len()), ("system:serviceaccount:shared:writer", 0));
    }
}
