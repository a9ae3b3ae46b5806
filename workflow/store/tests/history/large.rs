//! A million runs: how long lists take. Printed, and held to the goal of 50 ms.

use crate::postgres::Postgres;
use freehold_workflow_store::{Counts, Cursor, Database, Phase, Record, RunFilter, RunRecord, Scope};
use std::time::{Duration, Instant};

const DAY: i64 = 86_400_000;
const T0: i64 = 1_795_478_400_000;
const PHASES: [Phase; 10] = [
    Phase::Succeeded,
    Phase::Succeeded,
    Phase::Succeeded,
    Phase::Succeeded,
    Phase::Succeeded,
    Phase::Succeeded,
    Phase::Succeeded,
    Phase::Failed,
    Phase::Failed,
    Phase::Stopped,
];

fn run(i: i64, all: i64) -> RunRecord {
    // Over 90 days, 10 planes, 20 namespaces each, 25 DAGs each.
    let at = T0 - 90 * DAY + i * (90 * DAY / all);
    let mixed = (i.wrapping_mul(2_654_435_761)).rem_euclid(1 << 31);
    let phase = PHASES[(mixed % 10) as usize];
    RunRecord {
        plane: format!("plane-{}", mixed % 10),
        namespace: format!("team-{}", (mixed / 10) % 20),
        uid: format!("{:016x}-{i:08x}", mixed.wrapping_mul(6_364_136_223_846_793_005)),
        name: format!("nightly-{i}"),
        dag: format!("dag-{}", (mixed / 200) % 25),
        phase,
        trigger: "schedule".into(),
        revision: 3,
        created_at: at,
        started_at: Some(at + 200),
        ended_at: Some(at + 200 + mixed % 600_000),
        counts: Counts { total: 4, succeeded: 4, failed: 0, skipped: 0 },
        ..RunRecord::default()
    }
}

async fn measure(name: &str, database: &Database, all: i64) {
    let begun = Instant::now();
    let mut batch: Vec<Record> = Vec::new();
    for i in 0..all {
        batch.push(run(i, all).into());
        if batch.len() == 10_000 {
            database.write(std::mem::take(&mut batch), None).await.unwrap();
        }
    }
    database.write(batch, None).await.unwrap();
    let took = begun.elapsed();
    println!(
        "{name}: {all} runs written in {:.1} s, {:.0} a second",
        took.as_secs_f64(),
        all as f64 / took.as_secs_f64()
    );
    let plane = Scope::plane("plane-3");
    let one = Scope::namespace("plane-3", "team-7");
    let eight = Scope::namespaces("plane-3", (0..8).map(|n| format!("team-{n}"))).unwrap();
    let filters = |scope: &Scope| {
        let failed = RunFilter { phases: [Phase::Failed].into(), ..RunFilter::default() };
        let running = RunFilter { phases: [Phase::Running].into(), ..RunFilter::default() };
        let month = RunFilter { from: Some(T0 - 60 * DAY), to: Some(T0 - 30 * DAY), ..RunFilter::default() };
        let mut filters =
            vec![("all", RunFilter::default()), ("failed", failed), ("running", running), ("a month", month)];
        if scope.named().is_some() {
            let dag = RunFilter { dag: Some("dag-4".into()), ..RunFilter::default() };
            let both = RunFilter { phases: [Phase::Failed, Phase::Stopped].into(), ..dag.clone() };
            let name = RunFilter { name: Some("nightly-77777".into()), ..RunFilter::default() };
            filters.extend([("of a DAG", dag), ("of a DAG, failed or stopped", both), ("by name", name)]);
        }
        filters
    };
    let mut slowest = Duration::ZERO;
    for (scope_name, scope) in [("plane", &plane), ("namespace", &one), ("8 namespaces", &eight)] {
        for (filter_name, filter) in filters(scope) {
            let mut times = Vec::new();
            let mut after: Option<Cursor> = None;
            for _ in 0..200 {
                let filter = RunFilter { after: after.take(), limit: 100, ..filter.clone() };
                let begun = Instant::now();
                let page = database.runs(scope, &filter).await.unwrap();
                times.push(begun.elapsed());
                after = page.next.map(|next| Cursor::decode(&next).unwrap());
            }
            times.sort();
            slowest = slowest.max(times[197]);
            println!("{name}: {scope_name}, {filter_name}: p50 {:?}, p99 {:?}", times[99], times[197]);
        }
    }
    let begun = Instant::now();
    let days = database.days(&plane, None, T0 - 90 * DAY, T0).await.unwrap();
    println!("{name}: statistics of 90 days: {:?} ({} days)", begun.elapsed(), days.len());
    let begun = Instant::now();
    let mut purged = 0;
    while begun.elapsed() < Duration::from_secs(3) {
        purged += database.purge(T0 - 80 * DAY).await.unwrap().runs;
    }
    println!("{name}: {:.0} runs purged a second", purged as f64 / begun.elapsed().as_secs_f64());
    assert!(slowest < Duration::from_millis(50), "the slowest list has a p99 of {slowest:?}");
}

/// Rows: `FREEHOLD_TEST_WORKFLOW_RUNS`.
fn rows() -> Option<i64> {
    std::env::var("FREEHOLD_TEST_WORKFLOW_RUNS").ok()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_of_a_million_runs_take_less_than_50_ms_in_sqlite() {
    let Some(rows) = rows() else { return };
    let (database, _folder) = crate::sqlite().await;
    measure("SQLite", &database, rows).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_of_a_million_runs_take_less_than_50_ms_in_postgresql() {
    let Some(rows) = rows() else { return };
    let postgres = Postgres::start();
    measure("PostgreSQL", &postgres.database("large").await, rows).await;
}
