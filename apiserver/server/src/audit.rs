//! What the audit log is told of a request, and when.

use crate::{
    backend::Owner,
    host::Connection,
    info::{RequestInfo, ResourcePath},
    negotiate::Format,
    read,
    respond::Reply,
    secure::Identity,
    sources,
};
use crate::{edge::Edge, trace::Trace};
use freehold_apiserver_audit::{Auditor, Begin, MAX_OBJECT, Record, Response, Stage, Subject, Trailed};
use freehold_apiserver_authz::Decision;
use freehold_apiserver_planes::{Consumers, Target};
use freehold_apiserver_registry::{Annotations, Patch};
use freehold_apiserver_transport::payload::Payload;
use freehold_machinery::{Status, User, Value};
use http::{header, request::Parts};
use std::sync::{Arc, LazyLock, OnceLock};

/// Parameters of URLs that some clients put tokens in.
const TOKENS: [&str; 2] = ["access_token", "token"];

/// What was learned of a request for the audit log. If it is dropped before the answer is there, the client went away.
pub(crate) struct Recording {
    record: OnceLock<Arc<Record>>,
    pub(crate) annotations: Annotations,
    received: i64,
    /// Who the request is treated as and by which constraint, where that is not its author.
    treated: OnceLock<(Arc<User>, &'static str)>,
}

impl Default for Recording {
    fn default() -> Self {
        let received = jiff::Timestamp::now().as_microsecond();
        let (record, treated) = Default::default();
        Self { record, annotations: Annotations::default(), received, treated }
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
pub(crate) struct Origin<'a> {
    pub(crate) edge: &'a Arc<Edge>,
    pub(crate) info: &'a RequestInfo,
    pub(crate) connection: &'a Connection,
}

impl Origin<'_> {
    /// What the audit log is told of it.
    pub(crate) fn asked<'b>(
        &'b self,
        target: &'b Target,
        parts: &'b Parts,
        user: Option<&'b User>,
    ) -> Asked<'b> {
        let Self { edge, info, connection } = *self;
        Asked { edge, info, connection, target, parts, user }
    }
}

/// A request on its way, and its author.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) edge: &'a Edge,
    pub(crate) info: &'a RequestInfo,
    pub(crate) connection: &'a Connection,
    pub(crate) target: &'a Target,
    pub(crate) parts: &'a Parts,
    /// `None` where nobody was believed.
    pub(crate) user: Option<&'a User>,
}

impl Asked<'_> {
    fn subject(&self) -> Subject<'_> {
        static NONE: LazyLock<ResourcePath> = LazyLock::new(ResourcePath::default);
        let resource = self.info.resource.as_ref().unwrap_or(&NONE);
        Subject {
            user: self.user,
            verb: &self.info.verb,
            group: &resource.group,
            version: &resource.version,
            resource: &resource.resource,
            subresource: resource.subresource.as_deref().unwrap_or(""),
            namespace: resource.namespace.as_deref().unwrap_or(""),
            name: resource.name.as_deref().unwrap_or(""),
            path: &self.info.path,
        }
    }

    /// What an organization's trail wants of it.
    async fn trailed(&self, owner: &Owner, refused: bool) -> Option<Trailed> {
        let wanted = self.edge.auditor.as_ref()?.trail_wants(&self.subject(), refused)?;
        let organization = owner.organization.as_deref()?;
        let (uid, standing) = self.edge.backend.standing(organization, self.target, self.user).await?;
        Some(Trailed::new(wanted, uid, standing))
    }

    /// Begins a record with `start`, which is given what the auditor takes.
    fn record(
        &self,
        received: i64,
        owner: &Owner,
        start: impl FnOnce(&Arc<Auditor>, Begin<'_>) -> Option<Arc<Record>>,
    ) -> Option<Arc<Record>> {
        let text =
            |name| self.parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let begin = Begin {
            audit_id: text(crate::respond::AUDIT_ID),
            uri: &uri(self.parts),
            source_ips: sources::all(&self.parts.headers, self.connection.remote),
            user_agent: text(header::USER_AGENT),
            subject: self.subject(),
            plane: match self.target {
                Target::Local(plane) => Some(plane),
                Target::Dedicated(pair) => Some(&pair.plane),
                Target::Provider(scope) => match &scope.consumers {
                    Consumers::One(plane) => Some(plane),
                    _ => Some(&scope.plane),
                },
                _ => None,
            },
            organization: owner.organization.as_deref(),
            project: owner.project.as_deref(),
            received,
        };
        start(self.edge.auditor.as_ref()?, begin)
    }

    fn owner(&self) -> Owner {
        self.edge.backend.owner(self.target, &self.subject())
    }
}

