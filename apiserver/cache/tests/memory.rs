//! What the cache keeps in memory, and that readers don't notice what it doesn't.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use async_trait::async_trait;
use freehold_apiserver_cache::{
    By, Cache, CacheOptions, Entry, EventKind, LayerSource, ListRequest, Scope, Stack, StackInfo, Switch,
    Wanted, WatchRequest, WatchStart, codec,
};
use freehold_apiserver_storage::{
    Change, Commit, Committed, Event, Key, KeyRange, KeyValue, MAX_OPERATIONS, ObjectPath, Range,
    RangeResult, Revision, Store, StoreError, Usage, Watched,
};
use freehold_apiserver_storage_embedded::Embedded;
use freehold_machinery::{PlaneId, Value};
use serde_json::json;
use std::{sync::Arc, time::Duration};
use tempfile::TempDir;
use tokio::sync::Semaphore;

/// No layers below any plane.
struct Bare;

fn bare() -> Arc<Stack> {
    Arc::new(Stack::new(Vec::new(), StackInfo::default()))
}

#[async_trait]
impl LayerSource for Bare {
    async fn stack(&self, _: &PlaneId, _: Option<&KeyValue>) -> Result<Arc<Stack>, StoreError> {
        Ok(bare())
    }

    fn known(&self, _: &PlaneId) -> Option<Arc<Stack>> {
        Some(bare())
    }

    async fn following(&self, _: &PlaneId, _: u64) -> Result<Arc<Stack>, StoreError> {
        Ok(bare())
    }

    async fn follow(&self, _: &Event) -> Result<Option<Switch>, StoreError> {
        Ok(None)
    }

    fn above_snapshots(&self) -> Vec<PlaneId> {
        Vec::new()
    }

    fn is_of_class(&self, _: &PlaneId, _: &str) -> bool {
        false
    }

    async fn refresh(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn bytes(&self) -> usize {
        0
    }
}

/// A store whose reads wait until they are let through.
struct Gate {
    inner: Arc<dyn Store>,
    waiting: Semaphore,
    open: Semaphore,
}

#[async_trait]
impl Store for Gate {
    async fn range(&self, range: Range) -> Result<RangeResult, StoreError> {
        self.waiting.add_permits(1);
        drop(self.open.acquire().await);
        self.inner.range(range).await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        self.inner.commit(commit).await
    }

    async fn watch(&self, keys: KeyRange, after: Revision, previous: bool) -> Watched {
        self.inner.watch(keys, after, previous).await
    }

    async fn request_progress(&self) -> Result<(), StoreError> {
        self.inner.request_progress().await
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        self.inner.revision().await
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        self.inner.compact(revision).await
    }

    async fn usage(&self, keys: KeyRange) -> Result<Usage, StoreError> {
        self.inner.usage(keys).await
    }
}

struct World {
    store: Arc<dyn Store>,
    cache: Arc<Cache>,
    _dir: TempDir,
}

fn plane(name: &str) -> PlaneId {
    name.parse().unwrap()
}

fn path(resource: &str, name: &str) -> ObjectPath {
    let (group, resource, namespace) = (String::new(), resource.to_owned(), Some("default".to_owned()));
    ObjectPath { group, resource, namespace, name: name.to_owned() }
}

fn object(name: &str, bytes: usize) -> Value {
    json!({"metadata": {"name": name, "namespace": "default", "uid": "u", "labels": {"app": "a"}},
        "data": {"k": "x".repeat(bytes)}})
}

fn options(memory: usize) -> CacheOptions {
    CacheOptions { memory, ..CacheOptions::default() }
}

async fn start(store: &Arc<dyn Store>, options: CacheOptions) -> Arc<Cache> {
    Cache::start(store.clone(), KeyRange::all_planes(), Arc::new(Bare), options).await.unwrap()
}

async fn world(options: CacheOptions) -> World {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Embedded::open(dir.path()).unwrap();
    World { cache: start(&store, options).await, store, _dir: dir }
}

impl World {
    async fn commit(&self, changes: Vec<Change>) -> Revision {
        let Committed::Done(revision) = self.store.commit(Commit { expect: vec![], changes }).await.unwrap()
        else {
            panic!("nothing was expected")
        };
        revision
    }

