//! The command lines, volumes and files that the chart renders, run as processes of this machine.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use freehold_tests_deploy::pods::{Machine, Running};
use freehold_tests_deploy::prometheus::{EVERYTHING, get};
use freehold_tests_deploy::{NAMESPACE, RELEASE, chart, find, render};
use freehold_tests_harness::{Kube, KubeOptions, Kubectl, free_port, until};
use regex::Regex;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Counters that are served once there is something to count.
const AFTER_A_FAULT: [&str; 1] = ["apiserver_audit_error"];
const PATIENCE: Duration = Duration::from_secs(60);

/// An installation of the chart on a cluster without nodes.
struct Installation {
    // Before `folder`: processes end first.
    running: Vec<Running>,
    objects: Vec<Value>,
    machine: Machine,
    kube: Kube,
    /// Where the server listens.
    server: u16,
    /// Where the console listens.
    console: u16,
    /// Where components serve their metrics.
    metrics: BTreeMap<String, u16>,
    folder: TempDir,
}

impl Installation {
    fn new(args: &[&str]) -> Self {
        let folder =
            tempfile::Builder::new().prefix("freehold-chart-").tempdir().expect("a temporary directory");
        let kube = Kube::start(KubeOptions::default());
        let [etcd, peer, etcd_metrics, server, console, syncer] = std::array::from_fn(|_| free_port());
        let member = format!("freehold-etcd-0.freehold-etcd.{NAMESPACE}.svc");
        let addresses = [
            (format!("{member}:2379"), format!("127.0.0.1:{etcd}")),
            (format!("{member}:2380"), format!("127.0.0.1:{peer}")),
            ("0.0.0.0:2379".to_owned(), format!("127.0.0.1:{etcd}")),
            ("0.0.0.0:2380".to_owned(), format!("127.0.0.1:{peer}")),
            ("0.0.0.0:2381".to_owned(), format!("127.0.0.1:{etcd_metrics}")),
            ("0.0.0.0:10260".to_owned(), format!("127.0.0.1:{syncer}")),
            ("10.96.0.50:10260".to_owned(), format!("127.0.0.1:{syncer}")),
            ("0.0.0.0:7443".to_owned(), format!("127.0.0.1:{server}")),
            ("0.0.0.0:8443".to_owned(), format!("127.0.0.1:{console}")),
            (format!("https://freehold.{NAMESPACE}.svc"), format!("https://127.0.0.1:{server}")),
            ("https://kubernetes.default.svc".to_owned(), kube.url()),
        ];
        let machine =
            Machine { folder: folder.path().to_owned(), addresses: addresses.into(), ..Machine::default() };
        let metrics = BTreeMap::from([("etcd".to_owned(), etcd_metrics)]);
        let objects = render(RELEASE, args);
        Self { running: Vec::new(), objects, machine, kube, server, console, metrics, folder }
    }

    /// Starts the Pod of a component's Deployment, whose metrics are at a port of their own.
    fn start_component(&mut self, component: &str) {
        let port = free_port();
        self.metrics.insert(component.to_owned(), port);
        self.machine.addresses.push(("0.0.0.0:7080".to_owned(), format!("127.0.0.1:{port}")));
        self.start("Deployment", &format!("{RELEASE}-{component}"), &format!("{component}-1"));
        self.machine.addresses.pop();
    }

    /// Starts the Pod of a workload.
    fn start(&mut self, kind: &str, name: &str, pod: &str) {
        let template = &find(&self.objects, kind, name)["spec"]["template"]["spec"];
        self.running.push(self.machine.pod(pod, template).start());
    }

    /// Waits until each of some looks succeeds, while everything runs.
    fn until<T>(&mut self, what: &str, mut look: impl FnMut(&Self) -> Option<T>) -> T {
        until(what, PATIENCE, || {
            self.running.iter_mut().for_each(Running::expect_running);
            look(self)
        })
    }

