//! The suite on a cluster of three members of which one is always down, each in turn; and what a cluster does besides.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{events_until, put};
use freehold_apiserver_storage::{KeyRange, Store, StoreError};
use freehold_apiserver_storage_etcd::{Etcd, EtcdOptions};
use freehold_tests_harness::Cluster;
use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    time::{Duration, Instant},
};
use tokio::sync::MutexGuard;

/// Nothing takes so long, on a machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(60);
/// After so many facts another member is down.
const FACTS_EACH: usize = 6;
const MEMBERS: usize = 3;

/// A cluster that the facts share, one after the other: compaction is the whole cluster's.
struct Shared {
    cluster: Mutex<Cluster>,
    urls: Vec<String>,
}

static SHARED: Mutex<Weak<Shared>> = Mutex::new(Weak::new());
/// Held by the fact that has its turn; counts them.
static TURN: tokio::sync::Mutex<usize> = tokio::sync::Mutex::const_new(0);

fn shared() -> Arc<Shared> {
    let mut current = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(shared) = current.upgrade() {
        return shared;
    }
    let cluster = Cluster::start(3, &[]);
    let shared = Arc::new(Shared { urls: cluster.urls(), cluster: Mutex::new(cluster) });
    *current = Arc::downgrade(&shared);
    shared
}

impl Shared {
    /// Lets the next member be down.
    fn rotate(&self, nth: usize) {
        let mut cluster = self.cluster.lock().unwrap_or_else(PoisonError::into_inner);
        let down = nth / FACTS_EACH % MEMBERS;
        if nth.is_multiple_of(FACTS_EACH) {
            cluster.restart((down + MEMBERS - 1) % MEMBERS);
            cluster.wait_until_healthy();
            cluster.kill(down);
        }
    }
}

async fn engine() -> (Arc<Etcd>, (MutexGuard<'static, usize>, Arc<Shared>)) {
    let shared = shared();
    let mut turn = TURN.lock().await;
    let prefix = format!("/fact-{turn}/");
    let options = EtcdOptions { prefix, timeout: PATIENCE, ..EtcdOptions::new(shared.urls.clone()) };
    // Connected while the member that goes down now was there.
    let store = Etcd::connect(options).await.unwrap();
    shared.rotate(*turn);
    *turn += 1;
    store.revision().await.unwrap();
    (store, (turn, shared))
}

freehold_apiserver_storage::conformance!(engine);

/// What a call has, a third of it at each member: enough for members that are there to agree on who leads on a busy machine.
const CALL: Duration = Duration::from_secs(12);

fn options(cluster: &Cluster) -> EtcdOptions {
    EtcdOptions { timeout: CALL, ..EtcdOptions::new(cluster.urls()) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_quorum_is_told_in_time_and_nothing_is_missed_when_it_is_back() {
    let mut cluster = Cluster::start(3, &[]);
    let store = Etcd::connect(options(&cluster)).await.unwrap();
    let first = put(&store, "a", "1").await.unwrap();
    let mut watch = store.watch(KeyRange::everything(), first - 1, false).await.unwrap();
    cluster.kill(0);
    cluster.kill(1);
    let begun = Instant::now();
    let (read, written) = tokio::join!(store.revision(), put(&store, "a", "2"));
    assert!(matches!(read, Err(StoreError::Unavailable(_))), "{read:?}");
    assert!(matches!(written, Err(StoreError::Unavailable(_))), "{written:?}");
    // Each has its time; the rest is this machine's.
    assert!(begun.elapsed() < CALL + PATIENCE, "it took {:?}", begun.elapsed());
    cluster.restart(0);
    cluster.wait_until_healthy();
    let last = loop {
        match put(&store, "a", "3").await {
            Ok(revision) => break revision,
            Err(StoreError::Unavailable(_)) => {}
            Err(error) => panic!("{error}"),
        }
    };
    let values: Vec<_> = events_until(&mut watch, last).await.into_iter().map(|event| event.value).collect();
    assert_eq!(values.first().unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(values.last().unwrap().as_deref(), Some(&b"3"[..]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_says_nothing_is_passed_over() {
    let cluster = Cluster::start(3, &[]);
    let store = Etcd::connect(options(&cluster)).await.unwrap();
    let first = put(&store, "a", "1").await.unwrap();
    // The first endpoint is the one in use.
    cluster.pause(0);
    assert!(store.revision().await.unwrap() >= first);
    let mut watch = store.watch(KeyRange::everything(), first, false).await.unwrap();
    let last = loop {
        if let Ok(revision) = put(&store, "a", "2").await {
            break revision;
        }
    };
    assert_eq!(events_until(&mut watch, last).await.last().unwrap().revision, last);
    cluster.resume(0);
}
