//! The cache: loaded planes, and the one watch on the store that keeps them current.

use crate::state::{CacheOptions, CacheState, Resident, Seen};
use crate::{
    Below, CacheEvent, Entry, LayerSource, Stack,
    census::Census,
    event::{self, OwnValue},
    hub::{Hub, Interest},
    layer::{collection, object_name},
    merge::{Span, Within},
    plane::PlaneCache,
};
use freehold_apiserver_storage::{Key, KeyRange, ObjectPath, Placement, StoreError, WatchItem};
use freehold_machinery::{PlaneId, PlaneMap, Result, Status};
use futures_util::StreamExt;
use parking_lot::{Mutex, RwLock};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::{OnceCell, watch};

/// How long a read waits for the cache to catch up with the store.
pub(crate) const CATCH_UP: Duration = Duration::from_secs(10);
/// How long a read waits for a resource version that its client names.
const ASKED: Duration = Duration::from_secs(3);
/// Time that a reader waits for the feed before it requests the store's progress.
const FIRST_NUDGE: Duration = Duration::from_millis(3);
/// Time between further requests for the store's progress.
pub(crate) const NUDGE: Duration = Duration::from_millis(20);
/// Planes of so many bytes are freed on a thread of their own.
const LARGE: usize = 1 << 20;
/// How often idle planes are looked for.
const SWEEP: Duration = Duration::from_secs(2);
/// The first time between the end of a watch on the store and the next; twice as long where nothing came in between.
const PAUSE: Duration = Duration::from_millis(10);

pub(crate) type Slot = Arc<(Arc<PlaneCache>, OnceCell<()>)>;

/// Every plane's objects in memory, current with the store.
pub struct Cache {
    pub(crate) stores: Placement,
    /// All keys that this process may read: those of all planes, or of the one plane that it serves.
    keys: KeyRange,
    pub(crate) layers: Arc<dyn LayerSource>,
    options: CacheOptions,
    pub(crate) planes: RwLock<PlaneMap<Slot>>,
    pub(crate) hub: Mutex<Hub>,
    pub(crate) applied: watch::Sender<u64>,
    started: Instant,
    counts: Counts,
    pub(crate) census: Mutex<Census>,
    /// Held during a count.
    pub(crate) counting: tokio::sync::Mutex<()>,
    /// Held during a read over all planes.
    pub(crate) reading: crate::read::Turns,
}

/// Counters of the cache.
#[derive(Default)]
struct Counts {
    loads: AtomicU64,
    evictions: AtomicU64,
}

impl Cache {
    /// Starts the feed, which runs as long as the cache exists.
    ///
    /// # Errors
    /// [`StoreError`] where the store does not tell its revision.
    pub async fn start(
        stores: impl Into<Placement>,
        keys: KeyRange,
        layers: Arc<dyn LayerSource>,
        options: CacheOptions,
    ) -> std::result::Result<Arc<Self>, StoreError> {
        let stores = stores.into();
        let revision = stores.system().revision().await?;
        let cache = Arc::new(Self {
            hub: Mutex::new(Hub::new(revision, options.recent_bytes)),
            applied: watch::Sender::new(revision),
            planes: RwLock::default(),
            started: Instant::now(),
            counts: Counts::default(),
            census: Mutex::default(),
            counting: tokio::sync::Mutex::default(),
            reading: crate::read::Turns::default(),
            stores,
            keys,
            layers,
            options,
        });
        tokio::spawn(feed(Arc::downgrade(&cache)));
        tokio::spawn(sweep(Arc::downgrade(&cache)));
        Ok(cache)
    }

    fn now(&self) -> u64 {
        self.started.elapsed().as_secs()
    }

