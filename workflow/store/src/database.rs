//! Connections.

use crate::{Error, Result, migrations};
use parking_lot::Mutex;
use sqlx::any::{Any, AnyConnectOptions, AnyPoolOptions};
use sqlx::{AnyPool, Executor as _, Transaction};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

/// Connections of one process.
const CONNECTIONS: u32 = 8;
/// How long a connection is waited for.
const ACQUIRE: Duration = Duration::from_secs(10);
/// What each SQLite connection is set to. `FULL` because a record that was acknowledged is on disk.
const PRAGMAS: &str = "PRAGMA busy_timeout = 10000; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
     PRAGMA foreign_keys = ON; PRAGMA cache_size = -16384; PRAGMA temp_store = MEMORY";

/// Which engine serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
}

/// Where the history is kept.
#[derive(Clone, PartialEq, Eq)]
pub enum Location {
    /// A file of SQLite, created where it is absent.
    File(PathBuf),
    /// A PostgreSQL database by its URL.
    Postgres(String),
}

impl Location {
    /// Reads a location: a path, `sqlite:PATH`, or `postgres://USER:PASSWORD@HOST/NAME?sslmode=verify-full`.
    ///
    /// # Errors
    /// [`Error::Location`] for any other URL.
    pub fn parse(text: &str) -> Result<Self> {
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(Self::Postgres(text.to_owned()));
        }
        let path = text.strip_prefix("sqlite://").or_else(|| text.strip_prefix("sqlite:")).unwrap_or(text);
        if path.is_empty() || path.contains("://") {
            // A URL can hold a password.
            return Err(Error::Location(text.split("://").next().unwrap_or_default().to_owned()));
        }
        Ok(Self::File(path.into()))
    }
}

impl std::fmt::Debug for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Postgres(_) => f.write_str("postgres"),
        }
    }
}

/// The history. Cheap to clone.
#[derive(Clone)]
pub struct Database {
    pub(crate) pool: AnyPool,
    pub(crate) dialect: Dialect,
    /// SQLite has one writer: waiting here is fairer and cheaper than being told that it is busy.
    writer: Arc<tokio::sync::Mutex<()>>,
    /// Runs that each plane got since it was looked at whether it has too many.
    pub(crate) fresh: Arc<Mutex<HashMap<String, i64>>>,
    /// Months whose partitions exist.
    pub(crate) months: Arc<Mutex<HashSet<i64>>>,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "history in {:?}", self.dialect)
    }
}

/// A transaction that writes. Dropping it undoes everything.
pub(crate) struct Write {
    pub(crate) tx: Transaction<'static, Any>,
    _writer: Option<tokio::sync::OwnedMutexGuard<()>>,
}

impl Write {
    pub(crate) async fn commit(self) -> Result<()> {
        Ok(self.tx.commit().await?)
    }
}

impl Database {
    /// Connects, and brings the schema up to date.
    ///
    /// # Errors
    /// [`Error::Database`] where the database can't be reached or its schema can't be changed, [`Error::Newer`] where a
    /// later version of Freehold has used it.
    pub async fn open(location: &Location) -> Result<Self> {
        sqlx::any::install_default_drivers();
        let (url, dialect) = match location {
            Location::File(path) => (sqlite_url(path)?, Dialect::Sqlite),
            Location::Postgres(url) => (url.clone(), Dialect::Postgres),
        };
        let options = AnyConnectOptions::from_str(&url)?;
        let pool = AnyPoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(ACQUIRE)
            .after_connect(move |connection, _| {
                Box::pin(async move {
                    if dialect == Dialect::Sqlite {
                        connection.execute(PRAGMAS).await?;
                    }
                    Ok(())
                })
            })
            .connect_with(options)
            .await?;
        let database =
            Self { pool, dialect, writer: Arc::default(), fresh: Arc::default(), months: Arc::default() };
        migrations::run(&database).await?;
        Ok(database)
    }

    /// Whether the engine is PostgreSQL.
    pub fn is_postgres(&self) -> bool {
        self.dialect == Dialect::Postgres
    }

    /// Closes all connections once they are idle.
    pub async fn close(&self) {
        self.pool.close().await;
    }

    /// Begins a transaction that writes.
    pub(crate) async fn begin(&self) -> Result<Write> {
        match self.dialect {
            Dialect::Postgres => Ok(Write { tx: self.pool.begin().await?, _writer: None }),
            Dialect::Sqlite => {
                let writer = self.writer.clone().lock_owned().await;
                // Immediate: a transaction that begins by reading can't become a writer once another has written.
                let tx = self.pool.begin_with("BEGIN IMMEDIATE").await?;
                Ok(Write { tx, _writer: Some(writer) })
            }
        }
    }

    /// The database's clock in milliseconds, as an expression: clocks of controllers differ.
    pub(crate) fn now(&self) -> &'static str {
        match self.dialect {
            Dialect::Sqlite => "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
            Dialect::Postgres => "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)",
        }
    }
}

fn sqlite_url(path: &Path) -> Result<String> {
    let text = path.to_str().ok_or_else(|| Error::Location(path.display().to_string()))?;
    let mut url = String::from("sqlite:");
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' => {
                url.push(char::from(byte))
            }
            other => url.push_str(&format!("%{other:02X}")),
        }
    }
    url.push_str("?mode=rwc");
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_paths_or_urls_of_postgresql() {
        assert_eq!(Location::parse("/a/b.db").unwrap(), Location::File("/a/b.db".into()));
        assert_eq!(Location::parse("sqlite:///a/b.db").unwrap(), Location::File("/a/b.db".into()));
        assert!(matches!(Location::parse("postgres://u@h/d").unwrap(), Location::Postgres(_)));
        for refused in ["", "mysql://u:secret@h/d", "sqlite:"] {
            let error = Location::parse(refused).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
        assert_eq!(sqlite_url(Path::new("/a b/c?.db")).unwrap(), "sqlite:/a%20b/c%3F.db?mode=rwc");
    }
}
