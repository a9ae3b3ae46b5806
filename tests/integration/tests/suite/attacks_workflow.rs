//! What a workflow's author could become by the accounts that its tasks act as.

use crate::PATIENCE;
use freehold_tests_integration::{Engine, Kubectl, Options, Server, facts, until};
use serde_json::{Value, json};

facts!(engine: tasks_act_as_accounts_of_their_project_and_never_as_those_of_the_control_plane);

const PROJECT: &str = "
apiVersion: resourcemanager.freehold.dev/v1alpha1
kind: Organization
metadata: {name: acme}
---
apiVersion: resourcemanager.freehold.dev/v1alpha1
kind: Project
metadata: {name: acme-web}
spec: {ownerRef: {kind: Organization, name: acme}}
";

/// A DAG of one task, which is an action on an object, and a run of it.
fn run(kubectl: &Kubectl, namespace: &str, name: &str, account: &str, task: Value) {
    let dag = json!({
        "apiVersion": "workflow.freehold.dev/v1alpha1", "kind": "DAG", "metadata": {"name": name, "namespace": namespace},
        "spec": {"serviceAccountName": account, "tasks": [{"name": "t", "resource": task}]},
    });
    let run = json!({
        "apiVersion": "workflow.freehold.dev/v1alpha1", "kind": "DAGRun", "metadata": {"name": name, "namespace": namespace},
        "spec": {"dag": name},
    });
    kubectl.apply(&dag.to_string());
    kubectl.apply(&run.to_string());
}

/// The phase of a run that has ended, and what it says.
fn end(kubectl: &Kubectl, namespace: &str, name: &str) -> (String, String) {
    until("the run ends", PATIENCE, || {
        let found = kubectl.json(&["get", "dagrun", name, "-n", namespace]);
        let phase = found["status"]["phase"].as_str()?.to_owned();
        found["status"]["finishedAt"].is_string().then(|| (phase, found["status"].to_string()))
    })
}

fn tasks_act_as_accounts_of_their_project_and_never_as_those_of_the_control_plane(engine: Engine) {
    let args = vec!["--enable=workflow".to_owned()];
    let server = Server::start(Options { engine, args, ..Options::default() });
    server.kubectl().apply(PROJECT);
    server.kubectl().ok(&["wait", "--for=condition=Ready", "project/acme-web", "--timeout=120s"]);
    let web = server.project("acme-web");
    until("workflow is served", PATIENCE, || web.run(&["get", "dags"]).success.then_some(()));

    let map = json!({"action": "create", "manifest": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "made"}}});
    web.ok(&["create", "serviceaccount", "writer"]);
    run(&web, "default", "before", "writer", map.clone());
    let (phase, said) = end(&web, "default", "before");
    assert!(phase == "Failed" && said.contains("forbidden"), "an account has its own rights alone: {said}");
    web.ok(&["create", "rolebinding", "writer", "--clusterrole=edit", "--serviceaccount=default:writer"]);
    run(&web, "default", "after", "writer", map.clone());
    let (phase, said) = end(&web, "default", "after");
    assert_eq!(phase, "Succeeded", "{said}");
    web.ok(&["get", "configmap", "made"]);

    run(&web, "default", "nobody", "nobody", map);
    let (phase, said) = end(&web, "default", "nobody");
    assert!(phase == "Failed" && said.contains("AccountNotFound"), "{said}");

    // The account of a controller that may change any role; it need not even be there.
    web.ok(&["create", "clusterrole", "own", "--verb=get", "--resource=configmaps"]);
    let all = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "own"}, "rules": all});
    let task = json!({"action": "patch", "manifest": role});
    run(&web, "kube-system", "becomes", "clusterrole-aggregation-controller", task);
    let (phase, said) = end(&web, "kube-system", "becomes");
    assert!(phase == "Failed" && said.contains("AccountProtected"), "{said}");
    let own = web.json(&["get", "clusterrole", "own"]);
    assert_eq!(own["rules"][0]["verbs"], json!(["get"]), "{own}");
}
