//! Spans: begun by a request, handed to what the request does by a task-local, and put into the exporter's queue at their end.

use crate::context::{Context, TRACEPARENT};
use http::{HeaderMap, HeaderValue};
use std::future::Future;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;

/// Attributes of a span.
const MOST_ATTRIBUTES: usize = 16;
/// Bytes of a name or of a value.
const LONGEST: usize = 256;
/// Requests of a million, all of which are traced.
const ALL: u32 = 1_000_000;

/// Which requests are traced, and how many spans wait for the exporter.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Requests of a million that are traced without anybody asking for it.
    pub per_million: u32,
    /// Spans that wait at most; further ones are dropped.
    pub queue: usize,
}

/// What a span is about, as OTLP numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Work within this program.
    Internal = 1,
    /// A request that was answered.
    Server = 2,
    /// A request that was made.
    Client = 3,
}

/// A span that has ended.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Its identifiers.
    pub context: Context,
    /// The span that it is part of.
    pub parent: Option<[u8; 8]>,
    /// What was done.
    pub name: String,
    /// What it is about.
    pub kind: Kind,
    /// When it began, in nanoseconds since 1970.
    pub start: u64,
    /// When it ended, in nanoseconds since 1970.
    pub end: u64,
    /// What is known of it.
    pub attributes: Vec<(&'static str, String)>,
    /// What went wrong.
    pub error: Option<String>,
}

struct Global {
    options: Options,
    queue: mpsc::Sender<Finished>,
    dropped: AtomicU64,
}

static GLOBAL: OnceLock<Global> = OnceLock::new();

tokio::task_local! {
    static CURRENT: Context;
}

/// Turns tracing on, once in a program; spans that end are taken from the queue that is returned. `None` where it is on already.
pub fn install(options: Options) -> Option<mpsc::Receiver<Finished>> {
    let (queue, spans) = mpsc::channel(options.queue.max(1));
    let global = Global { options, queue, dropped: AtomicU64::new(0) };
    GLOBAL.set(global).ok().map(|()| spans)
}

/// Whether tracing is on.
pub fn is_enabled() -> bool {
    GLOBAL.get().is_some()
}

/// A span that has begun. It ends when it is dropped.
#[derive(Debug)]
pub struct Span(Option<Finished>);

/// Begins the span of a request from outside, if the request is traced: because it is among those that are sampled, or because
/// `trusted` says that whoever sent `parent` may decide it.
pub fn request(name: &str, parent: Option<&HeaderValue>, trusted: bool) -> Option<Span> {
    let global = GLOBAL.get()?;
    let parent = parent.and_then(Context::parse);
    let asked = trusted && parent.is_some_and(|parent| parent.sampled);
    if !asked && !is_sampled(global.options.per_million) {
        return None;
    }
    Some(begin(name, Kind::Server, parent))
}

/// Begins a span below the one that this task is in, if there is one.
pub fn child(name: &str, kind: Kind) -> Option<Span> {
    CURRENT.try_with(|parent| *parent).ok().map(|parent| begin(name, kind, Some(parent)))
}

/// Does something in a span of its own below the one that this task is in; without one it is just done. An error of the result
/// is noted without its text, which can have names of objects in it.
///
/// # Errors
/// Returns the error that the work ends with.
pub async fn within<T, E>(name: &str, kind: Kind, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    let Some(mut span) = child(name, kind) else { return work.await };
    let done = span.scope(work).await;
    if done.is_err() {
        span.fail("failed");
    }
    done
}

/// Names the span that this task is in to whoever gets a request with these headers. Without one, nothing is changed.
pub fn inject(headers: &mut HeaderMap) {
    if let Ok(context) = CURRENT.try_with(|context| *context) {
        headers.insert(TRACEPARENT, context.header());
    }
}

impl Span {
    /// What the span is to those below it.
    pub fn context(&self) -> Context {
        self.0.as_ref().map(|span| span.context).expect("a span has its content until it is dropped")
    }

