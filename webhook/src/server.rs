//! The webhook's HTTPS server.

use crate::Reviewer;
use crate::certificates::Serving;
use bytes::Bytes;
use freehold_runtime::accept;
use http::{Method, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// Most bytes of a review: an object of 3 MiB twice, and some.
const MAX_BODY: usize = 8 << 20;
/// Connections at once. An API server needs few.
const MAX_CONNECTIONS: usize = 1024;
/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a client may be silent between two requests' headers.
const HEADERS: Duration = Duration::from_secs(30);

/// Serves reviews until the token is cancelled.
///
/// # Errors
/// TLS that cannot be configured.
pub(crate) async fn serve(
    listener: TcpListener,
    serving: Arc<Serving>,
    reviewer: Arc<dyn Reviewer>,
    token: CancellationToken,
) -> Result<(), rustls::Error> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(serving);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let serve = |stream| connection(stream, acceptor.clone(), reviewer.clone());
    accept(&listener, MAX_CONNECTIONS, token, serve).await;
    Ok(())
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, reviewer: Arc<dyn Reviewer>) {
    let _ = stream.set_nodelay(true);
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else { return };
    let service = service_fn(move |request| {
        let reviewer = reviewer.clone();
        async move { Ok::<_, Infallible>(answer(request, &reviewer).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(hyper_util::rt::TokioTimer::new()).header_read_timeout(HEADERS);
    builder.http2().timer(hyper_util::rt::TokioTimer::new());
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "a connection of the webhook ended");
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response
}

async fn answer(request: http::Request<Incoming>, reviewer: &Arc<dyn Reviewer>) -> Response<Full<Bytes>> {
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/livez") => plain(StatusCode::OK, "ok"),
        (&Method::GET, "/readyz") if reviewer.is_ready() => plain(StatusCode::OK, "ok"),
        (&Method::POST, _) if reviewer.is_ready() => review(request, reviewer).await,
        (&Method::GET, "/readyz") | (&Method::POST, _) => {
            plain(StatusCode::SERVICE_UNAVAILABLE, "objects are still being read")
        }
        _ => plain(StatusCode::NOT_FOUND, "not found"),
    }
}

async fn review(request: http::Request<Incoming>, reviewer: &Arc<dyn Reviewer>) -> Response<Full<Bytes>> {
    let (parts, body) = request.into_parts();
    let Ok(body) = Limited::new(body, MAX_BODY).collect().await else {
        return plain(StatusCode::PAYLOAD_TOO_LARGE, "the review is too large");
    };
    let Ok(review) = serde_json::from_slice(&body.to_bytes()) else {
        return plain(StatusCode::BAD_REQUEST, "the review is not JSON");
    };
    let Some(answer) = reviewer.review(parts.uri.path(), review).await else {
        return plain(StatusCode::NOT_FOUND, "not found");
    };
    let mut response = Response::new(Full::new(Bytes::from(answer.to_string())));
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}
