//! Connections.

use crate::app::App;
use crate::tls::{Current, TlsFiles};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Connections at once.
const CONNECTIONS: usize = 4096;
/// How long a client has for its handshake, and for each request's head.
const PATIENCE: Duration = Duration::from_secs(10);
/// Streams of one HTTP/2 connection at once.
const STREAMS: u32 = 128;

/// A server that accepts connections.
#[derive(Debug)]
pub struct Serving {
    /// Where.
    pub address: SocketAddr,
    accepting: tokio::task::JoinHandle<()>,
}

impl Serving {
    /// Waits until it was told to stop.
    pub async fn ended(self) {
        let _ = self.accepting.await;
    }
}

/// Serves until `token` is cancelled. Without TLS only loopback addresses should be listened on.
///
/// # Errors
/// What can't be listened on, or which file of TLS can't be read.
pub async fn serve(
    app: Arc<App>,
    listen: SocketAddr,
    tls: Option<TlsFiles>,
    token: CancellationToken,
) -> Result<Serving, String> {
    let listener = TcpListener::bind(listen).await.map_err(|e| format!("{listen}: {e}"))?;
    let address = listener.local_addr().map_err(|e| e.to_string())?;
    let tls = tls.map(Current::watch).transpose()?;
    let router = crate::routes::router(app);
    let connections = Arc::new(Semaphore::new(CONNECTIONS));
    let accepting = tokio::spawn(async move {
        loop {
            let Ok(permit) = connections.clone().acquire_owned().await else { return };
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = token.cancelled() => return,
            };
            let (stream, _) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let (router, tls, token) = (router.clone(), tls.clone(), token.clone());
            tokio::spawn(async move {
                tokio::select! {
                    () = connection(stream, router, tls) => {}
                    () = token.cancelled() => {}
                }
                drop(permit);
            });
        }
    });
    Ok(Serving { address, accepting })
}

async fn connection(stream: TcpStream, router: axum::Router, tls: Option<Current>) {
    // Small answers wait for nothing.
    let _ = stream.set_nodelay(true);
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(STREAMS);
    let service = TowerToHyperService::new(router);
    let ended = match tls {
        None => builder.serve_connection(TokioIo::new(stream), service).await,
        Some(tls) => {
            let accepting = tokio_rustls::TlsAcceptor::from(tls.get()).accept(stream);
            let Ok(Ok(stream)) = tokio::time::timeout(PATIENCE, accepting).await else { return };
            builder.serve_connection(TokioIo::new(stream), service).await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}
