//! The one error of the API: `v1.Status`, as kube-apiserver answers it.
//!
//! Constructors carry the wording of `k8s.io/apimachinery/pkg/api/errors`, because clients and people read it.

use crate::{go, gvk::GroupResource};
use serde::{Deserialize, Serialize};
use std::{collections::HashSet, fmt, sync::Arc};

/// Bytes of problems after which the rest is only counted.
const MAX_TOLD: usize = 1 << 20;

/// A failure (or, for deletes, a success) as a client sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// `Failure` or `Success`.
    pub status: String,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// For programs: `NotFound`, `Conflict`, ...
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Box<Details>>,
    /// The HTTP status code.
    #[serde(default)]
    pub code: u16,
    /// With an expired continue token: one with which the list can go on, inconsistently.
    #[serde(default, rename = "metadata", deserialize_with = "continue_of", skip_serializing)]
    pub continue_token: Option<String>,
    /// What was found before the failure that is none itself: it goes into headers.
    #[serde(skip)]
    pub warnings: Option<Arc<Vec<String>>>,
}

/// Reads the one part of a status' metadata that says something.
fn continue_of<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    #[derive(Default, Deserialize)]
    struct Metadata {
        #[serde(rename = "continue")]
        token: Option<String>,
    }
    Ok(Option::<Metadata>::deserialize(from)?.unwrap_or_default().token)
}

/// What a [`Status`] is about.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Details {
    /// The object's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Its resource (or kind, for validation errors), as Kubernetes fills it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Its uid.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Each single problem.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// When to try again, in seconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// One problem of several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cause {
    /// `FieldValueInvalid`, `FieldManagerConflict`, ...
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The field's path, `spec.containers[0].name`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub field: String,
}

/// A problem with one field, in the words of `k8s.io/apimachinery/pkg/util/validation/field`.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// What is wrong.
    pub kind: FieldErrorKind,
    /// The field's path, `spec.containers[0].name`.
    pub field: String,
    /// The offending value as JSON; absent for `Required`, `Forbidden`, `TooMany` and the like.
    pub value: Option<serde_json::Value>,
    /// What would be right.
    pub detail: String,
    /// What the message shows in the place of the value: Kubernetes shows some as it has them internally.
    pub shown: Option<String>,
}

/// The kinds of [`FieldError`], named as Kubernetes' causes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldErrorKind {
    /// Must be given.
    Required,
    /// Is there already.
    Duplicate,
    /// Is not acceptable.
    Invalid,
    /// Is not one of the supported values.
    NotSupported,
    /// Must not be given.
    Forbidden,
    /// Is too long.
    TooLong,
    /// Has too many items.
    TooMany,
    /// Has the wrong JSON type.
    TypeInvalid,
    /// Names something that is not there.
    NotFound,
    /// Could not be checked.
    Internal,
}

impl FieldErrorKind {
    /// The cause's reason as Kubernetes spells it: `FieldValueRequired`.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::NotFound => "FieldValueNotFound",
            Self::Internal => "InternalError",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::NotFound => "Not found",
            Self::Internal => "Internal error",
        }
    }
}

impl FieldError {
    /// A problem without a value to show.
    pub fn new(kind: FieldErrorKind, field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { kind, field: field.into(), value: None, detail: detail.into(), shown: None }
    }

