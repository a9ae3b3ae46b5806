use crate::client::Running;
use serde_json::json;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn each_identity_reaches_what_it_may() {
    let server = Running::start(|_| {}).await;
    let admin = server.admin();
    let jane = server.client(Some(("jane", &[], None)));
    let bound = server.client(Some(("admin", &["system:masters"], Some("web"))));
    let controller = server.client(Some(("c", &["system:freehold:controllers"], None)));
    let nobody = server.client(None);
    let forbidden = |who: &str, what: &str| format!("{what} is forbidden: User \"{who}\" cannot");
    // client, path, code, how the message begins
    let rows = [
        (&nobody, "/livez", 200, String::new()),
        (&nobody, "/version", 200, String::new()),
        (&nobody, "/api", 403, "forbidden: User \"system:anonymous\" cannot get path \"/api\"".into()),
        (&nobody, MAPS, 403, forbidden("system:anonymous", "configmaps")),
        (&nobody, "/projects/gone/api", 401, "Unauthorized".into()),
        (&nobody, "/metrics", 403, "forbidden: User \"system:anonymous\" cannot get path \"/metrics\"".into()),
        (&jane, MAPS, 200, String::new()),
        (&jane, "/metrics", 200, String::new()),
        (&jane, "/api/v1/secrets", 403, "secrets is forbidden: User \"jane\" cannot list resource \"secrets\" in API group \"\" at the cluster scope".into()),
        (&jane, "/planes/-/api/v1/configmaps", 403, "forbidden: User \"jane\" cannot use planes by their identifiers".into()),
        (&jane, "/planes/core/api", 403, "forbidden: ".into()),
        (&controller, "/planes/-/api", 200, String::new()),
        (&admin, "/planes/core/api/v1/configmaps", 200, String::new()),
        (&bound, "/projects/web/api/v1/configmaps", 200, String::new()),
        (&bound, "/projects/web/api", 200, String::new()),
        (&bound, MAPS, 401, "Unauthorized".into()),
        (&bound, "/api", 401, "Unauthorized".into()),
        (&bound, "/version", 401, "Unauthorized".into()),
        (&bound, "/projects/other/api", 401, "Unauthorized".into()),
        (&bound, "/organizations/acme/api", 401, "Unauthorized".into()),
        (&bound, "/planes/web/api", 403, "forbidden: ".into()),
        (&bound, "/planes/-/api", 401, "Unauthorized".into()),
    ];
    for (client, path, code, message) in rows {
        let got = client.get(path).await;
        assert_eq!(got.code, code, "{path}: {}", got.text());
        if code != 200 {
            assert!(got.failure().2.starts_with(&message), "{path}: {}", got.text());
        }
    }
    let got = nobody.send("GET", "/api", &[("authorization", "Bearer nonsense")], "").await.failure();
    assert_eq!(got, (401, "Unauthorized".into(), "Unauthorized".into()));
}

