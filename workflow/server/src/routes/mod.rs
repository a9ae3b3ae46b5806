//! Routes. What they are for stands in [`crate::openapi`], which a test holds against them.

mod accounts;
mod compat;
mod dags;
pub(crate) mod history;
mod logs;
mod runs;
mod watch;

use crate::app::App;
use crate::reply::json;
use axum::extract::{DefaultBodyLimit, Request};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use std::sync::Arc;

/// Bytes of a request's body.
const MAX_BODY: usize = 1 << 20;

/// All routes.
pub(crate) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/openapi.json", get(|| async { json(&crate::openapi::document()) }))
        .route("/api/v1/dags", get(dags::list_all))
        .route("/api/v1/namespaces/{namespace}/dags", get(dags::list))
        .route("/api/v1/namespaces/{namespace}/dags/{name}", get(dags::one))
        .route("/api/v1/namespaces/{namespace}/dags/{name}/run", post(dags::run))
        .route("/api/v1/namespaces/{namespace}/dags/{name}/suspend", post(dags::suspend))
        .route("/api/v1/namespaces/{namespace}/dags/{name}/resume", post(dags::resume))
        .route("/api/v1/runs", get(runs::list_all))
        .route("/api/v1/namespaces/{namespace}/runs", get(runs::list))
        .route("/api/v1/namespaces/{namespace}/runs/{name}", get(runs::one).delete(runs::remove))
        .route("/api/v1/namespaces/{namespace}/runs/{name}/actions/{action}", post(runs::act))
        .route("/api/v1/namespaces/{namespace}/runs/{name}/tasks/{task}/decision", post(runs::decide))
        .route("/api/v1/namespaces/{namespace}/pods/{pod}/log", get(logs::live))
        .route("/api/v1/watch/runs", get(watch::all))
        .route("/api/v1/namespaces/{namespace}/watch/runs", get(watch::namespace))
        .route("/api/v1/history/runs", get(history::runs))
        .route("/api/v1/namespaces/{namespace}/history/runs/{uid}", get(history::run))
        .route("/api/v1/namespaces/{namespace}/history/runs/{uid}/tasks", get(history::tasks))
        .route("/api/v1/namespaces/{namespace}/history/runs/{uid}/logs", get(history::logs))
        .route("/api/v1/namespaces/{namespace}/history/logs/{pod_uid}/{container}", get(logs::kept))
        .route("/api/v1/namespaces/{namespace}/history/logs/{pod_uid}/{container}/search", get(logs::search))
        .route("/api/v1/statistics/days", get(history::days))
        .route("/api/v1/auth/login", post(accounts::login))
        .route("/api/v1/auth/logout", post(accounts::logout))
        .route("/api/v1/auth/rotate", post(accounts::rotate))
        .route("/api/v1/auth/self", get(accounts::own))
        .route("/api/v1/auth/password", post(accounts::password))
        .route("/api/v1/accounts", get(accounts::list).post(accounts::create))
        .route("/api/v1/accounts/{name}", delete(accounts::remove))
        .nest("/compat/kontroler/api/v1", compat::router())
        .fallback(|| async { crate::reply::Failure::not_found("there is no such route: see /openapi.json") })
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(from_fn(plain))
        .with_state(app)
}

/// Refuses paths whose segments, once they are decoded, would lead elsewhere in the Kubernetes API: stand-alone, requests go
/// there with the server's own rights.
async fn plain(request: Request, next: Next) -> Response {
    let odd = |segment: &str| {
        let dots = segment.to_ascii_lowercase().replace("%2e", ".");
        let hidden = ["%2f", "%5c", "%00", "%25"];
        dots == "."
            || dots == ".."
            || hidden.iter().any(|escape| dots.contains(escape))
            || dots.contains('\\')
    };
    if request.uri().path().split('/').any(odd) {
        return crate::reply::Failure::bad_request("the path of the request is not plain").into_response();
    }
    next.run(request).await
}

/// A body of JSON, or a failure that says what is wrong with it.
pub(crate) type Body<T> = Result<Json<T>, axum::extract::rejection::JsonRejection>;

pub(crate) fn body<T>(body: Body<T>) -> crate::reply::Reply<T> {
    body.map(|Json(value)| value).map_err(|error| crate::reply::Failure::bad_request(error.body_text()))
}
