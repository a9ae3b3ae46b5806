//! Carries out what was decided for a Pod.

use crate::batch::{Step, binding, selection};
use crate::kinds::{CLAIMS, PODS};
use crate::world::World;
use freehold_client::{Client, DeleteOptions, Error, Patch, PatchOptions};
use freehold_machinery::{PlaneId, Value, meta, time};
use freehold_runtime::EventType;
use jiff::Timestamp;
use serde_json::json;

/// Does one step for a Pod. That the Pod is gone or has a node by now is no failure.
pub(crate) async fn act(world: &World, plane: &PlaneId, pod: &Value, step: Step) -> Result<(), Error> {
    let client = world.planes.client(plane);
    let done = match step {
        Step::Bind(node) => bind(world, &client, pod, &node).await,
        Step::Select { node, claims } => select(&client, pod, &node, &claims).await,
        Step::Fail { message, nominated, victims } => {
            fail(world, &client, pod, (&message, &nominated)).await?;
            for victim in &victims {
                evict(world, &client, pod, (victim, &nominated)).await?;
            }
            Ok(())
        }
    };
    match done {
        Err(error) if error.is_conflict() || error.is_not_found() => Ok(()),
        other => other,
    }
}

async fn bind(world: &World, client: &Client, pod: &Value, node: &str) -> Result<(), Error> {
    let (namespace, name) = (meta::namespace(pod), meta::name(pod));
    client.create_subresource(&PODS, Some(namespace), name, "binding", &binding(pod, node)).await?;
    let message = format!("Successfully assigned {namespace}/{name} to {node}");
    world.recorder.event(client, &typed(pod), EventType::Normal, "Scheduled", &message).await;
    Ok(())
}

/// Tells claims which node was chosen. The Pod is bound when they have their volumes.
async fn select(client: &Client, pod: &Value, node: &str, claims: &[String]) -> Result<(), Error> {
    let patch = Patch::Merge(selection(node));
    for claim in claims {
        let namespace = Some(meta::namespace(pod));
        client.patch(&CLAIMS, namespace, claim, &patch, &PatchOptions::default()).await?;
    }
    Ok(())
}

/// Says of a Pod why it is not scheduled, unless that is said already.
async fn fail(
    world: &World,
    client: &Client,
    pod: &Value,
    (message, nominated): (&str, &str),
) -> Result<(), Error> {
    let conditions = pod["status"]["conditions"].as_array();
    let known = conditions.into_iter().flatten().find(|condition| condition["type"] == "PodScheduled");
    let was = pod["status"]["nominatedNodeName"].as_str().unwrap_or_default();
    let is_told = known.is_some_and(|known| {
        known["status"] == "False" && known["reason"] == "Unschedulable" && known["message"] == message
    });
    if !is_told || was != nominated {
        let since =
            known.filter(|known| known["status"] == "False").map(|known| &known["lastTransitionTime"]);
        let since = since.cloned().unwrap_or_else(|| time::format_seconds(Timestamp::now()).into());
        let condition = json!({
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
            "lastTransitionTime": since,
        });
        let nominated = if nominated.is_empty() { Value::Null } else { nominated.into() };
        let patch = json!({
            "metadata": {"uid": meta::uid(pod)},
            "status": {"conditions": [condition], "nominatedNodeName": nominated},
        });
        let (namespace, name) = (Some(meta::namespace(pod)), meta::name(pod));
        client.patch(&PODS, namespace, name, &Patch::Strategic(patch), &PatchOptions::status()).await?;
    }
    let kind = EventType::Warning;
    world.recorder.event(client, &typed(pod), kind, "FailedScheduling", message).await;
    Ok(())
}

/// Makes a Pod leave its node for another.
async fn evict(
    world: &World,
    client: &Client,
    pod: &Value,
    (victim, node): (&[String; 3], &str),
) -> Result<(), Error> {
    let [namespace, name, uid] = victim;
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
        "message": "default-scheduler: preempting to accommodate a higher priority pod",
        "lastTransitionTime": time::format_seconds(Timestamp::now()),
    });
    let patch = json!({"metadata": {"uid": uid}, "status": {"conditions": [condition]}});
    let patched =
        client.patch(&PODS, Some(namespace), name, &Patch::Strategic(patch), &PatchOptions::status()).await;
    let gone = |error: &Error| error.is_conflict() || error.is_not_found();
    let victim = match patched {
        Err(error) if gone(&error) => return Ok(()),
        other => other?,
    };
    match client.delete(&PODS, Some(namespace), name, &DeleteOptions::uid(uid)).await {
        Err(error) if gone(&error) => return Ok(()),
        other => other.map(drop)?,
    }
    let message = format!("Preempted by pod {} on node {node}", meta::uid(pod));
    world.recorder.event(client, &typed(&victim), EventType::Normal, "Preempted", &message).await;
    Ok(())
}

/// A Pod with its type, which items of lists lack.
fn typed(pod: &Value) -> Value {
    let mut typed = pod.clone();
    typed["apiVersion"] = "v1".into();
    typed["kind"] = "Pod".into();
    typed
}
