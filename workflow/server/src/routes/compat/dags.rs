//! DAGs and shared tasks.

use super::{PAGE, PAGES, pages, parts, slice};
use crate::app::App;
use crate::caller::Caller;
use crate::reply::{Failure, Reply, empty, json, with};
use crate::routes::dags::set_suspended;
use crate::routes::{Body, body};
use crate::upstream::{DAGS, TASKS, with_query};
use axum::extract::{Path, Query, State};
use freehold_client::{RawRequest, Resource};
use freehold_machinery::Value;
use freehold_workflow_store::Role;
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Map, json as value};
use std::sync::Arc;

/// The first 500 objects of a type.
async fn first(app: &App, caller: &Caller, resource: &Resource) -> Reply<Vec<Value>> {
    let limit = (PAGE * PAGES).to_string();
    let mut list = app.get(caller, with_query(resource.collection_path(None), &[("limit", &limit)])).await?;
    Ok(match list["items"].take() {
        Value::Array(items) => items,
        _ => Vec::new(),
    })
}

fn id_of(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    format!("{}.{}", text("namespace"), text("name"))
}

/// Tasks with those that each comes after.
pub(super) fn connections(spec: &Value) -> Map<String, Value> {
    let tasks = spec["tasks"].as_array().into_iter().flatten();
    tasks
        .filter_map(|task| {
            Some((
                task["name"].as_str()?.to_owned(),
                task.get("runAfter").cloned().unwrap_or_else(|| value!([])),
            ))
        })
        .collect()
}

fn meta_of(dag: &Value) -> Value {
    value!({
        "dagId": id_of(dag), "name": dag["metadata"]["name"], "namespace": dag["metadata"]["namespace"],
        "schedule": dag["spec"]["schedule"].as_str().unwrap_or_default(), "version": dag["metadata"]["generation"],
        "active": true, "nexttime": dag["status"]["nextScheduled"], "isSuspended": dag["spec"]["suspended"] == true,
        "connections": connections(&dag["spec"]),
    })
}

pub(super) async fn meta(State(app): State<Arc<App>>, caller: Caller, Path(page): Path<usize>) -> Reply {
    let dags = slice(first(&app, &caller, &DAGS).await?, page);
    Ok(json(&value!({"dags": dags.iter().map(meta_of).collect::<Vec<_>>()})))
}

pub(super) async fn count(State(app): State<Arc<App>>, caller: Caller) -> Reply {
    Ok(json(&pages(first(&app, &caller, &DAGS).await?.len())))
}

/// What is looked for.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Search {
    term: String,
    name: String,
}

pub(super) async fn names(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(search): Query<Search>,
) -> Reply {
    let dags = first(&app, &caller, &DAGS).await?;
    let names: Vec<&str> = dags.iter().filter_map(|dag| dag["metadata"]["name"].as_str()).collect();
    let found: Vec<&str> = names.into_iter().filter(|name| name.contains(&search.term)).take(PAGE).collect();
    Ok(json(&value!({"names": found})))
}

pub(super) async fn parameters(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(search): Query<Search>,
) -> Reply {
    let dags = first(&app, &caller, &DAGS).await?;
    let dag = dags.iter().find(|dag| dag["metadata"]["name"] == search.name.as_str());
    let dag = dag.ok_or_else(|| Failure::not_found(format!("there is no DAG {:?}", search.name)))?;
    let shown = |parameter: &Value| {
        let secret = &parameter["valueFrom"]["secretKeyRef"]["name"];
        let default = if secret.is_string() { secret } else { &parameter["default"] };
        value!({"id": parameter["name"], "name": parameter["name"], "isSecret": secret.is_string(), "defaultValue": default})
    };
    let parameters: Vec<Value> =
        dag["spec"]["parameters"].as_array().into_iter().flatten().map(shown).collect();
    Ok(json(&value!({"parameters": parameters})))
}

/// Makes a DAG of the form's fields: they are those of Kontroler's kind, save names.
pub(super) async fn create(State(app): State<Arc<App>>, caller: Caller, new: Body<Value>) -> Reply {
    caller.wants(Role::Editor)?;
    let new = body(new)?;
    let namespace = new["namespace"].as_str().unwrap_or_default();
    let dag = dag_of(&new)?;
    app.send(&caller, RawRequest::new(Method::POST, DAGS.collection_path(Some(namespace))).json(&dag))
        .await?;
    Ok(with(StatusCode::CREATED, &value!({"message": "the DAG was created"})))
}

