//! The webhook of the controllers, asked by real servers: a project of a Freehold, and a kube-apiserver.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{DAGS, Home, PATIENCE, RUNS, dag, task};
use freehold_client::Resource;
use freehold_machinery::{Value, meta};
use freehold_tests_harness::until;
use freehold_webhook::Place;
use freehold_workflow_controller::admission::start_webhook;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

#[test]
fn bad_definitions_are_refused_by_a_kube_apiserver() {
    if let Some(home) = Home::kube() {
        refuses(&home);
    }
}

#[test]
fn bad_definitions_are_refused_in_a_project() {
    refuses(&Home::freehold());
}

fn refuses(home: &Home) {
    let (tasks, token) = (TaskTracker::new(), CancellationToken::new());
    let started = start(home, &tasks, token.clone());
    home.block(started);
    let cycle = dag("cycle", json!({"tasks": [task("a", &["b"]), task("b", &["a"])]}));
    // From the moment that the server knows the webhook.
    let told = until("a cycle is refused", PATIENCE, || create(home, &DAGS, &cycle));
    assert!(told.contains("definitions.workflow.freehold.dev") && told.contains("spec.tasks"), "{told}");

    home.create(&dag("build", json!({"parameters": [{"name": "commit"}], "tasks": [task("a", &[])]})));
    let run = |name: &str, spec: Value| json!({"apiVersion": RUNS.api_version(), "kind": "DAGRun", "metadata": {"name": name, "namespace": "default"}, "spec": spec});
    for (object, path) in [
        (dag("x", json!({"tasks": [task("a", &["gone"])]})), "spec.tasks[0].runAfter[0]"),
        (dag("x", json!({"schedule": "61 * * * *", "tasks": [task("a", &[])]})), "spec.schedule"),
        (run("x", json!({"dag": "build"})), "spec.parameters"),
        (
            run("x", json!({"dagSpec": {"tasks": [{"name": "a", "imagee": "i"}]}})),
            "spec.dagSpec.tasks[0].imagee",
        ),
    ] {
        let resource = if object["kind"] == "DAG" { &DAGS } else { &RUNS };
        let told = create(home, resource, &object).unwrap_or_default();
        assert!(told.contains(path), "{path}: {told:?}");
    }
    home.create(&run("first", json!({"dag": "build", "parameters": [{"name": "commit", "value": "abc"}]})));
    // The definition changes, and the run can be stopped all the same.
    home.patch("first", json!({"state": "Stopped"}));
    home.create(&run("own", json!({"dagSpec": {"tasks": [task("a", &[])]}})));
    home.patch("own", json!({"state": "Stopped"}));

    // Nobody is locked out while the webhook is down.
    token.cancel();
    tasks.close();
    home.block(tasks.wait());
    until("objects are let in without the webhook", PATIENCE, || {
        create(home, &DAGS, &cycle).is_none().then_some(())
    });
}

async fn start(home: &Home, tasks: &TaskTracker, token: CancellationToken) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let place = Place::new(listener.local_addr().expect("an address"), None, None).expect("a place");
    let started = start_webhook(&home.client, listener, place, "default".to_owned(), (tasks, token));
    started.await.expect("the webhook starts");
}

/// Creates an object; what it was refused with.
fn create(home: &Home, resource: &Resource, object: &Value) -> Option<String> {
    let created = home.block(home.client.create(resource, object));
    match created {
        Err(error) => Some(error.to_string()),
        Ok(created) => {
            let (namespace, name) = (meta::namespace(&created), meta::name(&created));
            let _ = home.block(home.client.delete(resource, Some(namespace), name, &Default::default()));
            None
        }
    }
}
