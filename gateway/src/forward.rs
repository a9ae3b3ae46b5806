//! Requests for the Kubernetes API, sent as the session's user: `/console/api/k8s/...`.
//!
//! What comes back can be anything that a user put there, so no answer can be a page: its type is one that browsers do not
//! run, and its policy is a sandbox.

use crate::{error::Failure, identity::Caller, pieces, reply::Reply, sessions::Session};
use bytes::Bytes;
use freehold_client::RawRequest;
use http::{HeaderMap, HeaderName, HeaderValue, header, request::Parts};
use std::borrow::Cow;

/// What a path may begin with: planes, and the API of the platform.
const ROOTS: [&str; 11] = [
    "api",
    "apis",
    "openapi",
    "version",
    "livez",
    "readyz",
    "metrics",
    "debug",
    "organizations",
    "projects",
    "users",
];
/// Subresources that are connections.
const CONNECTS: [&str; 4] = ["proxy", "exec", "attach", "portforward"];
/// Longest path with its query.
const LONGEST_PATH: usize = 16 * 1024;
/// Headers of a request that reach the apiserver.
const REQUEST: [HeaderName; 4] =
    [header::ACCEPT, header::CONTENT_TYPE, header::IF_NONE_MATCH, HeaderName::from_static("audit-id")];
/// Headers of an answer that reach the browser.
const ANSWER: [HeaderName; 5] = [
    header::ETAG,
    header::RETRY_AFTER,
    header::WARNING,
    HeaderName::from_static("audit-id"),
    HeaderName::from_static("x-kubernetes-pf-flowschema-uid"),
];
/// Media types that a browser shows as data.
const DATA: [&str; 5] = [
    "application/json",
    "application/yaml",
    "text/plain",
    "application/openmetrics-text",
    "application/vnd.freehold.archive",
];

/// Checks a path with its query: it has to name something of the API, plainly, whose answer is no connection and no watch.
pub(crate) fn path(text: &str) -> Result<&str, Failure> {
    let query = text.split_once('?').map_or("", |(_, query)| query);
    let segments = plain(text)?;
    let of = ["pods", "services", "nodes"];
    if segments.windows(3).any(|w| of.contains(&&*w[0]) && CONNECTS.contains(&&*w[2])) {
        return Err(Failure::forbidden("the gateway connects to Pods by /console/api/exec alone"));
    }
    let watches = query.split('&').any(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, "true"));
        decoded(name).is_none_or(|name| name == "watch") && !matches!(value, "false" | "0" | "")
    });
    if watches || segments.iter().any(|segment| segment == "watch") {
        return Err(Failure::bad_request("watches go through the stream: see /console/api/watch"));
    }
    Ok(text)
}

/// The segments of a path that names something of the API, plainly; as the server reads them, which is decoded.
pub(crate) fn plain(text: &str) -> Result<Vec<Cow<'_, str>>, Failure> {
    let path = text.split('?').next().unwrap_or_default();
    let is_plain =
        text.len() <= LONGEST_PATH && text.bytes().all(|b| b.is_ascii_graphic()) && !text.contains('#');
    let segments: Option<Vec<Cow<'_, str>>> = path.split('/').map(decoded).collect();
    let odd = |segment: &Cow<'_, str>| {
        matches!(&**segment, "" | "." | "..")
            || segment.contains(['/', '\\', '%'])
            || segment.contains(char::is_control)
    };
    let segments = segments.filter(|all| is_plain && all[0].is_empty() && !all.iter().skip(1).any(odd));
    let segments = segments.ok_or_else(|| Failure::bad_request("the path of the request is not plain"))?;
    if !segments.get(1).is_some_and(|root| ROOTS.contains(&&**root)) {
        return Err(Failure::not_found());
    }
    Ok(segments)
}

/// Text without percent-encoding; `None` where that is malformed or no UTF-8.
fn decoded(text: &str) -> Option<Cow<'_, str>> {
    let digits = |pair: &str| pair.bytes().all(|b| b.is_ascii_hexdigit());
    let well = text.split('%').skip(1).all(|after| after.get(..2).is_some_and(digits));
    if !well {
        return None;
    }
    percent_encoding::percent_decode_str(text).decode_utf8().ok()
}

