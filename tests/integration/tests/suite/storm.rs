//! Writers and watchers as real clients, who note all that they are told while faults are injected around them.

use crate::{PATIENCE, text};
use freehold_client::{Client, Config, Error, List, ListOptions, Patch, PatchOptions, Resource};
use freehold_client::{WatchEvent, WatchOptions};
use freehold_tests_integration::history::{History, Outcome, Read, Seen, Write};
use freehold_tests_integration::until;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

const WRITERS: u64 = 4;
const KEYS: u64 = 5;
pub(crate) const NAMESPACE: &str = "default";
pub(crate) const MAPS: Resource = Resource::namespaced("", "v1", "configmaps");
/// Before a request that failed is made again.
const PAUSE: Duration = Duration::from_millis(5);

pub(crate) fn client(config: &Config) -> Client {
    Client::new(config).expect("a configuration that can be used")
}

pub(crate) fn version(object: &Value) -> u64 {
    text(object, "/metadata/resourceVersion").parse().expect("a resource version is a number")
}

pub(crate) fn map(name: &str, value: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": NAMESPACE}, "data": {"v": value}})
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads start")
}

/// A number that the environment sets.
pub(crate) fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |text| text.parse().expect("a number"))
}

/// A run under faults.
pub(crate) struct Storm {
    run: Arc<Run>,
    runtime: Runtime,
    tasks: JoinSet<History>,
}

impl Storm {
    /// Begins to write and to watch.
    pub(crate) fn start(config: Config) -> Self {
        let run = Arc::new(Run { config, over: AtomicBool::new(false), acknowledged: AtomicU64::new(0) });
        let mut storm = Self { run, runtime: runtime(), tasks: JoinSet::new() };
        (0..2).for_each(|_| storm.watch());
        for writer in 0..WRITERS {
            storm.tasks.spawn_on(write(storm.run.clone(), writer), storm.runtime.handle());
        }
        storm
    }

    /// Begins another watch, from now on.
    pub(crate) fn watch(&mut self) {
        let list = self.runtime.block_on(self.run.list());
        let after = list.resource_version.parse().expect("a number");
        self.tasks.spawn_on(watch(self.run.clone(), after), self.runtime.handle());
    }

    /// Waits until so many more writes were acknowledged.
    pub(crate) fn progress(&self, writes: u64) {
        let wanted = self.run.acknowledged.load(Ordering::Relaxed) + writes;
        let done = || (self.run.acknowledged.load(Ordering::Relaxed) >= wanted).then_some(());
        until("writes are acknowledged", PATIENCE, done);
    }

    /// Ends it, and checks what came of it.
    pub(crate) fn check(self, of: &str) {
        self.progress(1);
        self.run.over.store(true, Ordering::Relaxed);
        let history = self.runtime.block_on(finish(&self.run, self.tasks));
        let (acknowledged, refused, unknown) = history.outcomes();
        eprintln!("{of}: {acknowledged} acknowledged, {refused} refused, {unknown} unknown");
        assert!(acknowledged > 0 && unknown < acknowledged);
        history.check().unwrap_or_else(|wrong| panic!("{of}: {wrong}"));
        assert_eq!(history.last.keys().filter(|name| name.starts_with("key-")).count() as u64, KEYS);
        assert!(history.last.contains_key("end"));
    }
}

/// What the tasks of the run under faults share.
struct Run {
    config: Config,
    over: AtomicBool,
    acknowledged: AtomicU64,
}

impl Run {
    /// A connection of its own for each request, so that each goes to another server.
    fn client(&self) -> Client {
        client(&self.config)
    }

