//! Many watches, and terminals, in one stream of server-sent events.
//!
//! `GET /console/api/watch` opens a stream, whose first event names it. `PUT` and `DELETE` of
//! `/console/api/watch/STREAM/NAME` begin and end watches in it. Each event names its watch and holds the line that the
//! apiserver sent. A watch goes on from the `resourceVersion` that it is begun with, so a client that lost its stream opens
//! another one and misses nothing. A terminal (`/console/api/exec/STREAM/NAME`) ends with its stream.
//!
//! A client that reads slowly slows its own watches down: all of them share a queue of [`QUEUE`] events, and none reads on
//! while that is full, or while what waits for its group of users is as much as that may be. The stream of a client that
//! takes nothing for [`PATIENCE`] ends.

use crate::{
    error::Failure,
    forward,
    identity::Caller,
    reply::{self, BoxError, Reply},
    secret::{self, Hash},
    sessions::Session,
    share::{Held, Share},
    terminal::{self, Input},
};
use bytes::{Bytes, BytesMut};
use freehold_client::{Error, RawRequest};
use futures_util::{Stream, StreamExt, stream};
use http::HeaderValue;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{json, value::RawValue};
use std::{
    collections::HashMap,
    pin::pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Poll, ready},
    time::Duration,
};
use tokio::{sync::mpsc, time};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Streams of a session.
const STREAMS: usize = 12;
/// Watches of a stream.
const WATCHES: usize = 64;
/// Events that wait for a client, of all of its watches.
const QUEUE: usize = 64;
/// Longest time for which a client takes nothing of what waits for it, and a terminal takes no input.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest event.
const LONGEST_EVENT: usize = 16 << 20;
/// Longest name of a watch.
const LONGEST_NAME: usize = 64;
/// Pause between signs of life, so that proxies keep the connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// What rows of tables come as.
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const JSON: &str = "application/json";

/// A watch that a client wants.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Wanted {
    /// Path and query of a collection of the Kubernetes API.
    path: String,
    /// Events after this one; without it, everything that is there, first.
    #[serde(default)]
    resource_version: String,
    /// Whether objects come as rows of a table.
    #[serde(default)]
    table: bool,
}

impl Wanted {
    /// The request of the watch.
    fn request(&self) -> Result<RawRequest, Failure> {
        let path = forward::path(&self.path)?;
        let separator = if path.contains('?') { '&' } else { '?' };
        let known = self.resource_version.bytes().all(|b| b.is_ascii_digit());
        if !known || self.resource_version.len() > 20 {
            return Err(Failure::bad_request("resourceVersion is a number"));
        }
        let from = match self.resource_version.as_str() {
            "" => "sendInitialEvents=true&resourceVersionMatch=NotOlderThan".to_owned(),
            version => format!("resourceVersion={version}"),
        };
        let path = format!("{path}{separator}watch=true&allowWatchBookmarks=true&{from}");
        Ok(RawRequest { accept: if self.table { TABLE } else { JSON }, ..RawRequest::get(path) })
    }
}

/// An open stream.
struct Open {
    session: Weak<Session>,
    owner: Hash,
    events: Events,
    running: Mutex<HashMap<String, Running>>,
    ended: CancellationToken,
}

/// An event that waits for its client, with what it takes of its group's share.
struct Frame {
    bytes: Bytes,
    held: Held,
}

/// Where the events of a stream go.
#[derive(Clone)]
pub(crate) struct Events {
    queue: mpsc::Sender<Frame>,
    share: Arc<Share>,
}

impl Events {
    /// Sends an event when there is room for it; `false` if the stream has ended.
    pub(crate) async fn send(&self, bytes: Bytes) -> Result<bool, Failure> {
        let held = self.share.hold(bytes.len()).await?;
        Ok(self.pass(Frame { bytes, held }).await)
    }

    async fn pass(&self, frame: Frame) -> bool {
        self.queue.send(frame).await.is_ok()
    }
}

/// Events that wait for a client, until its stream ends.
struct Queue {
    frames: Mutex<Option<mpsc::Receiver<Frame>>>,
    taken: AtomicU64,
}

impl Queue {
    /// The events as a client takes them. The one that it is being sent counts until it takes the next.
    fn frames(self: Arc<Self>) -> impl Stream<Item = Bytes> {
        let mut sent = None;
        stream::poll_fn(move |context| {
            let next = match self.frames.lock().as_mut() {
                Some(frames) => ready!(frames.poll_recv(context)),
                None => None,
            };
            Poll::Ready(next.map(|frame| {
                self.taken.fetch_add(1, Relaxed);
                drop(sent.replace(frame.held));
                frame.bytes
            }))
        })
    }

