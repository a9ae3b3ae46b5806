//! Logs: of Pods that are there, through the Kubernetes API, and kept ones.

use crate::access::READ_LOGS;
use crate::app::App;
use crate::caller::Caller;
use crate::reply::{Failure, Reply, check_name, json};
use crate::streams::LONGEST;
use crate::upstream::{PODS, with_query};
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse as _, Response};
use freehold_workflow_store::{LogRecord, LogStore, MAX_READ};
use futures_util::StreamExt as _;
use http::header::{ACCEPT_RANGES, CONTENT_RANGE, CONTENT_TYPE, RANGE};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use std::sync::Arc;

/// Lines that a search returns at most.
const MAX_MATCHES: usize = 1000;
const TEXT: &str = "text/plain; charset=utf-8";

/// What of a live log.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct LiveQuery {
    container: String,
    follow: bool,
    tail_lines: Option<u32>,
    timestamps: bool,
}

/// The log of a Pod that is there, as it comes.
pub(crate) async fn live(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((namespace, pod)): Path<(String, String)>,
    Query(query): Query<LiveQuery>,
) -> Reply {
    let place = app.streams.take(&caller)?;
    let tail = query.tail_lines.map(|lines| lines.to_string()).unwrap_or_default();
    let flag = |on: bool| if on { "true" } else { "" };
    let container = if query.container.is_empty() { "main" } else { &query.container };
    let path = with_query(
        PODS.object_path(Some(&namespace), &pod, Some("log")),
        &[
            ("container", container),
            ("follow", flag(query.follow)),
            ("tailLines", &tail),
            ("timestamps", flag(query.timestamps)),
        ],
    );
    let stream = app.stream(&caller, path).await?.into_stream().take_until(tokio::time::sleep(LONGEST)).map(
        move |chunk| {
            let _ = &place;
            chunk
        },
    );
    Ok(([(CONTENT_TYPE, TEXT)], Body::from_stream(stream)).into_response())
}

/// Finds a kept log that a caller may read.
async fn find(
    app: &App,
    caller: &Caller,
    namespace: &str,
    pod_uid: &str,
    container: &str,
) -> Reply<(LogStore, LogRecord)> {
    check_name(pod_uid)?;
    let files = app
        .logs
        .clone()
        .ok_or_else(|| Failure::not_found("this server keeps no logs: start it with --logs"))?;
    let scope = app.scope(caller, READ_LOGS, Some(namespace)).await?;
    let records = app.database.logs_of_pod(&scope, pod_uid).await?;
    let record = records.into_iter().find(|record| container.is_empty() || record.container == container);
    record
        .map(|record| (files, record))
        .ok_or_else(|| Failure::not_found(format!("no log of Pod {pod_uid:?} is kept")))
}

pub(crate) async fn kept(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((namespace, pod_uid, container)): Path<(String, String, String)>,
    headers: HeaderMap,
) -> Reply {
    let (files, record) = find(&app, &caller, &namespace, &pod_uid, &container).await?;
    send(&files, &record.location, &headers).await
}

/// A part of a log as `Range` says, or its beginning: 4 MiB at most, the rest by further ranges.
pub(crate) async fn send(files: &LogStore, location: &str, headers: &HeaderMap) -> Reply {
    let Some(length) = files.length(location).await? else {
        return Err(Failure::not_found("the log is no longer kept"));
    };
    if length == 0 {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let asked = headers.get(RANGE).and_then(|value| value.to_str().ok());
    let range = match asked.map(|text| range(text, length)) {
        None => None,
        Some(Some(range)) => Some(range),
        Some(None) => {
            let all = format!("bytes */{length}");
            return Ok((StatusCode::RANGE_NOT_SATISFIABLE, [(CONTENT_RANGE, all)]).into_response());
        }
    };
    let (from, to) = range.unwrap_or((0, length - 1));
    let bytes = files.read(location, from, to - from + 1).await?.unwrap_or_default();
    let end = from + bytes.len() as u64;
    let response: Response = if range.is_none() && end == length {
        ([(CONTENT_TYPE, TEXT), (ACCEPT_RANGES, "bytes")], bytes).into_response()
    } else {
        let part = format!("bytes {from}-{}/{length}", end.saturating_sub(1));
        (StatusCode::PARTIAL_CONTENT, [(CONTENT_TYPE, TEXT.to_owned()), (CONTENT_RANGE, part)], bytes)
            .into_response()
    };
    Ok(response)
}

/// Reads `bytes=FROM-TO`, `bytes=FROM-` or `bytes=-LAST`; `None` where there is nothing of it.
fn range(text: &str, length: u64) -> Option<(u64, u64)> {
    let (from, to) = text.strip_prefix("bytes=")?.split_once('-')?;
    let (from, to) = match (from.is_empty(), to.is_empty()) {
        (true, false) => (length.saturating_sub(to.parse().ok()?), length - 1),
        (false, true) => (from.parse().ok()?, length - 1),
        (false, false) => (from.parse().ok()?, to.parse::<u64>().ok()?.min(length - 1)),
        (true, true) => return None,
    };
    (from <= to && from < length).then(|| (from, to.min(from + MAX_READ - 1)))
}

/// What is looked for.
#[derive(Debug, Deserialize)]
pub(crate) struct SearchQuery {
    text: String,
    #[serde(default)]
    from: u64,
    #[serde(default)]
    limit: usize,
}

pub(crate) async fn search(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((namespace, pod_uid, container)): Path<(String, String, String)>,
    Query(query): Query<SearchQuery>,
) -> Reply {
    if query.text.is_empty() || query.text.len() > 1024 {
        return Err(Failure::bad_request("text: 1 to 1024 bytes are wanted"));
    }
    let (files, record) = find(&app, &caller, &namespace, &pod_uid, &container).await?;
    // A search reads much.
    let _place = app.streams.take(&caller)?;
    let limit = if query.limit == 0 { 100 } else { query.limit.min(MAX_MATCHES) };
    let found = files.search(&record.location, &query.text, query.from, limit).await?;
    Ok(json(&serde_json::json!({"items": found})))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_within_the_log() {
        for (text, expected) in [
            ("bytes=0-9", Some((0, 9))),
            ("bytes=90-", Some((90, 99))),
            ("bytes=-10", Some((90, 99))),
            ("bytes=50-999", Some((50, 99))),
            ("bytes=100-", None),
            ("bytes=9-5", None),
            ("bytes=-", None),
            ("lines=1-2", None),
            ("bytes=-500", Some((0, 99))),
        ] {
            assert_eq!(range(text, 100), expected, "{text}");
        }
    }
}
