//! The hub: recent events and the open watches, behind one lock that the feed takes for each batch, so that a watch
//! starts at a revision without missing or repeating an event.
//!
//! What is watched is a *topic*: a collection, what is of it in a namespace, or one object, of one plane or of all. An event is put
//! into the ring of each of its (at most six) topics once, however many watch it; each watcher reads the ring at its own place, and what all of a
//! topic's watchers have read leaves it.

use crate::topic::{BEHIND, Topic, TopicItem};
use crate::{
    CacheEvent,
    layer_switch::{Events, SwitchedPlane},
    merge::Within,
};
use freehold_machinery::{PlaneId, PlaneMap};
use futures_util::StreamExt;
use parking_lot::Mutex;
use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

/// How long recent events are kept, beside the bound on their bytes: as long as the store keeps history.
const KEPT: Duration = Duration::from_secs(300);
/// Events that a reader takes at a time.
const BATCH: usize = 64;

/// The subject of a watch: a collection or a part of it, of one plane or of all.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Interest {
    pub(crate) plane: Option<PlaneId>,
    pub(crate) collection: Box<str>,
    pub(crate) within: Within<Box<str>>,
}

impl Interest {
    fn wants(&self, event: &CacheEvent) -> bool {
        event.is_of(&self.collection)
            && self.plane.as_ref().is_none_or(|p| *p == event.plane)
            && match &self.within {
                Within::Everywhere => true,
                Within::Namespace(namespace) => event.namespace() == Some(namespace),
                Within::Place(place) => event.name() == &**place,
            }
    }

    /// The topic's name among those of the plane or of all.
    fn topic(&self) -> Box<str> {
        match &self.within {
            Within::Everywhere => self.collection.clone(),
            Within::Namespace(part) | Within::Place(part) => format!("{}/{part}", self.collection).into(),
        }
    }
}

/// TopicItem of each event of its interest; of `None` when events were missed.
pub(crate) type Observer = Arc<dyn Fn(Option<&CacheEvent>) + Send + Sync>;

type Topics = HashMap<Box<str>, Arc<Topic>>;

pub(crate) struct Hub {
    /// Everything up to here has been applied and sent.
    pub(crate) revision: u64,
    /// Events after this revision are in `recent`.
    oldest: u64,
    recent: VecDeque<Arc<CacheEvent>>,
    recent_bytes: usize,
    recent_limit: usize,
    /// When which revision was the last, from sweep to sweep, as far back as events are kept.
    marks: VecDeque<(Instant, u64)>,
    everywhere: Topics,
    /// The first revision at which watches over all planes can begin: the events of a layer switch are generated once
    /// and not kept.
    everywhere_since: u64,
    planes: PlaneMap<Topics>,
    /// Observers, which are called with events before any reader can see them.
    observers: Vec<(Interest, Observer)>,
    /// Observers of what layer switches change in a collection, whichever the plane.
    switch_observers: Vec<(Box<str>, Observer)>,
    /// Bytes that unread events of all topics take; an event of two topics counts twice.
    unread: Arc<AtomicUsize>,
}

/// One watcher's place in a topic.
pub(crate) struct Reader {
    topic: Arc<Topic>,
    collection: Box<str>,
    number: usize,
    next: u64,
    taken: VecDeque<TopicItem>,
    /// Remaining events of a layer switch.
    switching: Option<Events>,
}

impl Reader {
    fn new(topic: Arc<Topic>, collection: Box<str>) -> Self {
        let mut ring = topic.ring.lock();
        ring.readers += 1;
        let next = ring.end();
        let number = ring.free.pop().unwrap_or_else(|| {
            ring.waiting.push(None);
            ring.waiting.len() - 1
        });
        drop(ring);
        Self { topic, collection, number, next, taken: VecDeque::new(), switching: None }
    }

