//! Admission webhooks of a project, with real servers: good ones, and bad ones of every kind.

use crate::{contains_all, text};
use freehold_tests_integration::{
    Engine, HOOK_ADDRESS, HookServer, Http, Options, Reply, Server, World, facts, patching, until,
};
use http::Method;
use serde_json::{Value, json};

facts!(world:
    a_mutating_webhook_changes_what_is_written,
    a_validating_webhook_refuses_in_its_own_words,
    a_webhook_is_asked_about_what_its_rules_and_selectors_choose,
    a_webhook_sees_an_object_in_the_version_that_it_asked_for,
    a_webhook_behind_a_service_is_reached_at_its_endpoint,
    a_webhook_that_others_changed_after_is_called_again,
    a_dry_run_is_refused_for_a_webhook_with_side_effects,
    bad_webhooks_fail_what_they_match_and_nothing_else,
    nobody_is_locked_out_by_a_webhook,
    a_webhook_is_asked_about_deletes_and_connections,
);

mod own {
    #[test]
    fn an_inside_address_is_not_reached_unless_an_operator_allows_it() {
        super::an_inside_address_is_not_reached_unless_an_operator_allows_it();
    }
}

const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A configuration with one webhook for ConfigMaps, and what a test says otherwise of it.
fn configuration(kind: &str, name: &str, client: &Value, more: &Value) -> Value {
    let mut hook = json!({
        "name": format!("{name}.example.com"),
        "clientConfig": client,
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        // The longest there is: a server of a test may have to wait for this machine.
        "timeoutSeconds": 30,
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        hook[key] = value.clone();
    }
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}WebhookConfiguration"),
        "metadata": {"name": name}, "webhooks": [hook]})
}

