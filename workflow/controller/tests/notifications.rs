//! Notifications, kept results and traces: controllers against a project plane of a real Freehold server, and servers of these
//! tests that record what they get.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Home, dag, task};
use freehold_client::{DeleteOptions, ListOptions, Resource};
use freehold_machinery::Value;
use freehold_workflow_controller::Options;
use freehold_workflow_outbound::{Networks, signature};
use parking_lot::Mutex;
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

const SECRETS: Resource = Resource::namespaced("", "v1", "secrets");
const EVENTS: Resource = Resource::namespaced("", "v1", "events");
const ACCOUNTS: Resource = Resource::namespaced("", "v1", "serviceaccounts");
const REVISIONS: Resource = Resource::namespaced("apps", "v1", "controllerrevisions");

/// A request that came: path, headers, body.
type Got = (String, HashMap<String, String>, Value);

/// A server that records requests and answers with a status.
struct Recorder {
    url: String,
    got: Arc<Mutex<Vec<Got>>>,
    status: Arc<AtomicU16>,
}

impl Recorder {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let recorder = Self { url, got: Arc::default(), status: Arc::new(AtomicU16::new(200)) };
        let (got, status) = (recorder.got.clone(), recorder.status.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut line = String::new();
                if reader.read_line(&mut line).is_err() || line.is_empty() {
                    continue;
                }
                let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
                let mut headers = HashMap::new();
                loop {
                    let mut line = String::new();
                    reader.read_line(&mut line).unwrap();
                    let Some((name, value)) = line.trim_end().split_once(": ") else { break };
                    headers.insert(name.to_lowercase(), value.to_owned());
                }
                let length: usize = headers.get("content-length").and_then(|n| n.parse().ok()).unwrap_or(0);
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                let mut text = Value::String(String::from_utf8_lossy(&body).into_owned());
                if let Ok(read) = serde_json::from_slice(&body) {
                    headers.insert("raw".into(), text.as_str().unwrap().to_owned());
                    text = read;
                }
                got.lock().push((path, headers, text));
                let status = status.load(Ordering::Relaxed);
                let _ = write!(
                    stream,
                    "HTTP/1.1 {status} X\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}"
                );
            }
        });
        recorder
    }

    fn count(&self) -> usize {
        self.got.lock().len()
    }
}

fn loopback() -> Options {
    Options { networks: Networks::loopback(), http: true, ..Options::default() }
}

fn secret(home: &Home) {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hook", "namespace": "default"}, "stringData": {"key": "sesame"},
    });
    home.block(home.client.create(&SECRETS, &secret)).unwrap();
}

#[test]
fn signed_webhooks_survive_failures_and_restarts_and_are_not_doubled() {
    let home = Home::freehold();
    let (always, failure) = (Recorder::start(), Recorder::start());
    always.status.store(503, Ordering::Relaxed);
    secret(&home);
    let controllers = home.start_with(home.client.clone(), loopback());
    let hooks = json!({"webhooks": [
        {"url": format!("{}/always", always.url), "secretKeyRef": {"name": "hook", "key": "key"}},
        {"url": format!("{}/failure", failure.url), "on": "Failure"},
    ]});
    home.create(&dag(
        "told",
        json!({"notifications": hooks, "history": {"successful": 0, "failed": 0}, "tasks": [task("a", &[])]}),
    ));
    home.run("told", "good", json!({}));
    home.ended("good");
    home.until("a first attempt", || (always.count() >= 1).then_some(()));
    let pending = home.is("good", "it is tried again", |status| status["deliveries"][0]["attempts"] == 1);
    assert_eq!(pending["status"]["deliveries"].as_array().unwrap().len(), 1, "{pending}");
    // Another process goes on; a run that somebody is still to be told of is not deleted by its history.
    home.end(controllers);
    let failed = always.count();
    always.status.store(200, Ordering::Relaxed);
    let controllers = home.start_with(home.client.clone(), loopback());
    home.until("the run goes when it was delivered", || {
        home.runs("told").iter().all(|run| run["metadata"]["name"] != "good").then_some(())
    });
    let got = always.got.lock().clone();
    assert_eq!(got.len(), failed + 1, "it is sent once to a server that takes it");
    let (path, headers, body) = &got[failed];
    assert_eq!((path.as_str(), &body["type"]), ("/always", &json!("workflow.run.succeeded")));
    assert_eq!((&body["data"]["run"], &body["data"]["phase"]), (&json!("good"), &json!("Succeeded")));
    assert_eq!(headers["webhook-id"], got[0].1["webhook-id"], "the id tells a repetition");
    let seconds: i64 = headers["webhook-timestamp"].parse().unwrap();
    let wanted = signature::sign(b"sesame", &headers["webhook-id"], seconds, headers["raw"].as_bytes());
    assert_eq!(headers["webhook-signature"], wanted);
    assert_eq!(failure.count(), 0);
    home.end(controllers);
}

#[test]
fn controllers_that_get_a_share_of_the_work_deliver_what_others_left() {
    let home = Home::freehold();
    let hook = Recorder::start();
    hook.status.store(503, Ordering::Relaxed);
    let first = home.start_sharing("first", loopback());
    let hooks = json!({"webhooks": [{"url": hook.url}]});
    home.create(&dag("told", json!({"notifications": hooks, "tasks": [task("a", &[])]})));
    home.run("told", "r", json!({}));
    home.is("r", "it is tried again", |status| status["deliveries"][0]["attempts"] == 1);
    let second = home.start_sharing("second", loopback());
    home.end(first);
    hook.status.store(200, Ordering::Relaxed);
    home.is("r", "it is delivered", |status| status["deliveries"].is_null());
    let ids: HashSet<String> =
        hook.got.lock().iter().map(|(_, headers, _)| headers["webhook-id"].clone()).collect();
    assert_eq!(ids.len(), 1, "the id tells a repetition");
    home.end(second);
}

