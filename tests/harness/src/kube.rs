//! A real kube-apiserver over a real etcd, on loopback: what Freehold is compared with.

use crate::etcd::Etcd;
use crate::kubectl::Kubectl;
use crate::paths::tool;
use crate::ports::free_port;
use crate::process::{kill, terminate, wait_for_end};
use crate::wait::until;
use freehold_client::{Client, Config};
use freehold_pki::{
    Authority, ClientName, Credentials, KubeconfigParams, PrivateKey, kubeconfig, write_private,
};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long it may take to be ready. A busy machine takes long over its 2 s of CPU time.
const READY: Duration = Duration::from_secs(120);
/// How long it may take to stop; one with open watches waits for a minute.
const STOP: Duration = Duration::from_secs(2);
const VALIDITY: Duration = Duration::from_secs(24 * 3600);
const HOST: &str = "127.0.0.1";

/// How kube-apiserver is started.
#[derive(Clone, Debug, Default)]
pub struct KubeOptions {
    /// Whether etcd's writes wait for the disk, as in production: for measurements.
    pub durable: bool,
    /// Further arguments of kube-apiserver. A flag that is set here already is replaced by kube-apiserver's own rules:
    /// the last one counts.
    pub args: Vec<String>,
}

/// A running kube-apiserver with an etcd of its own. Both end when this is dropped.
///
/// Nothing else runs: no controller manager, so that namespaces have no `default` service account (the admission plugin
/// that would wait for one is off) and are never finalized.
pub struct Kube {
    // Before `etcd` and `folder`: fields are dropped in this order.
    child: Option<Child>,
    etcd: Etcd,
    folder: TempDir,
    options: KubeOptions,
    port: u16,
    started_in: Duration,
}

impl Kube {
    /// Whether the program is there (`tools/get kube-apiserver` builds it).
    pub fn is_available() -> bool {
        crate::paths::find_tool("FREEHOLD_TEST_KUBE_APISERVER", "kube-apiserver").is_file()
    }

    /// Starts etcd and kube-apiserver, and waits until it is ready.
    pub fn start(options: KubeOptions) -> Self {
        let folder =
            tempfile::Builder::new().prefix("freehold-kube-").tempdir().expect("a temporary directory");
        std::fs::create_dir(folder.path().join("home")).expect("a new directory");
        let port = free_port();
        write_identities(folder.path(), port);
        let etcd = if options.durable { Etcd::start_durable } else { Etcd::start }(folder.path());
        let mut kube = Self { child: None, etcd, folder, options, port, started_in: Duration::ZERO };
        kube.launch();
        kube
    }

    /// `https://127.0.0.1:PORT`, the same after a restart.
    pub fn url(&self) -> String {
        url(self.port)
    }

    /// How long the last start of kube-apiserver took until it was ready, its etcd running.
    pub fn started_in(&self) -> Duration {
        self.started_in
    }

    /// The directory of etcd, certificates and logs.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The process ids of kube-apiserver and of its etcd.
    pub fn pids(&self) -> [u32; 2] {
        [self.child.as_ref().map(Child::id).expect("kube-apiserver runs"), self.etcd.pid()]
    }

    /// The path of a kubeconfig of group `system:masters`.
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.folder().join("admin.kubeconfig")
    }

    /// `kubectl` as the admin.
    pub fn kubectl(&self) -> Kubectl {
        Kubectl::new(self.admin_kubeconfig(), self.folder().join("home"))
    }

    /// A client as the admin.
    pub fn client(&self) -> Client {
        let config = Config::from_kubeconfig(self.admin_kubeconfig()).expect("a kubeconfig that can be read");
        Client::new(&config).expect("a kubeconfig that can be used")
    }

    /// Where its etcd serves.
    pub fn etcd_url(&self) -> String {
        self.etcd.url()
    }

    /// What kube-apiserver has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder().join("kube-apiserver.log")).unwrap_or_default()
    }

    /// Stops kube-apiserver and starts it again on the same etcd.
    pub fn restart(&mut self) {
        self.stop();
        self.launch();
    }

    fn stop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        terminate(&child);
        if wait_for_end(&mut child, STOP).is_none() {
            kill(&mut child);
        }
    }

    fn launch(&mut self) {
        let begun = Instant::now();
        let log =
            std::fs::File::options().create(true).append(true).open(self.folder().join("kube-apiserver.log"));
        let log = log.expect("the test's folder can be written");
        let child = Command::new(tool("FREEHOLD_TEST_KUBE_APISERVER", "kube-apiserver"))
            .args(arguments(self.folder(), self.port, &self.etcd.url()))
            .args(&self.options.args)
            .stdout(log.try_clone().expect("a file has a second handle"))
            .stderr(log)
            .spawn()
            .expect("kube-apiserver starts");
        let child = self.child.insert(child);
        let (path, port) = (self.folder.path().join("kube-apiserver.log"), self.port);
        let kubectl =
            Kubectl::new(self.folder.path().join("admin.kubeconfig"), self.folder.path().join("home"));
        until("kube-apiserver is ready", READY, || {
            let ended = child.try_wait().ok().flatten();
            assert!(ended.is_none(), "kube-apiserver ended ({ended:?}):\n{}", tail(&path));
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
            kubectl.run(&["get", "--raw", "/readyz"]).success.then_some(())
        });
        self.started_in = begun.elapsed();
    }
}

