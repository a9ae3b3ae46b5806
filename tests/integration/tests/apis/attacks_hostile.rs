//! Exports that are made to cost or to break.

use crate::{DATABASES, GROUP, IN_DEFAULT, Parties, condition, database, names, schema, widely};
use freehold_tests_integration::{HookServer, Http, Reply, World, facts, until};
use http::Method;
use serde_json::{Value, json};

facts!(world:
    a_schema_that_is_too_large_too_deep_or_too_many_is_refused,
    a_kind_of_freehold_or_kubernetes_itself_is_never_replaced,
    a_rule_that_is_costly_as_it_runs_fails_its_own_objects_alone,
    a_webhook_that_hangs_in_one_consumer_holds_up_no_other,
    an_export_that_changes_all_the_time_leaves_others_alone,
);

fn a_schema_that_is_too_large_too_deep_or_too_many_is_refused(world: &World) {
    let parties = Parties::new(world, "sizes");
    let http = Http::of(&parties.provider);
    let path = format!("{GROUP}/apiresourceschemas");
    let named = |schema: &Value| crate::schema("v7.databases.db.example.com", schema);
    let mut deep = json!({"type": "string"});
    for _ in 0..200 {
        deep = json!({"type": "object", "properties": {"a": deep}});
    }
    let text = "x".repeat(4 << 20);
    let large = json!({"type": "object", "description": text});
    let mut many = named(&widely());
    let version = many["spec"]["versions"][0].clone();
    let versions = (0..21).map(|nth| {
        let mut one = version.clone();
        one["name"] = format!("v{}", nth + 1).into();
        one["storage"] = (nth == 0).into();
        one
    });
    many["spec"]["versions"] = versions.collect::<Vec<_>>().into();
    for (what, body) in [("deep", named(&deep)), ("large", named(&large)), ("many versions", many)] {
        let refused = http.json(Method::POST, &path, &body);
        assert!([400, 413, 422].contains(&refused.code), "{what}: {}", refused.code);
    }
    let mut export = Http::of(&parties.provider).get(&format!("{GROUP}/apiexports/pg")).body;
    export["spec"]["schemas"] = (0..51).map(|nth| format!("v{nth}")).collect::<Vec<_>>().into();
    let refused = http.json(Method::PUT, &format!("{GROUP}/apiexports/pg"), &export);
    assert_eq!(refused.code, 422, "{}", refused.body);
    assert_eq!(http.get(&format!("{GROUP}/apiresourceschemas")).code, 200, "the server is well");
}

fn a_kind_of_freehold_or_kubernetes_itself_is_never_replaced(world: &World) {
    let parties = Parties::new(world, "taken");
    let http = Http::of(&parties.provider);
    for (nth, (group, plural, kind)) in [
        ("apis.freehold.dev", "apibindings", "APIBinding"),
        ("rbac.authorization.k8s.io", "clusterroles", "ClusterRole"),
        ("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition"),
        ("authentication.k8s.io", "tokenreviews", "TokenReview"),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("t{nth}.{plural}.{group}");
        let mut body = schema(&name, &widely());
        body["spec"]["group"] = group.into();
        body["spec"]["names"] = json!({"plural": plural, "kind": kind});
        body["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": "https://example.com"});
        if http.json(Method::POST, &format!("{GROUP}/apiresourceschemas"), &body).code != 201 {
            continue;
        }
        let export = json!({"apiVersion": "apis.freehold.dev/v1alpha1", "kind": "APIExport", "metadata": {"name": format!("t{nth}")},
            "spec": {"schemas": [name], "consumers": {"organizations": ["consumers-taken"]}}});
        assert_eq!(http.json(Method::POST, &format!("{GROUP}/apiexports"), &export).code, 201);
        let mut binding = parties.binding(&json!([]));
        binding["metadata"]["name"] = format!("t{nth}").into();
        binding["spec"]["export"]["name"] = format!("t{nth}").into();
        let consumer = Http::of(&parties.consumer);
        let bound = consumer.json(Method::POST, &format!("{GROUP}/apibindings"), &binding);
        assert_eq!(condition(&bound.body, "Bound").1, "NamingConflict", "{group}: {}", bound.body);
    }
    assert!(parties.consumer.ok(&["get", "clusterroles", "-o", "name"]).contains("cluster-admin"));
    assert_eq!(parties.consumer.ok(&["auth", "can-i", "*", "*"]).trim(), "yes");
    assert_eq!(Http::of(&parties.consumer).get(&format!("{GROUP}/apibindings")).code, 200);
}

