//! Writes of a connection, gathered.
//!
//! Many streams of a connection have something to say at the same time: an event for each of its watches, answers to
//! requests that came together. The first of them wakes the connection, which would encrypt and send it alone. Here a
//! flush lets the tasks that are ready run first, and what they wrote goes out in one piece.
//!
//! A connection that rests holds no buffer.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that are gathered before they are written whatever comes.
const FULL: usize = 64 * 1024;
/// Capacity that is kept for the next time, in bytes.
const KEPT: usize = 4 * 1024;

/// A stream whose writes are gathered until a flush that nothing overtakes.
pub(crate) struct Coalesced<S> {
    inner: S,
    gathered: Vec<u8>,
    /// How much of it has been written.
    written: usize,
    /// Whether the flush that is under way has let others run.
    waited: bool,
}

impl<S: AsyncWrite + Unpin> Coalesced<S> {
    pub(crate) fn new(inner: S) -> Self {
        Self { inner, gathered: Vec::new(), written: 0, waited: false }
    }

    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.gathered.len() {
            let rest = &self.gathered[self.written..];
            match ready!(Pin::new(&mut self.inner).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.written += written,
            }
        }
        self.written = 0;
        self.gathered.clear();
        self.gathered.shrink_to(KEPT);
        Poll::Ready(Ok(()))
    }

    /// Takes in what there is room for.
    fn poll_gather(&mut self, cx: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        if self.gathered.len() >= FULL {
            ready!(self.poll_drain(cx))?;
        }
        let before = self.gathered.len();
        for part in parts {
            let room = FULL.saturating_sub(self.gathered.len());
            self.gathered.extend_from_slice(&part[..part.len().min(room)]);
        }
        Poll::Ready(Ok(self.gathered.len() - before))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Coalesced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Coalesced<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_gather(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_gather(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A task that wakes itself goes behind all that are ready.
        if !self.waited && !self.gathered.is_empty() && self.gathered.len() < FULL {
            self.waited = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        ready!(self.poll_drain(cx))?;
        self.waited = false;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    #[tokio::test]
    async fn what_is_written_arrives_in_order_and_whole() {
        let (near, mut far) = duplex(1000);
        let sent: Vec<u8> = (0..300_000).map(|i| (i % 251) as u8).collect();
        let expected = sent.clone();
        let write = tokio::spawn(async move {
            let mut stream = Coalesced::new(near);
            for (index, part) in sent.chunks(7_001).enumerate() {
                stream.write_all(part).await.unwrap();
                if index % 3 == 0 {
                    stream.flush().await.unwrap();
                }
            }
            stream.shutdown().await.unwrap();
            assert!(stream.gathered.is_empty() && stream.gathered.capacity() <= KEPT);
        });
        let mut got = Vec::new();
        far.read_to_end(&mut got).await.unwrap();
        write.await.unwrap();
        assert!(got == expected);
    }

    #[tokio::test]
    async fn a_flush_lets_those_run_who_are_ready() {
        let (near, mut far) = duplex(1000);
        let mut stream = Coalesced::new(near);
        stream.write_all(b"first").await.unwrap();
        let ran = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let other = ran.clone();
        tokio::spawn(async move { other.store(true, std::sync::atomic::Ordering::SeqCst) });
        stream.flush().await.unwrap();
        assert!(ran.load(std::sync::atomic::Ordering::SeqCst));
        let mut got = [0; 5];
        far.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"first");
    }
}
