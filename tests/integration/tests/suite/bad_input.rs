//! What bad input gets: a `Status` with code, reason, details and causes, and what `kubectl` makes of it.

use crate::{contains_all, text};
use freehold_tests_integration::{Http, World, facts};
use http::Method;
use serde_json::{Value, json};

const PROJECT: &str = "bad-input";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

facts!(world:
    requests_that_cannot_be_read_are_refused,
    objects_that_are_not_valid_are_refused_with_their_causes,
    writes_of_old_versions_conflict,
    bodies_that_are_too_large_are_refused_and_the_server_lives_on,
    what_is_beyond_a_limit_is_told_which_one,
    many_managers_of_updates_become_one,
    kubectl_shows_what_is_wrong,
);

fn requests_that_cannot_be_read_are_refused(world: &World) {
    let http = Http::of(&world.project(PROJECT));
    let deep = format!("{{\"a\":{}1{}}}", "[".repeat(5000), "]".repeat(5000));
    let json = "application/json";
    let rows: [(Method, &str, &'static str, &str, u16, &str, &str); 21] = [
        (Method::POST, MAPS, json, "{", 400, "BadRequest", ""),
        (Method::POST, MAPS, json, "", 400, "BadRequest", ""),
        (Method::POST, MAPS, json, "[]", 400, "BadRequest", ""),
        (Method::POST, MAPS, json, "\"x\"", 400, "BadRequest", ""),
        (Method::POST, MAPS, json, "{} {}", 400, "BadRequest", ""),
        (Method::POST, MAPS, json, &deep, 400, "BadRequest", ""),
        (Method::POST, MAPS, "application/yaml", "a: [", 400, "BadRequest", ""),
        (Method::POST, MAPS, "application/yaml", "a: &a [*a]", 400, "BadRequest", ""),
        (Method::POST, MAPS, "text/plain", "{}", 415, "UnsupportedMediaType", "accepted media types include"),
        (
            Method::POST,
            MAPS,
            json,
            "{\"kind\":\"Secret\",\"apiVersion\":\"v1\"}",
            400,
            "BadRequest",
            "converting (v1.Secret) to (core.ConfigMap): unknown conversion",
        ),
        (Method::POST, MAPS, json, "{\"kind\":\"ConfigMap\",\"apiVersion\":\"v2\"}", 400, "BadRequest", ""),
        (
            Method::POST,
            MAPS,
            json,
            "{\"data\":{\"a\":1}}",
            400,
            "BadRequest",
            "ConfigMap in version \"v1\" cannot be handled as a ConfigMap",
        ),
        (
            Method::POST,
            DEPLOYMENTS,
            json,
            "{\"spec\":{\"replicas\":\"many\"}}",
            400,
            "BadRequest",
            "cannot be handled as a Deployment",
        ),
        (
            Method::PATCH,
            "/api/v1/namespaces/default",
            "application/merge-patch+json",
            "{",
            400,
            "BadRequest",
            "",
        ),
        (
            Method::PATCH,
            "/api/v1/namespaces/default",
            "application/json-patch+json",
            "{}",
            400,
            "BadRequest",
            "",
        ),
        (Method::PATCH, "/api/v1/namespaces/default", json, "{}", 415, "UnsupportedMediaType", ""),
        (
            Method::GET,
            "/api/v1/things",
            "",
            "",
            404,
            "NotFound",
            "the server could not find the requested resource",
        ),
        (
            Method::GET,
            "/api/v1/namespaces/default/configmaps/nothing",
            "",
            "",
            404,
            "NotFound",
            "configmaps \"nothing\" not found",
        ),
        (
            Method::GET,
            "/api/v1/configmaps?labelSelector=a%3Db%3Dc",
            "",
            "",
            400,
            "BadRequest",
            "found '=', expected",
        ),
        (Method::GET, "/api/v1/configmaps?limit=x", "", "", 400, "BadRequest", ""),
        (
            Method::GET,
            "/api/v1/configmaps?continue=x",
            "",
            "",
            400,
            "BadRequest",
            "continue key is not valid",
        ),
    ];
    for (method, path, content_type, body, code, reason, words) in rows {
        let start: String = body.chars().take(40).collect();
        let what = format!("{method} {path} {content_type} {start}");
        let answer = http.send(method, path, content_type, body.to_owned());
        assert_eq!(answer.code, code, "{what}: {}", answer.body);
        assert_eq!(text(&answer.body, "/reason"), reason, "{what}: {}", answer.body);
        assert_eq!(text(&answer.body, "/status"), "Failure", "{what}: {}", answer.body);
        assert!(text(&answer.body, "/message").contains(words), "{what}: {}", answer.body);
    }
    let put = http.json(Method::PUT, "/api/v1/namespaces/default/configmaps", &json!({}));
    assert_eq!((put.code, text(&put.body, "/reason")), (405, "MethodNotAllowed"), "{}", put.body);
}

/// `reason field` of each cause, in order.
fn causes(status: &Value) -> Vec<String> {
    let causes = status["details"]["causes"].as_array().cloned().unwrap_or_default();
    causes.iter().map(|cause| format!("{} {}", text(cause, "/reason"), text(cause, "/field"))).collect()
}

fn objects_that_are_not_valid_are_refused_with_their_causes(world: &World) {
    let http = Http::of(&world.project(PROJECT));
    let meta = |name: &str| json!({"metadata": {"name": name}});
    let rows: [(&str, Value, &str, &[&str]); 8] = [
        (MAPS, meta("A_b"), "ConfigMap", &["FieldValueInvalid metadata.name"]),
        (MAPS, json!({"metadata": {"name": ""}}), "ConfigMap", &["FieldValueRequired metadata.name"]),
        (
            MAPS,
            json!({"metadata": {"name": "a", "labels": {"-x": "y"}}}),
            "ConfigMap",
            &["FieldValueInvalid metadata.labels"],
        ),
        (
            MAPS,
            json!({"metadata": {"name": "a"}, "data": {"a/b": "c"}}),
            "ConfigMap",
            &["FieldValueInvalid data[a/b]"],
        ),
        ("/api/v1/namespaces", meta("a.b"), "Namespace", &["FieldValueInvalid metadata.name"]),
        (
            "/api/v1/namespaces/default/services",
            json!({"metadata": {"name": "a.b"}, "spec": {"ports": [{"port": 80}]}}),
            "Service",
            &["FieldValueInvalid metadata.name"],
        ),
        (
            "/api/v1/namespaces/default/services",
            json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 99999}]}}),
            "Service",
            &["FieldValueInvalid spec.ports[0].port"],
        ),
        (
            DEPLOYMENTS,
            json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
                "metadata": {"labels": {"a": "c"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}),
            "Deployment",
            &["FieldValueInvalid spec.template.metadata.labels"],
        ),
    ];
    for (path, object, kind, expected) in rows {
        let answer = http.json(Method::POST, path, &object);
        assert_eq!(
            (answer.code, text(&answer.body, "/reason")),
            (422, "Invalid"),
            "{object}: {}",
            answer.body
        );
        assert_eq!(text(&answer.body, "/details/kind"), kind, "{}", answer.body);
        let found = causes(&answer.body);
        for cause in expected {
            assert!(found.iter().any(|f| f == cause), "{cause} is missing in {found:?} of {object}");
        }
    }
    let unknown = json!({"metadata": {"name": "u"}, "nothing": 1, "metadota": {}});
    let strict = http.json(Method::POST, &format!("{MAPS}?fieldValidation=Strict"), &unknown);
    assert_eq!(strict.code, 400);
    contains_all(
        text(&strict.body, "/message"),
        &["strict decoding error", "unknown field \"nothing\"", "unknown field \"metadota\""],
    );
    let twice = "{\"metadata\":{\"name\":\"twice\"},\"data\":{\"a\":\"1\",\"a\":\"2\"}}";
    let twice = http.send(Method::POST, &format!("{MAPS}?fieldValidation=Strict"), "application/json", twice);
    contains_all(text(&twice.body, "/message"), &["duplicate field \"data.a\""]);
    assert_eq!(http.json(Method::POST, &format!("{MAPS}?fieldValidation=Ignore"), &unknown).code, 201);
}

