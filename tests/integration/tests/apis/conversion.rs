//! Exported kinds of several versions, with the provider's webhook for conversions and without.

use crate::{DATABASES, GROUP, IN_DEFAULT, PATIENCE, Parties, database, names, schema, widely};
use freehold_tests_integration::{HookServer, Http, Reply, World, facts, until};
use http::Method;
use serde_json::{Value, json};
use std::io::Write as _;

facts!(world:
    a_providers_webhook_converts_what_consumers_ask_for_in_another_version,
    a_provider_sees_all_consumers_in_each_version_by_one_question,
    versions_without_a_webhook_differ_in_their_api_version_alone,
    a_schema_is_made_from_a_definition_with_its_conversion,
    a_conversion_that_goes_breaks_what_rests_on_it,
);

pub(crate) const NEXT: &str = "v2.databases.db.example.com";
const MERGE: &str = "application/merge-patch+json";

/// A path of the kind's first version, in its second.
pub(crate) fn v2(path: &str) -> String {
    path.replace("/v1/", "/v2/")
}

/// The kind with a second version, in which the size is the text `capacity`.
pub(crate) fn two_versions(conversion: &Value) -> Value {
    let mut two = schema(NEXT, &widely());
    let mut second = two["spec"]["versions"][0].clone();
    second["name"] = "v2".into();
    second["storage"] = false.into();
    let spec = &mut second["schema"]["openAPIV3Schema"]["properties"]["spec"];
    spec["required"] = json!(["capacity"]);
    spec["properties"] = json!({"capacity": {"type": "string"}, "engine": spec["properties"]["engine"]});
    two["spec"]["versions"].as_array_mut().unwrap().push(second);
    two["spec"]["conversion"] = conversion.clone();
    two
}

/// The conversion by a webhook at a `clientConfig`.
pub(crate) fn by(client: &Value) -> Value {
    json!({"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}})
}

fn convert(object: &Value, to: &str) -> Value {
    let mut object = object.clone();
    object["apiVersion"] = to.into();
    let Some(spec) = object["spec"].as_object_mut() else { return object };
    if let Some(size) = spec.remove("size").filter(|_| to.ends_with("/v2")) {
        spec.insert("capacity".into(), format!("{size}Gi").into());
    } else if let Some(capacity) = spec.remove("capacity").filter(|_| to.ends_with("/v1")) {
        let size: i64 = capacity.as_str().unwrap_or_default().trim_end_matches("Gi").parse().unwrap_or(0);
        spec.insert("size".into(), size.into());
    }
    object
}

/// The answer of a webhook that converts well, after what `spoil` makes of the objects.
pub(crate) fn converted(review: &Value, spoil: impl FnOnce(&mut Vec<Value>)) -> Reply {
    let request = &review["request"];
    let to = request["desiredAPIVersion"].as_str().unwrap_or_default();
    let mut objects: Vec<Value> =
        request["objects"].as_array().into_iter().flatten().map(|object| convert(object, to)).collect();
    spoil(&mut objects);
    let response =
        json!({"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": objects});
    Reply::Json(
        json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "response": response}),
    )
}

/// Publishes the kind in two versions and binds it in both projects.
pub(crate) fn published(world: &World, tag: &str, conversion: &Value) -> Parties {
    let parties = Parties::new(world, tag);
    parties.provider.apply(&two_versions(conversion).to_string());
    let patch = json!({"spec": {"schemas": [NEXT]}}).to_string();
    parties.provider.ok(&["patch", "apiexport", "pg", "--type=merge", "-p", &patch]);
    parties.bind(&parties.consumer);
    parties.bind(&parties.other);
    parties
}

/// A database of the second version.
pub(crate) fn second(name: &str, capacity: &str) -> Value {
    let mut object = database(name, 1);
    object["apiVersion"] = "db.example.com/v2".into();
    object["spec"] = json!({"capacity": capacity});
    object
}

fn a_providers_webhook_converts_what_consumers_ask_for_in_another_version(world: &World) {
    let server = HookServer::start(|_, review| converted(review, |_| {}));
    let parties = published(world, "converted", &by(&server.by_url("/convert")));
    let http = Http::of(&parties.consumer);
    let made = http.json(Method::POST, &v2(IN_DEFAULT), &second("orders", "3Gi"));
    assert_eq!((made.code, &made.body["spec"]["capacity"]), (201, &json!("3Gi")), "{}", made.body);
    let read = http.get(&format!("{IN_DEFAULT}/orders")).body;
    assert_eq!(read["spec"], json!({"size": 3, "engine": "postgres"}), "stored in the first version: {read}");
    let watching = parties.consumer.background(&[
        "get",
        "databases.v2.db.example.com",
        "--watch",
        "-o",
        "jsonpath={.metadata.name} {.spec.capacity}{'\\n'}",
    ]);
    watching.wait_for("orders 3Gi");
    parties.consumer.apply(&database("first", 5).to_string());
    watching.wait_for("first 5Gi");
    let patch = json!({"spec": {"capacity": "7Gi"}}).to_string();
    let patched = http.send(Method::PATCH, &v2(&format!("{IN_DEFAULT}/orders")), MERGE, patch);
    assert_eq!((patched.code, &patched.body["spec"]["capacity"]), (200, &json!("7Gi")), "{}", patched.body);
    assert_eq!(http.get(&format!("{IN_DEFAULT}/orders")).body["spec"]["size"], 7);
    let apply = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
    parties.consumer.run_with_input(&apply, &second("orders", "9Gi").to_string());
    assert_eq!(http.get(&format!("{IN_DEFAULT}/orders")).body["spec"]["size"], 9);
    assert!(
        parties
            .consumer
            .ok(&["explain", "database.spec", "--api-version=db.example.com/v2"])
            .contains("capacity")
    );
    // What the consumer sees of it.
    let shown = world.server().freehold(&["api", "show", "pg", "--project", &parties.names[1]]);
    assert!(shown.stdout.contains("converts databases.db.example.com between versions"), "{}", shown.stdout);
    assert_eq!(http.send(Method::DELETE, &v2(&format!("{IN_DEFAULT}/orders")), "", "").code, 200);
}