    /// What there is, as soon as somebody answers: a server that has just started may not have reached the store yet.
    async fn list(&self) -> List {
        let begun = Instant::now();
        loop {
            match self.client().list(&MAPS, Some(NAMESPACE), &ListOptions::default()).await {
                Ok(list) => return list,
                Err(error) => assert!(error.is_transient() && begun.elapsed() < PATIENCE, "{error}"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// How a write ended, as its answer says.
fn outcome(answer: &Result<Value, Error>) -> Outcome {
    match answer {
        Ok(object) => Outcome::Acknowledged(version(object)),
        Err(error) if matches!(error.code(), 404 | 409 | 429) => Outcome::Refused,
        Err(error) if error.is_transient() => Outcome::Unknown,
        Err(error) => panic!("{error}"),
    }
}

/// Writes until the run is over: with what it read as a precondition, or as a patch without one.
async fn write(run: Arc<Run>, writer: u64) -> History {
    let mut history = History::default();
    let mut number = 0;
    while !run.is_over() {
        number += 1;
        let (name, value) = (format!("key-{}", (number * 7 + writer) % KEYS), format!("{writer}-{number}"));
        let begun = Instant::now();
        let Ok(found) = run.client().get_opt(&MAPS, Some(NAMESPACE), &name).await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let read = found.as_ref().map(|map| (text(map, "/data/v").to_owned(), version(map)));
        history.reads.push(Read { key: name.clone(), begun, found: read });
        let begun = Instant::now();
        let (client, wanted) = (run.client(), map(&name, &value));
        let answer = match found {
            None => client.create(&MAPS, &wanted).await,
            Some(_) if number % 2 == 0 => {
                let patch = Patch::Merge(json!({"data": {"v": value}}));
                client.patch(&MAPS, Some(NAMESPACE), &name, &patch, &PatchOptions::default()).await
            }
            Some(mut map) => {
                map["data"]["v"] = value.as_str().into();
                client.update(&MAPS, &map).await
            }
        };
        let outcome = outcome(&answer);
        if matches!(outcome, Outcome::Acknowledged(_)) {
            run.acknowledged.fetch_add(1, Ordering::Relaxed);
        }
        history.writes.push(Write { key: name, value, begun, ended: Instant::now(), outcome });
    }
    history
}

/// Watches through the balancer, goes on elsewhere when a watch breaks, and ends with the object that is called `end`.
async fn watch(run: Arc<Run>, after: u64) -> History {
    let mut seen = Vec::new();
    let mut at = after;
    loop {
        let options = WatchOptions { resource_version: at.to_string(), ..WatchOptions::default() };
        let mut watch = match run.client().watch(&MAPS, Some(NAMESPACE), &options).await {
            Ok(watch) => watch,
            Err(error) if error.is_transient() => {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        while let Some(Ok(event)) = watch.next().await {
            let object = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => object,
                WatchEvent::Bookmark { resource_version, .. } => {
                    at = resource_version.parse().expect("a number");
                    continue;
                }
                // A server that stops says so in its watches.
                WatchEvent::Error(status) if status.code >= 500 => break,
                other => panic!("{other:?}"),
            };
            at = version(&object);
            let (key, value) =
                (text(&object, "/metadata/name").to_owned(), text(&object, "/data/v").to_owned());
            let ends = key == "end";
            seen.push(Seen { revision: at, key, value: Some(value) });
            if ends {
                return History { watchers: vec![(after, seen)], ..History::default() };
            }
        }
    }
}

/// Ends the run: writers stop, then an object that watchers wait for is made.
async fn finish(run: &Run, mut tasks: JoinSet<History>) -> History {
    let mut history = History::default();
    for _ in 0..WRITERS {
        // Writers are the ones that end by themselves.
        let ended = tokio::time::timeout(PATIENCE, tasks.join_next()).await.expect("writers end");
        history.merge(ended.expect("there are writers").expect("no writer fails"));
    }
    // One of which nobody knows whether it happened is made again, with a value of its own.
    for number in 0.. {
        let (key, value, begun) = ("end".to_owned(), format!("end-{number}"), Instant::now());
        let outcome = outcome(&run.client().create(&MAPS, &map(&key, &value)).await);
        history.writes.push(Write { key, value, begun, ended: Instant::now(), outcome });
        if outcome != Outcome::Unknown {
            break;
        }
    }
    let rest = tokio::time::timeout(PATIENCE, tasks.join_all()).await.expect("watchers see the end");
    rest.into_iter().for_each(|part| history.merge(part));
    let list = run.list().await;
    let of_test = |item: &&Value| !text(item, "/data/v").is_empty();
    history.last = list
        .items
        .iter()
        .filter(of_test)
        .map(|item| {
            (text(item, "/metadata/name").to_owned(), (text(item, "/data/v").to_owned(), version(item)))
        })
        .collect();
    history
}
