//! The way of a write from a request to its commit, over the embedded store: what several servers on one store agree about.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Kind, World, code};
use freehold_apiserver_registry::{DeleteOptions, FieldValidation, ListOptions, Patch, WriteOptions};
use freehold_machinery::{Status, Value, meta};
use serde_json::json;
use std::collections::BTreeSet;
use tokio::task::JoinSet;

const MAPS: Kind = Kind { group: "", resource: "configmaps", namespace: Some("default") };
const SERVICES: Kind = Kind { group: "", resource: "services", namespace: Some("default") };
const NAMESPACES: Kind = Kind { group: "", resource: "namespaces", namespace: None };

/// Writers that are under way at a time, half of them on each of two servers.
const WRITERS: usize = 40;

fn map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": value}})
}

fn service(name: &str, spec: &Value) -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"ports": [{"port": 80}]}});
    for (field, value) in spec.as_object().unwrap() {
        object["spec"][field] = value.clone();
    }
    object
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_server_wrote_another_reads_and_only_the_present_version_is_replaced() {
    let world = World::new(2).await;
    let made = world.create(0, MAPS, map("a", "1")).await.unwrap();
    assert_eq!(*world.get(1, MAPS, "a").await.unwrap(), made);
    let mut changed = made.clone();
    changed["data"]["k"] = "2".into();
    let replaced = world.update(1, MAPS, changed.clone()).await.unwrap();
    assert!(meta::resource_version(&replaced) != meta::resource_version(&made));
    assert_eq!(code(world.update(0, MAPS, changed).await), 409, "it is overtaken");
    assert_eq!(code(world.create(0, MAPS, map("a", "3")).await), 409, "it is there");
    assert_eq!(world.get(0, MAPS, "a").await.unwrap()["data"]["k"], "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn patches_without_a_version_are_all_kept() {
    let world = World::new(2).await;
    world.create(0, MAPS, map("a", "1")).await.unwrap();
    let mut tasks = JoinSet::new();
    for number in 0..WRITERS {
        let world = world.clone();
        tasks.spawn(async move {
            let patch = Patch::Merge(json!({"data": {format!("w{number}"): "x"}}).into());
            world.patch(number % 2, MAPS, "a", patch).await
        });
    }
    tasks.join_all().await.into_iter().for_each(|done| drop(done.unwrap()));
    let data = world.get(1, MAPS, "a").await.unwrap()["data"].as_object().unwrap().len();
    assert_eq!(data, WRITERS + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_and_tried_writes_leave_nothing() {
    let world = World::new(1).await;
    let dry = WriteOptions { dry_run: true, ..World::options() };
    world.create_with(0, MAPS, map("a", "1"), &dry).await.unwrap();
    let strict = WriteOptions { field_validation: FieldValidation::Strict, ..World::options() };
    let mut unknown = map("a", "1");
    unknown["date"] = "x".into();
    assert_eq!(code(world.create_with(0, MAPS, unknown, &strict).await), 400);
    assert_eq!(code(world.create(0, MAPS, map("A!", "1")).await), 422);
    let elsewhere = Kind { namespace: Some("nowhere"), ..MAPS };
    assert_eq!(code(world.create(0, elsewhere, map("a", "1")).await), 404);
    assert_eq!(code(world.get(0, MAPS, "a").await), 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn object_with_a_finalizer_goes_with_the_last_of_them() {
    let world = World::new(1).await;
    let mut held = map("a", "1");
    held["metadata"]["finalizers"] = json!(["example.com/held"]);
    world.create(0, MAPS, held).await.unwrap();
    world.delete(0, MAPS, "a", &DeleteOptions::default()).await.unwrap();
    assert!(meta::is_deleting(&world.get(0, MAPS, "a").await.unwrap()));
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}).into());
    world.patch(0, MAPS, "a", patch).await.unwrap();
    assert_eq!(code(world.get(0, MAPS, "a").await), 404);
}

/// Creates Services at once on two servers; gives those that were made, and what the others were refused with.
async fn create_all(world: &World, spec: impl Fn(usize) -> Value) -> (Vec<Value>, Vec<Status>) {
    let mut tasks = JoinSet::new();
    for number in 0..WRITERS {
        let (world, object) = (world.clone(), service(&format!("s{number}"), &spec(number)));
        tasks.spawn(async move { world.create(number % 2, SERVICES, object).await });
    }
    let (mut made, mut refused) = (Vec::new(), Vec::new());
    for outcome in tasks.join_all().await {
        match outcome {
            Ok(object) => made.push(object),
            Err(status) => refused.push(status),
        }
    }
    (made, refused)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_services_gets_the_port_that_all_ask_for() {
    let world = World::new(2).await;
    let wanted =
        |_| json!({"type": "NodePort", "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30_100}]});
    let (made, refused) = create_all(&world, wanted).await;
    assert_eq!((made.len(), refused.len()), (1, WRITERS - 1));
    for status in refused {
        assert!(status.code == 422 && status.message.contains("provided port is already allocated"));
    }
    let name = meta::name(&made[0]);
    world.delete(1, SERVICES, name, &DeleteOptions::default()).await.unwrap();
    world.create(0, SERVICES, service("next", &wanted(0))).await.expect("the port is free again");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_services_gets_the_address_that_all_ask_for() {
    let world = World::new(2).await;
    let (made, refused) = create_all(&world, |_| json!({"clusterIP": "10.96.7.7"})).await;
    assert_eq!((made.len(), refused.len()), (1, WRITERS - 1));
    for status in refused {
        assert!(status.code == 422 && status.message.contains("provided IP is already allocated"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn services_that_ask_for_nothing_get_addresses_and_ports_of_their_own() {
    let world = World::new(2).await;
    let (made, refused) = create_all(&world, |_| json!({"type": "NodePort"})).await;
    assert!(refused.is_empty(), "{refused:?}");
    let of = |pointer: &str| -> BTreeSet<String> {
        made.iter().map(|service| service.pointer(pointer).unwrap().to_string()).collect()
    };
    assert_eq!(of("/spec/clusterIP").len(), WRITERS);
    assert_eq!(of("/spec/ports/0/nodePort").len(), WRITERS);
    // What it has a Service keeps, and another one may not have it.
    let first = made[0].clone();
    world.update(1, SERVICES, first.clone()).await.unwrap();
    let mut taken = made[1].clone();
    taken["spec"]["ports"][0]["nodePort"] = first["spec"]["ports"][0]["nodePort"].clone();
    assert_eq!(code(world.update(0, SERVICES, taken).await), 422);
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_waits_for_the_account_of_its_new_namespace() {
    let world = World::new(1).await;
    let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    world.create(0, NAMESPACES, namespace("early")).await.unwrap();
    let within = |resource| Kind { group: "", resource, namespace: Some("early") };
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "a", "image": "a"}]}});
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    let (pod, account) = tokio::join!(
        world.create(0, within("pods"), pod),
        world.create(0, within("serviceaccounts"), account),
    );
    account.unwrap();
    assert_eq!(pod.unwrap()["spec"]["serviceAccountName"], "default");
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_of_one_revision() {
    let world = World::new(1).await;
    for number in 0..5 {
        world.create(0, MAPS, map(&format!("m{number}"), "1")).await.unwrap();
    }
    let label = "".to_owned();
    let options = ListOptions { limit: 2, label_selector: label, ..ListOptions::default() };
    let first = world.list(0, MAPS, &options).await.unwrap();
    world.create(0, MAPS, map("m9", "1")).await.unwrap();
    let mut names: Vec<String> = Vec::new();
    let mut page = first;
    loop {
        names.extend(page.items.iter().map(|item| meta::name(&item.value()).to_owned()));
        if page.continue_token.is_empty() {
            break;
        }
        let next = ListOptions { continue_token: page.continue_token.clone(), ..options.clone() };
        page = world.list(0, MAPS, &next).await.unwrap();
    }
    names.retain(|name| name.starts_with('m'));
    assert_eq!(names, ["m0", "m1", "m2", "m3", "m4"]);
}