    /// The next event; `None` when this reader was too slow or the feed started over.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Arc<CacheEvent>>> {
        loop {
            if let Some(switching) = &mut self.switching {
                match ready!(switching.poll_next_unpin(cx)) {
                    Some(Ok(event)) => return Poll::Ready(Some(event)),
                    Some(Err(error)) => {
                        tracing::warn!(%error, "ending a watch: failed to read the plane's previous objects");
                        return Poll::Ready(None);
                    }
                    None => self.switching = None,
                }
            }
            match self.taken.pop_front() {
                Some(TopicItem::Event(event)) => return Poll::Ready(Some(event)),
                Some(TopicItem::SwitchedPlane(moved)) => {
                    self.switching = Some(moved.events(self.collection.clone()))
                }
                None => {
                    let mut ring = self.topic.ring.lock();
                    if ring.closed || self.next < ring.first {
                        return Poll::Ready(None);
                    }
                    let upto = ring.end().min(self.next + BATCH as u64);
                    if upto == self.next {
                        ring.wait(self.number, cx);
                        return Poll::Pending;
                    }
                    // Most come one at a time.
                    let at = (self.next - ring.first) as usize;
                    if upto == self.next + 1
                        && let Some((TopicItem::Event(event), _)) = ring.events.get(at)
                    {
                        let event = event.clone();
                        self.topic.pass(&mut ring, self.next, upto);
                        self.next = upto;
                        return Poll::Ready(Some(event));
                    }
                    let from = (self.next - ring.first) as usize..(upto - ring.first) as usize;
                    self.taken.extend(ring.events.range(from).map(|(event, _)| event.clone()));
                    self.topic.pass(&mut ring, self.next, upto);
                    self.next = upto;
                }
            }
        }
    }

    #[cfg(test)]
    async fn next(&mut self) -> Option<Arc<CacheEvent>> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Whether everything that was published has been handed out.
    pub(crate) fn is_current(&self) -> bool {
        self.taken.is_empty() && self.switching.is_none() && self.topic.ring.lock().end() == self.next
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut ring = self.topic.ring.lock();
        ring.readers -= 1;
        ring.waiting[self.number] = None;
        ring.free.push(self.number);
        let (next, end) = (self.next, ring.end());
        self.topic.pass(&mut ring, next, end);
    }
}

/// Puts an event into its rings.
fn send(topics: &mut Topics, event: &Arc<CacheEvent>, full: bool) {
    let parts = event.collection_and_namespace().into_iter().chain([event.collection_and_place()]);
    for name in std::iter::once(event.collection()).chain(parts) {
        if let Some(topic) = topics.get(name)
            && !topic.publish(TopicItem::Event(event.clone()), full)
        {
            topics.remove(name);
        }
    }
}

impl Hub {
    pub(crate) fn new(revision: u64, recent_limit: usize) -> Self {
        Self {
            revision,
            oldest: revision,
            recent: VecDeque::new(),
            recent_bytes: 0,
            recent_limit,
            marks: VecDeque::new(),
            everywhere: Topics::new(),
            everywhere_since: revision,
            planes: PlaneMap::default(),
            observers: Vec::new(),
            switch_observers: Vec::new(),
            unread: Arc::default(),
        }
    }

    fn send(&mut self, event: &Arc<CacheEvent>) {
        let full = self.is_full();
        send(&mut self.everywhere, event, full);
        if let Some(topics) = self.planes.get_mut(&event.plane) {
            send(topics, event, full);
            if topics.is_empty() {
                self.planes.remove(&event.plane);
            }
        }
    }

    /// Adds an observer.
    pub(crate) fn observe(&mut self, interest: Interest, observer: Observer) {
        self.observers.push((interest, observer));
    }

    /// Adds an observer of what layer switches change in a collection.
    pub(crate) fn observe_switches(&mut self, collection: Box<str>, observer: Observer) {
        self.switch_observers.push((collection, observer));
    }

    /// Observers of layer switches, by collection.
    pub(crate) fn switch_observers(&self) -> Vec<(Box<str>, Observer)> {
        self.switch_observers.clone()
    }

    fn is_full(&self) -> bool {
        self.unread.load(Ordering::Relaxed) > 4 * BEHIND
    }

    /// Publishes a layer switch to watches over all planes. From now on such watches begin at its revision or later.
    pub(crate) fn moved(&mut self, moved: &Arc<SwitchedPlane>) {
        self.everywhere_since = moved.revision;
        let full = self.is_full();
        self.everywhere.retain(|_, topic| topic.publish(TopicItem::SwitchedPlane(moved.clone()), full));
    }

