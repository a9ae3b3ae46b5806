//! Schedules by the thousand over many projects: memory of the controllers that wait for them, and how late runs are.

use super::place::{DAGS, RUNS};
use crate::goals;
use crate::options::Options;
use crate::process;
use crate::projects::Projects;
use crate::report::{Report, Value};
use crate::stats::Samples;
use crate::subject::{Kind, Subject};
use anyhow::{Context as _, Result, ensure};
use freehold_client::ListOptions;
use freehold_tests_harness::freehold_binary;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::json;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Schedules of one project.
const EACH: usize = 10;
/// Requests at once.
const CONCURRENCY: usize = 16;
/// How long the controllers may take to see everything.
const PATIENCE: Duration = Duration::from_secs(600);
/// Projects whose schedules are due each minute; those of the others are once a year.
const DUE: usize = 10;

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Measures one server.
pub(super) async fn measure(kind: Kind, options: &Options, report: &mut Report) -> Result<()> {
    let count = (options.schedules / EACH).max(1);
    let subject = Subject::start_with(kind, options, &["--enable=workflow"])?;
    let names: Vec<String> = (0..count).map(|n| format!("sched-{n}")).collect();
    Projects::open(subject.root()).await?.make_all(&names, CONCURRENCY).await?;
    let admin = subject.admin_kubeconfig().context("schedules are measured on our own servers")?;
    let start = || -> Result<Process> {
        let child = Command::new(freehold_binary())
            .args(["run", "workflow", "--all-planes", "--kubeconfig"])
            .arg(&admin)
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Process(child))
    };
    let controllers = start()?;
    let empty = process::memory_at_rest(controllers.0.id()).await.resident;
    drop(controllers);
    let root = subject.root();
    let make = |n: usize| {
        let plane = root.at(&format!("/projects/{}", names[n / EACH]));
        let schedule = if n / EACH < DUE { "* * * * *" } else { "0 0 1 1 *" };
        let dag = json!({
            "apiVersion": DAGS.api_version(), "kind": "DAG", "metadata": {"name": format!("s{n}"), "namespace": "default"},
            "spec": {"schedule": schedule, "tasks": [{"name": "a", "wait": {"duration": "1s"}}]},
        });
        async move { plane.create(&DAGS, &dag).await.map(drop) }
    };
    stream::iter(0..count * EACH).map(make).buffer_unordered(CONCURRENCY).try_collect::<()>().await?;
    let controllers = start()?;
    let memory = process::memory_at_rest(controllers.0.id()).await.resident;
    let title = format!("Workflows: {} schedules in {count} projects", count * EACH);
    report.add(&title, "resident memory of controllers beside the server's own", kind, Value::Bytes(memory));
    report.add(
        &title,
        "of that for a schedule",
        kind,
        Value::Bytes((memory - empty) / (count * EACH) as i64),
    );
    drop(controllers);
    let samples = lateness(&subject, count.min(DUE) * EACH).await?;
    report.add(
        &title,
        "a run of those that are due each minute is late, median / p99",
        kind,
        Value::spread(&samples),
    );
    report.reach(&goals::WORKFLOW_LATE, kind, Value::Time(samples.p99()));
    Ok(())
}

/// How long after their time runs began, of a minute that all are due in.
async fn lateness(subject: &Subject, wanted: usize) -> Result<Samples> {
    let began = Instant::now();
    let every = subject.root().at("/planes/-");
    loop {
        let runs = every.list_all(&RUNS, None, &ListOptions::default()).await?.items;
        let late = |run: &serde_json::Value| -> Option<Duration> {
            let tick = run["metadata"]["annotations"]["workflow.freehold.dev/scheduled-at"].as_str()?;
            let tick: jiff::Timestamp = tick.parse().ok()?;
            // The status has seconds alone; a task's start would have no more.
            let started: jiff::Timestamp = run["status"]["startedAt"].as_str()?.parse().ok()?;
            Duration::try_from(started.duration_since(tick)).ok()
        };
        let samples: Vec<Duration> = runs.iter().filter_map(late).collect();
        if samples.len() >= wanted {
            return Ok(samples.into_iter().collect());
        }
        ensure!(
            began.elapsed() < PATIENCE,
            "{} of {wanted} scheduled runs began in {PATIENCE:?}",
            samples.len()
        );
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
