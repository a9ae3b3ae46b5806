//! One watch over all projects, that says when each is ready or gone.

use anyhow::{Context, Result, bail};
use freehold_client::{Client, ListOptions, Resource, WatchEvent, WatchOptions};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// How long a project may take to be ready or gone, before the run fails.
const PATIENCE: Duration = Duration::from_secs(120);

/// Projects.
pub(crate) const PROJECTS: Resource =
    Resource::cluster("resourcemanager.freehold.dev", "v1alpha1", "projects");

/// What can be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fact {
    /// Its condition `Ready` is `True`.
    Ready,
    /// It is gone.
    Gone,
}

type Waiting = Arc<Mutex<HashMap<(String, Fact), oneshot::Sender<Instant>>>>;

/// A watch of all projects. Dropping it ends the watch.
pub(crate) struct ProjectWatch {
    waiting: Waiting,
    task: tokio::task::JoinHandle<()>,
}

impl ProjectWatch {
    /// Opens the watch.
    pub(crate) async fn open(client: &Client) -> Result<Self> {
        let waiting = Waiting::default();
        // What happens from now on: a watch that began with all that is there would fall behind what happens meanwhile.
        let page = client.list(&PROJECTS, None, &ListOptions { limit: 1, ..ListOptions::default() }).await?;
        let resource_version = page.resource_version;
        let options = WatchOptions { resource_version, timeout_seconds: 3600, ..WatchOptions::default() };
        let mut events = client.watch(&PROJECTS, None, &options).await?;
        let told = waiting.clone();
        let task = tokio::spawn(async move {
            while let Some(Ok(event)) = events.next().await {
                tell(&told, event);
            }
            // Whoever still waits learns that nothing will come.
            told.lock().unwrap_or_else(PoisonError::into_inner).clear();
        });
        Ok(Self { waiting, task })
    }

    /// Begins to wait: to be called before what makes the fact true.
    pub(crate) fn expect(&self, name: &str, fact: Fact) -> oneshot::Receiver<Instant> {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.insert((name.to_owned(), fact), sender);
        receiver
    }
}

impl Drop for ProjectWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The moment at which an expected fact was seen.
pub(crate) async fn seen(expected: oneshot::Receiver<Instant>, what: &str) -> Result<Instant> {
    let Ok(answer) = tokio::time::timeout(PATIENCE, expected).await else {
        bail!("{what}: not within {PATIENCE:?}");
    };
    answer.with_context(|| format!("{what}: the watch ended"))
}

fn tell(waiting: &Waiting, event: WatchEvent) {
    let (object, fact) = match event {
        WatchEvent::Added(object) | WatchEvent::Modified(object) if is_ready(&object) => {
            (object, Fact::Ready)
        }
        WatchEvent::Deleted(object) => (object, Fact::Gone),
        _ => return,
    };
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let sender = waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&(name, fact));
    // Who no longer waits has failed already.
    let _ = sender.map(|sender| sender.send(Instant::now()));
}

fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
}
