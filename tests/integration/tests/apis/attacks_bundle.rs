//! Policies and webhooks that come with an export: they reach nothing of a consumer but writes of their own kinds.

use crate::{GROUP, IN_DEFAULT, Parties, SECRETS, database};
use freehold_tests_integration::{Answer, HookServer, Http, Reply, World, facts, until};
use http::Method;
use serde_json::{Value, json};

facts!(world:
    a_policy_that_matches_everything_is_about_its_own_kinds_alone,
    a_webhook_is_shown_the_write_and_who_writes_and_nothing_else,
    a_webhook_that_hangs_or_floods_fails_its_own_kinds_alone,
    a_policy_or_webhook_that_reads_more_or_costs_much_is_refused,
    a_consumer_can_neither_change_nor_delete_what_comes_with_an_export,
    policies_of_two_exports_of_one_kind_do_not_meet,
    a_consumer_sees_what_the_provider_did_there_and_not_elsewhere,
);

fn everything() -> Value {
    json!({"resourceRules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}]})
}

/// Writes fields of the export's spec, as the provider.
fn publish(parties: &Parties, spec: &Value) -> Answer {
    let patch = json!({"spec": spec}).to_string();
    let http = Http::of(&parties.provider);
    http.send(Method::PATCH, &format!("{GROUP}/apiexports/pg"), "application/merge-patch+json", patch)
}

fn policy(name: &str, spec: &Value) -> Value {
    json!({"policies": [{"name": name, "spec": spec}]})
}

fn hook(client: &Value, more: &Value) -> Value {
    let mut webhook = json!({"name": "hook.db.example.com", "clientConfig": client, "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "timeoutSeconds": 2, "failurePolicy": "Fail",
        "rules": everything()["resourceRules"]});
    for (field, value) in more.as_object().into_iter().flatten() {
        webhook[field] = value.clone();
    }
    json!({"webhooks": [{"kind": "Validating", "webhook": webhook}]})
}

fn secret(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"a": "treasure"}})
}

/// Waits until a write of a database is refused, with what is said.
fn refused(http: &Http, name: &str) -> Answer {
    until("what comes with the export counts", crate::PATIENCE, || {
        let made = http.json(Method::POST, IN_DEFAULT, &database(name, 1));
        if made.code == 201 {
            http.send(Method::DELETE, &format!("{IN_DEFAULT}/{name}"), "", "");
        }
        (made.code != 201).then_some(made)
    })
}

fn a_policy_that_matches_everything_is_about_its_own_kinds_alone(world: &World) {
    let parties = Parties::new(world, "bundle-all");
    let none = json!({"matchConstraints": everything(), "validations": [{"expression": "false", "message": "never"}]});
    let made = publish(&parties, &policy("none", &none));
    assert_eq!(made.code, 200, "{}", made.body);
    parties.bind(&parties.consumer);
    let http = Http::of(&parties.consumer);
    let made = refused(&http, "a");
    assert!(made.code == 422 && made.body.to_string().contains("'pg/none'"), "{}", made.body);
    assert_eq!(http.json(Method::POST, SECRETS, &secret("own")).code, 201);
    parties.consumer.ok(&["create", "namespace", "own"]);
    // The provider's own writes, in its view, meet it too.
    assert_eq!(parties.in_view(Some(1)).json(Method::POST, IN_DEFAULT, &database("b", 1)).code, 422);
    let defaults = json!({"policies": [{"name": "defaults", "kind": "Mutating", "spec": {
        "matchConstraints": {"resourceRules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["*"]}]},
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration":
            {"expression": "Object{metadata: Object.metadata{labels: {'tier': 'small'}}}"}}]}}]});
    let changed = publish(&parties, &defaults);
    assert_eq!(changed.code, 200, "{}", changed.body);
    let made = until("the other policy counts", crate::PATIENCE, || {
        let made = http.json(Method::POST, IN_DEFAULT, &database("c", 1));
        (made.code == 201).then_some(made)
    });
    assert_eq!(made.body["metadata"]["labels"], json!({"tier": "small"}));
    let own = http.json(Method::POST, SECRETS, &secret("second"));
    assert_eq!(own.body["metadata"]["labels"], Value::Null, "{}", own.body);
}

fn a_webhook_is_shown_the_write_and_who_writes_and_nothing_else(world: &World) {
    let parties = Parties::new(world, "bundle-hook");
    let server = HookServer::admission(|request| {
        let allowed = request["object"]["spec"]["size"] != 7;
        json!({"allowed": allowed, "status": {"message": "seven is taken"}, "auditAnnotations": {"spam": "x"}})
    });
    assert_eq!(publish(&parties, &hook(&server.by_url("/check"), &json!({}))).code, 200);
    parties.bind(&parties.consumer);
    let http = Http::of(&parties.consumer);
    assert_eq!(http.json(Method::POST, SECRETS, &secret("own")).code, 201);
    let made = until("the webhook counts", crate::PATIENCE, || {
        let made = http.json(Method::POST, IN_DEFAULT, &database("seven", 7));
        http.send(Method::DELETE, &format!("{IN_DEFAULT}/seven"), "", "");
        (made.code != 201).then_some(made)
    });
    assert!(made.body.to_string().contains("seven is taken"), "{}", made.body);
    assert_eq!(http.json(Method::POST, IN_DEFAULT, &database("one", 1)).code, 201);
    let seen = server.seen();
    let requests: Vec<&Value> = seen.iter().map(|review| &review["request"]).collect();
    assert!(requests.iter().all(|request| request["resource"]["resource"] == "databases"), "{requests:?}");
    let of_one = requests.iter().find(|request| request["name"] == "one").unwrap();
    assert_ne!(of_one["userInfo"]["username"], Value::Null);
    assert!(!serde_json::to_string(&seen).unwrap().contains("treasure"));
}