fn configure(http: &Http, kind: &str, name: &str, client: &Value, more: &Value) {
    let plural = format!("{}webhookconfigurations", kind.to_lowercase());
    let made =
        http.json(Method::POST, &format!("{HOOKS}/{plural}"), &configuration(kind, name, client, more));
    assert_eq!(made.code, 201, "{made:?}");
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

fn create(http: &Http, name: &str) -> (u16, Value) {
    let answer = http.json(Method::POST, MAPS, &map(name));
    (answer.code, answer.body)
}

fn a_mutating_webhook_changes_what_is_written(world: &World) {
    let kubectl = world.project("hooks-mutating");
    let http = Http::of(&kubectl);
    let server = HookServer::admission(|_| {
        let mut answer = patching(&json!([
            {"op": "add", "path": "/data/b", "value": "2"},
            {"op": "add", "path": "/unknown", "value": "pruned"},
        ]));
        answer["warnings"] = json!(["look here"]);
        answer
    });
    configure(&http, "Mutating", "add", &server.by_url("/mutate"), &json!({}));
    let (code, made) = create(&http, "one");
    assert_eq!((code, text(&made, "/data/b")), (201, "2"), "{made}");
    assert_eq!(made["unknown"], Value::Null);
    let seen = server.seen();
    let request = &seen[0]["request"];
    assert_eq!(seen[0]["apiVersion"], "admission.k8s.io/v1");
    let kind = json!({"group": "", "version": "v1", "kind": "ConfigMap"});
    let resource = json!({"group": "", "version": "v1", "resource": "configmaps"});
    for (field, wanted) in [
        ("kind", kind.clone()),
        ("requestKind", kind),
        ("resource", resource.clone()),
        ("requestResource", resource),
        ("name", json!("one")),
        ("namespace", json!("default")),
        ("operation", json!("CREATE")),
        ("oldObject", Value::Null),
        ("dryRun", json!(false)),
    ] {
        assert_eq!(request[field], wanted, "{field} of {request}");
    }
    assert_eq!(text(request, "/object/data/a"), "1");
    assert_eq!(text(request, "/options/kind"), "CreateOptions");
    assert_ne!(text(request, "/userInfo/username"), "");
    let patched = kubectl.run(&["patch", "configmap", "one", "--type=merge", "-p", r#"{"data":{"b":"3"}}"#]);
    assert!(patched.success && patched.stderr.contains("Warning: look here"), "{}", patched.stderr);
    assert_eq!(http.get(&format!("{MAPS}/one")).body["data"]["b"], "2");
}

fn a_validating_webhook_refuses_in_its_own_words(world: &World) {
    let http = Http::of(&world.project("hooks-validating"));
    let server = HookServer::admission(|request| match text(request, "/object/data/a") {
        "1" => {
            json!({"allowed": false, "status": {"code": 403, "message": "ones are not wanted", "reason": "Forbidden"}})
        }
        _ => json!({"allowed": true}),
    });
    configure(&http, "Validating", "ones", &server.by_url("/"), &json!({}));
    let (code, refused) = create(&http, "one");
    assert_eq!((code, text(&refused, "/reason")), (403, "Forbidden"));
    let said = "admission webhook \"ones.example.com\" denied the request: ones are not wanted";
    assert_eq!(text(&refused, "/message"), said);
    assert_eq!(http.get(&format!("{MAPS}/one")).code, 404);
}

fn a_webhook_is_asked_about_what_its_rules_and_selectors_choose(world: &World) {
    let http = Http::of(&world.project("hooks-chosen"));
    let server = HookServer::admission(|_| json!({"allowed": false}));
    let more = json!({
        "objectSelector": {"matchLabels": {"checked": "yes"}},
        "namespaceSelector": {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["default"]}]},
        "matchConditions": [{"name": "not-me", "expression": "object.metadata.name != 'spared'"}],
    });
    configure(&http, "Validating", "chosen", &server.by_url("/"), &more);
    let labelled = |name: &str, namespace: &str, checked: &str| {
        let mut object = map(name);
        object["metadata"]["labels"] = json!({"checked": checked});
        http.json(Method::POST, &format!("/api/v1/namespaces/{namespace}/configmaps"), &object).code
    };
    assert_eq!(labelled("a", "default", "no"), 201, "another label");
    assert_eq!(labelled("b", "kube-public", "yes"), 201, "another namespace");
    assert_eq!(labelled("spared", "default", "yes"), 201, "a condition that does not hold");
    assert_eq!(server.seen().len(), 0);
    assert_eq!(labelled("c", "default", "yes"), 400);
    assert_eq!(server.seen().len(), 1);
    let bad = json!({"matchConditions": [{"name": "bad", "expression": "object.metadata.name +"}]});
    let bad = configuration("Validating", "bad", &server.by_url("/"), &bad);
    let refused = http.json(Method::POST, &format!("{HOOKS}/validatingwebhookconfigurations"), &bad);
    assert_eq!(refused.code, 422, "{refused:?}");
    contains_all(text(&refused.body, "/message"), &["matchConditions[0].expression", "compilation failed"]);
}

fn a_webhook_sees_an_object_in_the_version_that_it_asked_for(world: &World) {
    let http = Http::of(&world.project("hooks-versions"));
    let server = HookServer::admission(|_| json!({"allowed": true}));
    let rules = |policy: &str| {
        json!({"matchPolicy": policy, "rules": [{"apiGroups": ["autoscaling"], "apiVersions": ["v2"],
            "operations": ["*"], "resources": ["horizontalpodautoscalers"]}]})
    };
    configure(&http, "Validating", "exact", &server.by_url("/exact"), &rules("Exact"));
    let scaler = |name: &str| {
        json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name},
            "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 70, "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}}})
    };
    let path = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    assert_eq!(http.json(Method::POST, path, &scaler("a")).code, 201);
    assert_eq!(server.seen().len(), 0);
    configure(&http, "Validating", "same", &server.by_url("/same"), &rules("Equivalent"));
    assert_eq!(http.json(Method::POST, path, &scaler("b")).code, 201);
    let seen = server.seen();
    let request = &seen[0]["request"];
    assert_eq!(text(request, "/kind/version"), "v2");
    assert_eq!(text(request, "/requestKind/version"), "v1");
    assert_eq!(
        request["object"]["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 70,
        "{request}"
    );
}