    /// Does something within the span.
    pub fn scope<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        CURRENT.scope(self.context(), work)
    }

    /// Notes something about it; what is longer than 256 bytes is cut, and there are 16 attributes at most.
    pub fn attribute(&mut self, key: &'static str, value: impl Into<String>) {
        if let Some(span) = self.0.as_mut().filter(|span| span.attributes.len() < MOST_ATTRIBUTES) {
            span.attributes.push((key, cut(value.into())));
        }
    }

    /// Gives it another name, once it is known what it is about.
    pub fn rename(&mut self, name: impl Into<String>) {
        if let Some(span) = &mut self.0 {
            span.name = cut(name.into());
        }
    }

    /// Notes that it failed.
    pub fn fail(&mut self, why: impl Into<String>) {
        if let Some(span) = &mut self.0 {
            span.error = Some(cut(why.into()));
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let (Some(mut span), Some(global)) = (self.0.take(), GLOBAL.get()) else { return };
        span.end = now().max(span.start);
        if global.queue.try_send(span).is_err() {
            global.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// How many spans were dropped because nobody took them in time.
pub(crate) fn dropped() -> u64 {
    GLOBAL.get().map_or(0, |global| global.dropped.load(Ordering::Relaxed))
}

fn begin(name: &str, kind: Kind, parent: Option<Context>) -> Span {
    let trace = parent.map_or_else(|| uuid::Uuid::new_v4().into_bytes(), |parent| parent.trace);
    let mut span = [0; 8];
    // Random but for a few bits, and never all zeros.
    span.copy_from_slice(&uuid::Uuid::new_v4().as_bytes()[..8]);
    let start = now();
    Span(Some(Finished {
        context: Context { trace, span, sampled: true },
        parent: parent.map(|parent| parent.span),
        name: cut(name.to_owned()),
        kind,
        start,
        end: start,
        attributes: Vec::new(),
        error: None,
    }))
}

/// Whether a request is among those that are sampled. Its own trace has no say: clients choose that.
fn is_sampled(per_million: u32) -> bool {
    if per_million == 0 || per_million >= ALL {
        return per_million > 0;
    }
    let bytes = uuid::Uuid::new_v4().into_bytes();
    let drawn = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    u64::from(drawn) * u64::from(ALL) < u64::from(per_million) << 32
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn cut(mut text: String) -> String {
    if text.len() > LONGEST {
        let end = (0..=LONGEST).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, because a program turns tracing on once.
    #[tokio::test]
    async fn a_trusted_parent_decides_and_a_stranger_does_not() {
        let parent = HeaderValue::from_static("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
        assert!(request("a", Some(&parent), true).is_none(), "off by default");
        assert!(child("a", Kind::Internal).is_none());
        let mut spans = install(Options { per_million: 0, queue: 2 }).unwrap();
        assert!(install(Options { per_million: 0, queue: 2 }).is_none());
        assert!(request("a", Some(&parent), false).is_none(), "a stranger's flag counts for nothing");

        let mut root = request("GET", Some(&parent), true).unwrap();
        root.attribute("k", "é".repeat(200));
        let work = async {
            let mut headers = HeaderMap::new();
            inject(&mut headers);
            let failed: Result<(), ()> = within("inner", Kind::Client, async { Err(()) }).await;
            (headers, failed)
        };
        let (headers, failed) = root.scope(work).await;
        assert!(failed.is_err());
        assert_eq!(Context::parse(&headers[TRACEPARENT]), Some(root.context()));
        let (trace, id) = (root.context().trace, root.context().span);
        drop(root);
        let (inner, root) = (spans.recv().await.unwrap(), spans.recv().await.unwrap());
        assert_eq!(
            (inner.parent, inner.context.trace, inner.error.as_deref()),
            (Some(id), trace, Some("failed"))
        );
        assert_eq!(root.parent.map(hex::encode).as_deref(), Some("00f067aa0ba902b7"));
        assert_eq!(root.attributes[0].1.len(), 256);

        for _ in 0..4 {
            drop(request("b", Some(&parent), true));
        }
        assert_eq!(dropped(), 2, "nobody waits for the exporter");
    }

    #[test]
    fn the_share_that_is_sampled_is_about_the_one_that_was_asked_for() {
        assert!(!is_sampled(0) && is_sampled(ALL) && is_sampled(u32::MAX));
        let sampled = (0..20_000).filter(|_| is_sampled(250_000)).count();
        assert!((4_400..5_600).contains(&sampled), "{sampled}");
    }
}
