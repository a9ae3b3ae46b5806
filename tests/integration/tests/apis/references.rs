//! Objects of exported kinds that name objects of other projects.

use crate::{IN_DEFAULT, Parties, database, widely};
use freehold_tests_integration::{Http, World, facts};
use http::Method;
use serde_json::{Value, json};

facts!(world:
    an_object_names_only_what_is_there_in_a_project_of_its_organization,
    who_names_an_object_is_listed_and_keeps_it_from_deletion,
    a_provider_may_leave_named_objects_to_be_deleted,
);

const NETWORKS: &str = "/apis/db.example.com/v1/namespaces/default/networks";

/// Publishes databases that name networks, both in the export `pg`.
fn publish(parties: &Parties, on_delete: &str) {
    let mut databases = widely();
    databases["properties"]["spec"]["properties"]["network"] = json!({
        "type": "object", "properties": {"project": {"type": "string"}, "name": {"type": "string"}},
        "x-freehold-reference": {"resource": "networks", "onDelete": on_delete},
    });
    parties.provider.apply(&crate::schema("v2.databases.db.example.com", &databases).to_string());
    let mut networks = crate::schema("v1.networks.db.example.com", &json!({"type": "object"}));
    networks["spec"]["names"] = json!({"plural": "networks", "kind": "Network"});
    parties.provider.apply(&networks.to_string());
    let schemas = json!({"spec": {"schemas": ["v2.databases.db.example.com", "v1.networks.db.example.com"]}});
    parties.provider.ok(&["patch", "apiexport", "pg", "--type=merge", "-p", &schemas.to_string()]);
}

fn network(name: &str) -> Value {
    json!({"apiVersion": "db.example.com/v1", "kind": "Network", "metadata": {"name": name}})
}

fn naming(name: &str, project: &str, network: &str) -> Value {
    let mut object = database(name, 1);
    object["spec"]["network"] = json!({"project": project, "name": network});
    object
}

fn an_object_names_only_what_is_there_in_a_project_of_its_organization(world: &World) {
    let parties = Parties::new(world, "named");
    publish(&parties, "Block");
    for kubectl in [&parties.consumer, &parties.other, &parties.provider] {
        if std::ptr::eq(kubectl, &parties.provider) {
            let open = json!({"spec": {"consumers": {"organizations": ["*"]}}}).to_string();
            kubectl.ok(&["patch", "apiexport", "pg", "--type=merge", "-p", &open]);
        }
        parties.bind(kubectl);
    }
    let [consumer, other, provider] = [&parties.consumer, &parties.other, &parties.provider].map(Http::of);
    for http in [&other, &provider] {
        assert_eq!(http.json(Method::POST, NETWORKS, &network("main")).code, 201);
    }
    let refused = |project: &str, network: &str| {
        let answer = consumer.json(Method::POST, IN_DEFAULT, &naming("orders", project, network));
        assert_eq!(answer.code, 422, "{project}/{network}: {}", answer.body);
        answer.body["message"].as_str().unwrap().to_owned()
    };
    let absent = refused(&parties.names[1], "main");
    assert!(absent.contains("spec.network: Not found"), "{absent}");
    // A project of another organization has the object, and is answered like one that there is not.
    let foreign = refused(&parties.names[0], "main").replace(&parties.names[0], "X");
    assert_eq!(foreign, refused("nowhere", "main").replace("nowhere", "X"));
    refused("", "main");
    let made = consumer.json(Method::POST, IN_DEFAULT, &naming("orders", &parties.names[2], "main"));
    assert_eq!(made.code, 201, "{}", made.body);
    let moved = json!({"spec": {"network": {"project": parties.names[2], "name": "other"}}}).to_string();
    let at = format!("{IN_DEFAULT}/orders");
    assert_eq!(consumer.send(Method::PATCH, &at, "application/merge-patch+json", moved).code, 422);
}

fn who_names_an_object_is_listed_and_keeps_it_from_deletion(world: &World) {
    let parties = Parties::new(world, "protected");
    publish(&parties, "Block");
    parties.bind(&parties.consumer);
    parties.bind(&parties.other);
    let [consumer, other] = [&parties.consumer, &parties.other].map(Http::of);
    assert_eq!(other.json(Method::POST, NETWORKS, &network("main")).code, 201);
    let naming = naming("orders", &parties.names[2], "main");
    assert_eq!(consumer.json(Method::POST, IN_DEFAULT, &naming).code, 201);
    let referrers = || {
        let answer = other.get(&format!("{NETWORKS}/main/referrers"));
        assert_eq!(answer.code, 200, "{}", answer.body);
        answer.body["referrers"].clone()
    };
    let expected = json!([{
        "project": parties.names[1], "group": "db.example.com", "resource": "databases", "namespace": "default",
        "name": "orders", "field": "spec.network", "blocksDeletion": true,
    }]);
    assert_eq!(referrers(), expected);
    let at = format!("{NETWORKS}/main");
    let refused = other.json(Method::DELETE, &at, &Value::Null);
    assert_eq!(refused.code, 409, "{}", refused.body);
    let why = format!("it is named by databases default/orders of project {:?}", parties.names[1]);
    assert!(refused.body["message"].as_str().unwrap().contains(&why), "{}", refused.body);
    // A binding that ends takes what it names along.
    parties.consumer.ok(&[
        "patch",
        "database",
        "orders",
        "--type=json",
        "-p",
        r#"[{"op":"remove","path":"/spec/network"}]"#,
    ]);
    assert_eq!(referrers(), json!([]));
    assert_eq!(other.json(Method::DELETE, &at, &Value::Null).code, 200);
}

fn a_provider_may_leave_named_objects_to_be_deleted(world: &World) {
    let parties = Parties::new(world, "ignored");
    publish(&parties, "Ignore");
    parties.bind(&parties.consumer);
    let consumer = Http::of(&parties.consumer);
    assert_eq!(consumer.json(Method::POST, NETWORKS, &network("main")).code, 201);
    // One's own project need not be named.
    assert_eq!(consumer.json(Method::POST, IN_DEFAULT, &naming("orders", "", "main")).code, 201);
    assert_eq!(consumer.get(&format!("{NETWORKS}/main/referrers")).body["referrers"][0]["name"], "orders");
    assert_eq!(consumer.json(Method::DELETE, &format!("{NETWORKS}/main"), &Value::Null).code, 200);
    // What it named before is not looked for again.
    let at = format!("{IN_DEFAULT}/orders");
    let patch = r#"{"spec":{"size":2}}"#.to_owned();
    assert_eq!(consumer.send(Method::PATCH, &at, "application/merge-patch+json", patch).code, 200);
}
