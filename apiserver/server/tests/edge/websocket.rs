use crate::client::{Client, PATIENCE, Running, request};
use freehold_apiserver_registry::WatchEvent;
use freehold_machinery::{Status, Value};
use hyper_util::rt::TokioIo;
use serde_json::json;
use std::sync::Arc;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::timeout,
};

const WATCH: &str = "/api/v1/namespaces/default/configmaps?watch=1";
const ASKED: [(&str, &str); 5] = [
    ("connection", "Upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ("sec-websocket-version", "13"),
    ("origin", "https://example.com"),
];

async fn opened(
    client: &Client,
    path: &str,
    more: &[(&str, &str)],
) -> impl AsyncRead + AsyncWrite + Unpin + use<> {
    let headers = [&ASKED[..], more].concat();
    let mut response = client.open(request("GET", path, &headers, "")).await;
    assert_eq!(response.status(), 101);
    assert_eq!(response.headers()["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap())
}

/// The next frame: its first byte and payload.
async fn frame(socket: &mut (impl AsyncRead + Unpin)) -> (u8, Vec<u8>) {
    let read = async {
        let first = socket.read_u8().await.unwrap();
        let length = match socket.read_u8().await.unwrap() {
            126 => socket.read_u16().await.unwrap().into(),
            127 => socket.read_u64().await.unwrap(),
            short => short.into(),
        };
        let mut payload = vec![0; length as usize];
        socket.read_exact(&mut payload).await.unwrap();
        (first, payload)
    };
    timeout(PATIENCE, read).await.expect("a frame")
}

async fn event(socket: &mut (impl AsyncRead + Unpin)) -> Value {
    let (first, payload) = frame(socket).await;
    assert_eq!(first, 0x81, "a whole message of text");
    serde_json::from_slice(&payload).unwrap()
}

#[tokio::test]
async fn a_watch_over_a_websocket_has_a_message_for_each_event() {
    let server = Running::start(|_| {}).await;
    let admin = server.admin();
    admin.make("", "a", "1").await;
    let mut socket = opened(&admin, WATCH, &[]).await;
    assert_eq!(event(&mut socket).await["object"]["metadata"]["name"], "a");
    admin.make("", "b", &"x".repeat(70_000)).await;
    let second = event(&mut socket).await;
    assert_eq!((&second["type"], &second["object"]["metadata"]["name"]), (&json!("ADDED"), &json!("b")));
    socket.write_all(&[0x89, 0x82, 1, 2, 3, 4, b'h' ^ 1, b'i' ^ 2]).await.unwrap();
    assert_eq!(frame(&mut socket).await, (0x8a, b"hi".to_vec()), "a ping is answered");
    server.memory.send(WatchEvent::Error(Status::expired("too old")));
    assert_eq!(event(&mut socket).await["object"]["code"], 410);
    assert_eq!(frame(&mut socket).await, (0x88, 1000u16.to_be_bytes().to_vec()), "the error is the last");
}

#[tokio::test]
async fn protobuf_comes_in_binary_messages_and_tables_in_text() {
    let server = Running::start(|_| {}).await;
    let admin = server.admin();
    admin.make("", "a", "1").await;
    let protobuf = ("accept", "application/vnd.kubernetes.protobuf;stream=watch");
    let mut socket = opened(&admin, WATCH, &[protobuf]).await;
    let (first, payload) = frame(&mut socket).await;
    let start = payload.windows(4).position(|w| w == b"k8s\0").expect("an envelope");
    assert_eq!((first, &payload[2..7]), (0x82, &b"ADDED"[..]));
    assert_eq!(freehold_machinery_protobuf::decode(&payload[start..]).unwrap()["kind"], "ConfigMap");
    let mut socket =
        opened(&admin, WATCH, &[("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")]).await;
    assert_eq!(event(&mut socket).await["object"]["kind"], "Table");
}

#[tokio::test]
async fn a_watch_over_a_websocket_ends_with_its_time_its_client_and_its_server() {
    let server = Running::start(|_| {}).await;
    let admin = server.admin();
    let closed = (0x88, 1000u16.to_be_bytes().to_vec());
    let mut timed = opened(&admin, &format!("{WATCH}&timeoutSeconds=1"), &[]).await;
    assert_eq!(frame(&mut timed).await, closed);
    let mut left = opened(&admin, WATCH, &[]).await;
    left.write_all(&[0x88, 0x80, 0, 0, 0, 0]).await.unwrap();
    assert_eq!(frame(&mut left).await, closed);
    let freed = async {
        while Arc::strong_count(&server.memory.watches) > 1 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, freed).await.expect("watches are dropped with their clients");
    let mut stopped = opened(&admin, WATCH, &[]).await;
    server.begin_stop();
    assert_eq!(frame(&mut stopped).await, closed);
    server.stopped().await;
}

#[tokio::test]
async fn what_is_refused_is_refused_before_a_websocket_is_opened() {
    let server = Running::start(|_| {}).await;
    let ask =
        async |headers: &[(&str, &str)], path: &str| server.admin().send("GET", path, headers, "").await;
    assert_eq!(ask(&ASKED, &format!("{WATCH}&resourceVersion=1")).await.code, 410);
    assert_eq!(ask(&ASKED[..4], WATCH).await.code, 403, "no origin");
    let version = ask(&[&ASKED[..3], &[("sec-websocket-version", "8"), ASKED[4]]].concat(), WATCH).await;
    assert_eq!((version.code, version.header("sec-websocket-version")), (400, "13"));
    let stranger = server.client(None);
    let token = ("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.?, v1");
    assert_eq!(stranger.send("GET", WATCH, &[&ASKED[..], &[token]].concat(), "").await.code, 401);
    // What is no watch is answered as ever.
    assert_eq!(ask(&ASKED, "/api/v1/namespaces/default/configmaps").await.code, 200);
}
