//! Answers of the apiserver on their way to a browser: small ones whole, large ones in pieces.
//!
//! A large answer is never in memory as a whole. What its client does not take within [`PATIENCE`] is dropped, and a
//! session receives so many large answers at a time, so that clients which read slowly hold a bounded part of the
//! connections that all sessions share.

use crate::{
    error::Failure,
    reply::{self, BoxError, Reply},
};
use bytes::{Bytes, BytesMut};
use freehold_client::Error;
use futures_util::{Stream, StreamExt, stream};
use http::HeaderValue;
use std::{pin::Pin, sync::Arc, time::Duration};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::timeout,
};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

/// Bytes of an answer that is sent whole.
const SMALL: usize = 256 << 10;
/// Longest time for the first [`SMALL`] bytes of an answer, and between two pieces of a larger one.
const UPSTREAM_TIME: Duration = Duration::from_secs(65);
/// Longest time for which a client takes nothing of a large answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pieces of a large answer that wait for its client.
const QUEUE: usize = 4;

/// Large answers that a session receives at a time.
pub(crate) const LARGE: usize = 16;
/// Logs that a session follows at a time.
pub(crate) const LOGS: usize = 32;

/// The pieces of an answer.
type Pieces = Pin<Box<dyn Stream<Item = Result<Bytes, Error>> + Send>>;

/// A reply with the bytes of an answer: as they come, if there are many. `places` are those of the session.
pub(crate) async fn reply(
    pieces: impl Stream<Item = Result<Bytes, Error>> + Send + 'static,
    content_type: HeaderValue,
    places: &Arc<Semaphore>,
) -> Result<Reply, Failure> {
    let mut pieces: Pieces = Box::pin(pieces);
    let late = |_| Failure::new(504, "Timeout", "the API server did not answer in time");
    let (first, is_whole) = timeout(UPSTREAM_TIME, begin(&mut pieces)).await.map_err(late)??;
    if is_whole {
        let mut reply = reply::bytes(http::StatusCode::OK, "", first);
        reply.headers_mut().insert(http::header::CONTENT_TYPE, content_type);
        return Ok(reply);
    }
    let place = place(places, "large answers")?;
    let (sender, receiver) = mpsc::channel(QUEUE);
    tokio::spawn(pass_on(first, pieces, sender, place));
    Ok(reply::stream(content_type, ReceiverStream::new(receiver)))
}

/// A place for an answer.
pub(crate) fn place(places: &Arc<Semaphore>, what: &str) -> Result<OwnedSemaphorePermit, Failure> {
    let place = places.clone().try_acquire_owned();
    place.map_err(|_| Failure::too_many(format!("too many {what} at a time")))
}

/// A reply with lines as they come, for as long as its client takes them and its session lasts.
pub(crate) fn follow(
    lines: impl Stream<Item = Result<Bytes, Error>> + Send + 'static,
    place: OwnedSemaphorePermit,
    ended: CancellationToken,
) -> Reply {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let passing = follow_on(Box::pin(lines), sender, PATIENCE);
    tokio::spawn(async move {
        let _place = place;
        tokio::select! {
            () = passing => {}
            () = ended.cancelled() => {}
        }
    });
    reply::stream(HeaderValue::from_static("text/plain; charset=utf-8"), ReceiverStream::new(receiver))
}

/// Passes lines on until they end, or are not taken for a while. They may be far apart.
async fn follow_on(mut lines: Pieces, to: mpsc::Sender<Result<Bytes, BoxError>>, patience: Duration) {
    loop {
        let line = tokio::select! {
            line = lines.next() => line,
            () = to.closed() => return,
        };
        let Some(line) = line else { return };
        if !matches!(timeout(patience, to.send(line.map_err(Into::into))).await, Ok(Ok(()))) {
            return;
        }
    }
}

/// The beginning of an answer, and whether that is all of it.
async fn begin(pieces: &mut Pieces) -> Result<(Bytes, bool), Failure> {
    let mut first = BytesMut::new();
    while first.len() <= SMALL {
        match pieces.next().await {
            Some(piece) => first.extend_from_slice(&piece?),
            None => return Ok((first.freeze(), true)),
        }
    }
    Ok((first.freeze(), false))
}

/// Passes pieces on until the answer ends, fails, or is not taken any more.
async fn pass_on(
    first: Bytes,
    pieces: Pieces,
    to: mpsc::Sender<Result<Bytes, BoxError>>,
    _place: OwnedSemaphorePermit,
) {
    let mut pieces = stream::iter([Ok(first)]).chain(pieces);
    loop {
        let piece: Result<Bytes, BoxError> = match timeout(UPSTREAM_TIME, pieces.next()).await {
            Ok(None) => return,
            Ok(Some(piece)) => piece.map_err(Into::into),
            Err(late) => Err(late.into()),
        };
        let is_last = piece.is_err();
        // An answer that breaks off has to look broken to its client.
        if !matches!(timeout(PATIENCE, to.send(piece)).await, Ok(Ok(()))) || is_last {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    const TYPE: HeaderValue = HeaderValue::from_static("application/json");

    fn answer(pieces: usize, read: Arc<AtomicUsize>) -> impl Stream<Item = Result<Bytes, Error>> + Send {
        stream::iter(0..pieces).map(move |_| {
            read.fetch_add(1, SeqCst);
            Ok(Bytes::from(vec![b'x'; 64 << 10]))
        })
    }

    async fn sent(pieces: usize) -> usize {
        let places = Arc::new(Semaphore::new(1));
        let reply = reply(answer(pieces, Arc::default()), TYPE, &places).await.unwrap();
        reply.into_body().collect().await.unwrap().to_bytes().len()
    }

    #[tokio::test]
    async fn answers_arrive_whole_whatever_their_size() {
        for pieces in [0, 1, 4, 5, 100] {
            assert_eq!(sent(pieces).await, pieces * (64 << 10), "{pieces}");
        }
    }

    #[tokio::test]
    async fn a_log_that_nobody_takes_ends() {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let endless = stream::repeat(()).map(|()| Ok(Bytes::from_static(b"line")));
        follow_on(Box::pin(endless), sender, Duration::from_millis(1)).await;
        assert_eq!(receiver.len(), QUEUE);
        let (sender, receiver) = mpsc::channel(QUEUE);
        drop(receiver);
        follow_on(Box::pin(stream::pending()), sender, PATIENCE).await;
    }

    #[tokio::test]
    async fn a_large_answer_is_read_no_faster_than_its_client_takes_it() {
        let (places, read) = (Arc::new(Semaphore::new(1)), Arc::new(AtomicUsize::new(0)));
        let first = reply(answer(10_000, read.clone()), TYPE, &places).await.unwrap();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(read.load(SeqCst) < 16, "{} pieces were read", read.load(SeqCst));
        let refused = reply(answer(10, Arc::default()), TYPE, &places).await;
        assert_eq!(refused.err().map(|failure| failure.status().code), Some(429));
        assert!(reply(answer(1, Arc::default()), TYPE, &places).await.is_ok(), "a small one needs no place");
        drop(first);
        while places.available_permits() == 0 {
            tokio::task::yield_now().await;
        }
    }
}