fn a_webhook_that_hangs_or_floods_fails_its_own_kinds_alone(world: &World) {
    let parties = Parties::new(world, "bundle-hangs");
    let server =
        HookServer::start(|path, _| if path.starts_with("/hang") { Reply::Hang } else { Reply::Endless });
    parties.bind(&parties.consumer);
    let http = Http::of(&parties.consumer);
    for path in ["/hang", "/flood"] {
        assert_eq!(publish(&parties, &hook(&server.by_url(path), &json!({}))).code, 200);
        let made = refused(&http, "held");
        assert_eq!(made.code, 500, "{path}: {}", made.body);
        std::thread::scope(|scope| {
            let held: Vec<_> = (0..4)
                .map(|nth| {
                    let parties = &parties;
                    scope.spawn(move || {
                        let http = Http::of(&parties.consumer);
                        http.json(Method::POST, IN_DEFAULT, &database(&format!("held-{nth}"), 1)).code
                    })
                })
                .collect();
            for nth in 0..10 {
                let name = format!("free-{}-{nth}", path.trim_start_matches('/'));
                assert_eq!(http.json(Method::POST, SECRETS, &secret(&name)).code, 201);
            }
            held.into_iter().for_each(|one| assert_eq!(one.join().unwrap(), 500));
        });
    }
    assert_eq!(
        publish(
            &parties,
            &hook(&server.by_url("/hang"), &json!({"failurePolicy": "Ignore", "timeoutSeconds": 1}))
        )
        .code,
        200
    );
    until("failures are ignored", crate::PATIENCE, || {
        (http.json(Method::POST, IN_DEFAULT, &database("passed", 1)).code == 201).then_some(())
    });
}

fn a_policy_or_webhook_that_reads_more_or_costs_much_is_refused(world: &World) {
    let parties = Parties::new(world, "bundle-costs");
    let of = |spec: Value| policy("p", &spec);
    let says = |expression: &str| of(json!({"validations": [{"expression": expression}]}));
    let url = json!({"url": "https://hooks.example.com/x"});
    let many: Vec<Value> = (0..11)
        .map(|nth| json!({"name": format!("p{nth}"), "spec": {"validations": [{"expression": "true"}]}}))
        .collect();
    let params = json!({"paramKind": {"apiVersion": "v1", "kind": "Secret"}, "validations": [{"expression": "params != null"}]});
    let rows = [
        of(params),
        says("namespaceObject.metadata.labels.size() == 0"),
        says("authorizer.group('').resource('secrets').check('get').allowed()"),
        says("object.metadata +"),
        says(&"x".repeat(70 << 10)),
        of(json!({"validations": "all"})),
        of(
            json!({"matchConstraints": {"namespaceSelector": {"matchLabels": {"a": "b"}}}, "validations": [{"expression": "true"}]}),
        ),
        json!({"policies": many}),
        hook(&url, &json!({"timeoutSeconds": 30})),
        hook(&url, &json!({"namespaceSelector": {"matchLabels": {"a": "b"}}})),
        hook(
            &url,
            &json!({"matchConditions": [{"name": "a", "expression": "authorizer.path('/').check('get').allowed()"}]}),
        ),
        hook(&json!({"url": "http://plain.example.com"}), &json!({})),
        hook(&json!({}), &json!({})),
    ];
    for row in rows {
        let made = publish(&parties, &row);
        let told = row.to_string().chars().take(200).collect::<String>();
        assert_eq!(made.code, 422, "{told}: {}", made.body);
    }
    // As little as it looks, and much as it runs: the budget ends it, for its own objects alone.
    let bomb = "[0,1,2,3,4,5,6,7,8,9].all(a, [0,1,2,3,4,5,6,7,8,9].all(b, [0,1,2,3,4,5,6,7,8,9].all(c, \
        [0,1,2,3,4,5,6,7,8,9].all(d, [0,1,2,3,4,5,6,7,8,9].all(e, [0,1,2,3,4,5,6,7,8,9].all(f, a + b + c + d + e + f < 99))))))";
    let made = publish(&parties, &says(bomb));
    if made.code != 200 {
        assert_eq!(made.code, 422, "{}", made.body);
        return;
    }
    parties.bind(&parties.consumer);
    let http = Http::of(&parties.consumer);
    let refused = refused(&http, "bomb");
    assert!(refused.body.to_string().contains("cost"), "{}", refused.body);
    assert_eq!(http.json(Method::POST, SECRETS, &secret("free")).code, 201);
}

