//! What was acknowledged stays: over reopening, kill -9 and a full disk; and a directory that can't be used says why.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bytes::Bytes;
use freehold_apiserver_storage::{
    Change, Commit, Committed, Key, KeyRange, Range, Revision, Store, StoreError, WatchItem,
};
use freehold_apiserver_storage_embedded::{Embedded, OpenError};
use futures_util::StreamExt;
use std::{
    collections::HashMap,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
};

/// Names the data directory to a test that runs as a child process of another test.
const CHILD_DIR: &str = "FREEHOLD_TEST_CHILD_DIR";

fn key(name: &str) -> Key {
    Key::system(&format!("test/{name}"))
}

async fn put(store: &Embedded, names: &[&str], value: &[u8]) -> Result<Revision, StoreError> {
    let changes = names.iter().map(|name| Change::Put(key(name), Bytes::copy_from_slice(value))).collect();
    match store.commit(Commit { expect: vec![], changes }).await? {
        Committed::Done(revision) => Ok(revision),
        Committed::Refused(_) => panic!("nothing was expected"),
    }
}

async fn all(store: &Embedded) -> Vec<(Key, Bytes, Revision)> {
    let found = store.range(Range::all(KeyRange::everything())).await.unwrap();
    found.items.into_iter().map(|item| (item.key, item.value, item.modified)).collect()
}

#[tokio::test]
async fn everything_is_there_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path()).unwrap();
    let first = put(&store, &["a"], b"one").await.unwrap();
    put(&store, &["a", "b", "nul\0nul"], b"two").await.unwrap();
    let last = put(&store, &["empty"], b"").await.unwrap();
    let before = all(&store).await;
    drop(store);

    let store = Embedded::open(dir.path()).unwrap();
    assert_eq!(all(&store).await, before);
    assert_eq!(store.revision().await.unwrap(), last);
    let past = store.range(Range { at: Some(first), ..Range::all(KeyRange::everything()) }).await.unwrap();
    assert_eq!(past.items[0].value, "one");
    let mut watch = store.watch(KeyRange::everything(), first, true).await.unwrap();
    let Some(Ok(WatchItem::Events(events))) = watch.next().await else { panic!("the watch yields history") };
    assert_eq!(events[0].previous.as_ref().unwrap().value, "one");
    assert!(put(&store, &["c"], b"three").await.unwrap() > last);
    store.compact(last).await.unwrap();
    drop((watch, store));

    let store = Embedded::open(dir.path()).unwrap();
    let error = store.compact(last).await.unwrap_err();
    assert!(matches!(error, StoreError::Compacted { .. }), "{error}");
}

#[tokio::test]
async fn a_closed_store_fails_and_lets_go_of_its_directory() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path()).unwrap();
    put(&store, &["a"], b"x").await.unwrap();
    let watch = store.watch(KeyRange::everything(), 2, false).await.unwrap();
    store.close();
    let mut watch = watch.skip_while(|item| std::future::ready(matches!(item, Ok(WatchItem::Progress(_)))));
    assert!(matches!(watch.next().await, Some(Err(StoreError::Unavailable(_)))));
    assert!(watch.next().await.is_none());
    assert!(matches!(put(&store, &["a"], b"y").await, Err(StoreError::Unavailable(_))));
    assert!(matches!(store.get(&key("a")).await, Err(StoreError::Unavailable(_))));
    assert_eq!(all(&Embedded::open(dir.path()).unwrap()).await.len(), 1);
}

#[tokio::test]
async fn a_directory_in_use_is_refused_in_one_line_that_names_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let _store = Embedded::open(dir.path()).unwrap();
    let Err(error) = Embedded::open(dir.path()) else { panic!("opened twice") };
    let expected =
        format!("data directory {} is in use by process {}", dir.path().display(), std::process::id());
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn a_path_that_cannot_be_a_directory_is_refused_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, "x").unwrap();
    let Err(error) = Embedded::open(&path) else { panic!("a file was opened as a directory") };
    assert!(matches!(error, OpenError::Io { .. }));
    assert!(error.to_string().starts_with(&format!("data directory {} can't be used: ", path.display())));
}

