//! Several processes of `freehold workflow controller` in one project plane or one cluster: they divide the work, one that is
//! killed is taken over, and installs leave each other alone.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{DAGS, Home, PATIENCE, RUNS, task};
use freehold_client::{ListOptions, Resource};
use freehold_machinery::{Value, meta};
use freehold_tests_harness::freehold_binary;
use serde_json::json;
use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const NAMESPACES: Resource = Resource::cluster("", "v1", "namespaces");
const LEASES: Resource = Resource::namespaced("coordination.k8s.io", "v1", "leases");
/// Beats, of half a second each, in which others have the work of a controller that was killed: 5 seconds. A machine that is
/// starved of processors makes all of them late alike.
const TAKEOVER: u64 = 10;
/// Namespaces that the runs are spread over.
const SPREAD: usize = 8;

/// A process of `freehold workflow controller`, killed at the end.
struct Process(Child);

impl Process {
    fn start(home: &Home, args: &[&str]) -> Self {
        let child = Command::new(freehold_binary())
            .args(["workflow", "controller", "--kubeconfig"])
            .arg(&home.kubeconfig)
            .args(args)
            .stdout(Stdio::null())
            .spawn()
            .expect("the controllers start");
        Self(child)
    }

    /// Ends it as `kill -9` does.
    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn space(n: usize) -> String {
    format!("space-{}", n % SPREAD)
}

/// Makes namespaces with a DAG `chain` of two tasks each.
fn spaces(home: &Home, labels: &Value) {
    for n in 0..SPREAD {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space(n)}});
        home.block(home.client.create(&NAMESPACES, &namespace)).unwrap();
        let spec = json!({"history": {"successful": 100_000}, "tasks": [task("a", &[]), task("b", &["a"])]});
        let dag = json!({
            "apiVersion": DAGS.api_version(), "kind": "DAG",
            "metadata": {"name": "chain", "namespace": space(n), "labels": labels}, "spec": spec,
        });
        home.until("the DAG is created", || home.block(home.client.create(&DAGS, &dag)).ok());
    }
}

/// Starts a run of `chain`.
fn start(home: &Home, name: &str, n: usize, labels: &Value) {
    let run = json!({
        "apiVersion": RUNS.api_version(), "kind": "DAGRun",
        "metadata": {"name": name, "namespace": space(n), "labels": labels}, "spec": {"dag": "chain"},
    });
    home.block(home.client.create(&RUNS, &run)).unwrap();
}

/// Runs by phase.
fn phases(home: &Home) -> BTreeMap<String, usize> {
    let runs = home.block(home.client.list_all(&RUNS, None, &ListOptions::default())).unwrap().items;
    let mut phases = BTreeMap::new();
    for run in runs {
        *phases.entry(run["status"]["phase"].as_str().unwrap_or("none").to_owned()).or_default() += 1;
    }
    phases
}

