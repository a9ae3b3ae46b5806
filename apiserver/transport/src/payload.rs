//! Response bodies.
//!
//! One type for all of them, so that a small answer costs no boxed stream: bytes, pieces that are joined as they go
//! out, their compressed form, frames of a watch, or what comes from another server.

use crate::{aside, pieces::Pieces, untaken::Answer};
use bytes::{Buf, Bytes};
use flate2::{Compression, write::GzEncoder};
use freehold_apiserver_fairness::metrics::Executing;
use freehold_apiserver_fairness::{Ticket, WatchTicket};
use futures_util::Stream;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use std::{
    io::{IoSlice, Write},
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::sync::mpsc;

/// Any error of a body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Bytes of pieces that go out together. They are not copied for it, and each turn of a stream costs some time.
const FRAME: usize = 256 * 1024;
/// Bytes that are compressed at a time, and compressed bytes that go out together.
const PLAIN: usize = 64 * 1024;
const PACKED: usize = 16 * 1024;
/// Compressed frames that wait to be sent.
const READY: usize = 4;
/// Compression level of gzip, as kube-apiserver has it.
pub const LEVEL: u32 = 4;

/// The body of a response.
pub enum Payload {
    /// All at once.
    Full(Bytes),
    /// Many small pieces, sent from where they lie.
    Pieces(Pieces),
    /// Pieces, compressed aside.
    Gzip(mpsc::Receiver<Result<Bytes, BoxError>>),
    /// Frames as they come, and a watch's place among its plane's: as few pointers to follow as can be, for each event.
    Stream(Frames, Option<WatchTicket>),
    /// Frames of a watch that begins elsewhere, and its place.
    Beginning(Beginning, Option<WatchTicket>),
    /// What another server or an injected handler gives, with trailers.
    Boxed(UnsyncBoxBody<Bytes, BoxError>),
    /// Any of these, with a place that is given back when all of it was sent.
    Held(Box<Held>),
    /// Any of these that are here, given back when its client does not take it.
    Followed(Answer),
}

/// Frames as they come.
pub type Frames = Pin<Box<dyn Stream<Item = Bytes> + Send>>;

/// What a watch says at its beginning, or what is left of it once it has to wait.
pub enum Step {
    /// A frame to be sent.
    Frame(Bytes),
    /// All further frames.
    Rest(Frames),
}

/// How a watch begins, and what lives as long.
pub struct Beginning {
    steps: mpsc::Receiver<Step>,
    guards: Vec<Box<dyn Send>>,
}

impl Beginning {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Step>> {
        let step = ready!(self.steps.poll_recv(cx));
        Poll::Ready(step.map(|step| match step {
            Step::Rest(frames) => Step::Rest(self.guards.drain(..).fold(frames, keeping)),
            frame => frame,
        }))
    }
}

fn keeping(inner: Frames, guard: Box<dyn Send>) -> Frames {
    Box::pin(Keeping { inner, _guard: guard })
}

/// A body and the place that it takes.
pub struct Held {
    body: Payload,
    place: Place,
}

/// What a body holds until it is sent.
pub enum Place {
    /// A request's place among all.
    Request {
        /// What it is charged by.
        ticket: Ticket,
        /// That it has its turn, for the metrics.
        _executing: Option<Executing>,
    },
    /// A watch's place among its plane's. It is only kept.
    Watch(WatchTicket),
}

impl Payload {
    /// Returns a body without bytes.
    pub fn empty() -> Self {
        Self::Full(Bytes::new())
    }

    /// A stream of frames.
    pub fn stream(stream: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self::Stream(Box::pin(stream), None)
    }

    /// What a watch says at its beginning, step by step.
    pub fn beginning(steps: mpsc::Receiver<Step>) -> Self {
        Self::Beginning(Beginning { steps, guards: Vec::new() }, None)
    }

    /// How many bytes it will be, where that is known.
    pub fn len(&self) -> Option<usize> {
        match self {
            Self::Full(bytes) => Some(bytes.len()),
            Self::Pieces(pieces) => Some(pieces.len()),
            Self::Gzip(_) | Self::Stream(..) | Self::Beginning(..) => None,
            Self::Held(held) => held.body.len(),
            Self::Boxed(body) => body.size_hint().exact().and_then(|n| usize::try_from(n).ok()),
            Self::Followed(answer) => answer.size().exact().and_then(|n| usize::try_from(n).ok()),
        }
    }

    /// Returns a body whose frames are bytes that lie together.
    pub fn boxed_bytes(self) -> UnsyncBoxBody<Bytes, BoxError> {
        match self {
            Self::Boxed(body) => body,
            other => other.map_frame(|frame| frame.map_data(Bytes::from)).boxed_unsync(),
        }
    }

    /// All of it, where it is here and has at most so many bytes.
    pub fn whole(&self, max: usize) -> Option<Bytes> {
        let fits = self.len().is_some_and(|length| length <= max);
        match self {
            Self::Full(bytes) if fits => Some(bytes.clone()),
            Self::Pieces(pieces) if fits => Some(pieces.concat()),
            Self::Held(held) => held.body.whole(max),
            _ => None,
        }
    }

    /// Whether it comes as it comes.
    pub fn is_stream(&self) -> bool {
        match self {
            Self::Held(held) => held.body.is_stream(),
            other => matches!(other, Self::Stream(..) | Self::Beginning(..) | Self::Boxed(_)),
        }
    }

    /// Whether it is here, large, and sent from where it lies.
    pub fn is_large(&self) -> bool {
        match self {
            Self::Pieces(pieces) => pieces.len() > FRAME,
            Self::Held(held) => held.body.is_large(),
            _ => false,
        }
    }

    /// Returns a body that keeps `guard` until it has ended or is given up.
    pub fn keeping(self, guard: impl Send + 'static) -> Self {
        match self {
            Self::Stream(inner, place) => Self::Stream(keeping(inner, Box::new(guard)), place),
            Self::Beginning(mut beginning, place) => {
                beginning.guards.push(Box::new(guard));
                Self::Beginning(beginning, place)
            }
            Self::Boxed(inner) => Self::Boxed(Keeping { inner, _guard: Box::new(guard) }.boxed_unsync()),
            Self::Held(held) => {
                let Held { body, place } = *held;
                body.keeping(guard).held(place)
            }
            other => other,
        }
    }

    /// Returns a body with a place that is given back when it was sent.
    pub fn held(self, place: Place) -> Self {
        match (self, place) {
            (Self::Stream(frames, _), Place::Watch(ticket)) => Self::Stream(frames, Some(ticket)),
            (Self::Beginning(beginning, _), Place::Watch(ticket)) => Self::Beginning(beginning, Some(ticket)),
            (body, place) => Self::Held(Box::new(Held { body, place })),
        }
    }

    /// Whether it comes from another server.
    pub fn is_foreign(&self) -> bool {
        match self {
            Self::Held(held) => held.body.is_foreign(),
            other => matches!(other, Self::Boxed(_)),
        }
    }

    /// Whether it is known to be empty.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Returns it compressed; streams and foreign bodies stay as they are.
    pub fn gzip(self) -> Self {
        match self {
            Self::Full(bytes) => Self::Gzip(gzip(Pieces::new(vec![bytes]))),
            Self::Pieces(pieces) => Self::Gzip(gzip(pieces)),
            Self::Held(held) => {
                let Held { body, place } = *held;
                Self::Held(Box::new(Held { body: body.gzip(), place }))
            }
            other => other,
        }
    }
}

/// A stream with something that lives as long.
struct Keeping<T> {
    inner: T,
    _guard: Box<dyn Send>,
}

impl Stream for Keeping<Frames> {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.inner.as_mut().poll_next(cx)
    }
}

