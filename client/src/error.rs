//! Why a request failed.

use freehold_machinery::Status;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server answered with a failure.
    #[error("{0}")]
    Api(Box<Status>),
    /// No connection, or it broke. `sent` tells whether the request may have arrived.
    #[error("can't reach {server}: {reason}")]
    Transport {
        /// Scheme, host and port.
        server: String,
        /// What went wrong.
        reason: String,
        /// Whether the server may have seen the request.
        sent: bool,
    },
    /// The answer did not come in time.
    #[error("no answer within {0} s")]
    Timeout(u64),
    /// The answer, or one event of a watch, is larger than the limit in bytes.
    #[error("the answer is larger than {0} bytes")]
    TooLarge(usize),
    /// The answer is not what it should be.
    #[error("unreadable answer: {0}")]
    Decode(String),
    /// The client's configuration can't be used.
    #[error("client configuration: {0}")]
    Config(String),
}

impl Error {
    /// The HTTP status code of the server's answer; 0 where there was none.
    pub fn code(&self) -> u16 {
        match self {
            Self::Api(status) => status.code,
            _ => 0,
        }
    }

    /// The server's reason (`NotFound`, `Conflict`, ...); empty where there was none.
    pub fn reason(&self) -> &str {
        match self {
            Self::Api(status) => &status.reason,
            _ => "",
        }
    }

    /// Whether the object (or the type) is not there.
    pub fn is_not_found(&self) -> bool {
        self.code() == 404
    }

    /// Whether the server does not serve the type or the path at all. A missing object is answered with a Status that names it.
    pub fn is_unserved(&self) -> bool {
        matches!(self, Self::Api(status) if status.code == 404 && status.message.ends_with("404 page not found"))
    }

    /// Whether a precondition failed.
    pub fn is_conflict(&self) -> bool {
        self.reason() == "Conflict"
    }

    /// Whether the name is taken.
    pub fn is_already_exists(&self) -> bool {
        self.reason() == "AlreadyExists"
    }

    /// Whether the resource version is too old to go on from.
    pub fn is_gone(&self) -> bool {
        self.code() == 410
    }

    /// Whether trying again later may help without anything else being changed.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Transport { .. } | Self::Timeout(_))
            || matches!(self.code(), 429 | 500 | 503 | 504)
    }

    pub(crate) fn api(status: Status) -> Self {
        Self::Api(Box::new(status))
    }
}