fn a_consumer_can_neither_change_nor_delete_what_comes_with_an_export(world: &World) {
    let parties = Parties::new(world, "bundle-fixed");
    let small = json!({"validations": [{"expression": "object.spec.size < 5", "message": "at most four"}]});
    assert_eq!(publish(&parties, &policy("small", &small)).code, 200);
    parties.bind(&parties.consumer);
    let http = Http::of(&parties.consumer);
    let access = format!("{GROUP}/apibindings/pg/access");
    let shown = http.get(&access);
    assert_eq!((shown.code, &shown.body["policies"][0]["name"]), (200, &json!("small")), "{}", shown.body);
    let admission = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    assert_eq!(http.get(admission).body["items"], json!([]), "there is no object of it");
    for method in [Method::PUT, Method::PATCH, Method::DELETE, Method::POST] {
        let answer =
            http.send(method.clone(), &access, "application/merge-patch+json", r#"{"policies": []}"#);
        assert!([404, 405, 415].contains(&answer.code), "{method}: {} {}", answer.code, answer.body);
    }
    // A policy of the same name of the consumer's own is another one.
    let own = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "small"}, "spec": {"matchConstraints": everything(), "validations": [{"expression": "true"}]}});
    parties.consumer.apply(&own.to_string());
    parties.consumer.ok(&["delete", "validatingadmissionpolicy", "small"]);
    let patch = json!({"status": {"policies": []}, "spec": {"policies": []}}).to_string();
    http.send(Method::PATCH, &format!("{GROUP}/apibindings/pg"), "application/merge-patch+json", patch);
    let made = http.json(Method::POST, IN_DEFAULT, &database("large", 9));
    assert!(made.code == 422 && made.body.to_string().contains("at most four"), "{}", made.body);
    assert_eq!(http.json(Method::POST, IN_DEFAULT, &database("little", 4)).code, 201);
    // Nor does a claim or a right of the consumer's reach the provider's export.
    assert_eq!(http.get(&format!("{GROUP}/apiexports/pg")).code, 404);
}

fn policies_of_two_exports_of_one_kind_do_not_meet(world: &World) {
    let (strict, free) = (Parties::new(world, "bundle-strict"), Parties::new(world, "bundle-free"));
    let none = json!({"matchConstraints": everything(), "validations": [{"expression": "false"}]});
    assert_eq!(publish(&strict, &policy("none", &none)).code, 200);
    strict.bind(&strict.consumer);
    free.bind(&free.consumer);
    refused(&Http::of(&strict.consumer), "a");
    assert_eq!(Http::of(&free.consumer).json(Method::POST, IN_DEFAULT, &database("a", 1)).code, 201);
    // A kind of the consumer's own under the name is not the export's.
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "databases.db.example.com"}, "spec": {"group": "db.example.com", "scope": "Namespaced",
            "names": {"plural": "databases", "singular": "database", "kind": "Database", "listKind": "DatabaseList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    strict.other.apply(&definition.to_string());
    strict.other.ok(&[
        "wait",
        "crd/databases.db.example.com",
        "--for=condition=Established",
        "--timeout=60s",
    ]);
    strict.other.apply(&strict.binding(&json!([])).to_string());
    assert_eq!(Http::of(&strict.other).json(Method::POST, IN_DEFAULT, &database("own", 1)).code, 201);
}

fn a_consumer_sees_what_the_provider_did_there_and_not_elsewhere(world: &World) {
    let parties = Parties::new(world, "bundle-seen");
    parties.bind(&parties.consumer);
    parties.bind(&parties.other);
    let access = format!("{GROUP}/apibindings/pg/access");
    let rows = |http: &Http| http.get(&access).body["accesses"].as_array().cloned().unwrap_or_default();
    let (one, other) = (Http::of(&parties.consumer), Http::of(&parties.other));
    assert!(rows(&one).is_empty() && rows(&other).is_empty());
    let view = parties.in_view(Some(1));
    assert_eq!(view.json(Method::POST, IN_DEFAULT, &database("orders", 1)).code, 201);
    (0..3).for_each(|_| assert_eq!(view.get(&format!("{IN_DEFAULT}/orders")).code, 200));
    let seen = rows(&one);
    let got = seen.iter().find(|row| row["verb"] == "get").unwrap();
    assert_eq!((&got["resource"], &got["count"]), (&json!("databases"), &json!(3)), "{seen:?}");
    assert!(seen.iter().any(|row| row["verb"] == "create"), "{seen:?}");
    assert!(rows(&other).is_empty(), "what was done elsewhere is not told");
    // What was refused is no access, and who is no consumer is told nothing.
    view.get(SECRETS);
    assert!(rows(&one).iter().all(|row| row["resource"] != "secrets"));
    assert_eq!(Http::of(&parties.provider).get(&access).code, 404);
    assert_eq!(parties.in_view(None).get(crate::DATABASES).code, 200);
    assert!(rows(&other).iter().any(|row| row["allConsumers"] == true));
}
