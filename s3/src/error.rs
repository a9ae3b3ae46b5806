//! What can go wrong with a request to a store.

/// Why a request to a store failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Something that was configured can't be used.
    #[error("{0}")]
    Config(String),
    /// The store refused the request: the HTTP status, and S3's own code and message.
    #[error("{operation}: the store answered {status} {code}: {message}")]
    Refused {
        /// What was asked for, such as `PUT backups/a`.
        operation: String,
        /// The HTTP status.
        status: u16,
        /// S3's code, such as `NoSuchBucket`; empty where the answer has none.
        code: String,
        /// What the store says about it.
        message: String,
    },
    /// The store can't be reached, or the connection broke.
    #[error("{operation}: {source}")]
    Connection {
        /// What was asked for, such as `PUT backups/a`.
        operation: String,
        /// What happened.
        #[source]
        source: std::io::Error,
    },
    /// The answer is not what the S3 API says.
    #[error("{operation}: the store's answer can't be used: {reason}")]
    Answer {
        /// What was asked for, such as `PUT backups/a`.
        operation: String,
        /// What is wrong with the answer.
        reason: String,
    },
}

impl Error {
    /// Whether the object or the bucket is not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { status: 404, .. })
    }

    /// Whether the same request may succeed in a moment.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Refused { status, .. } => matches!(status, 429 | 500 | 502 | 503 | 504),
            Self::Connection { .. } => true,
            _ => false,
        }
    }
}

/// What requests to a store give.
pub type Result<T> = std::result::Result<T, Error>;
