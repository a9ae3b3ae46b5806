//! Facts of server-side apply, by kind of object.

mod facts;
mod managers;
mod properties;
mod sets;

use super::*;
use freehold_machinery::schema;
use serde_json::json;
use std::sync::{Arc, LazyLock};

/// The part of a Deployment's schema that the tests need, with Kubernetes' list types.
static DEPLOYMENT: LazyLock<Arc<Schema>> = LazyLock::new(|| {
    let env =
        json!({"type": "object", "properties": {"name": {"type": "string"}, "value": {"type": "string"}}});
    let port = json!({"type": "object", "properties": {
        "name": {"type": "string"},
        "containerPort": {"type": "integer"},
        "protocol": {"type": "string", "default": "TCP"},
    }});
    let keyed = |keys: &[&str], items: Value| json!({"type": "array", "items": items, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys});
    let strings = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let container = json!({"type": "object", "properties": {
        "name": {"type": "string"},
        "image": {"type": "string"},
        "command": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "atomic"},
        "env": keyed(&["name"], env),
        "ports": keyed(&["containerPort", "protocol"], port),
        "resources": {"type": "object", "properties": {"limits": strings, "requests": strings}},
    }});
    let toleration =
        json!({"type": "object", "properties": {"key": {"type": "string"}, "operator": {"type": "string"}}});
    let pod = json!({"type": "object", "properties": {
        "containers": keyed(&["name"], container),
        "tolerations": {"type": "array", "items": toleration, "x-kubernetes-list-type": "atomic"},
        "nodeSelector": {"type": "object", "additionalProperties": {"type": "string"}, "x-kubernetes-map-type": "atomic"},
    }});
    let labelled = json!({"type": "object", "properties": {"labels": strings}});
    let deployment = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "replicas": {"type": "integer"},
            "paused": {"type": "boolean"},
            "selector": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"matchLabels": strings}},
            "strategy": {"type": "object", "properties": {"type": {"type": "string"}}},
            "template": {"type": "object", "properties": {"metadata": labelled, "spec": pod}},
        }},
        "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
    }});
    schema::parse(&deployment).unwrap()
});

fn by(manager: &str) -> Options<'_> {
    Options {
        manager,
        force: false,
        api_version: "apps/v1",
        kind: "Deployment",
        subresource: "",
        now: "2026-01-01T00:00:00Z",
        schema: Some(&DEPLOYMENT),
        reset_fields: None,
    }
}

/// A custom object of a type without a schema.
fn untyped(manager: &str) -> Options<'_> {
    Options { api_version: "example.com/v1", kind: "Thing", schema: None, ..by(manager) }
}

fn deployment(spec: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "ns"}, "spec": spec})
}

/// A Deployment whose one container has these fields besides its name.
fn with_container(fields: Value) -> Value {
    let mut container = fields;
    container["name"] = json!("c");
    deployment(json!({"template": {"spec": {"containers": [container]}}}))
}

fn thing(spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": spec})
}

/// Applies, and gives the object as it is then.
fn applied(live: Option<&Value>, config: &Value, options: &Options<'_>) -> Value {
    match apply(live, config, options).unwrap_or_else(|e| panic!("{e}: {config}")) {
        Some(object) => object,
        None => live.cloned().expect("no change of an object that is there"),
    }
}

/// Updates, and gives the object as it is then.
fn updated(live: Option<&Value>, object: Value, options: &Options<'_>) -> Value {
    let mut object = object;
    update(live, &mut object, options);
    object
}

/// The fields of a manager's entry.
fn owned(object: &Value, manager: &str) -> Value {
    entry(object, manager).map_or(Value::Null, |entry| entry["fieldsV1"].clone())
}

fn entry<'v>(object: &'v Value, manager: &str) -> Option<&'v Value> {
    object["metadata"]["managedFields"].as_array()?.iter().find(|entry| entry["manager"] == manager)
}
