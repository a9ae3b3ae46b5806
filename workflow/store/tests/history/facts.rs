//! What holds on both engines.

use freehold_workflow_store::{
    Account, Counts, Cursor, Database, Error, LeaseOptions, Leases, LogRecord, Phase, Purged, Record,
    Recorder, Role, RunFilter, RunRecord, Scope, TaskRecord, TokenRecord,
};
use std::collections::{BTreeSet, HashSet};
use std::time::{Duration, Instant};

/// 2026-11-24T00:00:00Z.
const T0: i64 = 1_795_478_400_000;
const DAY: i64 = 86_400_000;

pub(crate) fn run(uid: &str, phase: Phase, at: i64) -> RunRecord {
    let over = phase.is_over();
    RunRecord {
        plane: "web".into(),
        namespace: "default".into(),
        uid: uid.into(),
        name: format!("run-{uid}"),
        dag: "build".into(),
        phase,
        trigger: "user".into(),
        revision: if over { 9 } else { 1 },
        created_at: at,
        started_at: Some(at + 1_000),
        ended_at: over.then_some(at + 61_000),
        counts: Counts { total: 3, succeeded: 2, failed: 1, skipped: 0 },
        parameters: "{\"a\":1}".into(),
        ..RunRecord::default()
    }
}

async fn uids(database: &Database, scope: &Scope, filter: &RunFilter) -> Vec<String> {
    database.runs(scope, filter).await.unwrap().items.into_iter().map(|run| run.uid).collect()
}

pub(crate) async fn records_may_come_twice_and_in_any_order(database: Database) {
    let scope = Scope::namespace("web", "default");
    let (begun, ended) = (run("a", Phase::Running, T0), run("a", Phase::Succeeded, T0));
    for record in [&ended, &begun, &ended, &begun] {
        database.write(vec![record.clone().into()], None).await.unwrap();
    }
    assert_eq!(database.run(&scope, "a").await.unwrap().unwrap(), ended);
    // Within a batch as well.
    database
        .write(vec![run("b", Phase::Failed, T0).into(), run("b", Phase::Running, T0).into()], None)
        .await
        .unwrap();
    assert_eq!(database.run(&scope, "b").await.unwrap().unwrap().phase, Phase::Failed);
    // A later end changes nothing.
    let later = RunRecord { ended_at: Some(T0 + DAY), phase: Phase::Failed, revision: 99, ..ended.clone() };
    database.write(vec![later.into()], None).await.unwrap();
    assert_eq!(database.run(&scope, "a").await.unwrap().unwrap(), ended);
    let refused = RunRecord { created_at: 5, ..begun };
    assert!(matches!(database.write(vec![refused.into()], None).await, Err(Error::Record { .. })));
}

pub(crate) async fn lists_are_confined_to_their_scope(database: Database) {
    let mut records: Vec<Record> = Vec::new();
    for (plane, namespace) in [("web", "default"), ("web", "team"), ("web", "other"), ("shop", "default")] {
        let uid = format!("{plane}-{namespace}");
        let task = TaskRecord {
            plane: plane.into(),
            namespace: namespace.into(),
            run: uid.clone(),
            run_created_at: T0,
            task: "t".into(),
            ..TaskRecord::default()
        };
        records.push(
            RunRecord { plane: plane.into(), namespace: namespace.into(), ..run(&uid, Phase::Succeeded, T0) }
                .into(),
        );
        records.push(task.into());
    }
    database.write(records, None).await.unwrap();
    let named = |names: &[&str]| Scope::namespaces("web", names.iter().map(|s| (*s).to_owned())).unwrap();
    for (scope, seen) in [
        (Scope::plane("web"), vec!["web-team", "web-other", "web-default"]),
        (Scope::namespace("web", "team"), vec!["web-team"]),
        (named(&["team", "other"]), vec!["web-team", "web-other"]),
        (named(&[]), vec![]),
        (Scope::plane("nobody"), vec![]),
        (Scope::plane("' OR 1=1 --"), vec![]),
    ] {
        assert_eq!(uids(&database, &scope, &RunFilter::default()).await, seen, "{scope:?}");
    }
    let team = Scope::namespace("web", "team");
    assert!(database.run(&team, "web-default").await.unwrap().is_none());
    assert!(database.run(&team, "shop-default").await.unwrap().is_none());
    assert!(database.tasks(&team, "web-default", None, 0).await.unwrap().items.is_empty());
    assert_eq!(database.tasks(&team, "web-team", None, 0).await.unwrap().items.len(), 1);
    assert_eq!(database.days(&team, None, T0, T0 + DAY).await.unwrap()[0].succeeded, 1);
    assert_eq!(database.days(&Scope::plane("web"), None, T0, T0 + DAY).await.unwrap()[0].succeeded, 3);
    assert!(Scope::namespaces("web", (0..65).map(|n| n.to_string())).is_err());
}

