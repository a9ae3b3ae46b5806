//! Watches on the cache.

use crate::{
    Cache, CacheEvent, Entry,
    feed::{CATCH_UP, NUDGE},
    hub::{Interest, Reader},
    layer::collection,
    merge::{Span, Within},
    plane::{Pin, PlaneCache},
};
use freehold_apiserver_storage::{StoreError, WatchItem};
use freehold_machinery::{PlaneId, Result, Status};
use futures_util::StreamExt;
use std::{
    collections::VecDeque,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};

/// Bytes of events of the past that one watch may begin with.
const MOST_REPLAYED: usize = 16 << 20;

/// Which planes a watch is about.
#[derive(Clone, Debug)]
pub enum Scope {
    /// One plane. It is loaded, and stays so.
    Plane(PlaneId),
    /// All planes, loaded or not; the watcher filters.
    AllPlanes,
}

/// Which objects a watch is about.
#[derive(Clone, Copy, Debug)]
pub struct WatchRequest<'a> {
    /// The group objects are stored under.
    pub group: &'a str,
    /// The resource objects are stored under.
    pub resource: &'a str,
    /// One namespace, or all.
    pub namespace: Option<&'a str>,
    /// One object's place (`namespace/name` or `name`), or all: events of others do not wake the watcher.
    pub place: Option<&'a str>,
}

impl<'a> WatchRequest<'a> {
    /// All objects of a resource.
    pub fn all(group: &'a str, resource: &'a str) -> Self {
        Self { group, resource, namespace: None, place: None }
    }
}

/// Where a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchStart {
    /// With the present objects, then live.
    Now,
    /// After a revision.
    After(u64),
}

/// An open watch.
pub struct Subscription {
    /// The present objects, where the watch begins with them and they are in memory. What is not there is to be read
    /// from the store as of `revision` ([`Cache::page_of_planes`]).
    pub initial: Option<Vec<Arc<Entry>>>,
    /// Everything up to here is in what the watch begins with, or was asked to be left out.
    pub revision: u64,
    replay: VecDeque<Arc<CacheEvent>>,
    live: Reader,
    _pin: Option<Pin>,
}

/// A watch on one plane.
struct Opened {
    subscription: Subscription,
    /// Up to which revision what it begins with is to be read from the store.
    missed: Option<u64>,
}

fn too_old(asked: u64, oldest: u64) -> Status {
    Status::expired(format!("too old resource version: {asked} ({oldest})"))
}

impl Cache {
    /// Opens a watch on a resource or a part of it.
    ///
    /// # Errors
    /// 410 where the revision is older than the events that are kept: for one plane here or in the store, for all
    /// planes here. 503 where the store does not answer.
    pub async fn watch(
        &self,
        scope: Scope,
        watched: WatchRequest<'_>,
        start: WatchStart,
    ) -> Result<Subscription> {
        let WatchRequest { group, resource, namespace, place } = watched;
        let within = place.map_or_else(|| Within::namespace(namespace), Within::Place).to_boxed();
        let collection = collection(group, resource).into();
        match scope {
            Scope::Plane(plane) => {
                let interest = Interest { plane: Some(plane.clone()), collection, within };
                self.watch_plane(&plane, interest, start).await
            }
            Scope::AllPlanes => self.watch_all(Interest { plane: None, collection, within }, start),
        }
    }

    async fn watch_plane(&self, id: &PlaneId, of: Interest, start: WatchStart) -> Result<Subscription> {
        loop {
            let plane = self.plane(id).await?;
            // Between its load and its subscription it may have been put above other layers.
            let Some(opened) = self.subscribe(&plane, &of, start) else { continue };
            return match opened {
                Ok(Opened { subscription, missed: None }) => Ok(subscription),
                Ok(Opened { subscription, missed: Some(upto) }) => {
                    self.replayed(&plane, &of, subscription, upto).await
                }
                Err(status) => Err(status),
            };
        }
    }

