//! Requests, locks, limits of what is kept, policies of schedules, and runs that are done again: controllers against a project
//! plane of a real Freehold server.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Home, PODS, dag, task};
use freehold_client::{ListOptions, Patch, PatchOptions};
use freehold_machinery::Value;
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;

fn with(mut task: Value, more: Value) -> Value {
    task.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    task
}

/// A task whose Pods end with these codes, one for each attempt, or never.
fn exits(name: &str, after: &[&str], codes: &str) -> Value {
    with(task(name, after), json!({"pod": {"annotations": {"test/exit": codes}}}))
}

/// Ends Pods of a task that never end by themselves.
fn release(home: &Home, task: &str) {
    let options = ListOptions {
        label_selector: format!("workflow.freehold.dev/task={task}"),
        ..ListOptions::default()
    };
    let pods = home.block(home.client.list_all(&PODS, Some("default"), &options)).unwrap().items;
    for pod in pods {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {"test/exit": "0"}}}));
        let name = pod["metadata"]["name"].as_str().unwrap();
        let _ = home.block(home.client.patch(&PODS, Some("default"), name, &patch, &PatchOptions::default()));
    }
}

/// Pods of a task that have not ended.
fn under_way(home: &Home, task: &str) -> usize {
    let of = |pod: &&Value| {
        pod["metadata"]["labels"]["workflow.freehold.dev/task"] == task
            && pod["metadata"]["deletionTimestamp"].is_null()
            && !["Succeeded", "Failed"].contains(&pod["status"]["phase"].as_str().unwrap_or_default())
    };
    home.pods().iter().filter(of).count()
}

/// Answers each request with a status and its own body, in the order of `statuses`; the last one stays.
fn echo(statuses: Vec<u16>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for (n, stream) in listener.incoming().enumerate() {
            let Ok(mut stream) = stream else { return };
            let mut text = Vec::new();
            let mut buffer = [0; 4096];
            // The head and a body of the length that it names.
            loop {
                let read = stream.read(&mut buffer).unwrap_or(0);
                text.extend_from_slice(&buffer[..read]);
                let whole = String::from_utf8_lossy(&text).to_lowercase();
                let length = whole
                    .split("content-length: ")
                    .nth(1)
                    .and_then(|rest| rest.lines().next()?.trim().parse().ok())
                    .unwrap_or(0);
                let ended = whole.split_once("\r\n\r\n").is_some_and(|(_, body)| body.len() >= length);
                if read == 0 || ended {
                    break;
                }
            }
            let text = String::from_utf8_lossy(&text).into_owned();
            let body = text.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
            let status = statuses.get(n).or(statuses.last()).copied().unwrap_or(200);
            let _ = write!(
                stream,
                "HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
        }
    });
    url
}

#[test]
fn http_tasks_send_values_are_tried_again_and_give_outputs() {
    let home = Home::freehold();
    home.start();
    let url = echo(vec![500, 200]);
    let ask = json!({
        "name": "ask", "outputs": [{"name": "state", "jsonPath": ".state"}],
        "retry": {"limit": 2, "backoff": {"duration": "100ms"}},
        "http": {"method": "POST", "url": url, "body": "{\"state\": \"$(params.word)\"}", "successCondition": "response.code == 200 && response.json.state == 'ready'"},
    });
    let spec = json!({"parameters": [{"name": "word"}], "tasks": [ask, with(task("use", &[]), json!({"when": "tasks.ask.outputs.state == 'ready'"}))]});
    home.create(&dag("ask", spec));
    home.run("ask", "good", json!({"parameters": [{"name": "word", "value": "ready"}]}));
    let run = home.ended("good");
    assert_eq!(
        (&run["status"]["phase"], &run["status"]["counts"]["retries"]),
        (&json!("Succeeded"), &json!(1)),
        "{run}"
    );
    assert_eq!(home.begun(), ["use"]);
    home.run("ask", "bad", json!({"parameters": [{"name": "word", "value": "sad"}]}));
    let run = home.ended("bad");
    assert_eq!(
        (&run["status"]["phase"], &run["status"]["tasks"][0]["reason"]),
        (&json!("Failed"), &json!("UnexpectedResponse")),
        "{run}"
    );
}

#[test]
fn mutexes_and_pools_hold_tasks_of_several_runs_back_and_serve_by_priority() {
    let home = Home::freehold();
    home.start();
    let held = |name: &str, more: Value| with(exits(name, &[], "never"), more);
    home.create(&dag("alone", json!({"tasks": [held("m", json!({"mutexes": ["gate"]}))]})));
    home.create(&dag(
        "pool",
        json!({"tasks": [held("p", json!({"semaphores": [{"name": "pool", "limit": 2}]}))]}),
    ));
    home.run("alone", "first", json!({}));
    home.until("the first has the mutex", || (under_way(&home, "m") == 1).then_some(()));
    home.run("alone", "low", json!({"priority": 1}));
    home.is("low", "it waits", |status| status["tasks"][0]["phase"] == "Queued");
    home.run("alone", "high", json!({"priority": 5}));
    home.is("high", "it waits", |status| status["tasks"][0]["phase"] == "Queued");
    home.run_many("pool", 4);
    home.until("two have slots", || (under_way(&home, "p") == 2).then_some(()));
    for n in 0..4 {
        home.is(&format!("pool-{n}"), "it began", |status| status["startedAt"].is_string());
    }
    assert_eq!((under_way(&home, "m"), under_way(&home, "p")), (1, 2));
    release(&home, "m");
    home.ended("first");
    // Who waits with more is next, though it came later.
    home.is("high", "it runs", |status| status["tasks"][0]["phase"] == "Running");
    assert_eq!(home.get("low")["status"]["tasks"][0]["phase"], "Queued");
    let over = |run: &str| home.get(run)["status"]["finishedAt"].is_string();
    home.until("all come to their end", || {
        assert!(under_way(&home, "m") <= 1 && under_way(&home, "p") <= 2);
        release(&home, "m");
        release(&home, "p");
        ["low", "high", "pool-0", "pool-1", "pool-2", "pool-3"].iter().all(|run| over(run)).then_some(())
    });
}

