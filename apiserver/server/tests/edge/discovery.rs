use crate::client::Running;
use serde_json::json;
use std::{io::Read, sync::atomic::Ordering::SeqCst};

#[tokio::test]
async fn discovery_is_served_in_every_context() {
    let server = Running::start(|_| {}).await;
    let admin = server.admin();
    let long = "/apis/resourcemanager.freehold.dev/v1alpha1/projects/web/control-plane";
    for prefix in ["", "/projects/web", long, "/organizations/acme", "/planes/core"] {
        let rows = [
            ("/api", "APIVersions"),
            ("/apis", "APIGroupList"),
            ("/apis/apps", "APIGroup"),
            ("/apis/apps/v1", "APIResourceList"),
            ("/api/v1", "APIResourceList"),
        ];
        for (path, kind) in rows {
            let got = admin.get(&format!("{prefix}{path}")).await;
            assert_eq!((got.code, got.json()["kind"].as_str()), (200, Some(kind)), "{prefix}{path}");
        }
        let version = admin.get(&format!("{prefix}/version")).await.json();
        assert_eq!(
            (&version["major"], &version["minor"], &version["gitVersion"]),
            (&json!("1"), &json!("36"), &json!("v1.36.0+freehold-0.1.0"))
        );
        let root = admin.get(if prefix.is_empty() { "/" } else { prefix }).await.json();
        assert!(root["paths"].as_array().unwrap().contains(&json!("/apis/apps/v1")), "{root}");
    }
    assert_eq!(admin.get("/apis/nothing.example.com").await.code, 404);
    // Where kube-apiserver tells of groups it looks at no method.
    assert_eq!(admin.send("POST", "/apis", &[], "{}").await.code, 200);
    assert_eq!(admin.send("POST", "/api", &[], "{}").await.code, 405);
}

#[tokio::test]
async fn aggregated_discovery_has_a_tag_and_is_sent_once() {
    let server = Running::start(|_| {}).await;
    let admin = server.admin();
    let v2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let kubectl = format!(
        "{v2},application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
    );
    let got = admin.accept("/apis", &kubectl).await;
    assert_eq!(
        (got.header("content-type"), got.json()["kind"].as_str()),
        (v2, Some("APIGroupDiscoveryList"))
    );
    let again =
        admin.send("GET", "/apis", &[("accept", &kubectl), ("if-none-match", got.header("etag"))], "").await;
    assert_eq!((again.code, again.body.len(), again.header("etag")), (304, 0, got.header("etag")));
    assert_eq!(
        admin
            .send("GET", "/api", &[("accept", &kubectl), ("if-none-match", got.header("etag"))], "")
            .await
            .code,
        200
    );
    let binary = "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let packed = admin.accept("/apis", &format!("{binary},{v2}")).await;
    assert_eq!((packed.header("content-type"), packed.header("cache-control")), (binary, "public"));
    assert!(packed.body.starts_with(b"k8s\0"));
    assert_ne!(packed.header("etag"), got.header("etag"));
    let old = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
    assert_eq!(admin.accept("/apis", old).await.json()["kind"], "APIGroupList");
}

