//! Requests to other servers: dedicated pairs and nodes, over TLS with a client certificate.
//!
//! HTTP/1.1 with pooled connections. A watch then has a connection of its own: it can't use up the streams that the
//! requests of others need, and an upgrade needs no second way.

use crate::{payload::Payload, tls::ClientTls};
use freehold_apiserver_outbound::Secure;
use futures_util::future::BoxFuture;
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioTimer},
};
use rustls_pki_types::ServerName;
use std::{
    io,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;

/// Longest time to connect, and again for the TLS handshake.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a connection is kept that nobody uses: shorter than the servers behind keep it.
const IDLE: Duration = Duration::from_secs(20);
/// How many such connections are kept for one server.
const KEPT: usize = 8;

/// A pool of connections to servers of one kind.
pub struct Upstream {
    client: Client<Connector, Payload>,
}

impl Upstream {
    /// Connects as `tls` says.
    pub fn new(tls: ClientTls) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(KEPT)
            .build(Connector(tls));
        Self { client }
    }

    /// Sends a request. Its URI is one of [`address`]'s.
    ///
    /// # Errors
    /// Fails where the server cannot be reached, does not prove its name, or breaks off before its answer begins.
    pub async fn send(&self, request: Request<Payload>) -> Result<Response<Incoming>, SendError> {
        self.client.request(request).await.map_err(SendError)
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[error("{}", root(.0))]
pub struct SendError(hyper_util::client::legacy::Error);

fn root(error: &hyper_util::client::legacy::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        text = inner.to_string();
        source = inner.source();
    }
    text
}

/// The URI of a path on a server that is reached at `host:port` and must prove to be `server_name`.
///
/// The name goes where a URL has its user, because the pool keeps connections apart by the authority.
///
/// # Errors
/// Fails where the parts make no URI.
pub fn address(endpoint: &str, server_name: &str, path_and_query: &str) -> Result<Uri, http::Error> {
    let endpoint = endpoint.strip_prefix("https://").unwrap_or(endpoint);
    Uri::builder()
        .scheme("https")
        .authority(format!("{server_name}@{endpoint}"))
        .path_and_query(path_and_query)
        .build()
}

#[derive(Clone)]
struct Connector(ClientTls);

impl tower::Service<Uri> for Connector {
    type Response = Secure;
    type Error = io::Error;
    type Future = BoxFuture<'static, Result<Secure, io::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(connect(self.0.clone(), uri))
    }
}

async fn connect(tls: ClientTls, uri: Uri) -> io::Result<Secure> {
    let authority = uri.authority().map_or("", |a| a.as_str());
    let (name, endpoint) = authority.rsplit_once('@').ok_or_else(|| io::Error::other("no server name"))?;
    let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
    let stream = timeout(CONNECT, TcpStream::connect(endpoint)).await??;
    stream.set_nodelay(true)?;
    let stream = timeout(CONNECT, TlsConnector::from(tls.load()).connect(name, stream)).await??;
    Ok(Secure::new(stream))
}
