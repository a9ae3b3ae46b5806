//! In a consumer's project.

use crate::{DATABASES, GROUP, IN_DEFAULT, Parties, condition, database, limit, names, schema, widely};
use freehold_tests_integration::{Http, World, facts};
use http::Method;
use serde_json::json;

facts!(world:
    a_bound_kind_is_served_like_one_of_kubernetes,
    a_new_schema_is_served_with_the_next_request,
    two_exports_of_one_resource_never_read_each_other,
    a_definition_of_the_same_name_is_a_conflict_with_a_reason,
    a_binding_with_objects_is_deleted_only_when_it_says_what_becomes_of_them,
    what_others_rest_on_is_not_deleted,
    a_breaking_change_is_refused_while_objects_would_break,
);

fn a_bound_kind_is_served_like_one_of_kubernetes(world: &World) {
    let parties = Parties::new(world, "served");
    let kubectl = &parties.consumer;
    assert!(kubectl.fails(&["get", "databases"]).contains("the server doesn't have a resource type"));
    parties.bind(kubectl);
    let binding = kubectl.json(&["get", "apibinding", "pg"]);
    assert_eq!(condition(&binding, "Bound"), ("True".to_owned(), "Bound".to_owned()), "{binding}");
    assert_eq!(condition(&binding, "Ready").1, "ClaimsPending");
    kubectl.apply(&database("orders", 3).to_string());
    assert!(kubectl.ok(&["explain", "database.spec"]).contains("enum: postgres, mysql"));
    assert_eq!(kubectl.ok(&["get", "database", "orders", "-o", "jsonpath={.spec.engine}"]), "postgres");
    assert!(kubectl.fails(&["create", "database"]).contains("error"));
    let wrong =
        kubectl.run_with_input(&["apply", "-f", "-"], &database("none", 0).to_string()).expect_failure();
    assert!(wrong.contains("spec.size in body should be greater than or equal to 1"), "{wrong}");
    limit(kubectl, "few", "count/databases.db.example.com=1");
    let over =
        kubectl.run_with_input(&["apply", "-f", "-"], &database("more", 1).to_string()).expect_failure();
    assert!(over.contains("exceeded quota"), "{over}");
    assert!(parties.other.fails(&["get", "databases"]).contains("the server doesn't have a resource type"));
    kubectl.ok(&["delete", "database", "orders"]);
    kubectl.ok(&["delete", "apibinding", "pg"]);
    // kubectl remembers for a while which kinds there were.
    assert!(
        kubectl.fails(&["get", "databases"]).contains("the server could not find the requested resource")
    );
}

fn a_new_schema_is_served_with_the_next_request(world: &World) {
    let parties = Parties::new(world, "schema");
    parties.bind(&parties.consumer);
    parties.bind(&parties.other);
    let mut more = widely();
    more["properties"]["spec"]["properties"]["backups"] = json!({"type": "integer", "default": 7});
    parties.provider.apply(&schema("v2.databases.db.example.com", &more).to_string());
    let patch = json!({"spec": {"schemas": ["v2.databases.db.example.com"]}}).to_string();
    parties.provider.ok(&["patch", "apiexport", "pg", "--type=merge", "-p", &patch]);
    for kubectl in [&parties.consumer, &parties.other] {
        let made = Http::of(kubectl).json(Method::POST, IN_DEFAULT, &database("orders", 3));
        assert_eq!((made.code, &made.body["spec"]["backups"]), (201, &json!(7)), "{}", made.body);
    }
    let changed = parties
        .provider
        .run_with_input(&["apply", "-f", "-"], &schema("v2.databases.db.example.com", &widely()).to_string());
    assert!(changed.expect_failure().contains("a schema never changes"));
}

fn two_exports_of_one_resource_never_read_each_other(world: &World) {
    let (one, two) = (Parties::new(world, "first"), Parties::new(world, "second"));
    one.bind(&one.consumer);
    two.bind(&two.consumer);
    one.consumer.apply(&database("of-one", 1).to_string());
    two.consumer.apply(&database("of-two", 1).to_string());
    assert_eq!(names(&one.in_view(None).get(DATABASES).body), ["of-one"]);
    assert_eq!(names(&two.in_view(None).get(DATABASES).body), ["of-two"]);
    // The same project with the other export does not find the objects of the first one.
    one.consumer.ok(&["patch", "apibinding", "pg", "--type=merge", "-p", r#"{"spec":{"objects":"Keep"}}"#]);
    one.consumer.ok(&["delete", "apibinding", "pg"]);
    two.provider.ok(&[
        "patch",
        "apiexport",
        "pg",
        "--type=merge",
        "-p",
        r#"{"spec":{"consumers":{"organizations":["*"]}}}"#,
    ]);
    two.bind(&one.consumer);
    assert_eq!(names(&Http::of(&one.consumer).get(DATABASES).body), Vec::<&str>::new());
    assert_eq!(names(&one.in_view(None).get(DATABASES).body), Vec::<&str>::new());
    one.consumer.ok(&["delete", "apibinding", "pg"]);
    one.bind(&one.consumer);
    assert_eq!(
        names(&Http::of(&one.consumer).get(DATABASES).body),
        ["of-one"],
        "kept objects are found again"
    );
}

fn a_definition_of_the_same_name_is_a_conflict_with_a_reason(world: &World) {
    let parties = Parties::new(world, "conflict");
    let spec = schema("x", &widely())["spec"].clone();
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "databases.db.example.com"}, "spec": spec,
    });
    parties.consumer.apply(&crd.to_string());
    parties.bind(&parties.consumer);
    let binding = parties.consumer.json(&["get", "apibinding", "pg"]);
    assert_eq!(condition(&binding, "Bound"), ("False".to_owned(), "NamingConflict".to_owned()));
    parties.bind(&parties.other);
    let refused = parties.other.run_with_input(&["apply", "-f", "-"], &crd.to_string()).expect_failure();
    assert!(refused.contains("an APIBinding of this control plane serves that resource"), "{refused}");
}

