//! Faults of an installation, made for real, and the alerts of a real Prometheus: a minute of the chart's rules is a second here.

use freehold_tests_deploy::infra::{Folder, Process};
use freehold_tests_deploy::prometheus::{Prometheus, program, rules};
use freehold_tests_deploy::run;
use freehold_tests_harness::{Cluster, Kubectl, free_port, freehold_binary, until};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);
/// How often a kubelet asks whether a server is ready, in the time of hastened rules.
const PROBE: Duration = Duration::from_millis(250);
/// Bytes that etcd's database may have.
const QUOTA: &str = "--quota-backend-bytes=25165824";
/// An audit policy that records every request.
const POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n";

/// Asks whether a server is ready, as its kubelet would, until this is dropped.
struct Probe {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Probe {
    fn start(kubectl: Kubectl) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                // What it answers is in its metrics.
                let _ = kubectl.run(&["get", "--raw", "/readyz", "--request-timeout=5s"]);
                std::thread::sleep(PROBE);
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed.
            let _ = thread.join();
        }
    }
}

/// An etcd, a server, a controller manager, and the Prometheus that watches them.
struct Installation {
    // Processes first: they go before the folder.
    prometheus: Prometheus,
    _probe: Probe,
    manager: Option<Process>,
    server: Option<Process>,
    etcd: Cluster,
    ports: Ports,
    folder: Folder,
}

#[derive(Clone, Copy)]
struct Ports {
    server: u16,
    server_metrics: u16,
    manager_metrics: u16,
}

fn freehold(command: &str) -> Command {
    let mut program = Command::new(freehold_binary());
    program.arg(command).env("FREEHOLD_LOG", "info");
    program
}

fn kubectl(folder: &Path) -> Kubectl {
    Kubectl::new(folder.join("admin.kubeconfig"), folder.join("home"))
}

