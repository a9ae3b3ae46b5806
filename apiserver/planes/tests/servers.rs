//! Two servers on one store: one of them is behind, or they do the same at once.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use async_trait::async_trait;
use common::{World, id};
use freehold_apiserver_cache::{EventKind, Scope, Subscription, WatchRequest, WatchStart};
use freehold_apiserver_storage::{
    Commit, Committed, KeyRange, LayerId, Range, RangeResult, Revision, Store, StoreError, Usage, Watched,
};
use freehold_machinery::PlaneId;
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::sync::{Notify, RwLock};

/// The store of a server that reads layers late, or can't.
struct Late {
    inner: Arc<dyn Store>,
    /// Held by who lets no layer be read.
    layers: RwLock<()>,
    blind: AtomicBool,
    /// A layer was asked for, and not read.
    failed: Notify,
}

#[async_trait]
impl Store for Late {
    async fn range(&self, range: Range) -> Result<RangeResult, StoreError> {
        if range.keys.start.starts_with(b"layers/") {
            drop(self.layers.read().await);
            if self.blind.load(Ordering::SeqCst) {
                self.failed.notify_one();
                return Err(StoreError::Unavailable("nobody answers".into()));
            }
        }
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

/// Another server over the store of one.
async fn beside(world: &World) -> (World, Arc<Late>) {
    let inner = world.store.clone();
    let (layers, blind, failed) = Default::default();
    let late = Arc::new(Late { inner, layers, blind, failed });
    (World::over(late.clone(), tempfile::tempdir().unwrap()).await, late)
}

async fn everywhere(world: &World) -> Subscription {
    world.cache.watch(Scope::AllPlanes, WatchRequest::all("", "configmaps"), WatchStart::Now).await.unwrap()
}

async fn next(watch: &mut Subscription) -> (EventKind, String) {
    loop {
        let event = tokio::time::timeout(Duration::from_secs(60), watch.next()).await.unwrap().unwrap();
        if let Some(change) = event.change() {
            return (change.kind, event.name().to_owned());
        }
    }
}

#[tokio::test]
async fn a_server_that_is_behind_tells_of_all_that_went_with_a_layer() {
    const OBJECTS: usize = 300;
    let world = World::new().await;
    let (a, b, layer): (PlaneId, PlaneId, LayerId) = (id("a"), id("b"), id("s"));
    for nth in 0..OBJECTS {
        world.put(&a, &format!("n{nth:04}"), "1").await;
    }
    world.planes.snapshot(&a, &layer, None).await.unwrap();
    world.planes.switch(&b, &layer, "fork").await.unwrap();
    world.planes.release(&layer).await.unwrap();
    let (behind, late) = beside(&world).await;
    let mut watch = everywhere(&behind).await;
    let shut = late.layers.write().await;
    world.planes.delete(&b).await.unwrap();
    assert_eq!(world.keys(KeyRange::layer(&layer)).await, 0);
    drop(shut);
    let mut gone = BTreeSet::new();
    while gone.len() < OBJECTS {
        let (kind, name) = next(&mut watch).await;
        assert!(kind == EventKind::Deleted && gone.insert(name));
    }
}

#[tokio::test]
async fn what_could_not_be_read_when_a_plane_was_put_above_a_layer_is_told_later() {
    let world = World::new().await;
    let (a, layer): (PlaneId, LayerId) = (id("a"), id("s"));
    world.put(&a, "x", "1").await;
    world.planes.snapshot(&a, &layer, None).await.unwrap();
    world.put(&a, "x", "2").await;
    world.put(&a, "y", "2").await;
    let (behind, late) = beside(&world).await;
    behind.cache.catch_up().await.unwrap();
    let mut watch = everywhere(&behind).await;
    late.blind.store(true, Ordering::SeqCst);
    world.planes.switch(&a, &layer, "restore").await.unwrap();
    let failed = tokio::time::timeout(Duration::from_secs(60), late.failed.notified()).await;
    failed.expect("nobody reads the layer");
    late.blind.store(false, Ordering::SeqCst);
    assert_eq!(next(&mut watch).await, (EventKind::Modified, "default/x".to_owned()));
    assert_eq!(next(&mut watch).await, (EventKind::Deleted, "default/y".to_owned()));
    assert_eq!(behind.contents(&a).await, ["x=1"]);
}

#[tokio::test]
async fn an_operation_is_done_once_whatever_was_done_since() {
    let world = World::new().await;
    let (a, first, second): (PlaneId, LayerId, LayerId) = (id("a"), id("s1"), id("s2"));
    for (layer, data) in [(&first, "1"), (&second, "2")] {
        world.put(&a, "x", data).await;
        world.planes.snapshot(&a, layer, None).await.unwrap();
    }
    world.planes.switch(&a, &first, "restore-1").await.unwrap();
    world.planes.switch(&a, &second, "restore-2").await.unwrap();
    world.put(&a, "x", "3").await;
    world.planes.switch(&a, &first, "restore-1").await.unwrap();
    assert_eq!(world.contents(&a).await, ["x=3"], "who asks again was cut off before the answer");
    world.planes.switch(&a, &first, "restore-3").await.unwrap();
    assert_eq!(world.contents(&a).await, ["x=1"]);
}

#[tokio::test]
async fn a_snapshot_that_two_servers_make_is_whole_and_nobody_is_told_that_it_failed() {
    let world = World::new().await;
    let (behind, _) = beside(&world).await;
    let a: PlaneId = id("a");
    for nth in 0..250 {
        world.put(&a, &format!("n{nth:04}"), "1").await;
    }
    for round in 0..10 {
        let layer: LayerId = id(&format!("s{round}"));
        loop {
            let both = tokio::join!(
                world.planes.snapshot(&a, &layer, None),
                behind.planes.snapshot(&a, &layer, None)
            );
            let made = <[_; 2]>::from(both).map(|made| made.map(|record| record.objects));
            let codes: Vec<u16> =
                made.iter().filter_map(|made| made.as_ref().err()).map(|s| s.code).collect();
            assert!(codes.iter().all(|code| *code == 503), "{made:?}");
            if codes.is_empty() {
                break;
            }
        }
        assert_eq!(world.keys(KeyRange::layer_objects(&layer)).await, 250);
    }
}
