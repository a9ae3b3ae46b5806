//! Kontroler's kinds on a project plane of a real Freehold server: objects are applied as they are and run to their end.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{DAGS, Home};
use freehold_client::{ListOptions, Resource};
use freehold_machinery::Value;
use freehold_workflow_api::kontroler::{GROUP, KINDS, VERSION, crds};
use freehold_workflow_controller::Options;
use serde_json::json;

const CRDS: Resource = Resource::cluster("apiextensions.k8s.io", "v1", "customresourcedefinitions");

fn of(kind: &str) -> Resource {
    let plural = KINDS.iter().find(|(known, _)| *known == kind).unwrap().1;
    Resource::dynamic(GROUP, VERSION, plural, true)
}

fn create(home: &Home, kind: &str, name: &str, spec: Value) {
    let object = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": kind, "metadata": {"name": name, "namespace": "default"}, "spec": spec,
    });
    home.block(home.client.create(&of(kind), &object)).unwrap();
}

/// Waits until an object's status has a phase, and returns the status.
fn phase(home: &Home, kind: &str, name: &str, wanted: &str) -> Value {
    home.until(&format!("{kind} {name} is {wanted}"), || {
        let found = home.block(home.client.get(&of(kind), Some("default"), name)).ok()?;
        (found["status"]["phase"] == wanted).then(|| found["status"].clone())
    })
}

#[test]
fn definitions_of_kontroler_run_as_they_are() {
    let home = Home::freehold();
    for crd in crds() {
        home.block(home.client.create(&CRDS, &crd)).unwrap();
    }
    for (kind, _) in KINDS {
        home.until("kinds are served", || {
            home.block(home.client.list(&of(kind), None, &ListOptions::default())).ok()
        });
    }
    let options = Options { kontroler: true, ..Options::default() };
    let controllers = home.start_with(home.client.clone(), options);
    let (none, always) = (json!({"enabled": false, "retryCodes": []}), json!({"limit": 0}));
    let task = |name: &str, after: &[&str]| {
        json!({
            "name": name, "image": "busybox", "command": ["sh", "-c"], "args": ["echo $first"], "parameters": ["first"],
            "runAfter": after, "backoff": always, "conditional": none,
        })
    };
    create(
        &home,
        "DagTask",
        "shared",
        json!({
            "image": "busybox", "command": ["true"], "parameters": ["first"], "backoff": always, "conditional": none,
        }),
    );
    let shared = json!({"name": "c", "runAfter": ["b"], "taskRef": {"name": "shared", "version": 1}});
    create(
        &home,
        "DAG",
        "event-driven",
        json!({
            "parameters": [{"name": "first", "defaultValue": "value"}], "task": [task("a", &[]), task("b", &["a"]), shared],
        }),
    );
    phase(&home, "DAG", "event-driven", "Successful");
    create(
        &home,
        "DagRun",
        "run",
        json!({"dagName": "event-driven", "parameters": [{"name": "first", "value": "other"}]}),
    );
    let status = phase(&home, "DagRun", "run", "success");
    assert!(status["dagRunId"].as_u64().is_some_and(|id| id > 0), "{status}");
    assert_eq!(home.begun(), ["a", "b", "c"]);
    // What can't be converted says why, and an object of somebody else's is left alone.
    create(&home, "DAG", "bad", json!({"task": [task("a", &["nobody"])], "unknown": 1}));
    let status = phase(&home, "DAG", "bad", "Failed");
    assert!(status["message"].as_str().unwrap().contains("spec.unknown"), "{status}");
    home.create(&common::dag("mine", json!({"tasks": [common::task("x", &[])]})));
    create(
        &home,
        "DAG",
        "mine",
        json!({"task": [task("y", &[])], "parameters": [{"name": "first", "defaultValue": "v"}]}),
    );
    phase(&home, "DAG", "mine", "Failed");
    let mine = home.block(home.client.get(&DAGS, Some("default"), "mine")).unwrap();
    assert_eq!(mine["spec"]["tasks"][0]["name"], "x");
    home.end(controllers);
}
