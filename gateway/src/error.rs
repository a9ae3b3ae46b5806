//! Failures as Kubernetes `Status` answers.

use crate::reply::{self, Reply};
use freehold_client::Error;
use freehold_machinery::Status;

/// What went wrong with a request of the console.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The gateway refuses it.
    #[error("{0}")]
    Refused(Box<Status>),
    /// The apiserver failed or refused it.
    #[error(transparent)]
    Upstream(#[from] Error),
}

impl Failure {
    /// A refusal with a code and a reason.
    pub(crate) fn new(code: u16, reason: &str, message: impl AsRef<str>) -> Self {
        Self::Refused(Box::new(Status::new(code, reason, message.as_ref())))
    }

    /// 400.
    pub(crate) fn bad_request(message: impl AsRef<str>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 401: nobody is signed in.
    pub(crate) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "sign in first")
    }

    /// 403.
    pub(crate) fn forbidden(message: impl AsRef<str>) -> Self {
        Self::new(403, "Forbidden", message)
    }

    /// 404.
    pub(crate) fn not_found() -> Self {
        Self::new(404, "NotFound", "the gateway has no such resource")
    }

    /// 429.
    pub(crate) fn too_many(message: impl AsRef<str>) -> Self {
        Self::new(429, "TooManyRequests", message)
    }

    /// The `Status` that a client is sent.
    pub(crate) fn status(&self) -> Status {
        match self {
            Self::Refused(status) => (**status).clone(),
            Self::Upstream(Error::Api(status)) => (**status).clone(),
            Self::Upstream(error) => Status::new(502, "BadGateway", error.to_string()),
        }
    }

    /// The answer.
    pub(crate) fn reply(&self) -> Reply {
        let status = self.status();
        let code = http::StatusCode::from_u16(status.code).unwrap_or(http::StatusCode::BAD_GATEWAY);
        reply::json(code, &status.to_json())
    }
}
