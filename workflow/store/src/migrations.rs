//! The schema, version by version.

use crate::database::{Database, Dialect};
use crate::sql::Sql;
use crate::{Error, Result};
use sqlx::{AssertSqlSafe, Executor as _, Row as _};

/// One lock for all migrations of a PostgreSQL database.
const LOCK: &str = "SELECT pg_advisory_xact_lock(7276458129)";

/// Schemas in order; the version is the position, from 1. `{int}` is the type of numbers, `{by_month(COLUMN)}` divides a
/// table by month on PostgreSQL. A version that was published never changes.
const VERSIONS: [&str; 1] = [include_str!("schema/1.sql")];

/// Brings the schema up to date.
pub(crate) async fn run(database: &Database) -> Result<()> {
    let mut write = database.begin().await?;
    let connection = &mut *write.tx;
    if database.dialect == Dialect::Postgres {
        connection.execute(LOCK).await?;
    }
    connection
        .execute(
            "CREATE TABLE IF NOT EXISTS schema_versions (version BIGINT PRIMARY KEY, applied TEXT NOT NULL)",
        )
        .await?;
    // As text: SQLite gives BIGINT columns a type that sqlx's Any does not know.
    let row = Sql::new("SELECT CAST(COALESCE(MAX(version), 0) AS TEXT) AS version FROM schema_versions")
        .query()
        .fetch_one(&mut *connection)
        .await?;
    let found: i64 = row.try_get::<String, _>("version")?.parse().unwrap_or(i64::MAX);
    let known = VERSIONS.len() as i64;
    if found > known {
        return Err(Error::Newer { found, known });
    }
    for (version, schema) in (1..).zip(VERSIONS).skip(found as usize) {
        for statement in statements(schema, database.dialect) {
            connection.execute(AssertSqlSafe(statement)).await?;
        }
        let mut sql = Sql::new("INSERT INTO schema_versions (version, applied) VALUES (");
        sql.int(version).push(", ").text(&jiff::Timestamp::now().to_string()).push(")");
        sql.query().execute(&mut *connection).await?;
        tracing::info!(version, "history database: schema is up to date");
    }
    write.commit().await
}

/// The statements of a schema in an engine's dialect.
fn statements(schema: &str, dialect: Dialect) -> Vec<String> {
    let mut text: String =
        schema.lines().filter(|line| !line.starts_with("--")).collect::<Vec<_>>().join("\n");
    text = text.replace("{int}", if dialect == Dialect::Postgres { "BIGINT" } else { "INTEGER" });
    while let Some(at) = text.find("{by_month(") {
        let end = at + text[at..].find(")}").unwrap_or(0);
        let column = text[at + "{by_month(".len()..end].to_owned();
        let partitioned = match dialect {
            Dialect::Postgres => format!("PARTITION BY RANGE ({column})"),
            Dialect::Sqlite => String::new(),
        };
        text.replace_range(at..end + 2, &partitioned);
    }
    text.split(';').map(str::trim).filter(|s| !s.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_is_divided_by_month_on_postgresql_alone() {
        let schema = "-- about; it\nCREATE TABLE a (b {int}) {by_month(b)};\nCREATE INDEX c ON a (b);\n";
        assert_eq!(
            statements(schema, Dialect::Postgres),
            ["CREATE TABLE a (b BIGINT) PARTITION BY RANGE (b)", "CREATE INDEX c ON a (b)"]
        );
        assert_eq!(
            statements(schema, Dialect::Sqlite),
            ["CREATE TABLE a (b INTEGER)", "CREATE INDEX c ON a (b)"]
        );
    }
}
