//! A store from an archive: all of it or nothing, at revisions that nobody has seen.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bytes::Bytes;
use freehold_apiserver_storage::{
    Change, Commit, Committed, Key, KeyRange, KeyValue, Range, Revision, Store, StoreError,
    archive::{ArchiveError, Export, Header, Kind, Reader, export},
};
use freehold_apiserver_storage_embedded::{Embedded, OpenError, RestoreError};
use futures_util::TryStreamExt;
use std::{path::Path, sync::Arc};

async fn put(store: &Embedded, name: &str, value: &'static str) -> Revision {
    let changes = vec![Change::Put(Key::system(name), Bytes::from_static(value.as_bytes()))];
    match store.commit(Commit { expect: vec![], changes }).await.unwrap() {
        Committed::Done(revision) => revision,
        Committed::Refused(_) => panic!("nothing was expected"),
    }
}

async fn all(store: &Embedded) -> Vec<KeyValue> {
    store.range(Range::all(KeyRange::everything())).await.unwrap().items
}

async fn archive(store: &Arc<Embedded>, kind: Kind) -> Vec<u8> {
    let hold = store.hold().await.unwrap();
    let what = Export { store: store.clone(), keys: KeyRange::everything(), hold };
    let header = Header::new(kind, 0, "2026-01-01T00:00:00Z".into());
    let pieces: Vec<Bytes> = export(what, header).unwrap().try_collect().await.unwrap();
    pieces.concat()
}

fn restore(dir: &Path, archive: &[u8], beyond: Revision) -> Result<Revision, RestoreError> {
    Embedded::restore(dir, &mut Reader::open(archive)?, beyond)
}

#[tokio::test]
async fn a_restored_store_has_what_the_archive_has_and_goes_on_at_later_revisions() {
    let dir = tempfile::tempdir().unwrap();
    let lost = Embedded::open(dir.path()).unwrap();
    put(&lost, "a", "one").await;
    put(&lost, "a", "two").await;
    put(&lost, "b", "three").await;
    let (before, bytes) = (all(&lost).await, archive(&lost, Kind::Store).await);
    let unseen = put(&lost, "b", "after the backup").await;

    let dir = tempfile::tempdir().unwrap();
    let revision = restore(dir.path(), &bytes, 1_000_000).unwrap();
    let store = Embedded::open(dir.path()).unwrap();
    assert_eq!(all(&store).await, before);
    assert_eq!(store.revision().await.unwrap(), revision);
    assert!(revision > unseen);
    for seen in [before[0].modified, unseen] {
        let watched = store.watch(KeyRange::everything(), seen, false).await;
        assert!(matches!(watched.map(drop), Err(StoreError::Compacted { .. })), "{seen} can be watched from");
    }
    assert!(put(&store, "b", "four").await > revision);
    drop(store);
    assert_eq!(all(&Embedded::open(dir.path()).unwrap()).await.len(), before.len());
}

#[tokio::test]
async fn nothing_is_restored_over_objects_or_from_half_an_archive() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path()).unwrap();
    put(&store, "a", "one").await;
    let bytes = archive(&store, Kind::Store).await;
    let plane = archive(&store, Kind::Plane).await;
    drop(store);
    let error = restore(dir.path(), &bytes, 1).unwrap_err();
    assert!(matches!(error, RestoreError::Open(OpenError::NotEmpty { .. })), "{error}");

    let empty = tempfile::tempdir().unwrap();
    let mut changed = bytes.clone();
    changed[bytes.len() / 2] ^= 1;
    for wrong in [&bytes[..bytes.len() - 1], &changed, &plane] {
        let error = restore(empty.path(), wrong, 1).unwrap_err();
        assert!(matches!(error, RestoreError::Archive(_)), "{error}");
        assert!(!empty.path().join("db").exists(), "half a database is there");
    }
    assert!(matches!(
        restore(empty.path(), &plane, 1),
        Err(RestoreError::Archive(ArchiveError::Kind { .. }))
    ));
    restore(empty.path(), &bytes, 1).unwrap();
    assert_eq!(all(&Embedded::open(empty.path()).unwrap()).await.len(), 1);
}
