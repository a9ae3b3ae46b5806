//! Why the history could not be read or written.

/// The outcome of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why the history could not be read or written.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The database's address is not one.
    #[error("database {0:?}: give a file's path, sqlite:PATH or postgres://USER@HOST/NAME")]
    Location(String),
    /// The database refused or can't be reached.
    #[error("history database: {0}")]
    Database(String),
    /// The database is of a later version of Freehold.
    #[error(
        "the history database has schema {found}, this program knows {known}: run a later version of Freehold"
    )]
    Newer {
        /// The schema's version in the database.
        found: i64,
        /// The latest version that this program knows.
        known: i64,
    },
    /// The caller's lease is over, and another controller may do its work.
    #[error("the lease of partition {partition}, generation {generation}, is over; nothing was recorded")]
    Fenced {
        /// The partition.
        partition: u32,
        /// The generation that the caller held.
        generation: i64,
    },
    /// A query that no index serves, or a limit that was passed.
    #[error("{0}")]
    Query(String),
    /// A record with values out of range.
    #[error("record of {what}: {why}")]
    Record {
        /// The run or account.
        what: String,
        /// The reason.
        why: String,
    },
    /// The recorder has stopped.
    #[error("the recorder has stopped")]
    Stopped,
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error.to_string())
    }
}

impl Error {
    /// Whether trying again later may help without anything else being changed.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Database(_))
    }
}
