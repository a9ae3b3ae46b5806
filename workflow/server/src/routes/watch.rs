//! Changes of runs as server-sent events, watched in the caller's name.

use crate::app::App;
use crate::caller::Caller;
use crate::reply::Reply;
use crate::streams::LONGEST;
use crate::upstream::{RUNS, with_query};
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::response::IntoResponse as _;
use bytes::{Bytes, BytesMut};
use freehold_machinery::Value;
use futures_util::{Stream, StreamExt as _, stream};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;

/// The longest event.
const MAX_EVENT: usize = 2 << 20;
/// A comment is sent after so long a silence, so that proxies keep the connection.
const SILENCE: Duration = Duration::from_secs(15);

/// From where.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct WatchQuery {
    resource_version: String,
    label_selector: String,
}

pub(crate) async fn all(
    State(app): State<Arc<App>>,
    caller: Caller,
    Query(query): Query<WatchQuery>,
) -> Reply {
    watch(&app, &caller, None, &query).await
}

pub(crate) async fn namespace(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(namespace): Path<String>,
    Query(query): Query<WatchQuery>,
) -> Reply {
    watch(&app, &caller, Some(&namespace), &query).await
}

async fn watch(app: &App, caller: &Caller, namespace: Option<&str>, query: &WatchQuery) -> Reply {
    let place = app.streams.take(caller)?;
    let path = with_query(
        RUNS.collection_path(namespace),
        &[
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", &query.resource_version),
            ("labelSelector", &query.label_selector),
        ],
    );
    let upstream = app.stream(caller, path).await?.into_stream();
    let events = events(upstream.boxed()).take_until(tokio::time::sleep(LONGEST)).map(move |event| {
        let _ = &place;
        event
    });
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    Ok((headers, Body::from_stream(events)).into_response())
}

type Chunks = stream::BoxStream<'static, freehold_client::Result<Bytes>>;

/// Turns lines of a watch into events.
fn events(upstream: Chunks) -> impl Stream<Item = Result<Bytes, freehold_client::Error>> + Send {
    let begun = stream::once(async { Ok(Bytes::from_static(b": watching\n\n")) });
    begun.chain(stream::unfold(Some((upstream, BytesMut::new())), |state| async {
        let (mut upstream, mut buffer) = state?;
        loop {
            if let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line = buffer.split_to(end + 1);
                if let Some(event) = event(&line) {
                    return Some((Ok(event), Some((upstream, buffer))));
                }
                continue;
            }
            match tokio::time::timeout(SILENCE, upstream.next()).await {
                Err(_) => {
                    return Some((Ok(Bytes::from_static(b": still here\n\n")), Some((upstream, buffer))));
                }
                Ok(Some(Ok(chunk))) if buffer.len() + chunk.len() <= MAX_EVENT => {
                    buffer.extend_from_slice(&chunk)
                }
                Ok(Some(Ok(_))) => return Some((Err(freehold_client::Error::TooLarge(MAX_EVENT)), None)),
                Ok(Some(Err(error))) => return Some((Err(error), None)),
                Ok(None) => return None,
            }
        }
    }))
}

/// One event: its type, the version to go on from as its id, and the run without what the controller alone reads.
fn event(line: &[u8]) -> Option<Bytes> {
    let mut event: Value = serde_json::from_slice(line).ok()?;
    let kind = event["type"].as_str()?.to_lowercase();
    let mut run = event["object"].take();
    if let Some(status) = run["status"].as_object_mut() {
        status.remove("state");
    }
    if let Some(metadata) = run["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    let version = run["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    Some(Bytes::from(format!("event: {kind}\nid: {version}\ndata: {run}\n\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_that_come_in_pieces_become_events() {
        let pieces = [
            &b"{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"res"[..],
            b"ourceVersion\":\"5\"},\"status\":{\"state\":1,\"phase\":\"Running\"}}}\n{\"ty",
        ];
        let upstream = stream::iter(pieces.map(|piece| Ok(Bytes::from_static(piece)))).boxed();
        let events: Vec<String> =
            events(upstream).map(|event| String::from_utf8(event.unwrap().to_vec()).unwrap()).collect().await;
        assert_eq!(events.len(), 2);
        assert_eq!(
            events[1],
            "event: added\nid: 5\ndata: {\"metadata\":{\"resourceVersion\":\"5\"},\"status\":{\"phase\":\"Running\"}}\n\n"
        );
    }
}
