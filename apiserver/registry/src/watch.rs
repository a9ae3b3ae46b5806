//! Watches: what happens to the objects that a selection chooses.
//!
//! A change that moves an object into the selection is an `ADDED`, one that moves it out a `DELETED` with the object's
//! state before it left, at the revision of the change.

use crate::{
    Across, Changed, Object, Operation, Registry, View, WatchEvent, WatchOptions,
    across::PAGE,
    conversion::Converter,
    convert,
    registry::{parse_version, schema_since},
    select::Selection,
};
use freehold_apiserver_cache::{
    Cache, CacheEvent, Change, Entry, EventKind, PagesOfPlanes, Scope, Subscription, WatchStart,
};
use freehold_machinery::{PlaneId, ResourceType, Result, Status};
use futures_util::{Stream, stream};
use std::{collections::VecDeque, sync::Arc, time::Duration};
use tokio::time::{Instant, Interval, interval_at};

/// How often an idle watch that wants bookmarks gets one.
const BOOKMARK: Duration = Duration::from_secs(60);
/// How long before its end a watch gets the last one, so that the next begins where it ended.
const BEFORE_END: Duration = Duration::from_secs(2);

struct Watch {
    cache: Arc<Cache>,
    subscription: Subscription,
    /// Asks the plane's webhooks for other versions, where the watch is of one plane.
    converter: Option<(PlaneId, Arc<Converter>)>,
    ty: Arc<ResourceType>,
    selection: Selection,
    view: View,
    ready: VecDeque<WatchEvent>,
    initial: Initial,
    /// Whether a bookmark ends what the watch begins with.
    ends_initial: bool,
    /// When bookmarks are due, for who wants them. One timer for the whole watch: setting one for each event costs as
    /// much as the event.
    bookmarks: Option<Interval>,
    related_only: bool,
    done: bool,
}

