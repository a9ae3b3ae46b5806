//! What nodes and Pods of a project use, without metrics-server: `kubectl top`, an autoscaler, and who is told.

use crate::{PATIENCE, names, row, streams::Node};
use freehold_tests_integration::{Http, Kubectl, World, facts, until};
use serde_json::{Value, json};
use std::net::TcpListener;

facts!(world:
    what_nodes_and_pods_use_is_seen_by_those_who_may_and_in_their_project_alone,
    a_deployment_is_scaled_by_the_cpu_of_its_pods,
);

/// Some work, and some rest, so that others have their share of the machine.
const WORKS: &str =
    "while kill -0 $PPID; do i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done; sleep 0.05; done";

const ALL: &str = "/apis/metrics.k8s.io/v1beta1/pods";

fn pod() -> String {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "works", "labels": {"app": "works"}},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [
            {"name": "a", "image": "shell", "command": ["sh", "-c", WORKS]},
            {"name": "b", "image": "shell", "command": ["sleep", "1000"]},
        ]},
    })
    .to_string()
}

/// A node at an address, as somebody may write one who is no kubelet.
fn imitate(kubectl: &Kubectl, name: &str, port: u64) {
    let status = json!({
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    });
    kubectl.apply(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}).to_string());
    let patch = json!({"status": status}).to_string();
    kubectl.ok(&["patch", "node", name, "--subresource=status", "--type=merge", "--patch", &patch]);
}

/// The answer to a path below the project's address, which `kubectl get --raw` would leave.
fn raw(kubectl: &Kubectl, path: &str) -> Value {
    Http::of(kubectl).get(path).body
}

fn code(kubectl: &Kubectl, path: &str) -> u16 {
    Http::of(kubectl).get(path).code
}

fn what_nodes_and_pods_use_is_seen_by_those_who_may_and_in_their_project_alone(world: &World) {
    world.organization("usage", &["usage-a", "usage-b"]);
    let [owner, stranger] = ["usage-a", "usage-b"].map(|project| world.server().project(project));
    assert!(
        !owner.ok(&["api-versions"]).contains("metrics.k8s.io"),
        "a project without nodes has no metrics"
    );
    // A kubelet that takes connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    imitate(&owner, "silent", silent.local_addr().expect("an address").port().into());
    let _node = Node::start(world, &owner);
    owner.apply(&pod());
    owner.ok(&["wait", "--for=condition=Ready", "pod/works", "--timeout=120s"]);

    let found = until("the Pod's usage is known", PATIENCE, || {
        let list = raw(&owner, ALL);
        list["items"].get(0).cloned()
    });
    assert_eq!(
        (&found["metadata"]["name"], &found["metadata"]["labels"]["app"]),
        (&json!("works"), &json!("works"))
    );
    assert_eq!(found["containers"].as_array().map(Vec::len), Some(2), "{found}");
    let top = owner.ok(&["top", "pods", "--no-headers"]);
    let [name, cpu, memory] = row(&top, "works")[..] else { panic!("{top}") };
    assert!(name == "works" && cpu.ends_with('m') && cpu != "0m" && memory.ends_with("Mi"), "{top}");
    assert!(owner.ok(&["top", "pods", "--containers", "-l", "app=works", "--no-headers"]).contains(" b "));
    assert!(row(&owner.ok(&["top", "nodes", "--no-headers"]), "local").len() >= 5);
    let table = owner.ok(&["get", "pods.metrics.k8s.io"]);
    assert_eq!(table.split_whitespace().take(4).collect::<Vec<_>>(), ["NAME", "CPU", "MEMORY", "WINDOW"]);
    assert!(owner.ok(&["explain", "pods", "--api-version=metrics.k8s.io/v1beta1"]).contains("containers"));
    let selected = |query: &str| raw(&owner, &format!("{ALL}?{query}"));
    assert!(names(&selected("labelSelector=app%3Dother")).is_empty());
    assert_eq!(names(&selected("fieldSelector=metadata.name%3Dworks")), ["works"]);
    let one = "/apis/metrics.k8s.io/v1beta1/nodes/";
    assert_eq!(raw(&owner, &format!("{one}local"))["kind"], "NodeMetrics");
    assert_eq!(code(&owner, &format!("{one}silent")), 404);
    assert_eq!(code(&owner, &format!("{ALL}?watch=true")), 405);

    assert_eq!(
        names(&raw(&owner, "/apis/metrics.k8s.io/v1beta1/nodes")),
        ["local"],
        "the silent one holds up nobody"
    );

    who_may_view_is_told(&owner);
    another_project_is_told_nothing(&owner, &stranger);
    another_server_is_asked(&owner);
    owner.ok(&["delete", "pod", "works", "--wait=false"]);
}

fn who_may_view_is_told(owner: &Kubectl) {
    let jane = owner.with(&["--as=jane"]);
    assert!(jane.fails(&["top", "pods"]).contains("forbidden"));
    owner.ok(&["create", "rolebinding", "jane", "--clusterrole=view", "--user=jane"]);
    until("who may view is told", PATIENCE, || jane.run(&["top", "pods"]).success.then_some(()));
    assert!(jane.fails(&["top", "nodes"]).contains("forbidden"));
}

/// Not where it names the address of a node that is not its own.
fn another_project_is_told_nothing(owner: &Kubectl, stranger: &Kubectl) {
    let node = owner.json(&["get", "node", "local"]);
    let port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64().expect("a port");
    imitate(stranger, "local", port);
    stranger.apply(&pod().replace(r#""spec":{"#, r#""spec":{"nodeName":"local","#));
    stranger.ok(&[
        "patch",
        "pod",
        "works",
        "--subresource=status",
        "--type=merge",
        "--patch",
        r#"{"status":{"phase":"Running"}}"#,
    ]);
    for resource in ["pods", "nodes"] {
        let list = raw(stranger, &format!("/apis/metrics.k8s.io/v1beta1/{resource}"));
        assert!(names(&list).is_empty(), "{list}");
    }
}

/// Where an APIService names one, and no longer.
fn another_server_is_asked(owner: &Kubectl) {
    let service = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1beta1.metrics.k8s.io"},
        "spec": {
            "group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "insecureSkipTLSVerify": true, "service": {"namespace": "kube-system", "name": "metrics-server"},
        },
    });
    owner.apply(&service.to_string());
    until("another server answers", PATIENCE, || (code(owner, ALL) == 503).then_some(()));
    owner.ok(&["delete", "apiservice", "v1beta1.metrics.k8s.io"]);
    until("the server itself answers", PATIENCE, || (code(owner, ALL) == 200).then_some(()));
}

fn a_deployment_is_scaled_by_the_cpu_of_its_pods(world: &World) {
    world.organization("scaled", &["scaled-a"]);
    let owner = world.server().project("scaled-a");
    let _node = Node::start(world, &owner);
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "works"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "works"}}, "template": {
            "metadata": {"labels": {"app": "works"}},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [
                {"name": "a", "image": "shell", "command": ["sh", "-c", WORKS], "resources": {"requests": {"cpu": "1m"}}},
            ]},
        }},
    });
    owner.apply(&deployment.to_string());
    let autoscaler = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "works"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "works"}, "minReplicas": 1, "maxReplicas": 2,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}],
        },
    });
    owner.apply(&autoscaler.to_string());
    until("there are two", PATIENCE, || {
        (owner.json(&["get", "deployment", "works"])["spec"]["replicas"] == 2).then_some(())
    });
    owner.ok(&["delete", "hpa,deployment", "works"]);
}