impl Recording {
    /// Makes the first event. 500 where it had to be kept and was not.
    pub(crate) async fn begin(&self, asked: &Asked<'_>) -> Result<(), Status> {
        if asked.edge.auditor.is_none() {
            return Ok(());
        }
        let owner = asked.owner();
        let trailed = asked.trailed(&owner, false).await;
        let Some(record) =
            asked.record(self.received, &owner, |auditor, begin| auditor.begin(begin, trailed))
        else {
            return Ok(());
        };
        let record = self.record.get_or_init(|| record);
        match record.stage(Stage::RequestReceived).await {
            true => Ok(()),
            false => Err(Status::internal("failed to store audit event")),
        }
    }

    /// The one event of a request whose author is not believed.
    pub(crate) async fn unauthenticated(&self, asked: &Asked<'_>) {
        if asked.edge.auditor.is_none() {
            return;
        }
        let owner = asked.owner();
        let trailed = asked.trailed(&owner, true).await;
        let record = asked.record(self.received, &owner, |auditor, begin| auditor.begin(begin, trailed));
        let Some(record) = record else { return };
        let mut status = Status::new(401, "", attempted(asked.parts, &asked.connection.peer));
        status.status = String::new();
        record.response(Response { code: 401, status: Some(status), object: None });
        record.stage(Stage::ResponseStarted).await;
    }

    /// A request that was not allowed: the organization that it is for is told of those that its trail does not have
    /// otherwise.
    pub(crate) async fn refused(&self, asked: &Asked<'_>) {
        if asked.edge.auditor.is_none() || self.record.get().is_some_and(|record| record.is_trailed()) {
            return;
        }
        let owner = asked.owner();
        self.trail(asked, &owner, true).await;
    }

    /// The object that a request makes says whose it is, where its path does not.
    pub(crate) async fn made(&self, asked: &Asked<'_>, object: &Value) {
        if asked.edge.auditor.is_none() || self.record.get().is_some_and(|record| record.is_trailed()) {
            return;
        }
        if let Some(organization) = asked.edge.backend.owner_of(asked.target, &asked.subject(), object) {
            let owner = Owner { organization: Some(organization), project: None };
            self.trail(asked, &owner, false).await;
        }
    }

    /// Has an organization's trail have the request from here on.
    async fn trail(&self, asked: &Asked<'_>, owner: &Owner, refused: bool) {
        let Some(trailed) = asked.trailed(owner, refused).await else { return };
        if let Some(record) = self.record.get() {
            return record.trail(trailed);
        }
        let late = asked.record(self.received, owner, |auditor, begin| auditor.begin_late(begin, trailed));
        let Some(record) = late else { return };
        if let Some((user, constraint)) = self.treated.get() {
            record.impersonated(user, constraint);
        }
        let _ = self.record.set(record);
    }

    /// Who the request is treated as, where that is somebody else.
    pub(crate) fn impersonated(&self, asker: &Arc<User>, user: &Arc<User>, constraint: &'static str) {
        if Arc::ptr_eq(asker, user) {
            return;
        }
        if let Some(record) = self.record.get() {
            record.impersonated(user, constraint);
        }
        // There is one identity that a request can ask for.
        let _ = self.treated.set((user.clone(), constraint));
    }

    /// The answer of the pair of a dedicated project, which judges for itself.
    pub(crate) async fn judged(&self, asked: &Asked<'_>, code: u16) {
        match self.record.get() {
            Some(record) if code < 400 => record.allowed(),
            _ if matches!(code, 401 | 403) => self.refused(asked).await,
            _ => {}
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
}
