//! The history: runs that ended or not, their attempts, statistics.

use crate::access::READ_RUNS;
use crate::app::App;
use crate::caller::Caller;
use crate::reply::{Failure, Reply, json};
use axum::extract::{Path, Query, State};
use freehold_workflow_store::{Cursor, Phase, RunFilter};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Which runs. `phase` takes several, divided by commas; times are RFC 3339.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RunQuery {
    namespace: Option<String>,
    dag: Option<String>,
    name: Option<String>,
    phase: String,
    from: Option<String>,
    to: Option<String>,
    after: String,
    limit: usize,
}

pub(crate) fn millis(field: &str, text: &str) -> Reply<i64> {
    text.parse::<jiff::Timestamp>()
        .map(jiff::Timestamp::as_millisecond)
        .map_err(|_| Failure::bad_request(format!("{field}: a time such as 2026-11-24T00:00:00Z is wanted")))
}

pub(crate) fn cursor(text: &str) -> Reply<Option<Cursor>> {
    Ok(if text.is_empty() { None } else { Some(Cursor::decode(text)?) })
}

impl RunQuery {
    pub(crate) fn filter(&self) -> Reply<RunFilter> {
        let mut phases = BTreeSet::new();
        for word in self.phase.split(',').filter(|word| !word.is_empty()) {
            phases.insert(word.parse::<Phase>().map_err(Failure::bad_request)?);
        }
        Ok(RunFilter {
            dag: self.dag.clone(),
            name: self.name.clone(),
            phases,
            from: self.from.as_deref().map(|text| millis("from", text)).transpose()?,
            to: self.to.as_deref().map(|text| millis("to", text)).transpose()?,
            after: cursor(&self.after)?,
            limit: self.limit,
        })
    }
}

pub(crate) async fn runs(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(query): Query<RunQuery>,
) -> Reply {
    let scope = app.scope(&caller, READ_RUNS, query.namespace.as_deref()).await?;
    Ok(json(&app.database.runs(&scope, &query.filter()?).await?))
}

pub(crate) async fn run(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((namespace, uid)): Path<(String, String)>,
) -> Reply {
    let scope = app.scope(&caller, READ_RUNS, Some(&namespace)).await?;
    let run = app.database.run(&scope, &uid).await?;
    run.map(|run| json(&run)).ok_or_else(|| {
        Failure::not_found(format!("no run {uid:?} in the history of namespace {namespace:?}"))
    })
}

/// A page of attempts.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct TaskQuery {
    pub(crate) after: String,
    pub(crate) limit: usize,
}

pub(crate) async fn tasks(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((namespace, uid)): Path<(String, String)>,
    Query(query): Query<TaskQuery>,
) -> Reply {
    let scope = app.scope(&caller, READ_RUNS, Some(&namespace)).await?;
    Ok(json(&app.database.tasks(&scope, &uid, cursor(&query.after)?.as_ref(), query.limit).await?))
}

/// Logs of one task, or of all.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct LogsQuery {
    pub(crate) task: Option<String>,
}

pub(crate) async fn logs(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((namespace, uid)): Path<(String, String)>,
    Query(query): Query<LogsQuery>,
) -> Reply {
    let scope = app.scope(&caller, READ_RUNS, Some(&namespace)).await?;
    Ok(json(&serde_json::json!({"items": app.database.logs(&scope, &uid, query.task.as_deref()).await?})))
}

/// Which days; the last 30 where nothing is said.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DayQuery {
    namespace: Option<String>,
    pub(crate) dag: Option<String>,
    from: Option<String>,
    to: Option<String>,
}

impl DayQuery {
    /// Its beginning and its end, in milliseconds since 1970.
    pub(crate) fn times(&self) -> Reply<(i64, i64)> {
        let to = match &self.to {
            Some(text) => millis("to", text)?,
            None => jiff::Timestamp::now().as_millisecond(),
        };
        let from = match &self.from {
            Some(text) => millis("from", text)?,
            None => to - 30 * 86_400_000,
        };
        Ok((from, to))
    }
}

pub(crate) async fn days(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(query): Query<DayQuery>,
) -> Reply {
    let scope = app.scope(&caller, READ_RUNS, query.namespace.as_deref()).await?;
    let (from, to) = query.times()?;
    Ok(json(&serde_json::json!({"items": app.database.days(&scope, query.dag.as_deref(), from, to).await?})))
}
