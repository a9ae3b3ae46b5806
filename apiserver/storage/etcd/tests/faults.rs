//! Members are killed, held still, cut off and compacted while writers write; a checker proves from what all of them noted
//! that nothing was lost, happened twice, or was seen out of order.
//!
//! `FREEHOLD_FAULT_ROUNDS` makes it longer, `FREEHOLD_FAULT_SEED` another one.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use freehold_apiserver_storage::{
    Change, Commit, Committed, Expect, Key, KeyRange, Range, RangeResult, Revision, Store, StoreError,
    WatchItem, WatchStream,
};
use freehold_apiserver_storage_etcd::{Etcd, EtcdOptions};
use freehold_tests_harness::history::{History, Outcome, Read, Seen, Write};
use freehold_tests_harness::{Cluster, Network, Random};
use futures_util::StreamExt;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

const WRITERS: u64 = 4;
const KEYS: u64 = 6;
const PREFIX: &str = "faults/";
/// Writes that are acknowledged between one fault and the next.
const WRITES: u64 = 150;
/// Revisions that stay readable when history is compacted under load.
const KEPT: u64 = 50;
/// Nothing takes so long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |text| text.parse().unwrap())
}

/// What all tasks of a run share.
struct Run {
    urls: Vec<String>,
    over: AtomicBool,
    acknowledged: AtomicU64,
    /// What the slowest watcher has seen: history before it may be forgotten.
    seen: Vec<AtomicU64>,
}

