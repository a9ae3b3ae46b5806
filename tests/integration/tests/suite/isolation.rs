//! Point 8: who belongs to one project is nobody in another, whatever is asked.

use crate::contains_all;
use freehold_tests_integration::{Http, World, facts};
use http::Method;
use serde_json::json;

facts!(world:
    a_certificate_of_one_project_is_refused_in_another,
    a_token_of_one_project_is_refused_in_another,
    nobody_is_refused_everywhere,
    names_of_users_mean_nothing_in_another_project,
);

/// What is asked, one of each verb, and the documents of discovery.
const REQUESTS: [(Method, &str); 20] = [
    (Method::GET, "/api/v1/namespaces/default/configmaps/a"),
    (Method::GET, "/api/v1/namespaces/default/configmaps"),
    (Method::GET, "/api/v1/configmaps?watch=true&timeoutSeconds=1"),
    (Method::POST, "/api/v1/namespaces/default/configmaps"),
    (Method::PUT, "/api/v1/namespaces/default/configmaps/a"),
    (Method::PATCH, "/api/v1/namespaces/default/configmaps/a"),
    (Method::DELETE, "/api/v1/namespaces/default/configmaps/a"),
    (Method::DELETE, "/api/v1/namespaces/default/configmaps"),
    (Method::GET, "/api/v1/secrets"),
    (Method::GET, "/apis/nothing.example/v1/things"),
    (Method::POST, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
    (Method::GET, "/api"),
    (Method::GET, "/apis"),
    (Method::GET, "/api/v1"),
    (Method::GET, "/apis/apps/v1"),
    (Method::GET, "/openapi/v2"),
    (Method::GET, "/openapi/v3"),
    (Method::GET, "/openapi/v3/apis/apps/v1"),
    (Method::GET, "/metrics"),
    (Method::GET, "/nothing"),
];

fn check(http: &Http, who: &str, codes: &[u16]) {
    for (method, path) in REQUESTS {
        let body = match method {
            Method::POST | Method::PUT => {
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
            }
            _ => json!({}),
        };
        let answer = match method {
            Method::GET => http.get(path),
            Method::PATCH => http.send(method.clone(), path, "application/merge-patch+json", "{}"),
            _ => http.json(method.clone(), path, &body),
        };
        assert!(codes.contains(&answer.code), "{who}: {method} {path} gave {} {}", answer.code, answer.body);
        assert_eq!(answer.body["kind"].as_str().unwrap_or("Status"), "Status", "{who}: {method} {path}");
    }
}

/// Where else a member of one project could try.
fn elsewhere(world: &World, other: &str) -> Vec<String> {
    let url = world.server().url();
    let plane = world.uid(other);
    let paths = [
        format!("/projects/{other}"),
        format!("/planes/{plane}"),
        "/planes/core".into(),
        "/planes/infra".into(),
        String::new(),
        "/organizations/tests".into(),
    ];
    paths.iter().map(|path| format!("{url}{path}")).collect()
}

fn a_certificate_of_one_project_is_refused_in_another(world: &World) {
    let a = world.project("isolated-a");
    world.project("isolated-b");
    assert_eq!(Http::of(&a).get("/api/v1/namespaces").code, 200, "at home it counts");
    for url in elsewhere(world, "isolated-b") {
        check(&Http::of_elsewhere(&a, &url), &format!("certificate at {url}"), &[401, 403]);
    }
    let url = format!("{}/projects/isolated-b", world.server().url());
    let complaint = a.with(&["--server", &url]).fails(&["get", "configmaps"]);
    assert!(
        complaint.contains("nauthorized")
            || complaint.contains("orbidden")
            || complaint.contains("must be logged in"),
        "{complaint}"
    );
}

fn a_token_of_one_project_is_refused_in_another(world: &World) {
    let a = world.project("isolated-a");
    let b = world.project("isolated-b");
    for kubectl in [&a, &b] {
        // The same account in both, the mightiest that there is.
        kubectl.ok(&["create", "serviceaccount", "robot", "--namespace=kube-system"]);
        kubectl.ok(&[
            "create",
            "clusterrolebinding",
            "robot",
            "--clusterrole=cluster-admin",
            "--serviceaccount=kube-system:robot",
        ]);
    }
    let token = a.ok(&["create", "token", "robot", "--namespace=kube-system"]);
    let home = format!("{}/projects/isolated-a", world.server().url());
    assert_eq!(
        Http::with_token(&a, &home, token.trim()).get("/api/v1/secrets").code,
        200,
        "at home it counts"
    );
    // The root leads it home (`streams.rs`).
    let root = world.server().url();
    for url in elsewhere(world, "isolated-b").into_iter().filter(|url| url != root) {
        check(&Http::with_token(&a, &url, token.trim()), &format!("token at {url}"), &[401, 403]);
    }
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token.trim()}});
    let reviewed = |kubectl| {
        Http::of(kubectl).json(Method::POST, "/apis/authentication.k8s.io/v1/tokenreviews", &review)
    };
    assert_eq!(reviewed(&a).body["status"]["authenticated"], true);
    assert_ne!(reviewed(&b).body["status"]["authenticated"], true);
}

fn nobody_is_refused_everywhere(world: &World) {
    let a = world.project("isolated-a");
    for url in elsewhere(world, "isolated-a") {
        check(&Http::with_token(&a, &url, ""), &format!("nobody at {url}"), &[401, 403]);
        check(&Http::with_token(&a, &url, "not.a.token"), &format!("a made-up token at {url}"), &[401]);
    }
}

fn names_of_users_mean_nothing_in_another_project(world: &World) {
    let [a, b] = ["isolated-a", "isolated-b"].map(|name| world.project(name));
    a.ok(&["create", "clusterrolebinding", "jane", "--clusterrole=cluster-admin", "--user=jane"]);
    a.with(&["--as=jane"]).ok(&["get", "secrets"]);
    contains_all(&b.with(&["--as=jane"]).fails(&["get", "secrets"]), &["Forbidden"]);
}
