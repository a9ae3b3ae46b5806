//! The provider's view.

use crate::{DATABASES, IN_DEFAULT, PATIENCE, Parties, SECRETS, database, is_refused, names};
use freehold_tests_integration::{Http, World, facts, until};
use http::Method;
use serde_json::json;

facts!(world:
    the_view_has_the_exported_kinds_of_all_consumers,
    one_watch_tells_of_all_consumers,
    a_provider_works_in_one_consumer_at_a_time,
    rbac_of_the_providers_project_decides_who_uses_the_view,
    a_binding_that_goes_ends_watches_within_a_second,
    kubectl_works_in_the_view,
);

fn the_view_has_the_exported_kinds_of_all_consumers(world: &World) {
    let parties = Parties::new(world, "view");
    for kubectl in [&parties.consumer, &parties.other] {
        parties.bind(kubectl);
        kubectl.apply(&database("orders", 3).to_string());
    }
    let view = parties.in_view(None);
    let list = view.get(DATABASES).body;
    assert_eq!(names(&list), ["orders", "orders"]);
    let of = |nth: usize| list["items"][nth]["metadata"]["annotations"].clone();
    let mut projects = [of(0), of(1)]
        .map(|found| found["resourcemanager.freehold.dev/project"].as_str().unwrap_or_default().to_owned());
    projects.sort();
    assert_eq!(projects, ["consumer-view", "other-view"], "{list}");
    assert!(of(0)["freehold.dev/plane"].is_string());
    let groups = view.get("/apis").body;
    let groups: Vec<_> =
        groups["groups"].as_array().unwrap().iter().map(|group| group["name"].clone()).collect();
    assert_eq!(groups, [json!("db.example.com")]);
    assert!(view.get("/openapi/v3").body.to_string().contains("apis/db.example.com/v1"));
    assert!(is_refused(&view.get("/api/v1/pods")));
    assert_eq!(view.get("/api/v1/nothings").code, 404);
    let page = view.get(&format!("{DATABASES}?limit=1")).body;
    let token = page["metadata"]["continue"].as_str().unwrap();
    assert_eq!(names(&view.get(&format!("{DATABASES}?limit=1&continue={token}")).body), ["orders"]);
}

fn one_watch_tells_of_all_consumers(world: &World) {
    let parties = Parties::new(world, "watch");
    parties.bind(&parties.consumer);
    let at = format!("{}{}", parties.url, parties.view(None));
    let watching = parties.provider.with(&["--server", &at]).background(&[
        "get",
        "databases",
        "-A",
        "--watch",
        "-o",
        "name",
    ]);
    parties.consumer.apply(&database("first", 1).to_string());
    watching.wait_for("database.db.example.com/first");
    // Who binds later is in the same watch.
    parties.bind(&parties.other);
    parties.other.apply(&database("second", 1).to_string());
    watching.wait_for("database.db.example.com/second");
}

fn a_provider_works_in_one_consumer_at_a_time(world: &World) {
    let parties = Parties::new(world, "one");
    parties.bind(&parties.consumer);
    let (one, all) = (parties.in_view(Some(1)), parties.in_view(None));
    assert_eq!(one.json(Method::POST, IN_DEFAULT, &database("made", 2)).code, 201);
    assert_eq!(all.json(Method::POST, IN_DEFAULT, &database("made", 2)).code, 405);
    let patch = json!({"status": {"phase": "Up"}}).to_string();
    let patched =
        one.send(Method::PATCH, &format!("{IN_DEFAULT}/made/status"), "application/merge-patch+json", patch);
    assert_eq!((patched.code, &patched.body["status"]["phase"]), (200, &json!("Up")), "{}", patched.body);
    assert_eq!(parties.consumer.ok(&["get", "database", "made", "-o", "jsonpath={.status.phase}"]), "Up");
    assert_eq!(names(&one.get(DATABASES).body), ["made"]);
    assert_eq!(one.send(Method::DELETE, &format!("{IN_DEFAULT}/made"), "", "").code, 200);
    assert_eq!(parties.in_view(Some(2)).get(DATABASES).code, 404, "a project that does not consume it");
    let other = Http::of(&parties.other).get(DATABASES);
    assert_eq!(other.code, 404);
}

