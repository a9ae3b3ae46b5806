//! DAGs, as the Kubernetes API has them.

use super::{Body, body};
use crate::app::App;
use crate::caller::Caller;
use crate::reply::{Reply, json, page, with};
use crate::upstream::{DAGS, RUNS, with_query};
use axum::extract::{Path, Query, State};
use freehold_client::RawRequest;
use freehold_machinery::Value;
use freehold_workflow_store::Role;
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Map, json as value};
use std::sync::Arc;

/// Which page of a list.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Paging {
    pub(crate) limit: u32,
    pub(crate) after: String,
    pub(crate) label_selector: String,
}

impl Paging {
    /// The path of a page of the Kubernetes API's list.
    pub(crate) fn path(&self, collection: String) -> String {
        let limit = if self.limit == 0 { 100 } else { self.limit.min(500) }.to_string();
        with_query(
            collection,
            &[("limit", &limit), ("continue", &self.after), ("labelSelector", &self.label_selector)],
        )
    }
}

/// Lists objects of a collection as a page.
pub(crate) async fn list_of(app: &App, caller: &Caller, collection: String, paging: &Paging) -> Reply {
    let mut list = app.get(caller, paging.path(collection)).await?;
    let next = list["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
    let Value::Array(mut items) = list["items"].take() else { return Ok(json(&page(Vec::new(), ""))) };
    for item in &mut items {
        // Only the controller reads it, and it is the largest part.
        if let Some(status) = item["status"].as_object_mut() {
            status.remove("state");
        }
        if let Some(metadata) = item["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
    }
    Ok(json(&page(items, &next)))
}

pub(crate) async fn list_all(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(paging): Query<Paging>,
) -> Reply {
    list_of(&app, &caller, DAGS.collection_path(None), &paging).await
}

pub(crate) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(namespace): Path<String>,
    Query(paging): Query<Paging>,
) -> Reply {
    list_of(&app, &caller, DAGS.collection_path(Some(&namespace)), &paging).await
}

pub(crate) async fn one(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((namespace, name)): Path<(String, String)>,
) -> Reply {
    Ok(json(&app.get(&caller, DAGS.object_path(Some(&namespace), &name, None)).await?))
}

/// What a run is given.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct NewRun {
    pub(crate) name: String,
    pub(crate) parameters: Map<String, Value>,
    pub(crate) priority: i32,
}

/// Creates a run of a DAG and returns it.
pub(crate) async fn create_run(
    app: &App,
    caller: &Caller,
    namespace: &str,
    dag: &str,
    new: NewRun,
) -> Reply<Value> {
    caller.wants(Role::Editor)?;
    let parameters: Vec<Value> =
        new.parameters.into_iter().map(|(name, given)| value!({"name": name, "value": given})).collect();
    let metadata = match new.name.is_empty() {
        true => value!({"generateName": format!("{dag}-"), "namespace": namespace}),
        false => value!({"name": new.name, "namespace": namespace}),
    };
    let mut run = value!({
        "apiVersion": RUNS.api_version(), "kind": "DAGRun", "metadata": metadata,
        "spec": {"dag": dag, "parameters": parameters},
    });
    if new.priority != 0 {
        run["spec"]["priority"] = new.priority.into();
    }
    if run["spec"]["parameters"].as_array().is_some_and(Vec::is_empty) {
        run["spec"].as_object_mut().map(|spec| spec.remove("parameters"));
    }
    app.send(caller, RawRequest::new(Method::POST, RUNS.collection_path(Some(namespace))).json(&run)).await
}

pub(crate) async fn run(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((namespace, name)): Path<(String, String)>,
    new: Body<NewRun>,
) -> Reply {
    let run = create_run(&app, &caller, &namespace, &name, body(new)?).await?;
    Ok(with(StatusCode::CREATED, &run))
}

/// Suspends or resumes a DAG's schedule.
pub(crate) async fn set_suspended(
    app: &App,
    caller: &Caller,
    namespace: &str,
    name: &str,
    suspended: bool,
) -> Reply<Value> {
    caller.wants(Role::Editor)?;
    let path = DAGS.object_path(Some(namespace), name, None);
    app.patch(caller, path, &value!({"spec": {"suspended": suspended}})).await
}

pub(crate) async fn suspend(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((namespace, name)): Path<(String, String)>,
) -> Reply {
    Ok(json(&set_suspended(&app, &caller, &namespace, &name, true).await?))
}

pub(crate) async fn resume(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((namespace, name)): Path<(String, String)>,
) -> Reply {
    Ok(json(&set_suspended(&app, &caller, &namespace, &name, false).await?))
}