#[tokio::test]
async fn damaged_files_are_refused() {
    let overwrite = |path: &Path| {
        let len = usize::try_from(std::fs::metadata(path).unwrap().len()).unwrap();
        std::fs::write(path, vec![0xa5; len.min(1 << 16)]).unwrap();
    };
    for name in ["version", "keyspaces/1/current", "keyspaces/2/current"] {
        let dir = tempfile::tempdir().unwrap();
        let store = Embedded::open(dir.path()).unwrap();
        put(&store, &["a"], b"x").await.unwrap();
        drop(store);
        overwrite(&dir.path().join("db").join(name));
        let Err(error) = Embedded::open(dir.path()) else { panic!("opened with a damaged {name}") };
        assert!(matches!(error, OpenError::Damaged { .. }), "{name}: {error}");
        assert!(!error.to_string().contains('\n'), "{error}");
    }
}

#[tokio::test]
async fn a_directory_that_was_made_by_halves_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("db.new/keyspaces")).unwrap();
    std::fs::write(dir.path().join("db.new/0.jnl"), "half").unwrap();
    put(&Embedded::open(dir.path()).unwrap(), &["a"], b"x").await.unwrap();
    assert_eq!(all(&Embedded::open(dir.path()).unwrap()).await.len(), 1);
}

