//! The JSON of an audit event.

use crate::{Address, Level};
use bytes::Bytes;
use freehold_machinery::{Status, User, Value, go};
use serde::{Deserialize, Serialize, Serializer};
use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    sync::Arc,
};

/// When in a request's life an event is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// Its author is known; nothing was done yet.
    RequestReceived,
    /// The head of the answer is out and the body will take long: watches, logs.
    ResponseStarted,
    /// The answer is there.
    ResponseComplete,
    /// Serving it failed because of a bug.
    Panic,
}

impl Stage {
    pub(crate) fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A user, as events have one.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct UserInfo {
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) username: Box<str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: Box<str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    groups: Box<[String]>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    extra: BTreeMap<String, Vec<String>>,
}

impl From<&User> for UserInfo {
    fn from(user: &User) -> Self {
        Self {
            username: user.name.as_str().into(),
            uid: user.uid.as_str().into(),
            groups: user.groups.as_slice().into(),
            extra: user.extra.clone(),
        }
    }
}

/// How the request's identity was found out.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AuthenticationMetadata {
    pub(crate) impersonation_constraint: String,
}

/// What a request was about.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)]
pub struct ObjectReference {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
}

/// The bounded part of an answer.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct ResponseStatus {
    metadata: Empty,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) status: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) details: Option<Box<freehold_machinery::status::Details>>,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) code: u16,
}

#[derive(Clone, Debug, Default, Serialize)]
struct Empty {}

fn shared<S: Serializer>(value: &Option<Arc<Value>>, to: S) -> Result<S::Ok, S::Error> {
    value.as_deref().serialize(to)
}

fn is_zero(code: &u16) -> bool {
    *code == 0
}

impl From<&Status> for ResponseStatus {
    fn from(status: &Status) -> Self {
        Self {
            metadata: Empty {},
            status: status.status.clone(),
            message: status.message.clone(),
            reason: status.reason.clone(),
            details: status.details.clone(),
            code: status.code,
        }
    }
}

/// Microseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Micros(pub(crate) i64);

impl Micros {
    pub(crate) fn now() -> Self {
        Self(jiff::Timestamp::now().as_microsecond())
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(time) => write!(f, "{time:.6}"),
            Err(_) => f.write_str("0001-01-01T00:00:00.000000Z"),
        }
    }
}

impl Serialize for Micros {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// An event of `audit.k8s.io/v1`, fields in Kubernetes' order.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    pub(crate) kind: &'static str,
    pub(crate) api_version: &'static str,
    pub(crate) level: Level,
    #[serde(rename = "auditID")]
    pub(crate) audit_id: String,
    pub(crate) stage: Stage,
    #[serde(rename = "requestURI")]
    pub(crate) request_uri: String,
    pub(crate) verb: String,
    pub(crate) user: UserInfo,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) impersonated_user: Option<UserInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) authentication_metadata: Option<AuthenticationMetadata>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "Vec::is_empty")]
    pub(crate) source_ips: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) user_agent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) object_ref: Option<ObjectReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) response_status: Option<ResponseStatus>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "shared")]
    pub(crate) request_object: Option<Arc<Value>>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "shared")]
    pub(crate) response_object: Option<Arc<Value>>,
    pub(crate) request_received_timestamp: Micros,
    pub(crate) stage_timestamp: Micros,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
}

/// An event, encoded once for all sinks.
#[derive(Clone, Debug)]
pub struct Written {
    /// JSON, without a newline.
    pub json: Bytes,
    /// The one-line text form of it, where a sink wants that.
    pub line: Option<Box<str>>,
    /// Where it is kept for an organization; `None` for what is not.
    pub address: Option<Address>,
}

impl Event {
    /// Encodes it.
    pub(crate) fn written(&self, legacy: bool) -> Written {
        // Nothing in it can fail: keys are strings.
        let json = serde_json::to_vec(self).unwrap_or_default();
        Written { json: json.into(), line: legacy.then(|| legacy_line(self).into()), address: None }
    }
}

/// The text form of an event (`--audit-log-format=legacy`).
pub fn legacy_line(event: &Event) -> String {
    let quoted = |items: &[String]| items.iter().map(|item| go::quote(item)).collect::<Vec<_>>().join(",");
    let or = |text: &str, other: &str| if text.is_empty() { other.to_owned() } else { text.to_owned() };
    let user = &event.user;
    let groups = match user.groups.is_empty() || user.username.is_empty() {
        true => "<none>".to_owned(),
        false => quoted(&user.groups),
    };
    let (as_user, as_groups) = match &event.impersonated_user {
        None => ("<self>".to_owned(), "<lookup>".to_owned()),
        Some(other) => (other.username.to_string(), quoted(&other.groups)),
    };
    let namespace = event.object_ref.as_ref().map_or("", |object| &object.namespace);
    let code = event.response_status.as_ref().map_or_else(|| "<deferred>".to_owned(), |s| s.code.to_string());
    let ip = event.source_ips.first().map_or("<unknown>", String::as_str);
    let mut line = format!("{} AUDIT:", event.request_received_timestamp);
    let fields = [
        ("id", event.audit_id.as_str()),
        ("stage", &format!("{:?}", event.stage)),
        ("ip", ip),
        ("method", &event.verb),
        ("user", &or(&user.username, "<none>")),
        ("groups", &groups),
        ("as", &as_user),
        ("asgroups", &as_groups),
        ("user-agent", &event.user_agent),
        ("namespace", &or(namespace, "<none>")),
        ("uri", &event.request_uri),
    ];
    for (name, value) in fields {
        // Writing to a String can't fail.
        let _ = write!(line, " {name}={}", go::quote(value));
    }
    let _ = write!(line, " response=\"{code}\"");
    line
}
