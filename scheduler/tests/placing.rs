//! The scheduler against a real server, in the test's process. Nodes are objects: nothing runs the Pods.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use freehold_runtime::{Metrics, Planes};
use freehold_scheduler::Config;
use freehold_tests_harness::{Engine, Kubectl, Options, Server, until};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

const PATIENCE: Duration = Duration::from_secs(60);

const PROJECTS: &str = "
apiVersion: resourcemanager.freehold.dev/v1alpha1
kind: Organization
metadata: {name: acme}
---
apiVersion: resourcemanager.freehold.dev/v1alpha1
kind: Project
metadata: {name: red}
spec: {ownerRef: {kind: Organization, name: acme}}
---
apiVersion: resourcemanager.freehold.dev/v1alpha1
kind: Project
metadata: {name: blue}
spec: {ownerRef: {kind: Organization, name: acme}}
";

/// A scheduler over all planes, which ends when this is dropped.
struct Scheduler {
    token: CancellationToken,
    _runtime: Runtime,
}

impl Scheduler {
    fn start(server: &Server) -> Self {
        let (token, runtime) = (CancellationToken::new(), Runtime::new().unwrap());
        let planes = Planes::all(server.client());
        let config = Config { planes, name: "default-scheduler".into(), metrics: Metrics::default() };
        runtime.spawn(freehold_scheduler::run(config, token.clone()));
        Self { token, _runtime: runtime }
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.token.cancel();
    }
}

/// A project with a pair of its own.
const OWN_PAIR: &str = "
apiVersion: resourcemanager.freehold.dev/v1alpha1
kind: Project
metadata: {name: heavy}
spec:
  ownerRef: {kind: Organization, name: acme}
  controlPlane: {mode: Dedicated}
";

/// A server with two projects.
fn world(args: &[&str]) -> (Server, [Kubectl; 2]) {
    let args = args.iter().map(|arg| (*arg).to_owned()).collect();
    let server = Server::start(Options { engine: Engine::Embedded, args, ..Options::default() });
    server.kubectl().apply(PROJECTS);
    let projects = ["red", "blue"].map(|name| server.project(name));
    (server, projects)
}

fn add_node(kubectl: &Kubectl, name: &str, cpu: &str) {
    let labels = json!({"kubernetes.io/hostname": name});
    let amounts = json!({"cpu": cpu, "memory": "1Gi", "pods": "10"});
    let ready = json!({"type": "Ready", "status": "True", "reason": "Test", "message": "for a test"});
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": amounts, "capacity": amounts, "conditions": [ready]},
    });
    kubectl.apply(&node.to_string());
    // A new node has a taint until a controller has seen that it is ready.
    until("the node has no taint", PATIENCE, || {
        kubectl.json(&["get", "node", name])["spec"].get("taints").is_none().then_some(())
    });
}

fn add_pod(kubectl: &Kubectl, name: &str, cpu: &str, more: Value) {
    let mut spec = json!({"containers": [
        {"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu}}},
    ], "terminationGracePeriodSeconds": 0});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
    kubectl.apply(&pod.to_string());
}

fn pod(kubectl: &Kubectl, name: &str) -> Value {
    kubectl.json(&["get", "pod", name])
}

fn wait_for_node(kubectl: &Kubectl, name: &str) -> String {
    until("the Pod has a node", PATIENCE, || {
        pod(kubectl, name)["spec"]["nodeName"].as_str().map(str::to_owned)
    })
}

fn wait_for_refusal(kubectl: &Kubectl, name: &str, expected: &str) {
    until("the Pod is refused", PATIENCE, || {
        let pod = pod(kubectl, name);
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let condition = conditions.iter().find(|one| one["type"] == "PodScheduled")?;
        (condition["status"] == "False" && condition["message"] == expected).then_some(())
    });
}

#[test]
fn pods_go_where_there_is_room_in_their_own_project() {
    let (server, [red, blue]) = world(&[]);
    let _scheduler = Scheduler::start(&server);
    add_node(&red, "small", "100m");
    add_node(&red, "large", "2");
    add_pod(&red, "web", "1", json!({}));
    add_pod(&blue, "web", "1", json!({}));
    assert_eq!(wait_for_node(&red, "web"), "large");
    let told = "Successfully assigned default/web to large";
    until("an event tells it", PATIENCE, || red.ok(&["get", "events"]).contains(told).then_some(()));
    let blue_web = pod(&blue, "web");
    assert!(blue_web["spec"]["nodeName"].is_null(), "a project has no nodes of another");
    assert!(!blue_web.to_string().contains("Unschedulable"), "a project without nodes is left alone");
    add_node(&blue, "late", "4");
    assert_eq!(wait_for_node(&blue, "web"), "late");
}

#[test]
fn a_pod_that_fits_nowhere_says_why_and_is_placed_when_there_is_room() {
    let (server, [red, _]) = world(&[]);
    let _scheduler = Scheduler::start(&server);
    add_node(&red, "a", "1");
    add_node(&red, "b", "1");
    red.ok(&["taint", "node", "b", "k=v:NoSchedule"]);
    add_pod(&red, "first", "800m", json!({}));
    assert_eq!(wait_for_node(&red, "first"), "a");
    add_pod(&red, "second", "800m", json!({}));
    wait_for_refusal(
        &red,
        "second",
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s). preemption: 0/2 nodes are \
         available: 1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling.",
    );
    red.ok(&["delete", "pod", "first", "--grace-period=0", "--force"]);
    assert_eq!(wait_for_node(&red, "second"), "a");
}

#[test]
fn a_pod_of_higher_priority_takes_the_place_of_one_of_lower() {
    let (server, [red, _]) = world(&[]);
    let _scheduler = Scheduler::start(&server);
    red.apply(
        &json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000,
        })
        .to_string(),
    );
    add_node(&red, "a", "1");
    add_pod(&red, "low", "800m", json!({}));
    assert_eq!(wait_for_node(&red, "low"), "a");
    add_pod(&red, "high", "800m", json!({"priorityClassName": "high"}));
    // No node ends what runs there, so a victim with time to end would stay; with none it goes at once.
    until("the victim goes", PATIENCE, || {
        let low = red.ok(&["get", "pod", "low", "--ignore-not-found", "-o", "json"]);
        (low.trim().is_empty() || low.contains("deletionTimestamp")).then_some(())
    });
    red.run(&["delete", "pod", "low", "--grace-period=0", "--force", "--ignore-not-found"]);
    assert_eq!(wait_for_node(&red, "high"), "a");
}

#[test]
fn freehold_up_places_pods_of_projects_and_of_pairs() {
    let (server, [red, _]) = world(&["--scheduler"]);
    add_node(&red, "small", "100m");
    add_node(&red, "large", "2");
    add_pod(&red, "web", "1", json!({}));
    assert_eq!(wait_for_node(&red, "web"), "large");
    // The node of `freehold up` takes what the scheduler gives it, and nothing else.
    server.kubectl().apply(OWN_PAIR);
    server.kubectl().ok(&["wait", "--for=condition=Ready", "project/heavy", "--timeout=120s"]);
    let infra = server.kubectl().with(&["--server", &format!("{}/planes/infra", server.url())]);
    let events = infra.ok(&["get", "events", "-A", "-o", "jsonpath={.items[*].reason}"]);
    assert!(events.contains("Scheduled"), "{events}");
}
