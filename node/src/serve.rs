//! Serves containers' logs, streams into containers and what they use to the apiserver, under kubelet's paths:
//! `/containerLogs/<namespace>/<pod>/<container>`, those of [`crate::streams`] and those of [`crate::usage`].
//!
//! Only a client with a certificate of the configured authority is let in, and only under a configured name: logs can
//! hold secrets of any tenant.

use crate::logbook::{Key, LogBook};
use crate::logs::LogOptions;
use crate::running::RunningContainers;
use crate::streams::{self, Session};
use crate::tls;
use crate::usage::{Form, Usage};
use bytes::Bytes;
use freehold_machinery::time;
use freehold_pki::CertificateInfo;
use futures_util::StreamExt as _;
use futures_util::future::{BoxFuture, Either, ready};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use jiff::{SignedDuration, Timestamp};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

/// How many connections there can be at once.
const MAX_CONNECTIONS: usize = 256;
/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// How many streams into containers there can be at once.
const MAX_STREAMS: usize = 256;
/// Pieces of a log that wait for a slow reader.
const WAITING_PIECES: usize = 8;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// How logs are served. Certificates and keys are PEM.
#[derive(Clone)]
pub struct LogServer {
    /// Where to listen; port 0 picks a free one.
    pub listen: SocketAddr,
    /// The server's certificate.
    pub cert_pem: String,
    /// Its key.
    pub key_pem: String,
    /// Who signs clients' certificates.
    pub client_ca_pem: String,
    /// The common names that clients may have.
    pub client_names: Vec<String>,
}

impl std::fmt::Debug for LogServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogServer").field("listen", &self.listen).finish_non_exhaustive()
    }
}

/// A log server that has its port.
pub(crate) struct Bound {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    names: Arc<[String]>,
    /// The planes that the authority of clients vouches for; none of the platform's.
    planes: Vec<String>,
    logs: Arc<LogBook>,
    containers: Arc<RunningContainers>,
    usage: Arc<Usage>,
    streams: Arc<Semaphore>,
}

impl Bound {
    pub(crate) async fn bind(
        config: &LogServer,
        logs: Arc<LogBook>,
        containers: Arc<RunningContainers>,
        usage: Arc<Usage>,
    ) -> anyhow::Result<Self> {
        let tls = tls::server(&config.cert_pem, &config.key_pem, &config.client_ca_pem)?;
        let planes = bound_planes(&config.client_ca_pem)?;
        let listener = TcpListener::bind(config.listen).await?;
        Ok(Self {
            listener,
            acceptor: TlsAcceptor::from(tls),
            names: config.client_names.clone().into(),
            planes,
            logs,
            containers,
            usage,
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
        })
    }

    pub(crate) fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until the token is cancelled.
    pub(crate) async fn run(self, token: CancellationToken) {
        let (this, stop) = (Arc::new(self), token.clone());
        let serve = |stream| {
            let (this, token) = (this.clone(), token.clone());
            async move { this.connection(stream, &token).await }
        };
        freehold_runtime::accept(&this.listener, MAX_CONNECTIONS, stop, serve).await;
    }

