//! What a provider could try to learn through its view beyond what a claim is about.

use crate::{DATABASES, GROUP, IN_DEFAULT, Parties, SECRETS, database, names};
use freehold_tests_integration::{Http, World, facts, until};
use http::Method;
use serde_json::json;

facts!(world:
    an_object_that_leaves_a_claim_is_gone_for_the_provider_and_tells_nothing_more,
    a_provider_gets_no_event_and_no_subresource_that_no_claim_names,
    selectors_and_counts_tell_nothing_of_objects_outside_a_claim,
    a_token_of_before_opens_nothing_that_was_taken_back,
    the_identity_of_an_export_is_no_way_to_its_objects,
    a_watch_of_one_consumer_tells_nothing_of_another,
);

const CLAIM: &str = r#"[{"resource": "secrets", "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"], "labels": {"db": "yes"}}]"#;

/// Binds the export in the consumer's project, with the claim on labelled Secrets accepted.
fn accepted(world: &World, tag: &str) -> Parties {
    let parties = Parties::new(world, tag);
    parties.consumer.apply(&parties.binding(&serde_json::from_str(CLAIM).unwrap()).to_string());
    parties
}

/// The lines of a watch that ends by itself, from a revision.
fn watched(view: &Http, path: &str, from: &str) -> String {
    let path = format!("{path}?watch=true&resourceVersion={from}&timeoutSeconds=2");
    let answer = view.get(&path);
    assert_eq!(answer.code, 200, "{path}: {}", answer.body);
    match answer.body {
        serde_json::Value::String(text) => text,
        one => one.to_string(),
    }
}

fn revision(view: &Http, path: &str) -> String {
    view.get(path).body["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

fn an_object_that_leaves_a_claim_is_gone_for_the_provider_and_tells_nothing_more(world: &World) {
    let parties = accepted(world, "leaves");
    parties.consumer.ok(&["create", "secret", "generic", "shared", "--from-literal=a=given"]);
    parties.consumer.ok(&["label", "secret", "shared", "db=yes"]);
    let view = parties.in_view(None);
    let from = revision(&view, "/api/v1/secrets");
    // In one write the consumer takes it back and puts something of its own into it.
    let taken = r#"{"metadata": {"labels": {"db": null}}, "stringData": {"a": "treasure"}}"#;
    parties.consumer.ok(&["patch", "secret", "shared", "--type=merge", "-p", taken]);
    parties.consumer.ok(&["create", "secret", "generic", "own", "--from-literal=a=treasure"]);
    let told = watched(&view, "/api/v1/secrets", &from);
    assert!(told.contains(r#""type":"DELETED""#), "{told}");
    // "treasure" in base64.
    assert!(!told.contains("dHJlYXN1cmU=") && !told.contains("\"own\""), "{told}");
}

fn a_provider_gets_no_event_and_no_subresource_that_no_claim_names(world: &World) {
    let parties = Parties::new(world, "below");
    let claims = json!([{"resource": "pods", "verbs": ["*"]}, {"resource": "services", "verbs": ["*"]},
        {"resource": "serviceaccounts", "verbs": ["*"]}, {"resource": "namespaces", "verbs": ["*"]}]);
    parties.provider.apply(&crate::export("pg", "consumers-below", &claims).to_string());
    parties.consumer.apply(&parties.binding(&claims).to_string());
    parties.consumer.apply(&database("orders", 1).to_string());
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "app", "namespace": "default"},
        "spec": {"containers": [{"name": "a", "image": "a"}]}});
    parties.consumer.apply(&pod.to_string());
    let view = parties.in_view(Some(1));
    let in_default = "/api/v1/namespaces/default";
    assert_eq!(view.get(&format!("{in_default}/pods/app")).code, 200, "the claim itself counts");
    for path in [
        "/api/v1/events",
        "/apis/events.k8s.io/v1/events",
        "/api/v1/namespaces/default/events?watch=true&timeoutSeconds=1",
        "/api/v1/nodes",
        "/api/v1/namespaces/default/pods/app/log",
        "/api/v1/namespaces/default/pods/app/exec?command=id",
        "/api/v1/namespaces/default/pods/app/attach",
        "/api/v1/namespaces/default/pods/app/portforward",
        "/api/v1/namespaces/default/pods/app/proxy/",
        "/api/v1/namespaces/default/services/app/proxy/",
        "/apis/db.example.com/v1/namespaces/default/databases/orders/scale",
        "/apis/db.example.com/v1/namespaces/default/databases/orders/none",
        "/logs/",
        "/metrics",
        "/debug/pprof/",
    ] {
        let code = view.get(path).code;
        assert!([400, 403, 404, 405].contains(&code), "{path}: {code}");
    }
    for (path, body) in [
        (
            "pods/app/eviction",
            json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "app"}}),
        ),
        ("pods/app/binding", json!({"apiVersion": "v1", "kind": "Binding", "target": {"name": "node"}})),
        (
            "serviceaccounts/default/token",
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}),
        ),
    ] {
        let answer = view.json(Method::POST, &format!("{in_default}/{path}"), &body);
        assert!([403, 404, 405].contains(&answer.code), "{path}: {} {}", answer.code, answer.body);
    }
    for path in [format!("{in_default}/finalize"), format!("{in_default}/pods/app/status")] {
        let answer = view.json(Method::PUT, &path, &pod);
        assert!([403, 404, 405].contains(&answer.code), "{path}: {} {}", answer.code, answer.body);
    }
}

