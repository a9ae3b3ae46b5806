//! Definitions whose end was interrupted.

use crate::{PATIENCE, items, text};
use freehold_tests_integration::{Engine, Http, Server, facts, until};
use http::Method;
use serde_json::{Value, json};

facts!(engine: a_definition_goes_to_its_end_after_a_kill);

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const THINGS: &str = "/apis/ends.example.com/v1/things";
/// Enough that a kill finds some of them not yet deleted.
const OBJECTS: usize = 400;

/// The server is killed while it marks a definition's objects as deleted; after its start all of them are, with no further
/// delete, and the definition goes when their finalizers do.
fn a_definition_goes_to_its_end_after_a_kill(engine: Engine) {
    let mut server = Server::start(engine);
    let http = Http::of(&server.kubectl());
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.ends.example.com"},
        "spec": {"group": "ends.example.com", "scope": "Cluster", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]},
    });
    assert_eq!(http.json(Method::POST, CRDS, &definition).code, 201);
    // In the core plane a type is served as soon as the server has been told of it, which may be behind its answer.
    until("it is served", PATIENCE, || (http.get(THINGS).code == 200).then_some(()));
    for index in 0..OBJECTS {
        let thing = json!({"apiVersion": "ends.example.com/v1", "kind": "Thing",
            "metadata": {"name": format!("t{index}"), "finalizers": ["example.com/held"]}});
        assert_eq!(http.json(Method::POST, THINGS, &thing).code, 201);
    }
    let path = format!("{CRDS}/things.ends.example.com");
    let deleting = std::thread::spawn({
        let (http, path) = (Http::of(&server.kubectl()), path.clone());
        move || drop(http.try_json(Method::DELETE, &path, &Value::Null))
    });
    let deleted = |http: &Http| {
        let things = http.get(THINGS).body;
        items(&things).filter(|thing| !text(thing, "/metadata/deletionTimestamp").is_empty()).count()
    };
    until("some of its objects are deleted", PATIENCE, || (deleted(&http) > 0).then_some(()));
    server.kill();
    deleting.join().expect("the delete was answered or not");
    server.restart();
    let http = Http::of(&server.kubectl());
    until("all of its objects are deleted", PATIENCE, || (deleted(&http) == OBJECTS).then_some(()));
    let free = json!([{"op": "remove", "path": "/metadata/finalizers"}]);
    for index in 0..OBJECTS {
        let url = format!("{THINGS}/t{index}");
        let patched = http.send(Method::PATCH, &url, "application/json-patch+json", free.to_string());
        assert_eq!(patched.code, 200, "{patched:?}");
    }
    until("the definition is gone", PATIENCE, || (http.get(&path).code == 404).then_some(()));
}
