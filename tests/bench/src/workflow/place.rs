//! A project with the workflow kinds, and controllers for it.

use crate::options::Options;
use crate::process;
use crate::subject::{Kind, PROJECT, Subject};
use anyhow::{Context as _, Result, bail, ensure};
use freehold_client::{Client, ListOptions, Resource};
use freehold_tests_harness::freehold_binary;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub(super) const DAGS: Resource = Resource::namespaced("workflow.freehold.dev", "v1alpha1", "dags");
pub(super) const RUNS: Resource = Resource::namespaced("workflow.freehold.dev", "v1alpha1", "dagruns");
pub(super) const PODS: Resource = Resource::namespaced("", "v1", "pods");
const CONFIG_MAPS: Resource = Resource::namespaced("", "v1", "configmaps");
/// The namespace of everything.
pub(super) const NAMESPACE: &str = "default";
/// Requests at once that make runs.
const CONCURRENCY: usize = 32;
/// How long anything may go without any progress.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often is looked how far it is.
const PERIOD: Duration = Duration::from_millis(100);

/// A server with a project that has the kinds.
pub(super) struct Place {
    pub(super) subject: Subject,
    pub(super) client: Client,
    pub(super) kubeconfig: PathBuf,
}

/// A DAG of one task.
pub(super) fn single() -> Value {
    json!({"history": {"successful": 1_000_000}, "tasks": [{"name": "a", "image": "busybox", "command": ["true"]}]})
}

/// A DAG of tasks after each other.
pub(super) fn chain(count: usize) -> Value {
    let task = |n: usize| {
        let after: Vec<String> = n.checked_sub(1).map(|before| format!("t{before}")).into_iter().collect();
        json!({"name": format!("t{n}"), "image": "busybox", "command": ["true"], "runAfter": after})
    };
    json!({"history": {"successful": 1_000_000}, "tasks": (0..count).map(task).collect::<Vec<_>>()})
}

/// A DAG of one task with many items.
pub(super) fn fan(count: usize) -> Value {
    json!({"history": {"successful": 1_000_000}, "tasks": [
        {"name": "a", "image": "busybox", "command": ["true"], "forEach": {"range": {"count": count}}},
    ]})
}

/// Runs `freehold` to its end.
fn freehold(kubeconfig: &Path, args: &[&str]) -> Result<()> {
    let done = Command::new(freehold_binary()).args(args).arg("--kubeconfig").arg(kubeconfig).output()?;
    ensure!(done.status.success(), "freehold {args:?}: {}", String::from_utf8_lossy(&done.stderr));
    Ok(())
}

impl Place {
    /// Starts a server with a project that has the kinds.
    pub(super) async fn start(kind: Kind, options: &Options) -> Result<Self> {
        let subject = Subject::start(kind, options)?;
        let client = subject.plane().await?;
        let kubeconfig =
            subject.kubeconfig_of(PROJECT).context("workflows are measured on our own servers")?;
        freehold(&kubeconfig, &["workflow", "install"])?;
        Ok(Self { subject, client, kubeconfig })
    }

    /// Starts controllers in a process of their own.
    pub(super) fn controllers(&self) -> Result<Controllers> {
        let child = Command::new(freehold_binary())
            .args(["workflow", "controller", "--alone", "--kubeconfig"])
            .arg(&self.kubeconfig)
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Controllers(child))
    }

    /// Creates a DAG.
    pub(super) async fn define(&self, name: &str, spec: Value) -> Result<()> {
        let dag = json!({
            "apiVersion": DAGS.api_version(), "kind": "DAG", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
        });
        self.client.create(&DAGS, &dag).await?;
        Ok(())
    }

    /// Creates runs of a DAG.
    pub(super) async fn runs(&self, prefix: &str, dag: &str, count: usize) -> Result<()> {
        let one = |n: usize| {
            let run = json!({
                "apiVersion": RUNS.api_version(), "kind": "DAGRun",
                "metadata": {"name": format!("{prefix}-{n}"), "namespace": NAMESPACE}, "spec": {"dag": dag},
            });
            async move { self.client.create(&RUNS, &run).await.map(drop) }
        };
        Ok(stream::iter(0..count).map(one).buffer_unordered(CONCURRENCY).try_collect().await?)
    }

    /// Waits until so many runs of a DAG are over, all of them well.
    pub(super) async fn over(&self, dag: &str, count: usize) -> Result<()> {
        let (mut best, mut since, mut period) = (0, Instant::now(), PERIOD);
        loop {
            let runs = self.client.list_all(&RUNS, Some(NAMESPACE), &ListOptions::default()).await?.items;
            let of_dag = || runs.iter().filter(|run| run["spec"]["dag"] == dag);
            if let Some(failed) = of_dag().find(|run| run["status"]["phase"] == "Failed") {
                bail!("a run failed: {}", failed["status"]);
            }
            let tasks = |run: &Value| run["status"]["counts"]["succeeded"].as_u64().unwrap_or(0);
            let progress: u64 = of_dag().map(tasks).sum();
            if of_dag().filter(|run| run["status"]["phase"] == "Succeeded").count() == count {
                return Ok(());
            }
            if progress > best {
                (best, since) = (progress, Instant::now());
            }
            ensure!(since.elapsed() < PATIENCE, "no further task was over in {PATIENCE:?}, of {best}");
            tokio::time::sleep(period).await;
            // The look itself costs the server something.
            period = (period * 2).min(Duration::from_millis(500));
        }
    }

    /// Waits until no Pod is left.
    pub(super) async fn settled(&self) -> Result<()> {
        let began = Instant::now();
        let options = ListOptions { limit: 1, ..ListOptions::default() };
        while !self.client.list(&PODS, Some(NAMESPACE), &options).await?.items.is_empty() {
            ensure!(began.elapsed() < PATIENCE, "Pods are left after {PATIENCE:?}");
            tokio::time::sleep(PERIOD).await;
        }
        Ok(())
    }

    /// The store's revision, which grows by one with each write.
    pub(super) async fn revision(&self) -> Result<u64> {
        let probe = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "probe-", "namespace": NAMESPACE},
        });
        let written = self.client.create(&CONFIG_MAPS, &probe).await?;
        let version = written["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        version.parse().context("a resource version is a number here")
    }
}

/// A process with controllers, which ends with this.
pub(super) struct Controllers(Child);

impl Controllers {
    pub(super) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// The CPU time that it has used.
    pub(super) fn cpu(&self) -> Result<Duration> {
        process::cpu(self.pid()).context("the workflow controllers have ended")
    }
}

impl Drop for Controllers {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
