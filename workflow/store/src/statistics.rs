//! Statistics per day, from roll-ups.

use crate::database::Database;
use crate::rollups::{DAY, bucket_millis};
use crate::sql::Sql;
use crate::{Error, Result, Scope};
use serde::Serialize;
use sqlx::Row as _;
use std::collections::BTreeMap;

/// The most days of a query.
pub const MAX_DAYS: i64 = 400;

/// What the runs that ended on a day amount to.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Day {
    /// The day in UTC: `2026-11-24`.
    pub day: String,
    /// Runs that succeeded.
    pub succeeded: i64,
    /// Runs that failed.
    pub failed: i64,
    /// Runs that were stopped.
    pub stopped: i64,
    /// The part of runs that succeeded, of those that did or failed; `None` without any.
    pub success_rate: Option<f64>,
    /// The mean time from start to end in milliseconds.
    pub mean_duration_millis: i64,
    /// The mean time from creation to start in milliseconds.
    pub mean_queue_millis: i64,
    /// How long runs took.
    pub duration: Quantiles,
    /// How long runs waited.
    pub queue: Quantiles,
}

/// Quantiles in milliseconds, off by 9 % at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Quantiles {
    /// Half of the runs.
    pub p50: i64,
    /// 19 of 20.
    pub p95: i64,
    /// 99 of 100.
    pub p99: i64,
}

impl Database {
    /// Returns the days from `from` to before `to` (milliseconds) on which runs ended, of a DAG or of all in the scope.
    ///
    /// # Errors
    /// [`Error::Query`] for more than [`MAX_DAYS`], or for a DAG without namespaces; [`Error::Database`].
    pub async fn days(&self, scope: &Scope, dag: Option<&str>, from: i64, to: i64) -> Result<Vec<Day>> {
        let (from, to) = (from.div_euclid(DAY), (to - 1).div_euclid(DAY));
        if to - from > MAX_DAYS {
            return Err(Error::Query(format!("{} days; at most {MAX_DAYS}", to - from)));
        }
        if scope.named().is_none() && dag.is_some() {
            return Err(Error::Query("a DAG's statistics are of a namespace: give one".into()));
        }
        let mut sql = Sql::new(
            "SELECT day, CAST(SUM(succeeded) AS BIGINT) AS succeeded, CAST(SUM(failed) AS BIGINT) AS failed, \
             CAST(SUM(stopped) AS BIGINT) AS stopped, CAST(SUM(duration_sum) AS BIGINT) AS duration_sum, \
             CAST(SUM(queue_sum) AS BIGINT) AS queue_sum FROM days WHERE ",
        );
        confine(&mut sql, scope, dag, from, to);
        sql.push(" GROUP BY day ORDER BY day");
        let rows = sql.query().fetch_all(&self.pool).await?;
        let mut buckets = self.buckets(scope, dag, from, to).await?;
        let mut days = Vec::with_capacity(rows.len());
        for row in rows {
            let int = |column| row.try_get::<i64, _>(column);
            let (succeeded, failed, stopped) = (int("succeeded")?, int("failed")?, int("stopped")?);
            let day = int("day")?;
            let all = (succeeded + failed + stopped).max(1);
            let judged = succeeded + failed;
            let mut quantiles =
                |measure: &str| quantiles(&buckets.remove(&(day, measure.to_owned())).unwrap_or_default());
            days.push(Day {
                day: name_of(day),
                succeeded,
                failed,
                stopped,
                success_rate: (judged > 0).then(|| succeeded as f64 / judged as f64),
                mean_duration_millis: int("duration_sum")? / all,
                mean_queue_millis: int("queue_sum")? / all,
                duration: quantiles("duration"),
                queue: quantiles("queue"),
            });
        }
        Ok(days)
    }

    async fn buckets(
        &self,
        scope: &Scope,
        dag: Option<&str>,
        from: i64,
        to: i64,
    ) -> Result<BTreeMap<(i64, String), Vec<(i64, i64)>>> {
        let mut sql = Sql::new(
            "SELECT day, measure, bucket, CAST(SUM(runs) AS BIGINT) AS runs FROM day_buckets WHERE ",
        );
        confine(&mut sql, scope, dag, from, to);
        sql.push(" GROUP BY day, measure, bucket ORDER BY day, measure, bucket");
        let mut buckets = BTreeMap::<_, Vec<_>>::new();
        for row in sql.query().fetch_all(&self.pool).await? {
            let key = (row.try_get::<i64, _>("day")?, row.try_get::<String, _>("measure")?);
            buckets.entry(key).or_default().push((row.try_get("bucket")?, row.try_get("runs")?));
        }
        Ok(buckets)
    }
}

/// Roll-ups of a whole plane and of whole namespaces are rows of their own, with empty names.
fn confine(sql: &mut Sql, scope: &Scope, dag: Option<&str>, from: i64, to: i64) {
    scope.confine(sql);
    if scope.named().is_none() {
        sql.push(" AND namespace = ").text("");
    }
    sql.push(" AND dag = ").text(dag.unwrap_or_default());
    sql.push(" AND day >= ").int(from).push(" AND day <= ").int(to);
}

/// Reads quantiles off buckets with their numbers of runs, smallest first.
fn quantiles(buckets: &[(i64, i64)]) -> Quantiles {
    let all: i64 = buckets.iter().map(|(_, runs)| (*runs).max(0)).sum();
    let at = |percent: i64| {
        let mut seen = 0;
        let rank = (all * percent + 99) / 100;
        let found = buckets.iter().find(|(_, runs)| {
            seen += (*runs).max(0);
            seen >= rank && seen > 0
        });
        found.map_or(0, |(bucket, _)| bucket_millis(*bucket))
    };
    Quantiles { p50: at(50), p95: at(95), p99: at(99) }
}

fn name_of(day: i64) -> String {
    let start = jiff::Timestamp::from_millisecond(day.saturating_mul(DAY)).unwrap_or_default();
    start.to_string().chars().take(10).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bucket;

    #[test]
    fn quantiles_are_read_off_buckets() {
        let buckets = [(bucket(100), 90), (bucket(10_000), 10)];
        let read = quantiles(&buckets);
        assert!((91..=110).contains(&read.p50) && (9_100..=11_000).contains(&read.p95), "{read:?}");
        assert_eq!(quantiles(&[]), Quantiles::default());
        assert_eq!(name_of(20_781), "2026-11-24");
    }
}
