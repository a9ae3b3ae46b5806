//! Changes of an export's kinds.

use crate::{Parties, database, export, schema, widely};
use freehold_tests_integration::{World, facts};
use serde_json::{Value, json};

facts!(world:
    each_breaking_change_is_refused_while_objects_would_break,
    dependents_of_two_exports_of_one_name_go_with_their_owners,
);

/// A kind of breaking change, how it is done to a schema, and the line about it.
type Row = (&'static str, fn(&mut Value), &'static str);

fn size(schema: &mut Value) -> &mut Value {
    &mut schema["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["size"]
}

fn spec(schema: &mut Value) -> &mut Value {
    &mut schema["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
}

const ROWS: [Row; 8] = [
    (
        "removed field",
        |new| drop(spec(new)["properties"].as_object_mut().unwrap().remove("engine")),
        "spec.engine: the field was removed",
    ),
    ("removed version", |new| new["spec"]["versions"][0]["name"] = json!("v2"), "version v1 was removed"),
    ("tightened bound", |new| size(new)["maximum"] = json!(9), "spec.size: maximum was tightened to 9"),
    (
        "tightened rule",
        |new| size(new)["x-kubernetes-validations"] = json!([{"rule": "self % 2 == 1"}]),
        "rule self % 2 == 1 was added",
    ),
    (
        "tightened rule of the object",
        |new| {
            spec(new)["x-kubernetes-validations"] =
                json!([{"rule": "self.size < 10 || self.engine == 'mysql'"}])
        },
        "rule self.size < 10",
    ),
    ("changed type", |new| *size(new) = json!({"type": "string"}), "type changed from integer to string"),
    (
        "removed enum value",
        |new| {
            spec(new)["properties"]["engine"] =
                json!({"type": "string", "enum": ["mysql"], "default": "mysql"})
        },
        "value postgres is no longer allowed",
    ),
    (
        "new required field",
        |new| {
            spec(new)["properties"]["owner"] = json!({"type": "string"});
            spec(new)["required"] = json!(["size", "owner"]);
        },
        "field owner is required now",
    ),
];

fn each_breaking_change_is_refused_while_objects_would_break(world: &World) {
    let parties = Parties::new(world, "rows");
    parties.bind(&parties.consumer);
    parties.consumer.apply(&database("large", 30).to_string());
    for (nth, (kind, change, line)) in ROWS.into_iter().enumerate() {
        let name = format!("w{nth}.databases.db.example.com");
        let mut new = schema(&name, &widely());
        change(&mut new);
        parties.provider.apply(&new.to_string());
        let patch = json!({"spec": {"schemas": [name]}}).to_string();
        let refused = parties.provider.fails(&["patch", "apiexport", "pg", "--type=merge", "-p", &patch]);
        for part in [line, "default/large"] {
            assert!(refused.contains(part), "{kind}: {part} is missing in {refused}");
        }
    }
}

fn dependents_of_two_exports_of_one_name_go_with_their_owners(world: &World) {
    let parties = Parties::new(world, "owners");
    parties.bind(&parties.consumer);
    // Another provider, whose kind has the same name.
    world.organization("second-owners", &["second-owners"]);
    let second = world.server().project("second-owners");
    second.apply(&schema("v1.databases.db.example.com", &widely()).to_string());
    second.apply(&export("pg", "consumers-owners", &json!([])).to_string());
    let mut binding = parties.binding(&json!([]));
    binding["spec"]["export"]["project"] = json!("second-owners");
    parties.other.apply(&binding.to_string());
    for kubectl in [&parties.consumer, &parties.other] {
        kubectl.apply(&database("owner", 1).to_string());
        let uid = kubectl.ok(&["get", "database", "owner", "-o", "jsonpath={.metadata.uid}"]);
        let owners = json!([{"apiVersion": "db.example.com/v1", "kind": "Database", "name": "owner", "uid": uid.trim()}]);
        let mut below = database("below", 1);
        below["metadata"]["ownerReferences"] = owners.clone();
        kubectl.apply(&below.to_string());
        let plain = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "below", "namespace": "default", "ownerReferences": owners}});
        kubectl.apply(&plain.to_string());
        kubectl.ok(&["delete", "database", "owner"]);
        kubectl.ok(&["wait", "--for=delete", "configmap/below", "database/below", "--timeout=60s"]);
    }
}