impl Body for Keeping<UnsyncBoxBody<Bytes, BoxError>> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Body for Payload {
    type Data = Data;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Data>, BoxError>>> {
        let this = self.get_mut();
        if let Self::Beginning(beginning, place) = this {
            match ready!(beginning.poll(cx)) {
                Some(Step::Frame(frame)) => return Poll::Ready(Some(Ok(Frame::data(Data::Whole(frame))))),
                Some(Step::Rest(frames)) => *this = Self::Stream(frames, place.take()),
                None => return Poll::Ready(None),
            }
        }
        let data = match this {
            Self::Beginning(..) => None,
            // What is handed over, the connection keeps: no more of it than its client takes.
            Self::Full(bytes) => {
                (!bytes.is_empty()).then(|| Data::Whole(bytes.split_to(bytes.len().min(FRAME))))
            }
            Self::Pieces(pieces) => pieces.split(FRAME).map(Data::Pieces),
            Self::Gzip(frames) => ready!(frames.poll_recv(cx)).transpose()?.map(Data::Whole),
            Self::Stream(stream, place) => match stream.as_mut().poll_next(cx) {
                Poll::Ready(frame) => frame.map(Data::Whole),
                Poll::Pending => {
                    if let Some(place) = place {
                        place.begun();
                    }
                    return Poll::Pending;
                }
            },
            Self::Boxed(body) => {
                let frame = ready!(Pin::new(body).poll_frame(cx));
                return Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(Data::Whole))));
            }
            Self::Held(held) => {
                let frame = ready!(Pin::new(&mut held.body).poll_frame(cx));
                if let (Some(Ok(frame)), Place::Request { ticket, .. }) = (&frame, &held.place) {
                    ticket.sent(frame.data_ref().map_or(0, Buf::remaining));
                }
                return Poll::Ready(frame);
            }
            Self::Followed(answer) => return answer.poll(cx),
        };
        Poll::Ready(data.map(|d| Ok(Frame::data(d))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Boxed(body) => body.is_end_stream(),
            Self::Held(held) => held.body.is_end_stream(),
            Self::Followed(answer) => answer.is_over(),
            other => other.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Boxed(body) => body.size_hint(),
            Self::Held(held) => held.body.size_hint(),
            Self::Followed(answer) => answer.size(),
            other => other.len().map_or_else(SizeHint::default, |n| SizeHint::with_exact(n as u64)),
        }
    }
}

