//! Lists: from memory as of now, from the store as of a past revision.

use crate::layer_kind::key_of;
use crate::{
    Cache, Entry, Stack,
    event::{self, OwnValue},
    index::By,
    layer::{collection, object_name},
    layer_switch::OwnPage,
    merge::{Span, Within},
    plane::Snapshot,
};
use freehold_apiserver_storage::{CLEAR_STEP, Key, KeyRange, ObjectPath, Range, RangeResult, StoreError};
use freehold_machinery::{PlaneId, Result};
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Weak},
};

/// Keys in one read of the store.
const CHUNK: usize = 500;
/// Keys that one read asks for that looks for finalizers.
const HELD_CHUNK: usize = 2_000;
/// Collections whose objects go with what is in them.
const CONTAINERS: [&str; 2] = ["core/namespaces", "apiextensions.k8s.io/customresourcedefinitions"];
/// Planes that are read at the same time for a list over many.
const AHEAD: usize = 16;

/// Which objects a list is about.
#[derive(Clone, Copy, Debug)]
pub struct ListRequest<'a> {
    /// The plane.
    pub plane: &'a PlaneId,
    /// The group objects are stored under.
    pub group: &'a str,
    /// The resource objects are stored under.
    pub resource: &'a str,
    /// One namespace, or all.
    pub namespace: Option<&'a str>,
}

impl ListRequest<'_> {
    /// The plane's own keys behind a place, all of them where it is empty.
    fn behind(&self, after: &str) -> KeyRange {
        let keys = KeyRange::resource(self.plane, self.group, self.resource, self.namespace);
        match after {
            "" => keys,
            after => {
                let name = &*collection(self.group, self.resource);
                keys.from_key(KeyRange::one(&key_of(self.plane, name, after)).end)
            }
        }
    }
}

/// Objects that a list is to consist of, where not all of a part are wanted.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    /// Whether an object is wanted.
    pub matches: &'a (dyn Fn(&Entry) -> bool + Sync),
    /// A value that each wanted object has: large collections have an index by what is asked for again and again.
    pub by: Option<(By<&'a str>, &'a str)>,
}

/// Objects as of one revision.
pub struct Listed {
    /// The objects in the order of their places (`namespace/name` or `name`).
    pub objects: Vec<Arc<Entry>>,
    /// The revision.
    pub revision: u64,
    /// The last revision that changed the collection: as of any revision from it to `revision` the list is the same.
    pub changed: u64,
}

/// Some of the objects as of one revision.
pub struct ListedPart {
    /// The objects in the order of their places.
    pub objects: Vec<Arc<Entry>>,
    /// The revision.
    pub revision: u64,
    /// The last revision that changed the collection: as of any revision from it to `revision` the list is the same.
    pub changed: u64,
    /// How many there are behind them; where only some are wanted, whether there is a further one of those.
    pub left: usize,
}

/// One page of a list as of a past revision.
pub struct Page {
    /// The objects in the order of their places.
    pub objects: Vec<Arc<Entry>>,
    /// Behind which place there are more; `None` at the end. It may lie behind the last of the objects.
    pub next: Option<Box<str>>,
}

/// Where a list over several planes stands.
pub struct PagesOfPlanes {
    planes: VecDeque<PlaneId>,
    group: String,
    resource: String,
    namespace: Option<String>,
    at: u64,
    /// Behind which place the first of the planes goes on.
    after: Box<str>,
    layers: bool,
    /// Whom it takes turns with.
    turns: Turn,
}

/// Who reads over many planes takes turns with others that do, so that all of them have no more than one thread at a time.
type Turn = Arc<tokio::sync::Mutex<()>>;

/// The turns that there are: one for the platform's own readers, and one for each collection that is read apart from them.
#[derive(Default)]
pub(crate) struct Turns {
    common: Turn,
    apart: parking_lot::Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>,
}

