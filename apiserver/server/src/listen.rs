//! Connections: accepted, secured, served and drained.

use crate::edge::Edge;
use crate::{
    backend::Backend,
    config::{BindError, Config, Limits, MoreMetrics},
    filters,
    host::{self, Connection},
    secure::{self, Reload},
};
use freehold_apiserver_fairness::metrics::Held;
use freehold_apiserver_transport::{
    aside::Movable,
    coalesce::{self, Turns},
    streams::{self, Driven, Requests},
};
use futures_util::FutureExt;
use hyper::service::service_fn;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulConnection},
};
use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    io,
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::Poll,
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};
use tokio_rustls::server::TlsStream;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument;

/// Pause after an accept that failed (no file descriptors left, for one), so that it isn't a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Streams of one HTTP/2 connection at a time (kube-apiserver's number).
const STREAMS: u32 = 250;
/// Fields in a request's head over HTTP/1: each group of an impersonated user is one.
const FIELDS: usize = 512;
/// Pings find out that an HTTP/2 client is gone.
const PING: Duration = Duration::from_secs(30);

/// A bound server.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    edge: Arc<Edge>,
    reload: Reload,
    limits: Limits,
}

impl Server {
    /// Binds the address; connections wait in the system's queue until [`Server::run`].
    ///
    /// # Errors
    /// Fails where the address is taken or not of this machine, or the TLS material makes no sense.
    pub async fn bind(config: Config, backend: Arc<dyn Backend>) -> Result<Self, BindError> {
        let address = config.listen;
        let listen = |source| BindError::Listen { address, source };
        let reload = Reload::new(config.certificate.clone(), &config.authorities, config.certificates_only)?;
        let listener = TcpListener::bind(address).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let limits = config.limits.clone();
        let edge = Arc::new(Edge::new(config, backend, reload.secure.clone()));
        Ok(Self { listener, address, edge, reload, limits })
    }

    /// Returns the address that it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// What replaces certificates while it runs.
    pub fn reload(&self) -> Reload {
        self.reload.clone()
    }

    /// Renders the text of `/metrics`, whoever serves it.
    pub fn metrics(&self) -> MoreMetrics {
        let edge = self.edge.clone();
        Arc::new(move || edge.metrics.text())
    }

    /// Serves until `stop`: then no connection is accepted, watches end, requests get [`Limits::drain`] to finish, and
    /// what is left is cut off.
    pub async fn run(self, stop: CancellationToken) {
        let connections = TaskTracker::new();
        let cut = CancellationToken::new();
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = stop.cancelled() => break,
            };
            match accepted {
                Ok((stream, remote)) if connections.len() < self.limits.connections => {
                    let connection = self.connection(stream, remote, cut.clone());
                    connections.spawn(connection.instrument(tracing::debug_span!("connection", %remote)));
                }
                Ok((_, remote)) => tracing::warn!(%remote, "too many connections"),
                Err(error) => {
                    tracing::warn!(%error, "a connection can't be accepted");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(self.listener);
        self.edge.stop.cancel();
        connections.close();
        if timeout(self.limits.drain, connections.wait()).await.is_err() {
            tracing::warn!(connections = connections.len(), "requests cut off");
            cut.cancel();
            connections.wait().await;
        }
    }

    fn connection(
        &self,
        stream: TcpStream,
        remote: SocketAddr,
        cut: CancellationToken,
    ) -> impl Future<Output = ()> + Send + 'static {
        let current = self.reload.secure.clone();
        let secure = current.load_full();
        let (edge, limits) = (self.edge.clone(), self.limits.clone());
        async move {
            let held = Held::new(&edge.metrics.connections);
            let stop = edge.stop.clone();
            let secured = async {
                stream.set_nodelay(true)?;
                timeout(limits.handshake, secure.acceptor.accept(stream)).await.map_err(io::Error::from)?
            };
            let secured = tokio::select! {
                secured = secured => secured,
                () = stop.cancelled() => return,
            };
            let served = async {
                match secured {
                    Ok(stream) => {
                        let session = stream.get_ref().1;
                        let asked = session.server_name();
                        let project = asked.and_then(|name| host::project(edge.domain.as_deref(), name));
                        let peer = secure::peer(session, &secure.roots);
                        let presented = secure::presented(session);
                        let distrusted =
                            secure::distrusted(presented, peer.clone(), secure, current).boxed().shared();
                        let about = Connection { peer, remote, project, distrusted: distrusted.clone() };
                        tokio::select! {
                            () = serve(edge, limits, stream, about) => {}
                            () = distrusted => tracing::info!("a connection is cut off: its certificate does not count any more"),
                        }
                    }
                    Err(error) => {
                        edge.metrics.handshakes.inc();
                        tracing::debug!(%error, "no TLS");
                    }
                }
            };
            tokio::select! {
                () = served => {}
                () = cut.cancelled() => {}
            }
            drop(held);
        }
    }
}

/// How a connection is served. Which protocol it has was settled in the handshake.
fn builder(http2: bool, requests: Requests, limits: &Limits) -> auto::Builder<Requests> {
    let builder = auto::Builder::new(requests);
    if !http2 {
        let mut http1 = builder.http1_only();
        http1
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head_time)
            .max_headers(FIELDS)
            .max_buf_size(limits.head as usize);
        return http1;
    }
    let mut http2 = builder.http2_only();
    http2
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(limits.head)
        .initial_stream_window_size(256 * 1024)
        .initial_connection_window_size(1024 * 1024)
        .max_send_buf_size(64 * 1024)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING);
    http2
}

async fn serve(edge: Arc<Edge>, limits: Limits, stream: TlsStream<TcpStream>, about: Connection) {
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let about = Arc::new(about);
    let asked = Arc::new(AtomicBool::new(false));
    let service = {
        let (edge, asked) = (edge.clone(), asked.clone());
        service_fn(move |request| {
            asked.store(true, Relaxed);
            let (edge, about): (Arc<Edge>, Arc<Connection>) = (edge.clone(), about.clone());
            // Boxed, so that a connection without a request is small.
            let request = Box::pin(filters::handle(edge, about, request));
            Movable::new(request).map(Ok::<_, Infallible>)
        })
    };
    let (io, turns) = coalesce::gather(stream);
    let (requests, driven) = streams::of_connection();
    let builder = builder(http2, requests, &limits);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(io), service);
    let silent = async {
        sleep(limits.head_time).await;
        if asked.load(Relaxed) {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = drive(connection, driven, turns, &edge.stop) => {}
        // A client that finished the handshake and never asked anything.
        () = silent => tracing::debug!("silent connection closed"),
    }
}

/// Serves a connection; on `stop` it takes no further request and ends with those that it has.
async fn drive<C>(connection: C, mut driven: Driven, mut turns: Turns<TcpStream>, stop: &CancellationToken)
where
    C: GracefulConnection<Error = Box<dyn std::error::Error + Send + Sync>>,
{
    let mut connection = pin!(connection);
    let mut stopped = pin!(stop.cancelled().fuse());
    let outcome = poll_fn(|cx| {
        if stopped.as_mut().poll(cx).is_ready() {
            connection.as_mut().graceful_shutdown();
        }
        turns.begin();
        driven.poll(cx);
        match connection.as_mut().poll(cx) {
            Poll::Ready(outcome) => Poll::Ready(outcome),
            Poll::Pending => turns.poll_end(cx).map_err(Into::into),
        }
    });
    match outcome.await {
        Err(error) => tracing::debug!(%error, "connection ended"),
        // An answer that makes another protocol of the connection may still be here.
        Ok(()) => drop(poll_fn(|cx| turns.poll_rest(cx)).await),
    }
}