impl Run {
    /// A client of its own, as each server has one.
    async fn store(&self) -> Arc<Etcd> {
        let options = EtcdOptions { timeout: Duration::from_secs(2), ..EtcdOptions::new(self.urls.clone()) };
        let begun = Instant::now();
        loop {
            match Etcd::connect(options.clone()).await {
                Ok(store) => return store,
                Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
            }
        }
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn writes(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }
}

fn name(key: &Key) -> String {
    String::from_utf8(key.as_bytes().to_vec()).unwrap()
}

fn key(number: u64) -> Key {
    Key::system(&format!("{PREFIX}{number}"))
}

fn range() -> KeyRange {
    KeyRange::system(PREFIX.trim_end_matches('/'))
}

fn text(value: &[u8]) -> String {
    String::from_utf8(value.to_vec()).unwrap()
}

/// Sends a commit and notes what it wrote and how it ended.
async fn commit(store: &Etcd, run: &Run, commit: Commit, history: &mut History) {
    let written: Vec<(String, String)> = commit
        .changes
        .iter()
        .filter_map(|change| match change {
            Change::Put(key, value) => Some((name(key), text(value))),
            Change::Delete(_) | Change::DeleteRange(_) => None,
        })
        .collect();
    let begun = Instant::now();
    let outcome = match store.commit(commit).await {
        Ok(Committed::Done(revision)) => Outcome::Acknowledged(revision),
        Ok(Committed::Refused(_)) => Outcome::Refused,
        Err(StoreError::Unavailable(_)) => Outcome::Unknown,
        Err(error) => panic!("{error}"),
    };
    if matches!(outcome, Outcome::Acknowledged(_)) {
        run.acknowledged.fetch_add(1, Ordering::Relaxed);
    }
    let ended = Instant::now();
    history.writes.extend(written.into_iter().map(|(key, value)| Write {
        key,
        value,
        begun,
        ended,
        outcome,
    }));
}

/// Writes until the run is over: on one key or two, with or without having read it.
async fn write(run: Arc<Run>, writer: u64, seed: u64) -> History {
    let (store, mut random, mut history) =
        (run.store().await, Random::new(seed + writer), History::default());
    let mut number = 0;
    while !run.is_over() {
        number += 1;
        let (first, second) = (random.below(KEYS), random.below(KEYS));
        let mut commit_this = Commit::default();
        if random.below(2) == 0 {
            let begun = Instant::now();
            let Ok(found) = store.get(&key(first)).await else { continue };
            let found = found.map(|kv| (text(&kv.value), kv.modified));
            let modified = found.as_ref().map_or(0, |(_, modified)| *modified);
            history.reads.push(Read { key: name(&key(first)), begun, found });
            commit_this.expect.push(Expect { key: key(first), modified });
        }
        for key_number in [first, second].iter().take(if first == second { 1 } else { 2 }) {
            let value = format!("{writer}-{number}-{key_number}");
            commit_this.changes.push(Change::Put(key(*key_number), value.into()));
        }
        commit(&store, &run, commit_this, &mut history).await;
    }
    history
}

/// Watches from now on until the revision that ends the run; `nth` is its place in [`Run::seen`].
async fn watch(run: Arc<Run>, nth: usize, end: tokio::sync::watch::Receiver<Option<Revision>>) -> History {
    let store = run.store().await;
    let (after, mut stream) = begin(&store).await;
    run.seen[nth].store(after, Ordering::Relaxed);
    let mut seen: Vec<Seen> = Vec::new();
    let mut end = end;
    loop {
        tokio::select! {
            item = stream.next() => match item.unwrap().unwrap() {
                WatchItem::Events(events) => {
                    run.seen[nth].store(events.last().unwrap().revision, Ordering::Relaxed);
                    seen.extend(events.into_iter().map(|event| Seen {
                        revision: event.revision,
                        key: name(&event.key),
                        value: event.value.as_deref().map(text),
                    }));
                }
                WatchItem::Progress(revision) => drop(run.seen[nth].fetch_max(revision, Ordering::Relaxed)),
            },
            _ = end.changed() => {}
        }
        let end = *end.borrow();
        if let Some(last) = end.filter(|last| run.seen[nth].load(Ordering::Relaxed) >= *last) {
            // A write of which nobody knows whether it happened may happen after the end.
            seen.retain(|seen| seen.revision <= last);
            return History { watchers: vec![(after, seen)], ..History::default() };
        }
    }
}

async fn begin(store: &Etcd) -> (Revision, WatchStream) {
    let begun = Instant::now();
    loop {
        let outcome = async {
            let revision = store.revision().await?;
            Ok::<_, StoreError>((revision, store.watch(range(), revision, false).await?))
        };
        match outcome.await {
            Ok(found) => return found,
            Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
        }
    }
}

/// Forgets what all watchers have seen, again and again.
async fn compact(run: Arc<Run>) -> History {
    let store = run.store().await;
    let mut done = 0;
    while !run.is_over() {
        let slowest = run.seen.iter().map(|seen| seen.load(Ordering::Relaxed)).min().unwrap();
        let up_to = slowest.saturating_sub(KEPT);
        if up_to > done {
            match store.compact(up_to).await {
                Ok(()) | Err(StoreError::Compacted { .. }) => done = up_to,
                Err(StoreError::Unavailable(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    History::default()
}

/// One fault, and its end.
fn inject(cluster: &mut Cluster, random: &mut Random, progress: &dyn Fn(u64)) {
    let member = cluster.leader().filter(|_| random.below(2) == 0).unwrap_or_else(|| random.index(3));
    let host = |member: usize| u8::try_from(member).unwrap();
    let kinds = if cluster.network().is_some() { 5 } else { 3 };
    match random.below(kinds) {
        0 => {
            cluster.kill(member);
            progress(WRITES);
            cluster.restart(member);
        }
        1 => {
            cluster.pause(member);
            progress(WRITES);
            cluster.resume(member);
        }
        2 => {
            // No quorum: nothing is acknowledged, and nothing hangs.
            let other = (member + 1) % 3;
            cluster.kill(member);
            cluster.kill(other);
            wait(|| cluster.leader().is_none(), "the last member gives up its lead");
            cluster.restart(other);
            cluster.restart(member);
        }
        3 => {
            // Clients reach it, its peers do not.
            let network = cluster.network().unwrap();
            (1..3).for_each(|step| network.cut_between(host(member), host((member + step) % 3)));
            progress(WRITES);
            network.heal();
        }
        _ => {
            cluster.network().unwrap().cut(host(member));
            progress(WRITES);
            cluster.network().unwrap().heal();
        }
    }
    cluster.wait_until_healthy();
}

/// Writes once more, until that is acknowledged; gives its revision.
async fn mark_end(store: &Etcd, run: &Run, history: &mut History) -> Revision {
    for nth in 0..100 {
        let change = Change::Put(key(KEYS), format!("end-{nth}").into());
        commit(store, run, Commit { expect: vec![], changes: vec![change] }, history).await;
        if let Some(Outcome::Acknowledged(last)) = history.writes.last().map(|write| write.outcome) {
            return last;
        }
    }
    panic!("{:?}", history.writes.last());
}

/// All that there is at a revision, as soon as somebody answers: members may still agree on who leads.
async fn all_at(store: &Etcd, at: Revision) -> RangeResult {
    let begun = Instant::now();
    loop {
        match store.range(Range { at: Some(at), ..Range::all(range()) }).await {
            Ok(there) => return there,
            Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
        }
    }
}

/// Lets everything run at once and checks what came of it.
fn run_faults(mut cluster: Cluster, seed: u64, rounds: u64) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let watchers = usize::try_from(rounds).unwrap() + 1;
    let run = Arc::new(Run {
        urls: cluster.urls(),
        over: AtomicBool::new(false),
        acknowledged: AtomicU64::new(0),
        seen: (0..watchers).map(|_| AtomicU64::new(0)).collect(),
    });
    let (end, ended) = tokio::sync::watch::channel(None);
    let (mut tasks, mut writers) = (JoinSet::new(), JoinSet::new());
    let mut random = Random::new(seed);
    tasks.spawn_on(watch(run.clone(), 0, ended.clone()), runtime.handle());
    // It begins before the first write.
    wait(|| run.seen[0].load(Ordering::Relaxed) > 0, "a watch begins");
    for writer in 0..WRITERS {
        writers.spawn_on(write(run.clone(), writer, seed), runtime.handle());
    }
    let progress = |more: u64| {
        let wanted = run.writes() + more;
        wait(|| run.writes() >= wanted, "writes are acknowledged while a member is away");
    };
    // What has not begun has seen nothing; compaction waits for it.
    for round in 1..watchers {
        progress(WRITES);
        run.seen[round].store(0, Ordering::Relaxed);
        tasks.spawn_on(watch(run.clone(), round, ended.clone()), runtime.handle());
        if round == 1 {
            (round + 1..watchers).for_each(|later| run.seen[later].store(u64::MAX, Ordering::Relaxed));
            tasks.spawn_on(compact(run.clone()), runtime.handle());
        }
        inject(&mut cluster, &mut random, &progress);
    }
    progress(WRITES);
    run.over.store(true, Ordering::Relaxed);
    let mut history = runtime.block_on(async {
        let mut history = History::default();
        let written = tokio::time::timeout(PATIENCE, writers.join_all()).await.expect("writers end");
        written.into_iter().for_each(|part| history.merge(part));
        let store = run.store().await;
        let last = mark_end(&store, &run, &mut history).await;
        let there = all_at(&store, last).await;
        history.last = there.items.iter().map(|kv| (name(&kv.key), (text(&kv.value), kv.modified))).collect();
        end.send_replace(Some(last));
        history
    });
    let rest = async { tokio::time::timeout(PATIENCE, tasks.join_all()).await };
    let parts = runtime.block_on(rest).expect("all watchers see the end");
    parts.into_iter().for_each(|part| history.merge(part));
    let (acknowledged, refused, unknown) = history.outcomes();
    eprintln!("seed {seed}: {acknowledged} acknowledged, {refused} refused, {unknown} unknown");
    history.check().unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
}

fn wait(condition: impl Fn() -> bool, what: &str) {
    freehold_tests_harness::until(what, PATIENCE, || condition().then_some(()));
}

#[test]
fn nothing_is_lost_repeated_or_reordered_while_members_die() {
    let seed = setting("FREEHOLD_FAULT_SEED", 11);
    run_faults(Cluster::start(3, &[]), seed, setting("FREEHOLD_FAULT_ROUNDS", 4));
}

#[test]
fn nothing_is_lost_repeated_or_reordered_while_members_are_cut_off() {
    let network = match Network::new(3) {
        Ok(network) => network,
        Err(reason) => return eprintln!("skipped, this machine has no network namespaces: {reason}"),
    };
    let seed = setting("FREEHOLD_FAULT_SEED", 23);
    let network = Arc::new(network);
    let cluster = Cluster::on(network.clone(), 3, &[]);
    network.observe(move || {
        cluster.wait_until_healthy();
        run_faults(cluster, seed, setting("FREEHOLD_FAULT_ROUNDS", 5));
    });
}
