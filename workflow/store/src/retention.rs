//! Deletion of old history.

use crate::database::Database;
use crate::sql::Sql;
use crate::{Result, partitions};
use sqlx::Row as _;

/// Runs of one transaction: others write between two of them.
const CHUNK: i64 = 500;

/// What was deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// Runs.
    pub runs: usize,
    /// Locations of kept logs whose records are gone: whoever keeps the logs deletes them.
    pub logs: Vec<String>,
    /// Partitions that were dropped whole.
    pub partitions: Vec<String>,
    /// Whether there is more to delete.
    pub more: bool,
}

/// How much longer runs without an end are kept, in milliseconds.
const ABANDONED: i64 = 30 * 86_400_000;

impl Database {
    /// Deletes ended runs of all planes that were created before `before`, 500 at most; call it until `more` is false. Runs
    /// without an end go 30 days later: they were deleted before it, and one that goes on is told of again with its next status.
    /// Roll-ups stay. On PostgreSQL whole months are dropped where nothing in them is under way or has logs.
    ///
    /// # Errors
    /// [`Error::Database`](crate::Error::Database).
    pub async fn purge(&self, before: i64) -> Result<Purged> {
        let mut purged =
            Purged { partitions: partitions::drop_ended(self, before).await?, ..Purged::default() };
        let mut write = self.begin().await?;
        let mut sql = Sql::new("SELECT plane, uid, created_at FROM runs WHERE created_at < ");
        sql.int(before).push(" AND (ended_at IS NOT NULL OR created_at < ").int(before - ABANDONED);
        sql.push(") ORDER BY created_at LIMIT ").int(CHUNK);
        let rows = sql.query().fetch_all(&mut *write.tx).await?;
        for row in &rows {
            let (plane, uid): (String, String) = (row.try_get("plane")?, row.try_get("uid")?);
            let created_at: i64 = row.try_get("created_at")?;
            let one = |head: &'static str, run: &'static str, at: &'static str, tail: &'static str| {
                let mut sql = Sql::new(head);
                sql.push(" WHERE plane = ")
                    .text(&plane)
                    .push(run)
                    .text(&uid)
                    .push(at)
                    .int(created_at)
                    .push(tail);
                sql.query()
            };
            let logs =
                one("DELETE FROM logs", " AND run = ", " AND run_created_at = ", " RETURNING location");
            for log in logs.fetch_all(&mut *write.tx).await? {
                purged.logs.push(log.try_get("location")?);
            }
            one("DELETE FROM tasks", " AND run = ", " AND run_created_at = ", "")
                .execute(&mut *write.tx)
                .await?;
            one("DELETE FROM runs", " AND uid = ", " AND created_at = ", "").execute(&mut *write.tx).await?;
        }
        write.commit().await?;
        purged.runs = rows.len();
        purged.more = rows.len() as i64 == CHUNK;
        Ok(purged)
    }
}
