//! The kubelet of projects' Nodes: logs and streams, passed on to the API servers of clusters.
//!
//! Only the core servers are let in, by a certificate of the platform's authority that is bound to no plane; they say for
//! which plane they ask.

use crate::cluster::Cluster;
use crate::world::{Place, World};
use anyhow::Context as _;
use bytes::Bytes;
use freehold_client::RawRequest;
use freehold_machinery::PlaneId;
use freehold_pki::CertificateInfo;
use freehold_runtime::Key;
use freehold_workloads_decide::streams::{self, KubeletRequest};
use futures_util::StreamExt as _;
use http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{RootCertStore, ServerConfig, server::WebPkiClientVerifier};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::sync::CancellationToken;

/// How many connections there can be at once.
const MAX_CONNECTIONS: usize = 2048;
/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Headers of a client that say what it speaks on a stream.
const SPOKEN: [HeaderName; 6] = [
    header::CONNECTION,
    header::UPGRADE,
    header::SEC_WEBSOCKET_KEY,
    header::SEC_WEBSOCKET_PROTOCOL,
    header::SEC_WEBSOCKET_VERSION,
    HeaderName::from_static("x-stream-protocol-version"),
];
/// Headers of a cluster's answer that say what is spoken.
const AGREED: [HeaderName; 5] = [
    header::CONNECTION,
    header::UPGRADE,
    header::SEC_WEBSOCKET_ACCEPT,
    header::SEC_WEBSOCKET_PROTOCOL,
    HeaderName::from_static("x-stream-protocol-version"),
];

type Body = UnsyncBoxBody<Bytes, io::Error>;

/// How the kubelet of projects' Nodes is served. Certificates and keys are PEM.
#[derive(Clone)]
pub struct KubeletServer {
    /// Where to listen; port 0 picks a free one.
    pub listen: SocketAddr,
    /// Where core servers reach it, where that is not the address that it listens to.
    pub advertise: Option<SocketAddr>,
    /// The server's certificate.
    pub cert_pem: String,
    /// Its key.
    pub key_pem: String,
    /// Who signs the certificates of core servers.
    pub client_ca_pem: String,
    /// The common name of core servers.
    pub client_name: String,
}

impl std::fmt::Debug for KubeletServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KubeletServer").field("listen", &self.listen).finish_non_exhaustive()
    }
}

/// A kubelet server that has its port.
pub(crate) struct Bound {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    client_name: String,
    pub(crate) address: SocketAddr,
}

impl Bound {
    /// Binds the port.
    ///
    /// # Errors
    /// Certificates that can't be used, or a port that is taken.
    pub(crate) async fn bind(config: &KubeletServer) -> anyhow::Result<Self> {
        let acceptor = TlsAcceptor::from(tls(config)?);
        let listener = TcpListener::bind(config.listen).await.with_context(|| config.listen.to_string())?;
        let address = match config.advertise {
            Some(address) => address,
            None => listener.local_addr()?,
        };
        Ok(Self { listener, acceptor, client_name: config.client_name.clone(), address })
    }

    /// Serves until the token is cancelled.
    pub(crate) async fn run(self, world: Arc<World>, token: CancellationToken) {
        let (acceptor, name) = (self.acceptor, Arc::<str>::from(self.client_name));
        let serve = |stream| connection(stream, acceptor.clone(), name.clone(), world.clone());
        freehold_runtime::accept(&self.listener, MAX_CONNECTIONS, token.clone(), serve).await;
    }
}

fn tls(config: &KubeletServer) -> anyhow::Result<Arc<ServerConfig>> {
    let certificates = |pem: &str| -> anyhow::Result<Vec<CertificateDer<'static>>> {
        CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().context("certificate")
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&config.client_ca_pem)? {
        roots.add(certificate).context("authority of core servers")?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build()?;
    let key = PrivateKeyDer::from_pem_slice(config.key_pem.as_bytes()).context("serving key")?;
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(certificates(&config.cert_pem)?, key)?;
    Ok(Arc::new(config))
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, name: Arc<str>, world: Arc<World>) {
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else { return };
    let allowed = is_core(&stream, &name);
    let service = service_fn(|request: Request<Incoming>| {
        let world = world.clone();
        async move {
            let answer = match allowed {
                true => answer(&world, request).await,
                false => plain(StatusCode::FORBIDDEN, "Forbidden"),
            };
            Ok::<_, std::convert::Infallible>(answer)
        }
    });
    let server = auto::Builder::new(TokioExecutor::new());
    if let Err(error) = server.serve_connection_with_upgrades(TokioIo::new(stream), service).await {
        tracing::debug!(error, "a connection of a core server failed");
    }
}

