//! What `freehold install tenancy --in-cluster` prints, taken by a real kube-apiserver.

use freehold_tests_harness::{Kube, KubeOptions, freehold_binary};
use std::process::Command;

#[test]
fn what_runs_in_the_cluster_is_taken_by_a_real_kube_apiserver() {
    if !Kube::is_available() {
        eprintln!("left out: there is no kube-apiserver; `tools/get kube-apiserver` builds it");
        return;
    }
    let kube = Kube::start(KubeOptions::default());
    let kubectl = kube.kubectl();
    let printed = Command::new(freehold_binary())
        .args([
            "install",
            "tenancy",
            "--in-cluster",
            "--image",
            "registry.example.com/freehold:test",
            "-o",
            "yaml",
        ])
        .env("KUBECONFIG", kube.admin_kubeconfig())
        .output()
        .expect("freehold can be run");
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    let text = String::from_utf8_lossy(&printed.stdout).into_owned();
    // A dry run stores no namespace that others could be in.
    kubectl.ok(&["create", "namespace", "freehold-tenancy"]);
    let apply = ["apply", "--server-side", "--dry-run=server", "-f", "-"];
    let taken = kubectl.run_with_input(&apply, &text).expect_ok();
    for object in [
        "deployment.apps/tenancy-controller",
        "deployment.apps/tenancy-webhook",
        "deployment.apps/tenancy-proxy",
        "service/tenancy-webhook",
        "serviceaccount/tenancy-proxy",
        "clusterrolebinding.rbac.authorization.k8s.io/tenancy.freehold.dev:proxy",
        "clusterrole.rbac.authorization.k8s.io/tenancy.freehold.dev:proxy",
        "validatingadmissionpolicy.admissionregistration.k8s.io/extension-projects.tenancy.freehold.dev",
    ] {
        assert!(taken.contains(object), "{object}: {taken}");
    }
    let installed = Command::new(freehold_binary())
        .args(["install", "tenancy"])
        .env("KUBECONFIG", kube.admin_kubeconfig())
        .output()
        .expect("freehold can be run");
    assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
    // The server has these, so they are there; no Deployment is without --in-cluster.
    kubectl.ok(&["get", "mutatingadmissionpolicy", "default-storage-class.tenancy.freehold.dev"]);
    assert!(kubectl.ok(&["get", "deployments", "-A", "-o", "name"]).is_empty());
}
