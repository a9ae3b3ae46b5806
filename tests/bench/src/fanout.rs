//! Many watchers of one namespace: what an event costs for each of them, and when the last one has it.

use crate::goals::{self, size};
use crate::objects::{self, CONFIG_MAPS};
use crate::options::Options;
use crate::report::{Report, Value};
use crate::stats::Samples;
use crate::subject::{Kind, Subject};
use anyhow::{Context, Result, ensure};
use freehold_client::{Client, WatchOptions, WatchStream};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// How many watches are opened at once.
const OPENING: usize = 16;
/// How long all watchers may take to have an event.
const PATIENCE: Duration = Duration::from_secs(30);
/// How an event of interest begins, as every server writes it.
const MODIFIED: &[u8] = b"{\"type\":\"MODIFIED\"";

/// When the watchers saw the event of a round.
#[derive(Default)]
struct Arrivals {
    times: Mutex<Vec<Instant>>,
    wanted: AtomicUsize,
    all: Notify,
}

/// Measures one server: one watcher, then many.
pub(crate) async fn measure(kind: Kind, options: &Options, report: &mut Report) -> Result<()> {
    let subject = Subject::start(kind, options)?;
    let client = subject.plane().await?;
    for watchers in [1, options.watchers] {
        let namespace = options.namespace(&format!("watch-{watchers}"));
        client.request(&objects::namespace(&namespace)).await?;
        let seen = watched(&subject, &client, &namespace, watchers, options, report).await;
        subject.explain(seen)?;
        client.request(&objects::delete_namespace(&namespace)).await?;
    }
    Ok(())
}

async fn watched(
    subject: &Subject,
    client: &Client,
    namespace: &str,
    watchers: usize,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    client.request(&CONFIG_MAPS.create(namespace, "watched")).await?;
    let arrivals = Arc::new(Arrivals::default());
    arrivals.wanted.store(watchers, Ordering::Relaxed);
    // Aborted when dropped.
    let _watchers = open(client, namespace, watchers, &arrivals).await?;
    let memory = subject.memory(options).await?;
    let (mut each, mut last) = (Vec::new(), Vec::new());
    let cpu = subject.cpu()?;
    for round in 0..options.events {
        let begun = Instant::now();
        client.request(&CONFIG_MAPS.update(namespace, "watched", round)).await?;
        let waited = tokio::time::timeout(PATIENCE, arrivals.all.notified()).await;
        waited.with_context(|| {
            format!("not all of {watchers} watchers had event {round} within {PATIENCE:?}")
        })?;
        let times = std::mem::take(&mut *arrivals.times.lock().unwrap_or_else(PoisonError::into_inner));
        ensure!(times.len() == watchers, "{} events came to {watchers} watchers", times.len());
        each.extend(times.iter().map(|at| at.duration_since(begun)));
        last.extend(times.iter().max().map(|at| at.duration_since(begun)));
    }
    let (kind, title) = (subject.kind, format!("Updates of a ConfigMap of 1 KiB with {watchers} watchers"));
    let cpu = subject.cpu_each(cpu, options.events * watchers)?;
    let (each, last): (Samples, Samples) = (each.into_iter().collect(), last.into_iter().collect());
    report.add(&title, "update to event, each watcher, median / p99", kind, Value::spread(&each));
    report.add(&title, "update to event, the last watcher, median / p99", kind, Value::spread(&last));
    report.add(&title, "server CPU for each event and watcher, the update included", kind, cpu);
    report.add(&title, "resident memory of the server", kind, memory.map(|m| Value::Bytes(m.resident)));
    if watchers >= size::WATCHERS {
        report.reach(&goals::EVENT, kind, cpu);
        report.reach(&goals::FAN_OUT, kind, Value::Time(last.p99()));
    }
    Ok(())
}

/// Opens the watches; they tell of what comes after.
async fn open(
    client: &Client,
    namespace: &str,
    watchers: usize,
    arrivals: &Arc<Arrivals>,
) -> Result<JoinSet<()>> {
    let options = WatchOptions {
        resource_version: client.get(&CONFIG_MAPS.resource, Some(namespace), "watched").await?["metadata"]
            ["resourceVersion"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        timeout_seconds: 3600,
        ..WatchOptions::default()
    };
    let opened =
        stream::iter(0..watchers).map(|_| client.watch(&CONFIG_MAPS.resource, Some(namespace), &options));
    let opened: Vec<WatchStream> = opened.buffer_unordered(OPENING).try_collect().await?;
    Ok(opened.into_iter().map(|watch| follow(watch, arrivals.clone())).collect())
}

/// Notes each event of a watch without reading what is in it: the watchers must not be what is slow.
async fn follow(mut watch: WatchStream, arrivals: Arc<Arrivals>) {
    while let Some(Ok(line)) = watch.next_line().await {
        if !line.starts_with(MODIFIED) {
            continue;
        }
        let mut times = arrivals.times.lock().unwrap_or_else(PoisonError::into_inner);
        times.push(Instant::now());
        if times.len() == arrivals.wanted.load(Ordering::Relaxed) {
            arrivals.all.notify_one();
        }
    }
}
