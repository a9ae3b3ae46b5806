//! Kontroler's routes in its shapes, over DAGs and runs of `workflow.freehold.dev`.
//!
//! Identifiers are texts: a DAG is `NAMESPACE.NAME`, a task `NAMESPACE.DAG.TASK` or its name within a run, a run its uid.
//! Lists end after 50 pages of 10, and so do the counts of pages: nothing counts rows.

mod dags;
mod runs;
mod users;

use crate::app::App;
use crate::reply::{Failure, Reply};
use axum::Router;
use axum::routing::{delete, get, post};
use freehold_machinery::Value;
use std::sync::Arc;

/// Items of a page.
const PAGE: usize = 10;
/// Pages of a list.
const PAGES: usize = 50;

pub(crate) fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/auth/login", post(users::login))
        .route("/auth/check", get(users::check))
        .route("/auth/logout", post(users::logout))
        .route("/auth/create", post(users::create))
        .route("/auth/password/change", post(users::password))
        .route("/auth/users/page/{page}", get(users::list))
        .route("/auth/users/pages/count", get(users::count))
        .route("/auth/users/{user}", delete(users::remove))
        .route("/dag/meta/{page}", get(dags::meta))
        .route("/dag/pages/count", get(dags::count))
        .route("/dag/names", get(dags::names))
        .route("/dag/parameters", get(dags::parameters))
        .route("/dag/create", post(dags::create))
        .route("/dag/suspend", post(dags::suspend))
        .route("/dag/dag/{namespace}/{name}", delete(dags::remove))
        .route("/dag/task/{task}", get(dags::task))
        .route("/dag/dagTask/pages/page/{page}", get(dags::shared))
        .route("/dag/dagTask/pages/count", get(dags::shared_count))
        .route("/dag/runs/{page}", get(runs::list))
        .route("/dag/run/pages/count", get(runs::count))
        .route("/dag/run/{id}", get(runs::one))
        .route("/dag/run/all/{id}", get(runs::all))
        .route("/dag/run/task/{run}/{task}", get(runs::task))
        .route("/dag/run/create", post(runs::create))
        .route("/dag/run/remove", delete(runs::remove))
        .route("/stats/dashboard", get(runs::dashboard))
        .route("/logs/run/{run}/pod/{pod}", get(runs::log))
}

/// The items of a page, counted from 0.
fn slice<T>(items: Vec<T>, page: usize) -> Vec<T> {
    items.into_iter().skip(page.saturating_mul(PAGE)).take(PAGE).collect()
}

fn pages(items: usize) -> Value {
    serde_json::json!({"count": items.div_ceil(PAGE).min(PAGES)})
}

/// The parts of an identifier.
fn parts<const N: usize>(id: &str) -> Reply<[&str; N]> {
    let parts: Vec<&str> = id.splitn(N, '.').collect();
    parts.try_into().map_err(|_| Failure::not_found(format!("{id:?} is no identifier of this list")))
}
