//! The controllers in this process against a project plane of a real Freehold server, and against a real kube-apiserver. Pods
//! are ended by a kubelet that is part of the test.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{DAGS, Home, REVISIONS, dag, task};
use freehold_client::ListOptions;
use freehold_machinery::Value;
use serde_json::json;

fn with(mut task: Value, more: Value) -> Value {
    let fields = more.as_object().cloned().unwrap_or_default();
    task.as_object_mut().expect("a map").extend(fields);
    task
}

/// A task whose Pods end with these codes, one for each attempt.
fn exits(name: &str, after: &[&str], codes: &str) -> Value {
    with(task(name, after), json!({"pod": {"annotations": {"test/exit": codes}}}))
}

fn three_tasks(home: &Home) {
    home.start();
    home.create(&dag("build", json!({"tasks": [task("a", &[]), task("b", &["a"]), task("c", &["b"])]})));
    home.run("build", "r1", json!({}));
    let run = home.ended("r1");
    assert_eq!(run["status"]["phase"], "Succeeded", "{run}");
    assert_eq!(run["status"]["counts"]["succeeded"], 3);
    assert_eq!(home.begun(), ["a", "b", "c"]);
    home.no_pods_left();
}

#[test]
fn three_tasks_run_one_after_another_on_a_kube_apiserver() {
    if let Some(home) = Home::kube() {
        three_tasks(&home);
    }
}

#[test]
fn three_tasks_run_one_after_another_on_a_project_plane() {
    three_tasks(&Home::freehold());
}

#[test]
fn retries_end_at_their_limit_and_parameters_reach_pods() {
    let home = Home::freehold();
    home.start();
    let message = with(
        task("get", &[]),
        json!({
            "pod": {"annotations": {"test/message": "answer=$(params.word)"}}, "outputs": [{"name": "answer"}],
        }),
    );
    let used = with(
        exits("use", &["get"], "1,1,0"),
        json!({
            "retry": {"limit": 2}, "args": ["$(tasks.get.outputs.answer)"], "when": "tasks.get.outputs.answer == 'yes'",
        }),
    );
    let spec = json!({
        "parameters": [{"name": "word", "default": "no"}], "podRetention": "Keep", "tasks": [message, used],
        "finally": [with(task("report", &[]), json!({"args": ["$(run.phase)"]}))],
    });
    home.create(&dag("words", spec));
    // Kontroler's main branch gave run parameters to no Pod, and made attempts without end.
    home.run("words", "yes", json!({"parameters": [{"name": "word", "value": "yes"}]}));
    home.run("words", "no", json!({}));
    let run = home.ended("yes");
    assert_eq!(
        (&run["status"]["phase"], &run["status"]["counts"]["retries"]),
        (&json!("Succeeded"), &json!(2)),
        "{run}"
    );
    let attempts = home.attempts().into_iter().filter(|(task, _)| task == "use").map(|(_, attempt)| attempt);
    assert_eq!(attempts.collect::<Vec<_>>(), [0, 1, 2]);
    let run = home.ended("no");
    assert_eq!(
        (&run["status"]["phase"], &run["status"]["counts"]["skipped"]),
        (&json!("Succeeded"), &json!(1)),
        "{run}"
    );
    let pods = home.pods();
    let of = |task: &str| {
        pods.iter().find(|pod| pod["metadata"]["labels"]["workflow.freehold.dev/task"] == task).cloned()
    };
    assert_eq!(of("use").expect("it is kept")["spec"]["containers"][0]["args"], json!(["yes"]));
    assert_eq!(of("report").expect("it is kept")["spec"]["containers"][0]["args"], json!(["Succeeded"]));
}

#[test]
fn children_approvals_and_items_run() {
    let home = Home::freehold();
    home.start();
    home.create(&dag(
        "child",
        json!({"parameters": [{"name": "n", "type": "integer"}], "tasks": [task("leaf", &[])]}),
    ));
    home.create(&json!({
        "apiVersion": "workflow.freehold.dev/v1alpha1", "kind": "DAGTask", "metadata": {"name": "shared", "namespace": "default"},
        "spec": {"parameters": [{"name": "x", "default": 1}], "image": "busybox", "args": ["$(params.x)"]},
    }));
    let spec = json!({"tasks": [
        {"name": "sure", "approval": {"message": "go?"}},
        {"name": "later", "approval": {}, "runAfter": ["sure"]},
        {"name": "each", "dag": {"name": "child"}, "parameters": [{"name": "n", "value": "$(item)"}], "forEach": {"range": {"count": 3}}, "runAfter": ["sure"]},
        {"name": "shared", "taskRef": {"name": "shared"}, "runAfter": ["each"]},
        {"name": "note", "wait": {"duration": "200ms"}, "mutexes": ["m"]},
    ]});
    home.create(&dag("parent", spec));
    home.run("parent", "p1", json!({}));
    home.is("p1", "it waits for a decision", |status| {
        status["tasks"].as_array().is_some_and(|tasks| tasks.iter().any(|task| task["phase"] == "Suspended"))
    });
    // The second is decided before it waits.
    let approved = json!({"decision": "Approved", "by": "me"});
    home.patch("p1", json!({"approvals": {"sure": approved, "later": approved}}));
    let run = home.ended("p1");
    assert_eq!(
        (&run["status"]["phase"], &run["status"]["counts"]["succeeded"]),
        (&json!("Succeeded"), &json!(7)),
        "{run}"
    );
    assert_eq!(home.begun().iter().filter(|task| *task == "leaf").count(), 3);
}

