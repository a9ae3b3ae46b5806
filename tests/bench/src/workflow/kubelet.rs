//! A kubelet that runs nothing: it says of each Pod that it has ended well, as soon as it sees it.

use super::place::{NAMESPACE, PODS, Place};
use anyhow::{Result, ensure};
use freehold_client::{Client, ListOptions, Patch, PatchOptions, WatchEvent, WatchOptions};
use serde_json::json;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// Pods that are ended at once.
const CONCURRENCY: usize = 64;
/// How long Pods are waited for.
const PATIENCE: Duration = Duration::from_secs(600);

/// What it has seen.
#[derive(Default)]
struct Seen {
    created: usize,
    ended: usize,
    /// When the last Pod of each run ended.
    last: HashMap<String, Instant>,
    /// From the end of a Pod to the creation of its run's next one.
    gaps: Vec<Duration>,
}

/// The kubelet, until it is dropped.
pub(super) struct Kubelet {
    seen: Arc<Mutex<Seen>>,
    working: JoinHandle<()>,
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.working.abort();
    }
}

impl Kubelet {
    /// Watches the Pods of a place, and ends them if it is to.
    pub(super) fn start(place: &Place, ends: bool) -> Result<Self> {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let working = tokio::spawn(work(place.client.clone(), seen.clone(), ends));
        Ok(Self { seen, working })
    }

    /// How many Pods it ended.
    pub(super) fn ended(&self) -> usize {
        lock(&self.seen).ended
    }

    /// The times from the end of a Pod to the creation of the next one of its run.
    pub(super) fn gaps(&self) -> Vec<Duration> {
        lock(&self.seen).gaps.clone()
    }

    /// Waits until it has seen so many Pods.
    pub(super) async fn created(&self, count: usize) -> Result<()> {
        let began = Instant::now();
        while lock(&self.seen).created < count {
            ensure!(
                began.elapsed() < PATIENCE,
                "{} of {count} Pods after {PATIENCE:?}",
                lock(&self.seen).created
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }
}

fn lock(seen: &Mutex<Seen>) -> std::sync::MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn work(client: Client, seen: Arc<Mutex<Seen>>, ends: bool) {
    let permits = Arc::new(Semaphore::new(CONCURRENCY));
    loop {
        // What a watch missed while it was broken off, the list has.
        let Ok(listed) = client.list_all(&PODS, Some(NAMESPACE), &ListOptions::default()).await else {
            continue;
        };
        for pod in &listed.items {
            take(&client, &seen, &permits, pod, ends).await;
        }
        let options =
            WatchOptions { resource_version: listed.resource_version.clone(), ..WatchOptions::default() };
        let Ok(watch) = client.watch(&PODS, Some(NAMESPACE), &options).await else { continue };
        let mut watch = std::pin::pin!(watch);
        while let Some(Ok(event)) = watch.next().await {
            if let WatchEvent::Added(pod) = event {
                take(&client, &seen, &permits, &pod, ends).await;
            }
        }
    }
}

/// Counts a Pod that came, and ends it.
async fn take(
    client: &Client,
    seen: &Arc<Mutex<Seen>>,
    permits: &Arc<Semaphore>,
    pod: &serde_json::Value,
    ends: bool,
) {
    let text =
        |path: &str| pod.pointer(path).and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
    if matches!(&*text("/status/phase"), "Succeeded" | "Failed") {
        return;
    }
    let (name, run) = (text("/metadata/name"), text("/metadata/labels/workflow.freehold.dev~1run-uid"));
    {
        let mut seen = lock(seen);
        seen.created += 1;
        if let Some(last) = seen.last.remove(&run) {
            seen.gaps.push(last.elapsed());
        }
    }
    if !ends {
        return;
    }
    let Ok(permit) = permits.clone().acquire_owned().await else { return };
    let (client, seen) = (client.clone(), seen.clone());
    tokio::spawn(async move {
        let status = json!({"status": {"phase": "Succeeded", "containerStatuses": [{
            "name": "main", "image": "busybox", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": 0, "reason": "Completed"}},
        }]}});
        let patch = Patch::Merge(status);
        if client.patch(&PODS, Some(NAMESPACE), &name, &patch, &PatchOptions::status()).await.is_ok() {
            let mut seen = lock(&seen);
            seen.ended += 1;
            seen.last.insert(run, Instant::now());
        }
        drop(permit);
    });
}