fn rbac_of_the_providers_project_decides_who_uses_the_view(world: &World) {
    let parties = Parties::new(world, "rbac");
    parties.bind(&parties.consumer);
    parties.consumer.apply(&database("orders", 3).to_string());
    let base = format!("{}{}", parties.url, parties.view(None));
    parties.provider.ok(&["create", "serviceaccount", "controller"]);
    let token = parties.provider.ok(&["create", "token", "controller"]);
    let http = Http::with_token(&parties.provider, &base, token.trim());
    assert_eq!(http.get(DATABASES).code, 403);
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "view"},
        "rules": [{"apiGroups": ["apis.freehold.dev"], "resources": ["apiexports/content"], "resourceNames": ["pg"], "verbs": ["get", "list"]}]});
    parties.provider.apply(&role.to_string());
    parties.provider.ok(&[
        "create",
        "clusterrolebinding",
        "view",
        "--clusterrole=view",
        "--serviceaccount=default:controller",
    ]);
    until("the role counts", PATIENCE, || (http.get(DATABASES).code == 200).then_some(()));
    assert_eq!(names(&http.get(DATABASES).body), ["orders"]);
    let one = Http::with_token(
        &parties.provider,
        &format!("{}{}", parties.url, parties.view(Some(1))),
        token.trim(),
    );
    assert_eq!(one.json(Method::POST, IN_DEFAULT, &database("x", 1)).code, 403, "it may only read");
    // A consumer's identity, all rights included, is nobody in the provider's view.
    for kubectl in [&parties.consumer, &parties.other] {
        let answer = Http::of_elsewhere(kubectl, &base).get(DATABASES);
        assert_eq!(answer.code, 401, "{}", answer.body);
    }
}

fn a_binding_that_goes_ends_watches_within_a_second(world: &World) {
    let parties = Parties::new(world, "ends");
    let accepted =
        json!([{"resource": "secrets", "verbs": ["get", "list", "watch"], "labels": {"db": "yes"}}]);
    parties.consumer.apply(&parties.binding(&accepted).to_string());
    let before =
        parties.in_view(None).get(SECRETS).body["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    // `--raw` takes the whole path, whatever the server's address has in front.
    let path = format!("{}/api/v1/secrets?watch=true&resourceVersion={before}", parties.view(None));
    let mut watching = parties.provider.background(&["get", "--raw", &path]);
    parties.consumer.ok(&["create", "secret", "generic", "seen"]);
    parties.consumer.ok(&["label", "secret", "seen", "db=yes"]);
    watching.wait_for("\"seen\"");
    let started = std::time::Instant::now();
    parties.bind(&parties.consumer);
    watching.wait_for_end();
    assert!(started.elapsed() < std::time::Duration::from_secs(10), "{:?}", started.elapsed());
    let again = parties.in_view(None).get(&format!("{DATABASES}?watch=true&resourceVersion={before}"));
    assert_eq!(again.code, 410, "what went is in no event: {}", again.body);
    assert!(is_refused(&parties.in_view(None).get(SECRETS)));
}

fn kubectl_works_in_the_view(world: &World) {
    let parties = Parties::new(world, "kubectl");
    parties.bind(&parties.consumer);
    parties.consumer.apply(&database("orders", 3).to_string());
    let all = parties.provider.with(&["--server", &format!("{}{}", parties.url, parties.view(None))]);
    assert!(all.ok(&["api-resources"]).contains("databases"));
    assert!(all.ok(&["get", "databases", "-A"]).contains("orders"));
    let one = parties.provider.with(&["--server", &format!("{}{}", parties.url, parties.view(Some(1)))]);
    one.ok(&["label", "database", "orders", "seen=yes"]);
    one.ok(&["delete", "database", "orders"]);
}
