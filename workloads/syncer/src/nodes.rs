//! The Node of a project for its cluster. It is made when the project's first Pod runs there, and has no heartbeat: ten
//! thousand projects would have a thousand a second. Its condition follows the cluster's.

use crate::kinds::{NODES, PODS};
use crate::world::{Placed, World};
use freehold_client::{Error, Patch, PatchOptions};
use freehold_machinery::{PlaneId, Value, meta};
use freehold_runtime::EventType;
use freehold_workloads_decide::node;
use jiff::Timestamp;
use serde_json::json;

/// Binds a Pod to the Node of its cluster.
///
/// # Errors
/// The server refuses, or does not answer.
pub(crate) async fn bind(world: &World, placed: &Placed, plane: &PlaneId, pod: &Value) -> Result<(), Error> {
    let (name, client) = (&placed.cluster.name, world.client(plane));
    ensure(world, placed, plane).await?;
    let (namespace, pod_name) = (meta::namespace(pod), meta::name(pod));
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod_name, "namespace": namespace, "uid": meta::uid(pod)},
        "target": {"apiVersion": "v1", "kind": "Node", "name": name},
    });
    match client.create_subresource(&PODS, Some(namespace), pod_name, "binding", &binding).await {
        Ok(_) => {
            let message = format!("Successfully assigned {namespace}/{pod_name} to {name}");
            world.recorder.event(&client, pod, EventType::Normal, "Scheduled", &message).await;
            Ok(())
        }
        Err(error) if error.is_conflict() || error.is_not_found() => Ok(()),
        Err(error) => Err(error),
    }
}

/// Makes the Node of a project, or gives it the condition of its cluster.
///
/// # Errors
/// The server refuses, or does not answer.
pub(crate) async fn ensure(world: &World, placed: &Placed, plane: &PlaneId) -> Result<(), Error> {
    let is_ready = placed.cluster.is_ready();
    if world.nodes.lock().get(plane) == Some(&is_ready) {
        return Ok(());
    }
    let (name, client) = (&placed.cluster.name, world.client(plane));
    match client.create(&NODES, &node::node(name)).await {
        Err(error) if !error.is_already_exists() => return Err(error),
        _ => {}
    }
    let status = node::status(&placed.cluster.object(), world.terms.address, is_ready, Timestamp::now());
    let patch = Patch::Merge(json!({"status": status}));
    client.patch(&NODES, None, name, &patch, &PatchOptions::status()).await?;
    world.nodes.lock().insert(plane.clone(), is_ready);
    Ok(())
}