impl Drop for Kube {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The last lines of a log.
fn tail(path: &Path) -> String {
    let log = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

fn url(port: u16) -> String {
    format!("https://{HOST}:{port}")
}

/// Writes the authority, the serving certificate, the key of service accounts' tokens and the admin's kubeconfig.
fn write_identities(folder: &Path, port: u16) {
    let authority = Authority::generate("freehold-test-kube").expect("an authority");
    let serving =
        authority.issue_server(&[HOST, "localhost", "kubernetes"], VALIDITY).expect("a certificate");
    let groups = ["system:masters".to_owned()];
    let admin = ClientName { user: "admin", groups: &groups, plane: None };
    let admin = authority.issue_client(&admin, VALIDITY).expect("a certificate");
    let tokens = PrivateKey::generate().expect("a key");
    let kubeconfig = kubeconfig(&KubeconfigParams {
        tls_server_name: "",
        name: "kube",
        server: &url(port),
        ca_pem: authority.cert_pem(),
        user: Credentials::ClientCert { cert_pem: &admin.cert_pem, key_pem: &admin.key_pem },
        namespace: "default",
    });
    for (name, text) in [
        ("ca.crt", authority.cert_pem()),
        ("serving.crt", &serving.cert_pem),
        ("serving.key", &serving.key_pem),
        ("tokens.key", tokens.pem()),
        ("tokens.pub", &tokens.public_pem().expect("a key has its public half")),
        ("admin.kubeconfig", &kubeconfig),
    ] {
        write_private(&folder.join(name), text.as_bytes()).expect("the test's folder can be written");
    }
}

fn arguments(folder: &Path, port: u16, etcd: &str) -> Vec<String> {
    let file = |name: &str| folder.join(name).display().to_string();
    [
        ("etcd-servers", etcd.to_owned()),
        ("bind-address", HOST.to_owned()),
        ("advertise-address", HOST.to_owned()),
        ("secure-port", port.to_string()),
        ("client-ca-file", file("ca.crt")),
        ("tls-cert-file", file("serving.crt")),
        ("tls-private-key-file", file("serving.key")),
        ("service-account-issuer", "https://kubernetes.default.svc".to_owned()),
        ("service-account-key-file", file("tokens.pub")),
        ("service-account-signing-key-file", file("tokens.key")),
        ("service-cluster-ip-range", "10.96.0.0/16".to_owned()),
        ("authorization-mode", "RBAC".to_owned()),
        ("disable-admission-plugins", "ServiceAccount".to_owned()),
        // It announces itself on a loopback address, which the lease reconciler refuses.
        ("endpoint-reconciler-type", "none".to_owned()),
    ]
    .into_iter()
    .map(|(flag, value)| format!("--{flag}={value}"))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kube_apiserver_serves_until_it_is_dropped() {
        if !Kube::is_available() {
            eprintln!("left out: there is no kube-apiserver; `tools/get kube-apiserver` builds it");
            return;
        }
        let kube = Kube::start(KubeOptions::default());
        let kubectl = kube.kubectl();
        kubectl.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: default}");
        assert_eq!(kubectl.ok(&["get", "configmap", "a", "-o", "name"]), "configmap/a\n");
        let port = kube.port;
        drop(kube);
        assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err());
    }
}
