//! What browsers are told, and connections without a certificate.

use crate::client::{Answer, Running};
use freehold_apiserver_server::Origins;
use http::HeaderMap;

const PAGE: (&str, &str) = ("origin", "https://console.example.com");

fn cors(headers: &HeaderMap) -> Vec<String> {
    let names = headers.keys().map(|name| name.as_str().to_owned());
    names.filter(|name| name.starts_with("access-control-")).collect()
}

#[tokio::test]
async fn pages_may_send_requests_only_where_an_operator_says_so() {
    let closed = Running::start(|_| {}).await;
    for method in ["GET", "OPTIONS"] {
        let answer = closed.client(None).send(method, "/livez", &[PAGE], "").await;
        assert_eq!(cors(&answer.headers), [""; 0], "{method}");
    }
    let open = Running::start(|config| {
        config.origins = Origins::parse(&["^https://console\\.example\\.com$"]).unwrap();
    })
    .await;
    let preflight = open.client(None).send("OPTIONS", "/api/v1/namespaces", &[PAGE], "").await;
    assert_eq!((preflight.code, preflight.header("access-control-allow-origin")), (204, PAGE.1));
    assert!(preflight.header("access-control-allow-methods").contains("PATCH"));
    let answer = open.client(None).send("GET", "/livez", &[PAGE], "").await;
    assert_eq!((answer.code, answer.header("access-control-allow-credentials")), (200, "true"));
    for other in ["https://console.example.com.evil.net", "http://console.example.com", "null"] {
        let answer = open.client(None).send("GET", "/livez", &[("origin", other)], "").await;
        assert_eq!(cors(&answer.headers), [""; 0], "{other}");
    }
}

#[tokio::test]
async fn a_browser_is_told_not_to_guess_frame_or_lead_on() {
    let server = Running::start(|config| config.strict_transport = "max-age=31536000".to_owned()).await;
    let protected = |answer: &Answer| {
        ["x-content-type-options", "x-frame-options", "content-security-policy", "referrer-policy"]
            .map(|name| answer.headers.contains_key(name))
    };
    let shown = server.client(None).accept("/version", "text/html,application/xhtml+xml,*/*;q=0.8").await;
    assert_eq!(protected(&shown), [true; 4]);
    assert_eq!(shown.header("strict-transport-security"), "max-age=31536000");
    let fetched = server.client(None).send("GET", "/version", &[("sec-fetch-mode", "cors")], "").await;
    assert_eq!(protected(&fetched), [true; 4]);
    let program = server.client(None).accept("/version", "application/json").await;
    assert_eq!(protected(&program), [false; 4]);
}

#[tokio::test]
async fn where_certificates_are_needed_nothing_else_gets_a_connection() {
    let server = Running::start(|config| config.certificates_only = true).await;
    assert_eq!(server.admin().get("/livez").await.code, 200);
    // In TLS 1.3 the refusal comes with the first read.
    let answered = match server.client(None).connect("http/1.1").await {
        Err(_) => false,
        Ok(mut stream) => {
            use tokio::io::{AsyncReadExt, AsyncWriteExt};
            let _ = stream.write_all(b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n").await;
            let mut first = [0; 1];
            matches!(stream.read(&mut first).await, Ok(1))
        }
    };
    assert!(!answered, "a client without a certificate was answered");
}
