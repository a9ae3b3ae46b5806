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

/// A RoleBinding or Role of `name` in a namespace, or its absence.
fn change(
    plane: &PlaneId,
    (resource, kind): (&str, &str),
    (namespace, name): (&str, &str),
    is_there: bool,
) -> Change {
    let path = ObjectPath {
        group: GROUP.to_owned(),
        resource: resource.to_owned(),
        namespace: Some(namespace.to_owned()),
        name: name.to_owned(),
    };
    let key = Key::object(plane, &path);
    if !is_there {
        return Change::Delete(key);
    }
    let mut object = json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind,
        "metadata": {"name": name, "namespace": namespace, "uid": format!("uid-{namespace}-{name}")}});
    if kind == "Role" {
        object["rules"] = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": [name]}]);
    } else {
        object["roleRef"] = json!({"apiGroup": GROUP, "kind": "Role", "name": "get"});
        object["subjects"] = json!([{"apiGroup": GROUP, "kind": "User", "name": name}]);
    }
    Change::Put(key, codec::encode(&object))
}

#[tokio::test]
async fn what_changes_in_a_namespace_is_in_the_next_decision_and_the_rest_stays() {
    let world = World::new().await;
    let a: PlaneId = id("a");
    bind(&world, &a, "ann").await;
    let seen = async |world: &World| {
        world.cache.catch_up().await.unwrap();
        let policy = world.planes.policy(&a).await.unwrap();
        let user = |name: &str| User { name: name.to_owned(), ..User::default() };
        ["ann", "bob", "get"]
            .map(|name| ["n1", "n2", "n3"].map(|namespace| policy.rules_for(&user(name), namespace).0.len()))
    };
    let kinds = [("roles", "Role"), ("rolebindings", "RoleBinding")];
    let mut random = 3_u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let mut there = std::collections::BTreeSet::new();
    for step in 0..200 {
        for _ in 0..=next(3) {
            let kind = kinds[next(2) as usize];
            let place = (["n1", "n2", "n3"][next(3) as usize], ["ann", "bob", "get"][next(3) as usize]);
            let is_new = there.insert((kind, place));
            if !is_new {
                there.remove(&(kind, place));
            }
            world.commit(change(&a, kind, place, is_new)).await;
        }
        let renewed = seen(&world).await;
        if step % 10 == 0 {
            world.cache.forget(&a);
            assert_eq!(renewed, seen(&world).await, "step {step}");
        }
    }
}