    /// Applies what the Job needs to the cluster, and gives its Pod a token, as a kubelet would.
    fn make_pki(&mut self) -> Value {
        let kubectl = self.kube.kubectl();
        kubectl.ok(&["create", "namespace", NAMESPACE]);
        for kind in ["ServiceAccount", "Role", "RoleBinding"] {
            kubectl.apply(&find(&self.objects, kind, "freehold-pki").to_string());
        }
        let identity = self.folder.path().join("service-account");
        std::fs::create_dir(&identity).expect("a new directory");
        let token = kubectl.ok(&["-n", NAMESPACE, "create", "token", "freehold-pki"]);
        std::fs::write(identity.join("token"), token).expect("the test's folder can be written");
        std::fs::copy(self.kube.folder().join("ca.crt"), identity.join("ca.crt"))
            .expect("the cluster's authority");
        self.machine.set_service_account(&identity);
        self.machine.add(find(&self.objects, "ConfigMap", "freehold-pki-cluster"));
        let job = self.objects.iter().find(|object| object["kind"] == "Job").expect("there is a Job");
        let template = &job["spec"]["template"]["spec"];
        let secret = || kubectl.json(&["-n", NAMESPACE, "get", "secret", "freehold-pki"]);
        self.machine.pod("pki-1", template).run();
        let made = secret();
        self.machine.pod("pki-2", template).run();
        assert_eq!(secret(), made, "the Job's second run changed the Secret");
        self.machine.add(&made);
        made
    }

    /// Names of the metrics that a component serves.
    fn exported(&self, component: &str) -> BTreeSet<String> {
        let text = get(self.metrics[component], "/metrics").unwrap_or_default();
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
        types.map(family).collect()
    }
}

