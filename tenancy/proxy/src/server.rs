//! The proxy's HTTPS server.

use crate::access::Access;
use crate::across::Issued;
use crate::caller::{Caller, Clients, certified};
use crate::metrics::{ProxyMetrics, Route};
use crate::reply::{self, Reply};
use crate::views::{Refused, Views};
use bytes::Bytes;
use freehold_client::{Client, Config, Error, Identity, RawRequest};
use freehold_machinery::Status;
use freehold_runtime::{Scope, accept};
use freehold_tenancy_decide::admission::User;
use futures_util::TryStreamExt as _;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header, request::Parts};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// Most bytes of a request. API servers take less.
const MAX_BODY: usize = 16 << 20;
/// Connections at once.
const MAX_CONNECTIONS: usize = 4096;
/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a client may be silent between two requests' headers.
const HEADERS: Duration = Duration::from_secs(120);
/// How long the API server may take until an answer begins: longer than the longest request that it allows.
const ANSWER: Duration = Duration::from_secs(70);

/// What a proxy is started with.
pub struct Proxy {
    /// Where it listens.
    pub listener: TcpListener,
    /// The API server, with the proxy's account.
    pub config: Config,
    /// Its certificate and what signed it, PEM.
    pub cert_pem: String,
    /// Its key, PEM.
    pub key_pem: String,
    /// Authorities of client certificates, PEM. Empty: certificates of clients are not asked for.
    pub client_ca_pem: String,
    /// Where it counts.
    pub metrics: ProxyMetrics,
}

/// Why a proxy does not start.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// A certificate or a key cannot be used.
    #[error("TLS of the proxy: {0}")]
    Tls(String),
    /// The API server's address or the account cannot be used.
    #[error("API server: {0}")]
    Client(#[from] Error),
}

struct Inner {
    clients: Arc<Clients>,
    views: Views,
    metrics: ProxyMetrics,
}

impl Proxy {
    /// Starts the proxy on the scope's tasks, whose plane is the one that `config` leads to.
    ///
    /// # Errors
    /// [`ProxyError`] for certificates or an address that cannot be used.
    pub fn start(self, scope: &Scope) -> Result<(), ProxyError> {
        let config = Config { timeout: ANSWER, ..self.config };
        let anonymous = Client::new(&Config { identity: Identity::None, ..config.clone() })?;
        let clients = Arc::new(Clients { anonymous, account: Client::new(&config)? });
        let tls = tls(&self.cert_pem, &self.key_pem, &self.client_ca_pem).map_err(ProxyError::Tls)?;
        let views =
            Views { access: Access::start(scope), clients: clients.clone(), issued: Issued::default() };
        let inner = Arc::new(Inner { clients, views, metrics: self.metrics });
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        scope.tasks.spawn(serve(self.listener, acceptor, inner, scope.token.clone()));
        Ok(())
    }
}

