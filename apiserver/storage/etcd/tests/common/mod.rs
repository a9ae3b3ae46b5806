//! A real etcd for each test that wants one, and what tests do with it.
#![allow(dead_code, reason = "each test binary has its own copy of this module")]

use bytes::Bytes;
use freehold_apiserver_storage::{
    Change, Commit, Committed, Event, Key, Revision, Store, StoreError, WatchItem, WatchStream,
};
use freehold_apiserver_storage_etcd::{Etcd, EtcdOptions};
use futures_util::StreamExt;
use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};
use tempfile::TempDir;
use tokio::net::TcpSocket;

/// How long etcd may take to start.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running etcd. Dropping it stops it and removes its data.
pub(crate) struct Server {
    child: Child,
    dir: TempDir,
    ports: [u16; 2],
    // Nobody else is given a port that is bound; etcd, which names it, binds it as well.
    _bound: [TcpSocket; 2],
    args: Vec<String>,
    scheme: &'static str,
}

fn binary() -> PathBuf {
    let tools = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../.tools/bin/etcd");
    let path = std::env::var_os("FREEHOLD_TEST_ETCD").map_or_else(tools, PathBuf::from);
    assert!(
        path.is_file(),
        "there is no etcd at {}: `make test` gets one, or set FREEHOLD_TEST_ETCD",
        path.display()
    );
    path
}

/// A port that nobody has, bound.
fn bound() -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    socket
}

impl Server {
    /// Starts one and waits until it serves.
    pub(crate) async fn start(args: &[&str]) -> (Self, Arc<Etcd>) {
        let server = Self::spawn("http", args);
        let options = server.options();
        let engine = server.ready(&options).await;
        (server, engine)
    }

    /// Starts one without waiting.
    pub(crate) fn spawn(scheme: &'static str, args: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let args: Vec<_> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let bound = [bound(), bound()];
        let ports = bound.each_ref().map(|socket| socket.local_addr().unwrap().port());
        let child = run(&dir, ports, scheme, &args);
        Self { child, dir, ports, _bound: bound, args, scheme }
    }

    /// Where it serves.
    pub(crate) fn url(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.ports[0])
    }

    /// For a client that waits as long as a busy machine makes it.
    pub(crate) fn options(&self) -> EtcdOptions {
        EtcdOptions { timeout: PATIENCE, ..EtcdOptions::new([self.url()]) }
    }

    /// Waits until it answers.
    pub(crate) async fn ready(&self, options: &EtcdOptions) -> Arc<Etcd> {
        let mut poll = tokio::time::interval(Duration::from_millis(20));
        let connect = async {
            loop {
                poll.tick().await;
                if let Ok(engine) = Etcd::connect(options.clone()).await {
                    return engine;
                }
            }
        };
        tokio::time::timeout(PATIENCE, connect).await.expect("etcd starts in time")
    }

    /// Stops it as a power failure would.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again on the same data and ports.
    pub(crate) fn restart(&mut self) {
        self.child = run(&self.dir, self.ports, self.scheme, &self.args);
    }
}

fn run(dir: &TempDir, [clients, peers]: [u16; 2], scheme: &str, args: &[String]) -> Child {
    let url = format!("{scheme}://127.0.0.1:{clients}");
    let peer_url = format!("http://127.0.0.1:{peers}");
    Command::new(binary())
        .args(["--data-dir", dir.path().join("data").to_str().unwrap()])
        .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
        .args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url])
        .args(["--initial-cluster", &format!("default={peer_url}")])
        .args(["--log-level", "error"])
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A key of the tests' own.
pub(crate) fn key(name: &str) -> Key {
    Key::system(&format!("test/{name}"))
}

/// Writes a value; nothing is expected of what was there.
pub(crate) async fn put(
    store: &Etcd,
    name: &str,
    value: impl Into<Bytes> + Send,
) -> Result<Revision, StoreError> {
    let changes = vec![Change::Put(key(name), value.into())];
    match store.commit(Commit { expect: vec![], changes }).await? {
        Committed::Done(revision) => Ok(revision),
        Committed::Refused(_) => panic!("nothing was expected"),
    }
}

/// What a watch yields up to a revision.
pub(crate) async fn events_until(watch: &mut WatchStream, last: Revision) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    while events.last().is_none_or(|event| event.revision < last) {
        if let WatchItem::Events(more) = watch.next().await.unwrap().unwrap() {
            events.extend(more);
        }
    }
    events
}