impl Installation {
    /// Starts everything, where there is a Prometheus, and waits until all is well.
    fn start(server_flags: &[&str]) -> Option<Self> {
        let Some(program) = program("prometheus") else {
            eprintln!("left out: there is no Prometheus; `tools/get prometheus` unpacks it");
            return None;
        };
        let folder = Folder::new();
        let path = folder.path();
        std::fs::create_dir_all(path.join("home")).expect("the test's folder can be written");
        let etcd = Cluster::start(1, &[QUOTA]);
        let [server, server_metrics, manager_metrics] = std::array::from_fn(|_| free_port());
        let ports = Ports { server, server_metrics, manager_metrics };
        let mut pki = freehold("pki");
        pki.arg("--dir").arg(path.join("pki")).arg("--server").arg(format!("https://127.0.0.1:{server}"));
        let (made, printed) = run(pki.arg("--admin-kubeconfig").arg(path.join("admin.kubeconfig")));
        assert!(made, "{printed}");
        let rules = rules(&["--set", "monitoring.enabled=true"]);
        let local = |port: u16| format!("127.0.0.1:{port}");
        let targets = [
            ("apiserver", local(server_metrics)),
            ("controller-manager", local(manager_metrics)),
            ("etcd", etcd.urls()[0].trim_start_matches("http://").to_owned()),
        ];
        let prometheus = Prometheus::start(&program, &path, &rules, &targets);
        let probe = Probe::start(kubectl(&path));
        let mut all = Self { prometheus, _probe: probe, manager: None, server: None, etcd, ports, folder };
        all.start_server(server_flags);
        all.start_manager();
        all.until_well();
        Some(all)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start_server(&mut self, flags: &[&str]) {
        let Ports { server, server_metrics, .. } = self.ports;
        let mut command = freehold("apiserver");
        command.arg("--listen").arg(format!("127.0.0.1:{server}"));
        command.arg("--external-url").arg(format!("https://127.0.0.1:{server}"));
        command.arg("--metrics-listen").arg(format!("127.0.0.1:{server_metrics}"));
        command.arg("--pki-dir").arg(self.path("pki")).args(["--etcd", &self.etcd.urls()[0]]).args(flags);
        self.server = Some(Process::start(&mut command, &self.path("server.log")));
    }

    fn start_manager(&mut self) {
        let mut command = freehold("controller-manager");
        command.arg("--kubeconfig").arg(self.path("admin.kubeconfig")).arg("--pki-dir").arg(self.path("pki"));
        command.args(["--leader-elect", "--leader-elect-lease-duration=3"]);
        command.arg("--metrics-listen").arg(format!("127.0.0.1:{}", self.ports.manager_metrics));
        self.manager = Some(Process::start(&mut command, &self.path("manager.log")));
    }

    /// Waits until everything is scraped, the server is ready, and for ten seconds no alert has fired.
    fn until_well(&self) {
        let one = |query: &str| self.prometheus.number(query) == Some(1.0);
        until("all is well and no alert fires", PATIENCE, || {
            let well = one("count(up == 1) == bool 3")
                && one("kubernetes_healthcheck{name=\"etcd\",type=\"readyz\"}")
                && one("max(leader_election_master_status)")
                && one("absent_over_time(ALERTS{alertstate=\"firing\"}[10s])");
            well.then_some(())
        });
    }

    /// Waits until alerts fire, and all others that may are among `beside`.
    fn until_firing(&self, alerts: &[&str], beside: &[&str]) {
        let fired = until(&format!("{alerts:?} fire"), PATIENCE, || {
            let firing = self.prometheus.firing();
            alerts.iter().all(|alert| firing.contains(*alert)).then_some(firing)
        });
        let known: BTreeSet<String> = alerts.iter().chain(beside).map(|alert| (*alert).to_owned()).collect();
        assert!(fired.is_subset(&known), "{alerts:?} were to fire, and {fired:?} do");
    }

    /// Gives the authority of clients another end, and the former text of its file.
    fn end_authority_within_days(&self, days: u32) -> String {
        let file = self.path("pki/ca.crt");
        let former = std::fs::read_to_string(&file).expect("the authority is there");
        let next = self.path("next.crt");
        let mut openssl = Command::new("openssl");
        openssl.arg("x509").arg("-in").arg(&file).arg("-signkey").arg(self.path("pki/ca.key"));
        let (made, printed) = run(openssl.arg("-days").arg(days.to_string()).arg("-out").arg(&next));
        assert!(made, "{printed}");
        std::fs::rename(next, file).expect("the authority can be replaced");
        former
    }
}

/// What `freehold doctor` says, and whether it finds nothing wrong.
fn doctor(all: &Installation) -> (bool, String) {
    let mut command = freehold("doctor");
    command.arg("--kubeconfig").arg(all.path("admin.kubeconfig")).arg("--pki-dir").arg(all.path("pki"));
    run(command.args(["--etcd", &all.etcd.urls()[0]]).env("FREEHOLD_LOG", "error"))
}

#[test]
fn alerts_fire_on_faults_that_are_made() {
    let Some(mut all) = Installation::start(&[]) else { return };
    let (_, told) = doctor(&all);
    let fine = [
        "etcd          1 members of 3.",
        "clock         the server's clock is within",
        "webhooks      none of 0",
    ];
    assert!(fine.iter().all(|line| told.contains(&format!("ok     {line}"))), "{told}");
    all.etcd.kill(0);
    // Nobody renews the Lease of the controllers either.
    all.until_firing(&["FreeholdNotReady"], &["FreeholdNoLeader", "FreeholdErrors", "FreeholdStoreSlow"]);
    all.etcd.restart(0);
    all.until_well();
    all.server = None;
    all.until_firing(&["FreeholdDown"], &["FreeholdNoLeader", "FreeholdServerDown"]);
}

/// More of it: `make test-long`.
#[test]
fn further_alerts_fire_on_faults_that_are_made() {
    if std::env::var_os("FREEHOLD_ALERTS_LONG").is_none() {
        eprintln!("left out: `make test-long` sets FREEHOLD_ALERTS_LONG");
        return;
    }
    let Some(mut all) = Installation::start(&[]) else { return };
    all.manager = None;
    all.until_firing(&["FreeholdNoLeader"], &[]);
    all.start_manager();
    all.until_well();

    let former = all.end_authority_within_days(5);
    all.until_firing(&["FreeholdCertificateExpires"], &[]);
    let (fine, told) = doctor(&all);
    assert!(!fine && told.contains("expire within 14 days"), "{told}");
    std::fs::write(all.path("pki/ca.crt"), former).expect("the authority can be replaced");
    all.until_well();

    audit_events_are_lost(&mut all);
    etcd_fills(&all);
}

/// The receiver of audit events is not there.
fn audit_events_are_lost(all: &mut Installation) {
    let kubeconfig = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{{name: a, cluster: {{server: 'http://127.0.0.1:{}'}}}}]\n\
         users: [{{name: a, user: {{}}}}]\ncontexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n",
        free_port()
    );
    let write = |name: &str, text: &str| {
        let path = all.path(name);
        std::fs::write(&path, text).expect("the test's folder can be written");
        path.display().to_string()
    };
    let (policy, receiver) = (write("policy.yaml", POLICY), write("receiver.yaml", &kubeconfig));
    all.server = None;
    let flags = ["--audit-policy-file", &policy, "--audit-webhook-config-file", &receiver];
    let soon = ["--audit-webhook-initial-backoff=100ms", "--audit-webhook-batch-max-wait=1s"];
    all.start_server(&[&flags[..], &soon].concat());
    all.until_firing(&["FreeholdAuditLost"], &["FreeholdDown", "FreeholdNoLeader"]);
    all.server = None;
    all.start_server(&[]);
    all.until_well();
}

/// Objects take up most of etcd's quota.
fn etcd_fills(all: &Installation) {
    let kubectl = kubectl(&all.folder.path());
    for number in 0.. {
        if all.prometheus.firing().contains("FreeholdEtcdNearlyFull") {
            break;
        }
        let full = "etcd_mvcc_db_total_size_in_bytes > bool 0.85 * etcd_server_quota_backend_bytes";
        if all.prometheus.number(full) == Some(1.0) {
            continue;
        }
        let file = all.path("noise");
        let noise = "head -c 450000 /dev/urandom | base64 -w0 >\"$0\"";
        let (made, printed) = run(Command::new("bash").args(["-c", noise]).arg(&file));
        assert!(made, "{printed}");
        let (name, from) = (format!("noise-{number}"), format!("--from-file=noise={}", file.display()));
        kubectl.ok(&["create", "configmap", &name, &from]);
    }
    all.until_firing(&["FreeholdEtcdNearlyFull"], &["FreeholdStoreSlow"]);
    let (fine, told) = doctor(all);
    assert!(!fine && told.contains("MiB are used: run etcdctl defrag"), "{told}");
}