    async fn put(&self, of: &PlaneId, resource: &str, names: &[String], bytes: usize) -> Revision {
        let mut revision = 0;
        for names in names.chunks(MAX_OPERATIONS / 2) {
            let put = |name: &String| {
                Change::Put(Key::object(of, &path(resource, name)), codec::encode(&object(name, bytes)))
            };
            revision = self.commit(names.iter().map(put).collect()).await;
        }
        revision
    }

    async fn names(&self, of: &PlaneId, resource: &str) -> Vec<String> {
        self.cache.catch_up().await.unwrap();
        let request = ListRequest { plane: of, group: "", resource, namespace: None };
        let listed = self.cache.list(request).await.unwrap();
        listed.objects.iter().map(|entry| entry.name().to_owned()).collect()
    }
}

fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|nth| format!("a-{nth:05}")).collect()
}

/// Reads every object of a resource over all planes, `limit` at a time.
async fn across(cache: &Cache, at: Revision, limit: usize) -> Vec<String> {
    let mut pages = cache.pages_of_planes(None, ("", "configmaps", None), at, None).await.unwrap();
    let mut found = Vec::new();
    while let Some(page) = cache.page_of_planes(&mut pages, limit).await.unwrap() {
        found.extend(page.iter().map(|one| format!("{}:{}", one.plane, one.entry.name())));
    }
    found
}

#[tokio::test]
async fn a_collection_too_large_for_memory_is_served_all_the_same() {
    // An eighth of the budget is what a collection may take.
    let world = world(options(4 << 20)).await;
    let p = plane("p");
    let names = numbered(700);
    world.put(&p, "configmaps", &names[..100], 1000).await;
    world.put(&p, "secrets", &names[..1], 10).await;
    assert_eq!(world.names(&p, "configmaps").await, names[..100]);
    let small = world.cache.loaded().1;
    world.put(&p, "configmaps", &names[100..], 1000).await;
    assert_eq!(world.names(&p, "configmaps").await, names, "it grew while it was loaded");
    assert!(world.cache.loaded().1 < small, "what is too large leaves memory");
    world.cache.forget(&p);
    assert_eq!(world.names(&p, "configmaps").await, names, "it is too large when it is loaded");
    assert_eq!(world.names(&p, "secrets").await, names[..1]);
    assert!(world.cache.loaded().1 < small);

    let (found, own) = world.cache.get_for_update(&p, &path("configmaps", &names[650])).await.unwrap();
    let found = found.unwrap();
    assert_eq!((found.name(), found.modified), (&*names[650], own.own));
    let absent = world.cache.get_for_update(&p, &path("configmaps", "none")).await.unwrap();
    assert!(absent.0.is_none() && absent.1.own == 0);

    let now = Scope::Plane(p.clone());
    let mut watch =
        world.cache.watch(now, WatchRequest::all("", "configmaps"), WatchStart::Now).await.unwrap();
    assert!(watch.initial.is_none(), "it is to be read from the store as of the watch's revision");
    world.commit(vec![Change::Delete(Key::object(&p, &path("configmaps", &names[0])))]).await;
    let event = watch.next().await.unwrap();
    let change = event.change().unwrap();
    assert_eq!((change.kind, change.entry.name()), (EventKind::Deleted, &*names[0]));
}