/// Runs another test of this file as a process of its own.
fn child(test: &str, dir: &Path) -> Child {
    let exe = std::env::current_exe().unwrap();
    // A write beyond the file size limit shall fail, not kill.
    Command::new("sh")
        .args(["-c", r#"trap "" XFSZ; exec "$0" --exact "$1" --nocapture --test-threads=1"#])
        .args([exe.as_os_str(), test.as_ref()])
        .env(CHILD_DIR, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Not a test of its own: writes until it is killed, and tells each commit that was acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_that_writes() {
    let Ok(dir) = std::env::var(CHILD_DIR) else { return };
    let store = Embedded::open(Path::new(&dir)).unwrap();
    let tasks = (0..4).map(|task| {
        let store: Arc<Embedded> = store.clone();
        tokio::spawn(async move {
            for nth in 0u64.. {
                let names = [format!("{task}/a{}", nth % 50), format!("{task}/b{}", nth % 50)];
                let revision = put(&store, &[&names[0], &names[1]], &nth.to_be_bytes()).await.unwrap();
                println!("\nack {task} {nth} {revision}");
            }
        })
    });
    futures_util::future::join_all(tasks).await;
}

/// The acknowledgements of one child's life, which is ended after `count` of them.
fn live_and_die(dir: &Path, count: usize) -> Vec<[u64; 3]> {
    let mut child = child("child_that_writes", dir);
    let mut acknowledged = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let Some(ack) = line.unwrap().strip_prefix("ack ").map(str::to_owned) else { continue };
        let numbers: Vec<u64> = ack.split(' ').map(|number| number.parse().unwrap()).collect();
        acknowledged.push(<[u64; 3]>::try_from(numbers).unwrap());
        if acknowledged.len() == count {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(acknowledged.len() >= count, "the child ended too early");
    acknowledged
}

#[tokio::test]
async fn after_kill_nine_every_acknowledged_commit_is_there_and_none_by_halves() {
    let dir = tempfile::tempdir().unwrap();
    let seed = std::process::id() as usize;
    let mut last = 0;
    for round in 0..6 {
        let acknowledged = live_and_die(dir.path(), 20 + (seed * 31 + round * 977) % 400);
        let store = Embedded::open(dir.path()).unwrap();
        let found: HashMap<_, _> =
            all(&store).await.into_iter().map(|(key, value, at)| (key, (value, at))).collect();
        for [task, nth, revision] in &acknowledged {
            assert!(*revision > last, "revision {revision} was given twice");
            let (value, modified) = &found[&key(&format!("{task}/a{}", nth % 50))];
            assert!(modified >= revision, "revision {revision} is lost");
            assert!(modified > revision || value == &nth.to_be_bytes()[..]);
            assert_eq!(&found[&key(&format!("{task}/b{}", nth % 50))], &(value.clone(), *modified));
        }
        last = store.revision().await.unwrap();
        assert!(last >= acknowledged.iter().map(|ack| ack[2]).max().unwrap());
        assert_eq!(logged(&store, last).await, (2..=last).collect::<Vec<_>>(), "the log has a gap");
    }
}

async fn logged(store: &Embedded, last: Revision) -> Vec<Revision> {
    let mut watch = store.watch(KeyRange::everything(), 1, false).await.unwrap();
    let mut revisions: Vec<Revision> = Vec::new();
    while revisions.last() != Some(&last) {
        if let WatchItem::Events(events) = watch.next().await.unwrap().unwrap() {
            assert!(events.chunks(2).all(|pair| pair[0].revision == pair[1].revision));
            revisions.extend(events.iter().step_by(2).map(|event| event.revision));
        }
    }
    revisions
}

/// Sets how large files of this process can become: to the system, that is much like a full disk.
fn limit_files(limit: &str) {
    let status = Command::new("prlimit")
        .args(["--pid", &std::process::id().to_string(), &format!("--fsize={limit}:")])
        .status();
    assert!(status.expect("prlimit (util-linux) is installed").success());
}

/// Bytes that can't be compressed.
fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..8192).flat_map(|_| next()).collect()
}

/// Not a test of its own: fills the disk, and makes room again.
#[tokio::test]
async fn child_that_fills_the_disk() {
    let Ok(dir) = std::env::var(CHILD_DIR) else { return };
    let store = Embedded::open(Path::new(&dir)).unwrap();
    limit_files("500000");
    let mut acknowledged = Vec::new();
    let error = loop {
        let name = acknowledged.len().to_string();
        match put(&store, &[&name], &noise(acknowledged.len() as u64)).await {
            Ok(revision) => acknowledged.push(revision),
            Err(error) => break error,
        }
        assert!(acknowledged.len() < 100, "the limit has no effect");
    };
    assert!(matches!(error, StoreError::Full(_)), "{error}");
    let refused = acknowledged.len().to_string();

    let last = *acknowledged.last().unwrap();
    assert_eq!(all(&store).await.len(), acknowledged.len());
    assert_eq!(store.revision().await.unwrap(), last);
    let mut watch = store.watch(KeyRange::everything(), last, false).await.unwrap();
    assert!(matches!(put(&store, &["small"], b"x").await, Err(StoreError::Full(_))));
    assert!(matches!(store.compact(last).await, Err(StoreError::Full(_))));
    assert_eq!(all(&store).await.len(), acknowledged.len());

    limit_files("unlimited");
    let mut poll = tokio::time::interval(std::time::Duration::from_millis(10));
    let recovered = loop {
        match put(&store, &["small"], b"x").await {
            Ok(revision) => break revision,
            Err(error) => assert!(matches!(error, StoreError::Full(_)), "{error}"),
        }
        poll.tick().await;
    };
    assert_eq!(recovered, last + 1);
    assert_eq!(store.get(&key(&refused)).await.unwrap(), None, "a refused commit appeared");
    let events = loop {
        if let WatchItem::Events(events) = watch.next().await.unwrap().unwrap() {
            break events;
        }
    };
    assert_eq!(events.iter().map(|event| event.revision).collect::<Vec<_>>(), [recovered]);
    let before = all(&store).await;
    drop((watch, store));
    assert_eq!(all(&Embedded::open(Path::new(&dir)).unwrap()).await, before);
    println!("\nrecovered");
}

#[test]
fn a_full_disk_refuses_writes_and_serves_reads_until_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let output = child("child_that_fills_the_disk", dir.path()).wait_with_output().unwrap();
    let output = String::from_utf8_lossy(&output.stdout);
    assert!(output.contains("\nrecovered\n"), "{output}");
}
