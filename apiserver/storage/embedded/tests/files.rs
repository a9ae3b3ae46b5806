//! Files: what is changed in them is found when they are opened, what a crash cut off is no damage, and room comes back.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bytes::Bytes;
use freehold_apiserver_storage::{Change, Commit, Committed, Key, KeyRange, Range, Revision, Store};
use freehold_apiserver_storage_embedded::{Embedded, OpenError, Options};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

fn key(nth: usize) -> Key {
    Key::system(&format!("test/{nth:06}"))
}

/// Bytes that can't be compressed.
fn noise(seed: usize, len: usize) -> Bytes {
    let mut state = (seed as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(|_| next()).collect()
}

async fn commit(store: &Embedded, changes: Vec<Change>) -> Revision {
    match store.commit(Commit { expect: vec![], changes }).await.unwrap() {
        Committed::Done(revision) => revision,
        Committed::Refused(_) => panic!("nothing was expected"),
    }
}

/// Some commits, and small buffers, so that there are sorted files too.
async fn fill(dir: &Path, objects: usize) -> Arc<Embedded> {
    let options = Options { write_buffer: 256 << 10, ..Options::default() };
    let store = Embedded::open_with(dir, options).unwrap();
    for first in (0..objects).step_by(50) {
        let puts = (first..objects.min(first + 50)).map(|nth| Change::Put(key(nth), noise(nth, 1000)));
        commit(&store, puts.collect()).await;
    }
    store
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found.sort();
    found
}

fn copy(from: &Path, to: &Path) {
    for file in files(from) {
        let place = to.join(file.strip_prefix(from).unwrap());
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::copy(&file, place).unwrap();
    }
}

/// Where a journal's batches end.
fn journal(dir: &Path) -> (PathBuf, usize) {
    let journals =
        files(&dir.join("db")).into_iter().filter(|file| file.extension().is_some_and(|e| e == "jnl"));
    let path = journals.max().unwrap();
    let end = fs::read(&path).unwrap().iter().rposition(|byte| *byte != 0).unwrap() + 1;
    (path, end)
}

fn flip(path: &Path, place: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[place] ^= 0x20;
    fs::write(path, bytes).unwrap();
}

/// Secrets are in it, and who runs the server has a umask of its own.
#[tokio::test]
async fn other_users_of_the_machine_read_nothing_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    for others_could in [false, true] {
        if others_could {
            fs::set_permissions(&db, fs::Permissions::from_mode(0o755)).unwrap();
        }
        drop(Embedded::open(dir.path()).unwrap());
        assert_eq!(fs::metadata(&db).unwrap().permissions().mode() & 0o777, 0o700, "{others_could}");
    }
}

#[tokio::test]
async fn a_changed_byte_in_any_file_is_found_when_it_is_opened_and_the_file_is_named() {
    let good = tempfile::tempdir().unwrap();
    let store = fill(good.path(), 3000).await;
    store.close();
    let (journal, end) = journal(good.path());
    let mut seen = Vec::new();
    for file in files(&good.path().join("db")) {
        let name = file.strip_prefix(good.path()).unwrap().to_owned();
        let named = name.to_string_lossy().into_owned();
        let content = fs::read(&file).unwrap();
        // Empty files lock; older manifests are not read; the rest of a journal is zeros.
        let current = fs::read(file.parent().unwrap().join("current")).unwrap_or_default();
        let is_old =
            named.contains("/v") && !named.ends_with(&format!("/v{}", current.first().unwrap_or(&0)));
        if content.is_empty() || is_old {
            continue;
        }
        let len = if file == journal { end } else { content.len() };
        for place in [0, len / 3, len / 2, len - 1] {
            let dir = tempfile::tempdir().unwrap();
            copy(good.path(), dir.path());
            flip(&dir.path().join(&name), place);
            let Err(error) = Embedded::open(dir.path()) else { panic!("byte {place} of {named}") };
            assert!(matches!(error, OpenError::Damaged { .. }), "byte {place} of {named}: {error}");
            assert!(!error.to_string().contains('\n'), "{error}");
        }
        seen.push(named);
    }
    assert!(seen.iter().any(|name| name.contains("/tables/")), "{seen:?}");
    assert!(seen.iter().any(|name| name.ends_with(".jnl")), "{seen:?}");
}

