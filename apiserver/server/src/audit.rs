//! What the audit log is told of a request, and when.

use crate::{
    filters::{Edge, Trace},
    identity::Identity,
    info::{RequestInfo, ResourcePath},
    negotiate::Format,
    payload::Payload,
    read,
    respond::Reply,
};
use freehold_apiserver_audit::{Begin, MAX_OBJECT, Record, Response, Stage, Subject};
use freehold_apiserver_authz::Decision;
use freehold_apiserver_planes::Target;
use freehold_apiserver_registry::{Annotations, Patch};
use freehold_machinery::{Status, User, Value};
use http::{header, request::Parts};
use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, OnceLock},
};

/// Addresses of proxies that a client may name.
const MAX_PROXIES: usize = 16;
/// Parameters of URLs that some clients put tokens in.
const TOKENS: [&str; 2] = ["access_token", "token"];

/// What was learned of a request for the audit log. If it is dropped before the answer is there, the client went away.
pub(crate) struct Recording {
    record: OnceLock<Arc<Record>>,
    pub(crate) annotations: Annotations,
    received: i64,
}

impl Default for Recording {
    fn default() -> Self {
        let received = jiff::Timestamp::now().as_microsecond();
        Self { record: OnceLock::new(), annotations: Annotations::default(), received }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if let Some(record) = self.record.take() {
            let mut status = Status::new(200, "", "Connection closed early");
            status.status = "Success".to_owned();
            record.response(Response { code: 200, status: Some(status), object: None });
            record.end();
        }
    }
}

/// A request on its way.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) edge: &'a Edge,
    pub(crate) info: &'a RequestInfo,
    pub(crate) remote: SocketAddr,
}

impl Asked<'_> {
    fn record(
        &self,
        target: &Target,
        parts: &Parts,
        user: Option<&User>,
        (received, refused): (i64, bool),
    ) -> Option<Arc<Record>> {
        let auditor = self.edge.auditor.as_ref()?;
        let empty = ResourcePath::default();
        let resource = self.info.resource.as_ref().unwrap_or(&empty);
        let subject = Subject {
            user,
            verb: &self.info.verb,
            group: &resource.group,
            version: &resource.version,
            resource: &resource.resource,
            subresource: resource.subresource.as_deref().unwrap_or(""),
            namespace: resource.namespace.as_deref().unwrap_or(""),
            name: resource.name.as_deref().unwrap_or(""),
            path: &self.info.path,
        };
        let owner = self.edge.backend.owner(target);
        let text = |name| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        auditor.begin(Begin {
            audit_id: text(crate::respond::AUDIT_ID),
            uri: &uri(parts),
            source_ips: sources(parts, self.remote),
            user_agent: text(header::USER_AGENT),
            subject,
            plane: match target {
                Target::Local(plane) => Some(plane),
                Target::Dedicated(pair) => Some(&pair.plane),
                _ => None,
            },
            organization: owner.organization.as_deref(),
            project: owner.project.as_deref(),
            received,
            refused,
        })
    }
}

impl Recording {
    /// Makes the first event. 500 where it had to be kept and was not.
    pub(crate) async fn begin(
        &self,
        asked: &Asked<'_>,
        target: &Target,
        parts: &Parts,
        user: &User,
    ) -> Result<(), Status> {
        let Some(record) = asked.record(target, parts, Some(user), (self.received, false)) else {
            return Ok(());
        };
        let record = self.record.get_or_init(|| record);
        match record.stage(Stage::RequestReceived).await {
            true => Ok(()),
            false => Err(Status::internal("failed to store audit event")),
        }
    }

    /// The one event of a request whose author is not believed.
    pub(crate) async fn unauthenticated(
        &self,
        asked: &Asked<'_>,
        target: &Target,
        parts: &Parts,
        peer: &Identity,
    ) {
        let Some(record) = asked.record(target, parts, None, (self.received, true)) else { return };
        let mut status = Status::new(401, "", attempted(parts, peer));
        status.status = String::new();
        record.response(Response { code: 401, status: Some(status), object: None });
        record.stage(Stage::ResponseStarted).await;
    }

    /// A request that was not allowed: whoever wants to know of refusals alone does from here on.
    pub(crate) fn refused(&self, asked: &Asked<'_>, target: &Target, parts: &Parts, user: &User) {
        if self.record.get().is_none()
            && let Some(record) = asked.record(target, parts, Some(user), (self.received, true))
        {
            let _ = self.record.set(record);
        }
    }

    /// Who the request is treated as, where that is somebody else.
    pub(crate) fn impersonated(&self, asker: &Arc<User>, user: &Arc<User>, constraint: &str) {
        if let Some(record) = self.record.get().filter(|_| !Arc::ptr_eq(asker, user)) {
            record.impersonated(user, constraint);
        }
    }

    /// Whether it was allowed.
    pub(crate) fn decided(&self, decision: &Decision) {
        if let Some(record) = self.record.get() {
            record.decided(decision.allowed, &decision.reason);
        }
    }

    /// The object that was sent.
    pub(crate) fn request(&self, object: &Value, bytes: usize) {
        if let Some(record) = self.record.get() {
            record.request(object, bytes);
        }
    }

    /// The patch that was sent.
    pub(crate) fn patch(&self, patch: &Patch, bytes: usize) {
        match patch {
            Patch::Json(body) | Patch::Merge(body) | Patch::Strategic(body) | Patch::Apply(body) => {
                self.patch_value(&body.value, bytes);
            }
        }
    }

    /// What was sent that is no object of the resource.
    pub(crate) fn patch_value(&self, value: &Value, bytes: usize) {
        if let Some(record) = self.record.get() {
            record.patch(value, bytes);
        }
    }
}