    /// The plane, loaded, and above its present layers.
    pub(crate) async fn plane(&self, id: &PlaneId) -> Result<Arc<PlaneCache>> {
        loop {
            let found = self.planes.read().get(id).cloned();
            // What is found loaded takes in events at this moment.
            if let Some(slot) = found.as_ref().filter(|slot| slot.1.initialized()) {
                slot.0.touch(self.now());
                return Ok(slot.0.clone());
            }
            let slot = found.unwrap_or_else(|| {
                let plane = || PlaneCache::loading(id.clone(), self.options.most());
                let fresh = || Arc::new((Arc::new(plane()), OnceCell::new()));
                self.planes.write().entry(id.clone()).or_insert_with(fresh).clone()
            });
            let (plane, loaded) = &*slot;
            plane.touch(self.now());
            // Nothing is in it before it is loaded, however long that takes.
            let _pin = plane.pin();
            let load = || async {
                // The feed must be past the point from which it sends this plane its events.
                self.counts.loads.fetch_add(1, Ordering::Relaxed);
                plane.load(&**self.stores.of(id), &*self.layers).await.map_err(Status::from)
            };
            // Boxed, because it is seldom needed and every request has room for it otherwise.
            Box::pin(loaded.get_or_try_init(load)).await?;
            if self.is_current(plane) {
                return Ok(plane.clone());
            }
        }
    }

    /// Whether a plane still receives events. It does not after it was put above other layers.
    pub(crate) fn is_current(&self, plane: &Arc<PlaneCache>) -> bool {
        self.planes.read().get(&plane.id).is_some_and(|slot| Arc::ptr_eq(&slot.0, plane))
    }

    /// Waits until everything that was committed before this call is visible here, and returns the revision up to
    /// which that is.
    ///
    /// # Errors
    /// 503 where the store does not answer, 504 where the feed does not catch up in time.
    pub async fn catch_up(&self) -> Result<u64> {
        let revision = self.stores.system().revision().await?;
        self.wait_for(revision).await?;
        Ok(revision)
    }

    /// Waits until the cache has seen an existing revision.
    ///
    /// # Errors
    /// 504, `Too large resource version`, where the feed does not catch up in time.
    pub async fn wait_for(&self, revision: u64) -> Result<()> {
        self.wait_within(revision, CATCH_UP).await
    }

    /// Waits until the cache has seen a revision that a client names: for three seconds, as kube-apiserver does.
    ///
    /// # Errors
    /// 504, `Too large resource version`, after that time.
    pub async fn wait_for_asked(&self, revision: u64) -> Result<()> {
        self.wait_within(revision, ASKED).await
    }

    async fn wait_within(&self, revision: u64, limit: Duration) -> Result<()> {
        if *self.applied.borrow() >= revision {
            return Ok(());
        }
        let mut applied = self.applied.subscribe();
        let wait = async {
            let mut patience = FIRST_NUDGE;
            loop {
                let seen = applied.wait_for(|seen| *seen >= revision);
                if tokio::time::timeout(patience, seen).await.is_ok() {
                    return;
                }
                patience = NUDGE;
                drop(self.stores.system().request_progress().await);
            }
        };
        let current = || *self.applied.borrow();
        let late = |_| Status::version_too_large(revision, current());
        tokio::time::timeout(limit, wait).await.map_err(late)
    }

    /// Everything up to this revision is visible here.
    pub fn applied(&self) -> u64 {
        *self.applied.borrow()
    }

    /// Reads one object, linearizably: as of everything that was committed before this call.
    ///
    /// # Errors
    /// 503 where the store does not answer, 504 where the feed does not catch up in time.
    pub async fn get(&self, plane: &PlaneId, path: &ObjectPath) -> Result<Option<Arc<Entry>>> {
        self.catch_up().await?;
        self.get_cached(plane, path).await
    }

    /// Reads one object as the cache has it, which may lag behind the store.
    ///
    /// # Errors
    /// 503 where the plane has to be loaded and the store does not answer.
    pub async fn get_cached(&self, plane: &PlaneId, path: &ObjectPath) -> Result<Option<Arc<Entry>>> {
        let plane = self.plane(plane).await?;
        Ok(self.find(&plane, path).await?.0)
    }

    /// An object and the revision of the plane's own key, from memory or, where it is not kept there, from the store.
    async fn find(&self, plane: &PlaneCache, path: &ObjectPath) -> Result<(Option<Arc<Entry>>, u64)> {
        let name = object_name(path.namespace.as_deref(), &path.name);
        let collection = collection(&path.group, &path.resource);
        if let Some(found) = plane.find(&collection, &name) {
            return Ok(found);
        }
        let key = Key::object(&plane.id, path);
        let Some(item) = self.stores.of(&plane.id).get(&key).await? else {
            return Ok((plane.below(&collection, &name), 0));
        };
        match event::read_own(&item, plane.stack().map_or(0, |stack| stack.record())) {
            OwnValue::Object(entry) => Ok((Some(entry), item.modified)),
            OwnValue::Buried => Ok((plane.below(&collection, &name), item.modified)),
            OwnValue::Whiteout | OwnValue::Absent => Ok((None, item.modified)),
        }
    }

