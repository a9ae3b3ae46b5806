//! Commands that show runs.

use crate::{RUNS, follow};
use anyhow::{Result, bail};
use freehold_client::{Client, ListOptions, RawRequest, Resource};
use freehold_machinery::{Value, meta};
use freehold_workflow_api::names;
use freehold_workflow_server::HISTORY_GROUP;
use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

const PODS: Resource = Resource::namespaced("", "v1", "pods");
/// How often a run is looked at.
const POLL: Duration = Duration::from_millis(300);

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Prints rows in columns.
fn print(rows: &[Vec<String>]) {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |n: usize| rows.iter().map(|row| row[n].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        println!("{}", cells.join("  ").trim_end());
    }
}

fn row(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

pub(crate) async fn list(client: &Client, namespace: &str, dag: Option<&str>) -> Result<()> {
    let mut runs = client.list_all(&RUNS, Some(namespace), &ListOptions::default()).await?.items;
    runs.retain(|run| dag.is_none_or(|dag| text(run, "/spec/dag") == dag));
    runs.sort_by(|a, b| text(a, "/metadata/creationTimestamp").cmp(text(b, "/metadata/creationTimestamp")));
    let mut rows = vec![row(&["NAME", "DAG", "PHASE", "PROGRESS", "STARTED", "FINISHED"])];
    rows.extend(runs.iter().map(|run| {
        let status = |field: &str| text(run, &format!("/status/{field}"));
        row(&[
            meta::name(run),
            text(run, "/spec/dag"),
            status("phase"),
            status("progress"),
            status("startedAt"),
            status("finishedAt"),
        ])
    }));
    print(&rows);
    Ok(())
}

pub(crate) async fn get(client: &Client, namespace: &str, name: &str) -> Result<()> {
    let run = client.get(&RUNS, Some(namespace), name).await?;
    for (title, pointer) in [
        ("Name", "/metadata/name"),
        ("DAG", "/spec/dag"),
        ("Phase", "/status/phase"),
        ("Progress", "/status/progress"),
        ("Started", "/status/startedAt"),
        ("Finished", "/status/finishedAt"),
        ("Message", "/status/message"),
    ] {
        if !text(&run, pointer).is_empty() {
            println!("{title:10}{}", text(&run, pointer));
        }
    }
    println!();
    let mut rows = vec![row(&["TASK", "PHASE", "ATTEMPT", "EXIT", "STARTED", "FINISHED", "MESSAGE"])];
    for task in run["status"]["tasks"].as_array().into_iter().flatten() {
        let number = |field: &str| task[field].as_i64().map(|n| n.to_string()).unwrap_or_default();
        let attempt = task["startedAt"].as_str().map(|_| task["attempt"].as_u64().unwrap_or(0) + 1);
        let reason = [text(task, "/reason"), text(task, "/message")];
        let reason: Vec<&str> = reason.into_iter().filter(|text| !text.is_empty()).collect();
        rows.push(row(&[
            text(task, "/name"),
            text(task, "/phase"),
            &attempt.map(|attempt| attempt.to_string()).unwrap_or_default(),
            &number("exitCode"),
            text(task, "/startedAt"),
            text(task, "/finishedAt"),
            &reason.join(": "),
        ]));
    }
    print(&rows);
    Ok(())
}

/// The Pods of a run, or of one of its tasks.
pub(crate) async fn pods(
    client: &Client,
    namespace: &str,
    run: &Value,
    task: Option<&str>,
) -> Result<Vec<Value>> {
    let mut selector = format!("{}={}", names::RUN_UID, meta::uid(run));
    if let Some(task) = task {
        selector = format!("{selector},{}={}", names::TASK, freehold_workflow_engine::names::label(task));
    }
    let options = ListOptions { label_selector: selector, ..ListOptions::default() };
    Ok(client.list_all(&PODS, Some(namespace), &options).await?.items)
}

pub(crate) async fn logs(client: &Client, namespace: &str, name: &str, task: Option<&str>) -> Result<()> {
    let run = client.get(&RUNS, Some(namespace), name).await?;
    let pods = pods(client, namespace, &run, task).await?;
    if pods.is_empty() {
        let of = task.map(|task| format!(" of task {task:?}")).unwrap_or_default();
        bail!(
            "run {name:?} has no Pods{of} any more; set podRetention: Keep on the DAG, or keep logs with freehold workflow controller --logs"
        );
    }
    for pod in pods {
        let task = meta::label(&pod, names::TASK).unwrap_or_default();
        let began = follow::began(&pod);
        if began.is_empty() {
            eprintln!("{task}: Pod {} has not begun", meta::name(&pod));
        }
        for container in began {
            let path =
                format!("/api/v1/namespaces/{namespace}/pods/{}/log?container={container}", meta::name(&pod));
            match client.request(&RawRequest { accept: "*/*", ..RawRequest::get(path) }).await {
                Ok(answer) => {
                    for line in String::from_utf8_lossy(&answer.body).lines() {
                        println!("{task} {container}: {line}");
                    }
                }
                Err(error) => eprintln!("{task} {container}: {error}"),
            }
        }
    }
    Ok(())
}

pub(crate) async fn watch(client: &Client, namespace: &str, name: &str) -> Result<()> {
    let is_terminal = std::io::stderr().is_terminal();
    let mut last = String::new();
    loop {
        let run = client.get(&RUNS, Some(namespace), name).await?;
        let phase = text(&run, "/status/phase");
        let line = format!("{name} {phase} {}", text(&run, "/status/progress"));
        if line != last {
            // Progress is for people: a terminal that is gone is no reason to stop.
            let _ = match is_terminal {
                true => write!(std::io::stderr(), "\r\x1b[K{line}"),
                false => writeln!(std::io::stderr(), "{line}"),
            };
            last = line;
        }
        if run["status"]["finishedAt"].is_string() {
            if is_terminal {
                eprintln!();
            }
            return match phase {
                "Succeeded" => Ok(()),
                _ => bail!("run {name:?} {}: {}", phase.to_lowercase(), text(&run, "/status/message")),
            };
        }
        tokio::time::sleep(POLL).await;
    }
}

pub(crate) async fn stats(client: &Client, namespace: &str) -> Result<()> {
    let runs = client.list_all(&RUNS, Some(namespace), &ListOptions::default()).await?.items;
    let mut counts: BTreeMap<&str, [u32; 4]> = BTreeMap::new();
    for run in &runs {
        let column = match text(run, "/status/phase") {
            "Succeeded" => 0,
            "Failed" => 1,
            "Stopped" => 2,
            _ => 3,
        };
        counts.entry(text(run, "/spec/dag")).or_default()[column] += 1;
    }
    let mut rows = vec![row(&["DAG", "SUCCEEDED", "FAILED", "STOPPED", "ACTIVE"])];
    for (dag, counts) in counts {
        rows.push([vec![dag.to_owned()], counts.iter().map(u32::to_string).collect()].concat());
    }
    print(&rows);
    days(client, namespace).await
}

/// Prints what days amount to, where the server has a history.
async fn days(client: &Client, namespace: &str) -> Result<()> {
    let path = format!("/apis/{HISTORY_GROUP}/v1alpha1/namespaces/{namespace}/days");
    let found = match client.get_path(&path).await {
        Err(error) if matches!(error.code(), 403 | 404) => return Ok(()),
        found => found?,
    };
    let number = |day: &Value, pointer: &str| day.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let seconds = |day: &Value, pointer: &str| format!("{:.1}s", number(day, pointer) as f64 / 1e3);
    let mut rows =
        vec![row(&["DAY", "SUCCEEDED", "FAILED", "STOPPED", "RATE", "P50", "P95", "WAIT P50", "WAIT P95"])];
    for day in found["items"].as_array().into_iter().flatten() {
        let rate =
            day["successRate"].as_f64().map(|rate| format!("{:.1}%", rate * 100.0)).unwrap_or_default();
        rows.push(row(&[
            text(day, "/day"),
            &number(day, "/succeeded").to_string(),
            &number(day, "/failed").to_string(),
            &number(day, "/stopped").to_string(),
            &rate,
            &seconds(day, "/duration/p50"),
            &seconds(day, "/duration/p95"),
            &seconds(day, "/queue/p50"),
            &seconds(day, "/queue/p95"),
        ]));
    }
    println!();
    print(&rows);
    Ok(())
}
