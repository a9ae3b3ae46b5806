//! The process that is killed: writes, watches, and tells each thing before and after it did it.

use bytes::Bytes;
use freehold_apiserver_storage::{
    Change, Commit, Committed, Expect, Key, KeyRange, Revision, Store, WatchItem,
};
use freehold_apiserver_storage_embedded::{Embedded, Options};
use futures_util::StreamExt;
use std::{path::Path, sync::Arc, time::SystemTime};

/// Names the data directory to the process.
pub(crate) const DIR: &str = "FREEHOLD_FAULTS_DIR";
/// The revision after which it watches.
pub(crate) const AFTER: &str = "FREEHOLD_FAULTS_AFTER";
/// What its values begin with.
pub(crate) const LIFE: &str = "FREEHOLD_FAULTS_LIFE";
/// Commits of one writer in a life that nobody ends.
const COMMITS: u64 = 150;
const WRITERS: u64 = 4;

pub(crate) fn key(name: &str) -> Key {
    Key::system(&format!("test/{name}"))
}

/// Small buffers, so that sorted files are written all the time.
pub(crate) fn options() -> Options {
    Options { write_buffer: 64 << 10, ..Options::default() }
}

fn now() -> u128 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos()
}

/// Not a test of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_life() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let (after, life) = (std::env::var(AFTER).unwrap().parse().unwrap(), std::env::var(LIFE).unwrap());
    let store = match Embedded::open_with(Path::new(&dir), options()) {
        Ok(store) => store,
        Err(error) => return println!("\nnever open: {error}"),
    };
    let watcher = tokio::spawn(watch(store.clone(), after));
    let writers = (0..WRITERS).map(|writer| tokio::spawn(write(store.clone(), life.clone(), writer)));
    futures_util::future::join_all(writers).await;
    println!("\nthe end");
    watcher.abort();
}

async fn watch(store: Arc<Embedded>, after: Revision) {
    let mut watch = store.watch(KeyRange::system("test"), after, false).await.unwrap();
    while let Some(Ok(item)) = watch.next().await {
        let WatchItem::Events(events) = item else { continue };
        for revision in events.chunk_by(|a, b| a.revision == b.revision) {
            let mut line = format!("\nseen {}", revision[0].revision);
            for event in revision {
                let value =
                    event.value.as_deref().map_or("-", |value| std::str::from_utf8(value).unwrap().trim());
                let key = std::str::from_utf8(event.key.as_bytes()).unwrap();
                line += &format!(" {key} {value}");
            }
            println!("{line} .");
        }
    }
}

/// Two keys at once, of which one is others' too; sometimes expecting what may not be so, sometimes deleting a third.
async fn write(store: Arc<Embedded>, life: String, writer: u64) {
    let filler = " ".repeat(500);
    let mut last = 0;
    for nth in 0..COMMITS {
        let value = format!("{life}/{writer}/{nth}");
        let (own, common) = (format!("own-{writer}"), format!("common-{}", (nth * 7 + writer) % 5));
        let put =
            |name: &str, half: &str| Change::Put(key(name), Bytes::from(format!("{value}/{half}{filler}")));
        let mut changes = vec![put(&own, "a"), put(&common, "b")];
        if nth % 9 == 4 {
            changes.push(Change::Delete(key(&format!("common-{}", (nth * 7 + writer + 1) % 5))));
        }
        let expect = match nth % 4 {
            1 => vec![Expect { key: key(&own), modified: last }],
            2 => vec![Expect { key: key(&common), modified: last }],
            _ => Vec::new(),
        };
        println!("\nbegin {value} {own} {common} {} .", now());
        match store.commit(Commit { expect, changes }).await {
            Ok(Committed::Done(revision)) => {
                last = revision;
                println!("\nack {value} {revision} {} .", now());
            }
            Ok(Committed::Refused(_)) => println!("\nrefused {value} 0 {} .", now()),
            // It may have happened. The disk gets a moment.
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(5)).await,
        }
    }
}