    /// Ends a stream when its client takes nothing for a while, and drops what waits when the stream ends.
    async fn guard(&self, ended: &CancellationToken, patience: Duration) {
        let mut before = 0;
        while time::timeout(patience, ended.cancelled()).await.is_err() {
            let taken = self.taken.load(Relaxed);
            let waits = self.frames.lock().as_ref().is_some_and(|frames| !frames.is_empty());
            if waits && taken == before {
                ended.cancel();
            }
            before = taken;
        }
        let left = self.frames.lock().take();
        drop(left);
    }
}

/// A watch or a terminal of a stream; it ends when this is dropped.
struct Running {
    number: u64,
    /// Where a terminal's input goes.
    input: Option<mpsc::Sender<Input>>,
    _stop: DropGuard,
}

/// What a stream has for something that runs in it.
pub(crate) struct Place {
    open: Arc<Open>,
    name: String,
    number: u64,
    stop: CancellationToken,
}

/// All open streams of this process.
#[derive(Default)]
pub(crate) struct Streams {
    open: Mutex<HashMap<String, Arc<Open>>>,
    begun: std::sync::atomic::AtomicU64,
}

/// Forgets a stream when its client is gone.
struct Forget {
    streams: Arc<Streams>,
    name: String,
    session: Arc<Session>,
}

impl Drop for Forget {
    fn drop(&mut self) {
        self.session.streams.fetch_sub(1, Relaxed);
        if let Some(open) = self.streams.open.lock().remove(&self.name) {
            open.ended.cancel();
            open.running.lock().clear();
        }
    }
}

impl Streams {
    /// Opens a stream for a session.
    pub(crate) fn open(self: &Arc<Self>, session: &Arc<Session>) -> Result<Reply, Failure> {
        if session.streams.fetch_add(1, Relaxed) >= STREAMS {
            session.streams.fetch_sub(1, Relaxed);
            return Err(Failure::too_many(format!("a session has at most {STREAMS} streams")));
        }
        let name = secret::fresh();
        let forget = Forget { streams: self.clone(), name: name.clone(), session: session.clone() };
        let (sender, frames) = mpsc::channel(QUEUE);
        let events = Events { queue: sender, share: session.share.clone() };
        let queue = Arc::new(Queue { frames: Mutex::new(Some(frames)), taken: AtomicU64::new(0) });
        let ended = session.ended.child_token();
        let (owner, weak) = (session.id, Arc::downgrade(session));
        let open = Open { session: weak, owner, events, running: Mutex::default(), ended: ended.clone() };
        self.open.lock().insert(name.clone(), Arc::new(open));
        let (guarded, end) = (queue.clone(), ended.clone());
        tokio::spawn(async move { guarded.guard(&end, PATIENCE).await });
        let hello = event("stream", &json!({"stream": name}).to_string());
        let body = stream::iter([hello]).chain(with_keep_alive(queue.frames(), ended)).map(move |frame| {
            let _until_here = &forget;
            Ok::<_, BoxError>(frame)
        });
        Ok(reply::stream(HeaderValue::from_static("text/event-stream"), body))
    }

    fn of(&self, name: &str, session: &Session) -> Result<Arc<Open>, Failure> {
        let open = self.open.lock().get(name).cloned();
        // A stream of somebody else is as good as none.
        open.filter(|open| open.owner == session.id)
            .ok_or_else(|| Failure::new(404, "NotFound", "the stream has ended: open another one"))
    }

    /// Begins a watch in a stream, in place of what has that name.
    pub(crate) fn begin(&self, at: (&str, &str), session: &Session, wanted: &Wanted) -> Result<(), Failure> {
        let request = wanted.request()?;
        let place = self.place(at, session, None)?;
        tokio::spawn(
            place.run(
                move |caller, name, events| async move { pass_on(&caller, request, &name, &events).await },
            ),
        );
        Ok(())
    }

    /// Begins a terminal in a stream, in place of what has that name.
    pub(crate) fn begin_terminal(
        &self,
        at: (&str, &str),
        session: &Session,
        wanted: &terminal::Wanted,
    ) -> Result<(), Failure> {
        let (request, channels) = (wanted.request()?, wanted.channels());
        let (sender, input) = mpsc::channel(terminal::QUEUE);
        let place = self.place(at, session, Some(sender))?;
        tokio::spawn(place.run(move |caller, name, events| async move {
            terminal::run(&caller, (&request, channels), &name, &events, input).await
        }));
        Ok(())
    }