    /// Ends all watches on a plane.
    pub(crate) fn end(&mut self, plane: &PlaneId) {
        for topic in self.planes.remove(plane).unwrap_or_default().values() {
            topic.close();
        }
    }

    pub(crate) fn publish(&mut self, event: Arc<CacheEvent>) {
        for (interest, observer) in &self.observers {
            if interest.wants(&event) {
                observer(Some(&event));
            }
        }
        self.send(&event);
        self.recent_bytes += event.cost;
        self.recent.push_back(event);
        while self.recent_bytes > self.recent_limit {
            self.forget();
        }
    }

    /// Forgets the oldest of the recent events.
    fn forget(&mut self) {
        if let Some(old) = self.recent.pop_front() {
            self.recent_bytes -= old.cost;
            self.oldest = old.revision;
        }
    }

    /// Events of an interest after a revision; `None` where some of them are forgotten.
    pub(crate) fn since(&self, interest: &Interest, after: u64) -> Option<Vec<Arc<CacheEvent>>> {
        if after < self.oldest || interest.plane.is_none() && after < self.everywhere_since {
            return None;
        }
        let start = self.recent.partition_point(|event| event.revision <= after);
        Some(self.recent.range(start..).filter(|event| interest.wants(event)).cloned().collect())
    }

    pub(crate) fn subscribe(&mut self, interest: Interest) -> Reader {
        let name = interest.topic();
        let topics = match interest.plane {
            Some(plane) => self.planes.entry(plane).or_default(),
            None => &mut self.everywhere,
        };
        let unread = self.unread.clone();
        let fresh = || Arc::new(Topic { ring: Mutex::default(), unread });
        let topic = topics.entry(name).or_insert_with(fresh).clone();
        Reader::new(topic, interest.collection)
    }

    /// Drops topics without watchers, and events that are older than [`KEPT`].
    pub(crate) fn sweep(&mut self, now: Instant) {
        if self.marks.back().is_none_or(|(_, revision)| *revision < self.revision) {
            self.marks.push_back((now, self.revision));
        }
        let past = |(at, _): &(Instant, u64)| now.duration_since(*at) > KEPT;
        while let Some((_, old)) = self.marks.front().copied().filter(past) {
            self.marks.pop_front();
            while self.recent.front().is_some_and(|event| event.revision <= old) {
                self.forget();
            }
            self.recent.shrink_to(2 * self.recent.len());
        }
        let watched = |topics: &mut Topics| topics.retain(|_, topic| topic.ring.lock().readers > 0);
        watched(&mut self.everywhere);
        self.planes.retain(|_, topics| {
            watched(topics);
            !topics.is_empty()
        });
    }

    /// Forgets everything: the feed lost its place and starts again at `revision`. All watches end.
    pub(crate) fn reset(&mut self, revision: u64) {
        let topics = self.everywhere.values().chain(self.planes.values().flat_map(HashMap::values));
        topics.for_each(|topic| topic.close());
        let observers = std::mem::take(&mut self.observers);
        let switch_observers = std::mem::take(&mut self.switch_observers);
        *self = Self { observers, switch_observers, ..Self::new(revision, self.recent_limit) };
        self.observers.iter().for_each(|(_, observer)| observer(None));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Stack, StackInfo, codec};
    use bytes::Bytes;
    use freehold_apiserver_storage::{self as storage, Key, ObjectPath};
    use serde_json::json;

    fn event(plane: &str, revision: u64, bytes: usize) -> Arc<CacheEvent> {
        let path = ObjectPath {
            group: String::new(),
            resource: "configmaps".into(),
            namespace: Some("default".into()),
            name: format!("a-{revision}"),
        };
        let object = json!({"metadata": {"name": path.name, "namespace": "default", "uid": "u"}, "data": "x".repeat(bytes)});
        let key = Key::object(&plane.parse().unwrap(), &path);
        let value = Some(codec::encode(&object));
        let raw = storage::Event { key, revision, value, created: revision, previous: None };
        Arc::new(
            CacheEvent::new(raw, |_| Some(Arc::new(Stack::new(Vec::new(), StackInfo::default())))).unwrap(),
        )
    }

