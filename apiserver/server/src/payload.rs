//! Response bodies.
//!
//! One type for all of them, so that a small answer costs no boxed stream: bytes, pieces that are joined as they go
//! out, their compressed form, frames of a watch, or what comes from another server.

use bytes::{Bytes, BytesMut};
use flate2::{Compression, write::GzEncoder};
use futures_util::Stream;
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use std::{
    io::Write,
    pin::Pin,
    task::{Context, Poll, ready},
};

/// Any error of a body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Size of the frames that pieces are joined to, in bytes.
const FRAME: usize = 64 * 1024;
/// Compression level of gzip, as kube-apiserver has it.
const LEVEL: u32 = 4;

/// The body of a response.
pub enum Payload {
    /// All at once.
    Full(Bytes),
    /// Many small pieces, joined to frames of 64 KiB when they are sent.
    Pieces(Pieces),
    /// Pieces, compressed as they are sent.
    Gzip(Box<Gzip>),
    /// Frames as they come.
    Stream(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
    /// What another server or an injected handler gives, with trailers.
    Boxed(UnsyncBoxBody<Bytes, BoxError>),
}

impl Payload {
    /// No body.
    pub fn empty() -> Self {
        Self::Full(Bytes::new())
    }

    /// A stream of frames.
    pub fn stream(stream: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self::Stream(Box::pin(stream))
    }

    /// How many bytes it will be, where that is known.
    pub fn len(&self) -> Option<usize> {
        match self {
            Self::Full(bytes) => Some(bytes.len()),
            Self::Pieces(pieces) => Some(pieces.left),
            Self::Gzip(_) | Self::Stream(_) => None,
            Self::Boxed(body) => body.size_hint().exact().and_then(|n| usize::try_from(n).ok()),
        }
    }

    /// Whether it is known to be empty.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// The same, compressed; streams and foreign bodies stay as they are.
    pub(crate) fn gzip(self) -> Self {
        match self {
            Self::Full(bytes) => Self::Gzip(Box::new(Gzip::new(Pieces::new(vec![bytes])))),
            Self::Pieces(pieces) => Self::Gzip(Box::new(Gzip::new(pieces))),
            other => other,
        }
    }
}

impl Body for Payload {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let data = match self.get_mut() {
            Self::Full(bytes) => (!bytes.is_empty()).then(|| std::mem::take(bytes)),
            Self::Pieces(pieces) => pieces.next_frame(),
            Self::Gzip(gzip) => gzip.next_frame()?,
            Self::Stream(stream) => ready!(stream.as_mut().poll_next(cx)),
            Self::Boxed(body) => return Pin::new(body).poll_frame(cx),
        };
        Poll::Ready(data.map(|d| Ok(Frame::data(d))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Boxed(body) => body.is_end_stream(),
            other => other.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Boxed(body) => body.size_hint(),
            other => other.len().map_or_else(SizeHint::default, |n| SizeHint::with_exact(n as u64)),
        }
    }
}

/// Bytes in pieces.
pub struct Pieces {
    pieces: std::vec::IntoIter<Bytes>,
    left: usize,
}

impl Pieces {
    /// Pieces, in order.
    pub fn new(pieces: Vec<Bytes>) -> Self {
        let left = pieces.iter().map(Bytes::len).sum();
        Self { pieces: pieces.into_iter(), left }
    }

    fn next_frame(&mut self) -> Option<Bytes> {
        let first = self.pieces.by_ref().find(|p| !p.is_empty())?;
        if first.len() >= FRAME || first.len() == self.left {
            self.left -= first.len();
            return Some(first);
        }
        let mut frame = BytesMut::with_capacity(FRAME.min(self.left));
        frame.extend_from_slice(&first);
        while let Some(next) = self.pieces.as_slice().first() {
            if frame.len() + next.len() > FRAME {
                break;
            }
            frame.extend_from_slice(next);
            self.pieces.next();
        }
        self.left -= frame.len();
        Some(frame.freeze())
    }
}

/// Pieces on their way through gzip.
pub struct Gzip {
    input: Pieces,
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl Gzip {
    fn new(input: Pieces) -> Self {
        Self { input, encoder: Some(GzEncoder::new(Vec::new(), Compression::new(LEVEL))) }
    }

    /// The next compressed frame. One call compresses at most a few frames of input, so that a large list does not hold
    /// the thread.
    fn next_frame(&mut self) -> Result<Option<Bytes>, BoxError> {
        loop {
            let Some(encoder) = &mut self.encoder else { return Ok(None) };
            match self.input.next_frame() {
                Some(frame) => encoder.write_all(&frame)?,
                None => {
                    let rest = self.encoder.take().map(GzEncoder::finish).transpose()?.unwrap_or_default();
                    return Ok((!rest.is_empty()).then(|| rest.into()));
                }
            }
            if encoder.get_ref().len() >= FRAME / 4 {
                return Ok(Some(std::mem::take(encoder.get_mut()).into()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use std::io::Read;

    fn pieces() -> (Vec<Bytes>, Vec<u8>) {
        let sizes = [1, 0, 10, 70_000, 65_535, 1, 1, 100_000];
        let pieces: Vec<Bytes> =
            sizes.iter().enumerate().map(|(i, n)| Bytes::from(vec![i as u8; *n])).collect();
        let all = pieces.concat();
        (pieces, all)
    }

    #[tokio::test]
    async fn pieces_come_out_whole_and_with_their_length() {
        let (parts, all) = pieces();
        let payload = Payload::Pieces(Pieces::new(parts));
        assert_eq!(payload.size_hint().exact(), Some(all.len() as u64));
        assert_eq!(payload.collect().await.unwrap().to_bytes(), all);
    }

    #[tokio::test]
    async fn gzip_comes_out_as_what_went_in() {
        let (parts, all) = pieces();
        let packed = Payload::Pieces(Pieces::new(parts)).gzip().collect().await.unwrap().to_bytes();
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut unpacked).unwrap();
        assert_eq!(unpacked, all);
    }
}
