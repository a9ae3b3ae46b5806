//! Lists of runs, newest first.

use crate::database::Database;
use crate::page::{Cursor, Page, limit, page};
use crate::sql::Sql;
use crate::{Counts, Error, Phase, Result, RunRecord, Scope};
use sqlx::Row as _;
use sqlx::any::AnyRow;
use std::collections::BTreeSet;

pub(crate) const COLUMNS: &str = "plane, namespace, uid, name, dag, phase, reason, message, started_by, restart, revision, \
     created_at, started_at, ended_at, total, succeeded, failed, skipped, parameters";
/// Index ranges that one list merges: namespaces times phases.
const MAX_RANGES: usize = 64;

/// Which runs are listed. Empty fields leave nothing out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunFilter {
    /// Runs of this DAG; the scope has to name namespaces.
    pub dag: Option<String>,
    /// The run of exactly this name; the scope has to name namespaces.
    pub name: Option<String>,
    /// Runs in these phases.
    pub phases: BTreeSet<Phase>,
    /// Created at this time or later.
    pub from: Option<i64>,
    /// Created before this time.
    pub to: Option<i64>,
    /// After this place.
    pub after: Option<Cursor>,
    /// At most so many; 0 is 100, and [`MAX_PAGE`](crate::MAX_PAGE) the most.
    pub limit: usize,
}

impl Database {
    /// Lists runs of a scope, newest first. The time it takes does not depend on how many runs there are.
    ///
    /// # Errors
    /// [`Error::Query`] for a filter that no index serves; [`Error::Database`].
    pub async fn runs(&self, scope: &Scope, filter: &RunFilter) -> Result<Page<RunRecord>> {
        let limit = limit(filter.limit);
        let ranges = ranges(scope, filter)?;
        if ranges.is_empty() {
            return Ok(Page { items: Vec::new(), next: None });
        }
        let sql = statement(scope, filter, &ranges, limit + 1);
        let rows = sql.query().fetch_all(&self.pool).await?;
        let runs = rows.iter().map(read).collect::<Result<Vec<_>>>()?;
        Ok(page(runs, limit, |run| Cursor { at: run.created_at, key: run.uid.clone() }))
    }

    /// Reads a run by its uid; `None` where the scope has no such run.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub async fn run(&self, scope: &Scope, uid: &str) -> Result<Option<RunRecord>> {
        let mut sql = Sql::new("SELECT ");
        sql.push(COLUMNS).push(" FROM runs WHERE uid = ").text(uid).push(" AND ");
        scope.confine(&mut sql);
        sql.push(" ORDER BY created_at DESC LIMIT 1");
        sql.query().fetch_optional(&self.pool).await?.as_ref().map(read).transpose()
    }
}

/// A range of an index: a namespace and a phase, or all of them.
type Range = (Option<String>, Option<Phase>);

fn ranges(scope: &Scope, filter: &RunFilter) -> Result<Vec<Range>> {
    let named = scope.named();
    if named.is_none() && (filter.dag.is_some() || filter.name.is_some()) {
        return Err(Error::Query("runs of a DAG, or of a name, are listed by namespace: give one".into()));
    }
    let namespaces: Vec<Option<String>> = match named {
        Some(named) => named.iter().cloned().map(Some).collect(),
        None => vec![None],
    };
    let phases: Vec<Option<Phase>> = match filter.phases.is_empty() {
        true => vec![None],
        false => filter.phases.iter().copied().map(Some).collect(),
    };
    let ranges: Vec<Range> =
        namespaces.iter().flat_map(|n| phases.iter().map(move |p| (n.clone(), *p))).collect();
    if ranges.len() > MAX_RANGES {
        return Err(Error::Query(format!(
            "namespaces times phases are {}; at most {MAX_RANGES}",
            ranges.len()
        )));
    }
    Ok(ranges)
}

/// Reads the head of each index range and merges them: an `IN` would sort everything that matches.
fn statement(scope: &Scope, filter: &RunFilter, ranges: &[Range], limit: usize) -> Sql {
    let limit = limit as i64;
    let mut sql = Sql::new("SELECT * FROM (");
    for (i, (namespace, phase)) in ranges.iter().enumerate() {
        sql.push(if i > 0 { " UNION ALL " } else { "" }).push("SELECT * FROM (SELECT ").push(COLUMNS);
        sql.push(" FROM runs WHERE plane = ").text(scope.plane_id());
        if let Some(namespace) = namespace {
            sql.push(" AND namespace = ").text(namespace);
        }
        if let Some(dag) = &filter.dag {
            sql.push(" AND dag = ").text(dag);
        }
        if let Some(name) = &filter.name {
            sql.push(" AND name = ").text(name);
        }
        if let Some(phase) = phase {
            sql.push(" AND phase = ").text(phase.as_str());
        }
        if let Some(from) = filter.from {
            sql.push(" AND created_at >= ").int(from);
        }
        if let Some(to) = filter.to {
            sql.push(" AND created_at < ").int(to);
        }
        if let Some(after) = &filter.after {
            sql.push(" AND (created_at, uid) < (").int(after.at).push(", ").text(&after.key).push(")");
        }
        sql.push(" ORDER BY created_at DESC, uid DESC LIMIT ").int(limit).push(&format!(") AS r{i}"));
    }
    sql.push(") AS merged ORDER BY created_at DESC, uid DESC LIMIT ").int(limit);
    if ranges.len() > 4 {
        sql.once();
    }
    sql
}

pub(crate) fn read(row: &AnyRow) -> Result<RunRecord> {
    let text = |column| row.try_get::<String, _>(column);
    let int = |column| row.try_get::<i64, _>(column);
    let (namespace, namespace_uid) = crate::scope::parts(&text("namespace")?);
    Ok(RunRecord {
        plane: text("plane")?,
        namespace,
        namespace_uid,
        uid: text("uid")?,
        name: text("name")?,
        dag: text("dag")?,
        phase: text("phase")?.parse().map_err(Error::Database)?,
        reason: text("reason")?,
        message: text("message")?,
        trigger: text("started_by")?,
        restart: int("restart")?,
        revision: int("revision")?,
        created_at: int("created_at")?,
        started_at: row.try_get("started_at")?,
        ended_at: row.try_get("ended_at")?,
        counts: Counts {
            total: int("total")?,
            succeeded: int("succeeded")?,
            failed: int("failed")?,
            skipped: int("skipped")?,
        },
        parameters: text("parameters")?,
    })
}
