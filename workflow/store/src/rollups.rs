//! What days amount to: outcomes, durations and waits of runs, kept as runs end.

use crate::database::Write;
use crate::sql::Sql;
use crate::{Phase, Result, RunRecord};
use std::collections::BTreeMap;

/// A day in milliseconds.
pub(crate) const DAY: i64 = 86_400_000;
/// Buckets of a doubling.
const PER_DOUBLING: f64 = 4.0;

/// Returns the bucket of a time in milliseconds: four to each doubling, so that a quantile is off by 9 % at most.
pub fn bucket(millis: i64) -> i64 {
    if millis < 1 { 0 } else { 1 + ((millis as f64).log2() * PER_DOUBLING).floor() as i64 }
}

/// Returns the middle of a bucket in milliseconds.
pub fn bucket_millis(bucket: i64) -> i64 {
    if bucket < 1 { 0 } else { ((bucket as f64 - 0.5) / PER_DOUBLING).exp2().round() as i64 }
}

/// A row of `days`.
type Key = (String, String, String, i64);

#[derive(Debug, Default, PartialEq)]
struct Sums {
    succeeded: i64,
    failed: i64,
    stopped: i64,
    duration: i64,
    queue: i64,
}

/// What a batch changes, summed before it is written. Keys are sorted, so that batches take row locks in one order.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Changes {
    days: BTreeMap<Key, Sums>,
    buckets: BTreeMap<(Key, &'static str, i64), i64>,
}

impl Changes {
    /// Counts the end of a run (`by` 1), or takes it back (-1): for its DAG, its namespace and its plane.
    pub(crate) fn count(&mut self, run: &RunRecord, by: i64) {
        let Some(ended_at) = run.ended_at else { return };
        let day = ended_at.div_euclid(DAY);
        let (duration, queue) = (run.duration_millis().unwrap_or(0), run.queue_millis().unwrap_or(0));
        let own = crate::scope::key(&run.namespace, &run.namespace_uid);
        let levels = [(own.as_str(), run.dag.as_str()), (own.as_str(), ""), ("", "")];
        // A run without a DAG has no level of its own.
        for (namespace, dag) in levels.into_iter().skip(usize::from(run.dag.is_empty())) {
            let key = (run.plane.clone(), namespace.to_owned(), dag.to_owned(), day);
            let sums = self.days.entry(key.clone()).or_default();
            match run.phase {
                Phase::Succeeded => sums.succeeded += by,
                Phase::Failed => sums.failed += by,
                _ => sums.stopped += by,
            }
            sums.duration += duration * by;
            sums.queue += queue * by;
            *self.buckets.entry((key.clone(), "duration", bucket(duration))).or_default() += by;
            *self.buckets.entry((key, "queue", bucket(queue))).or_default() += by;
        }
    }

    pub(crate) async fn write(self, write: &mut Write) -> Result<()> {
        for ((plane, namespace, dag, day), sums) in self.days {
            let mut sql = Sql::new(
                "INSERT INTO days (plane, namespace, dag, day, succeeded, failed, stopped, duration_sum, queue_sum) VALUES (",
            );
            sql.text(&plane).push(", ").text(&namespace).push(", ").text(&dag);
            for value in [day, sums.succeeded, sums.failed, sums.stopped, sums.duration, sums.queue] {
                sql.push(", ").int(value);
            }
            sql.push(
                ") ON CONFLICT (plane, namespace, dag, day) DO UPDATE SET succeeded = days.succeeded + excluded.succeeded, \
                 failed = days.failed + excluded.failed, stopped = days.stopped + excluded.stopped, \
                 duration_sum = days.duration_sum + excluded.duration_sum, queue_sum = days.queue_sum + excluded.queue_sum",
            );
            sql.query().execute(&mut *write.tx).await?;
        }
        for (((plane, namespace, dag, day), measure, bucket), runs) in
            self.buckets.into_iter().filter(|(_, runs)| *runs != 0)
        {
            let mut sql = Sql::new(
                "INSERT INTO day_buckets (plane, namespace, dag, day, measure, bucket, runs) VALUES (",
            );
            sql.text(&plane).push(", ").text(&namespace).push(", ").text(&dag).push(", ").int(day);
            sql.push(", ").text(measure).push(", ").int(bucket).push(", ").int(runs);
            sql.push(
                ") ON CONFLICT (plane, namespace, dag, day, measure, bucket) DO UPDATE SET runs = day_buckets.runs + excluded.runs",
            );
            sql.query().execute(&mut *write.tx).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_within_nine_percent() {
        for millis in [1, 2, 3, 10, 999, 60_000, 3_600_000, 86_400_000] {
            let middle = bucket_millis(bucket(millis)) as f64;
            assert!((middle / millis as f64 - 1.0).abs() < 0.095 || millis < 8, "{millis}: {middle}");
        }
        assert_eq!((bucket(0), bucket(-5), bucket_millis(0)), (0, 0, 0));
    }

    #[test]
    fn a_run_counts_for_its_dag_its_namespace_and_its_plane_once_each() {
        let run = RunRecord {
            plane: "p".into(),
            namespace: "n".into(),
            dag: "d".into(),
            ended_at: Some(DAY),
            ..RunRecord::default()
        };
        let mut changes = Changes::default();
        changes.count(&run, 1);
        assert_eq!(changes.days.len(), 3);
        let without_dag = RunRecord { dag: String::new(), ..run };
        let mut changes = Changes::default();
        changes.count(&without_dag, 1);
        assert_eq!(changes.days.values().map(|s| s.stopped).collect::<Vec<_>>(), [1, 1]);
    }
}
