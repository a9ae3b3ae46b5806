//! Subsystems that a Freehold exports itself: a project binds them, and needs no definitions.

use anyhow::{Context, Result};
use freehold_api::apis::{BINDINGS, BOUND, GROUP, VERSION};
use freehold_apiserver::SYSTEM;
use freehold_client::{Client, DeleteOptions, Patch, Resource};
use freehold_machinery::Value;
use freehold_runtime::Subsystem;
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// How long the objects that are deleted with a binding may take to go.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks whether they are gone.
const PAUSE: Duration = Duration::from_millis(300);

const OF_BINDINGS: Resource = Resource::cluster(GROUP, VERSION, BINDINGS);

/// The name of the export of a subsystem, and of its binding.
pub(super) fn export(subsystem: &Subsystem) -> String {
    format!("{}.freehold.dev", subsystem.name)
}

fn is_bound(binding: &Value) -> bool {
    let conditions = binding["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|one| one["type"] == BOUND && one["status"] == "True")
}

/// Binds the export of a subsystem in a project. Returns whether it is bound: it is not on a server that does not export it,
/// in a dedicated control plane, and where the project defines the kinds itself.
pub(super) async fn bind(client: &Client, subsystem: &Subsystem) -> Result<bool> {
    let name = export(subsystem);
    let binding = json!({
        "apiVersion": OF_BINDINGS.api_version(), "kind": "APIBinding", "metadata": {"name": name},
        "spec": {"export": {"project": SYSTEM, "name": name}},
    });
    match client.apply(&OF_BINDINGS, super::install::MANAGER, &binding).await {
        Ok(made) if is_bound(&made) => Ok(true),
        Ok(_) => unbind(client, subsystem, false).await.map(|_| false),
        Err(error) if matches!(error.code(), 403 | 404) => Ok(false),
        Err(error) => Err(error).with_context(|| format!("failed to bind {name}")),
    }
}

/// Takes the binding of a subsystem away, with `objects` those of its kinds too. Returns whether there was one.
pub(super) async fn unbind(client: &Client, subsystem: &Subsystem, objects: bool) -> Result<bool> {
    let name = export(subsystem);
    if client.get_opt(&OF_BINDINGS, None, &name).await?.is_none() {
        return Ok(false);
    }
    if objects {
        let patch = Patch::Merge(json!({"spec": {"objects": "Delete"}}));
        client.patch(&OF_BINDINGS, None, &name, &patch, &Default::default()).await?;
    }
    let until = Instant::now() + PATIENCE;
    loop {
        match client.delete(&OF_BINDINGS, None, &name, &DeleteOptions::default()).await {
            // Controllers still clear up after some of the objects.
            Err(error) if objects && error.code() == 409 && Instant::now() < until => sleep(PAUSE).await,
            gone => {
                gone.with_context(|| format!("failed to delete APIBinding {name:?}"))?;
                return Ok(true);
            }
        }
    }
}
