//! Where kept logs are.

use crate::database::Database;
use crate::sql::Sql;
use crate::{LogRecord, Result, Scope};
use sqlx::Row as _;
use sqlx::any::AnyRow;

pub(crate) const COLUMNS: &str = "plane, namespace, run, run_created_at, task, restart, attempt, container, pod, pod_uid, \
     location, bytes, line_count, complete";
/// Logs that are listed at most: containers of all attempts of a task.
const MAX_LOGS: i64 = 1000;

impl Database {
    /// Lists kept logs of a run's task, or of all its tasks, in the order of attempts.
    ///
    /// # Errors
    /// [`Error::Database`](crate::Error::Database).
    pub async fn logs(&self, scope: &Scope, run: &str, task: Option<&str>) -> Result<Vec<LogRecord>> {
        let mut sql = Sql::new("SELECT ");
        sql.push(COLUMNS).push(" FROM logs WHERE run = ").text(run).push(" AND ");
        scope.confine(&mut sql);
        if let Some(task) = task {
            sql.push(" AND task = ").text(task);
        }
        sql.push(" ORDER BY task, restart, attempt, container LIMIT ").int(MAX_LOGS);
        sql.query().fetch_all(&self.pool).await?.iter().map(read).collect()
    }

    /// Lists kept logs of a Pod by its uid.
    ///
    /// # Errors
    /// [`Error::Database`](crate::Error::Database).
    pub async fn logs_of_pod(&self, scope: &Scope, pod_uid: &str) -> Result<Vec<LogRecord>> {
        let mut sql = Sql::new("SELECT ");
        sql.push(COLUMNS).push(" FROM logs WHERE pod_uid = ").text(pod_uid).push(" AND ");
        scope.confine(&mut sql);
        sql.push(" ORDER BY container LIMIT ").int(MAX_LOGS);
        sql.query().fetch_all(&self.pool).await?.iter().map(read).collect()
    }
}

fn read(row: &AnyRow) -> Result<LogRecord> {
    let text = |column| row.try_get::<String, _>(column);
    let int = |column| row.try_get::<i64, _>(column);
    let (namespace, namespace_uid) = crate::scope::parts(&text("namespace")?);
    Ok(LogRecord {
        plane: text("plane")?,
        namespace,
        namespace_uid,
        run: text("run")?,
        run_created_at: int("run_created_at")?,
        task: text("task")?,
        attempt: int("attempt")?,
        restart: int("restart")?,
        pod: text("pod")?,
        pod_uid: text("pod_uid")?,
        container: text("container")?,
        location: text("location")?,
        bytes: int("bytes")?,
        lines: int("line_count")?,
        complete: int("complete")? != 0,
    })
}
