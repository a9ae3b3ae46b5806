//! An etcd of several members, which can be killed, held still, cut off and started again one by one.

use crate::network::Network;
use crate::paths::tool;
use crate::process::kill;
use crate::wait::until;
use freehold_pki::{Authority, ClientName};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// How long members may take to agree.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long one that may be held still has for an answer.
const ASKED: Duration = Duration::from_secs(2);
const CLIENTS: u16 = 2379;
const PEERS: u16 = 2380;
/// Health and metrics, without TLS.
const METRICS: u16 = 2381;

/// A cluster. It ends when this is dropped.
pub struct Cluster {
    members: Vec<Option<Child>>,
    addresses: Vec<Ipv4Addr>,
    args: Vec<String>,
    // Behind the members: they go first.
    folder: TempDir,
    network: Option<Arc<Network>>,
    scheme: &'static str,
}

/// What a client of a cluster with TLS needs: PEM files.
pub struct ClientFiles {
    /// The authority of the servers.
    pub ca: PathBuf,
    /// The client's certificate.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl Cluster {
    /// A cluster of so many members on addresses of the loopback interface that nobody else uses, ready to serve.
    pub fn start(members: u8, args: &[&str]) -> Self {
        let mut cluster = Self::make(loopback(members), args, None);
        cluster.launch_all();
        cluster.wait_until_healthy();
        cluster
    }

    /// Starts a cluster with TLS, for clients that have a certificate of its authority.
    pub fn start_with_tls(members: u8) -> (Self, ClientFiles) {
        let mut cluster = Self::make(loopback(members), &[], None);
        let files = cluster.make_certificates();
        cluster.launch_all();
        cluster.wait_until_healthy();
        (cluster, files)
    }

    /// A cluster whose members are hosts of a network: what talks to it runs in [`Network::observe`]. It is not waited for.
    pub fn on(network: Arc<Network>, members: u8, args: &[&str]) -> Self {
        let mut cluster = Self::make((0..members).map(Network::address).collect(), args, Some(network));
        cluster.launch_all();
        cluster
    }

    fn make(addresses: Vec<Ipv4Addr>, args: &[&str], network: Option<Arc<Network>>) -> Self {
        let folder = tempfile::Builder::new().prefix("freehold-etcd-").tempdir();
        Self {
            members: addresses.iter().map(|_| None).collect(),
            addresses,
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            folder: folder.expect("a temporary directory"),
            network,
            scheme: "http",
        }
    }

    fn launch_all(&mut self) {
        (0..self.members.len()).for_each(|member| self.restart(member));
    }

    fn make_certificates(&mut self) -> ClientFiles {
        let day = Duration::from_secs(86_400);
        let authority = Authority::generate("etcd").expect("an authority can be made");
        let names: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        let server = authority.issue_server(&names, day).expect("a certificate can be made");
        let name = ClientName { user: "freehold", groups: &[], plane: None };
        let client = authority.issue_client(&name, day).expect("a certificate can be made");
        let file = |name: &str, pem: &str| {
            let path = self.folder.path().join(name);
            std::fs::write(&path, pem).expect("the test's folder can be written");
            path
        };
        let ca = file("ca.crt", authority.cert_pem());
        let (cert, key) = (file("server.crt", &server.cert_pem), file("server.key", &server.key_pem));
        let text = |path: &Path| path.display().to_string();
        self.scheme = "https";
        let flags = ["--trusted-ca-file", &text(&ca), "--cert-file", &text(&cert), "--key-file", &text(&key)];
        self.args.extend(flags.into_iter().chain(["--client-cert-auth"]).map(str::to_owned));
        ClientFiles {
            ca,
            cert: file("client.crt", &client.cert_pem),
            key: file("client.key", &client.key_pem),
        }
    }

