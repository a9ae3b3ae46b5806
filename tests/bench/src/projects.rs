//! Making and deleting projects, and measuring how long that takes.

use crate::stats::Samples;
use crate::watchers::{Fact, PROJECTS, ProjectWatch, seen};
use anyhow::{Context, Result};
use freehold_client::{Client, DeleteOptions, Resource};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const API: &str = "resourcemanager.freehold.dev/v1alpha1";
const ORGANIZATIONS: Resource =
    Resource::cluster("resourcemanager.freehold.dev", "v1alpha1", "organizations");
/// The organization of all projects.
pub(crate) const ORGANIZATION: &str = "bench";

/// How many projects took how long.
pub(crate) struct Outcome {
    /// Each project's time.
    pub(crate) each: Samples,
    /// The time of all together.
    pub(crate) total: Duration,
}

impl Outcome {
    /// Projects a second.
    pub(crate) fn rate(&self) -> f64 {
        self.each.len() as f64 / self.total.as_secs_f64()
    }
}

/// An organization, and a watch of all projects.
pub(crate) struct Projects {
    client: Client,
    watch: ProjectWatch,
}

impl Projects {
    /// Makes the organization.
    pub(crate) async fn open(client: Client) -> Result<Self> {
        let object = json!({
            "apiVersion": API, "kind": "Organization", "metadata": {"name": ORGANIZATION}, "spec": {"type": "Standard"},
        });
        client.create(&ORGANIZATIONS, &object).await.context("the organization")?;
        Self::reopen(client).await
    }

    /// Opens an organization that exists already.
    pub(crate) async fn reopen(client: Client) -> Result<Self> {
        let watch = ProjectWatch::open(&client).await?;
        Ok(Self { client, watch })
    }

    /// Makes a project; the time from the request until the watch says that it is ready.
    pub(crate) async fn make(&self, name: &str, mode: &str) -> Result<Duration> {
        self.make_as(name, json!({"mode": mode})).await
    }

    /// Creates a project with any `spec.controlPlane`, and waits until it is ready.
    pub(crate) async fn make_as(&self, name: &str, control_plane: Value) -> Result<Duration> {
        let ready = self.watch.expect(name, Fact::Ready);
        let object = project(name, &control_plane);
        let begun = Instant::now();
        self.client.create(&PROJECTS, &object).await.with_context(|| format!("project {name}"))?;
        Ok(seen(ready, name).await?.duration_since(begun))
    }

    /// Deletes a project; the time from the request until the watch says that it is gone.
    pub(crate) async fn delete(&self, name: &str) -> Result<Duration> {
        let gone = self.watch.expect(name, Fact::Gone);
        let begun = Instant::now();
        self.client.delete(&PROJECTS, None, name, &DeleteOptions::default()).await?;
        Ok(seen(gone, name).await?.duration_since(begun))
    }

    /// Makes many shared projects, `concurrency` at a time.
    pub(crate) async fn make_all(&self, names: &[String], concurrency: usize) -> Result<Outcome> {
        many(names, concurrency, |name| self.make(name, "Shared")).await
    }

    /// Deletes many projects, `concurrency` at a time.
    pub(crate) async fn delete_all(&self, names: &[String], concurrency: usize) -> Result<Outcome> {
        many(names, concurrency, |name| self.delete(name)).await
    }
}

fn project(name: &str, control_plane: &Value) -> Value {
    json!({
        "apiVersion": API, "kind": "Project", "metadata": {"name": name},
        "spec": {
            "ownerRef": {"kind": "Organization", "name": ORGANIZATION},
            "controlPlane": control_plane,
        },
    })
}

async fn many<'a, F>(names: &'a [String], concurrency: usize, work: impl Fn(&'a str) -> F) -> Result<Outcome>
where
    F: Future<Output = Result<Duration>>,
{
    let begun = Instant::now();
    let times = stream::iter(names).map(|name| work(name)).buffer_unordered(concurrency);
    let each: Vec<Duration> = times.try_collect().await?;
    Ok(Outcome { each: each.into_iter().collect(), total: begun.elapsed() })
}