impl Turns {
    fn apart(&self, collection: String) -> Turn {
        let mut apart = self.apart.lock();
        if let Some(turn) = apart.get(&collection).and_then(Weak::upgrade) {
            return turn;
        }
        apart.retain(|_, turn| turn.strong_count() > 0);
        let turn = Turn::default();
        apart.insert(collection, Arc::downgrade(&turn));
        turn
    }
}

/// What stands in the way of a plane's end.
pub struct Survey {
    /// An own object that has finalizers (its collection and place), if there is one. What only contains others
    /// (namespaces, definitions) does not count.
    pub held: Option<String>,
    /// Whether the plane stands on no snapshot and has so little that it can go in one commit.
    pub is_small: bool,
}

/// One object of such a list.
pub struct PageOfPlanes {
    /// Its plane.
    pub plane: PlaneId,
    /// The object.
    pub entry: Arc<Entry>,
}

impl Cache {
    /// Lists the objects as the cache has them, layers included; `None` for a collection that is too large to be
    /// kept in memory and has to be read in pages. Call [`Cache::catch_up`] before for a linearizable list.
    ///
    /// # Errors
    /// 503 where the plane has to be loaded and the store does not answer.
    pub async fn list_cached(&self, request: ListRequest<'_>) -> Result<Option<Listed>> {
        let part = self.list_cached_part(request, "", 0, None).await?;
        Ok(part.map(|ListedPart { objects, revision, changed, .. }| Listed { objects, revision, changed }))
    }

    /// Lists like [`Cache::list_cached`] the first `limit` objects (0 for all) behind a place in the order, only
    /// those that `wanted` accepts where it is given.
    ///
    /// # Errors
    /// 503 where the plane has to be loaded and the store does not answer.
    pub async fn list_cached_part(
        &self,
        request: ListRequest<'_>,
        after: &str,
        limit: usize,
        wanted: Option<Wanted<'_>>,
    ) -> Result<Option<ListedPart>> {
        let collection = &*collection(request.group, request.resource);
        let span = Span { collection, within: Within::namespace(request.namespace), after };
        let most = if limit == 0 || wanted.is_some() { usize::MAX } else { limit };
        loop {
            let plane = self.plane(request.plane).await?;
            let by = wanted.and_then(|wanted| wanted.by);
            by.iter().for_each(|(by, _)| plane.index(collection, *by));
            let shot = plane.snapshot(span, most, self.applied(), by);
            // A plane that was put above other layers meanwhile must not be told at a revision behind that.
            if self.is_current(&plane) {
                return Ok(shot.map(|shot| part(shot, limit, wanted)));
            }
        }
    }

    /// Lists the objects as the cache has them, layers included, or as the store has them where they are too many
    /// for memory. Call [`Cache::catch_up`] before for a linearizable list.
    ///
    /// # Errors
    /// 503 where the store does not answer, 410 where history that the list needs was compacted meanwhile.
    pub async fn list(&self, request: ListRequest<'_>) -> Result<Listed> {
        if let Some(listed) = self.list_cached(request).await? {
            return Ok(listed);
        }
        let revision = self.catch_up().await?;
        let mut objects = Vec::new();
        self.scan(request, revision, |entry| objects.push(entry)).await?;
        Ok(Listed { objects, revision, changed: revision })
    }

    /// Reads all objects of a resource as of a revision from the store, a page at a time.
    ///
    /// # Errors
    /// 503 where the store does not answer, 410 for a compacted revision.
    pub async fn scan(
        &self,
        request: ListRequest<'_>,
        at: u64,
        mut visit: impl FnMut(Arc<Entry>),
    ) -> Result<()> {
        let mut after: Box<str> = Box::default();
        loop {
            let page = self.page(request, at, &after, CHUNK).await?;
            page.objects.into_iter().for_each(&mut visit);
            match page.next {
                Some(next) => after = next,
                None => return Ok(()),
            }
        }
    }

