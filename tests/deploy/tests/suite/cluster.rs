//! A real kube-apiserver takes what the chart renders, without an error and without a warning.

use freehold_tests_deploy::{NAMESPACE, RELEASE, chart, helm, render_text, run, values_files};
use freehold_tests_harness::{Kube, KubeOptions, Kubectl, crds};

/// Projects whose kinds the chart uses.
const PROJECTS: [&str; 3] = ["cert-manager", "gateway-api", "prometheus-operator"];

/// A namespace in which Pods have to follow the restricted standard, and whatever makes Pods is warned of.
const RESTRICTED: &str = "apiVersion: v1
kind: Namespace
metadata:
  name: freehold-system
  labels:
    pod-security.kubernetes.io/enforce: restricted
    pod-security.kubernetes.io/warn: restricted
";

/// What such a namespace warns of.
const CARELESS: &str = "apiVersion: apps/v1
kind: Deployment
metadata: {name: a}
spec:
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec: {containers: [{name: a, image: a}]}
";

fn install_definitions(kubectl: &Kubectl) {
    let crds: Vec<_> = crds().into_iter().filter(|crd| PROJECTS.contains(&crd.project.as_str())).collect();
    let used = ["certificates.", "issuers.", "tlsroutes.", "servicemonitors.", "prometheusrules."];
    let name = |crd: &freehold_tests_harness::Crd| crd.object["metadata"]["name"].as_str().map(str::to_owned);
    let used = crds
        .iter()
        .filter(|crd| name(crd).is_some_and(|name| used.iter().any(|used| name.starts_with(used))));
    let mut names = Vec::new();
    for crd in used {
        // Beyond what fits into an annotation of `kubectl apply`.
        kubectl.run_with_input(&["create", "-f", "-"], &crd.object.to_string()).expect_ok();
        names.push(format!("crd/{}", name(crd).expect("a name")));
    }
    assert_eq!(names.len(), 5, "{names:?}");
    let mut args = vec!["wait", "--for=condition=Established", "--timeout=60s"];
    args.extend(names.iter().map(String::as_str));
    kubectl.ok(&args);
}

fn dry_run(kubectl: &Kubectl, manifests: &str) -> freehold_tests_harness::Output {
    kubectl.run_with_input(&["apply", "--dry-run=server", "-n", NAMESPACE, "-f", "-"], manifests)
}

/// Runs `helm` in the cluster; it has to succeed, and nothing is to be warned of.
fn release(kube: &Kube, args: &[&str]) {
    let (success, printed) =
        run(helm(args).args(["--namespace", NAMESPACE]).env("KUBECONFIG", kube.admin_kubeconfig()));
    assert!(success && !printed.to_lowercase().contains("warning"), "helm {args:?}:\n{printed}");
}

/// Installs the chart, changes what is in its Job's template, goes back, and uninstalls it.
fn a_release_lives(kube: &Kube) {
    let chart = chart().display().to_string();
    let jobs = || kube.kubectl().ok(&["-n", NAMESPACE, "get", "jobs", "-o", "name"]);
    release(kube, &["install", RELEASE, &chart]);
    let first = jobs();
    release(
        kube,
        &["upgrade", RELEASE, &chart, "--set", "image.tag=next,apiserver.replicas=3,domain=projects.example"],
    );
    let second = jobs();
    assert!(first != second && second.lines().count() == 1, "{first}{second}");
    release(kube, &["rollback", RELEASE, "1"]);
    assert_eq!(jobs(), first);
    release(kube, &["uninstall", RELEASE]);
    assert_eq!(kube.kubectl().ok(&["-n", NAMESPACE, "get", "deployments,jobs,services", "-o", "name"]), "");
}

#[test]
fn a_restricted_namespace_takes_the_chart_without_a_warning() {
    if !Kube::is_available() {
        eprintln!("left out: there is no kube-apiserver; `tools/get kube-apiserver` builds it");
        return;
    }
    let kube = Kube::start(KubeOptions::default());
    let kubectl = kube.kubectl();
    kubectl.apply(RESTRICTED);
    install_definitions(&kubectl);
    let careless = dry_run(&kubectl, CARELESS);
    assert!(careless.stderr.contains("would violate PodSecurity"), "nothing is warned of:\n{careless}");
    for values in values_files() {
        let taken = dry_run(&kubectl, &render_text(RELEASE, &["--values", &values.display().to_string()]));
        assert!(taken.success && taken.stderr.is_empty(), "{}:\n{taken}", values.display());
    }
    let base = chart().join("../../kustomize/base");
    let taken = kubectl.run(&["apply", "--dry-run=server", "-k", &base.display().to_string()]);
    assert!(taken.success && taken.stderr.is_empty(), "{RELEASE}:\n{taken}");
    a_release_lives(&kube);
}
