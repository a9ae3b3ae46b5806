//! Watches: a stream of events becomes frames that the client reads as they come.
//!
//! A watch ends when its time is up, when the server stops, when the client goes away, or after an error. Events that
//! are ready together go out together.

use crate::{
    call::Call,
    events::Encoder,
    options,
    output::Output,
    respond::{self, Reply},
    websocket,
};
use bytes::{Bytes, BytesMut};
use freehold_apiserver_fairness::metrics::Held;
use freehold_apiserver_registry::{Operation, WatchEvent};
use freehold_apiserver_transport::{
    aside,
    payload::{Payload, Step},
    streams,
};
use freehold_machinery::Status;
use futures_util::{
    Stream, StreamExt,
    future::BoxFuture,
    stream::{BoxStream, FuturesUnordered, poll_fn},
};
use http::StatusCode;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{sync::mpsc, time::sleep};
use tracing::Instrument;

/// Events are collected to frames of about this size, in bytes.
const FRAME: usize = 64 * 1024;
/// Frames of a watch's beginning that wait to be sent.
const READY: usize = 2;

/// Starts a watch. Who asks for a WebSocket gets a message for each event.
pub(crate) async fn serve(
    call: &Call<'_>,
    op: Operation,
    upgrade: Option<OnUpgrade>,
) -> Result<Reply, Status> {
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
    let encoder = Encoder::new(output, call.edge.metrics.watched(call.info))?;
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
        over: [over, call.revoked()].into_iter().collect(),
        done: false,
        long: None,
        aside: false,
        _held: call.edge.metrics.long_running(&labels),
    };
    if let Some(upgrade) = upgrade.filter(|_| websocket::is_asked(&call.parts.headers)) {
        return Ok(upgraded(call, upgrade, frames));
    }
    streams::hand_over();
    let body = match call.turn.lock().takes_long() {
        true => Payload::beginning(aside(frames, step)),
        false => Payload::stream(Watching::Here(frames)),
    };
    Ok(respond::reply(200, content_type, body))
}

/// Goes on over a WebSocket, once the client has seen the answer.
fn upgraded(call: &Call<'_>, upgrade: OnUpgrade, mut frames: Frames) -> Reply {
    let reply = websocket::handshake(&call.parts.headers);
    if reply.status() != StatusCode::SWITCHING_PROTOCOLS {
        return reply;
    }
    // What takes long holds nobody up but its own socket.
    frames.aside = true;
    let mut turn = call.turn.lock();
    let (mut place, long) = (turn.of_watch(), turn.takes_long());
    drop(turn);
    let (stop, drain) = (call.edge.stop.clone(), call.edge.limits.drain);
    // What is said to a client that does not listen ends with the server at the latest.
    let cut = async move {
        stop.cancelled().await;
        sleep(drain).await;
    };
    let kind = frames.encoder.message_kind();
    let talk = async move {
        let socket = match upgrade.await {
            Ok(socket) => TokioIo::new(socket),
            Err(error) => return tracing::debug!(%error, "upgrade failed"),
        };
        let messages = poll_fn(move |cx| {
            let message = frames.poll_message(cx);
            if let Some(place) = place.as_mut().filter(|_| message.is_pending()) {
                place.begun();
            }
            message
        });
        tokio::select! {
            sent = websocket::send(socket, kind, messages) => {
                if let Err(error) = sent {
                    tracing::debug!(%error, "watch ended");
                }
            }
            () = cut => {}
        }
    };
    let talk = talk.instrument(tracing::debug_span!("watch over a WebSocket"));
    match long {
        true => aside::spawn(talk),
        false => drop(tokio::spawn(talk)),
    }
    reply
}

/// `timeoutSeconds`, or a random time of once to twice the shortest, so that clients that came together do not come
/// again together.
fn time_of(call: &Call<'_>) -> Result<Duration, Status> {
    let least = call.edge.limits.watch;
    Ok(match call.query.number("timeoutSeconds")? {
        Some(seconds) if seconds != 0 => Duration::from_secs(seconds.clamp(0, 7 * 24 * 3600).unsigned_abs()),
        _ => least + least * (uuid::Uuid::new_v4().as_u128() as u8).into() / 256,
    })
}

