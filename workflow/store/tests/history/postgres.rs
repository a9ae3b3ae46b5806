//! A PostgreSQL server of the distribution in a folder of its own.

use freehold_workflow_store::{Database, Location};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running server. Dropping it stops it and removes its folder.
pub(crate) struct Postgres {
    child: Child,
    programs: PathBuf,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Postgres {
    pub(crate) fn start() -> Self {
        let programs = programs();
        let folder = tempfile::Builder::new().prefix("freehold-postgres-").tempdir().unwrap();
        let data = folder.path().join("data");
        std::fs::create_dir(&data).unwrap();
        let owner = owner();
        if let Some((uid, gid)) = owner {
            for path in [folder.path(), &data] {
                std::os::unix::fs::chown(path, Some(uid), Some(gid)).unwrap();
            }
        }
        let initialized = unprivileged(&programs.join("initdb"), owner)
            .args(["--no-sync", "--auth=trust", "--username=freehold", "--encoding=UTF8", "--locale=C", "-D"])
            .arg(&data)
            .output()
            .unwrap();
        assert!(initialized.status.success(), "initdb: {}", String::from_utf8_lossy(&initialized.stderr));
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let child = unprivileged(&programs.join("postgres"), owner)
            .arg("-D")
            .arg(&data)
            .args([
                "-p",
                &port.to_string(),
                "-c",
                "listen_addresses=127.0.0.1",
                "-c",
                "unix_socket_directories=",
            ])
            .args(["-c", "fsync=off", "-c", "shared_buffers=256MB"])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let postgres = Self { child, programs, port, _folder: folder };
        postgres.wait();
        postgres
    }

    fn wait(&self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        let ready = || {
            let mut command = Command::new(self.programs.join("pg_isready"));
            command.args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()]).status().unwrap().success()
        };
        while !ready() {
            assert!(Instant::now() < deadline, "PostgreSQL is not ready after 30 s");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A new database with the history's schema.
    pub(crate) async fn database(&self, name: &str) -> Database {
        let created = Command::new(self.programs.join("createdb"))
            .args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", "freehold", name])
            .output()
            .unwrap();
        assert!(created.status.success(), "createdb: {}", String::from_utf8_lossy(&created.stderr));
        let url = format!("postgres://freehold@127.0.0.1:{}/{name}", self.port);
        Database::open(&Location::parse(&url).unwrap()).await.unwrap()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Its fast shutdown.
        let _ = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status();
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The folder of the latest version's programs.
fn programs() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    found.retain(|bin| bin.join("postgres").exists());
    found.sort();
    found.pop().expect("PostgreSQL is missing: run tools/get postgresql")
}

/// Who runs it where the test is root, whom PostgreSQL refuses: uid and gid of `postgres`.
fn owner() -> Option<(u32, u32)> {
    use std::os::unix::fs::MetadataExt as _;
    if std::fs::metadata("/proc/self").ok()?.uid() != 0 {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let fields: Vec<&str> = users.lines().find(|line| line.starts_with("postgres:"))?.split(':').collect();
    Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?))
}

fn unprivileged(program: &Path, owner: Option<(u32, u32)>) -> Command {
    let mut command = Command::new(program);
    if let Some((uid, gid)) = owner {
        command.uid(uid).gid(gid);
    }
    command.current_dir("/").env("LC_ALL", "C");
    command
}