/// Sends a request as `caller` and returns the apiserver's answer. The session has places for large answers and for logs.
pub(crate) async fn forward(
    caller: &Caller,
    parts: &Parts,
    target: &str,
    body: Bytes,
    session: &Session,
) -> Result<Reply, Failure> {
    let mut request = RawRequest::new(parts.method.clone(), path(target)?);
    request.body = body;
    copy(&REQUEST, &parts.headers, &mut request.headers);
    if follows(target) {
        let place = pieces::place(&session.logs, "logs")?;
        let lines = caller.open(request).await?.into_stream();
        return Ok(pieces::follow(lines, place, session.ended.clone()));
    }
    let (status, headers, download) = caller.forward(request).await?;
    let mut reply = pieces::reply(download.into_stream(), data_type(&headers), &session.large).await?;
    *reply.status_mut() = status;
    copy(&ANSWER, &headers, reply.headers_mut());
    Ok(reply)
}

/// Whether an answer goes on: the log of a Pod that is followed.
fn follows(target: &str) -> bool {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let segments: Vec<&str> = path.split('/').collect();
    matches!(segments[..], [.., "namespaces", _, "pods", _, "log"])
        && query.split('&').any(|pair| pair == "follow=true")
}

fn copy(names: &[HeaderName], from: &HeaderMap, to: &mut HeaderMap) {
    for name in names {
        for value in from.get_all(name) {
            to.append(name.clone(), value.clone());
        }
    }
}

fn data_type(headers: &HeaderMap) -> HeaderValue {
    let told = headers.get(header::CONTENT_TYPE);
    let is_data = told.and_then(|value| value.to_str().ok()).is_some_and(|text| {
        let media = text.split(';').next().unwrap_or_default().trim();
        DATA.contains(&media)
    });
    match told {
        Some(value) if is_data => value.clone(),
        _ => HeaderValue::from_static("application/octet-stream"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_log_of_a_pod_goes_on() {
        assert!(follows("/projects/web/api/v1/namespaces/a/pods/b/log?container=c&follow=true"));
        for ends in [
            "/projects/web/api/v1/namespaces/a/pods/b/log",
            "/api/v1/namespaces/a/configmaps/log?follow=true",
            "/api/v1/namespaces/log?follow=true",
            "/apis/x/v1/pods/log?follow=true",
        ] {
            assert!(!follows(ends), "{ends}");
        }
    }

    #[test]
    fn paths_name_the_api_and_nothing_else() {
        for good in [
            "/api/v1/namespaces?limit=5",
            "/projects/web/apis/apps/v1/deployments",
            "/organizations/acme/apis/audit.k8s.io/v1/events?since=2026-01-01T00:00:00Z",
            "/projects/web/api/v1/namespaces/proxy/pods",
            "/api/v1/pods?watch=false",
            "/projects/web/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
        ] {
            assert!(path(good).is_ok(), "{good}");
        }
        for bad in [
            "/console/api/session",
            "/projects/../console/api/session",
            "/projects/%2e%2E/console",
            "/projects//web",
            "api/v1",
            "/api/v1/a b",
            "/api/v1/namespaces/x/services/y/proxy/index.html",
            "/api/v1/nodes/n/proxy",
            "/api/v1/namespaces/x/pods/y/exec?command=sh",
            "/api/v1/pods?watch=1",
            "/api/v1/pods?watch",
            "/api/v1/watch/pods",
            "/etcdserverpb.KV/Range",
            "/planes/core/api",
            "/api/v1/nodes/n/%70roxy",
            "/projects/web/api/v1/namespaces/x/pods/y/%65xec?command=sh",
            "/api/v1/%77atch/pods",
            "/api/v1/pods?%77atch=true",
            "/api/v1/pods?w%61tch",
            "/api/v1/namespaces/a%2Fb",
            "/api/v1/namespaces/a%252Fb",
            "/api/v1/namespaces/a%zz",
            "/api/v1/namespaces/a%ff",
            "/",
            "",
        ] {
            assert!(path(bad).is_err(), "{bad}");
        }
    }
}