#[test]
fn webhooks_reach_no_address_inside() {
    let home = Home::freehold();
    let inside = Recorder::start();
    home.start();
    let hooks = json!({"webhooks": [{"url": inside.url}]});
    home.create(&dag("told", json!({"notifications": hooks, "tasks": [task("a", &[])]})));
    home.run("told", "r", json!({}));
    let run = home.is("r", "it is refused", |status| status["deliveries"][0]["message"].is_string());
    assert!(
        run["status"]["deliveries"][0]["message"].as_str().unwrap().contains("may not be reached"),
        "{run}"
    );
    assert_eq!(inside.count(), 0);
}

#[test]
fn results_are_taken_for_the_same_key_account_and_definition_alone() {
    let home = Home::freehold();
    home.start();
    let spec = |account: &str, age: &str| {
        let mut made = task("make", &[]);
        made["memoize"] = json!({"key": "$(params.k)", "maxAge": age});
        made["pod"] = json!({"annotations": {"test/message": "value of $(params.k)"}});
        made["outputs"] = json!([{"name": "value"}]);
        let mut used = task("use", &[]);
        used["args"] = json!(["$(tasks.make.outputs.value)"]);
        json!({"serviceAccountName": account, "parameters": [{"name": "k", "default": "a"}], "tasks": [made, used]})
    };
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "somebody", "namespace": "default"}});
    home.block(home.client.create(&ACCOUNTS, &account)).unwrap();
    home.create(&dag("one", spec("default", "1h")));
    home.create(&dag("two", spec("default", "1h")));
    home.create(&dag("other", spec("somebody", "1h")));
    home.create(&dag("now", spec("default", "0s")));
    let made = |dag: &str, name: &str, k: &str| {
        home.run(dag, name, json!({"parameters": [{"name": "k", "value": k}]}));
        let run = home.ended(name);
        assert_eq!(run["status"]["phase"], "Succeeded", "{run}");
        let tasks = run["status"]["tasks"].as_array().unwrap();
        tasks.iter().find(|task| task["name"] == "make").unwrap()["reason"] != "Memoized"
    };
    assert!(made("one", "r1", "a"), "the first is done");
    assert!(!made("one", "r2", "a"), "the second takes its result");
    assert!(!made("two", "r3", "a"), "so does another DAG with the same task");
    assert!(made("one", "r4", "b"), "another key");
    assert!(made("other", "r5", "a"), "another service account");
    assert!(made("now", "r6", "a"), "a result that is too old");
    assert_eq!(
        home.begun().iter().filter(|task| *task == "use").count(),
        6,
        "the output was there each time"
    );
    let options =
        ListOptions { label_selector: "workflow.freehold.dev/cache".into(), ..ListOptions::default() };
    let kept = home.block(home.client.list_all(&REVISIONS, Some("default"), &options)).unwrap().items;
    assert_eq!(kept.len(), 3);
    for result in kept {
        let name = result["metadata"]["name"].as_str().unwrap();
        home.block(home.client.delete(&REVISIONS, Some("default"), name, &DeleteOptions::default())).unwrap();
    }
    assert!(made("one", "r7", "a"), "a result that was deleted");
}

#[test]
fn a_run_has_a_trace_and_events_of_all_tasks_where_that_is_wanted() {
    let home = Home::freehold();
    let collector = Recorder::start();
    let options = Options { traces: collector.url.clone(), ..loopback() };
    let figures = options.figures.clone();
    let controllers = home.start_with(home.client.clone(), options);
    home.create(&dag(
        "d",
        json!({"notifications": {"events": "All"}, "tasks": [task("a", &[]), task("b", &["a"])]}),
    ));
    home.run("d", "r", json!({}));
    home.ended("r");
    home.until("the trace comes", || (collector.count() == 1).then_some(()));
    let (path, headers, body) = collector.got.lock()[0].clone();
    assert_eq!((path.as_str(), headers["content-type"].as_str()), ("/v1/traces", "application/json"));
    let spans = body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone();
    let names: Vec<&Value> = spans.iter().map(|span| &span["name"]).collect();
    assert_eq!(names, ["d", "a", "b"]);
    assert!(spans[1..].iter().all(|span| span["parentSpanId"] == spans[0]["spanId"]));
    let reasons = home.until("events of tasks and run", || {
        let events =
            home.block(home.client.list_all(&EVENTS, Some("default"), &ListOptions::default())).ok()?.items;
        let of_run = events.iter().filter(|event| event["involvedObject"]["name"] == "r");
        let mut reasons: Vec<String> =
            of_run.map(|event| event["reason"].as_str().unwrap().to_owned()).collect();
        reasons.sort();
        (reasons.len() == 3).then_some(reasons)
    });
    assert_eq!(reasons, ["Succeeded", "TaskSucceeded", "TaskSucceeded"]);
    let text = figures.render();
    assert!(text.contains("freehold_workflow_runs_total{outcome=\"succeeded\"} 1"), "{text}");
    assert!(text.contains("freehold_workflow_tasks_total{outcome=\"succeeded\"} 2"), "{text}");
    home.end(controllers);
}