fn a_provider_sees_all_consumers_in_each_version_by_one_question(world: &World) {
    let server = HookServer::start(|_, review| converted(review, |_| {}));
    let parties = published(world, "questions", &by(&server.by_url("/convert")));
    for (nth, kubectl) in [&parties.consumer, &parties.other].into_iter().enumerate() {
        kubectl.apply(&database(&format!("of-{nth}"), 1).to_string());
    }
    let calls = server.seen().len();
    let list = parties.in_view(None).get(&v2(DATABASES));
    assert_eq!(names(&list.body).len(), 2, "{}", list.body);
    for object in list.body["items"].as_array().unwrap() {
        assert_eq!(
            (&object["apiVersion"], &object["spec"]["capacity"]),
            (&json!("db.example.com/v2"), &json!("1Gi"))
        );
        assert!(object["metadata"]["annotations"]["freehold.dev/plane"].is_string(), "{object}");
    }
    assert!(server.seen().len() <= calls + 1, "one question for the list of all consumers");
    let one = parties.in_view(Some(1));
    assert_eq!(one.get(&v2(&format!("{IN_DEFAULT}/of-0"))).body["spec"]["capacity"], "1Gi");
    let at = format!("{}{}", parties.url, parties.view(None));
    let watching = parties.provider.with(&["--server", &at]).background(&[
        "get",
        "databases.v2.db.example.com",
        "-A",
        "--watch",
        "-o",
        "jsonpath={.metadata.name} {.spec.capacity}{'\\n'}",
    ]);
    watching.wait_for("of-1 1Gi");
    parties.other.apply(&database("later", 4).to_string());
    watching.wait_for("later 4Gi");
}

fn versions_without_a_webhook_differ_in_their_api_version_alone(world: &World) {
    let parties = published(world, "unconverted", &json!({"strategy": "None"}));
    parties.consumer.apply(&database("orders", 3).to_string());
    let http = Http::of(&parties.consumer);
    let read = http.get(&v2(&format!("{IN_DEFAULT}/orders"))).body;
    assert_eq!(read["apiVersion"], "db.example.com/v2");
    assert_eq!(read["spec"], json!({"engine": "postgres"}), "what a version does not know it does not show");
    let list = parties.in_view(None).get(&v2(DATABASES)).body;
    assert_eq!(list["items"][0]["apiVersion"], "db.example.com/v2", "{list}");
}

fn a_schema_is_made_from_a_definition_with_its_conversion(world: &World) {
    let parties = Parties::new(world, "definition");
    let mut crd = two_versions(&by(&json!({"service": {"name": "hooks", "namespace": "default"}})));
    crd["apiVersion"] = "apiextensions.k8s.io/v1".into();
    crd["kind"] = "CustomResourceDefinition".into();
    crd["metadata"] = json!({"name": "databases.db.example.com"});
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(crd.to_string().as_bytes()).unwrap();
    let made =
        world.server().freehold(&["api", "schema", "-f", file.path().to_str().unwrap(), "--prefix", "v5"]);
    parties.provider.apply(&made.stdout);
    let stored =
        Http::of(&parties.provider).get(&format!("{GROUP}/apiresourceschemas/v5.databases.db.example.com"));
    assert_eq!(stored.body["spec"]["conversion"], crd["spec"]["conversion"], "{}", stored.body);
    // What is no conversion is refused as in a definition.
    let http = Http::of(&parties.provider);
    for conversion in [
        json!({"strategy": "Webhook"}),
        json!({"strategy": "Other"}),
        by(&json!({"url": "http://insecure.example.com"})),
        json!({"strategy": "None", "webhook": {"clientConfig": {"url": "https://a.example.com"}}}),
    ] {
        let refused =
            http.json(Method::POST, &format!("{GROUP}/apiresourceschemas"), &two_versions(&conversion));
        assert_eq!(refused.code, 422, "{conversion}: {}", refused.body);
        assert!(refused.body["message"].to_string().contains("spec.conversion"), "{}", refused.body);
    }
}

fn a_conversion_that_goes_breaks_what_rests_on_it(world: &World) {
    let server = HookServer::start(|_, review| converted(review, |_| {}));
    let parties = published(world, "unhooked", &by(&server.by_url("/convert")));
    parties.consumer.apply(&database("orders", 3).to_string());
    let mut plain = two_versions(&json!({"strategy": "None"}));
    plain["metadata"]["name"] = "v3.databases.db.example.com".into();
    parties.provider.apply(&plain.to_string());
    let patch = json!({"spec": {"schemas": ["v3.databases.db.example.com"]}}).to_string();
    let change = ["patch", "apiexport", "pg", "--type=merge", "-p", &patch];
    let refused = parties.provider.fails(&change);
    for part in ["no longer converted by a webhook", "default/orders"] {
        assert!(refused.contains(part), "{part} is missing in {refused}");
    }
    parties.consumer.ok(&["delete", "database", "orders"]);
    until("the change is taken", PATIENCE, || parties.provider.run(&change).success.then_some(()));
}
