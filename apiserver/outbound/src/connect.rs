//! One connection to one destination, at an address that may be reached.

use crate::{Networks, tls};
use freehold_machinery::PlaneId;
use freehold_machinery_lookup::lookup;
use futures_util::future::BoxFuture;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Longest time to connect, and again for the TLS handshake.
const CONNECT: Duration = Duration::from_secs(10);
/// Addresses of a name that are tried.
const MAX_ADDRESSES: usize = 4;

/// An address, or a name to look up for each connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Peer {
    Address(SocketAddr),
    Name(String, u16),
}

/// How connections to a destination are made.
#[derive(Clone)]
pub(crate) struct Connector {
    /// The plane on whose behalf names are looked up.
    pub(crate) plane: PlaneId,
    pub(crate) place: Peer,
    pub(crate) name: ServerName<'static>,
    pub(crate) tls: Arc<ClientConfig>,
    pub(crate) networks: Arc<Networks>,
}

impl tower::Service<Uri> for Connector {
    type Response = Secure;
    type Error = io::Error;
    type Future = BoxFuture<'static, Result<Secure, io::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move { connector.connect().await })
    }
}

impl Connector {
    async fn connect(self) -> io::Result<Secure> {
        let stream = self.tcp().await?;
        stream.set_nodelay(true)?;
        let handshake = TlsConnector::from(self.tls).connect(self.name, stream);
        match timeout(CONNECT, handshake).await {
            Ok(Ok(stream)) => Ok(Secure::new(stream)),
            Ok(Err(error)) => Err(match error.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>()) {
                Some(error) => io::Error::other(tls::describe(error)),
                None => error,
            }),
            Err(_) => Err(io::Error::other("net/http: TLS handshake timeout")),
        }
    }

    async fn tcp(&self) -> io::Result<TcpStream> {
        let mut last = None;
        for address in self.addresses().await? {
            let failed = |why: &dyn std::fmt::Display| io::Error::other(format!("dial tcp {address}: {why}"));
            if !self.networks.allows(address.ip()) {
                let why = "connect: the address is in none of the networks that control planes of this server may reach (--outbound-networks)";
                last = Some(failed(&why));
                continue;
            }
            last = Some(match timeout(CONNECT, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => failed(&format!("connect: {}", plain(&error))),
                Err(_) => failed(&"i/o timeout"),
            });
        }
        Err(last.unwrap_or_else(|| io::Error::other("dial tcp: no addresses")))
    }

    async fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        match &self.place {
            Peer::Address(address) => Ok(vec![*address]),
            Peer::Name(name, port) => {
                let failed = |error: io::Error| {
                    let why = match error.kind() {
                        io::ErrorKind::Other => error.to_string(),
                        _ => "no such host".to_owned(),
                    };
                    io::Error::other(format!("dial tcp: lookup {name}: {why}"))
                };
                let mut found = lookup(self.plane.as_str(), name, *port).await.map_err(failed)?;
                found.truncate(MAX_ADDRESSES);
                Ok(found)
            }
        }
    }
}

/// An error of the system without its number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    text.to_lowercase()
}

/// A connection over TLS, as HTTP clients take it.
pub struct Secure(TokioIo<TlsStream<TcpStream>>);

impl Secure {
    /// Wraps a stream whose handshake is done.
    pub fn new(stream: TlsStream<TcpStream>) -> Self {
        Self(TokioIo::new(stream))
    }
}

impl Connection for Secure {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Secure {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl Write for Secure {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
