//! Runs, as the Kubernetes API has them, and what can be done to them.

use super::dags::{Paging, list_of};
use super::{Body, body};
use crate::app::App;
use crate::caller::Caller;
use crate::reply::{Failure, Reply, check_name, json, with};
use crate::upstream::RUNS;
use axum::extract::{Path, Query, State};
use freehold_client::RawRequest;
use freehold_machinery::Value;
use freehold_workflow_store::Role;
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::json as value;
use std::sync::Arc;

pub(crate) async fn list_all(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(paging): Query<Paging>,
) -> Reply {
    list_of(&app, &caller, RUNS.collection_path(None), &paging).await
}

pub(crate) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(namespace): Path<String>,
    Query(paging): Query<Paging>,
) -> Reply {
    list_of(&app, &caller, RUNS.collection_path(Some(&namespace)), &paging).await
}

pub(crate) async fn one(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((namespace, name)): Path<(String, String)>,
) -> Reply {
    Ok(json(&app.get(&caller, RUNS.object_path(Some(&namespace), &name, None)).await?))
}

pub(crate) async fn remove(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((namespace, name)): Path<(String, String)>,
) -> Reply {
    caller.wants(Role::Editor)?;
    let path = RUNS.object_path(Some(&namespace), &name, None);
    Ok(json(&app.send(&caller, RawRequest::new(Method::DELETE, path)).await?))
}

/// What an action changes of a run's spec, given the run as it is.
fn change(action: &str, run: &Value) -> Reply<Value> {
    let state = |state: &str| Ok(value!({"spec": {"state": state}}));
    match action {
        "suspend" => state("Suspended"),
        "resume" => state("Running"),
        "stop" => state("Stopped"),
        "terminate" => state("Terminated"),
        "retry" => {
            let count = run["spec"]["retry"]["count"].as_u64().unwrap_or(0);
            Ok(value!({
                // Of a run that was changed meanwhile another one is made.
                "metadata": {"resourceVersion": run["metadata"]["resourceVersion"]},
                "spec": {"state": "Running", "retry": {"count": count + 1}, "approvals": null},
            }))
        }
        other => Err(Failure::not_found(format!(
            "action {other:?}: suspend, resume, stop, terminate, retry or resubmit"
        ))),
    }
}

pub(crate) async fn act(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((namespace, name, action)): Path<(String, String, String)>,
) -> Reply {
    caller.wants(Role::Editor)?;
    let path = RUNS.object_path(Some(&namespace), &name, None);
    let run = match action.as_str() {
        "retry" | "resubmit" => app.get(&caller, path.clone()).await?,
        _ => Value::Null,
    };
    if action == "resubmit" {
        let again = freehold_workflow_api::again(&run);
        let request = RawRequest::new(Method::POST, RUNS.collection_path(Some(&namespace))).json(&again);
        return Ok(with(StatusCode::CREATED, &app.send(&caller, request).await?));
    }
    Ok(json(&app.patch(&caller, path, &change(&action, &run)?).await?))
}

/// A decision about a task that waits for one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewDecision {
    approved: bool,
    #[serde(default)]
    message: String,
}

pub(crate) async fn decide(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((namespace, name, task)): Path<(String, String, String)>,
    decision: Body<NewDecision>,
) -> Reply {
    caller.wants(Role::Editor)?;
    check_name(&task)?;
    let decision = body(decision)?;
    let mut approval = value!({"decision": if decision.approved { "Approved" } else { "Rejected" }, "message": decision.message});
    if let Caller::Known { name, .. } = &caller {
        approval["by"] = name.as_str().into();
    }
    let patch = value!({"spec": {"approvals": {task: approval}}});
    Ok(json(&app.patch(&caller, RUNS.object_path(Some(&namespace), &name, None), &patch).await?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retry_asks_once_more_than_before() {
        let run = value!({"metadata": {"resourceVersion": "7"}, "spec": {"retry": {"count": 2}}});
        assert_eq!(change("retry", &run).unwrap()["spec"]["retry"]["count"], 3);
        assert_eq!(change("retry", &run).unwrap()["metadata"]["resourceVersion"], "7");
        assert_eq!(change("stop", &run).unwrap(), value!({"spec": {"state": "Stopped"}}));
        assert_eq!(change("explode", &run).unwrap_err().0.code, 404);
    }
}
