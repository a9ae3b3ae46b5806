//! The client against a server that is a closure.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use freehold_client::{
    Client, Config, Error, Identity, ListOptions, RawRequest, Resource, WatchEvent, WatchOptions,
};
use http::{Request, Response, Version};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::BoxBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;

type Body = BoxBody<Bytes, Infallible>;
type Handler = Arc<dyn Fn(Request<Incoming>) -> Response<Body> + Send + Sync>;

const PODS: Resource = Resource::namespaced("", "v1", "pods");

struct Server {
    config: Config,
    connections: Arc<AtomicUsize>,
    hang_up: Arc<Notify>,
}

fn full(value: &Value) -> Body {
    Full::new(Bytes::from(value.to_string())).boxed()
}

/// Serves TLS with a certificate of its own, speaking `alpn`.
async fn serve(
    alpn: &[&[u8]],
    handler: impl Fn(Request<Incoming>) -> Response<Body> + Send + Sync + 'static,
) -> Server {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let mut tls =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
    tls.alpn_protocols = alpn.iter().map(|p| p.to_vec()).collect();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}/base", listener.local_addr().unwrap().port());
    let (connections, hang_up) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let server = Server {
        config: Config::new(url, made.cert.pem(), Identity::None),
        connections: connections.clone(),
        hang_up,
    };
    let (handler, hang_up): (Handler, _) = (Arc::new(handler), server.hang_up.clone());
    tokio::spawn(async move {
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        while let Ok((tcp, _)) = listener.accept().await {
            connections.fetch_add(1, Ordering::SeqCst);
            let (acceptor, handler, hang_up) = (acceptor.clone(), handler.clone(), hang_up.clone());
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(tcp).await else { return };
                let service = service_fn(move |request| {
                    let answer = handler(request);
                    async move { Ok::<_, Infallible>(answer) }
                });
                let builder = auto::Builder::new(TokioExecutor::new());
                tokio::select! {
                    _ = builder.serve_connection(TokioIo::new(stream), service) => {}
                    () = hang_up.notified() => {}
                }
            });
        }
    });
    server
}

#[tokio::test]
async fn concurrent_requests_share_one_http2_connection() {
    let server = serve(&[b"h2", b"http/1.1"], |request| {
        assert_eq!(request.version(), Version::HTTP_2);
        Response::new(full(&json!({"path": request.uri().path()})))
    })
    .await;
    let client = Client::new(&server.config).unwrap();
    let gets = (0..40).map(|i| {
        let client = client.at("/planes/infra");
        async move { client.get(&PODS, Some("n"), &format!("p{i}")).await.unwrap()["path"].clone() }
    });
    let paths = futures_util::future::join_all(gets).await;
    assert_eq!(paths[7], "/base/planes/infra/api/v1/namespaces/n/pods/p7");
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_server_without_http2_is_spoken_to_in_http1_over_kept_connections() {
    let server = serve(&[b"http/1.1"], |request| {
        assert_eq!(request.version(), Version::HTTP_11);
        assert!(request.headers().contains_key("host"));
        Response::new(full(&json!({"path": request.uri().to_string()})))
    })
    .await;
    let client = Client::new(&server.config).unwrap();
    for _ in 0..3 {
        assert_eq!(client.get_path("/version").await.unwrap()["path"], "/base/version");
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_connection_that_the_server_closed_is_replaced() {
    let server = serve(&[b"h2"], |_| Response::new(full(&json!({})))).await;
    let client = Client::new(&server.config).unwrap();
    client.get_path("/version").await.unwrap();
    server.hang_up.notify_waiters();
    client.get_path("/version").await.unwrap();
    assert_eq!(server.connections.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_busy_server_is_asked_again() {
    let asked = AtomicUsize::new(0);
    let server = serve(&[b"h2"], move |_| match asked.fetch_add(1, Ordering::SeqCst) {
        0 => Response::builder().status(429).header("retry-after", "0").body(full(&json!({}))).unwrap(),
        _ => Response::new(full(&json!({"ok": true}))),
    })
    .await;
    let object = json!({"metadata": {"name": "a", "namespace": "n"}});
    assert_eq!(Client::new(&server.config).unwrap().create(&PODS, &object).await.unwrap()["ok"], true);
}

#[tokio::test]
async fn a_list_is_read_page_by_page() {
    let server = serve(&[b"h2"], |request| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let (name, next) = if query.contains("continue=next") { ("b", "") } else { ("a", "next") };
        Response::new(full(&json!({
            "kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "9", "continue": next},
            "items": [{"metadata": {"name": name}}],
        })))
    })
    .await;
    let list =
        Client::new(&server.config).unwrap().list_all(&PODS, None, &ListOptions::default()).await.unwrap();
    let names: Vec<&str> = list.items.iter().map(freehold_machinery::meta::name).collect();
    assert_eq!(names, ["a", "b"]);
}

#[tokio::test]
async fn a_watch_yields_events_that_are_split_over_frames() {
    let server = serve(&[b"h2"], |_| {
        let text = "{\"type\":\"ADDED\",\"object\":{\"a\":1}}\n{\"type\":\"DELETED\",\"object\":{}}\n";
        let pieces = [&text[..5], &text[5..40], &text[40..]]
            .map(|p| Ok(Frame::data(Bytes::copy_from_slice(p.as_bytes()))));
        Response::new(StreamBody::new(futures_util::stream::iter(pieces)).boxed())
    })
    .await;
    let client = Client::new(&server.config).unwrap();
    let mut watch = client.watch(&PODS, None, &WatchOptions::default()).await.unwrap();
    assert_eq!(watch.next().await.unwrap().unwrap(), WatchEvent::Added(json!({"a": 1})));
    assert_eq!(watch.next().await.unwrap().unwrap(), WatchEvent::Deleted(json!({})));
    assert!(watch.next().await.is_none());
}

#[tokio::test]
async fn an_answer_over_the_limit_is_refused() {
    let server = serve(&[b"h2"], |_| Response::new(full(&json!({"a": "x".repeat(5000)})))).await;
    let config = Config { max_response_bytes: 1000, ..server.config.clone() };
    let error = Client::new(&config).unwrap().get_path("/x").await.unwrap_err();
    assert!(matches!(error, Error::TooLarge(1000)), "{error}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_in_the_error() {
    let url = "http://127.0.0.1:1";
    let error = Client::new(&Config::new(url, "", Identity::None)).unwrap().get_path("/x").await.unwrap_err();
    assert!(error.to_string().starts_with(&format!("can't reach {url}: ")), "{error}");
    assert!(matches!(error, Error::Transport { sent: false, .. }));
}

#[tokio::test]
async fn answers_that_nobody_reads_leave_room_for_others() {
    use futures_util::StreamExt as _;
    let server = serve(&[b"h2"], |request| match request.uri().path() {
        "/base/large" => Response::new(Full::new(Bytes::from(vec![b'x'; 2 << 20])).boxed()),
        _ => Response::new(full(&json!({}))),
    })
    .await;
    let client = Client::new(&server.config).unwrap();
    let large = RawRequest::get("/large");
    let mut unread = Vec::new();
    for _ in 0..40 {
        unread.push(client.download(&large).await.unwrap());
    }
    let mut read = std::pin::pin!(client.download(&large).await.unwrap().into_stream());
    let mut bytes = 0;
    while let Some(piece) = read.next().await {
        bytes += piece.unwrap().len();
    }
    assert_eq!(bytes, 2 << 20);
    assert_eq!(server.connections.load(Ordering::SeqCst), 1, "all of them share one connection");
    drop(unread);
}