fn a_rule_that_is_costly_as_it_runs_fails_its_own_objects_alone(world: &World) {
    let parties = Parties::new(world, "costly");
    let mut costly = widely();
    // As little as the estimate allows, and much as it runs.
    costly["properties"]["spec"]["properties"]["words"] = json!({
        "type": "array", "maxItems": 300, "items": {"type": "string", "maxLength": 60},
        "x-kubernetes-validations": [{"rule": "self.all(x, self.exists_one(y, y == x))"}],
    });
    let http = Http::of(&parties.provider);
    let made = http.json(
        Method::POST,
        &format!("{GROUP}/apiresourceschemas"),
        &schema("v2.databases.db.example.com", &costly),
    );
    if made.code == 422 {
        assert!(made.body.to_string().contains("cost"), "{}", made.body);
        return;
    }
    let patch = json!({"spec": {"schemas": ["v2.databases.db.example.com"]}}).to_string();
    parties.provider.ok(&["patch", "apiexport", "pg", "--type=merge", "-p", &patch]);
    parties.bind(&parties.consumer);
    parties.bind(&parties.other);
    let words: Vec<String> = (0..300).map(|nth| format!("{nth:0>60}")).collect();
    let mut heavy = database("heavy", 1);
    heavy["spec"]["words"] = words.into();
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| {
            let http = Http::of(&parties.consumer);
            (0..20).map(|_| http.json(Method::POST, IN_DEFAULT, &heavy).code).collect::<Vec<_>>()
        });
        for nth in 0..20 {
            let made = Http::of(&parties.other).json(
                Method::POST,
                IN_DEFAULT,
                &database(&format!("light-{nth}"), 1),
            );
            assert_eq!(made.code, 201, "{}", made.body);
        }
        for code in busy.join().unwrap() {
            assert!([201, 409, 422].contains(&code), "{code}");
        }
    });
}

fn a_webhook_that_hangs_in_one_consumer_holds_up_no_other(world: &World) {
    let parties = Parties::new(world, "hangs");
    let hook = HookServer::start(|_, _| Reply::Hang);
    parties.bind(&parties.consumer);
    parties.bind(&parties.other);
    let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "hangs"}, "webhooks": [{"name": "hangs.example.com", "clientConfig": hook.by_url("/hangs"),
            "rules": [{"apiGroups": ["db.example.com"], "apiVersions": ["*"], "operations": ["*"], "resources": ["databases"]}],
            "timeoutSeconds": 2, "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Fail"}]});
    parties.consumer.apply(&configuration.to_string());
    let (one, other) = (parties.in_view(Some(1)), parties.in_view(Some(2)));
    until("the webhook counts", crate::PATIENCE, || {
        let refused = one.json(Method::POST, IN_DEFAULT, &database("held", 1));
        one.send(Method::DELETE, &format!("{IN_DEFAULT}/held"), "", "");
        (refused.code == 500).then_some(())
    });
    std::thread::scope(|scope| {
        let held: Vec<_> = (0..4)
            .map(|nth| {
                let parties = &parties;
                scope.spawn(move || {
                    let view = parties.in_view(Some(1));
                    view.json(Method::POST, IN_DEFAULT, &database(&format!("held-{nth}"), 1)).code
                })
            })
            .collect();
        for nth in 0..10 {
            let made = other.json(Method::POST, IN_DEFAULT, &database(&format!("free-{nth}"), 1));
            assert_eq!(made.code, 201, "{}", made.body);
        }
        assert!(held.iter().any(|one| !one.is_finished()), "what is free does not wait for what hangs");
        for one in held {
            assert_eq!(one.join().unwrap(), 500);
        }
    });
    assert_eq!(names(&parties.in_view(None).get(DATABASES).body).len(), 10);
}

fn an_export_that_changes_all_the_time_leaves_others_alone(world: &World) {
    let (restless, calm) = (Parties::new(world, "restless"), Parties::new(world, "calm"));
    restless.bind(&restless.consumer);
    calm.bind(&calm.consumer);
    let mut more = widely();
    more["properties"]["spec"]["properties"]["backups"] = json!({"type": "integer"});
    restless.provider.apply(&schema("v2.databases.db.example.com", &more).to_string());
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let changing = scope.spawn(|| {
            let (http, mut changes) = (Http::of(&restless.provider), 0);
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let name = ["v1", "v2"][changes % 2];
                let patch =
                    json!({"spec": {"schemas": [format!("{name}.databases.db.example.com")]}}).to_string();
                let path = format!("{GROUP}/apiexports/pg");
                let code = http.send(Method::PATCH, &path, "application/merge-patch+json", patch).code;
                assert!([200, 409, 429].contains(&code), "{code}");
                changes += 1;
            }
            changes
        });
        let http = Http::of(&calm.consumer);
        for nth in 0..100 {
            let made = http.json(Method::POST, IN_DEFAULT, &database(&format!("calm-{nth}"), 1));
            assert_eq!(made.code, 201, "{}", made.body);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(changing.join().unwrap() > 0);
    });
    assert_eq!(names(&http_list(&calm)).len(), 100);
}

fn http_list(parties: &Parties) -> Value {
    parties.in_view(None).get(DATABASES).body
}
