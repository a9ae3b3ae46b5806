//! Burial: keys that a restore left behind. They count as absent from the moment at which the plane's record was
//! written, and are removed here, in commits of bounded size.
//!
//! A note in the commit of the restore says that there is something to take away, so that it is finished after a crash.
//! Several servers may do it at once: each removes a key only as it found it.

use freehold_apiserver_cache::Cache;
use freehold_apiserver_storage::{
    Change, Commit, Committed, Expect, Key, KeyRange, KeyValue, MAX_OPERATIONS, Range, Revision, Store,
    StoreError,
};
use freehold_machinery::PlaneId;
use futures_util::future::try_join_all;

/// Keys that one commit removes: each is expected to be as it was found.
const STEP: usize = MAX_OPERATIONS / 2;
/// Commits that are under way at once.
const AT_ONCE: usize = 2;

/// Where the notes are.
const NOTES: &str = "buried";

/// The key that notes that a plane has buried keys.
pub(crate) fn note(plane: &PlaneId) -> Key {
    Key::system(&format!("{NOTES}/{plane}"))
}

/// Takes away what is buried in any plane.
pub(crate) async fn finish_all(store: &dyn Store, cache: &Cache) -> Result<(), StoreError> {
    for note in store.range(Range::all(KeyRange::system(NOTES))).await?.items {
        let text = std::str::from_utf8(note.key.as_bytes()).ok();
        if let Some(Ok(plane)) = text.and_then(|text| text.rsplit('/').next()).map(str::parse) {
            finish(store, cache, &plane).await?;
        }
    }
    Ok(())
}

/// Takes away what is buried in a plane, and then the note of it.
pub(crate) async fn finish(store: &dyn Store, cache: &Cache, plane: &PlaneId) -> Result<(), StoreError> {
    // Another restore may come meanwhile, and write the note anew.
    while let Some(noted) = store.get(&note(plane)).await? {
        let record = store.get(&Key::stack(plane)).await?.map_or(0, |record| record.modified);
        remove_before(store, cache, plane, record).await?;
        let expect = vec![Expect { key: note(plane), modified: noted.modified }];
        drop(store.commit(Commit { expect, changes: vec![Change::Delete(note(plane))] }).await?);
    }
    Ok(())
}

/// Waits until the cache has taken in a step of a removal, so that nobody has to wait there behind all of them. A cache that
/// is held up holds up no removal.
pub(crate) async fn pace(cache: &Cache, revision: Revision) {
    drop(cache.wait_for(revision).await);
}

async fn remove_before(
    store: &dyn Store,
    cache: &Cache,
    plane: &PlaneId,
    record: u64,
) -> Result<(), StoreError> {
    let mut keys = KeyRange::plane_objects(plane);
    loop {
        let range = Range { limit: AT_ONCE * STEP, keys_only: true, ..Range::all(keys.clone()) };
        let page = store.range(range).await?;
        let rest = page.rest(&keys);
        let buried: Vec<_> = page.items.into_iter().filter(|item| item.modified < record).collect();
        let done = try_join_all(buried.chunks(STEP).map(|step| remove(store, step))).await?;
        pace(cache, done.into_iter().max().unwrap_or(0)).await;
        match rest {
            Some(rest) => keys = rest,
            None => return Ok(()),
        }
    }
}

/// Removes keys that are as they were found; one that was written since is none of the past any more. Returns when.
async fn remove(store: &dyn Store, step: &[KeyValue]) -> Result<Revision, StoreError> {
    let mut step = step.to_vec();
    while !step.is_empty() {
        let expect =
            step.iter().map(|item| Expect { key: item.key.clone(), modified: item.modified }).collect();
        let changes = step.iter().map(|item| Change::Delete(item.key.clone())).collect();
        let now = match store.commit(Commit { expect, changes }).await? {
            Committed::Done(revision) => return Ok(revision),
            Committed::Refused(now) => now,
        };
        let same = |(item, now): (KeyValue, Option<KeyValue>)| {
            now.is_some_and(|now| now.modified == item.modified).then_some(item)
        };
        step = step.into_iter().zip(now).filter_map(same).collect();
    }
    Ok(0)
}
