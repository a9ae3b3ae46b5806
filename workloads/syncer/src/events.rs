//! Events of host Pods, written again in their projects.

use crate::cluster::host_plane;
use crate::kinds::EVENTS;
use crate::world::World;
use freehold_client::{Error, Patch, PatchOptions};
use freehold_machinery::{Value, meta};
use freehold_runtime::Key;
use freehold_workloads_decide::names::{NAME, NAMESPACE, UID};
use freehold_workloads_decide::status;
use serde_json::json;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Writes events until the token is cancelled. A failure is logged and no more.
pub(crate) async fn run(
    world: Arc<World>,
    mut events: mpsc::Receiver<(String, Value)>,
    token: CancellationToken,
) {
    loop {
        let next = tokio::select! {
            () = token.cancelled() => return,
            next = events.recv() => next,
        };
        let Some((cluster, event)) = next else { return };
        if let Err(error) = write(&world, &cluster, &event).await {
            tracing::debug!(cluster, %error, "failed to write an event of a Pod");
        }
    }
}

async fn write(world: &World, cluster: &str, event: &Value) -> Result<(), Error> {
    let Some(cluster) = world.clusters.lock().get(cluster).cloned() else { return Ok(()) };
    let name = event["involvedObject"]["name"].as_str().unwrap_or_default();
    let Some(pod) = cluster.pods.get(&Key::new(host_plane(), meta::namespace(event), name)) else {
        return Ok(());
    };
    let annotations = json!({NAMESPACE: &*pod.of.namespace, NAME: &*pod.of.name, UID: &*pod.uid});
    let involved = json!({"metadata": {"annotations": annotations}});
    let Some(copy) = status::event(event, &involved) else { return Ok(()) };
    let client = world.client(&pod.of.plane);
    match client.create(&EVENTS, &copy).await {
        Err(error) if error.is_already_exists() => {
            let mut patch = copy.clone();
            patch.as_object_mut().map(|fields| fields.remove("involvedObject"));
            let (namespace, name) = (pod.of.ns(), meta::name(&copy));
            client
                .patch(&EVENTS, namespace, name, &Patch::Merge(patch), &PatchOptions::default())
                .await
                .map(drop)
        }
        other => other.map(drop),
    }
}
