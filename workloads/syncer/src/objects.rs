//! Host namespaces with what guards them, and host objects of what Pods refer to and find.

use crate::cluster::Cluster;
use crate::kinds::{CLAIMS, Kind, NAMESPACES, SERVICES};
use crate::world::{Object, Place, Placed, World};
use freehold_client::{Client, Error, Patch, PatchOptions};
use freehold_machinery::{PlaneId, Value, meta};
use freehold_runtime::{EventType, Key, Outcome, Reconciled};
use freehold_workloads_decide::guards::{Walls, guards};
use freehold_workloads_decide::objects;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// How soon an object comes again whose cluster is not there.
const ELSEWHERE: Duration = Duration::from_secs(5);

/// Makes the host namespace of a project's namespace, with what guards it.
///
/// # Errors
/// The cluster refuses, or does not answer.
pub(crate) async fn ensure_namespace(
    world: &World,
    placed: &Placed,
    plane: &PlaneId,
    namespace: &str,
) -> Result<(), Error> {
    let object = placed.cluster.object();
    let networks = object["spec"]["networks"].as_array().into_iter().flatten();
    let networks: Vec<String> = networks.filter_map(|n| n.as_str().map(str::to_owned)).collect();
    let (host, port) = &world.terms.api;
    let walls =
        Walls { project: plane.as_str(), networks: &networks, api: (host, *port), class: &placed.class };
    let is_new = !placed.cluster.has(Kind::Namespace, &Key::new(plane.clone(), "", namespace));
    // In their order: walls stand before a Pod is there.
    for guard in guards(namespace, &walls) {
        placed.cluster.ensure(guard).await?;
    }
    if is_new {
        for (key, ()) in services_in(world, plane, namespace) {
            world.queues.objects.add(Object { kind: Kind::Service, key });
        }
    }
    Ok(())
}

fn services_in(world: &World, plane: &PlaneId, namespace: &str) -> Vec<(Key, ())> {
    world.services.in_namespace(plane, namespace).into_iter().map(|(key, _)| (key, ())).collect()
}

/// Makes an object that Pods refer to the same on the host, or removes it there where the project has it no more.
///
/// # Errors
/// A server refuses, or does not answer.
pub(crate) async fn ensure(world: &World, placed: &Placed, object: Object) -> Result<(), Error> {
    let Object { kind, key } = &object;
    let client = world.client(&key.plane);
    let found = client.get_opt(kind.resource(), key.ns(), &key.name).await?;
    let Some(found) = found else {
        return match placed.cluster.has(*kind, key) {
            true => placed.cluster.remove(*kind, key).await,
            false => Ok(()),
        };
    };
    let project = key.plane.as_str();
    match kind {
        Kind::ConfigMap => placed.cluster.ensure(objects::config_map(&found, project)).await,
        Kind::Secret => placed.cluster.ensure(objects::secret(&found, project)).await,
        Kind::Claim => claim(world, placed, (key, &client), &found).await,
        _ => service(placed, (key, &client), &found).await,
    }
}

async fn claim(
    world: &World,
    placed: &Placed,
    (key, client): (&Key, &Client),
    found: &Value,
) -> Result<(), Error> {
    let cluster = &placed.cluster;
    if meta::is_deleting(found) {
        return cluster.remove(Kind::Claim, key).await;
    }
    match objects::claim(found, key.plane.as_str(), &placed.class) {
        Ok(wanted) => cluster.ensure(wanted).await?,
        Err(refusal) => {
            let why = refusal.to_string();
            world.recorder.event(client, found, EventType::Warning, "ProvisioningFailed", &why).await;
            return Ok(());
        }
    }
    let host_key = cluster.key(key);
    let Some(host) = cluster.client.get_opt(&CLAIMS, host_key.ns(), &host_key.name).await? else {
        return Ok(());
    };
    let Some(status) = objects::claim_status(found, &host) else { return Ok(()) };
    let patch = Patch::Merge(json!({"status": status}));
    client.patch(&CLAIMS, key.ns(), &key.name, &patch, &PatchOptions::status()).await.map(drop)
}

async fn service(placed: &Placed, (key, client): (&Key, &Client), found: &Value) -> Result<(), Error> {
    let cluster = &placed.cluster;
    let wanted =
        objects::service(found, key.plane.as_str(), &placed.class).filter(|_| !meta::is_deleting(found));
    let Some(wanted) = wanted else {
        return match cluster.has(Kind::Service, key) {
            true => cluster.remove(Kind::Service, key).await,
            false => Ok(()),
        };
    };
    let is_balancer = wanted["spec"]["type"] == "LoadBalancer";
    cluster.ensure(wanted).await?;
    if !is_balancer {
        return Ok(());
    }
    let host_key = cluster.key(key);
    let host = cluster.client.get_opt(&SERVICES, host_key.ns(), &host_key.name).await?;
    let balancer = host.map(|host| host["status"]["loadBalancer"].clone()).unwrap_or_default();
    if balancer.is_null() || balancer == found["status"]["loadBalancer"] {
        return Ok(());
    }
    let patch = Patch::Merge(json!({"status": {"loadBalancer": balancer}}));
    client.patch(&SERVICES, key.ns(), &key.name, &patch, &PatchOptions::status()).await.map(drop)
}

/// Reconciles an object of a project that is to be on its cluster.
///
/// # Errors
/// A server refuses, or does not answer.
pub(crate) async fn reconcile(world: Arc<World>, object: Object) -> Reconciled {
    let Object { kind, key } = &object;
    if *kind == Kind::Namespace {
        return namespace(&world, key).await;
    }
    let placed = match world.place(&key.plane) {
        Place::On(placed) => placed,
        Place::Nowhere => return Ok(Outcome::Done),
        // Without a Pod nothing waits for a cluster.
        Place::Waiting if *kind == Kind::Service => return Ok(Outcome::Done),
        Place::Waiting => return Ok(Outcome::After(ELSEWHERE)),
    };
    let namespace = Key::new(key.plane.clone(), "", &key.namespace);
    if !placed.cluster.has(Kind::Namespace, &namespace) {
        return Ok(Outcome::Done);
    }
    let is_wanted = match kind {
        Kind::Service => true,
        // Data outlives the Pods that use it.
        Kind::Claim => placed.cluster.has(Kind::Claim, key) || world.references.has(&object),
        _ => world.references.has(&object),
    };
    match is_wanted {
        true => ensure(&world, &placed, object).await?,
        false => placed.cluster.remove(*kind, key).await?,
    }
    Ok(Outcome::Done)
}

/// A host namespace goes with the project's namespace or the project; otherwise it has what guards it.
async fn namespace(world: &World, key: &Key) -> Reconciled {
    let clusters: Vec<Arc<Cluster>> = world.clusters.lock().values().cloned().collect();
    let has: Vec<&Arc<Cluster>> =
        clusters.iter().filter(|cluster| cluster.has(Kind::Namespace, key)).collect();
    if has.is_empty() {
        return Ok(Outcome::Done);
    }
    let is_there = world.knows(&key.plane)
        && world.client(&key.plane).get_opt(&NAMESPACES, None, &key.name).await?.is_some();
    if !is_there {
        for cluster in has {
            cluster.remove(Kind::Namespace, key).await?;
        }
        return Ok(Outcome::Done);
    }
    match world.place(&key.plane) {
        Place::On(placed) => {
            ensure_namespace(world, &placed, &key.plane, &key.name).await?;
            Ok(Outcome::Done)
        }
        Place::Waiting => Ok(Outcome::After(ELSEWHERE)),
        Place::Nowhere => Ok(Outcome::Done),
    }
}