#[test]
fn ended_runs_go_by_their_age_and_their_number() {
    let home = Home::freehold();
    home.start();
    home.create(&dag("brief", json!({"ttl": "1s", "tasks": [task("a", &[])]})));
    home.run("brief", "gone", json!({}));
    home.until("it goes a second after its end", || {
        (home.begun().contains(&"a".to_owned()) && home.runs("brief").is_empty()).then_some(())
    });
    home.create(&dag(
        "many",
        json!({"history": {"successful": 2, "failed": 1}, "tasks": [exits("b", &[], "0")]}),
    ));
    home.create(&dag(
        "bad",
        json!({"history": {"successful": 2, "failed": 1}, "tasks": [exits("c", &[], "1")]}),
    ));
    for name in ["many", "bad"] {
        for n in 0..4 {
            home.run(name, &format!("{name}-{n}"), json!({}));
            home.until("it is over", || {
                let found =
                    home.runs(name).into_iter().find(|run| run["metadata"]["name"] == format!("{name}-{n}"));
                found.is_none_or(|run| run["status"]["finishedAt"].is_string()).then_some(())
            });
        }
    }
    let names = |dag: &str| {
        let mut names: Vec<String> =
            home.runs(dag).iter().map(|run| run["metadata"]["name"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    };
    home.until("two that succeeded stay, the latest", || {
        (names("many") == ["many-2", "many-3"]).then_some(())
    });
    home.until("one that failed stays", || (names("bad") == ["bad-3"]).then_some(()));
}

#[test]
fn a_schedule_replaces_its_run_or_queues_behind_it() {
    let home = Home::freehold();
    home.start();
    home.create(&dag(
        "replace",
        json!({"schedule": "@every 1s", "concurrencyPolicy": "Replace", "tasks": [exits("r", &[], "never")]}),
    ));
    home.until("one was terminated for the next", || {
        let runs = home.runs("replace");
        let (over, live): (Vec<&Value>, Vec<&Value>) =
            runs.iter().partition(|run| run["status"]["finishedAt"].is_string());
        assert!(over.iter().all(|run| run["status"]["phase"] == "Stopped"), "{over:?}");
        (over.len() >= 2 && !live.is_empty()).then_some(())
    });
    home.suspend("replace");
    home.create(&dag("queue", json!({"concurrencyPolicy": "Queue", "tasks": [exits("q", &[], "never")]})));
    home.run("queue", "q1", json!({}));
    home.until("the first runs", || (under_way(&home, "q") == 1).then_some(()));
    home.run("queue", "q2", json!({}));
    home.is("q2", "it waits", |status| status["phase"] == "Queued");
    assert_eq!(under_way(&home, "q"), 1);
    release(&home, "q");
    home.ended("q1");
    home.is("q2", "its turn came", |status| status["phase"] == "Running");
    home.until("the second ends", || {
        release(&home, "q");
        home.get("q2")["status"]["finishedAt"].is_string().then_some(())
    });
}

#[test]
fn a_run_is_done_again_from_what_failed() {
    let home = Home::freehold();
    home.start();
    home.create(&dag(
        "again",
        json!({"tasks": [task("a", &[]), exits("b", &["a"], "1,0"), task("c", &["b"])]}),
    ));
    home.run("again", "r", json!({}));
    assert_eq!(home.ended("r")["status"]["phase"], "Failed");
    assert_eq!(home.begun(), ["a", "b"]);
    let done = |args: &[&str]| {
        let output = Command::new(freehold_tests_harness::freehold_binary())
            .arg("workflow")
            .args(args)
            .arg("--kubeconfig")
            .arg(&home.kubeconfig)
            .output()
            .unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    done(&["retry", "r"]);
    home.is("r", "it succeeds", |status| status["phase"] == "Succeeded");
    assert_eq!(home.begun(), ["a", "b", "b", "c"], "what had succeeded is not done again");
}

#[test]
fn a_time_that_is_over_is_made_up_for_once() {
    let home = Home::freehold();
    home.start();
    home.create(&dag(
        "hourly",
        json!({"schedule": "0 * * * *", "timeZone": "Europe/Berlin", "tasks": [task("a", &[])]}),
    ));
    let backfill = || {
        let output = Command::new(freehold_tests_harness::freehold_binary())
            .args([
                "workflow",
                "backfill",
                "hourly",
                "--from",
                "2026-03-29T00:00:00Z",
                "--to",
                "2026-03-29T03:00:00Z",
                "--kubeconfig",
            ])
            .arg(&home.kubeconfig)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).lines().count()
    };
    let made = backfill();
    assert!((3..=4).contains(&made), "{made} ticks in three hours");
    home.until("each runs", || {
        let runs = home.runs("hourly");
        (runs.len() == made && runs.iter().all(|run| run["status"]["phase"] == "Succeeded")).then_some(())
    });
    assert_eq!((backfill(), home.runs("hourly").len()), (made, made), "a second time makes none again");
}
