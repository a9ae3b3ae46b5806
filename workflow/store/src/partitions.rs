//! Partitions of PostgreSQL's tables, one for each month of creation.

use crate::database::{Database, Dialect};
use crate::{Error, Result};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use sqlx::{AssertSqlSafe, Executor as _, Row as _};

/// The tables that are divided.
const TABLES: [&str; 3] = ["runs", "tasks", "logs"];
/// One lock for whoever adds or drops partitions.
const LOCK: &str = "SELECT pg_advisory_xact_lock(7276458130)";

/// Returns the month of a time: `year * 12 + month - 1`.
fn month_of(millis: i64) -> Result<i64> {
    let time = jiff::Timestamp::from_millisecond(millis)
        .map_err(|e| Error::Record { what: "history".into(), why: e.to_string() })?
        .to_zoned(TimeZone::UTC);
    Ok(i64::from(time.year()) * 12 + i64::from(time.month()) - 1)
}

/// Returns the first millisecond of a month.
fn month_start(month: i64) -> i64 {
    let (year, month) = (month.div_euclid(12) as i16, month.rem_euclid(12) as i8 + 1);
    Date::new(year, month, 1)
        .ok()
        .and_then(|date| date.to_zoned(TimeZone::UTC).ok())
        .map_or(i64::MAX, |start| start.timestamp().as_millisecond())
}

fn name(table: &str, month: i64) -> String {
    format!("{table}_{:04}{:02}", month.div_euclid(12), month.rem_euclid(12) + 1)
}

/// Creates the partitions of the months of `times` where they are absent.
pub(crate) async fn ensure(database: &Database, times: impl Iterator<Item = i64>) -> Result<()> {
    if database.dialect == Dialect::Sqlite {
        return Ok(());
    }
    for time in times {
        let month = month_of(time)?;
        if !database.months.lock().contains(&month) {
            create(database, month).await?;
            database.months.lock().insert(month);
        }
    }
    Ok(())
}

async fn create(database: &Database, month: i64) -> Result<()> {
    let mut write = database.begin().await?;
    write.tx.execute(LOCK).await?;
    let (from, to) = (month_start(month), month_start(month + 1));
    for table in TABLES {
        let partition = name(table, month);
        let statement = format!(
            "CREATE TABLE IF NOT EXISTS {partition} PARTITION OF {table} FOR VALUES FROM ({from}) TO ({to})"
        );
        write.tx.execute(AssertSqlSafe(statement)).await?;
    }
    write.commit().await
}

/// Drops the partitions of months that ended before `before` and have neither runs under way nor kept logs. Returns their
/// months' names.
pub(crate) async fn drop_ended(database: &Database, before: i64) -> Result<Vec<String>> {
    if database.dialect == Dialect::Sqlite {
        return Ok(Vec::new());
    }
    let mut write = database.begin().await?;
    write.tx.execute(LOCK).await?;
    let rows = sqlx::query(
        "SELECT CAST(c.relname AS TEXT) AS name FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid \
         WHERE i.inhparent = CAST('runs' AS regclass) ORDER BY 1",
    )
    .fetch_all(&mut *write.tx)
    .await?;
    let mut dropped = Vec::new();
    for row in rows {
        let partition: String = row.try_get("name")?;
        let Some(month) = partition.strip_prefix("runs_").and_then(parse_month) else { continue };
        if month_start(month + 1) > before || is_needed(&mut write, month).await? {
            continue;
        }
        for table in TABLES {
            write.tx.execute(AssertSqlSafe(format!("DROP TABLE {}", name(table, month)))).await?;
        }
        database.months.lock().remove(&month);
        dropped.push(partition);
    }
    write.commit().await?;
    Ok(dropped)
}

async fn is_needed(write: &mut crate::database::Write, month: i64) -> Result<bool> {
    let statement = format!(
        "SELECT CAST(EXISTS (SELECT 1 FROM {} WHERE ended_at IS NULL) OR EXISTS (SELECT 1 FROM {}) AS INT) AS needed",
        name("runs", month),
        name("logs", month)
    );
    let row = write.tx.fetch_one(AssertSqlSafe(statement)).await?;
    Ok(row.try_get::<i32, _>("needed")? != 0)
}

fn parse_month(text: &str) -> Option<i64> {
    let (year, month) = text.split_at_checked(4)?;
    let month: i64 = month.parse().ok().filter(|m| (1..=12).contains(m))?;
    Some(year.parse::<i64>().ok()? * 12 + month - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_border_on_each_other() {
        let december = month_of(1_735_603_200_000).unwrap(); // 2024-12-31
        assert_eq!(name("runs", december), "runs_202412");
        assert_eq!(parse_month("202412"), Some(december));
        assert_eq!(month_start(december + 1), 1_735_689_600_000); // 2025-01-01
        assert_eq!(month_of(month_start(december + 1) - 1).unwrap(), december);
        assert_eq!(month_of(month_start(december + 1)).unwrap(), december + 1);
    }
}