/// The metrics that alerts and dashboard ask for, without the endings of their samples, each with a component that has to
/// serve it; those of no component are of kube-state-metrics.
fn asked_for() -> BTreeSet<(String, String)> {
    let read = |file: &str| std::fs::read_to_string(chart().join(file)).expect("it is there");
    let texts = (read("alerts.yaml") + &read("dashboards/freehold.json")).replace("\\\"", "\"");
    let names =
        Regex::new(r#"([a-z_]+)\{namespace="[^"]*"(?:, job=~?"RELEASE-([^"]+)")?"#).expect("an expression");
    let mut asked = BTreeSet::new();
    for found in names.captures_iter(&texts) {
        let components = found.get(2).map_or("", |found| found.as_str()).trim_matches(['(', ')']);
        asked.extend(components.split('|').map(|component| (family(&found[1]), component.to_owned())));
    }
    asked.into_iter().filter(|(name, _)| name != "up" && !AFTER_A_FAULT.contains(&name.as_str())).collect()
}

fn family(sample: &str) -> String {
    let endings = ["_total", "_bucket", "_sum", "_count"];
    let family = endings.iter().find_map(|ending| sample.strip_suffix(ending));
    family.unwrap_or(sample).to_owned()
}

fn admin(server: &str, kubeconfig: &Path, home: &Path) -> Kubectl {
    Kubectl::new(kubeconfig, home).with(&["--server", server])
}

#[test]
fn what_the_chart_renders_runs() {
    if !Kube::is_available() {
        eprintln!("left out: there is no kube-apiserver; `tools/get kube-apiserver` builds it");
        return;
    }
    let mut all = Installation::new(&EVERYTHING);
    all.start("StatefulSet", "freehold-etcd", "freehold-etcd-0");
    let secret = all.make_pki();
    let infra = std::fs::read_to_string(all.kube.admin_kubeconfig()).expect("the cluster's kubeconfig");
    all.machine.add(&json!({
        "kind": "Secret", "metadata": {"name": "infra"}, "data": {"kubeconfig": BASE64_STANDARD.encode(infra)},
    }));
    all.machine.add(find(&all.objects, "ConfigMap", "freehold-classes"));

    all.start_component("apiserver");
    let server = all.server;
    all.until("the server listens", |_| TcpStream::connect((Ipv4Addr::LOCALHOST, server)).ok());
    for component in ["controller-manager", "provisioner", "scheduler", "subsystems", "syncer"] {
        all.start_component(component);
    }
    let kubeconfig = all.folder.path().join("controller-manager-1/kubeconfig/kubeconfig");
    let kubectl = admin(&format!("https://127.0.0.1:{server}"), &kubeconfig, all.folder.path());
    all.until("the server is ready", |_| kubectl.run(&["get", "--raw", "/readyz"]).success.then_some(()));

    let examples = freehold_tests_deploy::top().join("examples/first-project.yaml").display().to_string();
    kubectl.ok(&["apply", "-f", &examples]);
    all.until("a project is ready", |_| {
        let ready = kubectl.run(&["wait", "--for=condition=Ready", "project/web", "--timeout=1s"]);
        ready.success.then_some(())
    });

    the_console_signs_in(&mut all, &secret, &kubectl);

    let test = &find(&all.objects, "Pod", "freehold-test-access")["spec"];
    assert_eq!(all.machine.pod("test-1", test).run(), "yes\n");

    let job = &find(&all.objects, "CronJob", "freehold-backup")["spec"]["jobTemplate"]["spec"];
    let backup = all.machine.pod("backup-1", &job["template"]["spec"]);
    let verified = backup.run();
    assert!(verified.contains("into an empty store"), "{verified}");
    let written = std::fs::read_dir(backup.volume("backups")).expect("the volume is there").flatten();
    let written: Vec<_> = written.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
    assert!(written.len() == 1 && written[0].ends_with(".backup"), "{written:?}");

    a_pod_is_placed(&mut all, &kubectl);
    metrics_that_are_asked_for_are_served(&mut all);
    certificates_of_cert_manager_have_their_places(&mut all, &secret);
}

/// Somebody signs in to the console with a key, and reads what the key may read; the console itself has no key of the servers.
fn the_console_signs_in(all: &mut Installation, secret: &Value, kubectl: &Kubectl) {
    let tls = json!({"tls.crt": secret["data"]["ca.crt"], "tls.key": secret["data"]["ca.key"]});
    all.machine.add(&json!({"kind": "Secret", "metadata": {"name": "console-tls"}, "data": tls}));
    all.start("Deployment", "freehold-console", "console-1");
    let volume = all.folder.path().join("console-1/server");
    let files = std::fs::read_dir(&volume).expect("the volume is there").flatten();
    let files: Vec<_> = files.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
    assert_eq!(files, ["ca.crt"]);
    let port = all.console;
    all.until("the console listens", |_| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok());

    let metadata = |name: &str| json!({"name": name, "namespace": "organization-acme"});
    let iam = "iam.freehold.dev/v1alpha1";
    let account = json!({"apiVersion": iam, "kind": "ServiceAccount", "metadata": metadata("robot")});
    kubectl.apply(&account.to_string());
    let spec = json!({"serviceAccountRef": {"name": "robot"}});
    let key = json!({"apiVersion": iam, "kind": "ServiceAccountKey", "metadata": metadata("robot-1"), "spec": spec});
    let file = all.folder.path().join("key.json");
    std::fs::write(&file, key.to_string()).expect("the test's folder can be written");
    let file = file.display().to_string();
    let token = kubectl.ok(&["create", "-f", &file, "-o", "jsonpath={.status.token}"]);

    let jar = all.folder.path().join("cookies").display().to_string();
    let own = ["-H", "X-Freehold-Console: 1", "-H", "Sec-Fetch-Site: same-origin", "-b", &jar, "-c", &jar];
    let ask = |args: &[&str], path: &str| {
        let url = format!("https://127.0.0.1:{port}/console/api/{path}");
        let mut curl = std::process::Command::new("curl");
        let answer =
            curl.args(["-sk", "--max-time", "20"]).args(own).args(args).arg(url).output().expect("curl runs");
        String::from_utf8(answer.stdout).expect("an answer of text")
    };
    let ways: Value = serde_json::from_str(&ask(&[], "login")).expect("JSON");
    assert_eq!(ways, json!({"link": false, "token": true, "oidc": false}));
    let body = json!({"token": token}).to_string();
    let session = ask(&["-H", "Content-Type: application/json", "-d", &body], "login/token");
    assert!(session.contains("robot") && !session.contains(&token), "{session}");
    let refused = ask(&[], "k8s/apis/resourcemanager.freehold.dev/v1alpha1/organizations");
    assert!(refused.contains("\"code\":403") && refused.contains("robot"), "{refused}");
    assert!(ask(&[], "k8s/version").contains("gitVersion"));
}

/// The scheduler gives a Pod of a project to a node. Nothing runs it there.
fn a_pod_is_placed(all: &mut Installation, kubectl: &Kubectl) {
    let project = kubectl.with(&["--server", &format!("https://127.0.0.1:{}/projects/web", all.server)]);
    let amounts = json!({"cpu": "2", "memory": "1Gi", "pods": "10"});
    let ready = json!({"type": "Ready", "status": "True", "reason": "Test", "message": "for a test"});
    project.apply(
        &json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
            "status": {"allocatable": amounts, "capacity": amounts, "conditions": [ready]},
        })
        .to_string(),
    );
    all.until("the project has a service account", |_| {
        project.run(&["get", "serviceaccount", "default"]).success.then_some(())
    });
    project.ok(&["run", "placed", "--image=none", "--restart=Never"]);
    all.until("the Pod is placed", |_| {
        let node = project.ok(&["get", "pod", "placed", "-o", "jsonpath={.spec.nodeName}"]);
        (node == "n").then_some(())
    });
}