    async fn connection(&self, stream: TcpStream, token: &CancellationToken) {
        let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, self.acceptor.accept(stream)).await else {
            return;
        };
        let allowed = self.is_allowed(&stream);
        let service = service_fn(|request: Request<Incoming>| {
            let answer = match Form::of(request.uri().path()) {
                _ if !allowed => Either::Left(ready(plain(StatusCode::FORBIDDEN, "Forbidden"))),
                Some(form) => Either::Right(self.usage(form)),
                None if streams::is_stream(request.uri().path()) => {
                    Either::Left(ready(self.stream(request, token)))
                }
                None => Either::Left(ready(self.answer(request.uri()))),
            };
            async move { Ok::<_, Infallible>(answer.await) }
        });
        let server = auto::Builder::new(TokioExecutor::new());
        if let Err(error) = server.serve_connection_with_upgrades(TokioIo::new(stream), service).await {
            tracing::debug!(error, "a connection to the log server failed");
        }
    }

    fn is_allowed(&self, stream: &TlsStream<TcpStream>) -> bool {
        let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let info = certificate.and_then(|der| CertificateInfo::parse(der).ok());
        info.is_some_and(|info| self.names.contains(&info.common_name) && info.planes() == self.planes)
    }

    /// Upgrades a connection to a stream into a container.
    fn stream(&self, mut request: Request<Incoming>, token: &CancellationToken) -> Response<Body> {
        let session = match Session::of(&request, &self.containers) {
            Ok(session) => session,
            Err((code, why)) => return plain(code, &why),
        };
        let Ok(permit) = self.streams.clone().try_acquire_owned() else {
            return plain(
                StatusCode::TOO_MANY_REQUESTS,
                "too many streams into containers of this node are open",
            );
        };
        let answer = session.answer::<Full<Bytes>>(request.headers()).map(|body| body.boxed_unsync());
        let (upgrading, token) = (hyper::upgrade::on(&mut request), token.clone());
        tokio::spawn(async move {
            session.run(upgrading, token).await;
            drop(permit);
        });
        answer
    }

    fn usage(&self, form: Form) -> BoxFuture<'static, Response<Body>> {
        let usage = self.usage.clone();
        Box::pin(async move {
            let body = Full::new(Bytes::from(usage.told(form).await)).boxed_unsync();
            let mut response = respond(StatusCode::OK, body);
            let content_type = http::HeaderValue::from_static(form.content_type());
            response.headers_mut().insert("content-type", content_type);
            response
        })
    }

    fn answer(&self, uri: &http::Uri) -> Response<Body> {
        let Some(key) = key(uri.path()) else { return plain(StatusCode::NOT_FOUND, "404 page not found") };
        let options = match options(uri.query().unwrap_or_default(), Timestamp::now()) {
            Ok(options) => options,
            Err(message) => return plain(StatusCode::BAD_REQUEST, &message),
        };
        let (_, pod, container) = &key;
        let Some(log) = self.logs.find(&key, options.previous) else {
            let what = if options.previous { "previous terminated container" } else { "container" };
            return plain(StatusCode::NOT_FOUND, &format!("{what} {container:?} in pod {pod:?} not found"));
        };
        let (sender, receiver) = mpsc::channel(WAITING_PIECES);
        tokio::spawn(log.send(options, sender));
        let frames = ReceiverStream::new(receiver).map(|bytes| Ok(Frame::data(bytes)));
        respond(StatusCode::OK, UnsyncBoxBody::new(StreamBody::new(frames)))
    }
}

/// The planes that an authority of clients is bound to.
fn bound_planes(ca_pem: &str) -> anyhow::Result<Vec<String>> {
    let first = freehold_pki::certificates_der(ca_pem)?.into_iter().next().unwrap_or_default();
    Ok(CertificateInfo::parse(&first)?.planes().into_iter().map(str::to_owned).collect())
}

fn plain(status: StatusCode, text: &str) -> Response<Body> {
    respond(status, Full::new(Bytes::from(format!("{text}\n"))).boxed_unsync())
}