    /// One object as of a revision that is visible here. The store is asked only where the object has changed since.
    ///
    /// # Errors
    /// The store fails, or has forgotten that revision.
    pub async fn get_at(&self, plane: &PlaneId, path: &ObjectPath, at: u64) -> Result<Option<Arc<Entry>>> {
        let now = self.get_cached(plane, path).await?;
        if now.as_ref().is_some_and(|entry| entry.modified <= at) {
            return Ok(now);
        }
        let key = Key::object(plane, path);
        let range = Range { at: Some(at), ..Range::all(KeyRange::one(&key)) };
        let item = self.stores.of(plane).range(range).await?.items.pop();
        let stack = self.stack_at(plane, at, true).await?;
        let below = || {
            let name = object_name(path.namespace.as_deref(), &path.name);
            stack.get(plane, &collection(&path.group, &path.resource), &name)
        };
        Ok(match item.map(|item| event::read_own(&item, stack.record())) {
            Some(OwnValue::Object(entry)) => Some(entry),
            Some(OwnValue::Whiteout | OwnValue::Absent) => None,
            Some(OwnValue::Buried) | None => below(),
        })
    }

    /// Reads the objects behind `after` (a place in the order; empty for the first page), as of a past revision.
    ///
    /// # Errors
    /// 503 where the store does not answer, 410 for a compacted revision.
    pub async fn page(&self, request: ListRequest<'_>, at: u64, after: &str, limit: usize) -> Result<Page> {
        self.page_of(request, at, after, limit, true).await
    }

    async fn page_of(
        &self,
        request: ListRequest<'_>,
        at: u64,
        after: &str,
        limit: usize,
        layers: bool,
    ) -> Result<Page> {
        let range = Range { keys: request.behind(after), at: Some(at), limit, keys_only: false };
        let read = self.stores.of(request.plane).range(range).await?;
        self.shown_page(request, (&read, at, after), limit, layers).await
    }

    /// What a read of a plane's own keys behind a place shows, with what lies below.
    async fn shown_page(
        &self,
        request: ListRequest<'_>,
        (read, at, after): (&RangeResult, u64, &str),
        limit: usize,
        layers: bool,
    ) -> Result<Page> {
        let prefix = KeyRange::resource(request.plane, request.group, request.resource, None).start.len();
        let name = &*collection(request.group, request.resource);
        let stack = self.stack_at(request.plane, at, layers).await?;
        let own = OwnPage::new(&read.items, read.more, prefix, stack.record());
        let span = Span { collection: name, within: Within::namespace(request.namespace), after };
        let mut merged = own.above(stack.slots(span, layers)).map(|(_, found)| found);
        let most = if limit > 0 { limit } else { usize::MAX };
        let shown = merged.by_ref().take(most);
        let objects: Vec<_> = shown.map(|found| stack.show(request.plane, name, found)).collect();
        // What hides others and what is buried is passed over, a page of nothing else too.
        let next = match merged.next() {
            Some(_) => objects.last().map(|last| last.place().into()),
            None => own.last().map(Box::from),
        };
        Ok(Page { objects, next })
    }

    /// What lies below a plane, for who reads it as of a revision: all layers or the snapshot alone. All of them are not
    /// known as of before they became what they are.
    async fn stack_at(&self, plane: &PlaneId, at: u64, layers: bool) -> Result<Arc<Stack>> {
        let stack = self.layers.following(plane, at).await?;
        if at >= stack.revision() || !layers && !stack.has_snapshot() {
            return Ok(stack);
        }
        let gone = StoreError::Compacted { asked: at, oldest: stack.revision() };
        if layers {
            return Err(gone.into());
        }
        let record = Range { at: Some(at), ..Range::all(KeyRange::one(&Key::stack(plane))) };
        let record = self.stores.of(plane).range(record).await?.items.pop();
        match self.layers.stack(plane, record.as_ref()).await {
            Err(StoreError::Corrupt(_)) => Err(gone.into()),
            stack => Ok(stack?),
        }
    }

