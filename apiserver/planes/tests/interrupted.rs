//! Operations on planes that are cut off between two of their commits, and what is done with what they left.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use async_trait::async_trait;
use common::{World, id, path};
use freehold_apiserver_cache::codec;
use freehold_apiserver_storage::{
    Change, Commit, Committed, Key, KeyRange, LayerId, Range, RangeResult, Revision, Store, StoreError,
    Usage, Watched,
};
use freehold_apiserver_storage_embedded::Embedded;
use freehold_machinery::PlaneId;
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicI64, Ordering},
};

/// A store that stops taking commits, as one whose server was killed.
struct Cut {
    inner: Arc<dyn Store>,
    /// Commits that it still takes.
    left: AtomicI64,
    taken: AtomicI64,
    /// Whether it takes no commit that removes an object.
    keeps: AtomicBool,
}

impl Cut {
    fn after(&self, commits: i64) {
        self.left.store(commits, Ordering::SeqCst);
    }

    fn heal(&self) -> i64 {
        self.keeps.store(false, Ordering::SeqCst);
        self.after(i64::MAX);
        self.taken.swap(0, Ordering::SeqCst)
    }
}

#[async_trait]
impl Store for Cut {
    async fn range(&self, range: Range) -> Result<RangeResult, StoreError> {
        self.inner.range(range).await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        let removes = |change: &Change| matches!(change, Change::Delete(key) if key.object_path().is_some());
        let kept = self.keeps.load(Ordering::SeqCst) && commit.changes.iter().any(removes);
        if kept || self.left.fetch_sub(1, Ordering::SeqCst) <= 0 {
            return Err(StoreError::Unavailable("it was cut off".into()));
        }
        self.taken.fetch_add(1, Ordering::SeqCst);
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

async fn cut_world() -> (World, Arc<Cut>) {
    let folder = tempfile::tempdir().unwrap();
    let inner: Arc<dyn Store> = Embedded::open(folder.path()).unwrap();
    let cut = Arc::new(Cut {
        inner,
        left: AtomicI64::new(i64::MAX),
        taken: AtomicI64::new(0),
        keeps: AtomicBool::new(false),
    });
    (World::over(cut.clone(), folder).await, cut)
}

async fn fill(world: &World, plane: &PlaneId, count: usize) {
    for nth in 0..count {
        world.put(plane, &format!("n{nth:04}"), "1").await;
    }
}

#[tokio::test]
async fn a_snapshot_that_was_cut_off_goes_on_where_it_was() {
    let (world, cut) = cut_world().await;
    let (a, layer): (PlaneId, LayerId) = (id("a"), id("s"));
    fill(&world, &a, 550).await;
    // Its record, and two hundred objects.
    cut.after(3);
    assert_eq!(world.planes.snapshot(&a, &layer, None).await.unwrap_err().code, 503);
    assert_eq!(world.keys(KeyRange::layer_objects(&layer)).await, 200);
    cut.heal();
    let begun = world.store.revision().await.unwrap();
    world.put(&a, "n0000", "changed").await;
    world.put(&a, "n0549", "changed").await;
    let world = world.restarted().await;
    cut.heal();
    let record = world.planes.snapshot(&a, &layer, None).await.unwrap();
    assert_eq!((record.objects, record.sealed, record.cursor.as_str()), (550, true, ""));
    assert!(record.revision < begun, "it is as of when it was begun");
    assert_eq!(cut.heal(), 5, "four commits of objects, one that seals");
    world.planes.switch(&id("b"), &layer, "fork").await.unwrap();
    let contents = world.contents(&id("b")).await;
    assert_eq!(contents.len(), 550);
    assert!(contents.iter().all(|object| object.ends_with("=1")));
}

#[tokio::test]
async fn a_snapshot_whose_revision_is_gone_begins_anew_or_says_so() {
    let (world, cut) = cut_world().await;
    let a: PlaneId = id("a");
    fill(&world, &a, 250).await;
    let at = world.store.revision().await.unwrap();
    for (layer, wanted) in [("s", None), ("t", Some(at))] {
        cut.after(2);
        world.planes.snapshot(&a, &id(layer), wanted).await.unwrap_err();
        cut.heal();
    }
    let last = world.put(&a, "n0000", "changed").await;
    world.store.compact(last).await.unwrap();
    let record = world.planes.snapshot(&a, &id("s"), None).await.unwrap();
    assert_eq!(record.objects, 250);
    assert!(record.revision >= last);
    assert_eq!(world.planes.snapshot(&a, &id("t"), Some(at)).await.unwrap_err().code, 410);
}

#[tokio::test]
async fn a_restore_is_whole_from_its_first_commit_and_tidied_up_after_a_crash() {
    let (world, cut) = cut_world().await;
    let (a, layer): (PlaneId, LayerId) = (id("a"), id("s"));
    world.put(&a, "n0001", "kept").await;
    world.put(&a, "z", "kept").await;
    world.planes.snapshot(&a, &layer, None).await.unwrap();
    fill(&world, &a, 300).await;
    world.commit(Change::Put(Key::object(&a, &path("z")), codec::whiteout())).await;
    assert_eq!(world.contents(&a).await.len(), 300);
    cut.keeps.store(true, Ordering::SeqCst);
    world.planes.switch(&a, &layer, "restore").await.unwrap();
    let world = world.restarted().await;
    assert_eq!(world.keys(KeyRange::plane_objects(&a)).await, 301);
    let expected = ["n0001=kept", "z=kept"];
    assert_eq!(world.contents(&a).await, expected);
    cut.heal();
    // Before and after the rest was taken away, readers see the same; a server that starts sees to it.
    for _ in 0..12_000 {
        if world.keys(KeyRange::system("buried")).await == 0 {
            break;
        }
        assert_eq!(world.contents(&a).await, expected);
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(world.keys(KeyRange::plane_objects(&a)).await, 0);
    assert_eq!(world.contents(&a).await, expected);
    let again: LayerId = id("s2");
    assert_eq!(world.planes.snapshot(&a, &again, None).await.unwrap().objects, 2);
}

#[tokio::test]
async fn what_is_buried_is_written_anew_and_read_by_nobody() {
    let (world, cut) = cut_world().await;
    let (a, b, layer): (PlaneId, PlaneId, LayerId) = (id("a"), id("b"), id("s"));
    world.put(&a, "kept", "0").await;
    world.planes.snapshot(&a, &layer, None).await.unwrap();
    fill(&world, &a, 20).await;
    cut.keeps.store(true, Ordering::SeqCst);
    world.planes.switch(&a, &layer, "restore").await.unwrap();
    assert_eq!(world.contents(&a).await, ["kept=0"]);
    let (found, seen) = world.cache.get_for_update(&a, &path("n0003")).await.unwrap();
    assert!(found.is_none() && seen.own > 0 && seen.record > seen.own, "{seen:?}");
    world.put(&a, "n0003", "new").await;
    assert_eq!(world.contents(&a).await, ["kept=0", "n0003=new"]);
    let (_, seen) = world.cache.get_for_update(&a, &path("n0003")).await.unwrap();
    assert!(seen.own > seen.record);
    let record = world.planes.snapshot(&a, &id("t"), None).await.unwrap();
    assert_eq!(record.objects, 2);
    world.planes.switch(&b, &id("t"), "fork").await.unwrap();
    assert_eq!(world.contents(&b).await, ["kept=0", "n0003=new"]);
}