/// What alerts and dashboard ask of a component is what that one serves; some of it once it leads.
fn metrics_that_are_asked_for_are_served(all: &mut Installation) {
    let (of_others, ours): (Vec<_>, Vec<_>) =
        asked_for().into_iter().partition(|(_, component)| component.is_empty());
    assert!(of_others.iter().all(|(name, _)| name.starts_with("kube_cronjob_")), "{of_others:?}");
    assert!(ours.len() > 40, "{ours:?}");
    for component in ours.iter().map(|(_, component)| component).collect::<BTreeSet<_>>() {
        let asked = ours.iter().filter(|(_, of)| of == component).map(|(name, _)| name.clone());
        let asked: BTreeSet<String> = asked.collect();
        let mut missing = BTreeSet::new();
        let begun = Instant::now();
        all.until(&format!("{component} serves its metrics"), |all| {
            missing = asked.difference(&all.exported(component)).cloned().collect();
            assert!(
                missing.is_empty() || begun.elapsed() < PATIENCE / 2,
                "{component} does not serve {missing:?}"
            );
            missing.is_empty().then_some(())
        });
    }
}

/// cert-manager has a Secret for each authority, with file names of its own.
fn certificates_of_cert_manager_have_their_places(all: &mut Installation, secret: &Value) {
    let data = |file: &str| secret["data"][file].clone();
    for (name, files) in [
        (
            "freehold-ca",
            json!({"tls.crt": data("ca.crt"), "tls.key": data("ca.key"), "ca.crt": data("ca.crt")}),
        ),
        (
            "freehold-front-proxy-ca",
            json!({"tls.crt": data("front-proxy-ca.crt"), "tls.key": data("front-proxy-ca.key")}),
        ),
        (
            "freehold-service-account",
            json!({"tls.crt": data("ca.crt"), "tls.key": data("service-account.key")}),
        ),
    ] {
        all.machine.add(&json!({"kind": "Secret", "metadata": {"name": name}, "data": files}));
    }
    let objects = render(RELEASE, &["--set", "pki.mode=cert-manager"]);
    let template = &find(&objects, "Deployment", "freehold-controller-manager")["spec"]["template"]["spec"];
    let pod = all.machine.pod("controller-manager-2", template);
    pod.prepare();
    assert!(pod.volume("kubeconfig").join("kubeconfig").is_file());
    let other = pod.volume("kubeconfig").join("kubeconfig");
    let kubectl = admin(&format!("https://127.0.0.1:{}", all.server), &other, all.folder.path());
    kubectl.ok(&["get", "projects"]);
}
