//! Connections: few of them, multiplexed, made when needed.
//!
//! Watches stay open for long, and a server allows a connection only so many streams. So ordinary requests and watches
//! have connections apart, and a connection that is full gets a sibling.

use crate::config::Target;
use crate::{Config, Error, Result, tls};
use bytes::{Bytes, BytesMut};
use http::header::HOST;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls_pki_types::ServerName;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::either::Either;

/// Streams on one connection; servers commonly allow 100 to 250.
const MAX_STREAMS: usize = 90;
/// Bytes of an answer that wait for whoever asked.
const WINDOW: u32 = 1 << 20;
/// Bytes of a watch or of a long answer that wait likewise, where the reader may be anybody.
const LONG_WINDOW: u32 = 64 << 10;
/// Bytes of all answers of a connection that wait.
const CONNECTION_WINDOW: u32 = 8 << 20;
// Answers that nobody reads leave room for the others of their connection, however many they are.
const _: () = assert!(MAX_STREAMS as u32 * LONG_WINDOW < CONNECTION_WINDOW);
/// HTTP/1.1 connections kept for the next request.
const MAX_IDLE: usize = 8;
/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How often an HTTP/2 connection is pinged, so that a silent break is noticed.
const PING_INTERVAL: Duration = Duration::from_secs(20);

/// Which connections a request shares.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lane {
    Requests,
    Watches,
}

/// A whole answer.
#[derive(Debug)]
pub struct RawResponse {
    /// The HTTP status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, within the configured limit.
    pub body: Bytes,
}

pub(crate) struct Transport {
    target: Target,
    tls: Option<TlsConnector>,
    lanes: [Mutex<Vec<Connection>>; 2],
}

type Body = Full<Bytes>;

/// What a connection's bytes go through.
type Io = Either<TcpStream, Box<TlsStream<TcpStream>>>;

enum Connection {
    Http2 { sender: http2::SendRequest<Body>, streams: Arc<AtomicUsize> },
    Http1(http1::SendRequest<Body>),
}

/// An answer whose body is still arriving. Dropping it frees its place on the connection.
pub(crate) struct Streaming {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    body: Incoming,
    place: ConnectionSlot,
}

