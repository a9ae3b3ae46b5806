//! The history on both engines: SQLite in a file, and PostgreSQL from the distribution, started by the test.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod facts;
mod large;
mod postgres;

use freehold_workflow_store::{Database, Location};
use postgres::Postgres;

/// A database in a file of its own.
async fn sqlite() -> (Database, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(&Location::File(folder.path().join("a history.db"))).await.unwrap();
    (database, folder)
}

/// One test for each fact on SQLite, and one for all of them on PostgreSQL, which takes a second to start.
macro_rules! facts {
    ($($name:ident),+ $(,)?) => {
        mod in_sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let (database, _folder) = super::sqlite().await;
                super::facts::$name(database).await;
            })+
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn all_of_it_holds_in_postgresql() {
            let postgres = Postgres::start();
            $(
                eprintln!("{}", stringify!($name));
                facts::$name(postgres.database(stringify!($name)).await).await;
            )+
        }
    };
}

facts! {
    records_may_come_twice_and_in_any_order,
    lists_are_confined_to_their_scope,
    pages_go_on_where_the_last_ended_while_runs_are_added,
    filters_combine,
    a_run_counts_once_in_its_day,
    attempts_end_once,
    logs_are_found_by_run_and_by_pod,
    old_runs_are_purged_and_roll_ups_stay,
    a_namespace_that_comes_again_has_nothing_of_the_one_before,
    a_plane_keeps_its_share_of_runs,
    a_lost_lease_records_nothing,
    a_dead_controller_is_replaced_in_five_seconds,
    four_controllers_share_the_partitions,
    concurrent_records_of_many_controllers_lose_nothing,
    accounts_and_tokens_end,
}

#[tokio::test]
async fn a_closed_history_is_opened_again_with_everything_in_it() {
    use freehold_workflow_store::{RunRecord, Scope};
    let (database, folder) = sqlite().await;
    let run = RunRecord {
        plane: "p".into(),
        namespace: "n".into(),
        uid: "u".into(),
        created_at: 1_700_000_000_000,
        ..RunRecord::default()
    };
    database.write(vec![run.clone().into()], None).await.unwrap();
    database.close().await;
    let again = Database::open(&Location::File(folder.path().join("a history.db"))).await.unwrap();
    assert_eq!(again.run(&Scope::plane("p"), "u").await.unwrap(), Some(run));
}

#[tokio::test]
async fn a_database_of_a_later_version_is_refused() {
    let (database, folder) = sqlite().await;
    database.close().await;
    let path = folder.path().join("a history.db");
    let pool = sqlx::any::AnyPoolOptions::new()
        .connect(&format!("sqlite:{}", path.display().to_string().replace(' ', "%20")))
        .await
        .unwrap();
    sqlx::query("INSERT INTO schema_versions (version, applied) VALUES (999, '')")
        .execute(&pool)
        .await
        .unwrap();
    pool.close().await;
    let error = Database::open(&Location::File(path)).await.unwrap_err().to_string();
    assert!(error.contains("schema 999"), "{error}");
}

#[tokio::test]
async fn months_are_partitions_that_are_dropped_whole() {
    use freehold_workflow_store::{Phase, RunRecord, Scope};
    let postgres = Postgres::start();
    let database = postgres.database("months").await;
    let day = 86_400_000;
    for month in 0..4 {
        let at = 1_700_000_000_000 + month * 31 * day;
        let run = RunRecord {
            plane: "p".into(),
            namespace: "n".into(),
            uid: format!("u{month}"),
            phase: Phase::Succeeded,
            created_at: at,
            started_at: Some(at),
            ended_at: Some(at + 5),
            ..RunRecord::default()
        };
        database.write(vec![run.into()], None).await.unwrap();
    }
    let purged = database.purge(1_700_000_000_000 + 2 * 31 * day).await.unwrap();
    assert_eq!(purged.partitions, ["runs_202311", "runs_202312"]);
    let left = database.runs(&Scope::plane("p"), &Default::default()).await.unwrap();
    assert_eq!(left.items.iter().map(|r| r.uid.as_str()).collect::<Vec<_>>(), ["u3", "u2"]);
    // A month that was dropped can be written again.
    let at = 1_700_000_000_000;
    let late = RunRecord {
        plane: "p".into(),
        namespace: "n".into(),
        uid: "late".into(),
        created_at: at,
        ..RunRecord::default()
    };
    database.write(vec![late.into()], None).await.unwrap();
    assert_eq!(database.runs(&Scope::plane("p"), &Default::default()).await.unwrap().items.len(), 3);
}
