//! Watches: a stream of events becomes frames that the client reads as they come.
//!
//! A watch ends when its time is up, when the server stops, when the client goes away, or after an error. Events that
//! are ready together go out together.

use crate::{
    call::Call,
    events::Encoder,
    metrics::Held,
    options,
    output::Output,
    payload::Payload,
    respond::{self, Reply},
    streams,
};
use bytes::{Bytes, BytesMut};
use freehold_apiserver_registry::{Operation, WatchEvent};
use freehold_machinery::Status;
use futures_util::{
    Stream, StreamExt,
    future::BoxFuture,
    stream::{BoxStream, FuturesUnordered},
};
use std::{
    iter,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::sleep;

/// Events are collected to frames of about this size, in bytes.
const FRAME: usize = 64 * 1024;

/// Starts a watch.
pub(crate) async fn serve(call: &Call<'_>, op: Operation) -> Result<Reply, Status> {
    let output = Output::of_watch(call, &op)?;
    let mut options = options::watch(call.query)?;
    if let Some(name) = call.info.resource.as_ref().filter(|r| r.watch_prefix).and_then(|r| r.name.as_ref()) {
        options.list.field_selector = format!("metadata.name={name}");
    }
    let time = time_of(call)?;
    options.time = time;
    let op = Operation { name: None, ..op };
    let labels = call.edge.metrics.labels(call.info, true, false, false);
    let events = call.edge.backend.watch(&call.target, op, options).await?;
    let encoder = Encoder::new(output)?;
    let content_type = encoder.content_type();
    let stop = call.edge.stop.clone();
    let over: BoxFuture<'static, ()> = Box::pin(async move {
        tokio::select! {
            () = sleep(time) => {}
            () = stop.cancelled() => {}
        }
    });
    let frames = Frames {
        events,
        encoder,
        over: iter::once(over).collect(),
        done: false,
        _held: call.edge.metrics.long_running(&labels),
    };
    streams::is_watch();
    Ok(respond::reply(200, content_type, Payload::stream(frames)))
}

/// `timeoutSeconds`, or a random time of once to twice the shortest, so that clients that came together do not come
/// again together.
fn time_of(call: &Call<'_>) -> Result<Duration, Status> {
    let least = call.edge.limits.watch;
    Ok(match call.query.number("timeoutSeconds")? {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds.unsigned_abs().min(7 * 24 * 3600)),
        _ => least + least * (uuid::Uuid::new_v4().as_u128() as u8).into() / 256,
    })
}

struct Frames {
    events: BoxStream<'static, WatchEvent>,
    encoder: Encoder,
    /// The end of its time, or of the server. It is looked at when it woke this watch, not for each event.
    over: FuturesUnordered<BoxFuture<'static, ()>>,
    done: bool,
    _held: Held,
}

impl Stream for Frames {
    type Item = Bytes;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let this = self.get_mut();
        let mut chunk = Chunk::default();
        while !this.done && chunk.len() < FRAME {
            match this.events.as_mut().poll_next(cx) {
                Poll::Ready(Some(event)) => {
                    let (frame, last) = this.encoder.frame(event);
                    chunk.push(frame);
                    this.done = last;
                }
                Poll::Ready(None) => this.done = true,
                Poll::Pending => break,
            }
        }
        if let Some(bytes) = chunk.take() {
            return Poll::Ready(Some(bytes));
        }
        let over = this.done || this.over.poll_next_unpin(cx).is_ready();
        if over { Poll::Ready(None) } else { Poll::Pending }
    }
}

/// Frames that go out together. One alone is passed on without a copy.
#[derive(Default)]
struct Chunk {
    first: Bytes,
    all: BytesMut,
}

impl Chunk {
    fn len(&self) -> usize {
        self.first.len() + self.all.len()
    }

    fn push(&mut self, frame: Bytes) {
        if self.len() == 0 {
            self.first = frame;
            return;
        }
        let first = std::mem::take(&mut self.first);
        self.all.extend_from_slice(&first);
        self.all.extend_from_slice(&frame);
    }

    fn take(self) -> Option<Bytes> {
        let bytes = if self.all.is_empty() { self.first } else { self.all.freeze() };
        (!bytes.is_empty()).then_some(bytes)
    }
}
