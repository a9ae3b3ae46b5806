//! The span of a request that is traced.
//!
//! A client's trace goes on here, but whether it is recorded is this server's to say: only a core server in front of a pair is
//! believed.

use crate::{host::Connection, info::RequestInfo, respond};
use freehold_telemetry::{Span, TRACEPARENT, is_enabled, request};
use http::{StatusCode, request::Parts};

/// Begins the span of a request, if tracing is on and the request is among those that are traced.
pub(crate) fn begin(connection: &Connection, parts: &Parts) -> Option<Span> {
    if !is_enabled() {
        return None;
    }
    let trusted = matches!(&connection.peer, Ok(Some(peer)) if peer.is_front_proxy());
    request(parts.method.as_str(), parts.headers.get(TRACEPARENT), trusted)
}

/// Says what a request was about, and how it ended.
pub(crate) fn describe(span: &mut Span, parts: &Parts, info: Option<&RequestInfo>, status: StatusCode) {
    if let Some(info) = info {
        let resource = info.resource.as_ref().map_or("", |resource| resource.resource.as_str());
        span.rename(format!("{} {resource}", info.verb).trim_end());
    }
    span.attribute("http.request.method", parts.method.as_str());
    span.attribute("url.path", parts.uri.path());
    span.attribute("http.response.status_code", status.as_str());
    if let Some(id) = parts.headers.get(respond::AUDIT_ID).and_then(|id| id.to_str().ok()) {
        span.attribute("freehold.audit_id", id);
    }
    if status.is_server_error() {
        span.fail(status.as_str());
    }
}
