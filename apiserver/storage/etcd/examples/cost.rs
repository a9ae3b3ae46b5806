//! What the engine costs beside etcd: CPU of this process for each commit, revision, read and event.
//!
//! ```text
//! etcd & cargo run --release -p freehold-apiserver-storage-etcd --example cost -- http://127.0.0.1:2379
//! ```

use bytes::Bytes;
use freehold_apiserver_storage::{
    Change, Commit, Expect, Key, KeyRange, Range, Store, StoreError, WatchItem,
};
use freehold_apiserver_storage_etcd::{Etcd, EtcdOptions};
use futures_util::{StreamExt, stream};
use std::{sync::Arc, time::Instant};

/// How many of each.
const COUNT: u64 = 20_000;
/// How many at a time.
const AT_ONCE: usize = 64;
/// Planes that are deleted, and the keys of each.
const PLANES: (u64, u64) = (10_000, 10);
const VALUE: usize = 1024;

/// CPU time of this process so far, in microseconds, as the kernel counts it.
fn cpu() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let of_main: u64 = stat.split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0);
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let all: u64 = tasks
        .filter_map(|task| std::fs::read_to_string(task.path().join("schedstat")).ok())
        .filter_map(|text| text.split(' ').next()?.parse::<u64>().ok())
        .sum();
    all.max(of_main) / 1000
}

struct Measured {
    cpu: u64,
    begun: Instant,
}

impl Measured {
    fn begin() -> Self {
        Self { cpu: cpu(), begun: Instant::now() }
    }

    fn end(self, what: &str, count: u64) {
        let (cpu, took) = (cpu() - self.cpu, self.begun.elapsed().as_secs_f64());
        let (each, rate) = (cpu as f64 / count as f64, count as f64 / took);
        println!("{what:<40} {each:>8.1} us of CPU each {rate:>10.0} /s {took:>8.2} s");
    }
}

fn key(number: u64) -> Key {
    Key::system(&format!("cost/{number}"))
}

async fn each<F>(count: u64, at_once: usize, call: impl Fn(u64) -> F) -> Result<(), StoreError>
where
    F: Future<Output = Result<(), StoreError>>,
{
    let mut calls = stream::iter(0..count).map(call).buffer_unordered(at_once);
    while let Some(outcome) = calls.next().await {
        outcome?;
    }
    Ok(())
}

async fn put(store: &Etcd, key: Key, value: Bytes) -> Result<(), StoreError> {
    let expect = vec![Expect { key: key.clone(), modified: 0 }];
    store.commit(Commit { expect, changes: vec![Change::Put(key, value)] }).await.map(drop)
}

async fn events(store: Arc<Etcd>, count: u64, after: u64) -> Result<(), StoreError> {
    let mut watch = store.watch(KeyRange::system("cost"), after, true).await?;
    let mut seen = 0;
    while seen < count {
        match watch.next().await {
            Some(Ok(WatchItem::Events(events))) => seen += events.len() as u64,
            Some(Ok(WatchItem::Progress(_))) => {}
            Some(Err(error)) => return Err(error),
            None => break,
        }
    }
    Ok(())
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), StoreError> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:2379".into());
    let store = Etcd::connect(EtcdOptions::new([url])).await?;
    let value = Bytes::from(vec![b'x'; VALUE]);
    let before = store.revision().await?;

    let measured = Measured::begin();
    each(COUNT, AT_ONCE, |number| put(&store, key(number), value.clone())).await?;
    measured.end("commit of 1 KiB, many at once", COUNT);

    let measured = Measured::begin();
    events(store.clone(), COUNT, before).await?;
    measured.end("event, behind", COUNT);

    let measured = Measured::begin();
    each(COUNT, AT_ONCE, |_| async { store.revision().await.map(drop) }).await?;
    measured.end("revision, many at once", COUNT);

    let measured = Measured::begin();
    each(COUNT / 10, 1, |_| async { store.revision().await.map(drop) }).await?;
    measured.end("revision, one after the other", COUNT / 10);

    let measured = Measured::begin();
    each(COUNT, AT_ONCE, |number| {
        let (store, key) = (store.clone(), key(number));
        async move { store.get(&key).await.map(drop) }
    })
    .await?;
    measured.end("read of one key, many at once", COUNT);

    planes(&store, &value).await
}

/// Fills planes, and deletes them a range each.
async fn planes(store: &Arc<Etcd>, value: &Bytes) -> Result<(), StoreError> {
    let range = |plane: u64| KeyRange::system(&format!("cost-planes/{plane}"));
    let measured = Measured::begin();
    each(PLANES.0, AT_ONCE, |plane| {
        let put = |nth: u64| Change::Put(Key::system(&format!("cost-planes/{plane}/{nth}")), value.clone());
        let changes = (0..PLANES.1).map(put).collect();
        async { store.commit(Commit { expect: vec![], changes }).await.map(drop) }
    })
    .await?;
    measured.end("commit of ten keys", PLANES.0);
    let measured = Measured::begin();
    each(PLANES.0, AT_ONCE, |plane| async move {
        let changes = vec![Change::DeleteRange(range(plane))];
        store.commit(Commit { expect: vec![], changes }).await.map(drop)
    })
    .await?;
    measured.end("deletion of a range of ten keys", PLANES.0);
    let left = store.range(Range::all(KeyRange::system("cost-planes"))).await?.items.len();
    println!("left: {left}");
    Ok(())
}
