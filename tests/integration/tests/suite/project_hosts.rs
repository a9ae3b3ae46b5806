//! Projects at hosts of their own, `--domain`.

use crate::contains_all;
use freehold_tests_integration::{Engine, Options, Server, until};

const DOMAIN: &str = "projects.example";
const PROJECTS: &str = "
apiVersion: resourcemanager.freehold.dev/v1alpha1
kind: Organization
metadata: {name: hosts}
---
apiVersion: resourcemanager.freehold.dev/v1alpha1
kind: Project
metadata: {name: web}
spec: {ownerRef: {kind: Organization, name: hosts}}
---
apiVersion: resourcemanager.freehold.dev/v1alpha1
kind: Project
metadata: {name: pair}
spec: {ownerRef: {kind: Organization, name: hosts}, controlPlane: {mode: Dedicated}}
";

#[test]
fn a_project_is_reached_at_its_host_shared_or_dedicated() {
    let args = ["--domain", DOMAIN].map(str::to_owned).to_vec();
    let server = Server::start(Options { engine: Engine::Embedded, args, ..Options::default() });
    server.kubectl().apply(PROJECTS);
    for project in ["web", "pair"] {
        server.kubectl().ok(&[
            "wait",
            "--for=condition=Ready",
            &format!("project/{project}"),
            "--timeout=120s",
        ]);
        let by_path = server.project(project);
        let at_host = server.project_at_host(project, DOMAIN, true);
        at_host.ok(&["create", "configmap", "seen"]);
        by_path.ok(&["get", "configmap", "seen"]);
        contains_all(&at_host.ok(&["explain", "pod.spec.containers"]), &["KIND:", "List of containers"]);
        // At a host there is nothing but its project.
        let beyond = at_host.fails(&["get", "--raw", "/projects/web/api"]);
        assert!(
            beyond.contains("NotFound") || (project == "pair" && beyond.contains("Unauthorized")),
            "{project}: {beyond}"
        );
    }
    let proxied = server.project_at_host("web", DOMAIN, true);
    let proxy = proxied.background(&["proxy", "--port=0"]);
    proxy.wait_for("Starting to serve on");
    let printed = proxy.printed();
    let address = printed.split_whitespace().last().unwrap_or_default().to_owned();
    let direct = proxied.with(&["--server", &format!("http://{address}")]);
    until("the proxy serves", crate::PATIENCE, || {
        direct.run(&["get", "configmap", "seen"]).success.then_some(())
    });
    let printed = server.freehold(&["kubeconfig", "web", "--domain", DOMAIN]).expect_ok();
    contains_all(&printed, &[&format!("server: \"https://web.{DOMAIN}:")]);
}
