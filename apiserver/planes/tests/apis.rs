//! The index of exports and bindings: it follows a plane's layers as it follows its own keys.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{World, id};
use freehold_apiserver_cache::codec;
use freehold_apiserver_planes::apis::ProofKey;
use freehold_apiserver_storage::{Change, Key, ObjectPath};
use freehold_machinery::{PlaneId, Value};
use serde_json::json;

const SECRET: &[u8] = b"secret";

fn key(plane: &PlaneId, resource: &str, name: &str) -> Key {
    let path = ObjectPath {
        group: "apis.freehold.dev".into(),
        resource: resource.into(),
        namespace: None,
        name: name.into(),
    };
    Key::object(plane, &path)
}

async fn put(world: &World, plane: &PlaneId, resource: &str, mut object: Value) {
    object["metadata"] = json!({"name": "pg", "uid": format!("uid-{plane}-{resource}")});
    world.commit(Change::Put(key(plane, resource, "pg"), codec::encode(&object))).await;
}

/// A binding of the provider's export, with the server's proof.
fn binding(consumer: &PlaneId, provider: &PlaneId) -> Value {
    let proof = ProofKey::new(SECRET).prove((consumer, provider.as_str(), "pg"));
    json!({"spec": {"export": {"project": "project-p", "name": "pg"}}, "status": {"plane": provider.as_str(), "proof": proof}})
}

async fn consumers(world: &World, provider: &PlaneId) -> Option<Vec<PlaneId>> {
    world.cache.catch_up().await.unwrap();
    let apis = world.planes.apis();
    apis.ready().await;
    Some(apis.consumers(&*apis.export(provider, "pg")?))
}

#[tokio::test]
async fn a_restore_brings_back_bindings_and_exports_at_once_and_after_a_restart() {
    let world = World::new().await;
    world.planes.apis().prove_with(ProofKey::new(SECRET));
    let (provider, consumer): (PlaneId, PlaneId) = (id("p"), id("c"));
    for plane in [&provider, &consumer] {
        world.project(plane, "org").await;
    }
    put(&world, &provider, "apiexports", json!({"spec": {"schemas": []}})).await;
    world.planes.snapshot(&consumer, &id("before"), None).await.unwrap();
    put(&world, &consumer, "apibindings", binding(&consumer, &provider)).await;
    world.planes.snapshot(&consumer, &id("bound"), None).await.unwrap();
    world.planes.snapshot(&provider, &id("exported"), None).await.unwrap();
    world.commit(Change::Delete(key(&consumer, "apibindings", "pg"))).await;
    assert_eq!(consumers(&world, &provider).await, Some(Vec::new()));

    world.planes.switch(&consumer, &id("bound"), "restore-1").await.unwrap();
    assert_eq!(consumers(&world, &provider).await, Some(vec![consumer.clone()]));
    world.planes.switch(&consumer, &id("before"), "restore-2").await.unwrap();
    assert_eq!(consumers(&world, &provider).await, Some(Vec::new()));
    world.planes.switch(&consumer, &id("bound"), "restore-3").await.unwrap();

    world.commit(Change::Delete(key(&provider, "apiexports", "pg"))).await;
    assert_eq!(consumers(&world, &provider).await, None);
    world.planes.switch(&provider, &id("exported"), "restore-4").await.unwrap();
    assert_eq!(consumers(&world, &provider).await, Some(vec![consumer.clone()]));

    let world = world.restarted().await;
    world.planes.apis().prove_with(ProofKey::new(SECRET));
    assert_eq!(consumers(&world, &provider).await, Some(vec![consumer]), "the layers are read at a start");
}
