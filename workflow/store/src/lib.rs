//! History of workflow runs in a database: SQLite (a file) or PostgreSQL.
//!
//! A controller opens a [`Database`], wraps it in a [`Recorder`], and hands over a [`RunRecord`] or [`TaskRecord`] at each
//! transition. Records may arrive twice or late: the first end of a run counts, later ones change nothing.
//!
//! ```no_run
//! # use freehold_workflow_store::{Database, Location, Phase, Recorder, RunRecord};
//! # async fn example() -> Result<(), freehold_workflow_store::Error> {
//! let database = Database::open(&Location::parse("/var/lib/freehold/workflow.db")?).await?;
//! let recorder = Recorder::start(database);
//! let run = RunRecord { plane: "web".into(), namespace: "default".into(), uid: "u1".into(), phase: Phase::Running, ..RunRecord::default() };
//! recorder.record(run).await?; // returns when it is on disk
//! # Ok(())
//! # }
//! ```
//!
//! Guarantees: a read names its [`Scope`] (plane and namespaces) and returns no row beyond it; every list uses an index and
//! a cursor, nothing counts rows; roll-ups change in the transaction that records an end.
//!
//! This crate must not know Kubernetes, and no other crate of the workspace may know SQL.

mod accounts;
mod database;
mod error;
mod leases;
mod log_bucket;
mod log_files;
mod log_store;
mod logs;
mod merge;
mod migrations;
mod page;
mod partitions;
mod phase;
mod recorder;
mod records;
mod retention;
mod rollups;
mod runs;
mod scope;
mod sql;
mod statistics;
mod tasks;
mod write;

pub use accounts::{Account, Role, TokenRecord};
pub use database::{Database, Location};
pub use error::{Error, Result};
pub use freehold_workflow_outbound::Credentials;
pub use leases::{Fence, LeaseOptions, Leases, partition_of};
pub use log_bucket::LogBucket;
pub use log_files::{LogFiles, LogKey, MAX_LOG, MAX_READ, Match};
pub use log_store::{LogStore, LogWriter};
pub use merge::{Merged, merge};
pub use page::{Cursor, MAX_PAGE, Page};
pub use phase::Phase;
pub use recorder::Recorder;
pub use records::{Counts, LogRecord, Record, RunRecord, TaskRecord};
pub use retention::Purged;
pub use rollups::{bucket, bucket_millis};
pub use runs::RunFilter;
pub use scope::{MAX_NAMESPACES, Scope};
pub use statistics::{Day, MAX_DAYS, Quantiles};