    /// Lets in only who knows the password of `root`.
    pub fn require_password(&self, password: &str) {
        let calls = [
            ("user/add", format!(r#"{{"name":"root","password":"{password}"}}"#)),
            ("user/grant", r#"{"user":"root","role":"root"}"#.to_owned()),
            ("enable", "{}".to_owned()),
        ];
        for (path, body) in calls {
            let head = format!("POST /v3/auth/{path} HTTP/1.0\r\nContent-Length: {}\r\n\r\n", body.len());
            let answer = self.send((0, CLIENTS), &(head + &body), PATIENCE).unwrap_or_default();
            assert!(answer.contains(" 200 "), "{path}: {answer}");
        }
    }

    /// Where members serve clients.
    pub fn urls(&self) -> Vec<String> {
        self.addresses.iter().map(|address| format!("{}://{address}:{CLIENTS}", self.scheme)).collect()
    }

    /// The network that the members are on, if they have one of their own.
    pub fn network(&self) -> Option<&Network> {
        self.network.as_deref()
    }

    /// Kills a member, as `kill -9` does.
    pub fn kill(&mut self, member: usize) {
        if let Some(mut child) = self.members[member].take() {
            kill(&mut child);
        }
    }

    /// Starts a member again, on what it has on disk.
    pub fn restart(&mut self, member: usize) {
        self.kill(member);
        self.members[member] = Some(self.launch(member));
    }

    /// Holds a member still: its connections stay open, and it says nothing.
    pub fn pause(&self, member: usize) {
        self.signal(member, Signal::STOP);
    }

    /// Lets it go on.
    pub fn resume(&self, member: usize) {
        self.signal(member, Signal::CONT);
    }

    /// The member that leads, as one of those says that can be reached.
    pub fn leader(&self) -> Option<usize> {
        (0..self.members.len()).find(|member| {
            self.ask(*member, "/metrics").is_some_and(|text| text.contains("\netcd_server_is_leader 1"))
        })
    }

    /// Waits until each member that runs serves, for which it needs a quorum.
    pub fn wait_until_healthy(&self) {
        for member in (0..self.members.len()).filter(|member| self.members[*member].is_some()) {
            until(&format!("member {member} serves; its log: {}", self.log(member)), PATIENCE, || {
                self.ask(member, "/health")?.contains(" 200 ").then_some(())
            });
        }
    }

    fn log(&self, member: usize) -> String {
        self.folder.path().join(format!("{member}.log")).display().to_string()
    }

    fn signal(&self, member: usize, signal: Signal) {
        let pid = self.members[member].as_ref().and_then(|child| i32::try_from(child.id()).ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            kill_process(pid, signal).expect("a process of one's own can be signalled");
        }
    }

    fn launch(&self, member: usize) -> Child {
        let peers = |at: usize| format!("http://{}:{PEERS}", self.addresses[at]);
        let all: Vec<_> = (0..self.addresses.len()).map(|at| format!("member-{at}={}", peers(at))).collect();
        let clients = format!("{}://{}:{CLIENTS}", self.scheme, self.addresses[member]);
        let metrics = format!("http://{}:{METRICS}", self.addresses[member]);
        let log = File::options().create(true).append(true).open(self.log(member));
        let log = log.expect("the test's folder can be written");
        let program = tool("FREEHOLD_TEST_ETCD", "etcd");
        let mut command = match (&self.network, u8::try_from(member)) {
            (Some(network), Ok(host)) => network.command(host, &program),
            _ => Command::new(program),
        };
        command
            .args(["--name", &format!("member-{member}"), "--log-level", "warn"])
            .arg("--data-dir")
            .arg(self.folder.path().join(member.to_string()))
            .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
            .args(["--listen-peer-urls", &peers(member), "--initial-advertise-peer-urls", &peers(member)])
            .args(["--listen-metrics-urls", &metrics])
            .args(["--initial-cluster", &all.join(",")])
            // Processes die in tests, never a machine.
            .arg("--unsafe-no-fsync")
            .args(&self.args)
            .stdout(log.try_clone().expect("a file has a second handle"))
            .stderr(log)
            .spawn()
            .expect("etcd starts")
    }

    fn ask(&self, member: usize, path: &str) -> Option<String> {
        self.send((member, METRICS), &format!("GET {path} HTTP/1.0\r\n\r\n"), ASKED)
    }

    fn send(&self, (member, port): (usize, u16), request: &str, patience: Duration) -> Option<String> {
        let address = SocketAddr::from((self.addresses[member], port));
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok()?;
        stream.set_read_timeout(Some(patience)).ok()?;
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        (0..self.members.len()).for_each(|member| self.kill(member));
    }
}

/// Addresses that no other test has, so that ports need not be looked for. A process has room for eighty clusters of three.
fn loopback(members: u8) -> Vec<Ipv4Addr> {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let address = |_| {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let last = u8::try_from(number % 250 + 1).unwrap_or(1);
        Ipv4Addr::new(127, 128 | (high & 0x7f), low, last)
    };
    (0..members).map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_has_a_leader_also_when_it_lost_one() {
        let mut cluster = Cluster::start(3, &[]);
        let leader = until("one leads", PATIENCE, || cluster.leader());
        cluster.kill(leader);
        let other = until("another leads", PATIENCE, || cluster.leader());
        assert_ne!(other, leader);
        cluster.restart(leader);
        cluster.wait_until_healthy();
    }
}
