use crate::client::{PATIENCE, Pki, Running, read, request};
use freehold_apiserver_server::{Authorities, Payload};
use freehold_pki::ClientName;
use http::Response;
use hyper_util::rt::TokioIo;
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::time::timeout;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DAY: Duration = Duration::from_secs(86400);

#[tokio::test]
async fn certificates_are_replaced_while_it_runs() {
    let server = Running::start(|_| {}).await;
    let old = server.admin();
    assert_eq!(old.get(MAPS).await.code, 200);
    let next = Pki::new();
    let authorities = Authorities { clients: next.clients.cert_pem().to_owned(), front_proxies: Vec::new() };
    server.reload.authorities(&authorities).unwrap();
    assert!(old.connect("http/1.1").await.is_ok(), "the handshake's refusal comes with the first read");
    let name = ClientName { user: "admin", groups: &["system:masters".to_owned()], plane: None };
    let pair = next.clients.issue_client(&name, DAY).unwrap();
    assert_eq!(server.client_with(&pair).get(MAPS).await.code, 200);
    assert!(
        server
            .reload
            .authorities(&Authorities { clients: "nonsense".into(), front_proxies: Vec::new() })
            .is_err()
    );
    assert_eq!(server.client_with(&pair).get(MAPS).await.code, 200, "the last good ones stay");
    let other = next.servers.issue_server(&["127.0.0.1"], DAY).unwrap();
    server.reload.certificate(other.cert_pem.as_bytes(), other.key_pem.as_bytes()).unwrap();
    assert!(
        server.client(None).connect("http/1.1").await.is_err(),
        "signed by an authority that the client does not know"
    );
}

#[tokio::test]
async fn a_connection_ends_with_the_authority_that_vouched_for_it() {
    let server = Running::start(|_| {}).await;
    let client = server.admin();
    let io = TokioIo::new(client.connect("http/1.1").await.unwrap());
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    let connection = tokio::spawn(connection);
    let host = client.address.to_string();
    let mut ask = async || {
        read(sender.send_request(request("GET", MAPS, &[("host", &host)], "")).await.unwrap()).await.code
    };
    assert_eq!(ask().await, 200);
    let next = Pki::new();
    let clients = |clients: String| Authorities { clients, front_proxies: Vec::new() };
    let own = server.pki.clients.cert_pem();
    server.reload.authorities(&clients(format!("{own}{}", next.clients.cert_pem()))).unwrap();
    assert_eq!(ask().await, 200, "one authority more is no reason");
    server.reload.authorities(&clients(next.clients.cert_pem().to_owned())).unwrap();
    drop(timeout(PATIENCE, connection).await.expect("the connection ends"));
}

#[tokio::test]
async fn grpc_for_etcd_is_handed_over_with_the_identity_of_its_peer() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let server = Running::start(|config| {
        let seen = seen.clone();
        config.etcd = Some(Arc::new(move |request, user| {
            seen.lock().unwrap().push(format!("{} {:?} {}", user.name, user.plane, request.uri().path()));
            Box::pin(async { Response::new(Payload::empty()) })
        }));
    })
    .await;
    let grpc = [("content-type", "application/grpc")];
    let bound = server.client(Some(("pair", &[], Some("p1"))));
    assert_eq!(bound.send_http2("POST", "/etcdserverpb.KV/Range", &grpc).await.code, 200);
    assert_eq!(server.client(None).send_http2("POST", "/etcdserverpb.KV/Put", &grpc).await.code, 200);
    assert_eq!(bound.send_http2("POST", "/etcdserverpb.KV/Range", &[]).await.code, 401, "not gRPC");
    server.begin_stop();
    server.stopped().await;
    let expected =
        ["pair Some(plane p1) /etcdserverpb.KV/Range", "system:anonymous None /etcdserverpb.KV/Put"];
    assert_eq!(*seen.lock().unwrap(), expected);
}
