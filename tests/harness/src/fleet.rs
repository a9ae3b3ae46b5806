//! Several servers on one etcd of three members, behind a load balancer, with controller managers of which one works at a time.

use crate::balancer::Balancer;
use crate::cluster::Cluster;
use crate::kubectl::Kubectl;
use crate::paths::freehold_binary;
use crate::ports::free_port;
use crate::process::{kill, terminate, wait_for_end};
use crate::server::ready_url;
use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tempfile::TempDir;

/// How long a process may take to stop.
const STOP: Duration = Duration::from_secs(60);

/// Servers that share a store, authorities and keys, and nothing else.
pub struct Fleet {
    servers: Vec<Option<Child>>,
    managers: Vec<Option<Child>>,
    manager_flags: Vec<String>,
    urls: Arc<Mutex<Vec<String>>>,
    balancer: Balancer,
    etcd: Cluster,
    // The last: the others have files in it.
    folder: Option<TempDir>,
}

impl Fleet {
    /// So many servers, and so many controller managers, once all serve.
    pub fn start(servers: usize, managers: usize) -> Self {
        Self::start_with(servers, managers, &[])
    }

    /// Starts a fleet with more flags for its controller managers.
    pub fn start_with(servers: usize, managers: usize, flags: &[&str]) -> Self {
        let folder = tempfile::Builder::new().prefix("freehold-fleet-").tempdir();
        let folder = folder.expect("a temporary directory");
        std::fs::create_dir(folder.path().join("home")).expect("a new directory");
        let etcd = Cluster::start(3, &[]);
        let urls = Arc::new(Mutex::new(Vec::<String>::new()));
        let known = urls.clone();
        let balancer = Balancer::start(move || {
            let urls = known.lock().unwrap_or_else(PoisonError::into_inner);
            urls.iter().filter_map(|url| address(url).parse().ok()).collect::<Vec<SocketAddr>>()
        });
        let none = |count: usize| (0..count).map(|_| None).collect();
        let (servers, managers) = (none(servers), none(managers));
        let manager_flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let mut fleet = Self { servers, managers, manager_flags, urls, balancer, etcd, folder: Some(folder) };
        fleet.make_pki();
        for nth in 0..fleet.servers.len() {
            let url = fleet.launch(nth, &format!("127.0.0.1:{}", free_port()));
            fleet.urls.lock().unwrap_or_else(PoisonError::into_inner).push(url);
        }
        (0..fleet.managers.len()).for_each(|nth| fleet.start_manager(nth));
        fleet
    }

    /// Where the balancer is: each connection goes to another server.
    pub fn url(&self) -> String {
        self.balancer.url()
    }

    /// Where a server is.
    pub fn server_url(&self, nth: usize) -> String {
        self.urls.lock().unwrap_or_else(PoisonError::into_inner)[nth].clone()
    }

    /// Where its etcd is.
    pub fn etcd_urls(&self) -> String {
        self.etcd.urls().join(",")
    }

    /// The etcd that the servers share.
    pub fn etcd(&mut self) -> &mut Cluster {
        &mut self.etcd
    }

    /// A place in the test's directory.
    pub fn join(&self, name: &str) -> PathBuf {
        self.folder.as_ref().map(|folder| folder.path().join(name)).expect("it is there until the end")
    }

    /// `kubectl` as the admin, through the balancer.
    pub fn kubectl(&self) -> Kubectl {
        self.kubectl_with(self.join("admin.kubeconfig"))
    }

    /// `kubectl` with another kubeconfig.
    pub fn kubectl_with(&self, kubeconfig: impl Into<PathBuf>) -> Kubectl {
        Kubectl::new(kubeconfig, self.join("home"))
    }

    /// Kills a server, as `kill -9` does.
    pub fn kill(&mut self, nth: usize) {
        if let Some(mut child) = self.servers[nth].take() {
            kill(&mut child);
        }
    }

    /// Starts a server again, where it was.
    pub fn restart(&mut self, nth: usize) {
        self.kill(nth);
        let address = address(&self.server_url(nth)).to_owned();
        self.launch(nth, &address);
    }

    /// Stops a controller manager as Ctrl-C does, or kills it.
    pub fn stop_manager(&mut self, nth: usize, gently: bool) {
        let Some(mut child) = self.managers[nth].take() else { return };
        if gently {
            terminate(&child);
            let ended = wait_for_end(&mut child, STOP);
            assert!(ended.is_some_and(|status| status.success()), "it did not stop well: {ended:?}");
        }
        kill(&mut child);
    }

    fn make_pki(&self) {
        let mut command = Command::new(freehold_binary());
        command.arg("pki").arg("--dir").arg(self.join("pki")).args(["--server", &self.url()]);
        command.arg("--admin-kubeconfig").arg(self.join("admin.kubeconfig"));
        assert!(command.status().is_ok_and(|status| status.success()), "freehold pki fails");
    }

    /// Starts a controller manager.
    pub fn start_manager(&mut self, nth: usize) {
        let log = self.log(&format!("manager-{nth}.log"));
        let child = Command::new(freehold_binary())
            .args(["controller-manager", "--leader-elect", "--leader-elect-lease-duration=4"])
            .args(&self.manager_flags)
            .arg("--kubeconfig")
            .arg(self.join("admin.kubeconfig"))
            .arg("--pki-dir")
            .arg(self.join("pki"))
            .env("FREEHOLD_LOG", "info")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        self.managers[nth] = Some(child.expect("freehold can be run"));
    }

    fn launch(&mut self, nth: usize, listen: &str) -> String {
        let log = self.log(&format!("server-{nth}.log"));
        let mut child = Command::new(freehold_binary())
            .args(["apiserver", "--listen", listen, "--external-url", &self.url()])
            .args(["--etcd", &self.etcd_urls()])
            .arg("--pki-dir")
            .arg(self.join("pki"))
            .env("FREEHOLD_LOG", "info")
            .env("RUST_BACKTRACE", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log.try_clone().expect("a file has a second handle"))
            .spawn()
            .expect("freehold can be run");
        let output = child.stdout.take().expect("its output is piped");
        self.servers[nth] = Some(child);
        let place = self.join(&format!("server-{nth}.log"));
        ready_url(output, log).unwrap_or_else(|| panic!("server {nth} is not ready; see {}", place.display()))
    }

    fn log(&self, name: &str) -> File {
        let log = File::options().create(true).append(true).open(self.join(name));
        log.expect("the test's folder can be written")
    }
}

fn address(url: &str) -> &str {
    url.trim_start_matches("https://")
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for child in self.managers.iter_mut().chain(&mut self.servers).flatten() {
            kill(child);
        }
        if let Some(folder) = self.folder.take().filter(|_| std::thread::panicking()) {
            eprintln!("logs and data of this test are kept in {}", folder.keep().display());
        }
    }
}