    /// Hands something to a terminal; it waits while the terminal does not read.
    pub(crate) async fn input(
        &self,
        (stream, name): (&str, &str),
        session: &Session,
        input: Input,
    ) -> Result<(), Failure> {
        let open = self.of(stream, session)?;
        let sender = open.running.lock().get(name).and_then(|running| running.input.clone());
        let gone = || Failure::new(404, "NotFound", "the terminal has ended");
        match time::timeout(PATIENCE, sender.ok_or_else(gone)?.send(input)).await {
            Ok(sent) => sent.map_err(|_| gone()),
            Err(_) => Err(Failure::too_many("the terminal does not read")),
        }
    }

    /// A place in a stream for something that runs, in place of what has that name.
    fn place(
        &self,
        (stream, name): (&str, &str),
        session: &Session,
        input: Option<mpsc::Sender<Input>>,
    ) -> Result<Place, Failure> {
        let open = self.of(stream, session)?;
        let plain =
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        if !plain || name.len() > LONGEST_NAME {
            return Err(Failure::bad_request("the name of a watch has letters, digits, '-', '_' and '.'"));
        }
        let stop = open.ended.child_token();
        let number = self.begun.fetch_add(1, Relaxed);
        let mut running = open.running.lock();
        running.remove(name);
        if running.len() >= WATCHES {
            return Err(Failure::too_many(format!("a stream has at most {WATCHES} watches")));
        }
        running.insert(name.to_owned(), Running { number, input, _stop: stop.clone().drop_guard() });
        drop(running);
        Ok(Place { open, name: name.to_owned(), number, stop })
    }

    /// Ends a watch or a terminal; one that is not there has ended.
    pub(crate) fn end(&self, (stream, name): (&str, &str), session: &Session) -> Result<(), Failure> {
        self.of(stream, session)?.running.lock().remove(name);
        Ok(())
    }
}

/// The frames of a queue, and signs of life between them, until the stream ends.
fn with_keep_alive(queue: impl Stream<Item = Bytes>, ended: CancellationToken) -> impl Stream<Item = Bytes> {
    let alive = Bytes::from_static(b": alive\n\n");
    let ticks = time::interval_at(time::Instant::now() + KEEP_ALIVE, KEEP_ALIVE);
    let ticks = stream::unfold(ticks, move |mut ticks| {
        let alive = alive.clone();
        async move {
            ticks.tick().await;
            Some((alive, ticks))
        }
    });
    let last = stream::once(async { event("ended", "{}") });
    let events = stream::select(queue, ticks);
    events.take_until(async move { ended.cancelled().await }).chain(last)
}

impl Place {
    /// Runs something until it ends, is ended, or its stream is gone.
    async fn run<F>(self, work: impl FnOnce(Caller, String, Events) -> F)
    where
        F: Future<Output = Result<(), Failure>>,
    {
        let Self { open, name, number, stop } = self;
        let Some(session) = open.session.upgrade() else { return };
        let caller = session.caller.lock().clone();
        drop(session);
        let ended = tokio::select! {
            ended = work(caller, name.clone(), open.events.clone()) => ended,
            () = stop.cancelled() => return,
        };
        // Nobody is there to be told if it fails.
        if open.forget(&name, number) {
            let status = ended.as_ref().err().map(|error| Failure::status(error).to_json());
            let data = json!({"watch": name, "status": status}).to_string();
            let _ = open.events.send(event("end", &data)).await;
        }
    }
}

impl Open {
    /// Forgets what has ended; `false` where something of the same name has taken its place.
    fn forget(&self, name: &str, number: u64) -> bool {
        let mut running = self.running.lock();
        let own = running.get(name).is_some_and(|found| found.number == number);
        if own {
            running.remove(name);
        }
        own
    }
}

async fn pass_on(caller: &Caller, request: RawRequest, watch: &str, events: &Events) -> Result<(), Failure> {
    // Boxed: a watch lasts, and what opens it takes kilobytes that it would keep.
    let mut pieces = pin!(Box::pin(caller.open(request)).await?.into_stream());
    let framing = Framing::new(watch);
    let mut buffer = BytesMut::new();
    let mut held = events.share.hold(0).await?;
    while let Some(piece) = pieces.next().await {
        let piece = piece?;
        held.merge(events.share.hold(piece.len()).await?);
        buffer.extend_from_slice(&piece);
        while let Some(end) = buffer.iter().position(|b| *b == b'\n') {
            let line = buffer.split_to(end + 1);
            let Some(part) = held.split(line.len()) else { return Ok(()) };
            let Ok(line) = serde_json::from_slice::<&RawValue>(&line) else {
                return Err(Failure::Upstream(Error::Decode("a line of a watch is no JSON".to_owned())));
            };
            if !events.pass(Frame { bytes: framing.change(line.get()), held: part }).await {
                return Ok(());
            }
        }
        if buffer.len() > LONGEST_EVENT {
            return Err(Failure::Upstream(Error::TooLarge(LONGEST_EVENT)));
        }
    }
    Ok(())
}

