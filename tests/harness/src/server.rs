//! The real server: `freehold up` in a directory of its own.

use crate::etcd::Etcd;
use crate::kubectl::{Kubectl, Output};
use crate::paths::freehold_binary;
use crate::ports::free_port;
use crate::process::{kill, sweep, terminate, wait_for_end};
use crate::wait::until;
use freehold_client::{Client, Config};
use freehold_pki::{Authority, ClientName, Credentials, KubeconfigParams, kubeconfig, write_private};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a server may take to be ready; tests of start-up times measure for themselves.
const READY: Duration = Duration::from_secs(120);
/// How long a project may take to have a kubeconfig.
const PROJECT_READY: Duration = Duration::from_secs(120);
/// How long a server may take to stop.
const STOP: Duration = Duration::from_secs(60);
/// How long certificates of users are valid.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// What keeps a server's objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// The embedded engine, or what the further arguments name.
    #[default]
    Embedded,
    /// A real etcd.
    Etcd,
}

impl Engine {
    /// All of them, for tests that want the same of each.
    pub const ALL: [Self; 2] = [Self::Embedded, Self::Etcd];
}

/// How a server is started.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What keeps its objects.
    pub engine: Engine,
    /// Further arguments of `freehold up`.
    pub args: Vec<String>,
    /// What it logs (`FREEHOLD_LOG`); empty for `info`.
    pub log: String,
}

/// A running server. Dropping it stops it, and removes its directory unless the test failed.
pub struct Server {
    // Before `etcd` and `folder`: fields are dropped in this order.
    child: Option<Child>,
    etcd: Option<Etcd>,
    folder: Option<TempDir>,
    options: Options,
    url: String,
    started_in: Duration,
    keep: AtomicBool,
}

impl From<Engine> for Options {
    fn from(engine: Engine) -> Self {
        Self { engine, ..Self::default() }
    }
}

impl Server {
    /// Starts a server and waits until it is ready.
    pub fn start(options: impl Into<Options>) -> Self {
        let options = options.into();
        let folder =
            tempfile::Builder::new().prefix("freehold-test-").tempdir().expect("a temporary directory");
        std::fs::create_dir(folder.path().join("home")).expect("a new directory");
        let etcd = (options.engine == Engine::Etcd).then(|| Etcd::start(folder.path()));
        let mut server = Self {
            child: None,
            etcd,
            folder: Some(folder),
            options,
            url: String::new(),
            started_in: Duration::ZERO,
            keep: AtomicBool::new(false),
        };
        server.launch(&format!("127.0.0.1:{}", free_port()));
        server
    }

    /// `https://127.0.0.1:PORT`, the same after a restart.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where its etcd serves, if it has one.
    pub fn etcd_url(&self) -> Option<String> {
        self.etcd.as_ref().map(Etcd::url)
    }

    /// Keeps the directory whatever comes: for tests that share a server, when one of them has failed.
    pub fn keep(&self) {
        self.keep.store(true, Ordering::Relaxed);
    }

    /// How long the last start took until the readiness line.
    pub fn started_in(&self) -> Duration {
        self.started_in
    }

    /// The test's directory: `data`, `home`, `server.log` and what the test puts there.
    pub fn folder(&self) -> &Path {
        self.folder.as_ref().map(TempDir::path).expect("a server has its folder until it is dropped")
    }