    fn interest(plane: Option<&str>) -> Interest {
        let plane = plane.map(|plane| plane.parse().unwrap());
        Interest { plane, collection: "core/configmaps".into(), within: Within::Everywhere }
    }

    async fn revisions(reader: &mut Reader, count: usize) -> Vec<u64> {
        let mut found = Vec::new();
        for _ in 0..count {
            found.extend(reader.next().await.map(|event| event.revision));
        }
        found
    }

    #[tokio::test]
    async fn every_watcher_of_a_topic_reads_each_event_once_and_nothing_is_kept_for_them() {
        let mut hub = Hub::new(0, 1 << 20);
        let mut all = hub.subscribe(interest(None));
        let mut early = hub.subscribe(interest(Some("a")));
        hub.publish(event("a", 1, 10));
        let mut late = hub.subscribe(interest(Some("a")));
        hub.publish(event("b", 2, 10));
        hub.publish(event("a", 3, 10));
        assert_eq!(revisions(&mut all, 3).await, [1, 2, 3]);
        assert!(!early.is_current());
        assert_eq!(revisions(&mut early, 2).await, [1, 3]);
        assert_eq!(revisions(&mut late, 1).await, [3]);
        assert!(early.is_current() && late.is_current() && all.is_current());
        assert_eq!(hub.unread.load(Ordering::Relaxed), 0);
        drop((early, late));
        hub.sweep(Instant::now());
        assert!(hub.planes.is_empty());
        hub.publish(event("a", 4, 10));
        drop(all);
        assert_eq!(hub.unread.load(Ordering::Relaxed), 0, "who left holds nothing");
    }

    #[test]
    fn events_that_are_too_old_to_be_asked_for_are_forgotten() {
        let (mut hub, start) = (Hub::new(0, 1 << 20), Instant::now());
        let put = |hub: &mut Hub, revision| {
            hub.publish(event("a", revision, 10));
            hub.revision = revision;
        };
        put(&mut hub, 1);
        put(&mut hub, 2);
        hub.sweep(start);
        put(&mut hub, 3);
        hub.sweep(start + KEPT);
        assert_eq!(hub.since(&interest(Some("a")), 0).map(|events| events.len()), Some(3));
        hub.sweep(start + KEPT + Duration::from_secs(1));
        assert!(hub.since(&interest(Some("a")), 1).is_none(), "who saw the first alone asks the store");
        assert_eq!(hub.since(&interest(Some("a")), 2).map(|events| events.len()), Some(1));
        hub.sweep(start + 2 * KEPT + Duration::from_secs(1));
        assert_eq!((hub.recent.len(), hub.recent_bytes, hub.oldest), (0, 0, 3));
        put(&mut hub, 4);
        assert_eq!(hub.since(&interest(Some("a")), 3).map(|events| events.len()), Some(1));
    }

