//! The history of `freehold up --enable workflow`, read in a project without a second process.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use freehold_tests_harness::{Engine, Kubectl, Options, Server, until};
use serde_json::{Value, json};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
const HISTORY: &str = "/apis/history.workflow.freehold.dev/v1alpha1";

/// A run that brings its own definition, of one task that needs no Pod.
fn run(namespace: &str, name: &str) -> String {
    json!({
        "apiVersion": "workflow.freehold.dev/v1alpha1", "kind": "DAGRun", "metadata": {"name": name, "namespace": namespace},
        "spec": {"dagSpec": {"tasks": [{"name": "a", "wait": {"duration": "100ms"}}]}},
    })
    .to_string()
}

/// Reads below the history of a project: `--raw` leaves out the path of the kubeconfig's server.
fn raw((project, kubectl): (&str, &Kubectl), path: &str) -> Result<Value, String> {
    let output = kubectl.run(&["get", "--raw", &format!("/projects/{project}{HISTORY}{path}")]);
    if output.success { Ok(serde_json::from_str(&output.stdout).unwrap()) } else { Err(output.stderr) }
}

const READER: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: ServiceAccount, name: reader, namespace: default}]
";

/// A user of a tenant sees all kinds as far as they are the tenant's.
const MEMBER: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: member}
rules: [{apiGroups: ['*'], resources: ['*'], verbs: [listvisible]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: member}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: member}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: mel}]
";

#[test]
fn runs_of_a_project_are_in_its_history_and_in_no_other() {
    let args = vec!["--enable=workflow".to_owned()];
    let mut server = Server::start(Options { engine: Engine::Embedded, args, ..Options::default() });
    let admin = server.kubectl();
    admin.apply(
        "apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Organization\nmetadata: {name: acme}",
    );
    for project in ["web", "other"] {
        admin.apply(&format!(
            "apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Project\nmetadata: {{name: {project}}}\nspec: {{ownerRef: {{kind: Organization, name: acme}}}}",
        ));
    }
    let (web, other) = (server.project("web"), server.project("other"));
    web.ok(&["create", "namespace", "team"]);
    web.apply(&run("default", "first"));
    web.apply(&run("team", "second"));
    let page = until("both runs are recorded", PATIENCE, || {
        let page = raw(("web", &web), "/runs?phase=Succeeded").ok()?;
        (page["items"].as_array()?.len() == 2).then_some(page)
    });
    let uid = |name: &str| {
        let items = page["items"].as_array().unwrap();
        items.iter().find(|run| run["name"] == name).unwrap()["uid"].as_str().unwrap().to_owned()
    };
    let (first, second) = (uid("first"), uid("second"));
    let tasks = raw(("web", &web), &format!("/namespaces/default/runs/{first}/tasks")).unwrap();
    assert_eq!(tasks["items"][0]["task"], "a", "{tasks}");
    assert_eq!(raw(("web", &web), "/namespaces/team/days").unwrap()["items"][0]["succeeded"], 1);
    assert!(
        raw(("web", &web), &format!("/namespaces/default/runs/{second}")).is_err(),
        "it is of another namespace"
    );
    // Another project, and somebody with rights in one namespace.
    assert_eq!(raw(("other", &other), "/runs").unwrap()["items"], json!([]));
    assert!(raw(("other", &other), &format!("/namespaces/default/runs/{first}")).is_err());
    // Who lists what is theirs alone gets no history of all namespaces.
    web.apply(MEMBER);
    let as_member = web.with(&["--as=mel"]);
    for path in ["/runs", "/days", "/namespaces/team/runs"] {
        let refused = raw(("web", &as_member), path);
        assert!(refused.as_ref().is_err_and(|error| error.contains("Forbidden")), "{path}: {refused:?}");
    }
    web.apply(READER);
    let as_reader = web.with(&["--as=system:serviceaccount:default:reader"]);
    let seen = raw(("web", &as_reader), "/namespaces/default/runs");
    assert!(seen.is_ok(), "{seen:?}");
    for path in ["/runs", "/namespaces/team/runs", "/namespaces/team/days"] {
        let refused = raw(("web", &as_reader), path);
        assert!(refused.is_err(), "{path}");
    }
    // Who gets the name of a namespace that is gone gets nothing of what was kept of it.
    assert_eq!(raw(("web", &web), "/namespaces/team/runs").unwrap()["items"][0]["name"], "second");
    web.ok(&["delete", "namespace", "team", "--wait"]);
    web.ok(&["create", "namespace", "team"]);
    assert_eq!(raw(("web", &web), "/namespaces/team/runs").unwrap()["items"], json!([]));
    assert_eq!(raw(("web", &web), "/namespaces/team/days").unwrap()["items"], json!([]));
    assert!(raw(("web", &web), &format!("/namespaces/team/runs/{second}")).is_err());
    // What the controllers count is served with the rest.
    let figures = server.kubectl().ok(&["get", "--raw", "/metrics"]);
    assert!(figures.contains("freehold_workflow_runs_total{outcome=\"succeeded\"} 2"), "{figures}");
    // It outlives a restart.
    server.restart();
    assert_eq!(raw(("web", &web), &format!("/namespaces/default/runs/{first}")).unwrap()["name"], "first");
}