    /// Loads a plane unless it is resident.
    ///
    /// # Errors
    /// 503 where the store does not answer.
    pub async fn load(&self, plane: &PlaneId) -> Result<()> {
        self.plane(plane).await.map(drop)
    }

    /// One object of a plane that is in memory; `None` where the plane or the collection is not.
    pub fn peek(&self, plane: &PlaneId, path: &ObjectPath) -> Option<Arc<Entry>> {
        let slot = self.planes.read().get(plane).cloned()?;
        slot.1.get()?;
        let name = object_name(path.namespace.as_deref(), &path.name);
        slot.0.find(&collection(&path.group, &path.resource), &name)?.0
    }

    /// The objects of a resource in a plane that is in memory; none where the plane or the collection is not.
    pub fn peek_list(
        &self,
        plane: &PlaneId,
        group: &str,
        resource: &str,
        namespace: Option<&str>,
    ) -> Vec<Arc<Entry>> {
        let Some(slot) = self.planes.read().get(plane).cloned().filter(|slot| slot.1.get().is_some()) else {
            return Vec::new();
        };
        let collection = &*collection(group, resource);
        let shot = slot.0.snapshot(
            Span { collection, within: Within::namespace(namespace), after: "" },
            usize::MAX,
            0,
            None,
        );
        shot.map(|shot| shot.all()).unwrap_or_default()
    }

    /// How many objects of its own a plane that is in memory has of a resource, without reading them; `None` where the plane
    /// or the collection is not.
    pub fn count(
        &self,
        plane: &PlaneId,
        group: &str,
        resource: &str,
        namespace: Option<&str>,
    ) -> Option<usize> {
        let slot = self.planes.read().get(plane).cloned().filter(|slot| slot.1.get().is_some())?;
        slot.0.count(&collection(group, resource), namespace)
    }

    /// Reads an object as a commit sees it: the object, if there is one, and what the commit must expect.
    ///
    /// # Errors
    /// 503 where the plane has to be loaded and the store does not answer.
    pub async fn get_for_update(
        &self,
        plane: &PlaneId,
        path: &ObjectPath,
    ) -> Result<(Option<Arc<Entry>>, Seen)> {
        let plane = self.plane(plane).await?;
        let (entry, own) = self.find(&plane, path).await?;
        let name = object_name(path.namespace.as_deref(), &path.name);
        let collection = collection(&path.group, &path.resource);
        let below = plane.stack().map_or(Below::Nothing, |stack| stack.below(&collection, &name));
        let record = plane.stack().map_or(0, |stack| stack.record());
        Ok((entry, Seen { own, record, below }))
    }

    /// Returns a revision that differs after each change of a resource in a plane.
    ///
    /// # Errors
    /// 503 where the plane has to be loaded and the store does not answer.
    pub async fn changed(&self, plane: &PlaneId, group: &str, resource: &str) -> Result<u64> {
        Ok(self.plane(plane).await?.changed(&collection(group, resource)))
    }

    /// Returns a revision for each of some resources of a group, which differs after each change of it, and the
    /// layers below the plane. `None` where the plane has nothing of its own of any of them, and shows what every
    /// plane above these layers does.
    ///
    /// # Errors
    /// 503 where the plane has to be loaded and the store does not answer.
    pub async fn changes<const N: usize>(
        &self,
        plane: &PlaneId,
        group: &str,
        resources: [&str; N],
    ) -> Result<(Option<[u64; N]>, Arc<Stack>)> {
        let plane = self.plane(plane).await?;
        let collections = resources.map(|resource| collection(group, resource));
        let touched = collections.iter().any(|collection| plane.has_own(collection));
        let changed = touched.then(|| collections.map(|collection| plane.changed(&collection)));
        Ok((changed, above(&plane)?))
    }