#[test]
fn each_tick_has_one_run_and_missed_ones_are_made_up_for() {
    let home = Home::freehold();
    home.start();
    home.create(&dag(
        "often",
        json!({"schedule": "@every 1s", "catchUp": {"policy": "All"}, "tasks": [task("tick", &[])]}),
    ));
    let ticks = || home.begun().iter().filter(|task| *task == "tick").count();
    home.until("two ticks", || (ticks() >= 2).then_some(()));
    home.stop();
    std::thread::sleep(std::time::Duration::from_secs(2));
    home.start();
    home.until("missed ticks are made up for", || (ticks() >= 5).then_some(()));
    let runs = home.runs("often");
    let mut times: Vec<String> = runs
        .iter()
        .map(|run| run["metadata"]["annotations"]["workflow.freehold.dev/scheduled-at"].to_string())
        .collect();
    let count = times.len();
    times.sort();
    times.dedup();
    assert_eq!(times.len(), count, "one run for each tick");
    home.suspend("often");
}

#[test]
fn bad_and_missing_definitions_are_told() {
    let home = Home::freehold();
    home.start();
    home.create(&dag("cycle", json!({"tasks": [task("a", &["b"]), task("b", &["a"])]})));
    home.run("cycle", "c1", json!({}));
    let run = home.ended("c1");
    assert_eq!(
        (&run["status"]["phase"], &run["status"]["reason"]),
        (&json!("Failed"), &json!("InvalidDefinition")),
        "{run}"
    );
    // Kontroler logged a run of a DAG that was missing, gave it no status, and never came back to it.
    home.run("later", "l1", json!({}));
    home.is("l1", "it says what is missing", |status| status["reason"] == "Missing");
    // A shared task that comes later makes a DAG valid.
    let valid = |name: &str, wanted: &str| {
        home.until(&format!("{name} is valid: {wanted}"), || {
            let found = home.block(home.client.get(&DAGS, Some("default"), name)).ok()?;
            let conditions = found["status"]["conditions"].as_array()?;
            conditions.iter().any(|of| of["type"] == "Valid" && of["status"] == wanted).then_some(())
        })
    };
    home.create(&dag("refers", json!({"tasks": [{"name": "a", "taskRef": {"name": "comes"}}]})));
    valid("refers", "False");
    home.create(&json!({
        "apiVersion": "workflow.freehold.dev/v1alpha1", "kind": "DAGTask", "metadata": {"name": "comes", "namespace": "default"},
        "spec": {"image": "busybox"},
    }));
    valid("refers", "True");
    home.create(&dag("later", json!({"tasks": [task("x", &[])]})));
    assert_eq!(home.ended("l1")["status"]["phase"], "Succeeded");
}

#[test]
fn controllers_that_are_lost_again_and_again_lose_and_double_nothing() {
    let home = Home::freehold();
    let spec = json!({"tasks": [
        task("a", &[]), exits("b", &["a"], "1,0"), with(task("c", &["b"]), json!({"forEach": {"range": {"count": 4}}})), task("d", &["c"]),
    ]});
    let mut spec = spec;
    spec["tasks"][1]["retry"] = json!({"limit": 1});
    home.create(&dag("fragile", spec));
    let rounds = std::env::var("FREEHOLD_WORKFLOW_LOSSES").ok().and_then(|n| n.parse().ok()).unwrap_or(20u64);
    for n in 0..4 {
        home.run("fragile", &format!("f{n}"), json!({}));
    }
    for round in 0..rounds {
        // Each is lost in the middle of whatever it does, as by kill -9.
        home.lose_after(std::time::Duration::from_millis(30 + round * 37 % 200));
    }
    home.start();
    for n in 0..4 {
        let run = home.ended(&format!("f{n}"));
        assert_eq!(
            (&run["status"]["phase"], &run["status"]["counts"]["succeeded"]),
            (&json!("Succeeded"), &json!(7)),
            "{run}"
        );
    }
    home.no_pods_left();
    // Each Pod ended once: 2 for a and d, 2 for the attempts of b, 4 items, in 4 runs.
    assert_eq!(home.attempts().len(), 4 * 8, "{:?}", home.attempts());
}

