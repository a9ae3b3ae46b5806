//! A real etcd.

use freehold_apiserver_storage_etcd::{Etcd, EtcdOptions};
use std::{
    net::{Ipv4Addr, TcpListener},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};
use tempfile::TempDir;

/// A running etcd. Dropping it stops it and removes its data.
pub(crate) struct Server {
    child: Child,
    _dir: TempDir,
}

impl Server {
    /// Starts one and waits until it serves.
    pub(crate) async fn start() -> (Self, Arc<Etcd>) {
        let tools = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../.tools/bin/etcd");
        let binary = std::env::var_os("FREEHOLD_TEST_ETCD").map_or_else(tools, PathBuf::from);
        let dir = tempfile::tempdir().unwrap();
        let listeners = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        let urls = listeners.map(|l| format!("http://{}", l.local_addr().unwrap()));
        let child = Command::new(&binary)
            .arg("--data-dir")
            .arg(dir.path())
            .args(["--listen-client-urls", &urls[0], "--advertise-client-urls", &urls[0]])
            .args(["--listen-peer-urls", &urls[1], "--initial-advertise-peer-urls", &urls[1]])
            .args(["--initial-cluster", &format!("default={}", urls[1])])
            .args(["--log-level", "error", "--unsafe-no-fsync"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}; `make test` gets one", binary.display()));
        let server = Self { child, _dir: dir };
        let options = EtcdOptions::new([urls[0].clone()]);
        let mut poll = tokio::time::interval(Duration::from_millis(20));
        let connect = async {
            loop {
                poll.tick().await;
                if let Ok(engine) = Etcd::connect(options.clone()).await {
                    return engine;
                }
            }
        };
        let engine =
            tokio::time::timeout(Duration::from_secs(30), connect).await.expect("etcd starts in time");
        (server, engine)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
