//! Writing of records: idempotent, in batches of one transaction.

use crate::database::{Database, Dialect, Write};
use crate::leases::Fence;
use crate::merge::{Merged, fold, merge};
use crate::rollups::Changes;
use crate::sql::Sql;
use crate::{LogRecord, Record, Result, RunRecord, TaskRecord, partitions, runs, scope};
use sqlx::Row as _;
use std::collections::{BTreeMap, HashSet};

/// Rows of one INSERT: 200 of 19 values are far below the limits of both engines.
const ROWS: usize = 200;

impl Database {
    /// Records a batch in one transaction; with a fence only while that lease is held. Records may come twice and in any
    /// order.
    ///
    /// # Errors
    /// [`Error::Record`](crate::Error::Record) for the first record out of range, [`Error::Fenced`](crate::Error::Fenced)
    /// where the lease is over, [`Error::Database`](crate::Error::Database) otherwise; nothing was recorded then.
    pub async fn write(&self, records: Vec<Record>, fence: Option<&Fence>) -> Result<()> {
        let mut records = records.into_iter().map(Record::check).collect::<Result<Vec<_>>>()?;
        // One order of row locks for all writers.
        records.sort_by(|a, b| a.run().cmp(&b.run()));
        partitions::ensure(self, records.iter().map(Record::run_created_at)).await?;
        let (mut by_run, mut tasks, mut logs) =
            (BTreeMap::<_, Vec<RunRecord>>::new(), Vec::new(), Vec::new());
        for record in records {
            match record {
                Record::Run(run) => by_run.entry((run.plane.clone(), run.uid.clone())).or_default().push(run),
                Record::Task(task) => tasks.push(task),
                Record::Log(log) => logs.push(log),
            }
        }
        let mut write = self.begin().await?;
        if let Some(fence) = fence {
            fence.check(self, &mut write).await?;
        }
        let folded: Vec<RunRecord> = by_run.into_values().filter_map(fold).collect();
        let mut changes = Changes::default();
        for chunk in folded.chunks(ROWS) {
            write_runs(self, &mut write, chunk, &mut changes).await?;
        }
        for task in tasks {
            write_task(&mut write, &task).await?;
        }
        for log in logs {
            write_log(&mut write, &log).await?;
        }
        changes.write(&mut write).await?;
        write.commit().await
    }
}

async fn write_runs(
    database: &Database,
    write: &mut Write,
    chunk: &[RunRecord],
    changes: &mut Changes,
) -> Result<()> {
    let mut sql = Sql::new("INSERT INTO runs (");
    sql.push(runs::COLUMNS).push(") VALUES ");
    for (i, run) in chunk.iter().enumerate() {
        sql.push(if i > 0 { ", (" } else { "(" });
        run_values(&mut sql, run);
        sql.push(")");
    }
    sql.push(" ON CONFLICT (plane, uid, created_at) DO NOTHING RETURNING plane, uid");
    if chunk.len() != 1 && chunk.len() != ROWS {
        sql.once();
    }
    let rows = sql.query().fetch_all(&mut *write.tx).await?;
    let mut new = HashSet::with_capacity(rows.len());
    for row in &rows {
        new.insert((row.try_get::<String, _>("plane")?, row.try_get::<String, _>("uid")?));
    }
    for run in chunk {
        if new.contains(&(run.plane.clone(), run.uid.clone())) {
            changes.count(run, 1);
            database.count_fresh(&run.plane);
        } else {
            merge_run(database, write, run, changes).await?;
        }
    }
    Ok(())
}

async fn merge_run(
    database: &Database,
    write: &mut Write,
    run: &RunRecord,
    changes: &mut Changes,
) -> Result<()> {
    let mut sql = Sql::new("SELECT ");
    sql.push(runs::COLUMNS)
        .push(" FROM runs WHERE plane = ")
        .text(&run.plane)
        .push(" AND uid = ")
        .text(&run.uid);
    sql.push(" AND created_at = ").int(run.created_at);
    if database.dialect == Dialect::Postgres {
        sql.push(" FOR UPDATE");
    }
    let old = runs::read(&sql.query().fetch_one(&mut *write.tx).await?)?;
    let Merged::Replace { uncount_old, count_new } = merge(&old, run) else { return Ok(()) };
    if uncount_old {
        changes.count(&old, -1);
    }
    if count_new {
        changes.count(run, 1);
    }
    let mut sql = Sql::new("UPDATE runs SET phase = ");
    sql.text(run.phase.as_str())
        .push(", reason = ")
        .text(&run.reason)
        .push(", message = ")
        .text(&run.message);
    sql.push(", restart = ").int(run.restart).push(", revision = ").int(run.revision);
    sql.push(", started_at = ").maybe(run.started_at).push(", ended_at = ").maybe(run.ended_at);
    sql.push(", total = ").int(run.counts.total).push(", succeeded = ").int(run.counts.succeeded);
    sql.push(", failed = ").int(run.counts.failed).push(", skipped = ").int(run.counts.skipped);
    sql.push(" WHERE plane = ").text(&run.plane).push(" AND uid = ").text(&run.uid);
    sql.push(" AND created_at = ").int(run.created_at);
    sql.query().execute(&mut *write.tx).await?;
    Ok(())
}