    #[tokio::test]
    async fn who_watches_a_namespace_is_told_of_it_alone() {
        let mut hub = Hub::new(0, 1 << 20);
        let of =
            |namespace: &str| Interest { within: Within::Namespace(namespace.into()), ..interest(Some("a")) };
        let (mut default, other) = (hub.subscribe(of("default")), hub.subscribe(of("defaul")));
        let mut everywhere =
            hub.subscribe(Interest { within: Within::Namespace("default".into()), ..interest(None) });
        hub.publish(event("a", 1, 10));
        hub.publish(event("b", 2, 10));
        assert_eq!(revisions(&mut default, 1).await, [1]);
        assert_eq!(revisions(&mut everywhere, 2).await, [1, 2]);
        assert!(default.is_current() && other.is_current());
        assert_eq!(other.topic.ring.lock().end(), 0, "nothing was put there");
        assert_eq!(hub.since(&of("default"), 0).unwrap().len(), 1);
        assert!(hub.since(&of("other"), 0).unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_slow_watcher_is_cut_off_and_the_others_go_on() {
        let mut hub = Hub::new(0, 1 << 20);
        let (mut slow, mut quick) = (hub.subscribe(interest(None)), hub.subscribe(interest(None)));
        for revision in 1..=40 {
            hub.publish(event("a", revision, 1 << 20));
            assert_eq!(revisions(&mut quick, 1).await, [revision]);
        }
        assert!(hub.unread.load(Ordering::Relaxed) <= BEHIND + (8 << 20));
        assert!(slow.next().await.is_none());
        drop(slow);
        assert_eq!(hub.unread.load(Ordering::Relaxed), 0);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn an_event_is_encoded_once_for_all_its_watchers() {
        const WATCHERS: usize = 100;
        const EVENTS: u64 = 20;
        // Each watcher wants one of these forms.
        const FORMS: u64 = 2;
        let mut hub = Hub::new(0, 1 << 20);
        let made = Arc::new(AtomicUsize::new(0));
        let mut watchers = tokio::task::JoinSet::new();
        for nth in 0..WATCHERS as u64 {
            let (mut reader, made) = (hub.subscribe(interest(None)), made.clone());
            watchers.spawn(async move {
                let mut frames = Vec::new();
                while frames.len() < EVENTS as usize {
                    let event = reader.next().await.unwrap();
                    let (kind, form) = (event.change().unwrap().kind, nth % FORMS);
                    frames.push(event.frame(kind, form, || {
                        made.fetch_add(1, Ordering::Relaxed);
                        Bytes::from(format!("{form}/{}", event.revision))
                    }));
                }
                (nth % FORMS, frames)
            });
        }
        (1..=EVENTS).for_each(|revision| hub.publish(event("a", revision, 10)));
        let seen = watchers.join_all().await;
        assert_eq!(seen.len(), WATCHERS);
        for (form, frames) in &seen {
            let first = seen.iter().find(|(other, _)| other == form).map(|(_, frames)| frames).unwrap();
            for (nth, (frame, same)) in frames.iter().zip(first).enumerate() {
                assert_eq!(frame, &format!("{form}/{}", nth + 1));
                assert_eq!(frame.as_ptr(), same.as_ptr(), "they share its bytes");
            }
        }
        assert_eq!(made.load(Ordering::Relaxed) as u64, EVENTS * FORMS);
    }

    #[tokio::test]
    async fn watches_end_when_the_feed_starts_over() {
        let mut hub = Hub::new(0, 1 << 20);
        let mut reader = hub.subscribe(interest(Some("a")));
        hub.reset(9);
        assert!(reader.next().await.is_none());
        assert!(hub.since(&interest(None), 8).is_none() && hub.since(&interest(None), 9).is_some());
    }

    /// Prints (`--nocapture`) what the delivery of an event costs each of them, here and through a channel for each.
    #[tokio::test]
    async fn a_thousand_watchers_get_every_event() {
        const WATCHERS: u64 = 1_000;
        const EVENTS: u64 = 50;
        let mut hub = Hub::new(0, 1 << 30);
        let tasks: Vec<_> = (0..WATCHERS)
            .map(|_| {
                let mut reader = hub.subscribe(interest(Some("a")));
                tokio::spawn(async move { revisions(&mut reader, EVENTS as usize).await.len() })
            })
            .collect();
        let started = Instant::now();
        for revision in 1..=EVENTS {
            hub.publish(event("a", revision, 1000));
            tokio::task::yield_now().await;
        }
        for task in tasks {
            assert_eq!(task.await.unwrap() as u64, EVENTS);
        }
        let ring = started.elapsed();
        let (mut senders, mut tasks) = (Vec::new(), Vec::new());
        for _ in 0..WATCHERS {
            let (sender, mut receiver) = tokio::sync::mpsc::channel::<Arc<CacheEvent>>(4_096);
            senders.push(sender);
            tasks.push(tokio::spawn(async move {
                for _ in 0..EVENTS {
                    drop(receiver.recv().await);
                }
            }));
        }
        let started = Instant::now();
        for revision in 1..=EVENTS {
            let event = event("a", revision, 1000);
            senders.iter().for_each(|sender| drop(sender.try_send(event.clone())));
            tokio::task::yield_now().await;
        }
        for task in tasks {
            task.await.unwrap();
        }
        let each = |time: std::time::Duration| time.as_nanos() as u64 / (WATCHERS * EVENTS);
        println!("a ring: {} ns each; a channel each: {} ns", each(ring), each(started.elapsed()));
    }
}