    /// Returns the layers below a plane.
    ///
    /// # Errors
    /// 503 where the plane has to be loaded and the store does not answer.
    pub async fn stack(&self, plane: &PlaneId) -> Result<Arc<Stack>> {
        above(&*self.plane(plane).await?)
    }

    /// Drops a plane from memory.
    pub fn forget(&self, plane: &PlaneId) {
        let left = self.planes.write().remove(plane);
        let_go(left.into_iter().collect());
    }

    /// How many planes are loaded and how many bytes their objects take, about.
    pub fn loaded(&self) -> (usize, usize) {
        let planes = self.planes.read();
        (planes.len(), planes.values().map(|slot| slot.0.bytes()).sum::<usize>() + self.layers.bytes())
    }

    /// How the cache is now.
    pub fn state(&self) -> CacheState {
        let (planes, bytes) = self.loaded();
        CacheState {
            planes,
            bytes,
            budget: self.options.memory,
            loads: self.counts.loads.load(Ordering::Relaxed),
            evictions: self.counts.evictions.load(Ordering::Relaxed),
            census: self.census.lock().bytes(),
        }
    }

    /// How many planes are in memory, and the `most` of them that take most of it, the largest first.
    pub fn residents(&self, most: usize) -> (usize, Vec<Resident>) {
        let slots: Vec<Slot> = self.planes.read().values().cloned().collect();
        let now = self.now();
        let mut all: Vec<Resident> = slots
            .iter()
            .map(|slot| Resident {
                plane: slot.0.id.clone(),
                bytes: slot.0.bytes(),
                idle: Duration::from_secs(now.saturating_sub(slot.0.used.load(Ordering::Relaxed))),
                is_pinned: slot.0.is_pinned(),
            })
            .collect();
        all.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.plane.cmp(&b.plane)));
        let count = all.len();
        all.truncate(most);
        (count, all)
    }

    /// Calls `observer` with each event of a collection of a plane, before any reader can see it, and with `None` when
    /// events were missed. Everything up to the revision that is returned has happened before. It must not block.
    pub fn observe(
        &self,
        plane: PlaneId,
        group: &str,
        resource: &str,
        observer: impl Fn(Option<&CacheEvent>) + Send + Sync + 'static,
    ) -> u64 {
        let mut hub = self.hub.lock();
        let collection = collection(group, resource).into();
        let interest = Interest { plane: Some(plane), collection, within: Within::Everywhere };
        hub.observe(interest, Arc::new(observer));
        hub.revision
    }

    /// Returns when observers were told all that readers can see.
    pub fn settle(&self) {
        drop(self.hub.lock());
    }

    /// Subscribes to the changes of a collection in every plane.
    pub fn observe_everywhere(
        &self,
        group: &str,
        resource: &str,
        observer: impl Fn(Option<&CacheEvent>) + Send + Sync + 'static,
    ) {
        let collection = collection(group, resource).into();
        let interest = Interest { plane: None, collection, within: Within::Everywhere };
        self.hub.lock().observe(interest, Arc::new(observer));
    }

    /// Subscribes to what layer switches of any plane (a restore, a fork) change in a collection: the differences between
    /// before and after, before any reader can see them, or `None` where they can't be told.
    pub fn observe_switches(
        &self,
        group: &str,
        resource: &str,
        observer: impl Fn(Option<&CacheEvent>) + Send + Sync + 'static,
    ) {
        self.hub.lock().observe_switches(collection(group, resource).into(), Arc::new(observer));
    }

    /// The keys that this cache covers.
    pub(crate) fn keys(&self) -> &KeyRange {
        &self.keys
    }

    pub(crate) fn advance(&self, hub: &mut Hub, revision: u64) {
        hub.revision = hub.revision.max(revision);
        self.applied.send_if_modified(|applied| {
            let newer = *applied < revision;
            *applied = revision.max(*applied);
            newer
        });
    }

    /// Restarts the feed after the store compacted revisions that it missed.
    async fn restart(&self) -> std::result::Result<u64, StoreError> {
        let revision = self.stores.system().revision().await?;
        self.layers.refresh().await?;
        let _nobody_counts = self.counting.lock().await;
        let left = std::mem::take(&mut *self.planes.write());
        let_go(left.into_values().collect());
        *self.census.lock() = Census::default();
        self.hub.lock().reset(revision);
        self.applied.send_modify(|applied| *applied = revision.max(*applied));
        Ok(revision)
    }

    /// Evicts idle planes, then planes over the budget.
    pub(crate) fn evict(&self) {
        let now = self.now();
        let mut planes = self.planes.write();
        let before = planes.len();
        let idle = self.options.idle.as_secs();
        let age = |slot: &Slot| now.saturating_sub(slot.0.used.load(Ordering::Relaxed));
        let unused = |_: &PlaneId, slot: &mut Slot| {
            !slot.0.is_pinned() && (age(slot) >= idle || slot.0.is_empty() && age(slot) > 1)
        };
        let mut left: Vec<Slot> = planes.extract_if(unused).map(|(_, slot)| slot).collect();
        let mut bytes: usize =
            planes.values().map(|slot| slot.0.bytes()).sum::<usize>() + self.layers.bytes();
        if bytes > self.options.memory {
            let mut candidates: Vec<(bool, u64, PlaneId, usize)> = planes
                .values()
                .filter(|slot| !slot.0.id.is_core())
                .map(|slot| (slot.0.is_pinned(), now - age(slot), slot.0.id.clone(), slot.0.bytes()))
                .collect();
            candidates.sort_unstable();
            for (_, _, id, size) in candidates {
                if bytes <= self.options.memory {
                    break;
                }
                left.extend(planes.remove(&id));
                bytes = bytes.saturating_sub(size);
            }
        }
        self.counts.evictions.fetch_add(left.len() as u64, Ordering::Relaxed);
        // One plane alone may not take everything either.
        for slot in planes.values().filter(|slot| slot.0.bytes() > self.options.memory / 2) {
            slot.0.shed();
        }
        if before > 4 * planes.len() {
            planes.shrink_to_fit();
        }
        drop(planes);
        let_go(left);
    }
}

