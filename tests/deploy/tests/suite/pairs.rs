//! Dedicated pairs on a cluster other than the core servers': made, put right, rolled, and removed.

use freehold_tests_deploy::infra::{Core, Folder, Infra, condition};
use freehold_tests_deploy::{NAMESPACE, RELEASE, find, render, run};
use freehold_tests_harness::{KubeOptions, Kubectl, resident_kib, until};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
const IMAGE: &str = "freehold:test";
pub(crate) const ORGANIZATION: &str = "
apiVersion: resourcemanager.freehold.dev/v1alpha1
kind: Organization
metadata: {name: acme}
spec: {type: Standard}
";

pub(crate) fn project(name: &str) -> String {
    format!(
        "apiVersion: resourcemanager.freehold.dev/v1alpha1
kind: Project
metadata: {{name: {name}}}
spec:
  ownerRef: {{kind: Organization, name: acme}}
  controlPlane: {{mode: Dedicated}}
"
    )
}

/// What a pair consists of.
const OBJECTS: [&str; 19] = [
    "deployment.apps/apiserver",
    "deployment.apps/controller-manager",
    "networkpolicy.networking.k8s.io/apiserver",
    "networkpolicy.networking.k8s.io/controller-manager",
    "networkpolicy.networking.k8s.io/deny-all",
    "poddisruptionbudget.policy/apiserver",
    "secret/admin-client",
    "secret/admin-kubeconfig",
    "secret/apiserver-etcd-client",
    "secret/apiserver-proxy-client",
    "secret/apiserver-serving",
    "secret/apiserver-trust",
    "secret/controller-manager-client",
    "secret/controller-manager-kubeconfig",
    "secret/service-account-key",
    "service/apiserver",
    "serviceaccount/apiserver",
    "serviceaccount/controller-manager",
    "serviceaccount/default",
];

pub(crate) struct Pair<'a> {
    core: &'a Core,
    pub(crate) infra: Kubectl,
    pub(crate) uid: String,
    namespace: String,
}

impl<'a> Pair<'a> {
    pub(crate) fn of(core: &'a Core, infra: &Infra, project: &str) -> Self {
        let uid = core.kubectl().ok(&["get", "project", project, "-o", "jsonpath={.metadata.uid}"]);
        let namespace = format!("project-{uid}");
        Self { core, infra: infra.kubectl().with(&["-n", &namespace]), uid, namespace }
    }

    pub(crate) fn control_plane(&self) -> Value {
        let server = format!("{}/planes/infra", self.core.url);
        self.core.kubectl().with(&["--server", &server]).json(&["get", "projectcontrolplane", &self.uid])
    }

    /// Waits for a condition that begins so.
    pub(crate) fn until(&self, type_: &str, beginning: &str) -> String {
        until(&format!("{type_} is {beginning:?}"), PATIENCE, || {
            Some(condition(&self.control_plane(), type_)).filter(|found| found.starts_with(beginning))
        })
    }

    pub(crate) fn consists_of_what_was_planned(&self) {
        let kinds = "deployments,networkpolicies,poddisruptionbudgets,secrets,services,serviceaccounts";
        let found = self.infra.ok(&["get", kinds, "-o", "name"]);
        let found: BTreeSet<&str> = found.lines().collect();
        assert_eq!(found, OBJECTS.into_iter().collect());
        let namespace = self.infra.json(&["get", "namespace", &self.namespace]);
        assert_eq!(namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "restricted");
        assert!(namespace["metadata"].get("ownerReferences").is_none(), "its owner is on another cluster");
        for account in ["apiserver", "controller-manager"] {
            let account = self.infra.json(&["get", "serviceaccount", account]);
            assert_eq!(account["automountServiceAccountToken"], false);
        }
    }

    pub(crate) fn is_put_right(&self) {
        self.infra.ok(&["delete", "networkpolicy", "deny-all"]);
        self.infra.ok(&["scale", "deployment", "controller-manager", "--replicas=0"]);
        self.infra.ok(&[
            "patch",
            "service",
            "apiserver",
            "-p",
            r#"{"spec": {"selector": {"app.kubernetes.io/component": "x"}}}"#,
        ]);
        until("what others changed is put right", PATIENCE, || {
            let replicas =
                self.infra.json(&["get", "deployment", "controller-manager"])["spec"]["replicas"] == 1;
            let selector = &self.infra.json(&["get", "service", "apiserver"])["spec"]["selector"];
            let selector = selector["app.kubernetes.io/component"] == "apiserver";
            let policy = self.infra.run(&["get", "networkpolicy", "deny-all"]).success;
            (replicas && selector && policy).then_some(())
        });
        self.infra.apply(&format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: former, labels: {{app.kubernetes.io/managed-by: \
             freehold-provisioner, infrastructure.freehold.dev/project-uid: {}}}}}",
            self.uid
        ));
        until("what no plan has is removed", PATIENCE, || {
            (!self.infra.run(&["get", "secret", "former"]).success).then_some(())
        });
    }

    /// Resident memory of its processes, where `freehold node` runs them.
    fn resident_kib(&self) -> u64 {
        let pods = self.infra.json(&["get", "pods"]);
        let ids = pods["items"].as_array().into_iter().flatten().filter_map(|pod| {
            let id = pod["status"]["containerStatuses"][0]["containerID"].as_str()?;
            id.strip_prefix("process://")?.parse().ok()
        });
        ids.map(resident_kib).sum()
    }
}