#[tokio::test]
async fn who_impersonates_must_be_allowed_each_part_of_it() {
    let server = Running::start(|_| {}).await;
    let review = |headers: &'static [(&str, &str)], user: &'static str| {
        let client =
            server.client(Some((user, if user == "admin" { &["system:masters"] } else { &[] }, None)));
        let body = json!({"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}).to_string();
        async move {
            client.send("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", headers, body).await
        }
    };
    let got = review(&[("impersonate-user", "joe"), ("impersonate-group", "dev")], "admin").await;
    assert_eq!(got.code, 201, "{}", got.text());
    let info = got.json()["status"]["userInfo"].clone();
    assert_eq!(
        (&info["username"], &info["groups"]),
        (&json!("joe"), &json!(["dev", "system:authenticated"]))
    );
    assert_eq!(
        review(&[("impersonate-user", "joe")], "jane").await.json()["status"]["userInfo"]["username"],
        "joe"
    );
    let refused = review(&[("impersonate-user", "joe"), ("impersonate-group", "system:masters")], "jane")
        .await
        .failure();
    // The first way that was tried is told of, as in Kubernetes (KEP-5284).
    let why = "selfsubjectreviews.authentication.k8s.io is forbidden: User \"jane\" cannot impersonate-on:user-info:create";
    assert_eq!((refused.0, refused.2.starts_with(why)), (403, true), "{}", refused.2);
    assert_eq!(review(&[("impersonate-group", "dev")], "admin").await.failure().0, 400);
}

#[tokio::test]
async fn identity_headers_of_others_than_front_proxies_mean_nothing() {
    let server = Running::start(|_| {}).await;
    let headers = [("x-remote-user", "admin"), ("x-remote-group", "system:masters")];
    for client in [server.client(None), server.client(Some(("eve", &[], None)))] {
        assert_eq!(client.send("GET", MAPS, &headers, "").await.code, 403);
    }
}

#[tokio::test]
async fn reviews_are_answered_and_not_kept() {
    let server = Running::start(|_| {}).await;
    let (admin, jane) = (server.admin(), server.client(Some(("jane", &[], None))));
    let authorization = "/apis/authorization.k8s.io/v1";
    let access = |verb: &str| json!({"spec": {"resourceAttributes": {"verb": verb, "resource": "configmaps", "namespace": "default"}}});
    let mut of_jane = access("list");
    of_jane["spec"]["user"] = "jane".into();
    let local = format!("{authorization}/namespaces/default/localsubjectaccessreviews");
    let other = format!("{authorization}/namespaces/other/localsubjectaccessreviews");
    let path = |name: &str| format!("{authorization}/{name}");
    // client, path, body -> code, pointer, value
    let rows = [
        (&jane, path("selfsubjectaccessreviews"), access("list"), 201, "/status/allowed", json!(true)),
        (&jane, path("selfsubjectaccessreviews"), access("delete"), 201, "/status/allowed", json!(false)),
        (&jane, path("selfsubjectaccessreviews"), json!({"spec": {}}), 422, "/reason", json!("Invalid")),
        (
            &jane,
            path("selfsubjectaccessreviews"),
            json!({"kind": "Pod", "apiVersion": "v1", "spec": {}}),
            400,
            "/reason",
            json!("BadRequest"),
        ),
        (&jane, path("subjectaccessreviews"), of_jane.clone(), 403, "/reason", json!("Forbidden")),
        (&admin, path("subjectaccessreviews"), of_jane.clone(), 201, "/status/allowed", json!(true)),
        (
            &admin,
            path("subjectaccessreviews"),
            access("list"),
            422,
            "/details/causes/0/field",
            json!("spec.user"),
        ),
        (&admin, local, of_jane.clone(), 201, "/status/allowed", json!(true)),
        (&admin, other, of_jane, 422, "/details/causes/0/field", json!("spec.resourceAttributes.namespace")),
        (
            &jane,
            path("selfsubjectrulesreviews"),
            json!({"spec": {"namespace": "default"}}),
            201,
            "/status/incomplete",
            json!(false),
        ),
        (
            &jane,
            path("selfsubjectrulesreviews"),
            json!({"spec": {}}),
            400,
            "/message",
            json!("no namespace on request"),
        ),
        (
            &admin,
            "/apis/authentication.k8s.io/v1/tokenreviews".into(),
            json!({"spec": {"token": "abc"}}),
            201,
            "/status/error",
            json!("unknown token of 3 bytes"),
        ),
        (
            &admin,
            "/apis/authentication.k8s.io/v1/tokenreviews".into(),
            json!({"spec": {}}),
            400,
            "/reason",
            json!("BadRequest"),
        ),
    ];
    for (client, path, body, code, pointer, value) in rows {
        let got = client.send("POST", &path, &[], body.to_string()).await;
        assert_eq!(
            (got.code, got.json().pointer(pointer)),
            (code, Some(&value)),
            "{path} {body}: {}",
            got.text()
        );
    }
    assert_eq!(jane.get(&path("selfsubjectaccessreviews")).await.code, 403);
    assert_eq!(admin.get(&path("selfsubjectaccessreviews")).await.code, 405);
}
