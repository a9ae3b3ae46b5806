use crate::client::{Lines, NAME, Pki, Running, front_proxy, request};
use freehold_apiserver_planes::DedicatedTarget;
use http_body_util::BodyExt;
use serde_json::json;
use std::sync::Arc;

/// A core server and the pair behind it.
async fn pair() -> (Running, Running) {
    let pki = Arc::new(Pki::new());
    let dedicated = Running::start_with(pki.clone(), |_| {}).await;
    let core = Running::start_with(pki.clone(), |config| config.front_proxy = Some(front_proxy(&pki))).await;
    *core.memory.pair.lock().unwrap() = Some(DedicatedTarget {
        plane: "p1".parse().unwrap(),
        endpoint: format!("https://{}", dedicated.address).into(),
        server_name: NAME.into(),
    });
    (core, dedicated)
}

#[tokio::test]
async fn a_dedicated_plane_answers_through_the_front_door() {
    let (core, dedicated) = pair().await;
    let admin = core.admin();
    admin.make("/projects/pair", "a", "x y").await;
    let own = dedicated.admin().get("/api/v1/namespaces/default/configmaps/a").await;
    let through = admin.get("/projects/pair/api/v1/namespaces/default/configmaps/a?pretty=false").await;
    assert_eq!((through.code, &through.body), (200, &own.body));
    assert_eq!(
        core.admin().get("/api/v1/namespaces/default/configmaps/a").await.code,
        404,
        "core has none of it"
    );
    let mut lines = Lines::of(&admin, "/projects/pair/api/v1/configmaps?watch=1", "*/*").await;
    assert_eq!(lines.next().await.unwrap()["object"]["metadata"]["name"], "a");
    admin.make("/projects/pair", "b", "1").await;
    assert_eq!(lines.next().await.unwrap()["object"]["metadata"]["name"], "b");
    core.begin_stop();
    assert_eq!(lines.next().await, None, "a stop of the front ends it cleanly");
}

#[tokio::test]
async fn the_pair_knows_the_user_and_not_what_the_client_claims() {
    let (core, _dedicated) = pair().await;
    let who = |headers: &'static [(&str, &str)]| {
        let eve = core.client(Some(("eve", &["dev"], None)));
        let body = json!({"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}).to_string();
        async move {
            eve.send("POST", "/projects/pair/apis/authentication.k8s.io/v1/selfsubjectreviews", headers, body)
                .await
        }
    };
    let claims: &[(&str, &str)] = &[
        ("x-remote-user", "admin"),
        ("x-remote-group", "system:masters"),
        ("x-remote-extra-plane.freehold.dev", "p1"),
    ];
    for headers in [&[], claims] {
        let info = who(headers).await.json()["status"]["userInfo"].clone();
        assert_eq!(
            (&info["username"], &info["groups"]),
            (&json!("eve"), &json!(["dev", "system:authenticated"]))
        );
    }
    let refused = who(&[("impersonate-user", "admin")]).await;
    assert_eq!(refused.failure().0, 403, "the pair judges impersonation");
}

#[tokio::test]
async fn a_pair_that_is_away_gets_503_and_a_time_to_come_again() {
    let (core, dedicated) = pair().await;
    dedicated.begin_stop();
    dedicated.stopped().await;
    let got = core.admin().get("/projects/pair/api").await;
    assert_eq!((got.failure().0, got.header("retry-after")), (503, "1"));
    core.memory.pair.lock().unwrap().as_mut().unwrap().server_name = "other.svc".into();
    assert_eq!(core.admin().get("/projects/pair/api").await.code, 503);
}

#[tokio::test]
async fn a_pair_must_prove_the_name_that_it_is_reached_by() {
    let (core, _dedicated) = pair().await;
    assert_eq!(core.admin().get("/projects/pair/api").await.code, 200);
    core.memory.pair.lock().unwrap().as_mut().unwrap().server_name = "other.svc".into();
    assert_eq!(core.admin().get("/projects/pair/api").await.code, 503);
}

#[tokio::test]
async fn a_large_body_streams_through() {
    let (core, _dedicated) = pair().await;
    let admin = core.admin();
    let data = "x".repeat(1024 * 1024);
    admin.make("/projects/pair", "big", &data).await;
    let path = "/projects/pair/api/v1/namespaces/default/configmaps/big";
    let response = admin.open(request("GET", path, &[], "")).await;
    assert!(response.into_body().collect().await.unwrap().to_bytes().len() > data.len());
}