/// A kubeconfig of the service account that the chart gives to the provisioner, with the rights that it has there.
fn provisioner_kubeconfig(infra: &Infra, folder: &Path) -> PathBuf {
    let objects = render(RELEASE, &["--set", "provisioner.enabled=true"]);
    let kubectl = infra.kubectl();
    kubectl.ok(&["create", "namespace", NAMESPACE]);
    for kind in ["ServiceAccount", "ClusterRole", "ClusterRoleBinding"] {
        kubectl.apply(&find(&objects, kind, "freehold-provisioner").to_string());
    }
    let token = kubectl.ok(&["-n", NAMESPACE, "create", "token", "freehold-provisioner"]);
    let path = folder.join("infra.kubeconfig");
    let config = Kubectl::new(&path, folder.join("home")).with(&["config"]);
    let authority = infra.kube.folder().join("ca.crt").display().to_string();
    let server = infra.kube.url();
    config.ok(&["set-cluster", "infra", "--server", &server, "--certificate-authority", &authority]);
    config.ok(&["set-credentials", "provisioner", "--token", token.trim()]);
    config.ok(&["set-context", "infra", "--cluster", "infra", "--user", "provisioner"]);
    config.ok(&["use-context", "infra"]);
    path
}

/// `freehold certs` finds authorities, kubeconfigs of projects and certificates of pairs; none expires within a month.
fn certificates_are_listed(core: &Core, infra: &Infra, folder: &Path, pair: &Pair<'_>) {
    let certs = |more: &[&str]| {
        let mut command = core.freehold("certs");
        command.arg("--kubeconfig").arg(core.kubeconfig()).arg("--pki-dir").arg(folder.join("pki"));
        command.arg("--infra-kubeconfig").arg(infra.kube.admin_kubeconfig()).args(more);
        run(&mut command)
    };
    let (listed, printed) = certs(&[]);
    let found = |place: &str| printed.lines().any(|line| line.trim_end().ends_with(place));
    assert!(listed && found("pki/front-proxy-ca.crt"), "{printed}");
    assert!(found("organization-acme/own-kubeconfig kubeconfig"), "{printed}");
    for file in ["apiserver-serving tls.crt", "apiserver-trust client-ca.crt", "admin-kubeconfig kubeconfig"]
    {
        assert!(found(&format!("{}/{file}", pair.namespace)), "{file}:\n{printed}");
    }
    assert!(!printed.contains("PRIVATE KEY"));
    assert!(certs(&["--within=30"]).0, "nothing expires soon");
    let (fine, printed) = certs(&["--within=4000", "--json"]);
    assert!(!fine && printed.contains("certificates expire within 4000 days"), "{printed}");
}

#[test]
fn a_pair_lives_on_a_cluster_of_its_own() {
    if !Infra::is_available() {
        eprintln!("left out: `tools/get kube-apiserver kube-controller-manager` builds what it needs");
        return;
    }
    let folder = Folder::new();
    let mut infra = Infra::start(&folder.path(), KubeOptions::default());
    infra.add_node(&folder.path(), IMAGE);
    let core = Core::start(&folder.path(), "127.0.0.1");
    let classes = folder.path().join("classes.yaml");
    let write = |text: &str| std::fs::write(&classes, text).expect("the test's folder can be written");
    write("classes: {}\n");
    let flags = ["--classes".to_owned(), classes.display().to_string()];
    let _provisioner = core.provision(&provisioner_kubeconfig(&infra, &folder.path()), IMAGE, &flags);
    let kubectl = core.kubectl();
    kubectl.apply(ORGANIZATION);
    let begun = Instant::now();
    kubectl.apply(&project("own"));
    kubectl.ok(&["wait", "--for=condition=Ready", "project/own", "--timeout=120s"]);
    let took = begun.elapsed();

    let pair = Pair::of(&core, &infra, "own");
    core.project("own").ok(&["create", "configmap", "kept"]);
    pair.until("Updated", "True");
    eprintln!("a pair was ready {took:?} after its project was applied, and has {} KiB", pair.resident_kib());
    pair.consists_of_what_was_planned();
    let (fine, told) = run(core
        .freehold("doctor")
        .args(["--infra-kubeconfig"])
        .arg(infra.kube.admin_kubeconfig())
        .arg("--pki-dir")
        .arg(folder.path().join("pki"))
        .arg("--kubeconfig")
        .arg(core.kubeconfig()));
    assert!(fine && told.contains("1 pairs are ready"), "{told}");
    certificates_are_listed(&core, &infra, &folder.path(), &pair);
    pair.is_put_right();
    pair.until("Ready", "True");

    // An image that is not there: the old apiserver goes on, and a new project says what it lacks.
    write("classes: {default: {image: 'freehold:absent'}}\n");
    pair.until("Updated", "False ImageUnavailable");
    core.project("own").ok(&["get", "configmap", "kept"]);
    assert!(condition(&pair.control_plane(), "Ready").starts_with("True"));
    let (fine, told) = run(core
        .freehold("doctor")
        .args(["--infra-kubeconfig"])
        .arg(infra.kube.admin_kubeconfig())
        .arg("--kubeconfig")
        .arg(core.kubeconfig()));
    assert!(!fine && told.contains("project \"own\": ImageUnavailable"), "{told}");
    kubectl.apply(&project("other"));
    until("the project says what is missing", PATIENCE, || {
        let told = condition(&kubectl.json(&["get", "project", "other"]), "Ready");
        (told.starts_with("False ImageUnavailable") && told.contains("freehold:absent")).then_some(())
    });
    write("classes: {}\n");
    pair.until("Updated", "True");
    kubectl.ok(&["wait", "--for=condition=Ready", "project/other", "--timeout=120s"]);

    kubectl.ok(&["delete", "project", "own", "other", "--timeout=120s"]);
    until("nothing of the pairs is left", PATIENCE, || {
        let left = infra.kubectl().ok(&["get", "namespaces", "-o", "name"]);
        (!left.contains("project-")).then_some(())
    });
}