pub(crate) async fn pages_go_on_where_the_last_ended_while_runs_are_added(database: Database) {
    let at = |i: usize| T0 + (i as i64 / 3) * 10; // three share a time
    database
        .write((0..100).map(|i| run(&format!("{i:03}"), Phase::Succeeded, at(i)).into()).collect(), None)
        .await
        .unwrap();
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let filter = RunFilter { limit: 7, after, ..RunFilter::default() };
        let page = database.runs(&Scope::plane("web"), &filter).await.unwrap();
        seen.extend(page.items.into_iter().map(|run| run.uid));
        // Newer ones are not seen, and move nothing.
        database
            .write(vec![run(&format!("new{}", seen.len()), Phase::Running, T0 + DAY).into()], None)
            .await
            .unwrap();
        match page.next {
            Some(next) => after = Some(Cursor::decode(&next).unwrap()),
            None => break,
        }
    }
    assert_eq!(seen.len(), 100);
    assert!(seen.windows(2).all(|pair| pair[0] > pair[1]), "newest first, each once");
    assert!(Cursor::decode("nonsense").is_err());
}

pub(crate) async fn filters_combine(database: Database) {
    let mut records: Vec<Record> = Vec::new();
    for i in 0..60_i64 {
        let phase = [Phase::Succeeded, Phase::Failed, Phase::Running][(i % 3) as usize];
        let (namespace, dag) = (["default", "team"][(i % 2) as usize], ["build", "test"][(i / 30) as usize]);
        let run = RunRecord {
            namespace: namespace.into(),
            dag: dag.into(),
            ..run(&format!("{i:02}"), phase, T0 + i)
        };
        records.push(run.into());
    }
    database.write(records, None).await.unwrap();
    let both = Scope::namespaces("web", ["default".to_owned(), "team".to_owned()]).unwrap();
    let phases = |list: &[Phase]| list.iter().copied().collect::<BTreeSet<_>>();
    let rows = [
        (RunFilter { dag: Some("test".into()), ..RunFilter::default() }, 30),
        (RunFilter { phases: phases(&[Phase::Failed]), ..RunFilter::default() }, 20),
        (
            RunFilter {
                phases: phases(&[Phase::Failed, Phase::Running]),
                dag: Some("build".into()),
                ..RunFilter::default()
            },
            20,
        ),
        (RunFilter { from: Some(T0 + 10), to: Some(T0 + 20), ..RunFilter::default() }, 10),
        (RunFilter { name: Some("run-07".into()), ..RunFilter::default() }, 1),
    ];
    for (filter, count) in rows {
        let found = uids(&database, &both, &filter).await;
        assert_eq!(found.len(), count, "{filter:?}");
        assert!(found.windows(2).all(|pair| pair[0] > pair[1]), "{found:?}");
    }
    let unserved = RunFilter { dag: Some("test".into()), ..RunFilter::default() };
    assert!(matches!(database.runs(&Scope::plane("web"), &unserved).await, Err(Error::Query(_))));
}

pub(crate) async fn a_run_counts_once_in_its_day(database: Database) {
    for _ in 0..3 {
        database
            .write(vec![run("a", Phase::Failed, T0).into(), run("b", Phase::Succeeded, T0).into()], None)
            .await
            .unwrap();
    }
    let scope = Scope::namespace("web", "default");
    let days = || async { database.days(&scope, Some("build"), T0, T0 + DAY).await.unwrap() };
    let first = days().await;
    assert_eq!(
        (first.len(), first[0].succeeded, first[0].failed, first[0].success_rate),
        (1, 1, 1, Some(0.5))
    );
    assert_eq!((first[0].mean_duration_millis, first[0].mean_queue_millis), (60_000, 1_000));
    assert!((55_000..66_000).contains(&first[0].duration.p50), "{:?}", first[0]);
    assert_eq!(first[0].day, "2026-11-24");
    // Retried from its failed task, it counts as what it comes to.
    let again = RunRecord { restart: 1, ..run("a", Phase::Running, T0) };
    database.write(vec![again.into()], None).await.unwrap();
    assert_eq!((days().await[0].succeeded, days().await[0].failed), (1, 0));
    let better = RunRecord { restart: 1, ..run("a", Phase::Succeeded, T0) };
    database.write(vec![better.clone().into(), better.into()], None).await.unwrap();
    assert_eq!((days().await[0].succeeded, days().await[0].failed), (2, 0));
    assert!(database.days(&scope, None, T0 - 500 * DAY, T0).await.is_err());
}

