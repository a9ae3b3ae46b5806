//! Times of sleep, waking and templates over many namespaces, printed; `FREEHOLD_TEST_NAMESPACES` says over how many.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Api, Running, freehold, fresh_client};
use freehold_client::{Client, ListOptions, Resource};
use freehold_tenancy_controllers::supervisor::start_supervisor;
use freehold_tenancy_controllers::template::{TemplateOptions, start_templates_with};
use freehold_tests_harness::until;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const NAMESPACES: Resource = Resource::cluster("", "v1", "namespaces");
const DEPLOYMENTS: Resource = Resource::namespaced("apps", "v1", "deployments");
const RECORDS: Resource = Resource::namespaced("tenancy.freehold.dev", "v1alpha1", "sleeprecords");
const CONFIG_MAPS: Resource = Resource::namespaced("", "v1", "configmaps");
const INSTANCES: Resource = Resource::namespaced("tenancy.freehold.dev", "v1alpha1", "templateinstances");
/// Workloads, and objects of the template, in each namespace.
const EACH: usize = 5;
const LONG: Duration = Duration::from_secs(1800);

fn count() -> Option<usize> {
    std::env::var("FREEHOLD_TEST_NAMESPACES").ok()?.parse().ok()
}

async fn create(client: &Client, objects: Vec<(Resource, Value)>) {
    let writes =
        objects.into_iter().map(|(resource, object)| async move { client.create(&resource, &object).await });
    let written: Vec<_> = futures_util::stream::iter(writes).buffer_unordered(64).collect().await;
    for result in written {
        result.expect("an object that can be created");
    }
}

fn all(runtime: &tokio::runtime::Runtime, client: &Client, resource: &Resource) -> Vec<Value> {
    let options = ListOptions::default();
    runtime.block_on(client.list_all(resource, None, &options)).expect("a list").items
}

fn namespaces(runtime: &tokio::runtime::Runtime, client: &Client, count: usize) {
    let one = |n: usize| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": format!("n{n:05}"), "labels": {"env": "dev"}}});
    runtime.block_on(create(client, (0..count).map(|n| (NAMESPACES, one(n))).collect()));
}

#[test]
fn sleep_and_waking_of_many_namespaces() {
    let Some(count) = count() else { return };
    let api = freehold();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let client = fresh_client(&api);
    namespaces(&runtime, &client, count);
    let pod =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = |n: usize, at: usize| {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": format!("d{at}"), "namespace": format!("n{n:05}")},
            "spec": {"replicas": at + 1, "selector": {"matchLabels": {"a": "b"}}, "paused": true, "template": pod},
        })
    };
    let pairs = (0..count).flat_map(|n| (0..EACH).map(move |at| (n, at)));
    runtime.block_on(create(&client, pairs.map(|(n, at)| (DEPLOYMENTS, deployment(n, at))).collect()));
    let _controllers = Running::start(&api, start_supervisor);
    let wait = |what: &str, state: &str, done: &dyn Fn() -> bool| {
        supervise(&api, state);
        let begun = Instant::now();
        until(what, LONG, || {
            std::thread::sleep(Duration::from_secs(1));
            done().then_some(())
        });
        println!("{count} namespaces with {EACH} workloads {what} in {:.1} s", begun.elapsed().as_secs_f64());
    };
    let replicas = || all(&runtime, &client, &DEPLOYMENTS);
    wait("asleep", "Asleep", &|| replicas().iter().all(|d| d["spec"]["replicas"] == 0));
    wait("awake", "Awake", &|| all(&runtime, &client, &RECORDS).is_empty());
    for deployment in replicas() {
        let name = deployment["metadata"]["name"].as_str().unwrap();
        assert_eq!(deployment["spec"]["replicas"].as_u64().unwrap() - 1, name[1..].parse::<u64>().unwrap());
    }
}

fn supervise(api: &Api, state: &str) {
    api.apply(&format!(
        "{{apiVersion: tenancy.freehold.dev/v1alpha1, kind: ResourceSupervisor, metadata: {{name: nights}}, spec: {{target: {{selector: {{matchLabels: {{env: dev}}}}}}, override: {{state: {state}}}}}}}"
    ));
}

#[test]
fn a_template_over_many_namespaces() {
    let Some(count) = count() else { return };
    let api = freehold();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let client = fresh_client(&api);
    namespaces(&runtime, &client, count);
    let manifest = |at: usize| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("c{at}")}, "data": {"n": "${namespace.name}"}});
    let manifests: Vec<Value> = (0..EACH).map(manifest).collect();
    let template = json!({"apiVersion": "tenancy.freehold.dev/v1alpha1", "kind": "Template", "metadata": {"name": "t"}, "spec": {"manifests": manifests}});
    api.apply(&template.to_string());
    api.apply("{apiVersion: v1, kind: ServiceAccount, metadata: {name: writer, namespace: default}}");
    api.kubectl.ok(&[
        "create",
        "clusterrolebinding",
        "writer",
        "--clusterrole=edit",
        "--serviceaccount=default:writer",
    ]);
    let start = || Running::start(&api, |scope| start_templates_with(scope, TemplateOptions::default()));
    let controllers = start();
    let begun = Instant::now();
    api.apply("{apiVersion: tenancy.freehold.dev/v1alpha1, kind: TemplateGroupInstance, metadata: {name: g}, spec: {template: t, target: {selector: {matchLabels: {env: dev}}}, serviceAccount: {namespace: default, name: writer}}}");
    until("all are applied", LONG, || {
        std::thread::sleep(Duration::from_secs(1));
        (api.field("", "templategroupinstance/g", ".status.ready") == count.to_string()).then_some(())
    });
    println!("a template of {EACH} objects to {count} namespaces in {:.1} s", begun.elapsed().as_secs_f64());
    drop(controllers);
    let versions = || {
        let objects =
            all(&runtime, &client, &CONFIG_MAPS).into_iter().chain(all(&runtime, &client, &INSTANCES));
        objects.map(|object| object["metadata"]["resourceVersion"].to_string()).collect::<Vec<_>>()
    };
    let before = versions();
    let begun = Instant::now();
    let _controllers = start();
    std::thread::sleep(Duration::from_secs(10));
    let changed = versions().iter().zip(&before).filter(|(now, before)| now != before).count();
    println!(
        "{changed} objects were written by the second run within {:.0} s",
        begun.elapsed().as_secs_f64()
    );
    assert_eq!(changed, 0);
    let begun = Instant::now();
    api.kubectl.ok(&[
        "patch",
        "configmap",
        "c0",
        "-n",
        "n00000",
        "--type=merge",
        "-p",
        "{\"data\": {\"n\": \"drift\"}}",
    ]);
    api.wait_field("n00000", "configmap/c0", ".data.n", "n00000");
    println!("drift was repaired within {:.1} s, kubectl's own time included", begun.elapsed().as_secs_f64());
}
