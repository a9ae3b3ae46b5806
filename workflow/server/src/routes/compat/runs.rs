//! Runs, their logs, and the dashboard.

use super::dags::connections;
use super::{PAGE, PAGES, pages, slice};
use crate::access::{READ_LOGS, READ_RUNS};
use crate::app::App;
use crate::caller::Caller;
use crate::reply::{Failure, Reply, empty, json, with};
use crate::routes::dags::{NewRun, create_run};
use crate::routes::logs::send;
use crate::routes::{Body, body};
use crate::upstream::{DAGS, RUNS};
use axum::extract::{Path, Query, State};
use freehold_client::RawRequest;
use freehold_machinery::Value;
use freehold_workflow_store::{Phase, Role, RunFilter, RunRecord, TaskRecord};
use http::{HeaderMap, Method, StatusCode};
use serde::Deserialize;
use serde_json::{Map, json as value};
use std::sync::Arc;

/// A phase in Kontroler's words.
fn status(phase: Phase) -> &'static str {
    match phase {
        Phase::Pending | Phase::Queued => "pending",
        Phase::Running => "running",
        Phase::Succeeded => "success",
        Phase::Failed => "failed",
        Phase::Suspended | Phase::Skipped | Phase::Stopped => "suspended",
    }
}

fn shown(run: &RunRecord) -> Value {
    value!({
        "id": run.uid, "dagId": format!("{}.{}", run.namespace, run.dag), "status": status(run.phase),
        "successfulCount": run.counts.succeeded, "failedCount": run.counts.failed, "namespace": run.namespace, "name": run.name,
    })
}

/// The newest 500 runs.
async fn first(app: &App, caller: &Caller) -> Reply<Vec<RunRecord>> {
    let scope = app.scope(caller, READ_RUNS, None).await?;
    let filter = RunFilter { limit: PAGE * PAGES, ..RunFilter::default() };
    Ok(app.database.runs(&scope, &filter).await?.items)
}

pub(super) async fn list(State(app): State<Arc<App>>, caller: Caller, Path(page): Path<usize>) -> Reply {
    let runs = slice(first(&app, &caller).await?, page);
    Ok(json(&runs.iter().map(shown).collect::<Vec<_>>()))
}

pub(super) async fn count(State(app): State<Arc<App>>, caller: Caller) -> Reply {
    Ok(json(&pages(first(&app, &caller).await?.len())))
}

/// A run with its attempts.
async fn find(app: &App, caller: &Caller, uid: &str) -> Reply<(RunRecord, Vec<TaskRecord>)> {
    let scope = app.scope(caller, READ_RUNS, None).await?;
    let run = app
        .database
        .run(&scope, uid)
        .await?
        .ok_or_else(|| Failure::not_found(format!("there is no run {uid:?}")))?;
    let tasks = app.database.tasks(&scope, uid, None, PAGE * PAGES).await?.items;
    Ok((run, tasks))
}

/// The last attempt of each task.
fn task_info(tasks: &[TaskRecord]) -> Map<String, Value> {
    tasks
        .iter()
        .map(|task| (task.task.clone(), value!({"name": task.task, "status": status(task.phase)})))
        .collect()
}

async fn details(app: &App, caller: &Caller, uid: &str) -> Reply<Value> {
    let (run, tasks) = find(app, caller, uid).await?;
    // The DAG may be gone, or another one by now.
    let dag = app.get(caller, DAGS.object_path(Some(&run.namespace), &run.dag, None)).await;
    let mut details = shown(&run);
    details["connections"] = dag.map(|dag| connections(&dag["spec"])).unwrap_or_default().into();
    details["taskInfo"] = task_info(&tasks).into();
    Ok(details)
}

pub(super) async fn one(State(app): State<Arc<App>>, caller: Caller, Path(id): Path<String>) -> Reply {
    let details = details(&app, &caller, &id).await?;
    Ok(json(&value!({"connections": details["connections"], "taskInfo": details["taskInfo"]})))
}

pub(super) async fn all(State(app): State<Arc<App>>, caller: Caller, Path(id): Path<String>) -> Reply {
    Ok(json(&details(&app, &caller, &id).await?))
}