    /// The server's data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.folder().join("data")
    }

    /// The server's process id.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().map(Child::id).expect("the server runs")
    }

    /// The path of the admin's kubeconfig.
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.data_dir().join("admin.kubeconfig")
    }

    /// `kubectl` as the admin of the core plane.
    pub fn kubectl(&self) -> Kubectl {
        self.kubectl_with(self.admin_kubeconfig())
    }

    /// `kubectl` with another kubeconfig.
    pub fn kubectl_with(&self, kubeconfig: impl Into<PathBuf>) -> Kubectl {
        Kubectl::new(kubeconfig, self.folder().join("home"))
    }

    /// `kubectl` with the kubeconfig of a project, which is waited for.
    pub fn project(&self, project: &str) -> Kubectl {
        let text = until(&format!("project {project} has a kubeconfig"), PROJECT_READY, || {
            let printed = self.freehold(&["kubeconfig", project]);
            printed.success.then_some(printed.stdout)
        });
        let path = self.folder().join(format!("{project}.kubeconfig"));
        std::fs::write(&path, text).expect("the test's folder can be written");
        self.kubectl_with(path)
    }

    /// `kubectl` as a user of the platform, by a certificate of that name, in the core plane.
    pub fn person(&self, user: &str) -> Kubectl {
        let pki = |name: &str| std::fs::read_to_string(self.data_dir().join("pki").join(name));
        let (ca, key) = (pki("ca.crt").expect("an authority"), pki("ca.key").expect("its key"));
        let authority = Authority::from_pem(&ca, &key).expect("an authority that can be read");
        let name = ClientName { user, groups: &[], plane: None };
        let pair = authority.issue_client(&name, DAY).expect("a certificate");
        let user = Credentials::ClientCert { cert_pem: &pair.cert_pem, key_pem: &pair.key_pem };
        self.kubectl_as("person", user, &ca)
    }

    /// `kubectl` with a bearer token, in the core plane.
    pub fn kubectl_with_token(&self, token: &str) -> Kubectl {
        let ca = std::fs::read_to_string(self.data_dir().join("pki/ca.crt")).expect("an authority");
        self.kubectl_as("token", Credentials::Token(token), &ca)
    }

    fn kubectl_as(&self, name: &str, user: Credentials<'_>, ca_pem: &str) -> Kubectl {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let text = kubeconfig(&KubeconfigParams {
            name,
            server: self.url(),
            tls_server_name: "",
            ca_pem,
            user,
            namespace: "default",
        });
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = self.folder().join(format!("{name}-{number}.kubeconfig"));
        write_private(&path, text.as_bytes()).expect("the test's folder can be written");
        self.kubectl_with(path)
    }

    /// A `kubectl` at the root of the project's own host, on a server that was started with `--domain`. With
    /// `by_tls` the address stays and TLS asks for the host; otherwise the host has to lead to the server.
    pub fn project_at_host(&self, project: &str, domain: &str, by_tls: bool) -> Kubectl {
        self.project(project);
        let mut args = vec!["kubeconfig", project, "--domain", domain];
        if by_tls {
            args.push("--keep-address");
        }
        let printed = self.freehold(&args).expect_ok();
        let path = self.folder().join(format!("{project}-host.kubeconfig"));
        std::fs::write(&path, printed).expect("the test's folder can be written");
        self.kubectl_with(path)
    }

    /// A client as the admin of the core plane.
    pub fn client(&self) -> Client {
        Self::client_of(&self.kubectl())
    }

    /// A client with the kubeconfig of a `kubectl`.
    pub fn client_of(kubectl: &Kubectl) -> Client {
        let config = Config::from_kubeconfig(kubectl.kubeconfig()).expect("a kubeconfig that can be read");
        Client::new(&config).expect("a kubeconfig that can be used")
    }

    /// Runs another command of the `freehold` program, as the admin.
    pub fn freehold(&self, args: &[&str]) -> Output {
        let output = Command::new(freehold_binary())
            .args(args)
            .env("KUBECONFIG", self.admin_kubeconfig())
            .env("HOME", self.folder().join("home"))
            .output()
            .expect("freehold can be run");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let line = format!("freehold {}", args.join(" "));
        Output {
            success: output.status.success(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
            line,
        }
    }

    /// What the server has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder().join("server.log")).unwrap_or_default()
    }

    /// Stops the server as Ctrl-C does. Panics when it does not end well, or not at all.
    pub fn stop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        terminate(&child);
        let status = wait_for_end(&mut child, STOP);
        if status.is_none() {
            kill(&mut child);
        }
        let status =
            status.unwrap_or_else(|| panic!("the server did not stop within {STOP:?}\n{}", self.log_tail()));
        assert!(status.success(), "the server ended with {status}\n{}", self.log_tail());
    }

    /// Kills the server, as `kill -9` and power failures do. What it started goes on.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            kill(&mut child);
        }
    }

    /// Starts the server again, on the same data and port. One that still runs is stopped first.
    pub fn restart(&mut self) {
        self.stop();
        let listen = self.url.trim_start_matches("https://").to_owned();
        self.launch(&listen);
    }

    /// Further arguments of `freehold up`, from the next start on.
    pub fn add_args(&mut self, args: &[&str]) {
        self.options.args.extend(args.iter().map(|arg| (*arg).to_owned()));
    }

    fn launch(&mut self, listen: &str) {
        let begun = Instant::now();
        let log = File::options().create(true).append(true).open(self.folder().join("server.log"));
        let log = log.expect("the test's folder can be written");
        let mut command = Command::new(freehold_binary());
        command.arg("up").arg("--data-dir").arg(self.data_dir()).args(["--listen", listen]);
        if let Some(etcd) = &self.etcd {
            command.args(["--etcd", &etcd.url()]);
        }
        let level = if self.options.log.is_empty() { "info" } else { &self.options.log };
        let mut child = command
            .args(&self.options.args)
            .env("FREEHOLD_LOG", level)
            .env("RUST_BACKTRACE", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log.try_clone().expect("a file has a second handle"))
            .spawn()
            .expect("freehold can be run");
        let ready = watch_output(child.stdout.take().expect("its output is piped"), log);
        self.child = Some(child);
        let line = match ready.recv_timeout(READY) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => panic!("not ready within {READY:?}\n{}", self.log_tail()),
            Err(RecvTimeoutError::Disconnected) => {
                panic!("it ended before it was ready\n{}", self.log_tail())
            }
        };
        let url = line.split_whitespace().find_map(|word| word.strip_prefix("url="));
        self.url = url.unwrap_or_else(|| panic!("no url= in {line:?}")).to_owned();
        self.started_in = begun.elapsed();
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}

/// Waits until a server says that it is ready; gives its URL. `None`: it ended, or takes too long.
pub(crate) fn ready_url(out: impl std::io::Read + Send + 'static, log: File) -> Option<String> {
    let line = watch_output(out, log).recv_timeout(READY).ok()?;
    line.split_whitespace().find_map(|word| word.strip_prefix("url=")).map(str::to_owned)
}

/// Copies a server's output to its log; the receiver gets the line that says that it is ready.
fn watch_output(out: impl std::io::Read + Send + 'static, mut log: File) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            // A log that can't be written is no reason to lose the line.
            let _ = writeln!(log, "{line}");
            if line.starts_with("ready ") {
                // Nobody listens any more after the first.
                let _ = sender.send(line);
            }
        }
    });
    receiver
}

impl Drop for Server {
    fn drop(&mut self) {
        let failed = std::thread::panicking() || self.keep.load(Ordering::Relaxed);
        let Some(folder) = self.folder.take() else { return };
        if let Some(mut child) = self.child.take() {
            terminate(&child);
            if wait_for_end(&mut child, STOP).is_none() {
                kill(&mut child);
            }
        }
        sweep(&folder.path().join("data"));
        self.etcd = None;
        if failed {
            eprintln!("logs and data of this test are kept in {}", folder.keep().display());
        }
    }
}