/// The layers below a plane that is loaded.
fn above(plane: &PlaneCache) -> Result<Arc<Stack>> {
    plane.stack().cloned().ok_or_else(|| Status::unavailable("the plane is not loaded").retry_after(1))
}

/// Frees planes on a thread of its own: one can have a hundred thousand objects.
pub(crate) fn let_go(planes: Vec<Slot>) {
    if planes.iter().any(|slot| slot.0.bytes() > LARGE) {
        tokio::task::spawn_blocking(move || drop(planes));
    }
}

async fn feed(cache: std::sync::Weak<Cache>) {
    let mut pause = PAUSE;
    loop {
        let Some(strong) = cache.upgrade() else { return };
        let (store, keys, after) = (strong.stores.system().clone(), strong.keys.clone(), strong.applied());
        drop(strong);
        let ended = match store.watch(keys, after, true).await {
            Ok(stream) => follow(&cache, stream).await,
            Err(error) => error,
        };
        let Some(strong) = cache.upgrade() else { return };
        tracing::warn!(error = %ended, "the watch on the store ended; restarting it");
        if strong.applied() > after {
            pause = PAUSE;
        }
        match ended {
            StoreError::Compacted { .. } => drop(strong.restart().await),
            _ => pause = (pause * 2).min(Duration::from_secs(2)),
        }
        drop(strong);
        tokio::time::sleep(pause).await;
    }
}

async fn follow(
    cache: &std::sync::Weak<Cache>,
    mut stream: freehold_apiserver_storage::WatchStream,
) -> StoreError {
    while let Some(item) = stream.next().await {
        let Some(cache) = cache.upgrade() else { break };
        match item {
            Ok(WatchItem::Events(events)) => {
                if let Err(error) = cache.take_in(events).await {
                    return error;
                }
            }
            Ok(WatchItem::Progress(revision)) => cache.advance(&mut cache.hub.lock(), revision),
            Err(error) => return error,
        }
    }
    StoreError::Unavailable("the watch ended".into())
}

async fn sweep(cache: std::sync::Weak<Cache>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        match cache.upgrade() {
            Some(cache) => {
                cache.evict();
                cache.hub.lock().sweep(Instant::now());
                cache.census.lock().sweep();
            }
            None => return,
        }
    }
}