/// Outputs of more bytes than an object may have, taken up by a controller that was not there when they came.
fn large_outputs(home: &Home) {
    home.start();
    let text = |letter: char| {
        let words =
            (0..20_000).map(|n| format!("{letter}{:x}", (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        words.collect::<String>().chars().take(200_000).collect::<String>()
    };
    let gives = |name: &str, value: &str| {
        let pod = json!({"annotations": {"test/message": value}});
        with(task(name, &[]), json!({"outputs": [{"name": "o"}], "pod": pod}))
    };
    let takes = with(task("takes", &["sure"]), json!({"args": ["$(tasks.a.outputs.o)"]}));
    let parameters = json!([{"name": "a", "default": text('a')}, {"name": "b", "default": text('b')}]);
    let spec = json!({"parameters": parameters, "podRetention": "Keep", "tasks": [
        gives("a", "$(params.a)"), gives("b", "$(params.b)"), {"name": "sure", "approval": {}, "runAfter": ["a", "b"]}, takes,
    ]});
    home.create(&dag("large", spec));
    home.run("large", "r1", json!({}));
    home.is("r1", "it waits for a decision", |status| {
        status["tasks"].as_array().is_some_and(|tasks| tasks.iter().any(|task| task["phase"] == "Suspended"))
    });
    let beside = || {
        home.block(home.client.list_all(&REVISIONS, Some("default"), &ListOptions::default())).unwrap().items
    };
    let kept: Vec<Value> = beside().into_iter().filter(|kept| kept["data"]["outputs"].is_string()).collect();
    assert!(!kept.is_empty());
    for object in kept.iter().chain([&home.get("r1")]) {
        assert!(object.to_string().len() < 512 << 10, "{}", object["metadata"]);
    }
    home.stop();
    home.start();
    home.patch("r1", json!({"approvals": {"sure": {"decision": "Approved"}}}));
    assert_eq!(home.ended("r1")["status"]["phase"], "Succeeded");
    let pods = home.pods();
    let of = |task: &str| {
        pods.iter().find(|pod| pod["metadata"]["labels"]["workflow.freehold.dev/task"] == task).unwrap()
    };
    assert!(of("takes")["spec"]["containers"][0]["args"][0] == text('a'));
}

#[test]
fn outputs_beyond_an_object_are_kept_beside_the_run_on_a_project_plane() {
    large_outputs(&Home::freehold());
}

#[test]
fn outputs_beyond_an_object_are_kept_beside_the_run_on_a_kube_apiserver() {
    if let Some(home) = Home::kube() {
        large_outputs(&home);
    }
}

#[test]
fn mutex_is_granted_after_a_restart_beside_runs_under_way() {
    let home = Home::freehold();
    home.start();
    home.create(&dag("long", json!({"tasks": [{"name": "sure", "approval": {"message": "go?"}}]})));
    home.create(&dag("locked", json!({"tasks": [with(task("a", &[]), json!({"mutexes": ["m"]}))]})));
    home.run_many("long", 30);
    for n in 0..30 {
        home.is(&format!("long-{n}"), "it begins", |status| status["startedAt"].is_string());
    }
    home.stop();
    // Looked at first, while it is not known who of the others has locks.
    home.run("locked", "a-locked", json!({}));
    home.start();
    assert_eq!(home.ended("a-locked")["status"]["phase"], "Succeeded");
}

#[test]
fn one_pod_runs_a_minute() {
    let Some(count) = std::env::var("FREEHOLD_WORKFLOW_BENCH").ok().and_then(|n| n.parse::<usize>().ok())
    else {
        return;
    };
    let home = Home::freehold();
    home.start();
    home.create(&dag("one", json!({"history": {"successful": 100_000}, "tasks": [task("a", &[])]})));
    let begun = std::time::Instant::now();
    home.run_many("one", count);
    let created = begun.elapsed();
    home.until("all are over", || {
        let over = home.runs("one").iter().filter(|run| run["status"]["phase"] == "Succeeded").count();
        (over == count).then_some(())
    });
    let took = begun.elapsed();
    let rate = count as f64 * 60.0 / took.as_secs_f64();
    println!("{count} one-Pod runs in {took:?} (created in {created:?}): {rate:.0} a minute");
}

/// From the end of a task's Pod to the creation of the next one, in a run of tasks after each other.
#[test]
fn steps_of_a_chain() {
    let Some(rounds) = std::env::var("FREEHOLD_WORKFLOW_STEPS").ok().and_then(|n| n.parse::<usize>().ok())
    else {
        return;
    };
    let home = Home::freehold();
    home.start();
    let after =
        |n: usize| n.checked_sub(1).map(|before| format!("t{before}")).into_iter().collect::<Vec<_>>();
    let tasks: Vec<Value> = (0..50)
        .map(|n| task(&format!("t{n}"), &after(n).iter().map(String::as_str).collect::<Vec<_>>()))
        .collect();
    home.create(&dag("chain", json!({"tasks": tasks})));
    let gaps = home.gaps();
    for round in 0..rounds {
        home.run("chain", &format!("r{round}"), json!({}));
        home.ended(&format!("r{round}"));
    }
    let mut gaps = gaps.lock().clone();
    gaps.sort();
    let at = |percent: usize| gaps[(gaps.len() - 1) * percent / 100];
    println!("{} steps: median {:?}, p99 {:?}, longest {:?}", gaps.len(), at(50), at(99), at(100));
}