struct Frames {
    events: BoxStream<'static, WatchEvent>,
    encoder: Encoder,
    /// The end of its time, of the server, or of its author's rights. It is looked at when it woke this watch, not for each event.
    over: FuturesUnordered<BoxFuture<'static, ()>>,
    done: bool,
    /// What takes long to say, which is left to be said aside.
    long: Option<WatchEvent>,
    /// Whether it is aside, where everything may take as long as it does.
    aside: bool,
    _held: Held,
}

impl Frames {
    /// The next event's frame; `None` behind the last.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.done || self.long.is_some() && !self.aside {
            return if self.done { Poll::Ready(None) } else { Poll::Pending };
        }
        let next = match self.long.take() {
            Some(event) => Some(event),
            None => ready!(self.events.as_mut().poll_next(cx)),
        };
        let Some(event) = next else {
            self.done = true;
            return Poll::Ready(None);
        };
        if !self.aside && self.encoder.takes_long(&event) {
            self.long = Some(event);
            return Poll::Pending;
        }
        let (frame, last) = self.encoder.frame(event);
        self.done = last;
        Poll::Ready(Some(frame))
    }

    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.over.poll_next_unpin(cx).map(drop)
    }

    /// The next event as a message, which needs no length before it; `None` when the watch is over.
    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        match self.poll_event(cx) {
            Poll::Ready(frame) => Poll::Ready(frame.map(|frame| self.encoder.message_of(frame))),
            Poll::Pending => self.poll_over(cx).map(|()| None),
        }
    }
}

impl Stream for Frames {
    type Item = Bytes;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let this = self.get_mut();
        let mut chunk = Chunk::default();
        while chunk.len() < FRAME {
            match this.poll_event(cx) {
                Poll::Ready(Some(frame)) => chunk.push(frame),
                Poll::Ready(None) | Poll::Pending => break,
            }
        }
        if let Some(bytes) = chunk.take() {
            return Poll::Ready(Some(bytes));
        }
        let over = this.done || this.poll_over(cx).is_ready();
        if over { Poll::Ready(None) } else { Poll::Pending }
    }
}

/// A watch, which is its connection's work, but for what takes long to say.
#[expect(clippy::large_enum_variant, reason = "another pointer would have to be followed for each event")]
enum Watching {
    Here(Frames),
    Aside(mpsc::Receiver<Said>),
    Over,
}

/// What a watch says aside, or the watch, once it has to wait.
type Said = Result<Bytes, Box<Frames>>;

impl Stream for Watching {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            let rest = match &mut *self {
                Self::Here(frames) => match Pin::new(&mut *frames).poll_next(cx) {
                    Poll::Pending if frames.long.is_some() => None,
                    polled => return polled,
                },
                Self::Aside(said) => match ready!(said.poll_recv(cx)) {
                    Some(Ok(frame)) => return Poll::Ready(Some(frame)),
                    Some(Err(rest)) => Some(rest),
                    None => return Poll::Ready(None),
                },
                Self::Over => return Poll::Ready(None),
            };
            *self = match (rest, std::mem::replace(&mut *self, Self::Over)) {
                (Some(rest), _) => Self::Here(*rest),
                (None, Self::Here(frames)) => Self::Aside(aside(frames, |said| said)),
                (None, other) => other,
            };
        }
    }
}

/// Has a watch say aside what it has to say, until it has to wait.
fn aside<T: Send + 'static>(mut frames: Frames, step: fn(Said) -> T) -> mpsc::Receiver<T> {
    let (send, steps) = mpsc::channel(READY);
    frames.aside = true;
    aside::spawn(async move {
        loop {
            let said = std::future::poll_fn(|cx| {
                Poll::Ready(match Pin::new(&mut frames).poll_next(cx) {
                    Poll::Ready(frame) => Some(frame),
                    Poll::Pending => None,
                })
            });
            let sent = match said.await {
                Some(Some(frame)) => send.send(step(Ok(frame))).await,
                Some(None) => return,
                None => {
                    frames.aside = false;
                    return drop(send.send(step(Err(Box::new(frames)))).await);
                }
            };
            if sent.is_err() {
                return;
            }
        }
    });
    steps
}

/// What a watch says at its beginning, for a body.
fn step(said: Said) -> Step {
    match said {
        Ok(frame) => Step::Frame(frame),
        Err(rest) => Step::Rest(Box::pin(Watching::Here(*rest))),
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
