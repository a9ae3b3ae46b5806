//! Connections whose writes are coalesced.
//!
//! A call is a head, a message and an end, and HTTP/2 flushes behind each of them. Each would be a packet that wakes etcd. Here
//! a flush waits until the tasks that are ready have run once, so that a call, and others that are made meanwhile, are one.

use bytes::{Buf, BytesMut};
use futures_util::{TryFutureExt, future::MapOk};
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::{
    client::legacy::connect::{HttpConnector, dns::GaiResolver},
    rt::TokioIo,
};
use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::net::TcpStream;
use tonic::codegen::Service;

/// Bytes that wait before they are sent whatever comes.
const FULL: usize = 64 << 10;

/// A stream whose writes are gathered.
pub(crate) struct Coalesced<S> {
    stream: S,
    written: BytesMut,
    /// Whether others have run since the first of what is gathered was to be sent.
    waited: bool,
}

impl<S> Coalesced<S> {
    fn new(stream: S) -> Self {
        Self { stream, written: BytesMut::new(), waited: false }
    }
}

impl<S: Write + Unpin> Coalesced<S> {
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.written.is_empty() {
            let sent = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.written))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written.advance(sent);
        }
        self.waited = false;
        Pin::new(&mut self.stream).poll_flush(cx)
    }
}

impl<S: Read + Unpin> Read for Coalesced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: Write + Unpin> Write for Coalesced<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.written.len() >= FULL {
            ready!(self.poll_drain(cx))?;
        }
        let taken = bytes.len().min(FULL);
        self.written.extend_from_slice(&bytes[..taken]);
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.waited && !self.written.is_empty() {
            self.waited = true;
            // A task that wakes itself goes behind all that are ready.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.poll_drain(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Makes connections.
#[derive(Clone)]
pub(crate) struct Connector(HttpConnector);

impl Connector {
    pub(crate) fn new(timeout: Duration) -> Self {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(timeout));
        Self(http)
    }
}

type Connection = TokioIo<TcpStream>;
type Connecting = <HttpConnector<GaiResolver> as Service<Uri>>::Future;

impl Service<Uri> for Connector {
    type Response = Coalesced<Connection>;
    type Error = <HttpConnector as Service<Uri>>::Error;
    type Future = MapOk<Connecting, fn(Connection) -> Coalesced<Connection>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        self.0.call(uri).map_ok(Coalesced::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::future::poll_fn;
    use tokio::io::{AsyncReadExt, duplex};

    #[tokio::test]
    async fn what_is_written_before_others_have_run_is_sent_at_once() {
        let (here, mut there) = duplex(1024);
        let mut stream = Coalesced::new(TokioIo::new(here));
        let mut received = Vec::new();
        for part in [&b"head "[..], b"message "] {
            let written = poll_fn(|cx| Pin::new(&mut stream).poll_write(cx, part)).await.unwrap();
            assert_eq!(written, part.len());
            if part.starts_with(b"head") {
                assert!(poll_fn(|cx| Pin::new(&mut stream).poll_flush(cx)).now_or_never().is_none());
                assert!(there.read_buf(&mut received).now_or_never().is_none(), "others may have more");
            }
        }
        poll_fn(|cx| Pin::new(&mut stream).poll_flush(cx)).await.unwrap();
        there.read_buf(&mut received).await.unwrap();
        assert_eq!(received, b"head message ");
    }

    #[tokio::test]
    async fn what_is_more_than_fits_arrives_in_order() {
        let (here, mut there) = duplex(100);
        let mut stream = Coalesced::new(TokioIo::new(here));
        let sent: Vec<u8> = (0..300_000_u32).map(|byte| byte as u8).collect();
        let write = async {
            let mut rest = &sent[..];
            while !rest.is_empty() {
                let taken = poll_fn(|cx| Pin::new(&mut stream).poll_write(cx, rest)).await.unwrap();
                rest = &rest[taken..];
            }
            poll_fn(|cx| Pin::new(&mut stream).poll_shutdown(cx)).await.unwrap();
        };
        let mut received = Vec::new();
        let (_, read) = tokio::join!(write, there.read_to_end(&mut received));
        read.unwrap();
        assert!(received == sent);
    }
}