fn respond(status: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert("content-type", http::HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// Namespace, Pod and container of a path. Their names need no escaping.
fn key(path: &str) -> Option<Key> {
    let mut parts = path.strip_prefix("/containerLogs/")?.split('/').map(str::to_owned);
    let key = (parts.next()?, parts.next()?, parts.next()?);
    parts.next().is_none().then_some(key)
}

/// The query of a log request, in the words of `core/v1 PodLogOptions`.
fn options(query: &str, now: Timestamp) -> Result<LogOptions, String> {
    let mut options = LogOptions::default();
    for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        let bad = || format!("invalid value {value:?} of {name}");
        let number = || value.parse::<u64>().map_err(|_| bad());
        let flag = || value.parse::<bool>().map_err(|_| bad());
        match name {
            "follow" => options.follow = flag()?,
            "previous" => options.previous = flag()?,
            "timestamps" => options.timestamps = flag()?,
            "tailLines" => options.tail_lines = Some(usize::try_from(number()?).unwrap_or(usize::MAX)),
            "limitBytes" => options.limit_bytes = Some(number()?),
            "sinceSeconds" => {
                let seconds = i64::try_from(number()?).map_err(|_| bad())?;
                options.since = now.checked_sub(SignedDuration::from_secs(seconds)).ok();
            }
            "sinceTime" => options.since = Some(time::parse(&value.replace("%3A", ":")).ok_or_else(bad)?),
            _ => {}
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_client::{Client, Config, Identity};
    use freehold_pki::{Authority, ClientName, PlaneBinding};

    #[test]
    fn a_query_becomes_options() {
        let now = Timestamp::from_second(1000).unwrap();
        let all = options(
            "follow=true&tailLines=5&limitBytes=9&timestamps=true&previous=true&sinceSeconds=60&x=y",
            now,
        );
        let expected = LogOptions {
            follow: true,
            previous: true,
            timestamps: true,
            tail_lines: Some(5),
            limit_bytes: Some(9),
            since: Timestamp::from_second(940).ok(),
        };
        assert_eq!(all.unwrap(), expected);
        let time = options("sinceTime=1970-01-01T00%3A00%3A07Z", now).unwrap();
        assert_eq!(time.since, Timestamp::from_second(7).ok());
        for bad in ["tailLines=-1", "follow=x", "sinceTime=yesterday"] {
            assert!(options(bad, now).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn logs_are_served_to_the_named_client_alone() {
        let (ca, other) = (Authority::generate("ca").unwrap(), Authority::generate("ca").unwrap());
        let day = Duration::from_secs(86_400);
        let serving = ca.issue_server(&["127.0.0.1"], day).unwrap();
        let config = LogServer {
            listen: ([127, 0, 0, 1], 0).into(),
            cert_pem: serving.cert_pem,
            key_pem: serving.key_pem,
            client_ca_pem: ca.cert_pem().to_owned(),
            client_names: vec!["apiserver".into()],
        };
        let dir = tempfile::tempdir().unwrap();
        let logs = Arc::new(LogBook::default());
        let log = logs.begin(("n".into(), "p".into(), "c".into()), "u", dir.path(), 0).unwrap();
        log.clone().keep("stdout", &b"hello\n"[..]).await;
        log.close();
        let bound = Bound::bind(&config, logs, Arc::default(), Arc::new(Usage::new("n", Arc::default())))
            .await
            .unwrap();
        let url = format!("https://{}", bound.address().unwrap());
        let token = CancellationToken::new();
        let serving = tokio::spawn(bound.run(token.clone()));
        let get = |authority: &Authority, user: &str, plane: Option<&str>, path: &'static str| {
            let plane = plane.map(|plane| PlaneBinding { plane, generation: 0 });
            let name = ClientName { user, plane, ..ClientName::default() };
            let pair = authority.issue_client(&name, day).unwrap();
            let identity = Identity::ClientCert { cert_pem: pair.cert_pem, key_pem: pair.key_pem };
            let client = Client::new(&Config::new(&url, ca.cert_pem(), identity)).unwrap();
            async move { client.request(&freehold_client::RawRequest::get(path)).await }
        };
        let path = "/containerLogs/n/p/c?timestamps=false";
        assert_eq!(get(&ca, "apiserver", None, path).await.unwrap().body, "hello\n");
        assert_eq!(get(&ca, "apiserver", None, "/containerLogs/n/p/x").await.unwrap_err().code(), 404);
        assert_eq!(
            get(&ca, "apiserver", None, "/containerLogs/n/p/c?previous=true").await.unwrap_err().code(),
            404
        );
        let summary =
            get(&ca, "apiserver", None, "/stats/summary?only_cpu_and_memory=true").await.unwrap().body;
        assert!(String::from_utf8_lossy(&summary).contains(r#""nodeName":"n""#));
        assert_eq!(get(&ca, "jane", None, "/stats/summary").await.unwrap_err().code(), 403);
        assert_eq!(get(&ca, "jane", None, path).await.unwrap_err().code(), 403);
        assert_eq!(get(&ca, "apiserver", Some("a"), path).await.unwrap_err().code(), 403);
        assert_eq!(get(&other, "apiserver", None, path).await.unwrap_err().code(), 0, "no connection at all");
        token.cancel();
        serving.await.unwrap();
    }
}