fn writes_of_old_versions_conflict(world: &World) {
    let kubectl = world.project(PROJECT);
    let http = Http::of(&kubectl);
    let first = http.json(Method::POST, MAPS, &json!({"metadata": {"name": "versions"}}));
    assert_eq!(first.code, 201, "{}", first.body);
    assert_eq!(http.json(Method::POST, MAPS, &json!({"metadata": {"name": "versions"}})).code, 409);
    let path = format!("{MAPS}/versions");
    let mut second = first.body.clone();
    second["data"] = json!({"a": "1"});
    assert_eq!(http.json(Method::PUT, &path, &second).code, 200);
    let stale = http.json(Method::PUT, &path, &second);
    assert_eq!((stale.code, text(&stale.body, "/reason")), (409, "Conflict"), "{}", stale.body);
    contains_all(
        text(&stale.body, "/message"),
        &["the object has been modified; please apply your changes to the latest version and try again"],
    );
    assert_eq!(
        (text(&stale.body, "/details/name"), text(&stale.body, "/details/kind")),
        ("versions", "configmaps")
    );
    let uid = json!({"preconditions": {"uid": "another"}});
    assert_eq!(http.json(Method::DELETE, &path, &uid).code, 409);
    let version =
        json!({"preconditions": {"resourceVersion": text(&first.body, "/metadata/resourceVersion")}});
    assert_eq!(http.json(Method::DELETE, &path, &version).code, 409);
    assert_eq!(http.send(Method::DELETE, &path, "", "").code, 200);
}

