//! The history as a group of a Freehold server: it authorizes the read and says whose plane it is about, this crate answers.
//!
//! | path below `/apis/history.workflow.freehold.dev/v1alpha1` | gives |
//! | --- | --- |
//! | `/[namespaces/NS/]runs` | a page of runs |
//! | `/namespaces/NS/runs/UID` | a run |
//! | `/namespaces/NS/runs/UID/tasks`, `/logs` | its attempts, its kept logs |
//! | `/[namespaces/NS/]days` | statistics by day |

use crate::reply::{Failure, Reply};
use crate::routes::history::{DayQuery, LogsQuery, RunQuery, TaskQuery, cursor};
use axum::extract::Query;
use freehold_machinery::{PlaneId, Status};
use freehold_workflow_store::{Database, Scope};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

/// The group of the history.
pub const HISTORY_GROUP: &str = "history.workflow.freehold.dev";

/// What is read: the parts of a path below the group, and the query.
#[derive(Clone, Copy, Debug, Default)]
pub struct HistoryRead<'a> {
    /// The namespace; `None` for all.
    pub namespace: Option<&'a str>,
    /// The namespace's uid.
    pub namespace_uid: &'a str,
    /// `runs` or `days`.
    pub resource: &'a str,
    /// A run's uid; `None` for a list.
    pub name: Option<&'a str>,
    /// `tasks` or `logs`, of a run.
    pub subresource: Option<&'a str>,
    /// The query, percent-encoded.
    pub query: &'a str,
}

/// Answers a read in a plane, with JSON.
///
/// # Errors
/// 404 for what there is not, 400 for a query that is none, 503 where the database can't be used.
pub async fn read(database: &Database, plane: &PlaneId, request: HistoryRead<'_>) -> Result<Vec<u8>, Status> {
    answer(database, plane, request).await.map_err(|failure| *failure.0)
}

async fn answer(database: &Database, plane: &PlaneId, request: HistoryRead<'_>) -> Reply<Vec<u8>> {
    let scope = match request.namespace {
        Some(namespace) => Scope::namespace_of(plane.as_str(), namespace, request.namespace_uid),
        None => Scope::plane(plane.as_str()),
    };
    let text = request.query;
    match (request.resource, request.name, request.subresource) {
        ("runs", None, None) => {
            let query: RunQuery = query(text)?;
            shown(&database.runs(&scope, &query.filter()?).await?)
        }
        ("days", None, None) => {
            let query: DayQuery = query(text)?;
            let (from, to) = query.times()?;
            shown(&json!({"items": database.days(&scope, query.dag.as_deref(), from, to).await?}))
        }
        // Rights are given by namespace.
        ("runs", Some(uid), subresource) if request.namespace.is_some() => {
            let run = database.run(&scope, uid).await?;
            let run = run.ok_or_else(|| Failure::not_found(format!("no run {uid:?} in the history")))?;
            match subresource {
                None => shown(&run),
                Some("tasks") => {
                    let query: TaskQuery = query(text)?;
                    shown(&database.tasks(&scope, uid, cursor(&query.after)?.as_ref(), query.limit).await?)
                }
                Some("logs") => {
                    let query: LogsQuery = query(text)?;
                    shown(&json!({"items": database.logs(&scope, uid, query.task.as_deref()).await?}))
                }
                Some(_) => Err(nothing()),
            }
        }
        _ => Err(nothing()),
    }
}

fn nothing() -> Failure {
    Failure(Box::new(Status::no_such_resource()))
}

fn query<T: DeserializeOwned>(text: &str) -> Reply<T> {
    let uri: http::Uri =
        format!("/?{text}").parse().map_err(|_| Failure::bad_request("the query is none"))?;
    Query::try_from_uri(&uri)
        .map(|Query(query)| query)
        .map_err(|error| Failure::bad_request(error.to_string()))
}

fn shown(value: &impl Serialize) -> Reply<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| Failure::new(500, "InternalError", error.to_string()))
}