#[tokio::test]
async fn over_the_budget_planes_go_that_nobody_asked_for_and_watched_ones_last() {
    let world = world(options(4 << 20)).await;
    let planes: Vec<PlaneId> = (0..40).map(|nth| plane(&format!("p-{nth:02}"))).collect();
    for of in &planes {
        world.put(of, "configmaps", &numbered(100), 1000).await;
    }
    world.names(&planes[0], "configmaps").await;
    let watched = Scope::Plane(planes[0].clone());
    let mut watch =
        world.cache.watch(watched, WatchRequest::all("", "configmaps"), WatchStart::Now).await.unwrap();
    for of in &planes {
        assert_eq!(world.names(of, "configmaps").await.len(), 100);
    }
    let until = tokio::time::Instant::now() + Duration::from_secs(60);
    while world.cache.loaded().1 > 4 << 20 {
        assert!(tokio::time::Instant::now() < until, "{:?}", world.cache.state());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let state = world.cache.state();
    assert!(state.evictions > 0 && state.planes > 0, "{state:?}");
    assert!(world.cache.peek(&planes[0], &path("configmaps", "a-00000")).is_some(), "it is watched");
    // What was dropped is there again for the next one who asks, and watches have missed nothing.
    for of in &planes {
        world.put(of, "configmaps", &["more".to_owned()], 10).await;
        assert_eq!(world.names(of, "configmaps").await.len(), 101);
    }
    assert_eq!(watch.next().await.unwrap().name(), "default/more");
}

#[tokio::test]
async fn a_watch_sees_each_event_once_whether_its_plane_is_loaded_or_dropped_meanwhile() {
    let world = world(CacheOptions::default()).await;
    let p = plane("p");
    let begin = world.put(&p, "configmaps", &numbered(1), 10).await;
    let mut seen = Vec::new();
    let mut resume = begin;
    for round in 0..20 {
        let last = world.put(&p, "configmaps", &[format!("r-{round}")], 10).await;
        if round % 3 == 0 {
            world.cache.forget(&p);
        }
        let from = WatchStart::After(resume);
        let mut watch = world
            .cache
            .watch(Scope::Plane(p.clone()), WatchRequest::all("", "configmaps"), from)
            .await
            .unwrap();
        world.cache.forget(&p);
        loop {
            let event = watch.next().await.unwrap();
            seen.push(event.name().to_owned());
            resume = event.revision;
            if resume == last {
                break;
            }
        }
    }
    assert_eq!(seen, (0..20).map(|round| format!("default/r-{round}")).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_list_over_planes_is_as_of_its_revision_however_planes_come_and_go() {
    let world = world(CacheOptions::default()).await;
    let mut expected = Vec::new();
    for nth in 0..30 {
        let of = plane(&format!("p-{nth:02}"));
        world.put(&of, if nth % 3 == 0 { "secrets" } else { "configmaps" }, &numbered(7), 10).await;
        if nth % 3 != 0 {
            expected.extend(numbered(7).iter().map(|name| format!("{of}:{name}")));
        }
    }
    let at = world.cache.catch_up().await.unwrap();
    assert_eq!(across(&world.cache, at, 1000).await, expected);
    for nth in 0..30 {
        let of = plane(&format!("p-{nth:02}"));
        match nth % 4 {
            0 => drop(world.commit(vec![Change::DeleteRange(KeyRange::plane(&of))]).await),
            1 => drop(world.put(&of, "configmaps", &["new".to_owned()], 10).await),
            _ => drop(world.put(&plane(&format!("q-{nth}")), "configmaps", &numbered(1), 10).await),
        }
    }
    world.cache.catch_up().await.unwrap();
    for limit in [1, 5, 1000] {
        assert_eq!(across(&world.cache, at, limit).await, expected, "by {limit}");
    }
    let restarted = start(&world.store, CacheOptions::default()).await;
    assert_eq!(across(&restarted, at, 10).await, expected, "after a restart");
    let now = restarted.catch_up().await.unwrap();
    assert_eq!(across(&restarted, now, 10).await, across(&world.cache, now, 10).await);
}

#[tokio::test]
async fn ten_thousand_custom_resources_of_a_kibibyte_take_less_than_thirty_megabytes() {
    let world = world(CacheOptions::default()).await;
    let p = plane("p");
    let metadata = 450;
    world.put(&p, "widgets", &numbered(10_000), 1024 + metadata).await;
    assert_eq!(world.names(&p, "widgets").await.len(), 10_000);
    let (_, bytes) = world.cache.loaded();
    assert!((10 << 20..30_000_000).contains(&bytes), "{bytes}");
}

#[tokio::test]
async fn what_is_deleted_is_given_back_to_the_byte() {
    let world = world(CacheOptions::default()).await;
    let p = plane("p");
    let names = numbered(1_200);
    world.put(&p, "configmaps", &names[..7], 1000).await;
    assert_eq!(world.names(&p, "configmaps").await, names[..7]);
    let before = world.cache.state();
    let mut watch = world
        .cache
        .watch(Scope::Plane(p.clone()), WatchRequest::all("", "configmaps"), WatchStart::Now)
        .await
        .unwrap();
    world.put(&p, "configmaps", &names[7..], 1000).await;
    world.put(&p, "configmaps", &names[7..107], 3000).await;
    assert_eq!(world.names(&p, "configmaps").await, names);
    assert!(world.cache.state().bytes > before.bytes + 1_400_000);
    for names in names[7..].chunks(MAX_OPERATIONS) {
        let gone = |name: &String| Change::Delete(Key::object(&p, &path("configmaps", name)));
        world.commit(names.iter().map(gone).collect()).await;
    }
    assert_eq!(world.names(&p, "configmaps").await, names[..7]);
    assert_eq!(world.cache.state(), before);
    for _ in 0..1193 + 100 + 1193 {
        assert!(watch.next().await.is_some());
    }
    // It is as if it had never been there for who loads the plane now.
    world.cache.forget(&p);
    assert_eq!(world.names(&p, "configmaps").await, names[..7]);
    assert_eq!(world.cache.state().bytes, before.bytes);
}

#[tokio::test]
async fn a_plane_that_nobody_uses_takes_less_than_three_hundred_bytes() {
    let idle = CacheOptions { idle: Duration::ZERO, ..CacheOptions::default() };
    let world = world(idle).await;
    const PLANES: usize = 1_000;
    let resources = ["namespaces", "rolebindings", "configmaps", "secrets", "services", "serviceaccounts"];
    for nth in 0..PLANES {
        let of = plane(&format!("0d3c9a62-5b0c-4d65-9f3f-{nth:012}"));
        for resource in resources {
            world.put(&of, resource, &["a".to_owned()], 10).await;
        }
    }
    let now = world.cache.catch_up().await.unwrap();
    assert_eq!(across(&world.cache, now, 100).await.len(), PLANES);
    let state = world.cache.state();
    assert_eq!((state.planes, state.bytes), (0, 0), "a list over planes loads none");
    assert!(state.census / PLANES < 300, "{} bytes a plane", state.census / PLANES);
}

#[tokio::test]
async fn what_went_while_a_plane_was_not_in_memory_is_a_change() {
    let world = world(CacheOptions::default()).await;
    let p = plane("p");
    world.put(&p, "configmaps", &numbered(2), 10).await;
    world.names(&p, "configmaps").await;
    let before = world.cache.changed(&p, "", "configmaps").await.unwrap();
    world.cache.forget(&p);
    world.commit(vec![Change::Delete(Key::object(&p, &path("configmaps", "a-00000")))]).await;
    assert_eq!(world.names(&p, "configmaps").await, ["a-00001"]);
    assert_ne!(world.cache.changed(&p, "", "configmaps").await.unwrap(), before);
}

#[tokio::test]
async fn a_watch_keeps_nothing_of_a_plane_that_was_dropped() {
    let world = world(CacheOptions { recent_bytes: 0, ..CacheOptions::default() }).await;
    let p = plane("p");
    world.put(&p, "configmaps", &numbered(2), 10).await;
    world.cache.catch_up().await.unwrap();
    let now = Scope::Plane(p.clone());
    let mut watch =
        world.cache.watch(now, WatchRequest::all("", "configmaps"), WatchStart::Now).await.unwrap();
    watch.initial = None;
    let entry = world.cache.peek(&p, &path("configmaps", "a-00000")).unwrap();
    assert_eq!(Arc::strong_count(&entry), 2, "the plane has it");
    world.cache.forget(&p);
    assert_eq!(Arc::strong_count(&entry), 1);
    world.put(&p, "configmaps", &["more".to_owned()], 10).await;
    assert_eq!(watch.next().await.unwrap().name(), "default/more");
}

#[tokio::test]
async fn a_plane_that_loads_slowly_is_loaded_once_however_idle_it_looks() {
    let dir = tempfile::tempdir().unwrap();
    let inner: Arc<dyn Store> = Embedded::open(dir.path()).unwrap();
    let gate = Arc::new(Gate { inner, waiting: Semaphore::new(0), open: Semaphore::new(1) });
    let store: Arc<dyn Store> = gate.clone();
    let idle = CacheOptions { idle: Duration::ZERO, ..CacheOptions::default() };
    let world = World { cache: start(&store, idle).await, store, _dir: dir };
    let (p, q) = (plane("p"), plane("q"));
    for of in [&p, &q] {
        world.put(of, "configmaps", &numbered(3), 10).await;
    }
    world.cache.load(&q).await.unwrap();
    let shut = gate.open.acquire().await.unwrap();
    gate.waiting.forget_permits(usize::MAX);
    let (cache, of) = (world.cache.clone(), p.clone());
    let loading = tokio::spawn(async move { cache.load(&of).await });
    gate.waiting.acquire().await.unwrap().forget();
    let until = tokio::time::Instant::now() + Duration::from_secs(60);
    while world.cache.state().evictions == 0 {
        assert!(tokio::time::Instant::now() < until, "nobody looks for idle planes");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    drop(shut);
    loading.await.unwrap().unwrap();
    assert_eq!(world.cache.state().loads, 2, "each of the planes");
}

#[tokio::test]
async fn what_nobody_counts_takes_no_memory() {
    let world = world(CacheOptions::default()).await;
    let p = plane("p");
    for _ in 0..3 {
        world.put(&p, "configmaps", &numbered(1_000), 10).await;
        world.commit(vec![Change::DeleteRange(KeyRange::plane(&p))]).await;
    }
    let now = world.cache.catch_up().await.unwrap();
    assert_eq!(world.cache.state().census, 0);
    assert!(across(&world.cache, now, 10).await.is_empty());
    world.put(&p, "configmaps", &numbered(3), 10).await;
    let now = world.cache.catch_up().await.unwrap();
    assert_eq!(across(&world.cache, now, 10).await.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_list_has_all_of_a_revision_or_nothing() {
    const ROUNDS: usize = 300;
    let world = Arc::new(world(CacheOptions::default()).await);
    let p = plane("p");
    let names = numbered(MAX_OPERATIONS / 2);
    world.put(&p, "configmaps", &names, 1).await;
    let (writer, of) = (world.clone(), p.clone());
    let writing = tokio::spawn(async move {
        for round in 0..ROUNDS {
            writer.put(&of, "configmaps", &names, 1 + round).await;
        }
    });
    while !writing.is_finished() {
        let request = ListRequest { plane: &p, group: "", resource: "configmaps", namespace: None };
        let listed = world.cache.list_cached(request).await.unwrap().unwrap();
        let (first, last) = (listed.objects.first().unwrap(), listed.objects.last().unwrap());
        assert_eq!(first.modified, last.modified, "as of {}", listed.revision);
    }
    writing.await.unwrap();
}

/// The names of objects of an app, as an index or a scan finds them.
async fn of_app(world: &World, of: &PlaneId, app: &str) -> Vec<String> {
    let matches = |entry: &Entry| entry.label("app") == Some(app);
    let wanted = Wanted { matches: &matches, by: Some((By::Label("app"), app)) };
    let request = ListRequest { plane: of, group: "", resource: "configmaps", namespace: None };
    let listed = world.cache.list_cached_part(request, "", 0, Some(wanted)).await.unwrap().unwrap();
    listed.objects.iter().map(|entry| entry.name().to_owned()).collect()
}

fn relabel(of: &PlaneId, name: &str, app: usize) -> Change {
    let mut object = object(name, 10);
    object["metadata"]["labels"]["app"] = json!(format!("app-{app}"));
    Change::Put(Key::object(of, &path("configmaps", name)), codec::encode(&object))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_list_by_a_label_is_right_while_its_index_is_made_and_objects_change() {
    const APPS: usize = 5;
    const ROUNDS: usize = 40;
    let world = Arc::new(world(CacheOptions::default()).await);
    let p = plane("p");
    let names = numbered(3_000);
    world.put(&p, "configmaps", &names, 10).await;
    assert_eq!(of_app(&world, &p, "a").await.len(), names.len(), "the first question");
    let (writer, of) = (world.clone(), p.clone());
    let app_of = |nth: usize, round: usize| (nth * 7 + round) % APPS;
    let writing = tokio::spawn(async move {
        for round in 0..=ROUNDS {
            for (part, names) in names.chunks(MAX_OPERATIONS / 2).enumerate() {
                let put = |(nth, name): (usize, &String)| {
                    relabel(&of, name, app_of(part * MAX_OPERATIONS / 2 + nth, round))
                };
                writer.commit(names.iter().enumerate().map(put).collect()).await;
            }
        }
        names
    });
    while !writing.is_finished() {
        let found = of_app(&world, &p, "app-1").await;
        assert!(found.is_sorted());
    }
    let names = writing.await.unwrap();
    world.cache.catch_up().await.unwrap();
    for app in 0..APPS {
        let nth = |name: &&String| name["a-".len()..].parse::<usize>().unwrap();
        let of = |name: &&String| {
            let half = MAX_OPERATIONS / 2;
            app_of(nth(name) / half * MAX_OPERATIONS / 2 + nth(name) % half, ROUNDS) == app
        };
        let expected: Vec<_> = names.iter().filter(of).cloned().collect();
        assert_eq!(of_app(&world, &p, &format!("app-{app}")).await, expected, "app-{app}");
    }
    assert!(of_app(&world, &p, "a").await.is_empty(), "nothing has that value any more");
}

#[tokio::test]
async fn one_object_is_watched_without_the_others() {
    let world = world(CacheOptions::default()).await;
    let p = plane("p");
    let names = numbered(20);
    let begun = world.put(&p, "configmaps", &names, 10).await;
    let place = format!("default/{}", names[3]);
    let request = WatchRequest { place: Some(&place), ..WatchRequest::all("", "configmaps") };
    let scope = || Scope::Plane(p.clone());
    let mut watch = world.cache.watch(scope(), request, WatchStart::Now).await.unwrap();
    let initial = watch.initial.take().unwrap();
    assert_eq!(initial.iter().map(|entry| entry.name()).collect::<Vec<_>>(), [&names[3]]);
    let written = world.put(&p, "configmaps", &names, 20).await;
    let event = watch.next().await.unwrap();
    assert_eq!((event.change().unwrap().entry.place(), event.revision), (&*place, written));
    world.commit(vec![Change::Delete(Key::object(&p, &path("configmaps", &names[3])))]).await;
    assert_eq!(watch.next().await.unwrap().change().unwrap().kind, EventKind::Deleted);
    let mut later = world.cache.watch(scope(), request, WatchStart::After(begun)).await.unwrap();
    let kinds = [later.next().await.unwrap(), later.next().await.unwrap()].map(|e| e.change().unwrap().kind);
    assert_eq!(kinds, [EventKind::Modified, EventKind::Deleted]);
}

#[test]
fn an_entry_takes_little_beside_its_text() {
    let json = object("a", 1024).to_string();
    let entry = Entry::new(json.as_bytes(), 1, 1).unwrap();
    assert!(entry.cost() < json.len() + 300, "{} for {}", entry.cost(), json.len());
}