#[tokio::test]
async fn openapi_is_served_by_content() {
    let server = Running::start(|_| {}).await;
    let admin = server.admin();
    for prefix in ["", "/projects/web"] {
        let index = admin.get(&format!("{prefix}/openapi/v3")).await.json();
        let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
        assert!(url.starts_with(&format!("{prefix}/openapi/v3/apis/apps/v1?hash=")), "{url}");
        let got = admin.get(&url).await;
        assert_eq!((got.code, got.header("cache-control")), (200, "public, immutable, max-age=31536000"));
        assert!(got.json()["components"]["schemas"]["io.k8s.api.apps.v1.Deployment"].is_object());
        let again = admin.send("GET", &url, &[("if-none-match", got.header("etag"))], "").await;
        assert_eq!(again.code, 304);
        let old = admin.get(&format!("{prefix}/openapi/v3/apis/apps/v1?hash=OLD")).await;
        assert_eq!((old.code, old.header("location")), (301, url.as_str()));
    }
    let v2 = admin.get("/openapi/v2").await;
    assert_eq!((v2.header("content-type"), &v2.json()["swagger"]), ("application/json", &json!("2.0")));
    // Those who take it get what is kept, as it is, and others get it unpacked: the same document.
    for _ in 0..2 {
        let packed = admin.send("GET", "/openapi/v2", &[("accept-encoding", "gzip")], "").await;
        assert_eq!((packed.header("content-encoding"), v2.header("content-encoding")), ("gzip", ""));
        assert_eq!(packed.header("vary"), "Accept-Encoding");
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(&*packed.body).read_to_end(&mut unpacked).unwrap();
        assert!(unpacked == v2.body, "another document of {} bytes", unpacked.len());
    }
    let known = admin.send("GET", "/openapi/v2", &[("if-none-match", v2.header("etag"))], "").await;
    assert_eq!((known.code, known.body.len()), (304, 0));
    let protobuf =
        admin.accept("/openapi/v2", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf").await;
    assert_eq!(protobuf.header("content-type"), "application/com.github.proto-openapi.spec.v2.v1.0+protobuf");
    assert_eq!(admin.accept("/openapi/v2", "text/html").await.code, 406);
    assert_eq!(admin.get("/openapi/v3/apis/none/v1").await.code, 404);
}

#[tokio::test]
async fn health_says_what_is_wrong_but_not_why() {
    let server = Running::start(|_| {}).await;
    let nobody = server.client(None);
    assert_eq!(nobody.get("/readyz").await.text(), "ok");
    assert_eq!(
        nobody.get("/readyz?verbose").await.text(),
        "[+]ping ok\n[+]store ok\n[+]shutdown ok\nreadyz check passed\n"
    );
    server.memory.healthy.store(false, SeqCst);
    let failed = nobody.get("/readyz").await;
    assert_eq!(
        (failed.code, failed.text()),
        (500, "[+]ping ok\n[-]store failed: reason withheld\n[+]shutdown ok\nreadyz check failed\n".into())
    );
    assert_eq!(nobody.get("/livez").await.text(), "ok");
    assert_eq!(nobody.get("/readyz?exclude=store").await.code, 200);
    let unknown = nobody.get("/readyz?exclude=store&exclude=x&verbose").await.text();
    assert!(
        unknown.contains("[+]store excluded: ok\n") && unknown.contains("no matches for \"x\"\n"),
        "{unknown}"
    );
    assert_eq!(server.admin().get("/readyz/ping").await.text(), "ok");
    assert!(server.admin().get("/readyz/store").await.text().contains("secret reason"));
    assert!(!server.admin().get("/projects/web/readyz/store").await.text().contains("secret"));
}

#[tokio::test]
async fn keys_and_metrics_are_served() {
    let server = Running::start(|_| {}).await;
    let admin = server.admin();
    let keys = admin.get("/projects/web/openid/v1/jwks").await;
    assert_eq!(
        (keys.header("content-type"), &keys.json()["document"]),
        ("application/jwk-set+json", &json!("Keys"))
    );
    assert_eq!(admin.get("/.well-known/openid-configuration").await.json()["document"], "Configuration");
    admin.get("/api/v1/configmaps").await;
    admin.get("/api/v1/made-up-by-a-client").await;
    let metrics = admin.get("/metrics").await.text();
    let line = r#"apiserver_request_total{component="apiserver",verb="LIST",group="",version="v1",resource="configmaps",subresource="",scope="cluster",dry_run="",code="200"} 1"#;
    assert!(metrics.contains(line), "{metrics}");
    assert!(!metrics.contains("made-up"));
}

#[tokio::test]
async fn a_plane_is_deleted_by_its_identifier() {
    let server = Running::start(|_| {}).await;
    let gone = server.admin().send("DELETE", "/planes/p1", &[], "").await;
    assert_eq!((gone.code, &gone.json()["details"]["name"]), (200, &json!("p1")));
    assert_eq!(
        server.client(Some(("jane", &[], None))).send("DELETE", "/planes/p1", &[], "").await.code,
        403
    );
    assert_eq!(server.admin().send("DELETE", "/projects/web", &[], "").await.code, 405);
}
