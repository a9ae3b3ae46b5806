//! Who may do what in a plane, whatever is in memory and whenever it was written.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{World, id};
use freehold_apiserver_cache::codec;
use freehold_apiserver_storage::{Change, Key, ObjectPath};
use freehold_machinery::{PlaneId, User};
use serde_json::json;

const GROUP: &str = "rbac.authorization.k8s.io";

fn binding(plane: &PlaneId, user: &str) -> Key {
    let (group, resource) = (GROUP.to_owned(), "clusterrolebindings".to_owned());
    Key::object(plane, &ObjectPath { group, resource, namespace: None, name: user.to_owned() })
}

async fn bind(world: &World, plane: &PlaneId, user: &str) {
    let object = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRoleBinding",
        "metadata": {"name": user, "uid": format!("uid-{user}")},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": GROUP, "kind": "User", "name": user}]});
    world.commit(Change::Put(binding(plane, user), codec::encode(&object))).await;
}

/// Whether a user may do everything in a plane.
async fn rules(world: &World, plane: &PlaneId, user: &str) -> bool {
    world.cache.catch_up().await.unwrap();
    let user = User { name: user.to_owned(), ..User::default() };
    let (rules, _) = world.planes.policy(plane).await.unwrap().rules_for(&user, "default");
    !rules.is_empty()
}

#[tokio::test]
async fn rights_in_one_plane_are_none_in_another_after_the_base_was_upgraded() {
    let world = World::new().await;
    let (a, b): (PlaneId, PlaneId) = (id("a"), id("b"));
    bind(&world, &a, "ann").await;
    bind(&world, &b, "bob").await;
    let world = world.upgraded().await;
    for (plane, user, expected) in
        [(&a, "ann", true), (&b, "ann", false), (&b, "bob", true), (&a, "bob", false)]
    {
        assert_eq!(rules(&world, plane, user).await, expected, "{user} in {plane}");
    }
    assert!(!rules(&world, &id("c"), "ann").await, "a plane that has nothing of its own");
}

#[tokio::test]
async fn rights_that_went_while_a_plane_was_not_in_memory_are_gone() {
    let world = World::new().await;
    let a: PlaneId = id("a");
    bind(&world, &a, "ann").await;
    bind(&world, &a, "bob").await;
    assert!(rules(&world, &a, "ann").await);
    world.cache.forget(&a);
    world.commit(Change::Delete(binding(&a, "ann"))).await;
    assert!(!rules(&world, &a, "ann").await);
    assert!(rules(&world, &a, "bob").await);
}