/// A place on a connection, given back when dropped.
enum ConnectionSlot {
    Http2(Arc<AtomicUsize>),
    Http1(Option<http1::SendRequest<Body>>),
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        if let Self::Http2(streams) = self {
            streams.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Transport {
    pub(crate) fn new(config: &Config) -> Result<Self> {
        let target = config.target()?;
        let tls = target.tls.then(|| tls::client_config(config)).transpose()?.map(TlsConnector::from);
        Ok(Self { target, tls, lanes: Default::default() })
    }

    /// Scheme and authority, for messages and request URIs.
    pub(crate) fn origin(&self) -> String {
        format!("{}://{}", if self.target.tls { "https" } else { "http" }, self.target.authority)
    }

    fn error(&self, reason: impl std::fmt::Display, sent: bool) -> Error {
        Error::Transport { server: self.origin(), reason: reason.to_string(), sent }
    }

    /// Sends a request and gives the answer's head.
    pub(crate) async fn send(&self, lane: Lane, request: Request<Body>) -> Result<Streaming> {
        let (answer, place) = match self.connection(lane).await? {
            Connection::Http2 { mut sender, streams } => {
                let place = ConnectionSlot::Http2(streams);
                (sender.send_request(request).await, place)
            }
            Connection::Http1(mut sender) => {
                let answer = sender.send_request(self.origin_form(request)?).await;
                (answer, ConnectionSlot::Http1(Some(sender)))
            }
        };
        let answer: Response<Incoming> = answer.map_err(|e| self.error(describe(&e), !e.is_canceled()))?;
        let (head, body) = answer.into_parts();
        Ok(Streaming { status: head.status, headers: head.headers, body, place })
    }

    /// HTTP/1.1 wants the path alone in its first line, and the host in a header.
    fn origin_form(&self, mut request: Request<Body>) -> Result<Request<Body>> {
        let bad = |e: &dyn std::fmt::Display| Error::Config(format!("request: {e}"));
        let host = HeaderValue::from_str(&self.target.authority).map_err(|e| bad(&e))?;
        request.headers_mut().insert(HOST, host);
        let path = request.uri().path_and_query().map_or("/", |p| p.as_str());
        *request.uri_mut() = path.parse().map_err(|e| bad(&e))?;
        Ok(request)
    }

    /// Sends a request and waits for the whole answer.
    pub(crate) async fn roundtrip(&self, request: Request<Body>, limit: usize) -> Result<RawResponse> {
        let mut answer = self.send(Lane::Requests, request).await?;
        let mut body = BytesMut::new();
        while let Some(chunk) = answer.chunk().await {
            let chunk = chunk.map_err(|e| self.error(e, true))?;
            if body.len() + chunk.len() > limit {
                return Err(Error::TooLarge(limit));
            }
            body.extend_from_slice(&chunk);
        }
        let Streaming { status, headers, mut place, .. } = answer;
        if let ConnectionSlot::Http1(sender) = &mut place {
            self.keep(sender.take()).await;
        }
        Ok(RawResponse { status, headers, body: body.freeze() })
    }

    /// Takes a place on a connection, which is made if there is none with room. The lane stays locked meanwhile, so
    /// that requests that come together wait for one connection rather than make one each.
    async fn connection(&self, lane: Lane) -> Result<Connection> {
        let mut connections = self.lanes[lane as usize].lock().await;
        connections.retain(|c| !c.is_closed());
        if let Some(found) = connections.iter().find_map(Connection::take_place) {
            return Ok(found);
        }
        if let Some(index) = connections.iter().position(Connection::is_idle_http1) {
            return Ok(connections.swap_remove(index));
        }
        // Boxed: a handshake takes many kilobytes, which every request would have room for otherwise.
        let made = tokio::time::timeout(CONNECT_TIMEOUT, Box::pin(self.connect(lane))).await;
        let made = made.map_err(|_| self.error("no connection in time", false))??;
        match made.take_place() {
            Some(place) => {
                connections.push(made);
                Ok(place)
            }
            None => Ok(made),
        }
    }

    async fn keep(&self, sender: Option<http1::SendRequest<Body>>) {
        let Some(mut sender) = sender else { return };
        if sender.ready().await.is_ok() {
            let mut connections = self.lanes[Lane::Requests as usize].lock().await;
            if connections.len() < MAX_IDLE {
                connections.push(Connection::Http1(sender));
            }
        }
    }

    async fn connect(&self, lane: Lane) -> Result<Connection> {
        match self.dial(&[b"h2", b"http/1.1"]).await? {
            Io::Right(tls) if tls.get_ref().1.alpn_protocol() == Some(b"h2") => self.http2(tls, lane).await,
            io => self.http1(io).await,
        }
    }

    /// Connects, offering these protocols where there is TLS.
    async fn dial(&self, protocols: &[&[u8]]) -> Result<Io> {
        let Target { host, port, name, .. } = &self.target;
        let tcp = TcpStream::connect((host.as_str(), *port)).await.map_err(|e| self.error(e, false))?;
        tcp.set_nodelay(true).map_err(|e| self.error(e, false))?;
        let Some(tls) = &self.tls else { return Ok(Io::Left(tcp)) };
        let name =
            ServerName::try_from(name.clone()).map_err(|e| Error::Config(format!("server name: {e}")))?;
        let offered = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        let stream = tls.with_alpn(offered).connect(name, tcp).await;
        Ok(Io::Right(Box::new(stream.map_err(|e| self.error(e, false))?)))
    }

    /// Sends a request that changes the protocol, on a connection of its own, which HTTP/2 has no way for.
    pub(crate) async fn upgrade(&self, request: Request<Body>) -> Result<Response<Incoming>> {
        let made = tokio::time::timeout(CONNECT_TIMEOUT, Box::pin(self.dial(&[b"http/1.1"]))).await;
        let io = made.map_err(|_| self.error("no connection in time", false))??;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(io)).await.map_err(|e| self.error(describe(&e), false))?;
        tokio::spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(error = %describe(&error), "connection ended");
            }
        });
        sender.send_request(self.origin_form(request)?).await.map_err(|e| self.error(describe(&e), true))
    }

    async fn http2(
        &self,
        io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        lane: Lane,
    ) -> Result<Connection> {
        let window = match lane {
            Lane::Requests => WINDOW,
            Lane::Watches => LONG_WINDOW,
        };
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(Duration::from_secs(10))
            .initial_stream_window_size(window)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .handshake(TokioIo::new(io))
            .await
            .map_err(|e| self.error(describe(&e), false))?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(error = %describe(&error), "connection ended");
            }
        });
        Ok(Connection::Http2 { sender, streams: Arc::default() })
    }

    async fn http1(&self, io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<Connection> {
        let (sender, connection) =
            http1::handshake(TokioIo::new(io)).await.map_err(|e| self.error(describe(&e), false))?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(error = %describe(&error), "connection ended");
            }
        });
        Ok(Connection::Http1(sender))
    }
}

impl Connection {
    fn is_closed(&self) -> bool {
        match self {
            Self::Http2 { sender, .. } => sender.is_closed(),
            Self::Http1(sender) => sender.is_closed(),
        }
    }

    fn is_idle_http1(&self) -> bool {
        matches!(self, Self::Http1(sender) if sender.is_ready())
    }

    /// A handle with one more stream on it; `None` if it is full or can hold only one request at a time.
    fn take_place(&self) -> Option<Self> {
        match self {
            Self::Http2 { sender, streams } if streams.load(Ordering::Relaxed) < MAX_STREAMS => {
                streams.fetch_add(1, Ordering::Relaxed);
                Some(Self::Http2 { sender: sender.clone(), streams: streams.clone() })
            }
            _ => None,
        }
    }
}

impl Streaming {
    /// The next piece of the body; `None` at its end.
    pub(crate) async fn chunk(&mut self) -> Option<Result<Bytes, String>> {
        loop {
            match self.body.frame().await? {
                Ok(frame) => match frame.into_data() {
                    Ok(data) => return Some(Ok(data)),
                    Err(_trailers) => continue,
                },
                Err(error) => return Some(Err(describe(&error))),
            }
        }
    }
}

/// An error with what caused it: hyper's own text leaves the cause out.
fn describe(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
