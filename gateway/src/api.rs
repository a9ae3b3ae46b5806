//! The gateway's own API: routes below `/console/api/`.

use crate::{
    error::Failure,
    forward,
    gateway::Gateway,
    guard,
    reply::{self, Reply},
    sessions::Session,
    streams::Wanted,
};
use bytes::Bytes;
use http::{Method, StatusCode, request::Parts};
use serde::de::DeserializeOwned;
use std::{sync::Arc, time::Instant};

/// The description of this API.
const OPENAPI: &str = include_str!("openapi.json");

/// Answers a request.
pub(crate) async fn route(gateway: &Gateway, parts: &Parts, body: Bytes) -> Result<Reply, Failure> {
    let path = parts.uri.path().strip_prefix("/console/api/").unwrap_or_default();
    let segments: Vec<&str> = path.split('/').collect();
    // An issuer sends browsers here by a link. What it brings is bound to the browser by a cookie of its own.
    if (&parts.method, segments.as_slice()) == (&Method::GET, &["login", "callback"]) {
        return Ok(gateway.finish_oidc(parts).await);
    }
    if (&parts.method, segments.as_slice()) == (&Method::GET, &["openapi.json"]) {
        return Ok(reply::bytes(StatusCode::OK, "application/json", OPENAPI));
    }
    guard::same_origin(parts, gateway.origin.as_deref())?;
    match (&parts.method, segments.as_slice()) {
        (&Method::GET, ["login"]) => Ok(gateway.sign_in_methods()),
        (&Method::POST, ["login", "link"]) => gateway.sign_in_by_link(parts, &body).await,
        (&Method::POST, ["login", "token"]) => gateway.sign_in_by_token(parts, &body).await,
        (&Method::POST, ["login", "oidc"]) => gateway.begin_oidc(&body).await,
        (_, segments) => of_session(gateway, parts, segments, body).await,
    }
}

/// Answers a request that needs a session.
async fn of_session(
    gateway: &Gateway,
    parts: &Parts,
    segments: &[&str],
    body: Bytes,
) -> Result<Reply, Failure> {
    let session = session(gateway, parts)?;
    match (&parts.method, segments) {
        (&Method::GET, ["session"]) => Ok(reply::json(StatusCode::OK, &gateway.describe(&session))),
        (&Method::DELETE, ["session"]) => {
            let everywhere = parts.uri.query() == Some("everywhere=true");
            Ok(gateway.sign_out(&session, everywhere).await)
        }
        (&Method::GET, ["watch"]) => gateway.streams.open(&session),
        (&Method::PUT, ["watch", stream, watch]) => {
            let wanted: Wanted = read(&body, "watch")?;
            gateway.caller(&session).await?;
            gateway.streams.begin((stream, watch), &session, &wanted)?;
            Ok(reply::empty(StatusCode::ACCEPTED))
        }
        (&Method::DELETE, ["watch" | "exec", stream, name]) => {
            gateway.streams.end((stream, name), &session)?;
            Ok(reply::empty(StatusCode::NO_CONTENT))
        }
        (&Method::PUT, ["exec", stream, name]) => {
            let wanted = read(&body, "terminal")?;
            gateway.caller(&session).await?;
            gateway.streams.begin_terminal((stream, name), &session, &wanted)?;
            Ok(reply::empty(StatusCode::ACCEPTED))
        }
        (&Method::POST, ["exec", stream, name]) => {
            gateway.streams.input((stream, name), &session, read(&body, "input of a terminal")?).await?;
            Ok(reply::empty(StatusCode::NO_CONTENT))
        }
        (_, ["k8s", ..]) => {
            let whole = parts.uri.path_and_query().map_or("", |whole| whole.as_str());
            let target = whole.strip_prefix("/console/api/k8s").unwrap_or_default();
            let caller = gateway.caller(&session).await?;
            forward::forward(&caller, parts, target, body).await
        }
        _ => Err(Failure::not_found()),
    }
}

/// Reads a body.
fn read<T: DeserializeOwned>(body: &[u8], what: &str) -> Result<T, Failure> {
    serde_json::from_slice(body)
        .map_err(|error| Failure::bad_request(format!("the body is no {what}: {error}")))
}

fn session(gateway: &Gateway, parts: &Parts) -> Result<Arc<Session>, Failure> {
    let now = Instant::now();
    let cookie = guard::cookie(&parts.headers, guard::SESSION).ok_or_else(Failure::unauthorized)?;
    let session = gateway.sessions.get(cookie, now).ok_or_else(Failure::unauthorized)?;
    match session.admits(now) {
        true => Ok(session),
        false => Err(Failure::too_many("too many requests; the console slows down")),
    }
}
