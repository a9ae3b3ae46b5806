//! Watches: what happens to the objects that a selection chooses.
//!
//! A change that moves an object into the selection is an `ADDED`, one that moves it out a `DELETED` with the object's
//! state before it left, at the revision of the change.

use crate::view::{Across, Versions, View};
use crate::{
    Changed, Object, Operation, Registry, WatchEvent, WatchOptions,
    across::PAGE,
    conversion::{Converter, differs},
    convert::{self, schema_since},
    registry::parse_version,
    select::Selection,
    shown,
};
use freehold_apiserver_cache::{
    Cache, CacheEvent, Change, Entry, EventKind, PageOfPlanes, PagesOfPlanes, Scope, Subscription,
    WatchRequest, WatchStart,
};
use freehold_machinery::{PlaneId, ResourceType, Result, Status, resource::Conversion};
use futures_util::{Stream, future::BoxFuture};
use std::{
    collections::VecDeque,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};
use tokio::time::{Instant, Sleep, sleep};

/// How often an idle watch that wants bookmarks gets one.
const BOOKMARK: Duration = Duration::from_secs(60);
/// How long before its end a watch gets the last one, so that the next begins where it ended.
const BEFORE_END: Duration = Duration::from_secs(2);

/// What a watch looks at, and how it shows it.
struct Look {
    cache: Arc<Cache>,
    converter: Arc<Converter>,
    /// Whether `ty` is that of the one plane that is watched.
    is_one: bool,
    /// How objects of several planes come into the version that was asked for.
    versions: Versions,
    ty: Arc<ResourceType>,
    selection: Selection,
    view: View,
    related_only: bool,
}

/// An open watch. What it does for each event touches nothing but this, where that is possible: with many watchers the
/// memory that is looked at for each of them is most of what an event costs.
struct Watch {
    subscription: Subscription,
    ready: VecDeque<WatchEvent>,
    /// Whether each event is passed on as it is.
    plain: bool,
    done: bool,
    ends_initial: bool,
    initial: Initial,
    /// What takes waiting, and what the watch says then.
    away: Option<BoxFuture<'static, Told>>,
    /// When bookmarks are due, for who wants them.
    bookmarks: Option<Bookmarks>,
    look: Arc<Look>,
}

/// What a step of a watch says.
#[derive(Default)]
struct Told {
    events: Vec<WatchEvent>,
    /// What is still to be sent of the present objects.
    initial: Initial,
    /// Whether the watch ends.
    failed: bool,
}

/// One timer for a whole watch: setting one for each event costs as much as the event. Nor is the clock looked at for each.
struct Bookmarks {
    due: Pin<Box<Sleep>>,
    /// Who is woken by it.
    waker: Option<Waker>,
}

impl Bookmarks {
    fn new(time: Duration) -> Self {
        Self { due: Box::pin(sleep(first_bookmark(time))), waker: None }
    }

    /// Whether one is due. Who is told so asks again, and is woken for the next.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let is_set = self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
        if is_set && !self.due.is_elapsed() {
            return Poll::Pending;
        }
        if self.due.as_mut().poll(cx).is_pending() {
            self.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        self.waker = None;
        let next = self.due.deadline() + BOOKMARK;
        self.due.as_mut().reset(next.max(Instant::now()));
        Poll::Ready(())
    }
}