/// The database would make some of them anew, empty.
#[tokio::test]
async fn a_file_or_folder_that_is_missing_is_found_when_it_is_opened() {
    let good = tempfile::tempdir().unwrap();
    fill(good.path(), 3000).await.close();
    let db = good.path().join("db");
    let keyspaces: Vec<_> =
        fs::read_dir(db.join("keyspaces")).unwrap().map(|entry| entry.unwrap().path()).collect();
    let current = keyspaces.iter().map(|keyspace| keyspace.join("current"));
    let tables = files(&db).into_iter().filter(|file| file.to_string_lossy().contains("/tables/"));
    let all: Vec<_> =
        current.chain(tables).chain([journal(good.path()).0]).chain(keyspaces.clone()).collect();
    assert!(all.len() > 2 * keyspaces.len() + 1, "{all:?}");
    for missing in all {
        let dir = tempfile::tempdir().unwrap();
        copy(good.path(), dir.path());
        let place = dir.path().join(missing.strip_prefix(good.path()).unwrap());
        if missing.is_dir() { fs::remove_dir_all(&place) } else { fs::remove_file(&place) }.unwrap();
        let Err(error) = Embedded::open(dir.path()) else { panic!("without {}", missing.display()) };
        assert!(matches!(error, OpenError::Damaged { .. }), "without {}: {error}", missing.display());
        assert!(error.to_string().contains("missing"), "without {}: {error}", missing.display());
    }
}

#[tokio::test]
async fn what_a_crash_cut_off_is_no_damage_and_takes_nothing_along() {
    let good = tempfile::tempdir().unwrap();
    let store = fill(good.path(), 100).await;
    let before = store.range(Range::all(KeyRange::everything())).await.unwrap().items;
    let (path, acknowledged) = journal(good.path());
    commit(&store, vec![Change::Put(key(0), noise(7, 3000)), Change::Put(key(999_999), noise(8, 3000))])
        .await;
    let (_, end) = journal(good.path());
    store.close();
    let tears: [(usize, usize); 5] = [
        (acknowledged + 1, end),
        (acknowledged + 2000, end),
        (end - 1, end),
        // Pages reach the disk in any order.
        (acknowledged + 100, acknowledged + 1700),
        (acknowledged, acknowledged + 1700),
    ];
    for (from, to) in tears {
        let dir = tempfile::tempdir().unwrap();
        copy(good.path(), dir.path());
        let journal = dir.path().join(path.strip_prefix(good.path()).unwrap());
        let mut bytes = fs::read(&journal).unwrap();
        bytes[from..to].fill(0);
        fs::write(&journal, bytes).unwrap();
        let store = Embedded::open(dir.path()).unwrap();
        let found = store.range(Range::all(KeyRange::everything())).await.unwrap().items;
        assert!(found == before, "after {from}..{to}: {} keys", found.len());
        commit(&store, vec![Change::Delete(key(0))]).await;
        drop(store);
        Embedded::open(dir.path()).unwrap();
    }
}

/// Bytes that files below a folder take on disk.
fn taken(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    files(folder).iter().filter_map(|file| fs::metadata(file).ok()).map(|file| file.blocks() * 512).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn room_comes_back_after_objects_are_deleted_and_compacted() {
    let dir = tempfile::tempdir().unwrap();
    let store = fill(dir.path(), 20_000).await;
    let tables = dir.path().join("db/keyspaces");
    let full = taken(&tables);
    assert!(full > 15 << 20, "{full} bytes");
    store.clear(KeyRange::system("test")).await.unwrap();
    let last = commit(&store, vec![Change::Put(Key::system("kept"), Bytes::from_static(b"x"))]).await;
    store.compact(last).await.unwrap();
    let mut poll = tokio::time::interval(Duration::from_millis(20));
    for _ in 0..15_000 {
        poll.tick().await;
        if taken(&tables) < full / 4 {
            let found = store.range(Range::all(KeyRange::everything())).await.unwrap();
            assert_eq!(found.items.len(), 1);
            return;
        }
    }
    panic!("of {full} bytes {} are still taken", taken(&tables));
}