fn task(name: &str, attempt: i64, phase: Phase) -> TaskRecord {
    TaskRecord {
        plane: "web".into(),
        namespace: "default".into(),
        run: "a".into(),
        run_created_at: T0,
        task: name.into(),
        attempt,
        phase,
        ended_at: phase.is_over().then_some(T0 + 5),
        ..TaskRecord::default()
    }
}

pub(crate) async fn attempts_end_once(database: Database) {
    let begun = TaskRecord {
        pod: "p1".into(),
        node: "n1".into(),
        started_at: Some(T0 + 1),
        ..task("t", 0, Phase::Running)
    };
    let ended = TaskRecord { exit_code: Some(3), ..task("t", 0, Phase::Failed) };
    let again = task("t", 0, Phase::Succeeded);
    let second = task("t", 1, Phase::Succeeded);
    for record in [begun, ended, again, second] {
        database.write(vec![record.into()], None).await.unwrap();
    }
    let many: Vec<Record> =
        (0..30).map(|i| task(&format!("f[{i:02}]"), 0, Phase::Succeeded).into()).collect();
    database.write(many, None).await.unwrap();
    let scope = Scope::plane("web");
    let first = database.tasks(&scope, "a", None, 30).await.unwrap();
    let after = Cursor::decode(first.next.as_deref().unwrap()).unwrap();
    let second = database.tasks(&scope, "a", Some(&after), 30).await.unwrap();
    assert_eq!((first.items.len(), second.items.len(), second.next), (30, 2, None));
    let kept = &second.items[0];
    assert_eq!(
        (kept.phase, kept.exit_code, kept.pod.as_str(), kept.started_at),
        (Phase::Failed, Some(3), "p1", Some(T0 + 1))
    );
    assert_eq!(second.items[1].attempt, 1);
}

pub(crate) async fn logs_are_found_by_run_and_by_pod(database: Database) {
    let log = |bytes: i64, complete: bool| LogRecord {
        plane: "web".into(),
        namespace: "default".into(),
        run: "a".into(),
        run_created_at: T0,
        task: "t".into(),
        container: "main".into(),
        pod_uid: "p".into(),
        location: "x/y".into(),
        bytes,
        complete,
        ..LogRecord::default()
    };
    for (bytes, complete) in [(10, false), (30, true), (20, false)] {
        database.write(vec![log(bytes, complete).into()], None).await.unwrap();
    }
    let scope = Scope::namespace("web", "default");
    let found = database.logs(&scope, "a", Some("t")).await.unwrap();
    assert_eq!(found, database.logs_of_pod(&scope, "p").await.unwrap());
    assert_eq!((found.len(), found[0].bytes, found[0].complete), (1, 30, true));
    assert!(database.logs_of_pod(&Scope::namespace("web", "team"), "p").await.unwrap().is_empty());
}

pub(crate) async fn old_runs_are_purged_and_roll_ups_stay(database: Database) {
    let mut records: Vec<Record> =
        (0..1_200).map(|i| run(&format!("{i}"), Phase::Succeeded, T0 + i).into()).collect();
    records.push(run("under-way", Phase::Running, T0).into());
    records.push(run("new", Phase::Succeeded, T0 + DAY).into());
    records.push(task("t", 0, Phase::Succeeded).into());
    let log = LogRecord {
        plane: "web".into(),
        namespace: "default".into(),
        run: "7".into(),
        run_created_at: T0 + 7,
        task: "t".into(),
        location: "web/7".into(),
        ..LogRecord::default()
    };
    records.push(log.into());
    database.write(records, None).await.unwrap();
    let (mut runs, mut logs) = (0, Vec::new());
    loop {
        let purged = database.purge(T0 + 10_000).await.unwrap();
        runs += purged.runs;
        logs.extend(purged.logs);
        if !purged.more {
            break;
        }
    }
    assert_eq!((runs, logs), (1_200, vec!["web/7".to_owned()]));
    assert_eq!(uids(&database, &Scope::plane("web"), &RunFilter::default()).await, ["new", "under-way"]);
    assert_eq!(database.days(&Scope::plane("web"), None, T0, T0 + DAY).await.unwrap()[0].succeeded, 1_200);
}