/// Where the watch begins and whether a bookmark ends its initial events.
fn start(options: &WatchOptions) -> Result<(WatchStart, bool)> {
    let version = parse_version(&options.list.resource_version)?;
    let matching = options.list.resource_version_match.as_str();
    match options.send_initial_events {
        None if !matching.is_empty() => {
            Err(forbidden("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"))
        }
        Some(_) if matching != "NotOlderThan" => {
            Err(forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"))
        }
        Some(true) => Ok((WatchStart::Now, options.bookmarks)),
        Some(false) | None => Ok(match version {
            None | Some(0) if options.send_initial_events.is_none() => (WatchStart::Now, options.bookmarks),
            None | Some(0) => (WatchStart::After(u64::MAX), false),
            Some(version) => (WatchStart::After(version), false),
        }),
    }
}

fn forbidden(why: &str) -> Status {
    Status::invalid(
        "meta.k8s.io",
        "ListOptions",
        "",
        &[freehold_machinery::status::FieldError::forbidden("resourceVersionMatch", why)],
    )
}

impl Registry {
    /// Watches a resource of one plane.
    ///
    /// # Errors
    /// A 400 for selectors and tokens that make no sense, a 410 for a revision that was compacted, and what the cache fails with.
    pub async fn watch(
        &self,
        op: &Operation,
        options: &WatchOptions,
    ) -> Result<impl Stream<Item = WatchEvent> + Send + use<>> {
        self.open(op, options, Scope::Plane(op.plane.clone()), &Across::one(&op.plane)).await
    }

    /// Watches a resource of a scope; `across` says how its objects are seen and, where it is more than one plane, which.
    pub(crate) async fn open(
        &self,
        op: &Operation,
        options: &WatchOptions,
        scope: Scope,
        across: &Across,
    ) -> Result<impl Stream<Item = WatchEvent> + Send + use<>> {
        let selection = Selection::new(&op.ty, op.namespace.as_deref(), &options.list)?;
        let (start, ends_initial) = start(options)?;
        let start = match start {
            WatchStart::After(u64::MAX) => WatchStart::After(self.cache.catch_up().await?),
            WatchStart::Now => {
                let at_least = parse_version(&options.list.resource_version)?;
                match at_least {
                    Some(revision) => self.cache.wait_for_asked(revision).await?,
                    None => drop(self.catch_up(op).await?),
                }
                WatchStart::Now
            }
            other => other,
        };
        let (group, resource) = (&*op.ty.storage.group, &*op.ty.storage.resource);
        let is_one = matches!(scope, Scope::Plane(_));
        let watched =
            WatchRequest { group, resource, namespace: selection.namespace(), place: selection.place() };
        let mut subscription = self.cache.watch(scope, watched, start).await?;
        let initial = match (start, subscription.initial.take()) {
            (WatchStart::After(_), _) => Initial::Done,
            (WatchStart::Now, Some(entries)) => Initial::Memory(op.plane.clone(), entries.into_iter()),
            // Too large for memory, and yet one object is found at its place.
            (WatchStart::Now, None) if is_one && let Some(place) = selection.place() => {
                let path = shown::path(op, place);
                let found = self.cache.get_at(&op.plane, &path, subscription.revision).await?;
                Initial::Memory(op.plane.clone(), Vec::from_iter(found).into_iter())
            }
            (WatchStart::Now, None) => {
                Initial::Store(Box::new(self.pages(op, across, subscription.revision, None).await?))
            }
        };
        let look = Look {
            cache: self.cache.clone(),
            converter: self.converter.clone(),
            is_one,
            versions: across.versions.clone(),
            ty: op.ty.clone(),
            related_only: options.related_only,
            view: across.view.clone(),
            selection,
        };
        Ok(Watch {
            plain: look.is_plain(),
            ready: VecDeque::new(),
            bookmarks: options.bookmarks.then(|| Bookmarks::new(options.time)),
            done: false,
            away: None,
            look: Arc::new(look),
            subscription,
            initial,
            ends_initial,
        })
    }
}

/// Whether a change is one for those who want to know of related objects only.
fn is_related(change: &Change) -> bool {
    let before = change.previous.as_ref().is_some_and(|entry| entry.is_related());
    change.kind == EventKind::Deleted || before || change.entry.is_related()
}

/// The present objects that a watch has yet to send.
#[derive(Default)]
enum Initial {
    /// Objects of one plane, as they were in memory.
    Memory(PlaneId, std::vec::IntoIter<Arc<Entry>>),
    /// From the store, as of the revision of the subscription, which holds what happens meanwhile.
    Store(Box<PagesOfPlanes>),
    /// None.
    #[default]
    Done,
}

/// When a watch gets its first bookmark, so that the last one comes shortly before its end.
fn first_bookmark(time: Duration) -> Duration {
    let last = time.saturating_sub(BEFORE_END).as_millis();
    let first = u64::try_from(last % BOOKMARK.as_millis()).unwrap_or_default();
    if first == 0 { BOOKMARK } else { Duration::from_millis(first) }
}

impl Stream for Watch {
    type Item = WatchEvent;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<WatchEvent>> {
        let this = self.get_mut();
        loop {
            if let Some(event) = this.ready.pop_front() {
                return Poll::Ready(Some(event));
            }
            if let Some(away) = &mut this.away {
                let told = ready!(away.as_mut().poll(cx));
                this.away = None;
                this.say(told);
                continue;
            }
            if this.done {
                return Poll::Ready(None);
            }
            if !matches!(this.initial, Initial::Done) {
                let (look, initial) = (this.look.clone(), std::mem::take(&mut this.initial));
                let end = this.ends_initial.then_some(this.subscription.revision);
                this.away = Some(Box::pin(look.present(initial, end)));
                continue;
            }
            match this.subscription.poll_next(cx) {
                Poll::Ready(Some(event)) if this.plain => {
                    if let Some(event) = plain(event) {
                        return Poll::Ready(Some(event));
                    }
                }
                Poll::Ready(Some(event)) => this.take(event),
                Poll::Ready(None) => this.done = true,
                Poll::Pending => {
                    let Some(bookmarks) = &mut this.bookmarks else { return Poll::Pending };
                    ready!(bookmarks.poll(cx));
                    let progress = this.subscription.progress(&this.look.cache);
                    this.ready.extend(progress.map(|revision| WatchEvent::Bookmark(revision, false)));
                }
            }
        }
    }
}

/// An event as it is for who watches everything.
fn plain(event: Arc<CacheEvent>) -> Option<WatchEvent> {
    let change = event.change()?;
    let (kind, object) = (change.kind, Object::Cached(change.entry.clone()));
    Some(WatchEvent::Changed(Changed { kind, object, source: Some((event, 0)) }))
}

impl Watch {
    fn say(&mut self, told: Told) {
        self.ready.extend(told.events);
        self.initial = told.initial;
        self.done |= told.failed;
    }

    fn take(&mut self, event: Arc<CacheEvent>) {
        let look = &self.look;
        if look.related_only && !event.change().is_some_and(is_related) {
            return;
        }
        if look.takes_waiting(&event) {
            self.away = Some(Box::pin(look.clone().take_converted(event)));
        } else {
            let told = look.take(event);
            self.say(told);
        }
    }
}

impl Look {
    /// Whether each event is shown to this watch as it is.
    fn is_plain(&self) -> bool {
        let as_stored = match self.ty.storage.conversion {
            Conversion::Webhook(_) => false,
            _ => freehold_apiserver_operation::is_stored(&self.ty),
        };
        // Of other namespaces it is not told.
        // Of an export's types, some may be stored in a version of schemas that were taken back.
        let is_export = self.ty.since > 0;
        self.selection.is_everything() && as_stored && !is_export && self.view.key == 0 && !self.related_only
    }

    /// Some of the objects that the watch begins with, and the bookmark behind them where it is to end so.
    async fn present(self: Arc<Self>, mut initial: Initial, end: Option<u64>) -> Told {
        let mut told = Told::default();
        let page: Vec<PageOfPlanes> = match &mut initial {
            Initial::Memory(plane, entries) => {
                let found = |entry| PageOfPlanes { plane: plane.clone(), entry };
                entries.by_ref().take(PAGE).map(found).collect()
            }
            Initial::Store(pages) => match self.cache.page_of_planes(pages, PAGE).await {
                // A page of planes that have nothing is not the end.
                Ok(Some(page)) if page.is_empty() => return Told { initial, ..told },
                Ok(page) => page.unwrap_or_default(),
                Err(status) => {
                    return Told { events: vec![WatchEvent::Error(status)], failed: true, ..told };
                }
            },
            Initial::Done => Vec::new(),
        };
        if page.is_empty() {
            told.events.extend(end.map(|revision| WatchEvent::Bookmark(revision, true)));
            return told;
        }
        told.initial = initial;
        let mut shown = self.view.together();
        let mut wanted = |found: &PageOfPlanes| {
            let entry = &found.entry;
            (!self.related_only || entry.is_related())
                && self.selection.matches(entry)
                && shown.shows(&found.plane)
        };
        let chosen: Vec<_> = page.into_iter().filter(|found| wanted(found)).collect();
        match self.converted(&chosen).await {
            Ok(objects) => {
                for (found, object) in chosen.iter().zip(objects) {
                    let is_asked = self.selection.needs_conversion();
                    if is_asked && !self.selection.shows(&object.value()) {
                        continue;
                    }
                    let object = shown.show(&found.plane, object);
                    let added = |object| Changed { kind: EventKind::Added, object, source: None };
                    told.events.extend(object.map(|object| WatchEvent::Changed(added(object))));
                }
            }
            Err(status) => {
                told.failed = true;
                told.events.push(WatchEvent::Error(status));
            }
        }
        told
    }

    /// Whether it may take a webhook to know what an event's object is, or whether it is selected.
    fn takes_waiting(&self, event: &CacheEvent) -> bool {
        if self.is_one {
            return matches!(self.ty.storage.conversion, Conversion::Webhook(_));
        }
        let may_ask = match self.versions {
            Versions::AsStored => false,
            Versions::OfPlanes(_) => true,
            Versions::OfType => self.ty.storage.conversion.of_provider().is_some(),
        };
        let Some(change) = event.change().filter(|_| may_ask) else { return false };
        differs(&self.ty, &change.entry) || change.previous.as_ref().is_some_and(|e| differs(&self.ty, e))
    }

    /// Entries in the version that was asked for.
    async fn converted(&self, found: &[PageOfPlanes]) -> Result<Vec<Object>> {
        match found.first() {
            Some(PageOfPlanes { plane, .. }) if self.is_one => {
                let entries = found.iter().map(|one| one.entry.clone()).collect();
                let since = schema_since(&self.cache, plane, &self.ty);
                self.converter.all(plane, &self.ty, entries, since).await
            }
            _ => self.converter.across(&self.versions, &self.cache, &self.ty, found).await,
        }
    }

    async fn converted_one(&self, plane: &PlaneId, entry: &Arc<Entry>) -> Result<Option<Object>> {
        let found = PageOfPlanes { plane: plane.clone(), entry: entry.clone() };
        Ok(self.converted(&[found]).await?.pop())
    }

    /// An entry as this watch shows it, where it selects it.
    async fn chosen(&self, plane: &PlaneId, entry: &Arc<Entry>) -> Result<Option<Object>> {
        if !self.selection.matches(entry) {
            return Ok(None);
        }
        let object = self.converted_one(plane, entry).await?;
        let asked = self.selection.needs_conversion();
        Ok(object.filter(|object| !asked || self.selection.shows(&object.value())))
    }

    /// [`Look::take`] where it may take a webhook to know what an object is, or whether it is selected.
    async fn take_converted(self: Arc<Self>, event: Arc<CacheEvent>) -> Told {
        let mut told = Told::default();
        let plane = event.plane.clone();
        match self.step(&event).await {
            Ok(None) => {}
            Ok(Some((kind, object))) => {
                let source = (!self.selection.needs_conversion()).then(|| (event.clone(), self.view.key));
                if !self.show(&mut told, (kind, &plane), Ok(object), source)
                    && let Some(left) = left_view(&event, kind)
                    && let Some(last) = self.converted_one(&plane, &left).await.transpose()
                {
                    self.show(&mut told, (EventKind::Deleted, &plane), last, None);
                }
            }
            Err(status) => {
                self.show(&mut told, (EventKind::Added, &plane), Err(status), None);
            }
        }
        told
    }

    async fn step(&self, event: &CacheEvent) -> Result<Option<(EventKind, Object)>> {
        // What is not shown is not sent to a webhook either.
        let Some(change) = event.change().filter(|_| self.view.shows(&event.plane)) else { return Ok(None) };
        let (plane, gone) = (&event.plane, change.kind == EventKind::Deleted);
        let now = if gone { None } else { self.chosen(plane, &change.entry).await? };
        let before = match &change.previous {
            // Without fields to look at it need not be converted for this.
            Some(previous) if !self.selection.needs_conversion() => self.selection.matches(previous),
            Some(previous) => self.chosen(plane, previous).await?.is_some(),
            None => false,
        };
        Ok(match (before, now) {
            (false, Some(object)) => Some((EventKind::Added, object)),
            (true, Some(object)) => Some((EventKind::Modified, object)),
            (false, None) => None,
            (true, None) => {
                let last = if gone { Some(change.entry.clone()) } else { change.left(event.revision) };
                match last {
                    Some(last) => {
                        let object = self.converted_one(plane, &last).await?;
                        object.map(|object| (EventKind::Deleted, object))
                    }
                    None => None,
                }
            }
        })
    }

    fn take(&self, event: Arc<CacheEvent>) -> Told {
        let mut told = Told::default();
        let Some(change) = event.change() else { return told };
        let now = change.kind != EventKind::Deleted && self.selection.matches(&change.entry);
        let before = change.previous.as_ref().is_some_and(|entry| self.selection.matches(entry));
        let (kind, entry) = match (before, now) {
            (false, true) => (EventKind::Added, change.entry.clone()),
            (true, true) => (EventKind::Modified, change.entry.clone()),
            (true, false) if change.kind == EventKind::Deleted => (EventKind::Deleted, change.entry.clone()),
            (true, false) => match change.left(event.revision) {
                Some(left) => (EventKind::Deleted, left),
                None => return told,
            },
            (false, false) => return told,
        };
        // An event is newer than the schema that it was written by.
        let object = convert::own(&self.ty, entry, 0);
        let source = (event.clone(), self.view.key);
        if !self.show(&mut told, (kind, &event.plane), object, Some(source))
            && let Some(left) = left_view(&event, kind)
        {
            let last = convert::own(&self.ty, left, 0);
            self.show(&mut told, (EventKind::Deleted, &event.plane), last, None);
        }
        told
    }

    /// Tells of an object, if the view shows it.
    fn show(
        &self,
        told: &mut Told,
        (kind, plane): (EventKind, &PlaneId),
        object: Result<Object>,
        source: Option<(Arc<CacheEvent>, u64)>,
    ) -> bool {
        let event = match object {
            Ok(object) => {
                let Some(object) = self.view.show(plane, object) else { return false };
                WatchEvent::Changed(Changed { kind, object, source })
            }
            Err(status) => {
                told.failed = true;
                WatchEvent::Error(status)
            }
        };
        told.events.push(event);
        true
    }
}

/// What an object was that may have left a view by its last change: for who saw it there, it is gone.
fn left_view(event: &CacheEvent, kind: EventKind) -> Option<Arc<Entry>> {
    event.change().filter(|_| kind == EventKind::Modified)?.left(event.revision)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_nothing_wakes_gets_each_bookmark() {
        let (mut bookmarks, begun) = (Bookmarks::new(Duration::from_secs(1800)), Instant::now());
        let mut due = async || {
            poll_fn(|cx| bookmarks.poll(cx)).await;
            begun.elapsed().as_secs()
        };
        let two_hours = Duration::from_secs(7200);
        for seconds in [58, 118, 178] {
            assert_eq!(tokio::time::timeout(two_hours, due()).await, Ok(seconds));
        }
    }

    #[test]
    fn the_last_bookmark_comes_two_seconds_before_the_end() {
        for (seconds, first) in [(0, 60), (1, 60), (2, 60), (3, 1), (62, 60), (63, 1), (1800, 58), (3600, 58)]
        {
            let found = first_bookmark(Duration::from_secs(seconds));
            assert_eq!(found, Duration::from_secs(first), "{seconds}");
        }
    }
}
