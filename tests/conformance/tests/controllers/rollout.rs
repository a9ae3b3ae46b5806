//! The API calls that a rollout takes: Freehold's controllers and the real kube-controller-manager, told from the server's
//! audit log. Pods become ready all at once, whenever nothing more is written, so that both take the same steps.

use super::{External, PROJECTS, is_settled, items, start_external, text};
use freehold_tests_harness::{Engine, Kubectl, Options, Server};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

const REPLICAS: &str = "100";
const PATIENCE: Duration = Duration::from_secs(300);
/// Nothing more is written when nothing was for so long.
const REST: Duration = Duration::from_secs(3);
const POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\n\
    omitStages: [RequestReceived, ResponseStarted]\nrules: [{level: Metadata}]\n";

/// How often each verb was used on each resource.
type Calls = BTreeMap<String, usize>;

#[test]
fn a_rollout_of_a_hundred_pods_takes_no_more_calls_than_kube_controller_manager_makes() {
    if std::env::var_os("FREEHOLD_TEST_CONTROLLERS").is_none() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (policy, log) = (folder.path().join("policy.yaml"), folder.path().join("audit.log"));
    std::fs::write(&policy, POLICY).expect("a policy");
    let args = vec![
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", log.display()),
        "--audit-log-maxsize=1000".to_owned(),
    ];
    let server = Server::start(Options { engine: Engine::Embedded, args, ..Options::default() });
    server.kubectl().apply(PROJECTS);
    let ours = calls(&server.project("own"), "rollout-own", &log, "freehold");
    let kubectl = server.project("external");
    let _running: External = start_external(&server, &kubectl);
    let theirs = calls(&kubectl, "rollout-external", &log, "kube-controller-manager");
    let names: std::collections::BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
    for name in names {
        let of = |calls: &Calls| calls.get(name).copied().unwrap_or(0);
        println!("{name:<40} ours {:>4}, theirs {:>4}", of(&ours), of(&theirs));
    }
    let (ours, theirs): (usize, usize) = (ours.values().sum(), theirs.values().sum());
    println!("all: ours {ours}, theirs {theirs}");
    assert!(theirs > 0 && ours <= theirs, "ours {ours}, theirs {theirs}");
}

/// Rolls a Deployment out to another template, and counts what was called meanwhile in its namespace by programs of a name.
fn calls(project: &Kubectl, namespace: &str, log: &Path, agent: &str) -> Calls {
    project.ok(&["create", "namespace", namespace]);
    let kubectl = project.with(&["--namespace", namespace]);
    let until = Instant::now() + PATIENCE;
    while !kubectl.run(&["get", "serviceaccount", "default"]).success {
        assert!(Instant::now() < until, "no service account");
    }
    kubectl.ok(&["create", "deployment", "web", "--image=registry.example/x:1", "--replicas", REPLICAS]);
    roll_out(&kubectl);
    let before = read(log).len();
    kubectl.ok(&["set", "image", "deployment/web", "*=registry.example/x:2"]);
    roll_out(&kubectl);
    let mut calls = Calls::new();
    for event in &read(log)[before..] {
        let there = text(event, "/objectRef/namespace") == namespace;
        if there && text(event, "/userAgent").starts_with(agent) && text(event, "/verb") != "watch" {
            let (resource, part) =
                (text(event, "/objectRef/resource"), text(event, "/objectRef/subresource"));
            let slash = if part.is_empty() { "" } else { "/" };
            *calls.entry(format!("{resource}{slash}{part} {}", text(event, "/verb"))).or_default() += 1;
        }
    }
    calls
}

/// The events of an audit log.
fn read(log: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(log).expect("an audit log");
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Lets pods become ready whenever nothing more is written, until the Deployment is where it should be.
fn roll_out(kubectl: &Kubectl) {
    let until = Instant::now() + PATIENCE;
    let (mut last, mut since) = (String::new(), Instant::now());
    loop {
        assert!(Instant::now() < until, "the rollout does not end");
        let all = kubectl.json(&["get", "deployments,replicasets,pods"]);
        let versions: String = items(&all).iter().map(|o| text(o, "/metadata/resourceVersion")).collect();
        if versions != last {
            (last, since) = (versions, Instant::now());
        } else if since.elapsed() > REST && !make_ready(kubectl, &all) && items(&all).iter().all(is_settled) {
            return;
        }
    }
}

/// Says of all pods that do not run that they do; gives whether there were any.
fn make_ready(kubectl: &Kubectl, all: &Value) -> bool {
    let waiting = items(all).iter().filter(|o| o["kind"] == "Pod" && text(o, "/status/phase") == "Pending");
    let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let running: Vec<Value> = waiting
        .map(|pod| {
            let mut pod = pod.clone();
            pod["status"]["phase"] = "Running".into();
            pod["status"]["conditions"] = ready.clone();
            pod
        })
        .collect();
    if running.is_empty() {
        return false;
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": running}).to_string();
    // One of them may be gone by now.
    kubectl.run_with_input(&["replace", "--subresource=status", "-f", "-"], &list);
    true
}