/// What a frame of a body has.
#[derive(Debug)]
pub enum Data {
    /// Bytes that lie together.
    Whole(Bytes),
    /// Pieces that are sent from where they lie.
    Pieces(Pieces),
}

impl From<Data> for Bytes {
    fn from(data: Data) -> Self {
        match data {
            Data::Whole(bytes) => bytes,
            Data::Pieces(pieces) => pieces.concat(),
        }
    }
}

impl Buf for Data {
    fn remaining(&self) -> usize {
        match self {
            Self::Whole(bytes) => bytes.len(),
            Self::Pieces(pieces) => pieces.len(),
        }
    }

    fn chunk(&self) -> &[u8] {
        match self {
            Self::Whole(bytes) => bytes,
            Self::Pieces(pieces) => pieces.first(),
        }
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        match self {
            Self::Whole(bytes) => bytes.chunks_vectored(slices),
            Self::Pieces(pieces) => pieces.slices(slices),
        }
    }

    fn advance(&mut self, count: usize) {
        match self {
            Self::Whole(bytes) => bytes.advance(count),
            Self::Pieces(pieces) => pieces.advance(count),
        }
    }
}

/// Compresses pieces aside, as they are taken: a large list takes a second.
fn gzip(mut input: Pieces) -> mpsc::Receiver<Result<Bytes, BoxError>> {
    let (send, frames) = mpsc::channel(READY);
    aside::spawn(async move {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::new(LEVEL));
        while let Some(frame) = input.split(PLAIN) {
            if let Err(error) = frame.all().try_for_each(|piece| encoder.write_all(piece)) {
                return drop(send.send(Err(error.into())).await);
            }
            if encoder.get_ref().len() >= PACKED
                && send.send(Ok(std::mem::take(encoder.get_mut()).into())).await.is_err()
            {
                return;
            }
        }
        let rest = encoder.finish().map(Bytes::from).map_err(BoxError::from);
        drop(send.send(rest).await);
    });
    frames
}

#[cfg(test)]
mod tests {
    use super::*;
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
    async fn frames_of_pieces_are_read_in_parts_of_any_size() {
        for step in [1, 7, 1000, 65_537, 1_000_000] {
            let (parts, all) = pieces();
            let (mut payload, mut got) = (Payload::Pieces(Pieces::new(parts)), Vec::new());
            while let Some(frame) = payload.frame().await {
                let mut data = frame.unwrap().into_data().unwrap();
                while data.has_remaining() {
                    let mut slices = [IoSlice::new(&[]); 3];
                    let count = data.chunks_vectored(&mut slices);
                    let seen: Vec<u8> = slices[..count].iter().flat_map(|s| s.to_vec()).take(step).collect();
                    got.extend_from_slice(&seen);
                    data.advance(seen.len());
                }
            }
            assert!(got == all, "{step}");
        }
    }

    #[tokio::test]
    async fn gzip_comes_out_as_what_went_in() {
        let (parts, all) = pieces();
        let packed = Payload::Pieces(Pieces::new(parts)).gzip().collect().await.unwrap().to_bytes();
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut unpacked).unwrap();
        assert_eq!(unpacked, all);
    }

    #[tokio::test]
    async fn a_watch_that_begins_elsewhere_goes_on_as_any_other_and_keeps_what_it_is_to_keep() {
        let (send, steps) = mpsc::channel(READY);
        let kept = std::sync::Arc::new(());
        let body = Payload::beginning(steps).keeping(kept.clone());
        assert!(body.is_stream() && body.len().is_none());
        let rest = futures_util::stream::iter(["c", "d"].map(Bytes::from));
        for step in [Step::Frame("a".into()), Step::Frame("b".into()), Step::Rest(Box::pin(rest))] {
            assert!(send.send(step).await.is_ok());
        }
        let mut body = body;
        for expected in ["a", "b", "c"] {
            let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!(Bytes::from(frame), expected);
        }
        assert_eq!(std::sync::Arc::strong_count(&kept), 2);
        assert_eq!(body.collect().await.unwrap().to_bytes(), "d");
        assert_eq!(std::sync::Arc::strong_count(&kept), 1);
    }
}