pub(super) async fn task(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((run, task)): Path<(String, String)>,
) -> Reply {
    let (_, tasks) = find(&app, &caller, &run).await?;
    let attempts: Vec<&TaskRecord> = tasks.iter().filter(|known| known.task == task).collect();
    let last = attempts.last().ok_or_else(|| Failure::not_found(format!("the run has no task {task:?}")))?;
    let pod = |attempt: &&TaskRecord| {
        let seconds = attempt.ended_at.zip(attempt.started_at).map(|(end, start)| (end - start) / 1000);
        value!({
            "podUID": attempt.pod_uid, "exitCode": attempt.exit_code, "name": attempt.pod, "status": attempt.phase.as_str(),
            "duration": seconds,
        })
    };
    let pods: Vec<Value> = attempts.iter().map(pod).collect();
    Ok(json(&value!({"id": task, "status": status(last.phase), "attempts": attempts.len(), "pods": pods})))
}

/// A run to be made.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Create {
    name: String,
    #[serde(default)]
    run_name: String,
    namespace: String,
    #[serde(default)]
    parameters: Map<String, Value>,
}

pub(super) async fn create(State(app): State<Arc<App>>, caller: Caller, new: Body<Create>) -> Reply {
    let new = body(new)?;
    // Its page wraps a value with whether it is a Secret's name.
    let plain = |given: Value| match given.get("value") {
        Some(inner) => inner.clone(),
        None => given,
    };
    let parameters = new.parameters.into_iter().map(|(name, given)| (name, plain(given))).collect();
    let wanted = NewRun { name: new.run_name, parameters, priority: 0 };
    let run = create_run(&app, &caller, &new.namespace, &new.name, wanted).await?;
    Ok(with(StatusCode::CREATED, &value!({"runId": run["metadata"]["uid"]})))
}

/// Which run goes.
#[derive(Debug, Deserialize)]
pub(super) struct Remove {
    run: String,
    namespace: String,
}

pub(super) async fn remove(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(which): Query<Remove>,
) -> Reply {
    caller.wants(Role::Editor)?;
    let path = RUNS.object_path(Some(&which.namespace), &which.run, None);
    app.send(&caller, RawRequest::new(Method::DELETE, path)).await?;
    Ok(empty(StatusCode::ACCEPTED))
}

pub(super) async fn log(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((run, pod)): Path<(String, String)>,
    headers: HeaderMap,
) -> Reply {
    let files = app.logs.clone().ok_or_else(|| Failure::not_found("this server keeps no logs"))?;
    let scope = app.scope(&caller, READ_LOGS, None).await?;
    let records = app.database.logs_of_pod(&scope, &pod).await?;
    match records.into_iter().find(|record| record.run == run) {
        Some(record) => send(&files, &record.location, &headers).await,
        None => Ok(empty(StatusCode::NO_CONTENT)),
    }
}

/// The last 30 days. Numbers of tasks and of DAGs are those that one page of 500 has.
pub(super) async fn dashboard(State(app): State<Arc<App>>, caller: Caller) -> Reply {
    let scope = app.scope(&caller, READ_RUNS, None).await?;
    let now = jiff::Timestamp::now().as_millisecond();
    let days = app.database.days(&scope, None, now - 30 * 86_400_000, now).await?;
    let filter = |phases: &[Phase]| RunFilter {
        phases: phases.iter().copied().collect(),
        limit: PAGE * PAGES,
        ..RunFilter::default()
    };
    let active = app
        .database
        .runs(&scope, &filter(&[Phase::Pending, Phase::Queued, Phase::Running]))
        .await?
        .items
        .len();
    let list = app
        .get(&caller, crate::upstream::with_query(DAGS.collection_path(None), &[("limit", "500")]))
        .await?;
    let dags = list["items"].as_array().map_or(&[][..], Vec::as_slice);
    let scheduled = dags
        .iter()
        .filter(|dag| dag["spec"]["schedule"].as_str().is_some_and(|text| !text.is_empty()))
        .count();
    let mut outcomes = (0, 0);
    for run in app.database.runs(&scope, &filter(&[])).await?.items {
        outcomes = (outcomes.0 + run.counts.succeeded, outcomes.1 + run.counts.failed);
    }
    let (succeeded, failed) = days.iter().fold((0, 0), |(s, f), day| (s + day.succeeded, f + day.failed));
    let stopped: i64 = days.iter().map(|day| day.stopped).sum();
    let daily: Vec<Value> = days
        .iter()
        .map(|day| value!({"day": day.day, "successful_count": day.succeeded, "failed_count": day.failed}))
        .collect();
    Ok(json(&value!({
        "dag_count": dags.len(), "successful_dag_runs": succeeded, "failed_dag_runs": failed,
        "total_dag_runs": succeeded + failed + stopped, "active_dag_runs": active,
        "dag_type_counts": {"scheduled": scheduled, "event_driven": dags.len() - scheduled},
        "task_outcomes": {"success": outcomes.0, "failed": outcomes.1},
        "daily_dag_run_counts": daily,
    })))
}