/// The values of [`runs::COLUMNS`], in their order.
fn run_values(sql: &mut Sql, run: &RunRecord) {
    let namespace = scope::key(&run.namespace, &run.namespace_uid);
    let texts = [
        &run.plane,
        &namespace,
        &run.uid,
        &run.name,
        &run.dag,
        run.phase.as_str(),
        &run.reason,
        &run.message,
        &run.trigger,
    ];
    for text in texts {
        sql.text(text).push(", ");
    }
    sql.int(run.restart).push(", ").int(run.revision).push(", ").int(run.created_at).push(", ");
    sql.maybe(run.started_at).push(", ").maybe(run.ended_at);
    for number in [run.counts.total, run.counts.succeeded, run.counts.failed, run.counts.skipped] {
        sql.push(", ").int(number);
    }
    sql.push(", ").text(&run.parameters);
}

async fn write_task(write: &mut Write, task: &TaskRecord) -> Result<()> {
    let mut sql = Sql::new("INSERT INTO tasks (");
    sql.push(crate::tasks::COLUMNS).push(") VALUES (");
    sql.text(&task.plane)
        .push(", ")
        .text(&scope::key(&task.namespace, &task.namespace_uid))
        .push(", ")
        .text(&task.run)
        .push(", ")
        .int(task.run_created_at);
    sql.push(", ").text(&task.task).push(", ").int(task.restart).push(", ").int(task.attempt);
    for text in [task.phase.as_str(), &task.reason, &task.message, &task.pod, &task.pod_uid, &task.node] {
        sql.push(", ").text(text);
    }
    for number in [task.exit_code, task.queued_at, task.started_at, task.ended_at] {
        sql.push(", ").maybe(number);
    }
    // An attempt ends once; what was known of it stays where a later record leaves it out.
    sql.push(
        ") ON CONFLICT (plane, run, task, restart, attempt, run_created_at) DO UPDATE SET phase = excluded.phase, \
         reason = excluded.reason, message = excluded.message, exit_code = excluded.exit_code, \
         pod = CASE WHEN excluded.pod = '' THEN tasks.pod ELSE excluded.pod END, \
         pod_uid = CASE WHEN excluded.pod_uid = '' THEN tasks.pod_uid ELSE excluded.pod_uid END, \
         node = CASE WHEN excluded.node = '' THEN tasks.node ELSE excluded.node END, \
         queued_at = COALESCE(tasks.queued_at, excluded.queued_at), \
         started_at = COALESCE(excluded.started_at, tasks.started_at), ended_at = excluded.ended_at \
         WHERE tasks.ended_at IS NULL",
    );
    sql.query().execute(&mut *write.tx).await?;
    Ok(())
}

async fn write_log(write: &mut Write, log: &LogRecord) -> Result<()> {
    let mut sql = Sql::new("INSERT INTO logs (");
    sql.push(crate::logs::COLUMNS).push(") VALUES (");
    sql.text(&log.plane)
        .push(", ")
        .text(&scope::key(&log.namespace, &log.namespace_uid))
        .push(", ")
        .text(&log.run)
        .push(", ")
        .int(log.run_created_at);
    sql.push(", ").text(&log.task).push(", ").int(log.restart).push(", ").int(log.attempt);
    for text in [&log.container, &log.pod, &log.pod_uid, &log.location] {
        sql.push(", ").text(text);
    }
    sql.push(", ").int(log.bytes).push(", ").int(log.lines).push(", ").int(i64::from(log.complete));
    sql.push(
        ") ON CONFLICT (plane, run, task, restart, attempt, container, run_created_at) DO UPDATE SET \
         location = excluded.location, bytes = excluded.bytes, line_count = excluded.line_count, complete = excluded.complete \
         WHERE excluded.bytes >= logs.bytes",
    );
    sql.query().execute(&mut *write.tx).await?;
    Ok(())
}
