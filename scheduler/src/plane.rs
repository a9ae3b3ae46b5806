//! One plane: reads what is there, decides on the Pods that are due, and acts.

use crate::act;
use crate::batch::{Candidate, Step, decide, order};
use crate::engine::{Budget, Group, Snapshot, Volumes};
use crate::kinds::{BUDGETS, CLAIMS, CLASSES, GROUPS, NAMESPACES, NODES, PODS, VOLUMES};
use crate::world::{Due, World, is_ours};
use freehold_client::{Client, Error, ListOptions, Resource};
use freehold_machinery::selector::Labels;
use freehold_machinery::{PlaneId, Value, meta};
use freehold_runtime::{Key, Outcome, Reconciled};
use futures_util::StreamExt as _;
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So many Pods of a plane are tried before others have their turn.
const BATCH: usize = 256;
/// After so long the rest of a plane's Pods waits for its next turn.
const TURN: Duration = Duration::from_millis(250);
/// So many requests of one plane are under way at once.
const REQUESTS: usize = 16;

/// Tries the Pods of a plane that are due.
pub(crate) async fn schedule(world: &Arc<World>, plane: &PlaneId) -> Reconciled {
    let (keys, seen) = match world.due(plane) {
        Due::Never => return Ok(Outcome::Done),
        Due::After(time) => return Ok(Outcome::After(time)),
        Due::Now(keys, seen) => (keys, seen),
    };
    let client = world.planes.client(plane);
    let pods = list(&client, &PODS).await?;
    let pods: HashMap<Key, Arc<Value>> =
        pods.into_iter().map(|pod| (Key::of(plane.clone(), &pod), Arc::new(pod))).collect();
    let is_unbound = |pod: &Arc<Value>| pod["spec"]["nodeName"].as_str().is_none_or(str::is_empty);
    let candidate = |key: Key| {
        let object = pods.get(&key).filter(|pod| is_unbound(pod))?.clone();
        Some(Candidate { key, object })
    };
    let mut candidates: Vec<Candidate> = keys.into_iter().filter_map(candidate).collect();
    order(&mut candidates);
    candidates.truncate(BATCH);
    let snapshot = read(&client, &pods, &candidates).await?;
    let decided = tokio::task::spawn_blocking(move || decide_all(candidates, snapshot)).await?;
    let acts = decided.into_iter().map(|(candidate, step)| async move {
        if let Err(error) = act::act(world, plane, &candidate.object, step).await {
            tracing::debug!(pod = %candidate.key, %error, "failed to place a Pod; will retry");
        }
        candidate.key
    });
    let acts: Vec<Key> = futures_util::stream::iter(acts).buffer_unordered(REQUESTS).collect().await;
    // One that was bound is not tried again until the watch tells that it is.
    acts.iter().for_each(|key| world.tried(key, seen));
    match world.due(plane) {
        Due::Now(..) => Ok(Outcome::After(Duration::ZERO)),
        Due::After(time) => Ok(Outcome::After(time)),
        Due::Never => Ok(Outcome::Done),
    }
}

/// Decides on Pods in their order, for as long as a turn is.
fn decide_all(candidates: Vec<Candidate>, mut snapshot: Snapshot) -> Vec<(Candidate, Step)> {
    let begin = Instant::now();
    let mut decided = Vec::new();
    for candidate in candidates {
        if begin.elapsed() > TURN && !decided.is_empty() {
            break;
        }
        let step = decide(&candidate.object, &mut snapshot);
        decided.push((candidate, step));
    }
    decided
}

/// All objects of a type in a plane; none where it is not served.
async fn list(client: &Client, resource: &Resource) -> Result<Vec<Value>, Error> {
    match client.list_all(resource, None, &ListOptions::default()).await {
        Ok(list) => Ok(list.items),
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Reads what decides where the candidates may be, and leaves out what none of them asks for.
async fn read(
    client: &Client,
    pods: &HashMap<Key, Arc<Value>>,
    candidates: &[Candidate],
) -> Result<Snapshot, Error> {
    let mut nodes = list(client, &NODES).await?;
    nodes.retain(is_ours);
    let mut snapshot = Snapshot::new(&nodes, pods.values().map(|pod| &**pod));
    if snapshot.selects_namespaces() || candidates.iter().any(|one| mentions(&one.object, "affinity")) {
        snapshot = snapshot.with_namespaces(&list(client, &NAMESPACES).await?);
    }
    if candidates.iter().any(|one| mentions(&one.object, "volumes")) {
        let (claims, volumes) = (list(client, &CLAIMS).await?, list(client, &VOLUMES).await?);
        snapshot.volumes = Volumes::new(&claims, &volumes, &list(client, &CLASSES).await?);
    }
    if candidates.iter().any(|one| one.object["spec"]["priority"].as_i64().unwrap_or(0) > 0) {
        snapshot.budgets = list(client, &BUDGETS).await?.iter().map(Budget::read).collect();
    }
    if candidates.iter().any(|one| !mentions(&one.object, "topologySpreadConstraints")) {
        for (resource, pointer) in &GROUPS {
            snapshot
                .groups
                .extend(list(client, resource).await?.iter().filter_map(|one| group(one, pointer)));
        }
    }
    Ok(snapshot)
}

fn mentions(pod: &Value, field: &str) -> bool {
    pod["spec"].get(field).is_some_and(|value| !value.is_null())
}

/// The Pods of a Service or a controller; of the former the selector is a map.
fn group(object: &Value, pointer: &str) -> Option<Group> {
    let selector = match pointer {
        "" => object.pointer("/spec/selector")?.clone(),
        _ => json!({"matchLabels": object.pointer(pointer)?}),
    };
    let selector = Labels::from_value(&selector).ok()?;
    Some(Group { namespace: meta::namespace(object).into(), selector })
}