pub(crate) async fn a_namespace_that_comes_again_has_nothing_of_the_one_before(database: Database) {
    let of = |uid: &str, namespace_uid: &str| {
        let own = run(uid, Phase::Succeeded, T0);
        let task = TaskRecord {
            run: uid.into(),
            namespace_uid: namespace_uid.into(),
            ..task("t", 0, Phase::Succeeded)
        };
        [Record::Run(RunRecord { namespace_uid: namespace_uid.into(), ..own }), task.into()]
    };
    for (uid, namespace) in [("a", "n1"), ("b", "n2"), ("c", "n2")] {
        database.write(of(uid, namespace).into(), None).await.unwrap();
    }
    let (first, second) =
        (Scope::namespace_of("web", "default", "n1"), Scope::namespace_of("web", "default", "n2"));
    let all = RunFilter::default();
    assert_eq!(
        (uids(&database, &first, &all).await, uids(&database, &second, &all).await),
        (vec!["a".to_owned()], vec!["c".to_owned(), "b".to_owned()])
    );
    let found = database.run(&second, "b").await.unwrap().unwrap();
    assert_eq!((found.namespace.as_str(), found.namespace_uid.as_str()), ("default", "n2"));
    assert!(database.run(&second, "a").await.unwrap().is_none());
    assert!(database.tasks(&second, "a", None, 0).await.unwrap().items.is_empty());
    assert_eq!(database.tasks(&second, "b", None, 0).await.unwrap().items[0].namespace, "default");
    let ended = |days: Vec<freehold_workflow_store::Day>| days.iter().map(|day| day.succeeded).sum::<i64>();
    assert_eq!(ended(database.days(&first, Some("build"), T0, T0 + DAY).await.unwrap()), 1);
    assert_eq!(ended(database.days(&second, None, T0, T0 + DAY).await.unwrap()), 2);
    assert_eq!(ended(database.days(&Scope::plane("web"), None, T0, T0 + DAY).await.unwrap()), 3);
}

pub(crate) async fn a_plane_keeps_its_share_of_runs(database: Database) {
    let of = |plane: &str, i: i64| RunRecord {
        plane: plane.into(),
        ..run(&format!("{i:03}"), Phase::Succeeded, T0 + i)
    };
    let mut records: Vec<Record> = (0..60).map(|i| of("loud", i).into()).collect();
    records.extend((0..5).map(|i| Record::from(of("web", i))));
    records.push(RunRecord { plane: "loud".into(), ..run("under-way", Phase::Running, T0) }.into());
    database.write(records, None).await.unwrap();
    let purged = database.trim(10).await.unwrap();
    assert_eq!((purged.runs, purged.more), (50, false));
    let all = RunFilter::default();
    let left = uids(&database, &Scope::plane("loud"), &all).await;
    assert_eq!(
        (left.len(), left[0].as_str(), left.last().map(String::as_str)),
        (11, "059", Some("under-way"))
    );
    assert_eq!(uids(&database, &Scope::plane("web"), &all).await.len(), 5);
    assert_eq!(database.trim(10).await.unwrap(), Purged::default());
}

fn leases(database: &Database, holder: &str, millis: u64) -> Leases {
    let options = LeaseOptions {
        partitions: 8,
        ttl: Duration::from_millis(millis),
        ..LeaseOptions::new("main", holder)
    };
    Leases::new(database.clone(), options).unwrap()
}

