//! Attempts of a run's tasks.

use crate::database::Database;
use crate::page::{Cursor, Page, limit, page};
use crate::sql::Sql;
use crate::{Error, Result, Scope, TaskRecord};
use sqlx::Row as _;
use sqlx::any::AnyRow;

pub(crate) const COLUMNS: &str = "plane, namespace, run, run_created_at, task, restart, attempt, phase, reason, message, pod, \
     pod_uid, node, exit_code, queued_at, started_at, ended_at";

impl Database {
    /// Lists attempts of a run's tasks, by task, restart and attempt.
    ///
    /// # Errors
    /// [`Error::Query`] for a cursor of another list; [`Error::Database`].
    pub async fn tasks(
        &self,
        scope: &Scope,
        run: &str,
        after: Option<&Cursor>,
        wanted: usize,
    ) -> Result<Page<TaskRecord>> {
        let limit = limit(wanted);
        let mut sql = Sql::new("SELECT ");
        sql.push(COLUMNS).push(" FROM tasks WHERE run = ").text(run).push(" AND ");
        scope.confine(&mut sql);
        if let Some(after) = after {
            let (restart, task) =
                after.key.split_once('/').ok_or_else(|| Error::Query("cursor of another list".into()))?;
            let restart = restart.parse().map_err(|_| Error::Query("cursor of another list".into()))?;
            sql.push(" AND (task, restart, attempt) > (")
                .text(task)
                .push(", ")
                .int(restart)
                .push(", ")
                .int(after.at)
                .push(")");
        }
        sql.push(" ORDER BY task, restart, attempt LIMIT ").int(limit as i64 + 1);
        let rows = sql.query().fetch_all(&self.pool).await?;
        let tasks = rows.iter().map(read).collect::<Result<Vec<_>>>()?;
        Ok(page(tasks, limit, |task| Cursor {
            at: task.attempt,
            key: format!("{}/{}", task.restart, task.task),
        }))
    }
}

fn read(row: &AnyRow) -> Result<TaskRecord> {
    let text = |column| row.try_get::<String, _>(column);
    let int = |column| row.try_get::<i64, _>(column);
    let (namespace, namespace_uid) = crate::scope::parts(&text("namespace")?);
    Ok(TaskRecord {
        plane: text("plane")?,
        namespace,
        namespace_uid,
        run: text("run")?,
        run_created_at: int("run_created_at")?,
        task: text("task")?,
        restart: int("restart")?,
        attempt: int("attempt")?,
        phase: text("phase")?.parse().map_err(Error::Database)?,
        reason: text("reason")?,
        message: text("message")?,
        pod: text("pod")?,
        pod_uid: text("pod_uid")?,
        node: text("node")?,
        exit_code: row.try_get("exit_code")?,
        queued_at: row.try_get("queued_at")?,
        started_at: row.try_get("started_at")?,
        ended_at: row.try_get("ended_at")?,
    })
}