fn a_webhook_behind_a_service_is_reached_at_its_endpoint(world: &World) {
    let kubectl = world.project("hooks-service");
    let http = Http::of(&kubectl);
    let server = HookServer::admission(|_| json!({"allowed": false}));
    configure(&http, "Validating", "service", &server.by_service("/check"), &json!({"timeoutSeconds": null}));
    let (code, refused) = create(&http, "one");
    assert_eq!(code, 500);
    contains_all(
        text(&refused, "/message"),
        &[
            "Internal error occurred: failed calling webhook \"service.example.com\": failed to call webhook: ",
            "Post \"https://hooks.default.svc:443/check?timeout=10s\": service \"hooks\" not found",
        ],
    );
    kubectl.apply(&format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: hooks}}\nspec: {{ports: [{{port: 443}}]}}\n---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: hooks-1, labels: {{kubernetes.io/service-name: hooks}}}}\n\
         addressType: IPv4\nports: [{{name: '', port: {}, protocol: TCP}}]\n\
         endpoints: [{{addresses: [127.64.0.2], conditions: {{ready: false}}}}, {{addresses: [{HOOK_ADDRESS}]}}]\n",
        server.port()
    ));
    let refused = until("the endpoint is reached", crate::PATIENCE, || {
        Some(create(&http, "one")).filter(|(code, _)| *code == 400)
    });
    contains_all(text(&refused.1, "/message"), &["denied the request without explanation"]);
}

fn a_webhook_that_others_changed_after_is_called_again(world: &World) {
    let http = Http::of(&world.project("hooks-again"));
    let counts = |request: &Value| {
        let count = text(request, "/object/data/count").parse::<u32>().unwrap_or(0) + 1;
        patching(&json!([{"op": "add", "path": "/data/count", "value": count.to_string()}]))
    };
    let (first, second) = (HookServer::admission(counts), HookServer::admission(counts));
    configure(&http, "Mutating", "a-first", &first.by_url("/"), &json!({"reinvocationPolicy": "IfNeeded"}));
    configure(&http, "Mutating", "b-second", &second.by_url("/"), &json!({}));
    let (code, made) = create(&http, "one");
    assert_eq!((code, text(&made, "/data/count")), (201, "3"), "{made}");
    assert_eq!((first.seen().len(), second.seen().len()), (2, 1));
}

fn a_dry_run_is_refused_for_a_webhook_with_side_effects(world: &World) {
    let http = Http::of(&world.project("hooks-dry"));
    let server = HookServer::admission(|request| json!({"allowed": request["dryRun"] == true}));
    configure(&http, "Validating", "dry", &server.by_url("/"), &json!({"sideEffects": "NoneOnDryRun"}));
    let path = format!("{MAPS}?dryRun=All");
    assert_eq!(http.json(Method::POST, &path, &map("one")).code, 201);
    let some = json!({"sideEffects": "Some"});
    let some = configuration("Validating", "some", &server.by_url("/"), &some);
    let refused = http.json(Method::POST, &format!("{HOOKS}/validatingwebhookconfigurations"), &some);
    assert_eq!(refused.code, 422, "{refused:?}");
}

fn bad_webhooks_fail_what_they_match_and_nothing_else(world: &World) {
    let http = Http::of(&world.project("hooks-bad"));
    let neighbour = Http::of(&world.project("hooks-bad-neighbour"));
    let server = HookServer::start(|path, review| match path {
        "/hangs" => Reply::Hang,
        "/huge" => Reply::Endless,
        "/slow" => Reply::Slow,
        "/hangs-up" => Reply::HangUp,
        "/fails" => Reply::Text(500, "boom".into()),
        "/page" => Reply::Text(200, "<html>".into()),
        "/lies" => Reply::Json(json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
            "response": {"uid": "another", "allowed": true}})),
        "/wrecks" => {
            let mut response =
                patching(&json!([{"op": "replace", "path": "/metadata/name", "value": "two"}]));
            response["uid"] = review["request"]["uid"].clone();
            Reply::Json(
                json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response}),
            )
        }
        _ => Reply::Text(404, String::new()),
    });
    let rows = [
        ("hangs", "context deadline exceeded"),
        ("slow", "context deadline exceeded"),
        ("huge", "larger than the limit"),
        ("hangs-up", "EOF"),
        ("fails", "an error on the server (\"boom\") has prevented the request from succeeding"),
        ("page", "invalid character '<' looking for beginning of value"),
        ("lies", "received invalid webhook response: expected response.uid="),
        ("missing", "the server could not find the requested resource"),
        ("wrecks", "does not match the name of the request"),
    ];
    for (name, said) in rows {
        let more = json!({"timeoutSeconds": if matches!(name, "hangs" | "slow") { 1 } else { 30 }});
        configure(&http, "Mutating", name, &server.by_url(&format!("/{name}")), &more);
        let (code, refused) = create(&http, "one");
        assert!(code >= 400, "{name}: {refused}");
        contains_all(text(&refused, "/message"), &[said]);
        assert_eq!(http.get(MAPS).code, 200, "{name}: reads go on");
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
        let made = http.json(Method::POST, "/api/v1/namespaces/default/secrets", &secret);
        assert_eq!(made.code, 201, "{name}: other kinds go on");
        assert_eq!(create(&neighbour, name).0, 201, "{name}: other projects go on");
        let path = format!("{HOOKS}/mutatingwebhookconfigurations/{name}");
        let ignore =
            json!({"webhooks": [{"name": format!("{name}.example.com"), "failurePolicy": "Ignore"}]});
        let kind = "application/strategic-merge-patch+json";
        assert_eq!(http.send(Method::PATCH, &path, kind, ignore.to_string()).code, 200);
        if name != "wrecks" {
            assert_eq!(create(&http, &format!("ignored-{name}")).0, 201, "{name}: failures are ignored");
        }
        assert_eq!(http.json(Method::DELETE, &path, &json!({})).code, 200);
    }
}