/// What stands before each event of a watch.
struct Framing(String);

impl Framing {
    fn new(watch: &str) -> Self {
        Self(format!("event: change\ndata: {{\"watch\":{},\"event\":", json!(watch)))
    }

    /// A frame with a line of a watch, made by one copy of it.
    fn change(&self, line: &str) -> Bytes {
        const END: &str = "}\n\n";
        let mut frame = BytesMut::with_capacity(self.0.len() + line.len() + END.len());
        for part in [&self.0, line, END] {
            frame.extend_from_slice(part.as_bytes());
        }
        frame.freeze()
    }
}

/// A frame of `text/event-stream`. JSON has no line breaks outside of strings, and escapes those within.
pub(crate) fn event(name: &str, data: &str) -> Bytes {
    Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::share::Shares;

    fn wanted(path: &str, version: &str) -> Wanted {
        Wanted { path: path.to_owned(), resource_version: version.to_owned(), table: false }
    }

    #[tokio::test]
    async fn the_stream_of_a_client_that_reads_nothing_ends_and_holds_nothing() {
        let share = Shares::default().of("jane");
        let (sender, frames) = mpsc::channel(QUEUE);
        let events = Events { queue: sender, share };
        let queue = Queue { frames: Mutex::new(Some(frames)), taken: AtomicU64::new(0) };
        assert!(events.send(Bytes::from_static(b"event")).await.unwrap());
        let ended = CancellationToken::new();
        queue.guard(&ended, Duration::from_millis(1)).await;
        assert!(ended.is_cancelled());
        assert!(!events.send(Bytes::from_static(b"event")).await.unwrap(), "nothing takes it any more");
        assert_eq!(Arc::strong_count(&events.share), 1, "nothing is held");
    }

    #[tokio::test]
    async fn a_stream_that_is_read_goes_on() {
        let share = Shares::default().of("jane");
        let (sender, frames) = mpsc::channel(QUEUE);
        let events = Events { queue: sender, share };
        let queue = Arc::new(Queue { frames: Mutex::new(Some(frames)), taken: AtomicU64::new(0) });
        let mut read = pin!(queue.frames());
        for text in ["a", "b"] {
            assert!(events.send(Bytes::from_static(text.as_bytes())).await.unwrap());
            assert_eq!(read.next().await.as_deref(), Some(text.as_bytes()));
        }
        assert_eq!(Arc::strong_count(&events.share), 2, "the last one counts until the next is taken");
    }

    #[test]
    fn a_line_of_a_watch_is_one_frame_that_names_it() {
        let frame = Framing::new("w0").change(r#"{"type":"ADDED","object":{"a":"\n"}}"#);
        let data = json!({"watch": "w0", "event": {"type": "ADDED", "object": {"a": "\n"}}});
        let text = std::str::from_utf8(&frame).unwrap();
        let sent = text.strip_prefix("event: change\ndata: ").and_then(|rest| rest.strip_suffix("\n\n"));
        assert_eq!(serde_json::from_str::<serde_json::Value>(sent.unwrap()).unwrap(), data);
        assert_eq!(text.lines().count(), 3);
    }

    #[test]
    fn a_watch_goes_on_from_a_version_or_begins_with_everything() {
        let path = |w: Wanted| w.request().ok().map(|request| request.path);
        assert_eq!(
            path(wanted("/api/v1/pods?labelSelector=a", "7")).as_deref(),
            Some("/api/v1/pods?labelSelector=a&watch=true&allowWatchBookmarks=true&resourceVersion=7")
        );
        let all = path(wanted("/projects/web/api/v1/pods", "")).unwrap();
        assert!(
            all.starts_with("/projects/web/api/v1/pods?watch=true") && all.contains("sendInitialEvents=true")
        );
        assert_eq!(path(wanted("/console/api/session", "")), None);
        assert_eq!(path(wanted("/api/v1/pods", "7&fieldSelector=x")), None);
    }
}