    /// An error for a required field that is missing.
    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Required, field, detail)
    }

    /// An error for a value that is not accepted, with the value in the message.
    pub fn invalid(field: impl Into<String>, value: serde_json::Value, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Invalid, field, detail).of(value)
    }

    /// An unacceptable value of which the message shows this.
    pub fn invalid_shown(field: impl Into<String>, shown: String, detail: impl Into<String>) -> Self {
        Self { shown: Some(shown), ..Self::new(FieldErrorKind::Invalid, field, detail) }
    }

    /// Adds the value that the message shows.
    #[must_use]
    pub fn of(self, value: serde_json::Value) -> Self {
        Self { value: Some(value), ..self }
    }

    /// A value outside a fixed set.
    pub fn not_supported(field: impl Into<String>, value: serde_json::Value, supported: &[&str]) -> Self {
        let quoted: Vec<String> = supported.iter().map(|s| format!("\"{s}\"")).collect();
        let detail = format!("supported values: {}", quoted.join(", "));
        Self::new(FieldErrorKind::NotSupported, field, detail).of(value)
    }

    /// A field that must not be set, or not be changed.
    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Forbidden, field, detail)
    }

    /// The text after the field's path.
    pub fn body(&self) -> String {
        let mut text = self.kind.words().to_owned();
        let shown = self.shown.clone().or_else(|| {
            self.value.as_ref().map(|value| value.as_str().map_or_else(|| go::json(value), go::quote))
        });
        for part in
            [shown.as_deref(), Some(&*self.detail).filter(|detail| !detail.is_empty())].into_iter().flatten()
        {
            text.push_str(": ");
            text.push_str(part);
        }
        text
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

/// A result whose failure a client will see.
pub type Result<T, E = Status> = std::result::Result<T, E>;

impl Status {
    /// A failure with neither details nor causes.
    pub fn new(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self {
            status: "Failure".into(),
            message: message.into(),
            reason: reason.into(),
            details: None,
            code,
            continue_token: None,
            warnings: None,
        }
    }

    /// Adds warnings that were collected before the failure; the client gets them as headers.
    pub fn warned(self, warnings: &[String]) -> Self {
        let some = !warnings.is_empty();
        Self { warnings: some.then(|| Arc::new(warnings.to_vec())), ..self }
    }

    fn about(code: u16, reason: &str, message: String, resource: &GroupResource, name: &str) -> Self {
        Self::new(code, reason, message).with_details(|d| {
            d.name = name.to_owned();
            d.group = resource.group.clone();
            d.kind = resource.resource.clone();
        })
    }

    /// Fills in the details, which are created where absent.
    pub fn with_details(mut self, fill: impl FnOnce(&mut Details)) -> Self {
        fill(self.details.get_or_insert_default());
        self
    }

    /// Asks the client to try again after `seconds`.
    pub fn retry_after(self, seconds: u32) -> Self {
        self.with_details(|d| d.retry_after_seconds = seconds)
    }

    /// 404: no such object.
    pub fn not_found(resource: &GroupResource, name: &str) -> Self {
        Self::about(404, "NotFound", format!("{resource} {} not found", go::quote(name)), resource, name)
    }

    /// 404: no such path or resource type.
    pub fn no_such_resource() -> Self {
        let mut status = Self::new(404, "NotFound", "the server could not find the requested resource");
        status.details = Some(Box::default());
        status
    }

    /// 409: an object of that name is there.
    pub fn already_exists(resource: &GroupResource, name: &str) -> Self {
        Self::about(
            409,
            "AlreadyExists",
            format!("{resource} {} already exists", go::quote(name)),
            resource,
            name,
        )
    }

    /// 409: the precondition does not hold any more.
    pub fn conflict(resource: &GroupResource, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} {}: {why}", go::quote(name));
        Self::about(409, "Conflict", message, resource, name)
    }

    /// 409: the object changed since the client read it.
    pub fn modified(resource: &GroupResource, name: &str) -> Self {
        Self::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 422: fields are wrong. `kind` and `group` name the kind, as Kubernetes does here. Of equal errors one is told in the
    /// message, and all are among the causes. After a MiB of them the message counts the rest.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let (mut causes, mut told, mut seen, mut bytes) = (Vec::new(), Vec::new(), HashSet::new(), 0);
        for error in errors {
            if bytes > MAX_TOLD {
                told.push(format!("and {} more", errors.len() - causes.len()));
                break;
            }
            let (reason, message, field) = (error.kind.reason().into(), error.body(), error.field.clone());
            let text = format!("{field}: {message}");
            bytes += text.len();
            if seen.insert(text.clone()) {
                told.push(text);
            }
            causes.push(Cause { reason, message, field });
        }
        let list = match told.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        Self::new(422, "Invalid", format!("{qualified} {} is invalid: {list}", go::quote(name))).with_details(
            |d| {
                d.name = name.to_owned();
                d.group = group.to_owned();
                d.kind = kind.to_owned();
                d.causes = causes;
            },
        )
    }

    /// 400: the request makes no sense.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 401: who are you?
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// 403: you may not. `why` follows the resource and name.
    pub fn forbidden(resource: &GroupResource, name: &str, why: &str) -> Self {
        let message = match (resource.resource.is_empty(), name.is_empty()) {
            (true, _) => format!("forbidden: {why}"),
            (false, true) => format!("{resource} is forbidden: {why}"),
            (false, false) => format!("{resource} {} is forbidden: {why}", go::quote(name)),
        };
        Self::about(403, "Forbidden", message, resource, name)
    }

    /// 405: the resource does not have that verb.
    pub fn method_not_allowed(resource: &GroupResource, verb: &str) -> Self {
        let message = format!("{verb} is not supported on resources of kind \"{resource}\"");
        Self::about(405, "MethodNotAllowed", message, resource, "")
    }

    /// 405: nothing is served there with that method.
    pub fn no_such_method() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message).with_details(|_| ())
    }

    /// 406: no route gives any of the accepted media types.
    pub fn not_represented(available: &str) -> Self {
        let message = format!("406: Not Acceptable\n\nAvailable representations: {available}");
        Self::new(406, "NotAcceptable", message).with_details(|_| ())
    }

    /// 415: no route takes the body's media type.
    pub fn no_such_media_type() -> Self {
        Self::new(415, "UnsupportedMediaType", "415: Unsupported Media Type").with_details(|_| ())
    }

    /// 422: a patch makes what can't be read. `patched` is what it makes.
    pub fn unreadable_patch(patched: &str, why: &str) -> Self {
        Self::invalid("", "", "", &[FieldError::invalid("patch", patched.into(), why)])
    }

    /// 406: none of the accepted media types can be had.
    pub fn not_acceptable(accepted: &str) -> Self {
        Self::new(406, "NotAcceptable", format!("only the following media types are accepted: {accepted}"))
    }

    /// 410: the resource version or continue token is too old.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 413: the body is too large. `limit` is in bytes.
    pub fn too_large(limit: usize) -> Self {
        Self::new(413, "RequestEntityTooLarge", format!("Request entity too large: limit is {limit}"))
    }

    /// 415: the body's media type is not known here.
    pub fn unsupported_media_type(given: &str, accepted: &str) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {accepted}"
        );
        let _ = given;
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// 429: too many requests; try again after `seconds`.
    pub fn too_many_requests(message: impl Into<String>, seconds: u32) -> Self {
        Self::new(429, "TooManyRequests", message).retry_after(seconds)
    }

    /// 500, `InternalError`: a fault of the server.
    pub fn internal(what: impl fmt::Display) -> Self {
        let text = what.to_string();
        Self::new(500, "InternalError", format!("Internal error occurred: {text}"))
            .with_details(|d| d.causes = vec![Cause { message: text, ..Cause::default() }])
    }

    /// 503, `ServiceUnavailable`: the client may try again later.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(503, "ServiceUnavailable", message)
    }

    /// 504: it took too long.
    pub fn timeout(message: impl Into<String>) -> Self {
        Self::new(504, "Timeout", format!("Timeout: {}", message.into()))
    }

    /// 504: the client asks for a resource version that is yet to come, after it was waited for.
    pub fn version_too_large(asked: u64, current: u64) -> Self {
        let message = format!("Too large resource version: {asked}, current: {current}");
        let cause = Cause {
            reason: "ResourceVersionTooLarge".into(),
            message: "Too large resource version".into(),
            field: String::new(),
        };
        Self::timeout(message).retry_after(1).with_details(|details| details.causes = vec![cause])
    }

    /// Whether this says that an object is not there.
    pub fn is_not_found(&self) -> bool {
        self.code == 404
    }

    /// Whether this says that a precondition failed (not that a name is taken).
    pub fn is_conflict(&self) -> bool {
        self.reason == "Conflict"
    }

    /// The whole object, with `kind` and `apiVersion`.
    pub fn to_json(&self) -> serde_json::Value {
        let mut value = serde_json::to_value(self).unwrap_or_default();
        if let Some(map) = value.as_object_mut() {
            map.insert("kind".into(), "Status".into());
            map.insert("apiVersion".into(), "v1".into());
            let metadata = self
                .continue_token
                .as_ref()
                .map_or(serde_json::json!({}), |t| serde_json::json!({"continue": t}));
            map.insert("metadata".into(), metadata);
        }
        value
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.reason)
    }
}

impl std::error::Error for Status {}