/// Whether a client is a core server: one of a plane has a certificate that is bound to it.
fn is_core(stream: &TlsStream<TcpStream>, name: &str) -> bool {
    let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let info = certificate.and_then(|der| CertificateInfo::parse(der).ok());
    info.is_some_and(|info| info.common_name == name && info.planes().is_empty())
}

async fn answer(world: &World, request: Request<Incoming>) -> Response<Body> {
    let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
    let Some(wanted) = streams::parse(path, query) else {
        return plain(StatusCode::NOT_FOUND, "404 page not found");
    };
    let Some(cluster) = cluster_of(world, &wanted) else {
        let why = format!("pod {:?} runs on no cluster that is reached", wanted.pod);
        return plain(StatusCode::NOT_FOUND, &why);
    };
    match (wanted.is_stream, request.method()) {
        (true, &Method::GET | &Method::POST) => stream(&cluster, &wanted, request).await,
        (false, &Method::GET) => log(&cluster, &wanted).await,
        _ => plain(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed"),
    }
}

/// The cluster that a project's Pod runs on, if the syncer made it there.
fn cluster_of(world: &World, wanted: &KubeletRequest) -> Option<Arc<Cluster>> {
    let plane: PlaneId = wanted.plane.parse().ok()?;
    let Place::On(placed) = world.place(&plane) else { return None };
    let key = Key::new(plane, &wanted.namespace, &wanted.pod);
    let pod = placed.cluster.pods.get(&placed.cluster.key(&key))?;
    (pod.of == key).then_some(placed.cluster)
}

async fn log(cluster: &Cluster, wanted: &KubeletRequest) -> Response<Body> {
    match cluster.client.forward(&RawRequest::get(&wanted.host_path)).await {
        Ok((status, _, download)) => {
            let pieces = download.into_stream().map(|piece| piece.map(Frame::data).map_err(io::Error::other));
            respond(status, UnsyncBoxBody::new(StreamBody::new(pieces)))
        }
        Err(error) => unreachable(&error),
    }
}

async fn stream(
    cluster: &Cluster,
    wanted: &KubeletRequest,
    mut request: Request<Incoming>,
) -> Response<Body> {
    let mut asked = RawRequest::new(request.method().clone(), &wanted.host_path);
    asked.headers = chosen(request.headers(), &SPOKEN);
    let (headers, mut host) = match cluster.client.upgrade(&asked).await {
        Ok(upgraded) => upgraded,
        Err(freehold_client::Error::Api(status)) => {
            let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::BAD_GATEWAY);
            return plain(code, &status.message);
        }
        Err(error) => return unreachable(&error),
    };
    let client = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let Ok(client) = client.await else { return };
        // Whoever ends it first has ended it.
        let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut host).await;
    });
    let mut response = Response::new(
        Full::default().map_err(|never: std::convert::Infallible| match never {}).boxed_unsync(),
    );
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *response.headers_mut() = chosen(&headers, &AGREED);
    response
}

fn chosen(from: &HeaderMap, names: &[HeaderName]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for name in names {
        for value in from.get_all(name) {
            headers.append(name, value.clone());
        }
    }
    headers
}

fn unreachable(error: &freehold_client::Error) -> Response<Body> {
    plain(StatusCode::BAD_GATEWAY, &format!("the cluster does not answer: {error}"))
}

fn plain(status: StatusCode, text: &str) -> Response<Body> {
    let body = Full::new(Bytes::from(format!("{text}\n"))).map_err(|never| match never {}).boxed_unsync();
    respond(status, body)
}

fn respond(status: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let text = http::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, text);
    response
}
