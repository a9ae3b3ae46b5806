use crate::client::{Lines, PATIENCE, Running};
use std::{sync::atomic::Ordering::SeqCst, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Sends raw bytes over TLS and reads to the end.
async fn raw(server: &Running, bytes: &[u8]) -> String {
    let mut stream = server.admin().connect("http/1.1").await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    // A server that refuses may cut the connection while we still write.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("an end");
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn both_versions_of_http_are_spoken() {
    let server = Running::start(|_| {}).await;
    let admin = server.admin();
    admin.make("", "a", "1").await;
    let got = admin.send_http2("GET", &format!("{MAPS}/a"), &[]).await;
    assert_eq!((got.code, got.json()["data"]["k"].as_str().unwrap().to_owned()), (200, "1".to_owned()));
}

#[tokio::test]
async fn a_head_that_is_too_large_or_strange_is_refused() {
    let server = Running::start(|_| {}).await;
    let large = format!("GET / HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "y".repeat(80 * 1024));
    let answer = raw(&server, large.as_bytes()).await;
    // The refusal can be lost, because the connection is cut while more of the head arrives.
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
    let many = format!("GET / HTTP/1.1\r\nhost: x\r\n{}\r\n", "x: y\r\n".repeat(600));
    let answer = raw(&server, many.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    // Groups of an impersonated user, for one.
    let several =
        format!("GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{}\r\n", "x: y\r\n".repeat(400));
    assert!(raw(&server, several.as_bytes()).await.starts_with("HTTP/1.1 200 "));
    for target in ["http://other.example.com/api", "/api/%zz"] {
        let head = format!("GET {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        assert!(raw(&server, head.as_bytes()).await.starts_with("HTTP/1.1 400 "), "{target}");
    }
    assert!(raw(&server, b"NONSENSE\r\n\r\n").await.starts_with("HTTP/1.1 400 "));
}

#[tokio::test]
async fn silent_connections_are_closed() {
    let short = Duration::from_millis(100);
    let server = Running::start(|config| config.limits.handshake = short).await;
    let mut no_tls = TcpStream::connect(server.address).await.unwrap();
    assert_eq!(timeout(PATIENCE, no_tls.read(&mut [0; 8])).await.unwrap().unwrap(), 0);
    // Whose handshake may take its time.
    let server = Running::start(|config| config.limits.head_time = short).await;
    for alpn in ["http/1.1", "h2"] {
        let mut silent = server.admin().connect(alpn).await.unwrap();
        let _ = timeout(PATIENCE, silent.read_to_end(&mut Vec::new())).await.expect("an end");
    }
}

#[tokio::test]
async fn connections_beyond_the_limit_are_closed() {
    let server = Running::start(|config| config.limits.connections = 1).await;
    let admin = server.admin();
    let mut lines = Lines::of(&admin, &format!("{MAPS}?watch=1"), "*/*").await;
    assert!(admin.connect("http/1.1").await.is_err());
    server.begin_stop();
    assert_eq!(lines.next().await, None);
}

#[tokio::test]
async fn a_stop_ends_watches_cleanly_and_lets_requests_finish() {
    let server = Running::start(|_| {}).await;
    let admin = server.admin();
    let mut lines = Lines::of(&admin, &format!("{MAPS}?watch=1"), "*/*").await;
    let slow = tokio::spawn({
        let admin = admin.clone();
        async move { admin.get(&format!("{MAPS}/slow")).await.code }
    });
    while server.memory.slow.load(SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    server.begin_stop();
    assert_eq!(lines.next().await, None);
    server.memory.go.notify_one();
    assert_eq!(slow.await.unwrap(), 404);
    server.stopped().await;
    assert!(admin.connect("http/1.1").await.is_err());
}

#[tokio::test]
async fn a_stop_does_not_wait_for_a_request_that_hangs() {
    let server = Running::start(|config| config.limits.drain = Duration::from_millis(200)).await;
    let admin = server.admin();
    let hanging = tokio::spawn(async move {
        admin.open(crate::client::request("GET", &format!("{MAPS}/slow"), &[], "")).await
    });
    while server.memory.slow.load(SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    server.begin_stop();
    server.stopped().await;
    assert!(hanging.await.is_err(), "cut off");
}