fn tls(cert: &str, key: &str, client_ca: &str) -> Result<ServerConfig, String> {
    let certificates = |pem: &str| {
        let all = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>();
        all.map_err(|e| format!("certificate: {e}"))
    };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?;
    let builder = if client_ca.is_empty() {
        builder.with_no_client_auth()
    } else {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(client_ca)? {
            roots.add(certificate).map_err(|e| format!("authority of clients: {e}"))?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = verifier.allow_unauthenticated().build().map_err(|e| e.to_string())?;
        builder.with_client_cert_verifier(verifier)
    };
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|e| format!("key: {e}"))?;
    let mut config = builder.with_single_cert(certificates(cert)?, key).map_err(|e| e.to_string())?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, inner: Arc<Inner>, token: CancellationToken) {
    let serve = |stream| connection(stream, acceptor.clone(), inner.clone());
    accept(&listener, MAX_CONNECTIONS, token, serve).await;
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, inner: Arc<Inner>) {
    let _ = stream.set_nodelay(true);
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else { return };
    let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let certificate = certificate.map(|der| certified(der));
    let service = service_fn(move |request| {
        let (inner, certificate) = (inner.clone(), certificate.clone());
        async move { Ok::<_, Infallible>(inner.answer(request, certificate).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADERS);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(Duration::from_secs(30));
    if let Err(error) = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "a connection of the proxy ended");
    }
}

fn wants_upgrade(headers: &HeaderMap) -> bool {
    let tokens = headers.get_all(header::CONNECTION).into_iter().filter_map(|v| v.to_str().ok());
    headers.contains_key(header::UPGRADE)
        && tokens.flat_map(|v| v.split(',')).any(|t| t.trim().eq_ignore_ascii_case("upgrade"))
}

impl Inner {
    async fn answer(
        &self,
        request: http::Request<Incoming>,
        certificate: Option<Result<User, String>>,
    ) -> Reply {
        let (route, reply) = match self.caller(&request, certificate) {
            Ok(caller) if wants_upgrade(request.headers()) => {
                (Route::Upgraded, self.upgrade(request, &caller).await)
            }
            Ok(caller) => self.pass(request, &caller).await,
            Err(status) => (Route::Refused, reply::status(&status)),
        };
        self.metrics.count(route, reply.status());
        reply
    }

    fn caller(
        &self,
        request: &http::Request<Incoming>,
        certificate: Option<Result<User, String>>,
    ) -> Result<Caller, Status> {
        let has_token = request.headers().contains_key(header::AUTHORIZATION);
        let user = match certificate.filter(|_| !has_token) {
            Some(Err(why)) => return Err(Status::new(403, "Forbidden", why)),
            Some(Ok(user)) => Some(user),
            None => None,
        };
        Caller::of(request.headers(), user.as_ref())
    }

    /// The request as the caller's; where the API server refuses it, what is the caller's of it.
    async fn pass(&self, request: http::Request<Incoming>, caller: &Caller) -> (Route, Reply) {
        let (head, body) = request.into_parts();
        let Ok(body) = Limited::new(body, MAX_BODY).collect().await else {
            return (Route::Passed, reply::status(&Status::too_large(MAX_BODY)));
        };
        let request = forwarded(&head, caller, body.to_bytes());
        let (status, mut headers, download) = match caller.client(&self.clients).forward(&request).await {
            Ok(answer) => answer,
            Err(error) => return (Route::Passed, reply::failure(&error)),
        };
        if status == StatusCode::FORBIDDEN {
            let (path, query) = (head.uri.path(), head.uri.query().unwrap_or_default());
            let refused = Refused { caller, method: &head.method, path, query, headers: &head.headers };
            if let Some(answered) = self.views.answer(&refused).await {
                return answered;
            }
        }
        reply::remove_hop_by_hop(&mut headers);
        let mut reply = Response::new(reply::stream(download.into_stream().map_err(Into::into)));
        *reply.status_mut() = status;
        *reply.headers_mut() = headers;
        (Route::Passed, reply)
    }

    /// A connection with another protocol, as `exec` and `port-forward` need it.
    async fn upgrade(&self, request: http::Request<Incoming>, caller: &Caller) -> Reply {
        let (mut head, body) = request.into_parts();
        drop(body);
        let protocol = head.headers.get(header::UPGRADE).cloned();
        let mut upstream = forwarded(&head, caller, Bytes::new());
        upstream.headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        if let Some(protocol) = protocol {
            upstream.headers.insert(header::UPGRADE, protocol);
        }
        let (mut headers, mut server) = match caller.client(&self.clients).upgrade(&upstream).await {
            Ok(connected) => connected,
            Err(error) => return reply::failure(&error),
        };
        let Some(client) = head.extensions.remove::<hyper::upgrade::OnUpgrade>() else {
            return reply::status(&Status::bad_request("this connection cannot change its protocol"));
        };
        tokio::spawn(async move {
            match client.await {
                Ok(client) => {
                    let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut server).await;
                }
                Err(error) => tracing::debug!(%error, "failed to change the protocol"),
            }
        });
        headers.remove(header::CONTENT_LENGTH);
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        let mut reply = Response::new(reply::whole(Bytes::new()));
        *reply.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *reply.headers_mut() = headers;
        reply
    }
}

/// The client's request with the caller's identity alone.
fn forwarded(head: &Parts, caller: &Caller, body: Bytes) -> RawRequest {
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut headers = caller.headers(&head.headers);
    // Without one, API servers take what the client library would say.
    headers.entry(header::ACCEPT).or_insert(HeaderValue::from_static("application/json"));
    RawRequest { body, headers, ..RawRequest::new(head.method.clone(), path) }
}
