//! Answers: JSON, and failures as Kubernetes `Status`.

use axum::response::{IntoResponse, Response};
use freehold_machinery::{Status, Value};
use freehold_workflow_store as store;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, StatusCode};

/// The outcome of a route.
pub(crate) type Reply<T = Response> = Result<T, Failure>;

/// Why a request fails.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) Box<Status>);

impl Failure {
    pub(crate) fn new(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self(Box::new(Status::new(code, reason, message)))
    }

    pub(crate) fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(401, "Unauthorized", message)
    }

    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(403, "Forbidden", message)
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(404, "NotFound", message)
    }

    pub(crate) fn too_many(message: impl Into<String>) -> Self {
        Self::new(429, "TooManyRequests", message)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let code = StatusCode::from_u16(self.0.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = with(code, &self.0.to_json());
        if code == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(http::header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<freehold_client::Error> for Failure {
    fn from(error: freehold_client::Error) -> Self {
        match error {
            freehold_client::Error::Api(status) => Self(status),
            freehold_client::Error::Timeout(_) => Self::new(504, "Timeout", error.to_string()),
            other => Self::new(502, "ServiceUnavailable", format!("Kubernetes API: {other}")),
        }
    }
}

impl From<store::Error> for Failure {
    fn from(error: store::Error) -> Self {
        match error {
            store::Error::Query(why) => Self::bad_request(why),
            other => {
                tracing::warn!(error = %other, "failed to use the workflow history");
                Self::new(503, "ServiceUnavailable", "the workflow history can't be reached; retry")
            }
        }
    }
}

/// A JSON answer.
pub(crate) fn json(value: &impl serde::Serialize) -> Response {
    with(StatusCode::OK, value)
}

/// A JSON answer with a status.
pub(crate) fn with(code: StatusCode, value: &impl serde::Serialize) -> Response {
    let body = serde_json::to_vec(value).unwrap_or_default();
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    (code, headers, body).into_response()
}

/// An answer without content.
pub(crate) fn empty(code: StatusCode) -> Response {
    code.into_response()
}

/// Rows and the cursor of the next page.
pub(crate) fn page(items: Vec<Value>, next: &str) -> Value {
    let mut page = serde_json::json!({"items": items});
    if !next.is_empty() {
        page["next"] = next.into();
    }
    page
}

/// A failure for a name that URLs of the Kubernetes API can't have.
pub(crate) fn check_name(name: &str) -> Reply<()> {
    let fits = !name.is_empty()
        && name.len() <= 253
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-._[]".contains(c));
    if fits { Ok(()) } else { Err(Failure::bad_request(format!("{name:?} is no name"))) }
}