fn a_binding_with_objects_is_deleted_only_when_it_says_what_becomes_of_them(world: &World) {
    let parties = Parties::new(world, "kept");
    let kubectl = &parties.consumer;
    parties.bind(kubectl);
    kubectl.apply(&database("orders", 3).to_string());
    let refused = kubectl.fails(&["delete", "apibinding", "pg"]);
    assert!(
        refused.contains("there are 1 objects of databases.db.example.com, \"orders\" among them"),
        "{refused}"
    );
    let set = |policy: &str| {
        let patch = json!({"spec": {"objects": policy}}).to_string();
        kubectl.ok(&["patch", "apibinding", "pg", "--type=merge", "-p", &patch]);
        kubectl.ok(&["delete", "apibinding", "pg"]);
        assert_eq!(parties.in_view(None).get(DATABASES).body["items"], json!([]));
        parties.bind(kubectl);
    };
    set("Keep");
    assert_eq!(kubectl.ok(&["get", "databases", "-o", "name"]).trim(), "database.db.example.com/orders");
    set("Delete");
    assert_eq!(kubectl.ok(&["get", "databases", "-o", "name"]).trim(), "");
}

fn what_others_rest_on_is_not_deleted(world: &World) {
    let parties = Parties::new(world, "rest");
    parties.bind(&parties.consumer);
    let refused = parties.provider.fails(&["delete", "apiexport", "pg"]);
    assert!(refused.contains("1 projects consume it (consumer-rest)"), "{refused}");
    let refused = parties.provider.fails(&["delete", "apiresourceschema", "v1.databases.db.example.com"]);
    assert!(refused.contains("APIExport \"pg\" names it"), "{refused}");
    parties.provider.ok(&["annotate", "apiexport", "pg", "apis.freehold.dev/keep-objects=true"]);
    parties.provider.ok(&["delete", "apiexport", "pg"]);
    let gone = Http::of(&parties.consumer).get(DATABASES);
    assert_eq!(gone.code, 404);
    parties.consumer.ok(&["label", "apibinding", "pg", "touched=yes"]);
    let binding = Http::of(&parties.consumer).get(&format!("{GROUP}/apibindings/pg")).body;
    assert_eq!(condition(&binding, "Bound").1, "ExportNotFound");
}

fn a_breaking_change_is_refused_while_objects_would_break(world: &World) {
    let parties = Parties::new(world, "breaking");
    parties.bind(&parties.consumer);
    parties.consumer.apply(&database("large", 30).to_string());
    let mut small = widely();
    small["properties"]["spec"]["properties"]["size"]["maximum"] = json!(9);
    parties.provider.apply(&schema("v2.databases.db.example.com", &small).to_string());
    let change = [
        "patch",
        "apiexport",
        "pg",
        "--type=merge",
        "-p",
        r#"{"spec":{"schemas":["v2.databases.db.example.com"]}}"#,
    ];
    let refused = parties.provider.fails(&change);
    for part in ["spec.size: maximum was tightened to 9", "default/large"] {
        assert!(refused.contains(part), "{part} is missing in {refused}");
    }
    parties.consumer.ok(&["patch", "database", "large", "--type=merge", "-p", r#"{"spec":{"size":9}}"#]);
    parties.provider.ok(&change);
    let wrong = parties.consumer.run_with_input(&["apply", "-f", "-"], &database("large", 10).to_string());
    assert!(wrong.expect_failure().contains("should be less than or equal to 9"));
    let mut less = small.clone();
    less["properties"]["spec"]["properties"].as_object_mut().unwrap().remove("engine");
    parties.provider.apply(&schema("v3.databases.db.example.com", &less).to_string());
    let forced = json!({"metadata": {"annotations": {"apis.freehold.dev/breaking-change": "agreed with all"}},
        "spec": {"schemas": ["v3.databases.db.example.com"]}});
    parties.provider.ok(&["patch", "apiexport", "pg", "--type=merge", "-p", &forced.to_string()]);
    // The reason was for that change alone.
    parties.consumer.apply(&database("wide", 9).to_string());
    let mut least = less.clone();
    least["properties"]["spec"]["properties"]["size"]["maximum"] = json!(3);
    parties.provider.apply(&schema("v4.databases.db.example.com", &least).to_string());
    let again = r#"{"spec":{"schemas":["v4.databases.db.example.com"]}}"#;
    let refused = parties.provider.fails(&["patch", "apiexport", "pg", "--type=merge", "-p", again]);
    assert!(refused.contains("another reason in the annotation"), "{refused}");
}
