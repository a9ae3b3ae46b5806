//! The audit events of an organization, for its owner: `audit.k8s.io/v1` `events` in the organization's context, to be
//! listed and watched.
//!
//! A list is in pages of whole bundles, the oldest first: `continue` goes on, `since` (RFC 3339) begins later, `project`
//! leaves out what is about others. A watch gives what comes after `resourceVersion`.

use crate::{
    call::Call,
    respond::{self, Reply},
};
use bytes::Bytes;
use freehold_apiserver_planes::Target;
use freehold_apiserver_transport::{payload::Payload, pieces::Pieces};
use freehold_machinery::Status;
use futures_util::StreamExt;
use http::HeaderValue;
use serde::Deserialize;
use std::{borrow::Cow, collections::HashMap, time::Duration};

/// The group of audit events.
pub(crate) const GROUP: &str = "audit.k8s.io";
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Whether a request is about them.
pub(crate) fn is_asked(call: &Call<'_>) -> bool {
    let about = call.info.resource.as_ref();
    matches!(call.target, Target::Organization(_))
        && about.is_some_and(|r| (&*r.group, &*r.version, &*r.resource) == (GROUP, "v1", "events"))
}

/// Lists or watches.
pub(crate) async fn serve(call: &Call<'_>) -> Result<Reply, Status> {
    let named = call.info.resource.as_ref().is_some_and(|r| r.named || r.namespace.is_some());
    match call.info.verb.as_str() {
        _ if named => Err(Status::no_such_resource()),
        "list" => list(call).await,
        "watch" => watch(call).await,
        _ => Err(Status::no_such_method()),
    }
}

async fn list(call: &Call<'_>) -> Result<Reply, Status> {
    let since = match call.query.text("since") {
        "" => 0,
        text => {
            let time = text.parse::<jiff::Timestamp>();
            time.map_err(|_| Status::bad_request(format!("since: {text:?} is no RFC 3339 time")))?
                .as_microsecond()
        }
    };
    let from = call.query.text("continue");
    let page = call.edge.backend.audit_page(&call.target, from, since.max(0)).await?;
    let metadata = serde_json::json!({"resourceVersion": page.revision.to_string(), "continue": page.next.unwrap_or_default()});
    let head =
        format!(r#"{{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{metadata},"items":["#);
    let mut pieces = vec![Bytes::from(head)];
    let project = call.query.text("project");
    for event in page.events.into_iter().filter(|event| is_of(project, event)) {
        if pieces.len() > 1 {
            pieces.push(Bytes::from_static(b","));
        }
        pieces.push(event);
    }
    pieces.push(Bytes::from_static(b"]}\n"));
    Ok(respond::reply(200, JSON, Payload::Pieces(Pieces::new(pieces))))
}

async fn watch(call: &Call<'_>) -> Result<Reply, Status> {
    let after = match call.query.text("resourceVersion") {
        "" | "0" => 0,
        text => {
            text.parse().map_err(|_| Status::bad_request(format!("invalid resource version {text:?}")))?
        }
    };
    let events = call.edge.backend.audit_watch(&call.target, after).await?;
    let project = call.query.text("project").to_owned();
    let time = match call.query.number("timeoutSeconds")? {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds.unsigned_abs()),
        _ => call.edge.limits.watch,
    };
    let stop = call.edge.stop.clone();
    let over = async move {
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            () = stop.cancelled() => {}
        }
    };
    let frames = events.map(move |bundle| match bundle {
        Ok(events) => {
            let lines = events
                .iter()
                .filter(|event| is_of(&project, event))
                .flat_map(|event| [&br#"{"type":"ADDED","object":"#[..], &event[..], &b"}\n"[..]]);
            Bytes::from(lines.collect::<Vec<_>>().concat())
        }
        Err(status) => Bytes::from(format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", status.to_json())),
    });
    // An empty frame would end the body.
    let frames = frames.filter(|frame| std::future::ready(!frame.is_empty())).take_until(over);
    Ok(respond::reply(200, JSON, Payload::stream(frames)))
}

/// Whether an event is about a project; about any, where none is named.
fn is_of(project: &str, event: &Bytes) -> bool {
    #[derive(Deserialize)]
    struct Annotated<'a> {
        #[serde(borrow, default)]
        annotations: HashMap<Cow<'a, str>, Cow<'a, str>>,
    }
    let named = |event: Annotated<'_>| {
        event.annotations.get(freehold_apiserver_audit::annotations::PROJECT).is_some_and(|p| *p == project)
    };
    project.is_empty() || serde_json::from_slice(event).is_ok_and(named)
}
