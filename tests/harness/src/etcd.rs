//! A real etcd.

use crate::paths::tool;
use crate::ports::free_port;
use crate::process::kill;
use crate::wait::until;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

/// How long etcd may take to start.
const PATIENCE: Duration = Duration::from_secs(60);

/// An etcd with one member. It ends when this is dropped.
pub struct Etcd {
    child: Child,
    port: u16,
}

impl Etcd {
    /// Starts an etcd that keeps data and log in `folder`, and waits until it serves.
    pub fn start(folder: &Path) -> Self {
        // A test never loses power, only processes.
        Self::launch(folder, &["--unsafe-no-fsync"])
    }

    /// Starts an etcd whose writes wait for the disk, as they do in production: for measurements.
    pub fn start_durable(folder: &Path) -> Self {
        Self::launch(folder, &[])
    }

    fn launch(folder: &Path, args: &[&str]) -> Self {
        let [client, peer] = [free_port(), free_port()];
        let (url, peers) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
        let log = std::fs::File::create(folder.join("etcd.log")).expect("the test's folder can be written");
        let mut child = Command::new(tool("FREEHOLD_TEST_ETCD", "etcd"))
            .arg("--data-dir")
            .arg(folder.join("etcd"))
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &format!("default={peers}"), "--log-level", "warn"])
            .args(args)
            .stdout(log.try_clone().expect("a file has a second handle"))
            .stderr(log)
            .spawn()
            .expect("etcd starts");
        until("etcd serves", PATIENCE, || {
            let ended = child.try_wait().ok().flatten();
            assert!(ended.is_none(), "etcd ended ({ended:?}); see {}", folder.join("etcd.log").display());
            is_healthy(client).then_some(())
        });
        Self { child, port: client }
    }

    /// The process id of the etcd.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The URL that the etcd serves clients at.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        kill(&mut self.child);
    }
}

fn is_healthy(port: u16) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.contains(" 200 "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etcd_serves_until_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let etcd = Etcd::start(folder.path());
        let port = etcd.port;
        until("it serves", PATIENCE, || is_healthy(port).then_some(()));
        drop(etcd);
        assert!(!is_healthy(port));
    }
}
