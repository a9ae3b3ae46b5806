//! Watches: a stream of events becomes lines of JSON that the client reads as they come.
//!
//! A watch ends when its time is up, when the server stops, when the client goes away, or after an error. Events that
//! are ready together go out together.

use crate::{
    call::Call,
    metrics::Held,
    options,
    output::{EventEncoder, Output},
    payload::Payload,
    respond::{self, Reply},
};
use bytes::{BufMut, Bytes, BytesMut};
use freehold_apiserver_registry::{EventKind, Operation, WatchEvent};
use freehold_machinery::Status;
use futures_util::{Stream, stream::BoxStream};
use http::HeaderValue;
use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::{Sleep, sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;

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
    let op = Operation { name: None, ..op };
    let labels = call.edge.metrics.labels(call.info, true, false, false);
    let events = call.edge.backend.watch(&call.target, op, options).await?;
    let frames = Frames {
        events,
        encoder: output.events(),
        end: Box::pin(sleep(time)),
        stop: Box::pin(call.edge.stop.clone().cancelled_owned()),
        done: false,
        _held: call.edge.metrics.long_running(&labels),
    };
    Ok(respond::reply(200, HeaderValue::from_static("application/json"), Payload::stream(frames)))
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
    encoder: EventEncoder,
    end: Pin<Box<Sleep>>,
    stop: Pin<Box<WaitForCancellationFutureOwned>>,
    done: bool,
    _held: Held,
}

impl Stream for Frames {
    type Item = Bytes;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let this = self.get_mut();
        let mut frame = BytesMut::new();
        while !this.done && frame.len() < FRAME {
            match this.events.as_mut().poll_next(cx) {
                Poll::Ready(Some(event)) => this.done = write(&mut this.encoder, &mut frame, event),
                Poll::Ready(None) => this.done = true,
                Poll::Pending => break,
            }
        }
        if !frame.is_empty() {
            return Poll::Ready(Some(frame.freeze()));
        }
        let over =
            this.done || this.end.as_mut().poll(cx).is_ready() || this.stop.as_mut().poll(cx).is_ready();
        if over { Poll::Ready(None) } else { Poll::Pending }
    }
}

fn kind_name(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Added => "ADDED",
        EventKind::Modified => "MODIFIED",
        EventKind::Deleted => "DELETED",
    }
}

/// Appends an event; says whether it is the last.
fn write(encoder: &mut EventEncoder, frame: &mut BytesMut, event: WatchEvent) -> bool {
    let (kind, object) = match event {
        WatchEvent::Changed(changed) => (kind_name(changed.kind), encoder.object(&changed.object)),
        WatchEvent::Bookmark(revision, initial_end) => {
            ("BOOKMARK", Ok(encoder.bookmark(revision, initial_end)))
        }
        WatchEvent::Error(status) => ("ERROR", Err(status)),
    };
    let (kind, object, last) = match object {
        Ok(object) => (kind, object, false),
        Err(status) => ("ERROR", Bytes::from(status.to_json().to_string()), true),
    };
    frame.reserve(object.len() + 40);
    frame.put_slice(b"{\"type\":\"");
    frame.put_slice(kind.as_bytes());
    frame.put_slice(b"\",\"object\":");
    frame.put_slice(&object);
    frame.put_slice(b"}\n");
    last
}
