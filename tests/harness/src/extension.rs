//! An extension server written by others: Kubernetes' sample-apiserver, which serves `wardle.example.com`.

use crate::etcd::Etcd;
use crate::paths::tool;
use crate::ports::free_port;
use crate::process::kill;
use crate::wait::until;
use freehold_pki::{Authority, write_private};
use std::fs::File;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;
use tempfile::TempDir;

/// How long it may take to listen.
const READY: Duration = Duration::from_secs(120);
const VALIDITY: Duration = Duration::from_secs(24 * 3600);

/// A running sample-apiserver with an etcd of its own. Both end when this is dropped.
///
/// It knows its users as any extension server does: from the `extension-apiserver-authentication` ConfigMap, and by
/// asking the control plane whose kubeconfig it has.
pub struct Extension {
    // Before `_etcd` and `folder`: fields are dropped in this order.
    child: Child,
    _etcd: Etcd,
    folder: TempDir,
    ca_pem: String,
    port: u16,
}

impl Extension {
    /// Starts one that is reached as the Service `name` (`service.namespace.svc`) and belongs to the control plane of
    /// `kubeconfig`.
    pub fn start(kubeconfig: &Path, name: &str) -> Self {
        let folder =
            tempfile::Builder::new().prefix("freehold-extension-").tempdir().expect("a temporary directory");
        let at = |name: &str| folder.path().join(name);
        let authority = Authority::generate("freehold-test-extension").expect("an authority");
        let serving = authority.issue_server(&[name, "localhost"], VALIDITY).expect("a certificate");
        for (name, text) in [("serving.crt", &serving.cert_pem), ("serving.key", &serving.key_pem)] {
            write_private(&at(name), text.as_bytes()).expect("the test's folder can be written");
        }
        let etcd = Etcd::start(folder.path());
        let port = free_port();
        let log = File::create(at("extension.log")).expect("the test's folder can be written");
        let flag = |name: &str, value: &Path| format!("--{name}={}", value.display());
        let mut child = Command::new(tool("FREEHOLD_TEST_SAMPLE_APISERVER", "sample-apiserver"))
            .args([
                format!("--etcd-servers={}", etcd.url()),
                format!("--secure-port={port}"),
                "--bind-address=127.0.0.1".to_owned(),
                flag("tls-cert-file", &at("serving.crt")),
                flag("tls-private-key-file", &at("serving.key")),
                flag("kubeconfig", kubeconfig),
                flag("authentication-kubeconfig", kubeconfig),
                flag("authorization-kubeconfig", kubeconfig),
                "--v=2".to_owned(),
            ])
            .env("HOME", folder.path())
            .stdout(log.try_clone().expect("a file has a second handle"))
            .stderr(log)
            .spawn()
            .expect("sample-apiserver starts");
        let path = at("extension.log");
        until("the extension server listens", READY, || {
            let ended = child.try_wait().ok().flatten();
            assert!(ended.is_none(), "sample-apiserver ended ({ended:?}):\n{}", read(&path));
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok().map(drop)
        });
        Self { child, _etcd: etcd, ca_pem: authority.cert_pem().to_owned(), port, folder }
    }

    /// Where it listens, on `localhost`.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The authority of its serving certificate, PEM.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        read(&self.folder.path().join("extension.log"))
    }
}

fn read(path: &PathBuf) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

impl Drop for Extension {
    fn drop(&mut self) {
        kill(&mut self.child);
    }
}