pub(crate) async fn a_lost_lease_records_nothing(database: Database) {
    let (first, second) = (leases(&database, "a", 300), leases(&database, "b", 60_000));
    let old = first.renew().await.unwrap();
    assert_eq!(old.len(), 8);
    database.write(vec![run("x", Phase::Running, T0).into()], Some(&old[0])).await.unwrap();
    tokio::time::sleep(Duration::from_millis(400)).await;
    let refused = database.write(vec![run("y", Phase::Running, T0).into()], Some(&old[0])).await;
    assert!(matches!(refused, Err(Error::Fenced { partition: 0, .. })), "{refused:?}");
    let new = second.renew().await.unwrap();
    assert_eq!((new.len(), new[0].generation()), (8, old[0].generation() + 1));
    let recorder = Recorder::start(database.clone());
    assert!(matches!(
        recorder.record_fenced(run("y", Phase::Running, T0), &old[0]).await,
        Err(Error::Fenced { .. })
    ));
    recorder.record_fenced(run("z", Phase::Running, T0), &new[0]).await.unwrap();
    assert_eq!(uids(&database, &Scope::plane("web"), &RunFilter::default()).await, ["z", "x"]);
    // Another install divides its own work.
    let options = LeaseOptions { partitions: 8, ..LeaseOptions::new("other", "a") };
    assert_eq!(Leases::new(database.clone(), options).unwrap().renew().await.unwrap().len(), 8);
}

pub(crate) async fn a_dead_controller_is_replaced_in_five_seconds(database: Database) {
    let (first, second) = (leases(&database, "a", 3_000), leases(&database, "b", 3_000));
    assert_eq!(first.renew().await.unwrap().len(), 8);
    assert_eq!(second.renew().await.unwrap().len(), 0);
    assert_eq!(first.renew().await.unwrap().len(), 4);
    assert_eq!(second.renew().await.unwrap().len(), 4);
    let died = Instant::now(); // `a` renews no more
    while second.renew().await.unwrap().len() < 8 {
        assert!(died.elapsed() < Duration::from_secs(5));
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    eprintln!("taken over after {:?}", died.elapsed());
    second.leave().await.unwrap();
    assert_eq!(first.renew().await.unwrap().len(), 8);
}

pub(crate) async fn four_controllers_share_the_partitions(database: Database) {
    let all: Vec<Leases> = (0..4).map(|i| leases(&database, &format!("c{i}"), 20_000)).collect();
    let mut held = Vec::new();
    for _ in 0..3 {
        held.clear();
        for one in &all {
            held.push(one.renew().await.unwrap());
        }
    }
    assert!(held.iter().all(|fences| fences.len() == 2), "{held:?}");
    let partitions: HashSet<u32> = held.iter().flatten().map(|fence| fence.partition()).collect();
    assert_eq!(partitions.len(), 8);
}

pub(crate) async fn concurrent_records_of_many_controllers_lose_nothing(database: Database) {
    let mut tasks = Vec::new();
    for writer in 0..4 {
        let recorder = Recorder::start(database.clone());
        tasks.push(tokio::spawn(async move {
            let each = (0..100).map(|i| {
                let recorder = recorder.clone();
                async move {
                    // Half of them are reported by two writers.
                    let uid = if i % 2 == 0 { format!("shared-{i}") } else { format!("{writer}-{i}") };
                    recorder.record(run(&uid, Phase::Running, T0)).await.unwrap();
                    recorder.record(run(&uid, Phase::Succeeded, T0)).await.unwrap();
                }
            });
            futures_util::future::join_all(each).await;
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let day = database.days(&Scope::plane("web"), None, T0, T0 + DAY).await.unwrap();
    assert_eq!(day[0].succeeded, 50 + 4 * 50);
}

pub(crate) async fn accounts_and_tokens_end(database: Database) {
    let account =
        Account { name: "ada".into(), password_hash: "h".into(), role: Role::Editor, created_at: T0 };
    assert!(database.create_account(&account).await.unwrap());
    assert!(!database.create_account(&account).await.unwrap());
    let token = |hash: &str, end: i64| TokenRecord {
        hash: hash.into(),
        account: "ada".into(),
        created_at: T0,
        expires_at: end,
    };
    for (hash, end) in [("t1", T0 + 10), ("t2", T0 + 20), ("t3", T0 + 20)] {
        database.keep_token(&token(hash, end)).await.unwrap();
    }
    assert_eq!(database.account_of_token("t1", T0 + 5).await.unwrap().unwrap().role, Role::Editor);
    assert!(database.account_of_token("t1", T0 + 10).await.unwrap().is_none());
    database.end_token("t2").await.unwrap();
    assert!(database.account_of_token("t2", T0 + 5).await.unwrap().is_none());
    assert!(database.set_password("ada", "h2").await.unwrap());
    assert!(database.account_of_token("t3", T0 + 5).await.unwrap().is_none(), "a new password ends sessions");
    assert!(database.delete_account("ada").await.unwrap());
    assert!(database.accounts("").await.unwrap().is_empty());
}
