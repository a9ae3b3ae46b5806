//! Revisions of Templates: each change of a spec becomes one, and old ones go.

use super::{REVISIONS, Shared, TEMPLATES};
use crate::running::Reconcile;
use freehold_client::{DeleteOptions, Patch, PatchOptions};
use freehold_runtime::{Error, Key, Outcome, Reconciled, conditions};
use freehold_tenancy_api::template::TemplateSpec;
use freehold_tenancy_api::{GROUP, VERSION};
use freehold_tenancy_decide::template::Parameters;
use jiff::Timestamp;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Revisions that are kept where a Template does not say.
const KEPT: u32 = 10;

/// The controller of Templates.
pub(super) struct Revising(pub(super) Arc<Shared>);

impl Reconcile for Revising {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        let shared = &self.0;
        let Some(template) = shared.templates.get(&key) else { return Ok(Outcome::Done) };
        let problem = match serde_json::from_value::<TemplateSpec>(template.spec.clone()) {
            Err(error) => Some(format!("spec: {error}")),
            Ok(spec) => Parameters::new(&spec.parameters).err().map(|error| error.to_string()),
        };
        let newest = shared.newest(&key.plane, &key.name);
        let mut number = newest.as_ref().map_or(0, |view| view.revision);
        if problem.is_none() && newest.as_ref().is_none_or(|view| view.content != template.spec) {
            number += 1;
            let object = json!({
                "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "TemplateRevision",
                "metadata": {
                    "name": format!("{}-{number}", key.name),
                    "ownerReferences": [{
                        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "Template", "name": key.name,
                        "uid": template.uid, "controller": true,
                    }],
                },
                "spec": {"template": key.name, "revision": number, "content": template.spec},
            });
            // One of that name means that the store is behind: the key is tried again.
            shared.planes.client(&key.plane).create(&REVISIONS, &object).await?;
        }
        self.report(&key, number, problem).await?;
        self.remove_old(&key).await?;
        Ok(Outcome::Done)
    }
}

impl Revising {
    async fn report(&self, key: &Key, revision: i64, problem: Option<String>) -> Result<(), Error> {
        let Some(template) = self.0.templates.get(key) else { return Ok(()) };
        let (status, reason) = if problem.is_some() { ("False", "Invalid") } else { ("True", "Revised") };
        let message = problem.unwrap_or_default();
        let generation = Some(template.generation);
        let mut new = json!({
            "revision": revision, "observedGeneration": template.generation,
            "conditions": template.status["conditions"].clone(),
        });
        let ready = conditions::Set { type_: "Ready", status, reason, message: &message, generation };
        conditions::set(&mut new["conditions"], ready, Timestamp::now());
        if new == template.status {
            return Ok(());
        }
        let patch = Patch::Merge(json!({"status": new}));
        let client = self.0.planes.client(&key.plane);
        match client.patch(&TEMPLATES, None, &key.name, &patch, &PatchOptions::status()).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Deletes revisions beyond the limit that no instance and no group holds.
    async fn remove_old(&self, key: &Key) -> Result<(), Error> {
        let shared = &self.0;
        let Some(template) = shared.templates.get(key) else { return Ok(()) };
        let limit = template.spec["revisionHistoryLimit"].as_u64().unwrap_or(KEPT.into());
        let limit = usize::try_from(limit).unwrap_or(usize::MAX).max(1);
        let mut all = shared.revisions.by_index(&key.plane, &key.name);
        if all.len() <= limit {
            return Ok(());
        }
        let instances = shared.instances.by_index(&key.plane, &format!("t/{}", key.name));
        let held = instances.iter().flat_map(|(_, view)| {
            let applied = view.status["revision"].as_i64();
            [applied, view.spec.as_ref().ok().and_then(|spec| spec.revision)]
        });
        let groups = shared.groups.by_index(&key.plane, &key.name);
        let held: BTreeSet<i64> =
            held.chain(groups.iter().map(|(_, view)| view.spec.revision)).flatten().collect();
        all.sort_by_key(|(_, view)| std::cmp::Reverse(view.revision));
        let client = shared.planes.client(&key.plane);
        for (old, view) in all.into_iter().skip(limit).filter(|(_, view)| !held.contains(&view.revision)) {
            tracing::debug!(template = %key, revision = view.revision, "deleting an old revision");
            match client.delete(&REVISIONS, None, &old.name, &DeleteOptions::default()).await {
                Err(error) if !error.is_not_found() => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }
}
