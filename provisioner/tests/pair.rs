//! The whole life of a dedicated pair, with everything around it real.

use freehold_tests_harness::{Engine, Kubectl, Server, until};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);
const MANIFESTS: &str = "
apiVersion: resourcemanager.freehold.dev/v1alpha1
kind: Organization
metadata: {name: acme}
spec: {type: Standard}
---
apiVersion: resourcemanager.freehold.dev/v1alpha1
kind: Project
metadata: {name: own}
spec:
  ownerRef: {kind: Organization, name: acme}
  controlPlane: {mode: Dedicated}
";

/// A Pod of the pair: uid, restarts and process.
#[derive(Clone, Debug, PartialEq)]
struct Member {
    uid: String,
    restarts: u64,
    pid: u32,
}

struct Pair<'a> {
    infra: Kubectl,
    project: Kubectl,
    namespace: String,
    server: &'a Server,
}

impl<'a> Pair<'a> {
    fn start(server: &'a Server) -> Self {
        let admin = server.kubectl();
        admin.apply(MANIFESTS);
        admin.ok(&["wait", "--for=condition=Ready", "project/own", "--timeout=120s"]);
        let uid = admin.ok(&["get", "project", "own", "-o", "jsonpath={.metadata.uid}"]);
        let infra = admin.with(&["--server", &format!("{}/planes/infra", server.url())]);
        Self { infra, project: server.project("own"), namespace: format!("project-{uid}"), server }
    }

    /// The ready Pod of one program; `None` while there is none.
    fn member(&self, component: &str) -> Option<Member> {
        let selector = format!("app.kubernetes.io/component={component}");
        let pods = self.infra.json(&["get", "pods", "-n", &self.namespace, "-l", &selector]);
        let [pod] = pods["items"].as_array()?.as_slice() else { return None };
        let status = &pod["status"]["containerStatuses"][0];
        let pid = status["containerID"].as_str()?.strip_prefix("process://")?.parse().ok()?;
        let uid = pod["metadata"]["uid"].as_str()?.to_owned();
        let restarts = status["restartCount"].as_u64()?;
        (status["ready"] == true).then_some(Member { uid, restarts, pid })
    }

    fn members(&self) -> [Member; 2] {
        ["apiserver", "controller-manager"].map(|name| until(name, PATIENCE, || self.member(name)))
    }

    fn consists_of_what_was_planned(&self) {
        let kinds = "deployments,services,secrets,networkpolicies,poddisruptionbudgets";
        let names = self.infra.ok(&["get", kinds, "-n", &self.namespace, "-o", "name"]);
        for name in [
            "deployment.apps/apiserver",
            "deployment.apps/controller-manager",
            "service/apiserver",
            "secret/admin-kubeconfig",
            "networkpolicy.networking.k8s.io/deny-all",
            "poddisruptionbudget.policy/apiserver",
        ] {
            assert!(names.contains(name), "{name} is not among\n{names}");
        }
        let secret = ["get", "secret", "-n", &self.namespace, "admin-kubeconfig"];
        let template = ["-o", "go-template={{.data.kubeconfig | base64decode}}"];
        let text = self.infra.ok(&[&secret[..], &template[..]].concat());
        let path = self.server.folder().join("direct.kubeconfig");
        std::fs::write(&path, text).expect("the test's folder can be written");
        assert_eq!(
            self.server.kubectl_with(path).ok(&["get", "configmap", "kept", "-o", "name"]),
            "configmap/kept\n"
        );
    }

    fn works(&self) {
        until("the project answers", PATIENCE, || {
            self.project.run(&["get", "configmap", "kept"]).success.then_some(())
        });
    }
}

fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

fn kill(pid: u32) {
    let killed = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(killed.is_ok_and(|status| status.success()));
}

fn a_pair_lives(engine: Engine) {
    let mut server = Server::start(engine);
    let pair = Pair::start(&server);
    pair.project.ok(&["create", "configmap", "kept"]);
    pair.consists_of_what_was_planned();

    let first = pair.members();
    kill(first[0].pid);
    let second = until("the apiserver is back", PATIENCE, || {
        pair.member("apiserver").filter(|m| m.restarts > first[0].restarts)
    });
    assert_eq!(second.uid, first[0].uid, "it is the same Pod");
    pair.works();

    let before = pair.members();
    let (infra, project, namespace) = (pair.infra, pair.project, pair.namespace);
    server.kill();
    assert!(before.iter().all(|member| runs(member.pid)), "what a killed server started goes on");
    server.restart();
    let pair = Pair { infra, project, namespace, server: &server };
    let after = until("new processes run", PATIENCE, || {
        let [Some(apiserver), Some(controllers)] =
            ["apiserver", "controller-manager"].map(|name| pair.member(name))
        else {
            return None;
        };
        let now = [apiserver, controllers];
        now.iter().zip(&before).all(|(now, old)| now.pid != old.pid).then_some(now)
    });
    assert!(!before.iter().any(|member| runs(member.pid)), "nothing of an earlier life runs beside them");
    assert_eq!(after[0].uid, before[0].uid, "certificates were kept");
    pair.works();

    let last = pair.members();
    server.kubectl().ok(&["delete", "project", "own", "--timeout=120s"]);
    assert!(!last.iter().any(|member| runs(member.pid)), "the processes went with the project");
    until("nothing of it is left in the infra plane", PATIENCE, || {
        let left = pair.infra.ok(&["get", "namespaces,projectcontrolplanes", "-o", "name"]);
        (!left.contains("project")).then_some(())
    });
    server.stop();
}

#[test]
fn a_pair_survives_its_processes_and_its_server_and_goes_with_its_project_on_the_embedded_store() {
    a_pair_lives(Engine::Embedded);
}

#[test]
fn a_pair_survives_its_processes_and_its_server_and_goes_with_its_project_on_etcd() {
    a_pair_lives(Engine::Etcd);
}