    /// Adds what happened from where a subscription begins up to a revision, from the store: what this process remembers
    /// begins later, because it started later or much has happened since.
    async fn replayed(
        &self,
        plane: &PlaneCache,
        of: &Interest,
        mut subscription: Subscription,
        upto: u64,
    ) -> Result<Subscription> {
        let asked = subscription.revision;
        let failed = |error: StoreError| match error {
            StoreError::Compacted { oldest, .. } => too_old(asked, oldest),
            other => other.into(),
        };
        let keys = of.within.as_deref().keys(&plane.id, &of.collection);
        let mut stream = self.stores.of(&plane.id).watch(keys, asked, true).await.map_err(failed)?;
        let (begun, mut bytes) = (Instant::now(), 0);
        loop {
            let item = match tokio::time::timeout(NUDGE, stream.next()).await {
                Ok(item) => item.unwrap_or_else(|| Err(StoreError::Unavailable("a watch ended".into()))),
                Err(_) if begun.elapsed() > CATCH_UP => {
                    return Err(Status::timeout("the store is too slow for this watch").retry_after(1));
                }
                Err(_) => {
                    drop(self.stores.of(&plane.id).request_progress().await);
                    continue;
                }
            };
            match item.map_err(failed)? {
                WatchItem::Progress(revision) if revision >= upto => return Ok(subscription),
                WatchItem::Progress(_) => {}
                WatchItem::Events(events) => {
                    let done = events.last().is_some_and(|last| last.revision >= upto);
                    for raw in events.into_iter().filter(|raw| raw.revision <= upto) {
                        let event = CacheEvent::new(raw, |_| plane.stack().cloned()).map(Arc::new);
                        bytes += event.as_ref().map_or(0, |event| event.cost);
                        subscription.replay.extend(event);
                    }
                    if bytes > MOST_REPLAYED {
                        return Err(too_old(asked, upto));
                    }
                    if done {
                        return Ok(subscription);
                    }
                }
            }
        }
    }

    /// Subscribes to a plane; `None` where it is not the one any more that takes in events.
    fn subscribe(&self, plane: &Arc<PlaneCache>, of: &Interest, start: WatchStart) -> Option<Result<Opened>> {
        let pin = plane.pin();
        let mut hub = self.hub.lock();
        if !self.is_current(plane) {
            return None;
        }
        let mut missed = None;
        let (initial, replay, revision) = match start {
            WatchStart::After(revision) => {
                let installed = plane.stack().map_or(0, |stack| stack.revision());
                if revision < installed {
                    return Some(Err(too_old(revision, installed)));
                }
                let remembered = hub.since(of, revision);
                if remembered.is_none() {
                    missed = Some(hub.revision);
                }
                (None, remembered.unwrap_or_default(), revision)
            }
            // What the load of the plane saw before the feed is in the snapshot; those events are dropped here.
            WatchStart::Now => {
                let span = Span { collection: &of.collection, within: of.within.as_deref(), after: "" };
                let shot = plane.snapshot(span, usize::MAX, hub.revision, None);
                let revision = shot.as_ref().map_or(hub.revision, |shot| shot.revision);
                (shot, Vec::new(), revision)
            }
        };
        let live = hub.subscribe(of.clone());
        drop(hub);
        let initial = initial.map(|shot| shot.all());
        let subscription = Subscription { initial, revision, replay: replay.into(), live, _pin: Some(pin) };
        Some(Ok(Opened { subscription, missed }))
    }

    fn watch_all(&self, interest: Interest, start: WatchStart) -> Result<Subscription> {
        let mut hub = self.hub.lock();
        let (replay, revision) = match start {
            WatchStart::After(revision) => {
                let missed = hub.since(&interest, revision).ok_or_else(|| too_old(revision, hub.revision))?;
                (missed, revision)
            }
            WatchStart::Now => (Vec::new(), hub.revision),
        };
        let live = hub.subscribe(interest);
        Ok(Subscription { initial: None, revision, replay: replay.into(), live, _pin: None })
    }
}

impl Subscription {
    /// The next event; `None` when the watch was cut off because its reader was too slow or the feed started over.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Arc<CacheEvent>>> {
        loop {
            let event = match self.replay.pop_front() {
                Some(event) => Some(event),
                None => ready!(self.live.poll_next(cx)),
            };
            if event.as_ref().is_none_or(|event| event.revision > self.revision) {
                return Poll::Ready(event);
            }
        }
    }

    /// The next event, for those who wait for nothing else.
    pub async fn next(&mut self) -> Option<Arc<CacheEvent>> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// A revision up to which everything has been taken out of this watch; `None` while something waits.
    pub fn progress(&self, cache: &Cache) -> Option<u64> {
        let hub = cache.hub.lock();
        (self.replay.is_empty() && self.live.is_current()).then_some(hub.revision.max(self.revision))
    }
}
