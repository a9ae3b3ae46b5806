//! Deletion of old history.

use crate::database::{Database, Write};
use crate::sql::Sql;
use crate::{Result, partitions};
use sqlx::Row as _;
use sqlx::any::AnyRow;

/// Runs of one transaction: others write between two of them.
const CHUNK: i64 = 500;
/// Planes of which is known how many runs they got.
const MAX_PLANES: usize = 100_000;

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
        remove(&mut write, &rows, &mut purged).await?;
        write.commit().await?;
        purged.more = rows.len() as i64 == CHUNK;
        Ok(purged)
    }

    /// Notes a new run of a plane.
    pub(crate) fn count_fresh(&self, plane: &str) {
        let mut fresh = self.fresh.lock();
        if fresh.len() > MAX_PLANES {
            fresh.clear();
        }
        *fresh.entry(plane.to_owned()).or_default() += 1;
    }

    /// Deletes the oldest ended runs of planes that have more than `keep`, 500 of each at most; call it until `more` is false.
    /// Looked at are planes that got a 16th of that since they were last looked at, and since the start. Roll-ups stay.
    ///
    /// # Errors
    /// [`Error::Database`](crate::Error::Database).
    pub async fn trim(&self, keep: i64) -> Result<Purged> {
        let often = (keep / 16).max(1);
        let planes: Vec<String> = {
            let mut fresh = self.fresh.lock();
            let due: Vec<String> =
                fresh.iter().filter(|(_, runs)| **runs >= often).map(|(plane, _)| plane.clone()).collect();
            due.iter().for_each(|plane| {
                fresh.remove(plane);
            });
            due
        };
        let mut purged = Purged::default();
        for plane in planes {
            if self.trim_plane(&plane, keep, &mut purged).await? {
                purged.more = true;
                *self.fresh.lock().entry(plane).or_default() += often;
            }
        }
        Ok(purged)
    }

    /// Whether there is more to delete.
    async fn trim_plane(&self, plane: &str, keep: i64, purged: &mut Purged) -> Result<bool> {
        let mut sql = Sql::new("SELECT created_at FROM runs WHERE plane = ");
        sql.text(plane).push(" ORDER BY created_at DESC, uid DESC LIMIT 1 OFFSET ").int(keep);
        let Some(oldest) = sql.query().fetch_optional(&self.pool).await? else { return Ok(false) };
        let oldest: i64 = oldest.try_get("created_at")?;
        let mut write = self.begin().await?;
        let mut sql = Sql::new("SELECT plane, uid, created_at FROM runs WHERE plane = ");
        sql.text(plane).push(" AND created_at <= ").int(oldest);
        sql.push(" AND ended_at IS NOT NULL ORDER BY created_at, uid LIMIT ").int(CHUNK);
        let rows = sql.query().fetch_all(&mut *write.tx).await?;
        remove(&mut write, &rows, purged).await?;
        write.commit().await?;
        Ok(rows.len() as i64 == CHUNK)
    }
}

/// Deletes runs with their attempts and records of logs.
async fn remove(write: &mut Write, rows: &[AnyRow], purged: &mut Purged) -> Result<()> {
    for row in rows {
        let (plane, uid): (String, String) = (row.try_get("plane")?, row.try_get("uid")?);
        let created_at: i64 = row.try_get("created_at")?;
        let one = |head: &'static str, run: &'static str, at: &'static str, tail: &'static str| {
            let mut sql = Sql::new(head);
            sql.push(" WHERE plane = ").text(&plane).push(run).text(&uid).push(at).int(created_at).push(tail);
            sql.query()
        };
        let logs = one("DELETE FROM logs", " AND run = ", " AND run_created_at = ", " RETURNING location");
        for log in logs.fetch_all(&mut *write.tx).await? {
            purged.logs.push(log.try_get("location")?);
        }
        one("DELETE FROM tasks", " AND run = ", " AND run_created_at = ", "").execute(&mut *write.tx).await?;
        one("DELETE FROM runs", " AND uid = ", " AND created_at = ", "").execute(&mut *write.tx).await?;
    }
    purged.runs += rows.len();
    Ok(())
}