    /// Visits the objects of a resource in every plane, as of one revision, which is returned. It loads no plane.
    ///
    /// # Errors
    /// 503 where the store does not answer, 410 where that revision is compacted during the read.
    pub async fn list_planes(
        &self,
        group: &str,
        resource: &str,
        mut visit: impl FnMut(&PlaneId, Arc<Entry>),
    ) -> Result<u64> {
        let at = self.catch_up().await?;
        let mut pages = self.pages_of_planes(None, (group, resource, None), at, None).await?;
        while let Some(page) = self.page_of_planes(&mut pages, CHUNK).await? {
            page.into_iter().for_each(|found| visit(&found.plane, found.entry));
        }
        Ok(at)
    }

    /// Looks through a plane's own objects before its removal. It does not load the plane.
    ///
    /// # Errors
    /// 503 where the store does not answer.
    pub async fn survey(&self, plane: &PlaneId) -> Result<Survey> {
        let stack = self.layers.following(plane, self.applied()).await?;
        let mut keys = KeyRange::plane(plane);
        let (mut pages, mut plain) = (0, true);
        let found = |held| Ok(Survey { held: Some(held), is_small: false });
        loop {
            let range = Range { limit: HELD_CHUNK, ..Range::all(keys.clone()) };
            let page = self.stores.of(plane).range(range).await?;
            pages += 1;
            plain &= page.items.len() <= CLEAR_STEP && !page.items.iter().any(|item| item.key.is_record());
            // Most have none, and then they need not be read.
            for item in page.items.iter().filter(|item| mentions_finalizers(&item.value)) {
                let Some((_, span)) = event::split(&item.key) else { continue };
                if CONTAINERS.contains(&event::names(&item.key, span.clone()).0) {
                    continue;
                }
                if let OwnValue::Object(entry) = event::read_own(item, stack.record())
                    && entry.has_finalizers()
                {
                    return found(format!("{}/{}", event::names(&item.key, span).0, entry.place()));
                }
            }
            match page.rest(&keys) {
                Some(rest) => keys = rest,
                None => break,
            }
        }
        for (collection, name) in stack.held() {
            let (group, resource) = collection.split_once('/').unwrap_or_default();
            let (namespace, name) = match name.split_once('/') {
                Some((namespace, name)) => (Some(namespace.to_owned()), name),
                None => (None, name),
            };
            let group = if group == "core" { "" } else { group };
            let (group, resource) = (group.to_owned(), resource.to_owned());
            let path = ObjectPath { group, resource, namespace, name: name.to_owned() };
            let own = self.stores.of(plane).get(&Key::object(plane, &path)).await?;
            if own.is_none_or(|own| own.modified < stack.record()) && !CONTAINERS.contains(&collection) {
                return found(format!("{collection}/{}", path.name));
            }
        }
        Ok(Survey { held: None, is_small: plain && pages == 1 })
    }

    /// Begins to read the objects of a resource (group, plural, namespace) in several planes, as of one revision.
    ///
    /// `planes` are in order, and what their layers bring is shown; `None` means all planes, with their own objects
    /// only. Reading goes on behind `after`, a plane and a place in it.
    ///
    /// # Errors
    /// 503 where the store does not answer, 410 for a compacted revision.
    pub async fn pages_of_planes(
        &self,
        planes: Option<Vec<PlaneId>>,
        (group, resource, namespace): (&str, &str, Option<&str>),
        at: u64,
        after: Option<(PlaneId, Box<str>)>,
    ) -> Result<PagesOfPlanes> {
        let layers = planes.is_some();
        let mut planes = match planes {
            Some(planes) => planes,
            None => {
                let mut planes = self.planes_with(&collection(group, resource), at).await?;
                planes.extend(self.layers.above_snapshots());
                planes.sort_unstable();
                planes.dedup();
                planes
            }
        };
        if let Some((plane, _)) = &after {
            planes.drain(..planes.partition_point(|p| p < plane));
        }
        let after = match after {
            Some((plane, place)) if planes.first() == Some(&plane) => place,
            _ => Box::default(),
        };
        let (group, resource) = (group.to_owned(), resource.to_owned());
        let namespace = namespace.map(str::to_owned);
        let turns = self.reading.common.clone();
        Ok(PagesOfPlanes { planes: planes.into(), group, resource, namespace, at, after, layers, turns })
    }