fn bodies_that_are_too_large_are_refused_and_the_server_lives_on(world: &World) {
    let kubectl = world.project(PROJECT);
    let http = Http::of(&kubectl);
    let map = |bytes: usize| json!({"metadata": {"name": "large"}, "data": {"a": "x".repeat(bytes)}});
    let huge = http.json(Method::POST, MAPS, &map(4 << 20));
    assert_eq!((huge.code, text(&huge.body, "/reason")), (413, "RequestEntityTooLarge"), "{}", huge.body);
    let large = http.json(Method::POST, MAPS, &map((1 << 20) + 1));
    assert_eq!(large.code, 422, "a ConfigMap holds a megabyte");
    contains_all(text(&large.body, "/message"), &["[]: Too long: may not be more than 1048576 bytes"]);
    let fits = http.json(Method::POST, MAPS, &map(900_000));
    assert_eq!(fits.code, 201, "{}", fits.body["message"]);
    assert_eq!(http.get("/readyz").code, 200);
}

fn what_is_beyond_a_limit_is_told_which_one(world: &World) {
    let http = Http::of(&world.project(PROJECT));
    let map = format!("{MAPS}/limits");
    assert_eq!(http.json(Method::POST, MAPS, &json!({"metadata": {"name": "limits"}})).code, 201);
    let (json, yaml) = ("application/json", "application/yaml");
    let (merge, patch, apply) =
        ("application/merge-patch+json", "application/json-patch+json", "application/apply-patch+yaml");
    let operations =
        json!(vec![json!({"op": "test", "path": "/metadata/name", "value": "limits"}); 10_001]).to_string();
    let huge = json!({"a": "x".repeat(3 << 20)}).to_string();
    let deep = |open: &str, close: &str| format!("{{\"a\": {}1{}}}", open.repeat(127), close.repeat(127));
    let (lists, maps) = (deep("[", "]"), deep("{\"a\":", "}"));
    let flow = format!("metadata: {{name: a}}\na: {}{}\n", "[".repeat(127), "]".repeat(127));
    let query = |name: &str, value: String| format!("{MAPS}?{name}={value}");
    let keys = |count| (0..count).map(|n| format!("a{n}")).collect::<Vec<_>>().join(",");
    let too_large = "Request entity too large: limit is 3145728";
    let nested = "json parse error: invalid character '[' exceeded max depth";
    let manager = format!("{map}?fieldManager={}", "m".repeat(129));
    let rows: [(Method, &str, &'static str, &str, u16, &str); 19] = [
        (
            Method::PATCH,
            &map,
            patch,
            &operations,
            413,
            "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001",
        ),
        (Method::POST, MAPS, json, &huge, 413, too_large),
        (Method::PUT, &map, json, &huge, 413, too_large),
        (Method::PATCH, &map, merge, &huge, 413, too_large),
        (Method::PATCH, &map, patch, &huge, 413, too_large),
        (Method::PATCH, &format!("{map}?fieldManager=m"), apply, &huge, 413, too_large),
        (Method::DELETE, &map, json, &huge, 413, too_large),
        (Method::POST, MAPS, json, &lists, 400, nested),
        (Method::POST, MAPS, yaml, &flow, 400, "yaml: line 2: exceeded max depth of 64"),
        (
            Method::PATCH,
            &map,
            merge,
            &maps,
            400,
            "error decoding patch: invalid character '{' exceeded max depth",
        ),
        (
            Method::PATCH,
            &map,
            patch,
            &lists,
            400,
            "error decoding patch: invalid character '[' exceeded max depth",
        ),
        (Method::PATCH, &format!("{map}?fieldManager=m"), apply, &maps, 400, "exceeded max depth"),
        (Method::GET, &format!("/api/v1/{}", "a".repeat(9000)), "", "", 414, "the request path is too long"),
        (Method::GET, &query("a", "&a=".repeat(300)), "", "", 400, "the query has too many parameters"),
        (Method::GET, &query("labelSelector", keys(5000)), "", "", 400, "selector has more than 4096 terms"),
        (
            Method::GET,
            &query("fieldSelector", ",a%3Db".repeat(5000)),
            "",
            "",
            400,
            "invalid selector: more than 4096 terms",
        ),
        (
            Method::GET,
            &query("continue", "a".repeat(5000)),
            "",
            "",
            400,
            "continue key is not valid: it is too long",
        ),
        (
            Method::PATCH,
            &manager,
            merge,
            "{}",
            422,
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Too long: may not be more than 128 bytes",
        ),
        (
            Method::POST,
            MAPS,
            json,
            "\u{1f}\u{8b}",
            400,
            "invalid character '\\x1f' looking for beginning of value",
        ),
    ];
    for (method, path, content_type, body, code, words) in rows {
        let what = format!("{method} {} {content_type}", path.chars().take(80).collect::<String>());
        let answer = http.send(method, path, content_type, body.to_owned());
        assert_eq!(answer.code, code, "{what}: {}", answer.body);
        assert!(text(&answer.body, "/message").contains(words), "{what}: {}", answer.body);
    }
    // As long as clients make them; with the rest of the head it is more than 64 KiB.
    assert_eq!(http.get(&query("labelSelector", "a".repeat(65_400))).code, 431, "of the head");
    assert_eq!(http.get(&map).code, 200);
}

fn many_managers_of_updates_become_one(world: &World) {
    let http = Http::of(&world.project(PROJECT));
    assert_eq!(
        http.json(Method::POST, MAPS, &json!({"metadata": {"name": "managers"}, "data": {"k": "v"}})).code,
        201
    );
    let mut last = Value::Null;
    for number in 0..14 {
        let path = format!("{MAPS}/managers?fieldManager=m{number}");
        let body = json!({"data": {format!("k{number}"): "v"}}).to_string();
        let answer = http.send(Method::PATCH, &path, "application/merge-patch+json", body);
        assert_eq!(answer.code, 200, "{}", answer.body);
        last = answer.body;
    }
    let managers: Vec<&str> = last["metadata"]["managedFields"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|entry| text(entry, "/manager"))
        .collect();
    assert_eq!(managers.len(), 10, "{managers:?}");
    assert!(managers.contains(&"ancient-changes"), "{managers:?}");
}

fn kubectl_shows_what_is_wrong(world: &World) {
    let kubectl = world.project(PROJECT);
    let apply = |manifest: &str| kubectl.run_with_input(&["apply", "-f", "-"], manifest).expect_failure();
    let deployment = "---\n{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {replica: 2, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, imag: x}]}}}}";
    let rows = [
        (
            "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: A_b}}",
            &[
                "The ConfigMap \"A_b\" is invalid: metadata.name: Invalid value: \"A_b\": a lowercase RFC 1123 subdomain",
            ][..],
        ),
        (
            deployment,
            &[
                "strict decoding error: unknown field \"spec.replica\", unknown field \"spec.template.spec.containers[0].imag\"",
            ],
        ),
        (
            "---\n{apiVersion: v1, kind: Gadget, metadata: {name: a}}",
            &["no matches for kind \"Gadget\" in version \"v1\""],
        ),
        (
            "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: nowhere}}",
            &["namespaces \"nowhere\" not found"],
        ),
        (
            "---\n{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {replicas: many}}",
            &["cannot be handled as a Deployment", "replicas"],
        ),
        (
            "---\n{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: []}}",
            &["The Pod \"p\" is invalid: spec.containers: Required value"],
        ),
    ];
    for (manifest, words) in rows {
        contains_all(&apply(manifest), words);
    }
    let commands: [(&[&str], &str); 4] = [
        (&["get", "gadgets"], "error: the server doesn't have a resource type \"gadgets\""),
        (&["get", "configmap", "nothing"], "Error from server (NotFound): configmaps \"nothing\" not found"),
        (
            &["delete", "namespace", "kube-system"],
            "Error from server (Forbidden): namespaces \"kube-system\" is forbidden: this namespace may not be deleted",
        ),
        (
            &["get", "--raw", "/projects/bad-input/nothing"],
            "Error from server (NotFound): the server could not find the requested resource",
        ),
    ];
    for (args, words) in commands {
        contains_all(&kubectl.fails(args), &[words]);
    }
}