fn dag_of(new: &Value) -> Reply<Value> {
    let (name, namespace) =
        (new["name"].as_str().unwrap_or_default(), new["namespace"].as_str().unwrap_or_default());
    if name.is_empty() || namespace.is_empty() {
        return Err(Failure::bad_request("name and namespace are wanted"));
    }
    let parameter = |given: &Value| match given["isSecret"] == true {
        true => value!({"name": given["name"], "defaultFromSecret": given["value"]}),
        false => value!({"name": given["name"], "defaultValue": given["value"]}),
    };
    let parameters: Vec<Value> = new["parameters"].as_array().into_iter().flatten().map(parameter).collect();
    let mut spec = value!({"schedule": new["schedule"], "parameters": parameters, "task": new["tasks"]});
    for field in ["webhook", "workspace"] {
        spec[field] = new[field].clone();
    }
    let theirs = value!({
        "apiVersion": "kontroler.greedykomodo/v1alpha1", "kind": "DAG",
        "metadata": {"name": name, "namespace": namespace}, "spec": spec,
    });
    let mut converted = freehold_workflow_convert::convert(&[theirs]).remove(0);
    match converted.problems.is_empty() && !converted.objects.is_empty() {
        true => Ok(converted.objects.remove(0)),
        false => Err(Failure::bad_request(
            converted.problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
        )),
    }
}

/// Whose schedule stops or goes on.
#[derive(Debug, Deserialize)]
pub(super) struct Suspend {
    name: String,
    namespace: String,
    suspend: bool,
}

pub(super) async fn suspend(State(app): State<Arc<App>>, caller: Caller, wanted: Body<Suspend>) -> Reply {
    let wanted = body(wanted)?;
    set_suspended(&app, &caller, &wanted.namespace, &wanted.name, wanted.suspend).await?;
    Ok(empty(StatusCode::CREATED))
}

pub(super) async fn remove(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((namespace, name)): Path<(String, String)>,
) -> Reply {
    caller.wants(Role::Editor)?;
    app.send(&caller, RawRequest::new(Method::DELETE, DAGS.object_path(Some(&namespace), &name, None)))
        .await?;
    Ok(empty(StatusCode::ACCEPTED))
}

/// A task as Kontroler describes it.
fn shown(id: &str, task: &Value) -> Value {
    let codes = &task["retry"]["exitCodes"];
    let pod = if task["pod"].is_null() { String::new() } else { task["pod"].to_string() };
    let list = |field: &str| task.get(field).cloned().unwrap_or_else(|| value!([]));
    value!({
        "id": id, "name": task["name"], "command": list("command"), "args": list("args"), "image": task["image"],
        "script": task["script"].as_str().unwrap_or_default(), "parameters": list("parameters"),
        "backOffLimit": task["retry"]["limit"].as_u64().unwrap_or(0), "isConditional": codes.is_array(), "retryCodes": codes,
        "podTemplate": pod,
    })
}

pub(super) async fn task(State(app): State<Arc<App>>, caller: Caller, Path(id): Path<String>) -> Reply {
    let [namespace, dag, name] = parts::<3>(&id)?;
    let dag = app.get(&caller, DAGS.object_path(Some(namespace), dag, None)).await?;
    let task = dag["spec"]["tasks"].as_array().into_iter().flatten().find(|task| task["name"] == name);
    task.map(|task| json(&shown(&id, task)))
        .ok_or_else(|| Failure::not_found(format!("there is no task {id:?}")))
}

pub(super) async fn shared(State(app): State<Arc<App>>, caller: Caller, Path(page): Path<usize>) -> Reply {
    let tasks = slice(first(&app, &caller, &TASKS).await?, page);
    let shown = |task: &Value| {
        let mut spec = task["spec"].clone();
        spec["name"] = task["metadata"]["name"].clone();
        shown(&id_of(task), &spec)
    };
    Ok(json(&value!({"tasks": tasks.iter().map(shown).collect::<Vec<_>>()})))
}

pub(super) async fn shared_count(State(app): State<Arc<App>>, caller: Caller) -> Reply {
    Ok(json(&pages(first(&app, &caller, &TASKS).await?.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_with_a_schedule_becomes_a_dag_with_it() {
        let form = value!({"name": "d", "namespace": "n", "schedule": "*/5 * * * *", "tasks": [
            {"name": "a", "image": "i", "command": ["true"], "backoff": {"limit": 1}},
        ], "parameters": [{"name": "P", "isSecret": false, "value": "v"}]});
        let dag = dag_of(&form).unwrap();
        assert_eq!(dag["spec"]["schedule"], "*/5 * * * *");
        assert_eq!(dag["spec"]["parameters"][0]["default"], "v");
        assert_eq!(dag_of(&value!({"name": "d", "namespace": "n", "tasks": []})).unwrap_err().0.code, 400);
    }
}