/// Makes the events of an answer. Those of a stream end with it.
pub(crate) async fn finish(trace: &mut Trace, panicked: bool, reply: Reply) -> Reply {
    let Some(record) = trace.recording.record.take() else { return reply };
    for (key, value) in trace.recording.annotations.all() {
        record.annotate(&key, &value);
    }
    let deletes = trace.info.as_ref().is_some_and(|info| info.verb.starts_with("delete"));
    record.response(response(&record, deletes, &reply));
    if panicked {
        record.stage(Stage::Panic).await;
        return reply;
    }
    if trace.info.as_ref().is_some_and(RequestInfo::is_long_running) {
        record.stage(Stage::ResponseStarted).await;
        if reply.body().is_stream() {
            let ends = Ends(Some(record));
            return reply.map(|body| body.keeping(ends));
        }
    }
    record.stage(Stage::ResponseComplete).await;
    reply
}

/// Makes the last event when it is dropped.
struct Ends(Option<Arc<Record>>);

impl Drop for Ends {
    fn drop(&mut self) {
        if let Some(record) = self.0.take() {
            record.end();
        }
    }
}

/// What is told of an answer. Only failures, deletes and what is wanted whole are read.
fn response(record: &Record, deletes: bool, reply: &Reply) -> Response {
    let code = reply.status().as_u16();
    let wanted = record.wants_response();
    if code < 400 && !deletes && !wanted {
        return Response { code, ..Response::default() };
    }
    let body = body(reply);
    if body.is_none() && wanted && matches!(reply.body(), Payload::Full(_) | Payload::Pieces(_)) {
        record.truncated();
    }
    let status = body.as_ref().filter(|body| body["kind"] == "Status");
    let status = status.and_then(|body| serde_json::from_value(body.clone()).ok());
    Response { code, status, object: body.filter(|_| wanted) }
}

fn body(reply: &Reply) -> Option<Value> {
    let media_type = reply.headers().get(header::CONTENT_TYPE)?.to_str().ok()?;
    let format = match media_type.split(';').next().unwrap_or_default() {
        "application/json" => Format::Json,
        "application/yaml" => Format::Yaml,
        freehold_machinery_protobuf::MEDIA_TYPE => Format::Protobuf,
        _ => return None,
    };
    let bytes = reply.body().whole(MAX_OBJECT)?;
    read::decode(&bytes, format).ok().map(|body| body.value)
}

/// Path and query as they were sent, without tokens.
fn uri(parts: &Parts) -> String {
    let path = parts.uri.path();
    let Some(query) = parts.uri.query() else { return path.to_owned() };
    let shown = query.split('&').map(|pair| match pair.split_once('=') {
        Some((key, _)) if TOKENS.contains(&key.to_ascii_lowercase().as_str()) => format!("{key}=redacted"),
        _ => pair.to_owned(),
    });
    format!("{path}?{}", shown.collect::<Vec<_>>().join("&"))
}

/// The addresses that a request came through: what proxies say, and the connection's own last. Only that one is known.
fn sources(parts: &Parts, remote: SocketAddr) -> Vec<String> {
    let values = |name: &str| {
        let all = parts.headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
        let all = all.flat_map(|value| value.split(',')).filter_map(|ip| ip.trim().parse::<IpAddr>().ok());
        all.take(MAX_PROXIES).collect::<Vec<_>>()
    };
    let mut found = values("x-forwarded-for");
    if let Some(real) = values("x-real-ip").first()
        && !found.contains(real)
    {
        found.push(*real);
    }
    let own = remote.ip().to_canonical();
    if found.last() != Some(&own) {
        found.push(own);
    }
    found.iter().map(IpAddr::to_string).collect()
}

/// How somebody tried to say who they are, in kube-apiserver's words.
fn attempted(parts: &Parts, peer: &Identity) -> String {
    let authorization = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let scheme = authorization.and_then(|value| value.trim().split_once(' ')).map(|(scheme, _)| scheme);
    let is = |name: &str| scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case(name));
    let certified = !matches!(peer, Ok(None));
    let tried = [("basic", is("basic")), ("bearer", is("bearer")), ("x509", certified)];
    let tried: Vec<&str> = tried.into_iter().filter(|(_, tried)| *tried).map(|(name, _)| name).collect();
    match tried.is_empty() {
        true => "Authentication failed, no credentials provided".to_owned(),
        false => format!("Authentication failed, attempted: {}", tried.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(uri: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = http::Request::get(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn tokens_in_urls_are_not_recorded() {
        let rows = [
            ("/api/v1/pods", "/api/v1/pods"),
            ("/api?a=b&access_token=x&c", "/api?a=b&access_token=redacted&c"),
            ("/api?Token=x", "/api?Token=redacted"),
        ];
        for (sent, expected) in rows {
            assert_eq!(uri(&parts(sent, &[])), expected);
        }
    }

    #[test]
    fn the_connection_is_the_last_source() {
        let remote = "127.0.0.1:5".parse().unwrap();
        let rows = [
            ("x-other", "10.0.0.1", "127.0.0.1"),
            ("x-forwarded-for", "10.0.0.1, nobody, 10.0.0.2", "10.0.0.1 10.0.0.2 127.0.0.1"),
            ("x-forwarded-for", "127.0.0.1", "127.0.0.1"),
            ("x-real-ip", "10.0.0.9", "10.0.0.9 127.0.0.1"),
        ];
        for (name, value, expected) in rows {
            assert_eq!(sources(&parts("/", &[(name, value)]), remote).join(" "), expected, "{name}: {value}");
        }
    }
}
