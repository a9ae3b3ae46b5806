//! One watch per interest, over all planes or in one.

use crate::planes::{Arrival, Move, Moved, Planes, strip};
use crate::store::IndexFn;
use crate::{Key, Queue, Store};
use freehold_client::{Client, Error, ListOptions, Resource, WatchEvent, WatchOptions, WatchStream};
use freehold_machinery::{PlaneId, Value, meta};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

/// The shortest time between two attempts to open a watch.
const FIRST_DELAY: Duration = Duration::from_millis(100);
/// The longest one.
const LONGEST_DELAY: Duration = Duration::from_secs(10);
/// Timeout in seconds that a watch requests of the server, so that a dead connection is noticed.
const WATCH_SECONDS: u64 = 1800;

type Project<T> = Arc<dyn Fn(Value) -> Option<T> + Send + Sync>;
type Handler<T> = Box<dyn Fn(&Change<T>) + Send + Sync>;
type Observer = Box<dyn Fn(&Key, &Value, Seen) + Send + Sync>;

/// A subject to watch, and the projection of its objects.
pub struct Interest<T> {
    resource: Resource,
    label_selector: String,
    field_selector: String,
    metadata_only: bool,
    related_only: bool,
    from_now: bool,
    project: Project<T>,
    index: Option<IndexFn<T>>,
}

impl Interest<Value> {
    /// Whole objects, without their managed fields.
    pub fn objects(resource: Resource) -> Self {
        Self::projected(resource, Some)
    }
}

impl<T> Interest<T> {
    /// Keeps the result of `project` of each object: project to the fields that are read later. `None` leaves an object
    /// out.
    pub fn projected(
        resource: Resource,
        project: impl Fn(Value) -> Option<T> + Send + Sync + 'static,
    ) -> Self {
        Self {
            resource,
            label_selector: String::new(),
            field_selector: String::new(),
            metadata_only: false,
            related_only: false,
            from_now: false,
            project: Arc::new(project),
            index: None,
        }
    }

    /// Only objects that a label selector matches.
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.label_selector = selector.into();
        self
    }

    /// Only objects that a field selector matches.
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.field_selector = selector.into();
        self
    }

    /// Only `metadata` of objects is sent.
    pub fn metadata_only(mut self) -> Self {
        self.metadata_only = true;
        self
    }

    /// Only objects that have owners or finalizers or are being deleted, and each deletion. For observers alone: a store
    /// of the others would not be complete. Servers other than Freehold send everything.
    pub fn related_only(mut self) -> Self {
        self.related_only = true;
        self
    }

    /// Reports only changes from now on, for handlers that keep no state. Changes while the watch is broken for longer
    /// than the server's history are missed.
    pub fn from_now(mut self) -> Self {
        self.from_now = true;
        self
    }

    /// Makes [`Store::by_index`] answer with these entries.
    pub fn index(mut self, entries: impl Fn(&Key, &T) -> Vec<String> + Send + Sync + 'static) -> Self {
        self.index = Some(Arc::new(entries));
        self
    }

    fn watch_options(&self, resource_version: &str) -> WatchOptions {
        WatchOptions {
            label_selector: self.label_selector.clone(),
            field_selector: self.field_selector.clone(),
            resource_version: resource_version.to_owned(),
            send_initial_events: resource_version.is_empty(),
            timeout_seconds: WATCH_SECONDS,
            metadata_only: self.metadata_only,
            related_only: self.related_only,
        }
    }

    fn list_options(&self) -> ListOptions {
        ListOptions {
            label_selector: self.label_selector.clone(),
            field_selector: self.field_selector.clone(),
            metadata_only: self.metadata_only,
            ..ListOptions::default()
        }
    }
}

/// The kind of a change of an object.
pub struct Change<T> {
    /// Which object.
    pub key: Key,
    /// The previous projection; `None` if the object is new.
    pub old: Option<Arc<T>>,
    /// The current projection; `None` if the object was deleted.
    pub new: Option<Arc<T>>,
    /// It was there before anybody looked.
    pub initial: bool,
}

/// Whether the server reported an object as existing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The object exists.
    There,
    /// The object was deleted.
    Gone,
}