fn nobody_is_locked_out_by_a_webhook(world: &World) {
    let http = Http::of(&world.project("hooks-locked"));
    let everything = json!({"rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}]});
    let nowhere = json!({"url": "https://127.0.0.1:1/"});
    configure(&http, "Validating", "all", &nowhere, &everything);
    let (code, refused) = create(&http, "one");
    assert_eq!(code, 500);
    contains_all(text(&refused, "/message"), &["dial tcp 127.0.0.1:1: connect: connection refused"]);
    let path = format!("{HOOKS}/validatingwebhookconfigurations/all");
    assert_eq!(http.json(Method::DELETE, &path, &json!({})).code, 200);
    assert_eq!(create(&http, "one").0, 201);
}

fn a_webhook_is_asked_about_deletes_and_connections(world: &World) {
    let http = Http::of(&world.project("hooks-deletes"));
    let server = HookServer::admission(|_| json!({"allowed": false, "status": {"message": "kept"}}));
    let rules = json!({"rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE", "CONNECT"],
        "resources": ["configmaps", "pods/attach"]}]});
    assert_eq!(create(&http, "one").0, 201);
    configure(&http, "Validating", "deletes", &server.by_url("/"), &rules);
    let refused = http.json(Method::DELETE, &format!("{MAPS}/one"), &json!({}));
    assert_eq!(refused.code, 400);
    contains_all(text(&refused.body, "/message"), &["denied the request: kept"]);
    let seen = server.seen();
    let request = &seen[0]["request"];
    assert_eq!((text(request, "/operation"), &request["object"]), ("DELETE", &Value::Null));
    assert_eq!(text(request, "/oldObject/data/a"), "1");
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(http.json(Method::POST, "/api/v1/namespaces/default/pods", &pod).code, 201);
    let attach = "/api/v1/namespaces/default/pods/p/attach?container=c&stdin=true";
    let refused = http.json(Method::POST, attach, &json!({}));
    contains_all(text(&refused.body, "/message"), &["denied the request: kept"]);
    let seen = server.seen();
    let request = &seen[1]["request"];
    assert_eq!((text(request, "/operation"), text(request, "/subResource")), ("CONNECT", "attach"));
    assert_eq!(request["object"]["kind"], "PodAttachOptions");
}

fn an_inside_address_is_not_reached_unless_an_operator_allows_it() {
    let world = Server::start(Options::from(Engine::Embedded));
    let http = Http::of(&world.kubectl());
    let server = HookServer::admission(|_| json!({"allowed": true}));
    configure(&http, "Validating", "inside", &server.by_url("/"), &json!({}));
    let (code, refused) = create(&http, "one");
    assert_eq!(code, 500);
    contains_all(
        text(&refused, "/message"),
        &["in none of the networks that control planes of this server may reach"],
    );
    assert_eq!(server.seen().len(), 0);
}