fn selectors_and_counts_tell_nothing_of_objects_outside_a_claim(world: &World) {
    let parties = accepted(world, "counts");
    for nth in 0..4 {
        parties.consumer.ok(&["create", "secret", "generic", &format!("own-{nth}")]);
    }
    for nth in 0..2 {
        parties.consumer.ok(&["create", "secret", "generic", &format!("shared-{nth}")]);
        parties.consumer.ok(&["label", "secret", &format!("shared-{nth}"), "db=yes"]);
    }
    for view in [parties.in_view(None), parties.in_view(Some(1))] {
        let first = view.get("/api/v1/secrets?limit=1").body;
        assert_eq!(names(&first), ["shared-0"], "{first}");
        let left = &first["metadata"]["remainingItemCount"];
        assert!(left.is_null() || *left == 1, "{first}");
        let token = first["metadata"]["continue"].as_str().unwrap();
        let second = view.get(&format!("/api/v1/secrets?limit=1&continue={token}")).body;
        assert_eq!(names(&second), ["shared-1"]);
        assert!(second["metadata"]["continue"].as_str().unwrap_or_default().is_empty(), "{second}");
        for query in [
            "fieldSelector=metadata.name%3Down-0",
            "fieldSelector=metadata.name!%3Dshared-0,metadata.name!%3Dshared-1",
            "labelSelector=!db",
            "fieldSelector=type%3DOpaque&labelSelector=db!%3Dyes",
        ] {
            for path in ["/api/v1/secrets", SECRETS] {
                let list = view.get(&format!("{path}?{query}"));
                assert_eq!(names(&list.body), Vec::<&str>::new(), "{path} {query}: {}", list.body);
            }
        }
        let told = match view.get("/api/v1/secrets?watch=true&timeoutSeconds=1&labelSelector=!db").body {
            serde_json::Value::String(text) => text,
            other => other.to_string(),
        };
        assert!(!told.contains("own-"), "{told}");
    }
}

fn a_token_of_before_opens_nothing_that_was_taken_back(world: &World) {
    let parties = accepted(world, "stale");
    for nth in 0..3 {
        let name = format!("shared-{nth}");
        parties.consumer.ok(&["create", "secret", "generic", &name]);
        parties.consumer.ok(&["label", "secret", &name, "db=yes"]);
    }
    let token = |http: &Http| {
        let page = http.get("/api/v1/secrets?limit=1").body;
        page["metadata"]["continue"].as_str().unwrap().to_owned()
    };
    let view = parties.in_view(None);
    let (of_view, of_consumer) = (token(&view), token(&Http::of(&parties.consumer)));
    let answer = view.get(&format!("/api/v1/secrets?limit=1&continue={of_consumer}"));
    assert_eq!(answer.code, 400, "a consumer's own token: {}", answer.body);
    parties.bind(&parties.consumer);
    for view in [parties.in_view(None), parties.in_view(Some(1))] {
        let answer = view.get(&format!("/api/v1/secrets?limit=1&continue={of_view}"));
        assert!([400, 403, 404, 410].contains(&answer.code), "{} {}", answer.code, answer.body);
    }
}

fn the_identity_of_an_export_is_no_way_to_its_objects(world: &World) {
    let parties = Parties::new(world, "identity");
    parties.bind(&parties.consumer);
    parties.consumer.apply(&database("orders", 1).to_string());
    let identity = parties.provider.ok(&["get", "apiexport", "pg", "-o", "jsonpath={.status.identity}"]);
    let stored = format!("/apis/db.example.com/v1/databases:{}", identity.trim());
    let escaped = stored.replace(':', "%3A");
    for http in [
        Http::of(&parties.consumer),
        Http::of(&parties.provider),
        Http::of(&parties.other),
        parties.in_view(None),
        parties.in_view(Some(1)),
    ] {
        for path in [&stored, &escaped] {
            let answer = http.get(path);
            assert!([400, 403, 404].contains(&answer.code), "{path}: {} {}", answer.code, answer.body);
        }
    }
    // Nor does a definition get at them by a name of that form.
    let mut spec = crate::schema("x", &crate::widely())["spec"].clone();
    spec["names"]["plural"] = format!("databases:{}", identity.trim()).into();
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("databases:{}.db.example.com", identity.trim())}, "spec": spec});
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(Http::of(&parties.other).json(Method::POST, path, &crd).code, 422);
    let mut hostile = crate::schema("v9.databases.db.example.com", &crate::widely());
    hostile["spec"]["names"]["plural"] = spec["names"]["plural"].clone();
    let refused =
        Http::of(&parties.provider).json(Method::POST, &format!("{GROUP}/apiresourceschemas"), &hostile);
    assert_eq!(refused.code, 422, "{}", refused.body);
}

fn a_watch_of_one_consumer_tells_nothing_of_another(world: &World) {
    let parties = Parties::new(world, "apart");
    parties.bind(&parties.consumer);
    parties.bind(&parties.other);
    let view = parties.in_view(Some(1));
    let from = revision(&view, DATABASES);
    parties.other.apply(&database("others", 1).to_string());
    parties.consumer.apply(&database("mine", 1).to_string());
    let told = until("the watch tells of it", crate::PATIENCE, || {
        Some(watched(&view, DATABASES, &from)).filter(|told| told.contains("mine"))
    });
    assert!(!told.contains("others"), "{told}");
    assert_eq!(view.get(&format!("{IN_DEFAULT}/others")).code, 404);
}