/// Keeps a [`Store`] current and calls handlers for each change.
pub struct Informer<T> {
    planes: Planes,
    client: Client,
    interest: Interest<T>,
    store: Store<T>,
    handlers: Vec<Handler<T>>,
    observers: Vec<Observer>,
    resource_version: String,
    /// During initial events: known objects that have not been seen again yet.
    unseen: Option<HashSet<Key>>,
    streaming_lists: bool,
    moves: Option<broadcast::Receiver<Move>>,
    /// Planes and parts that become present with the next initial events.
    arriving: Vec<Arc<Arrival>>,
}

/// The next plane that moves; never, where planes don't.
async fn next_move(moves: &mut Option<broadcast::Receiver<Move>>) -> Result<Move, RecvError> {
    match moves {
        Some(moves) => moves.recv().await,
        None => std::future::pending().await,
    }
}

/// Why a watch ended.
enum Ended {
    /// The server closed it, as it does from time to time.
    Closed,
    /// The resource version is too old: the informer has to list again.
    Gone,
    /// The server does not know streaming lists.
    NoStreamingLists,
    /// Something failed.
    Failed(Error),
}

impl<T: Send + Sync + 'static> Informer<T> {
    /// An informer that does nothing until it runs.
    pub fn new(planes: &Planes, interest: Interest<T>) -> Self {
        Self {
            client: planes.everywhere(),
            planes: planes.clone(),
            store: Store::new(interest.index.clone()),
            interest,
            handlers: Vec::new(),
            observers: Vec::new(),
            resource_version: String::new(),
            unseen: None,
            streaming_lists: true,
            moves: planes.moves(),
            arriving: Vec::new(),
        }
    }

    /// The store that the informer keeps current.
    pub fn store(&self) -> Store<T> {
        self.store.clone()
    }

    /// Calls `handler` for each change, after the store has it. It must not block.
    pub fn on_change(&mut self, handler: impl Fn(&Change<T>) + Send + Sync + 'static) {
        self.handlers.push(Box::new(handler));
    }

    /// Calls `observer` with each received object, before the projection, which may leave it out.
    pub fn on_object(&mut self, observer: impl Fn(&Key, &Value, Seen) + Send + Sync + 'static) {
        self.observers.push(Box::new(observer));
    }

    /// Adds the key of each changed object to a queue.
    pub fn enqueue_into(&mut self, queue: &Arc<Queue<Key>>) {
        let queue = queue.clone();
        self.on_change(move |change| match change.initial {
            true => queue.add_routine(change.key.clone()),
            false => queue.add(change.key.clone()),
        });
    }

    /// Watches until the token is cancelled. After an interruption it resumes at its revision, or lists again and
    /// reports the difference.
    pub async fn run(mut self, token: CancellationToken) {
        let mut delay = FIRST_DELAY;
        loop {
            let before = self.resource_version.clone();
            let ended = tokio::select! {
                () = token.cancelled() => return,
                ended = self.watch_once() => ended,
            };
            if self.resource_version != before {
                delay = FIRST_DELAY;
            }
            self.after(ended, delay);
            tokio::select! {
                () = token.cancelled() => return,
                () = tokio::time::sleep(delay) => {}
            }
            delay = (delay * 2).min(LONGEST_DELAY);
        }
    }

    fn after(&mut self, ended: Ended, delay: Duration) {
        let resource = &self.interest.resource;
        match ended {
            Ended::Closed => {}
            Ended::Gone => self.resource_version.clear(),
            Ended::NoStreamingLists => self.streaming_lists = false,
            // A type that nobody serves yet is no failure.
            Ended::Failed(error) if delay >= LONGEST_DELAY && !error.is_not_found() => {
                tracing::warn!(%resource, %error, "failed to watch; will retry")
            }
            Ended::Failed(error) => tracing::debug!(%resource, %error, "watch failed"),
        }
        if self.unseen.take().is_some() {
            // The initial events did not come to their end: they have to come again.
            self.resource_version.clear();
        }
    }

    async fn watch_once(&mut self) -> Ended {
        if self.resource_version.is_empty() {
            if self.interest.from_now {
                if let Err(error) = self.skip_to_now().await {
                    return Ended::Failed(error);
                }
            } else if !self.streaming_lists {
                if let Err(error) = self.list().await {
                    return Ended::Failed(error);
                }
            } else {
                self.unseen = Some(self.store.keys().into_iter().collect());
            }
        }
        let options = self.interest.watch_options(&self.resource_version);
        match self.client.watch(&self.interest.resource, None, &options).await {
            Ok(stream) => self.follow(stream).await,
            Err(error) if error.is_gone() => Ended::Gone,
            Err(error) if options.send_initial_events && matches!(error.code(), 400 | 422) => {
                Ended::NoStreamingLists
            }
            Err(error) => Ended::Failed(error),
        }
    }

    async fn follow(&mut self, mut stream: WatchStream) -> Ended {
        loop {
            let ended = tokio::select! {
                event = stream.next() => match event {
                    Some(Ok(event)) => self.event(event),
                    Some(Err(error)) => Some(Ended::Failed(error)),
                    None => Some(Ended::Closed),
                },
                moved = next_move(&mut self.moves) => self.moved(moved).await,
            };
            if let Some(ended) = ended {
                return ended;
            }
        }
    }

    /// Applies an event; returns why the watch ended, if it did.
    fn event(&mut self, event: WatchEvent) -> Option<Ended> {
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                self.follow_version(&object);
                self.upsert(object);
            }
            WatchEvent::Deleted(object) => {
                self.follow_version(&object);
                self.delete(&object);
            }
            WatchEvent::Bookmark { resource_version, initial_events_end } => {
                self.resource_version = resource_version;
                if initial_events_end {
                    self.initial_events_end();
                } else if self.unseen.is_none() {
                    self.store.set_revision(&self.resource_version);
                }
            }
            WatchEvent::Error(status) if status.code == 410 => return Some(Ended::Gone),
            WatchEvent::Error(status) => return Some(Ended::Failed(Error::Api(status))),
        }
        None
    }

    fn follow_version(&mut self, object: &Value) {
        if self.unseen.is_none() {
            self.resource_version = meta::resource_version(object).to_owned();
        }
    }

    /// Reads planes and parts that arrived and forgets those that left; on any failure everything is listed again.
    async fn moved(&mut self, moved: Result<Move, RecvError>) -> Option<Ended> {
        let Ok(Move { what, arrival }) = moved else { return Some(Ended::Gone) };
        match (what, arrival, self.planes.only().cloned()) {
            // Only parts count in a single plane, and what it holds stays known.
            (Moved::Plane(_), _, Some(_)) | (Moved::Part(_), None, Some(_)) => None,
            (Moved::Part(part), Some(_), Some(plane)) if !self.planes.is_in_part(&plane, part) => None,
            (Moved::Part(_), Some(arrival), _) => self.part_arrives(arrival),
            (Moved::Part(part), None, None) => {
                let planes = self.planes.clone();
                self.drop_where(|plane| planes.is_in_part(plane, part));
                None
            }
            (Moved::Plane(plane), None, None) => {
                for (key, _) in self.store.in_plane(&plane) {
                    self.change(key, None, "");
                }
                None
            }
            (Moved::Plane(plane), Some(_), None) => self.read_plane(plane).await,
        }
    }

    fn drop_where(&self, is_dropped: impl Fn(&PlaneId) -> bool) {
        for key in self.store.keys() {
            if is_dropped(&key.plane) {
                self.change(key, None, "");
            }
        }
    }

    /// A part is read with everything else; more that come or go meanwhile are settled by the same list.
    fn part_arrives(&mut self, arrival: Arc<Arrival>) -> Option<Ended> {
        if self.interest.from_now {
            return None;
        }
        self.arriving.push(arrival);
        while let Some(Ok(next)) = self.moves.as_mut().map(broadcast::Receiver::try_recv) {
            self.arriving.extend(next.arrival);
        }
        Some(Ended::Gone)
    }

    async fn read_plane(&mut self, plane: PlaneId) -> Option<Ended> {
        if self.interest.from_now || !self.planes.is_ours(&plane) {
            return None;
        }
        let client = self.planes.client(&plane);
        match client.list_all(&self.interest.resource, None, &self.interest.list_options()).await {
            Ok(list) => {
                for object in list.items {
                    self.upsert_in(plane.clone(), object);
                }
                None
            }
            Err(error) if error.is_not_found() => None,
            Err(_) => Some(Ended::Gone),
        }
    }

    async fn skip_to_now(&mut self) -> Result<(), Error> {
        let options = ListOptions { limit: 1, ..self.interest.list_options() };
        let page = self.client.list(&self.interest.resource, None, &options).await?;
        self.resource_version = page.resource_version;
        self.store.set_revision(&self.resource_version);
        self.store.set_synced();
        Ok(())
    }

    async fn list(&mut self) -> Result<(), Error> {
        let list = self.client.list_all(&self.interest.resource, None, &self.interest.list_options()).await?;
        self.unseen = Some(self.store.keys().into_iter().collect());
        for object in list.items {
            self.upsert(object);
        }
        self.resource_version = list.resource_version;
        self.initial_events_end();
        Ok(())
    }

    fn plane_of(&self, object: &Value) -> Option<PlaneId> {
        let plane = self.planes.plane_of(object);
        if plane.is_none() {
            tracing::warn!(resource = %self.interest.resource, "ignored an object without the annotation of its plane");
        }
        plane
    }

    fn upsert(&mut self, object: Value) {
        if let Some(plane) = self.plane_of(&object) {
            self.upsert_in(plane, object);
        }
    }

    fn upsert_in(&mut self, plane: PlaneId, mut object: Value) {
        if !self.planes.is_ours(&plane) {
            return;
        }
        let key = Key::of(self.store.shared_plane(plane), &object);
        self.observe(&key, &object, Seen::There);
        if let Some(unseen) = &mut self.unseen {
            unseen.remove(&key);
        }
        let resource_version = meta::resource_version(&object).to_owned();
        strip(&mut object);
        let new = (self.interest.project)(object).map(Arc::new);
        self.change(key, new, &resource_version);
    }

    fn delete(&mut self, object: &Value) {
        let Some(plane) = self.plane_of(object).filter(|plane| self.planes.is_ours(plane)) else { return };
        let key = Key::of(plane, object);
        self.observe(&key, object, Seen::Gone);
        self.change(key, None, meta::resource_version(object));
    }

    fn observe(&self, key: &Key, object: &Value, seen: Seen) {
        for observer in &self.observers {
            observer(key, object, seen);
        }
    }

    fn initial_events_end(&mut self) {
        for key in self.unseen.take().into_iter().flatten() {
            self.change(key, None, "");
        }
        self.store.set_revision(&self.resource_version);
        self.store.set_synced();
        self.arriving.clear();
    }

    fn change(&self, key: Key, new: Option<Arc<T>>, resource_version: &str) {
        let old = self.store.replace(&key, new.clone());
        if self.unseen.is_none() {
            self.store.set_revision(resource_version);
        }
        if old.is_none() && new.is_none() {
            return;
        }
        let change = Change { key, old, new, initial: self.unseen.is_some() };
        for handler in &self.handlers {
            handler(&change);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Presence;
    use freehold_client::{Config, Identity};
    use parking_lot::Mutex;
    use serde_json::json;

    const PODS: Resource = Resource::namespaced("", "v1", "pods");

    fn object(name: &str, version: &str) -> Value {
        json!({"metadata": {
            "name": name, "namespace": "n", "resourceVersion": version, "managedFields": [],
            "annotations": {"freehold.dev/plane": "core"},
        }})
    }

    fn informer() -> (Informer<Value>, Arc<Mutex<Vec<String>>>) {
        let client = Client::new(&Config::new("http://127.0.0.1:1", "", Identity::None)).unwrap();
        let mut informer = Informer::new(&Planes::all(client), Interest::objects(PODS));
        let log = Arc::new(Mutex::new(Vec::new()));
        let written = log.clone();
        informer.on_change(move |change| {
            let sign = match (&change.old, &change.new) {
                (None, _) => '+',
                (_, None) => '-',
                _ => '~',
            };
            written.lock().push(format!("{sign}{}", change.key));
        });
        (informer, log)
    }

    #[tokio::test]
    async fn what_is_gone_after_a_new_list_is_told_as_deleted() {
        let (mut informer, log) = informer();
        informer.unseen = Some(HashSet::new());
        informer.upsert(object("a", "1"));
        informer.upsert(object("b", "2"));
        assert!(!informer.store.is_synced() && !informer.store.has_seen("1"));
        informer.resource_version = "5".into();
        informer.initial_events_end();
        assert!(informer.store.is_synced() && informer.store.has_seen("5") && !informer.store.has_seen("6"));
        informer.unseen = Some(informer.store.keys().into_iter().collect());
        informer.upsert(object("b", "2"));
        informer.initial_events_end();
        assert_eq!(*log.lock(), ["+core:n/a", "+core:n/b", "~core:n/b", "-core:n/a"]);
    }

    #[tokio::test]
    async fn live_events_move_the_version_to_resume_from() {
        let (mut informer, log) = informer();
        informer.event(WatchEvent::Added(object("a", "7")));
        informer.event(WatchEvent::Deleted(object("a", "9")));
        informer.event(WatchEvent::Deleted(object("never-seen", "10")));
        assert_eq!(informer.resource_version, "10");
        assert!(informer.store.has_seen("9"));
        assert_eq!(*log.lock(), ["+core:n/a", "-core:n/a"]);
    }

    #[tokio::test]
    async fn a_plane_that_leaves_is_forgotten_and_the_others_stay() {
        let (mut informer, log) = informer();
        informer.upsert(object("a", "7"));
        let elsewhere: PlaneId = "p".parse().unwrap();
        informer.upsert_in(elsewhere.clone(), object("a", "8"));
        let left = Move { what: Moved::Plane(elsewhere), arrival: None };
        assert!(informer.moved(Ok(left)).await.is_none());
        assert_eq!(*log.lock(), ["+core:n/a", "+p:n/a", "-p:n/a"]);
        assert!(matches!(informer.moved(Err(RecvError::Lagged(3))).await, Some(Ended::Gone)));
    }

    #[tokio::test]
    async fn of_divided_planes_only_those_taken_are_kept() {
        let client = Client::new(&Config::new("http://127.0.0.1:1", "", Identity::None)).unwrap();
        let planes = Planes::in_parts(client, 1);
        let plane = PlaneId::core();
        let mut informer = Informer::new(&planes, Interest::objects(PODS));
        informer.upsert(object("a", "7"));
        assert!(informer.store.is_empty());
        planes.take(0);
        let moved = informer.moves.as_mut().unwrap().recv().await;
        assert!(matches!(informer.moved(moved).await, Some(Ended::Gone)));
        assert_eq!(planes.presence(&plane), Presence::Arriving);
        informer.unseen = Some(HashSet::new());
        informer.upsert(object("a", "7"));
        informer.resource_version = "8".into();
        informer.initial_events_end();
        assert_eq!((informer.store.len(), planes.presence(&plane)), (1, Presence::Here));
        assert_eq!(planes.work(&plane, async { 1 }).await, Some(1));
        planes.give_back(0).await;
        let moved = informer.moves.as_mut().unwrap().recv().await;
        assert!(informer.moved(moved).await.is_none() && informer.store.is_empty());
        assert_eq!(planes.work(&plane, async { 1 }).await, None);
    }

    #[tokio::test]
    async fn a_break_during_the_initial_events_makes_them_come_again() {
        let (mut informer, _) = informer();
        informer.unseen = Some(HashSet::new());
        informer.resource_version = "3".into();
        informer.after(Ended::Closed, FIRST_DELAY);
        assert_eq!(informer.resource_version, "");
    }

    #[tokio::test]
    async fn stores_hold_neither_the_plane_annotation_nor_managed_fields() {
        let (mut informer, _) = informer();
        informer.upsert(object("a", "7"));
        let stored = informer.store.get(&Key::new(PlaneId::core(), "n", "a")).unwrap();
        assert_eq!(*stored, json!({"metadata": {"name": "a", "namespace": "n", "resourceVersion": "7"}}));
    }
}
