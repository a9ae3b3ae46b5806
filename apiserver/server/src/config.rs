//! What a server is made from.

use crate::{certificate_tokens::CertificateTokens, origins::Origins};
use freehold_apiserver_audit::Auditor;
use freehold_apiserver_authn::{FrontProxy, peer::RootsError};
use freehold_apiserver_transport::{
    payload::Payload,
    tls::{Certificate, ClientTls, TlsError},
};
use freehold_machinery::{PlaneId, Status};
use freehold_machinery::{User, Value};
use futures_util::future::BoxFuture;
use http::{Request, Response};
use hyper::body::Incoming;
use ipnet::IpNet;
use prometheus_client::registry::Registry;
use std::{io, net::SocketAddr, sync::Arc, time::Duration};

/// What a server is made from.
pub struct Config {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The serving certificate.
    pub certificate: Arc<Certificate>,
    /// What stands behind a project's name in its host name; without it projects have only paths. Lower case.
    pub domain: Option<String>,
    /// Whose client certificates are accepted.
    pub authorities: Authorities,
    /// Who this server is to dedicated pairs; without it they can't be reached.
    pub front_proxy: Option<ClientTls>,
    /// Who this server is to nodes; without it there are no logs.
    pub nodes: Option<ClientTls>,
    /// The Kubernetes version and that of Freehold, as `v1.36.0+freehold-0.1.0`.
    pub version: String,
    /// Sizes, counts and times.
    pub limits: Limits,
    /// Metrics of others, shown together with the server's own.
    pub registry: Registry,
    /// What others in the process count, at the end of `/metrics`: lines in the OpenMetrics format.
    pub more_metrics: Option<MoreMetrics>,
    /// Documents about the process, below `/debug/`.
    pub debug: Option<DebugDocuments>,
    /// Who answers gRPC requests for etcd's services.
    pub etcd: Option<EtcdHandler>,
    /// What is served beside the API.
    pub pages: Option<Pages>,
    /// Groups whose reads others in the process answer.
    pub reads: Vec<ReadApi>,
    /// Where events of requests go.
    pub audit: Option<Arc<Auditor>>,
    /// Networks of proxies whose `X-Forwarded-For` counts; that of front proxies does, wherever they are.
    pub proxies: Vec<IpNet>,
    /// The pages of which browsers may send requests here.
    pub origins: Origins,
    /// `Strict-Transport-Security` for browsers (RFC 6797); empty for none.
    pub strict_transport: String,
    /// Whether a client without a certificate is refused in the handshake.
    pub certificates_only: bool,
}

/// Whose client certificates are accepted. Without any, none is asked for.
#[derive(Clone, Debug, Default)]
pub struct Authorities {
    /// Authorities of users and components
    pub clients: String,
    /// Authorities of front proxies
    pub front_proxies: Vec<FrontProxy>,
}

/// Gives lines in the OpenMetrics format, without an end mark.
pub type MoreMetrics = Arc<dyn Fn() -> String + Send + Sync>;

/// Gives the document of a name below `/debug/`, for administrators; `None` where there is none of that name.
pub type DebugDocuments = Arc<dyn Fn(&str) -> Option<Value> + Send + Sync>;

/// Answers a request for `/etcdserverpb.*` on behalf of a user.
pub type EtcdHandler =
    Arc<dyn Fn(Request<Incoming>, Arc<User>) -> BoxFuture<'static, Response<Payload>> + Send + Sync>;

/// Pages for browsers beside the API: all requests below one path, of whomever.
///
/// The server neither authenticates nor authorizes them: the handler does, or shows nothing that needs it.
#[derive(Clone)]
pub struct Pages {
    /// The path, with a `/` at both ends. The path without the `/` at its end belongs to it.
    pub prefix: &'static str,
    /// Answers a request.
    pub handler: PagesHandler,
    /// Tokens that the handler's own requests to the API may have in place of certificates.
    pub tokens: CertificateTokens,
}

impl Pages {
    /// Whether a path is one of these.
    pub(crate) fn serve(&self, path: &str) -> bool {
        path.starts_with(self.prefix) || self.prefix.strip_suffix('/') == Some(path)
    }
}

/// Answers a request for a page.
pub type PagesHandler = Arc<dyn Fn(Request<Incoming>) -> BoxFuture<'static, Response<Payload>> + Send + Sync>;

/// Sizes, counts and times.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Open connections; further ones are closed at once.
    pub connections: usize,
    /// Requests served at a time that change nothing, long-running ones aside.
    pub read_only: usize,
    /// Requests served at a time that may change something.
    pub mutating: usize,
    /// Bytes of a request's body.
    pub body: usize,
    /// Bytes of a request's head.
    pub head: u32,
    /// Longest TLS handshake.
    pub handshake: Duration,
    /// Longest wait for a request's head, for the first request of a connection too.
    pub head_time: Duration,
    /// Longest time for a request that is not long-running.
    pub request: Duration,
    /// How long requests may go on after a stop.
    pub drain: Duration,
    /// Shortest watch of a client that names no time; each takes between this and twice as long.
    pub watch: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 20_000,
            read_only: 400,
            mutating: 200,
            body: 3 * 1024 * 1024,
            head: 64 * 1024,
            handshake: Duration::from_secs(10),
            head_time: Duration::from_secs(30),
            request: Duration::from_secs(60),
            drain: Duration::from_secs(3),
            watch: Duration::from_secs(30 * 60),
        }
    }
}

/// Why a server can't start.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The address can't be listened on.
    #[error("can't listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The certificates don't work.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The authorities of client certificates don't work.
    #[error(transparent)]
    Authorities(#[from] RootsError),
}

/// A group whose reads another part of the process answers.
#[derive(Clone)]
pub struct ReadApi {
    /// The group.
    pub group: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Answers a read.
    pub handler: ReadHandler,
}

/// A read within a plane that its user may make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaneRead {
    /// The plane.
    pub plane: PlaneId,
    /// The namespace; `None` for all.
    pub namespace: Option<String>,
    /// The namespace's uid: one of the same name before it was another.
    pub namespace_uid: String,
    /// The plural resource.
    pub resource: String,
    /// The name; `None` for a list.
    pub name: Option<String>,
    /// The subresource.
    pub subresource: Option<String>,
    /// The query as it was sent, percent-encoded.
    pub query: String,
}

/// Answers a read, with JSON.
pub type ReadHandler = Arc<dyn Fn(PlaneRead) -> BoxFuture<'static, Result<Vec<u8>, Status>> + Send + Sync>;
