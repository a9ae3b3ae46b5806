//! The data directory of `freehold up`: the store, the authorities and keys, the admin's kubeconfig.
//!
//! ```text
//! store/                 the embedded engine's files
//! pki/ca.{crt,key}       the authority of serving and client certificates
//! pki/front-proxy-ca.*   the authority of those who may speak for others
//! pki/service-account.key
//! identity               what this server is called among others on the same etcd
//! node/                  what the node runs and logs
//! console-links/         links that sign in to the console, once
//! lock                   held by the process that uses the directory
//! admin.kubeconfig
//! ```

use crate::pki::Pki;
use anyhow::{Context, Result};
use std::{
    fs::{self, File, TryLockError},
    io::{Read, Write},
    path::{Path, PathBuf},
};

/// A data directory with its authorities.
pub(crate) struct DataDir {
    path: PathBuf,
    /// Held as long as the directory is used, whatever keeps the objects: the node's processes are one server's.
    _lock: File,
    /// Its own authorities and keys, or those that it shares with other servers.
    pub(crate) pki: Pki,
}

impl DataDir {
    /// Opens a directory, making what is missing. What servers share is in `pki`, where that is given.
    pub(crate) fn open(path: &Path, pki: Option<&Path>) -> Result<Self> {
        fs::create_dir_all(path)
            .with_context(|| format!("data directory {} can't be created", path.display()))?;
        let path = fs::canonicalize(path).with_context(|| format!("data directory {}", path.display()))?;
        let lock = lock(&path)?;
        let pki = match pki {
            Some(shared) => Pki::open(shared)?,
            None => Pki::open_or_make(&path.join("pki"))?,
        };
        Ok(Self { path, _lock: lock, pki })
    }

    /// The directory itself.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A place in it.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes the admin's kubeconfig and says where it is.
    pub(crate) fn write_admin_kubeconfig(&self, server: &str) -> Result<PathBuf> {
        let place = self.join("admin.kubeconfig");
        self.pki.write_admin_kubeconfig(server, &place)?;
        Ok(place)
    }
}

impl DataDir {
    /// What this server is called among others: the same as long as it has its directory.
    pub(crate) fn identity(&self) -> Result<String> {
        let place = self.join("identity");
        let found = fs::read_to_string(&place).unwrap_or_default();
        if !found.trim().is_empty() {
            return Ok(found.trim().to_owned());
        }
        let fresh = uuid::Uuid::new_v4().to_string();
        fs::write(&place, &fresh).with_context(|| format!("{} can't be written", place.display()))?;
        Ok(fresh)
    }
}

/// Takes a directory for this process; the system gives it back when the process ends, however it does. The file tells
/// others who has it.
fn lock(dir: &Path) -> Result<File> {
    let place = dir.join("lock");
    let open = File::options().read(true).write(true).create(true).truncate(false).open(&place);
    let mut file = open.with_context(|| format!("data directory {} can't be written", dir.display()))?;
    match file.try_lock() {
        Ok(()) => {
            file.set_len(0)?;
            write!(file, "{}", std::process::id())?;
            Ok(file)
        }
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // It has the lock before it has written who it is.
            let _ = file.read_to_string(&mut holder);
            anyhow::bail!("data directory {} is in use by process {holder}", dir.display())
        }
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("data directory {} can't be locked", dir.display()))
        }
    }
}
