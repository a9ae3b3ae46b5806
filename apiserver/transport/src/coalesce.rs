//! Writes of a connection, gathered.
//!
//! Many streams of a connection have something to say at the same time: an event for each of its watches, answers to
//! requests that came together. HTTP/2 asks for a flush behind each frame, which would encrypt and send each alone. Here
//! a flush only takes note; what was written is encrypted as full TLS records, and goes out when the connection's task
//! has nothing further to say and the tasks that are ready have run once.
//!
//! Bytes are copied once, into the record that they are encrypted in, except where less than a record was written at a
//! time. A connection that rests holds no buffer.

use parking_lot::Mutex;
use std::{
    io::{self, IoSlice, Write},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;

/// What a TLS record takes, in bytes (RFC 8446, section 5.1).
const RECORD: usize = 16 * 1024;
/// Encrypted bytes that wait before they are written whatever comes.
const FULL: usize = 4 * RECORD;
/// Parts of one write that are looked at; the writer comes again with the others.
const PARTS: usize = 64;
/// Bytes that a connection takes in one turn of its task: a fifth of a millisecond's work, behind which others' requests may
/// have to wait. Without it, one large list keeps a thread for as long as its client's socket takes more.
const TURN: usize = 256 * 1024;

/// A connection whose writes are gathered until the end of its task's turn.
pub struct Coalesced<S>(Arc<Mutex<Gathered<S>>>);

/// Sends what a connection has gathered. When it is dropped, the connection's flushes are what they say.
pub struct Turns<S>(Arc<Mutex<Gathered<S>>>);

struct Gathered<S> {
    stream: TlsStream<S>,
    /// What does not fill a record yet.
    plain: Vec<u8>,
    /// Bytes that were encrypted since the last time that all were written.
    sealed: usize,
    /// Whether others have run since the first of what is gathered was written.
    waited: bool,
    /// Whether there are [`Turns`].
    driven: bool,
    /// Bytes that this turn may still take.
    left: usize,
}

/// A connection, and what has to be asked at the end of each of its task's turns.
pub fn gather<S>(mut stream: TlsStream<S>) -> (Coalesced<S>, Turns<S>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    // What waits is limited here.
    stream.get_mut().1.set_buffer_limit(None);
    let gathered = Gathered { stream, plain: Vec::new(), sealed: 0, waited: false, driven: true, left: TURN };
    let shared = Arc::new(Mutex::new(gathered));
    (Coalesced(shared.clone()), Turns(shared))
}

impl<S: AsyncRead + AsyncWrite + Unpin> Gathered<S> {
    /// Encrypts all of what is gathered and the first `take` bytes of `parts`.
    fn seal(&mut self, parts: &[IoSlice<'_>], take: usize) -> io::Result<()> {
        let mut slices = [IoSlice::new(&[]); PARTS + 1];
        slices[0] = IoSlice::new(&self.plain);
        let (mut count, mut left) = (1, take);
        for part in parts.iter().take(PARTS) {
            slices[count] = IoSlice::new(&part[..part.len().min(left)]);
            left -= slices[count].len();
            count += 1;
        }
        let mut slices = &mut slices[..count];
        let mut total = self.plain.len() + take - left;
        self.sealed += total;
        let (_, session) = self.stream.get_mut();
        while total > 0 {
            let sealed = session.writer().write_vectored(slices)?;
            if sealed == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            IoSlice::advance_slices(&mut slices, sealed);
            total -= sealed;
        }
        self.plain.clear();
        Ok(())
    }

    /// Takes in what there is room for.
    fn poll_gather(&mut self, cx: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        if self.sealed >= FULL {
            ready!(self.poll_send(cx))?;
        }
        if self.driven && self.left == 0 {
            // It goes on behind all that are ready.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let given: usize = parts.iter().take(PARTS).map(|part| part.len()).sum();
        let given = given.min(FULL);
        self.left = self.left.saturating_sub(given);
        let total = self.plain.len() + given;
        let mut sealed = 0;
        if total >= RECORD {
            sealed = total - total % RECORD - self.plain.len();
            self.seal(parts, sealed)?;
        }
        let (mut skip, mut left) = (sealed, given - sealed);
        for part in parts.iter().take(PARTS) {
            let from = skip.min(part.len());
            skip -= from;
            let part = &part[from..];
            let part = &part[..part.len().min(left)];
            self.plain.extend_from_slice(part);
            left -= part.len();
        }
        Poll::Ready(Ok(given))
    }

    /// Writes what was encrypted.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.sealed = 0;
        Poll::Ready(Ok(()))
    }

    /// Encrypts and writes everything.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.plain.is_empty() {
            self.seal(&[], 0)?;
            self.plain = Vec::new();
        }
        self.poll_send(cx)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Turns<S> {
    /// Begins a turn of the connection's task.
    pub fn begin(&mut self) {
        self.0.lock().left = TURN;
    }

    /// Ends a turn in which nothing came of the connection: lets others run once, then sends what was gathered. Ready
    /// with an error where that is not possible; the connection is to be polled again otherwise when it wakes.
    pub fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut gathered = self.0.lock();
        if gathered.plain.is_empty() && gathered.sealed == 0 {
            return Poll::Pending;
        }
        if !gathered.waited && gathered.sealed < FULL {
            gathered.waited = true;
            // A task that wakes itself goes behind all that are ready.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        ready!(gathered.poll_drain(cx))?;
        gathered.waited = false;
        Poll::Pending
    }

    /// Sends the rest, of a connection that has ended.
    pub fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.lock().poll_drain(cx)
    }
}

impl<S> Drop for Turns<S> {
    fn drop(&mut self) {
        self.0.lock().driven = false;
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Coalesced<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.lock().stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Coalesced<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.lock().poll_gather(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.lock().poll_gather(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut gathered = self.0.lock();
        if gathered.driven { Poll::Ready(Ok(())) } else { gathered.poll_drain(cx) }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut gathered = self.0.lock();
        ready!(gathered.poll_drain(cx))?;
        Pin::new(&mut gathered.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