impl WatchOptions {
    /// Where the watch begins and whether a bookmark ends its initial events.
    fn start(&self) -> Result<(WatchStart, bool)> {
        let version = parse_version(&self.list.resource_version)?;
        let matching = self.list.resource_version_match.as_str();
        match self.send_initial_events {
            None if !matching.is_empty() => Err(forbidden(
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )),
            Some(_) if matching != "NotOlderThan" => {
                Err(forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"))
            }
            Some(true) => Ok((WatchStart::Now, self.bookmarks)),
            Some(false) | None => Ok(match version {
                None | Some(0) if self.send_initial_events.is_none() => (WatchStart::Now, false),
                None | Some(0) => (WatchStart::After(u64::MAX), false),
                Some(version) => (WatchStart::After(version), false),
            }),
        }
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
        let (start, ends_initial) = options.start()?;
        let start = match start {
            WatchStart::After(u64::MAX) => WatchStart::After(self.cache.catch_up().await?),
            WatchStart::Now => {
                let at_least = parse_version(&options.list.resource_version)?;
                match at_least {
                    Some(revision) => self.cache.wait_for_asked(revision).await?,
                    None => drop(self.cache.catch_up().await?),
                }
                WatchStart::Now
            }
            other => other,
        };
        let (group, resource) = (&*op.ty.storage.group, &*op.ty.storage.resource);
        let scope_of = scope.clone();
        let mut subscription = self.cache.watch(scope, group, resource, start).await?;
        let initial = match (start, subscription.initial.take()) {
            (WatchStart::After(_), _) => Initial::Done,
            (WatchStart::Now, Some(entries)) => Initial::Memory(op.plane.clone(), entries.into_iter()),
            (WatchStart::Now, None) => {
                Initial::Store(Box::new(self.pages(op, across, subscription.revision, None).await?))
            }
        };
        let is_one = matches!(scope_of, Scope::Plane(_));
        let watch = Watch {
            cache: self.cache.clone(),
            converter: is_one.then(|| (op.plane.clone(), self.converter.clone())),
            ready: VecDeque::new(),
            ty: op.ty.clone(),
            bookmarks: options
                .bookmarks
                .then(|| interval_at(Instant::now() + first_bookmark(options.time), BOOKMARK)),
            related_only: options.related_only,
            done: false,
            view: across.view.clone(),
            subscription,
            selection,
            initial,
            ends_initial,
        };
        Ok(stream::unfold(watch, |mut watch| async move { watch.next().await.map(|event| (event, watch)) }))
    }
}

/// Whether a change is one for those who want to know of related objects only.
fn is_related(change: &Change) -> bool {
    let before = change.previous.as_ref().is_some_and(|entry| entry.is_related());
    change.kind == EventKind::Deleted || before || change.entry.is_related()
}

/// The present objects that a watch has yet to send.
enum Initial {
    /// Of one plane, as they were in memory.
    Memory(PlaneId, std::vec::IntoIter<Arc<Entry>>),
    /// From the store, as of the revision of the subscription, which holds what happens meanwhile.
    Store(Box<PagesOfPlanes>),
    /// None.
    Done,
}

/// When a watch gets its first bookmark, so that the last one comes shortly before its end.
fn first_bookmark(time: Duration) -> Duration {
    let last = time.saturating_sub(BEFORE_END).as_millis();
    let first = u64::try_from(last % BOOKMARK.as_millis()).unwrap_or_default();
    if first == 0 { BOOKMARK } else { Duration::from_millis(first) }
}

/// Waits for the next bookmark, for ever where there is none.
async fn due(bookmarks: &mut Option<Interval>) {
    match bookmarks {
        Some(interval) => drop(interval.tick().await),
        None => std::future::pending().await,
    }
}

impl Watch {
    async fn next(&mut self) -> Option<WatchEvent> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.done {
                return None;
            }
            if !matches!(self.initial, Initial::Done) {
                self.present().await;
                continue;
            }
            tokio::select! {
                biased;
                event = self.subscription.next() => match event {
                    Some(event) => self.take(event).await,
                    None => self.done = true,
                },
                () = due(&mut self.bookmarks) => {
                    let progress = self.subscription.progress(&self.cache);
                    self.ready.extend(progress.map(|revision| WatchEvent::Bookmark(revision, false)));
                }
            }
        }
    }

    /// Sends some of the objects that the watch begins with.
    async fn present(&mut self) {
        let page: Vec<(PlaneId, Arc<Entry>)> = match &mut self.initial {
            Initial::Memory(plane, entries) => {
                entries.by_ref().take(PAGE).map(|entry| (plane.clone(), entry)).collect()
            }
            Initial::Store(pages) => match self.cache.page_of_planes(pages, PAGE).await {
                // A page of planes that have nothing is not the end.
                Ok(Some(page)) if page.is_empty() => return,
                Ok(page) => page.into_iter().flatten().map(|found| (found.plane, found.entry)).collect(),
                Err(status) => {
                    self.done = true;
                    return self.ready.push_back(WatchEvent::Error(status));
                }
            },
            Initial::Done => Vec::new(),
        };
        if page.is_empty() {
            self.initial = Initial::Done;
            if self.ends_initial {
                self.ready.push_back(WatchEvent::Bookmark(self.subscription.revision, true));
            }
        }
        let wanted =
            |entry: &Entry| (!self.related_only || entry.is_related()) && self.selection.matches(entry);
        let chosen: Vec<_> = page.into_iter().filter(|(_, entry)| wanted(entry)).collect();
        if let (Some((plane, converter)), false) = (&self.converter, chosen.is_empty()) {
            let (plane, since) = (plane.clone(), schema_since(&self.cache, plane, &self.ty));
            let entries = chosen.into_iter().map(|(_, entry)| entry).collect();
            match converter.clone().all(&plane, &self.ty, entries, since).await {
                Ok(mut objects) => {
                    if self.selection.needs_conversion() {
                        objects.retain(|object| self.selection.shows(&object.value()));
                    }
                    objects.into_iter().for_each(|o| self.show(EventKind::Added, &plane, Ok(o), None))
                }
                Err(status) => self.show(EventKind::Added, &plane, Err(status), None),
            }
            return;
        }
        for (plane, entry) in chosen {
            let since = schema_since(&self.cache, &plane, &self.ty);
            self.show(EventKind::Added, &plane, convert::own(&self.ty, entry, since), None);
        }
    }

    /// An entry as this watch shows it, where it selects it.
    async fn chosen(
        selection: &Selection,
        ty: &ResourceType,
        (plane, converter): &(PlaneId, Arc<Converter>),
        entry: &Arc<Entry>,
    ) -> Result<Option<Object>> {
        if !selection.matches(entry) {
            return Ok(None);
        }
        let object = converter.out(plane, ty, entry.clone(), 0).await?;
        Ok(Some(object).filter(|object| selection.shows(&object.value())))
    }

    /// [`Watch::take`] where it takes a webhook to know whether an object is selected.
    async fn take_converted(&mut self, event: Arc<CacheEvent>, of: (PlaneId, Arc<Converter>)) -> Result<()> {
        let Some(change) = event.change() else { return Ok(()) };
        let gone = change.kind == EventKind::Deleted;
        let (selection, ty) = (&self.selection, &*self.ty);
        let now = if gone { None } else { Self::chosen(selection, ty, &of, &change.entry).await? };
        let before = match &change.previous {
            Some(previous) => Self::chosen(selection, ty, &of, previous).await?.is_some(),
            None => false,
        };
        let (kind, object) = match (before, now) {
            (false, Some(object)) => (EventKind::Added, object),
            (true, Some(object)) => (EventKind::Modified, object),
            (false, None) => return Ok(()),
            (true, None) => {
                let last = if gone { Some(change.entry.clone()) } else { change.left(event.revision) };
                let Some(last) = last else { return Ok(()) };
                (EventKind::Deleted, of.1.out(&of.0, &self.ty, last, 0).await?)
            }
        };
        self.show(kind, &of.0, Ok(object), None);
        Ok(())
    }

    async fn take(&mut self, event: Arc<CacheEvent>) {
        if self.related_only && !event.change().is_some_and(is_related) {
            return;
        }
        if let (true, Some(of)) = (self.selection.needs_conversion(), self.converter.clone()) {
            if let Err(status) = self.take_converted(event, of.clone()).await {
                self.show(EventKind::Added, &of.0, Err(status), None);
            }
            return;
        }
        let Some(change) = event.change() else { return };
        let now = change.kind != EventKind::Deleted && self.selection.matches(&change.entry);
        let before = change.previous.as_ref().is_some_and(|entry| self.selection.matches(entry));
        let (kind, entry) = match (before, now) {
            (false, true) => (EventKind::Added, change.entry.clone()),
            (true, true) => (EventKind::Modified, change.entry.clone()),
            (true, false) if change.kind == EventKind::Deleted => (EventKind::Deleted, change.entry.clone()),
            (true, false) => match change.left(event.revision) {
                Some(left) => (EventKind::Deleted, left),
                None => return,
            },
            (false, false) => return,
        };
        // An event is newer than the schema that it was written by.
        let object = match &self.converter {
            Some((plane, converter)) => converter.out(plane, &self.ty, entry, 0).await,
            None => convert::own(&self.ty, entry, 0),
        };
        let (plane, source) = (event.plane.clone(), (event, self.view.key));
        self.show(kind, &plane, object, Some(source));
    }

    fn show(
        &mut self,
        kind: EventKind,
        plane: &PlaneId,
        object: Result<Object>,
        source: Option<(Arc<CacheEvent>, u64)>,
    ) {
        let event = match object {
            Ok(object) => {
                let Some(object) = (self.view.show)(plane, object) else { return };
                WatchEvent::Changed(Changed { kind, object, source })
            }
            Err(status) => {
                self.done = true;
                WatchEvent::Error(status)
            }
        };
        self.ready.push_back(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_bookmark_comes_two_seconds_before_the_end() {
        for (seconds, first) in [(0, 60), (1, 60), (2, 60), (3, 1), (62, 60), (63, 1), (1800, 58), (3600, 58)]
        {
            let found = first_bookmark(Duration::from_secs(seconds));
            assert_eq!(found, Duration::from_secs(first), "{seconds}");
        }
    }
}
