use crate::{
    client::{Lines, NAME, PATIENCE, Pki, Running, front_proxy, request},
    origin,
};
use freehold_apiserver_planes::DedicatedTarget;
use freehold_apiserver_server::Authorities;
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use serde_json::json;
use std::sync::Arc;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

/// A core server and the pair behind it.
async fn pair() -> (Running, Running) {
    let pki = Arc::new(Pki::new());
    let dedicated = Running::start_with(pki.clone(), |_| {}).await;
    let core = Running::start_with(pki.clone(), |config| config.front_proxy = Some(front_proxy(&pki))).await;
    *core.memory.pair.lock().unwrap() = Some(DedicatedTarget {
        plane: "p1".parse().unwrap(),
        endpoint: format!("https://{}", dedicated.address).into(),
        server_name: NAME.into(),
        power: Default::default(),
        sleep_after: None,
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

/// A core server before something that is no apiserver.
async fn before_origin() -> Running {
    let pki = Arc::new(Pki::new());
    let address = origin::start(&pki).await;
    let core = Running::start_with(pki.clone(), |config| {
        config.front_proxy = Some(front_proxy(&pki));
        config.nodes = Some(front_proxy(&pki));
    })
    .await;
    *core.memory.pair.lock().unwrap() = Some(DedicatedTarget {
        plane: "p1".parse().unwrap(),
        endpoint: format!("https://{address}").into(),
        server_name: NAME.into(),
        power: Default::default(),
        sleep_after: None,
    });
    let node = json!({"metadata": {"name": "n"}, "status": {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": address.port()}},
    }});
    let made = core.admin().send("POST", "/api/v1/nodes", &[], node.to_string()).await;
    assert_eq!(made.code, 201, "{}", made.text());
    core
}

#[tokio::test]
async fn the_request_arrives_within_its_context_and_otherwise_as_it_was() {
    let core = before_origin().await;
    let long = "/apis/resourcemanager.freehold.dev/v1alpha1/projects/pair/control-plane";
    let headers =
        [("authorization", "Basic eA=="), ("x-custom", "kept"), ("audit-id", "abc"), ("te", "trailers")];
    for prefix in ["/projects/pair", "/proj%65cts/pair", long] {
        let path = format!("{prefix}/api/v1/namespaces/a%3Ab/pods?labelSelector=a%3Db&limit=5");
        let echo = core.admin().send("POST", &path, &headers, "body").await.json();
        assert_eq!((&echo["method"], &echo["body"]), (&json!("POST"), &json!("body")));
        assert_eq!(echo["target"], "/api/v1/namespaces/a:b/pods?labelSelector=a%3Db&limit=5");
        let headers = echo["headers"].as_array().unwrap();
        for expected in
            ["x-custom: kept", "audit-id: abc", "x-remote-user: admin", "x-remote-group: system:masters"]
        {
            assert!(headers.contains(&json!(expected)), "{expected}: {headers:?}");
        }
        assert!(!headers.iter().any(|h| h.as_str().unwrap().starts_with("authorization")), "{headers:?}");
    }
}

#[tokio::test]
async fn an_upgraded_connection_passes_both_ways() {
    let core = before_origin().await;
    let path = "/projects/pair/api/v1/namespaces/a/pods/b/exec?command=sh";
    let headers = [("connection", "Upgrade"), ("upgrade", "SPDY/3.1")];
    let mut response = core.admin().open(request("POST", path, &headers, "")).await;
    assert_eq!(
        (response.status().as_u16(), &response.headers()["upgrade"]),
        (101, &"SPDY/3.1".parse().unwrap())
    );
    let mut io = TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap());
    io.write_all(b"ping").await.unwrap();
    let mut answer = [0; 4];
    timeout(PATIENCE, io.read_exact(&mut answer)).await.unwrap().unwrap();
    assert_eq!(&answer, b"ping");
    core.begin_stop();
    assert_eq!(timeout(PATIENCE, io.read(&mut answer)).await.unwrap().unwrap_or(0), 0, "a stop ends it");
    core.stopped().await;
}

#[tokio::test]
async fn an_upgraded_connection_ends_with_the_authority_that_vouched_for_its_client() {
    let core = before_origin().await;
    let path = "/projects/pair/api/v1/namespaces/a/pods/b/exec?command=sh";
    let headers = [("connection", "Upgrade"), ("upgrade", "SPDY/3.1")];
    let mut response = core.admin().open(request("POST", path, &headers, "")).await;
    assert_eq!(response.status(), 101);
    let mut io = TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap());
    let mut echo = async |text: &[u8; 4]| {
        io.write_all(text).await.ok()?;
        let mut answer = [0; 4];
        timeout(PATIENCE, io.read_exact(&mut answer)).await.expect("an answer or an end").ok()?;
        Some(answer)
    };
    assert_eq!(echo(b"ping").await, Some(*b"ping"));
    let (own, next) = (core.pki.clients.cert_pem(), Pki::new());
    let clients = |clients: String| Authorities { clients, front_proxies: Vec::new() };
    core.reload.authorities(&clients(format!("{own}{}", next.clients.cert_pem()))).unwrap();
    assert_eq!(echo(b"more").await, Some(*b"more"), "one authority more is no reason");
    core.reload.authorities(&clients(next.clients.cert_pem().to_owned())).unwrap();
    timeout(PATIENCE, async { while echo(b"gone").await.is_some() {} }).await.expect("it ends");
}

#[tokio::test]
async fn logs_come_from_the_node() {
    let core = before_origin().await;
    let admin = core.admin();
    for (name, node) in [("p", "n"), ("waiting", "n"), ("new", ""), ("lost", "gone")] {
        let pod =
            json!({"metadata": {"name": name}, "spec": {"nodeName": node, "containers": [{"name": "c"}]}});
        admin.send("POST", "/api/v1/namespaces/default/pods", &[], pod.to_string()).await;
    }
    let log = |pod: &str, query: &str| {
        let (admin, path) = (admin.clone(), format!("/api/v1/namespaces/default/pods/{pod}/log{query}"));
        async move { admin.get(&path).await }
    };
    let got = log("p", "?tailLines=5&timestamps=true&unknown=1").await;
    assert_eq!((got.code, got.header("content-type")), (200, "text/plain"));
    assert_eq!(got.text(), "log of default/p/c?timestamps=true&tailLines=5\n");
    assert_eq!(log("new", "").await.code, 204);
    let waiting = log("waiting", "").await.failure();
    assert_eq!(
        waiting,
        (400, "BadRequest".into(), "container \"c\" in pod \"waiting\" is waiting to start".into())
    );
    assert_eq!(log("p", "?container=x").await.failure().2, "container x is not valid for pod p");
    assert_eq!(log("lost", "").await.failure().2, "nodes \"gone\" not found");
    assert_eq!(log("none", "").await.failure().2, "pods \"none\" not found");
    assert_eq!(log("p", "?tailLines=x").await.code, 400);
}