    /// Reads a collection that is one provider's: it waits for others who read that collection, and not for the platform's
    /// controllers, of which a lot read when a server starts.
    pub fn read_apart(&self, mut pages: PagesOfPlanes) -> PagesOfPlanes {
        pages.turns = self.reading.apart(collection(&pages.group, &pages.resource));
        pages
    }

    /// Reads the next objects, about `limit` of them; `None` at the end.
    ///
    /// # Errors
    /// 503 where the store does not answer, 410 where the revision is compacted meanwhile.
    pub async fn page_of_planes(
        &self,
        pages: &mut PagesOfPlanes,
        limit: usize,
    ) -> Result<Option<Vec<PageOfPlanes>>> {
        if pages.planes.is_empty() {
            return Ok(None);
        }
        // Who reads over all planes are controllers, a lot of them when a server starts. They take turns, so that they
        // have no more than one thread at a time, and who asks a plane for something need not wait behind them.
        let _turn = if pages.layers { None } else { Some(pages.turns.clone().lock_owned().await) };
        let mut found = Vec::new();
        let (group, resource, namespace) = (&*pages.group, &*pages.resource, pages.namespace.as_deref());
        let (at, layers) = (pages.at, pages.layers);
        let mut after = std::mem::take(&mut pages.after);
        let mut done = 0;
        'read: while found.len() < limit.max(1) && done < pages.planes.len() {
            // All of these go into the page: they would be read again for the next one.
            let ahead: Vec<&PlaneId> = pages.planes.iter().skip(done).take(AHEAD).collect();
            let request = |plane| ListRequest { plane, group, resource, namespace };
            let keys: Vec<KeyRange> = ahead
                .iter()
                .enumerate()
                .map(|(nth, plane)| request(*plane).behind(if nth == 0 { &after } else { "" }))
                .collect();
            let Some(first) = ahead.first() else { break };
            let reads = self.stores.of(first).ranges(&keys, at, limit).await?;
            for (plane, read) in ahead.into_iter().zip(&reads) {
                let page = self.shown_page(request(plane), (read, at, &after), limit, layers).await?;
                let entries = page.objects.into_iter();
                found.extend(entries.map(|entry| PageOfPlanes { plane: plane.clone(), entry }));
                after = page.next.unwrap_or_default();
                if !after.is_empty() {
                    break 'read;
                }
                done += 1;
            }
            tokio::task::yield_now().await;
        }
        pages.after = after;
        pages.planes.drain(..done);
        Ok(Some(found))
    }
}

/// Whether an object may have finalizers, as its bytes are.
fn mentions_finalizers(value: &[u8]) -> bool {
    std::str::from_utf8(value).map_or(true, |text| text.contains("\"finalizers\""))
}

fn part(shot: Snapshot<'_>, limit: usize, wanted: Option<Wanted<'_>>) -> ListedPart {
    let (revision, changed) = (shot.revision, shot.changed);
    if limit == 0 && wanted.is_none() {
        return ListedPart { objects: shot.all(), revision, changed, left: 0 };
    }
    let mut found = shot.found().filter(|found| wanted.is_none_or(|wanted| (wanted.matches)(found.entry)));
    let most = if limit == 0 { usize::MAX } else { limit };
    let objects = found.by_ref().take(most).map(|found| shot.show(found)).collect();
    let left = match wanted {
        None => found.count() + shot.rest,
        Some(_) => usize::from(found.next().is_some()),
    };
    ListedPart { objects, revision, changed, left }
}