/// Waits until every run succeeded, as long as there is progress.
fn all_succeed(home: &Home, count: usize) {
    let (mut best, mut since) = (0, Instant::now());
    loop {
        let phases = phases(home);
        assert!(!phases.contains_key("Failed"), "{phases:?}");
        let done = phases.get("Succeeded").copied().unwrap_or(0);
        if done == count {
            return;
        }
        if done > best {
            (best, since) = (done, Instant::now());
        }
        assert!(since.elapsed() < PATIENCE, "no further run succeeded: {phases:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Who divides the work, and how.
fn roster(home: &Home, lease: &str) -> Value {
    let found =
        home.block(home.client.get_opt(&LEASES, Some("kube-system"), lease)).unwrap().unwrap_or_default();
    serde_json::from_str(meta::annotation(&found, "freehold.dev/roster").unwrap_or("{}")).unwrap()
}

/// How often a controller renewed its share.
fn beats(home: &Home, id: &str) -> u64 {
    let roster = roster(home, "freehold-workflow");
    let mut all = roster["beats"].as_object().unwrap().iter();
    all.find(|(name, _)| name.starts_with(id)).and_then(|(_, beats)| beats.as_u64()).unwrap()
}

/// How many parts each controller has.
fn shares(home: &Home, lease: &str) -> BTreeMap<String, usize> {
    let roster = roster(home, lease);
    let mut shares = BTreeMap::new();
    for holder in roster["holders"].as_array().into_iter().flatten() {
        *shares.entry(holder.as_str().unwrap().to_owned()).or_default() += 1;
    }
    shares
}

/// Waits until so many controllers divide everything evenly.
fn divided(home: &Home, count: usize) {
    home.until("the work is divided", || {
        let shares = shares(home, "freehold-workflow");
        // The last one has what the others leave.
        let is_even = shares.values().all(|share| *share + 2 >= 64 / count);
        (shares.len() == count && !shares.contains_key("") && is_even).then_some(())
    });
}

fn names_have_one_pod(home: &Home, count: usize) {
    let pods = home.pods_of_names();
    assert_eq!(pods.len(), count);
    let twice: Vec<_> = pods.iter().filter(|(_, pods)| **pods != 1).collect();
    assert!(twice.is_empty(), "tasks had two Pods: {twice:?}");
}

/// Kills one of three controllers again and again while runs come.
fn killed_at_random(home: &Home) {
    spaces(home, &json!({}));
    let rounds = std::env::var("FREEHOLD_WORKFLOW_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(6u64);
    let mut processes: Vec<Process> = (0..3).map(|_| Process::start(home, &[])).collect();
    divided(home, 3);
    let mut started = 0;
    for round in 0..rounds {
        for _ in 0..16 {
            start(home, &format!("r-{started}"), started, &json!({}));
            started += 1;
        }
        // At any point of what it does; how long it lives is what the test is about.
        std::thread::sleep(Duration::from_millis(50 + round * 331 % 1500));
        processes.remove((round * 7 % 3) as usize).kill();
        processes.push(Process::start(home, &[]));
    }
    all_succeed(home, started);
    names_have_one_pod(home, started * 2);
}

#[test]
fn controllers_killed_at_random_lose_and_double_nothing_in_a_project() {
    killed_at_random(&Home::freehold());
}

#[test]
fn controllers_killed_at_random_lose_and_double_nothing_on_a_kube_apiserver() {
    if let Some(home) = Home::kube() {
        killed_at_random(&home);
    }
}

#[test]
fn controller_that_is_killed_is_taken_over_in_five_seconds() {
    let home = Home::freehold();
    spaces(&home, &json!({}));
    let first = Process::start(&home, &["--id=first"]);
    divided(&home, 1);
    let _second = Process::start(&home, &["--id=second"]);
    divided(&home, 2);
    first.kill();
    let (killed, before) = (Instant::now(), beats(&home, "second"));
    for n in 0..SPREAD {
        start(&home, &format!("r-{n}"), n, &json!({}));
    }
    home.until("the other has everything", || {
        let shares = shares(&home, "freehold-workflow");
        shares.iter().all(|(name, _)| name.starts_with("second-")).then_some(())
    });
    let (took, beats) = (killed.elapsed(), beats(&home, "second") - before);
    all_succeed(&home, SPREAD);
    println!("taken over after {took:?}, {beats} beats; all runs were done after {:?}", killed.elapsed());
    assert!(beats <= TAKEOVER, "{beats} beats, {took:?}");
    names_have_one_pod(&home, SPREAD * 2);
}

#[test]
fn controller_that_is_stopped_hands_its_work_over_at_once() {
    let home = Home::freehold();
    spaces(&home, &json!({}));
    let mut first = Process::start(&home, &[]);
    divided(&home, 1);
    let _second = Process::start(&home, &[]);
    divided(&home, 2);
    Command::new("kill").arg(first.0.id().to_string()).status().unwrap();
    assert!(first.0.wait().unwrap().success());
    divided(&home, 1);
}

#[test]
fn installs_in_one_cluster_leave_each_other_alone() {
    let home = Home::freehold();
    let blue = json!({"workflow.freehold.dev/instance": "blue"});
    spaces(&home, &blue);
    let _default = Process::start(&home, &[]);
    divided(&home, 1);
    start(&home, "blue", 0, &blue);
    start(&home, "default", 0, &json!({}));
    // The default install has seen both, and says of its own that the DAG is not its.
    home.until("the run of the default install waits", || {
        let run = home.block(home.client.get(&RUNS, Some("space-0"), "default")).unwrap();
        run["status"]["message"].as_str().filter(|text| text.contains("another install")).map(drop)
    });
    let run = home.block(home.client.get(&RUNS, Some("space-0"), "blue")).unwrap();
    assert!(run["status"].is_null(), "{run}");
    let _blue = Process::start(&home, &["--instance=blue"]);
    home.until("the run of the other install succeeds", || {
        let run = home.block(home.client.get(&RUNS, Some("space-0"), "blue")).unwrap();
        (run["status"]["phase"] == "Succeeded").then_some(())
    });
    names_have_one_pod(&home, 2);
    assert_eq!(shares(&home, "freehold-workflow-blue").len(), 1);
}

#[test]
fn four_controllers_beside_one() {
    let Some(count) = std::env::var("FREEHOLD_WORKFLOW_BENCH").ok().and_then(|n| n.parse::<usize>().ok())
    else {
        return;
    };
    let mut rates = Vec::new();
    for controllers in [1, 4] {
        let home = Home::freehold();
        spaces(&home, &json!({}));
        let _processes: Vec<Process> = (0..controllers).map(|_| Process::start(&home, &[])).collect();
        divided(&home, controllers);
        let begun = Instant::now();
        (0..count).for_each(|n| start(&home, &format!("r-{n}"), n, &json!({})));
        all_succeed(&home, count);
        rates.push(count as f64 * 60.0 / begun.elapsed().as_secs_f64());
        names_have_one_pod(&home, count * 2);
    }
    println!("{count} runs of two tasks: {:.0} a minute by one, {:.0} by four", rates[0], rates[1]);
}
