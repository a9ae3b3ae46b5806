//! The data directory of `freehold up`: the store, the authorities and keys, the admin's kubeconfig.
//!
//! ```text
//! store/                 the embedded engine's files
//! pki/ca.{crt,key}       the authority of serving and client certificates
//! pki/front-proxy-ca.*   the authority of those who may speak for others
//! pki/service-account.key
//! node/                  what the node runs and logs
//! lock                   held by the process that uses the directory
//! admin.kubeconfig
//! ```

use anyhow::{Context, Result};
use freehold_pki::{
    Authority, ClientName, Credentials, KubeconfigParams, Pair, PrivateKey, kubeconfig, write_private,
};
use std::{
    fs::{self, File, TryLockError},
    io::{Read, Write},
    path::{Path, PathBuf},
    time::Duration,
};

const DAY: Duration = Duration::from_secs(86_400);
/// Lifetime of the certificates that are made anew at each start.
pub(crate) const VALIDITY: Duration = DAY.saturating_mul(365);

/// A data directory with its authorities.
pub(crate) struct DataDir {
    path: PathBuf,
    /// Held as long as the directory is used, whatever keeps the objects: keys and the node's processes are one server's.
    _lock: File,
    /// Vouches for serving certificates and clients.
    pub(crate) ca: Authority,
    /// Vouches for front proxies.
    pub(crate) front_proxy_ca: Authority,
    /// Signs service account tokens, PEM.
    pub(crate) service_account_key: String,
}

impl DataDir {
    /// Opens a directory, making what is missing.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        fs::create_dir_all(path.join("pki"))
            .with_context(|| format!("data directory {} can't be made", path.display()))?;
        let path = fs::canonicalize(path).with_context(|| format!("data directory {}", path.display()))?;
        let lock = lock(&path)?;
        let ca = authority(&path, "ca", "freehold-ca")?;
        let front_proxy_ca = authority(&path, "front-proxy-ca", "freehold-front-proxy-ca")?;
        let key = path.join("pki/service-account.key");
        let service_account_key = match read(&key)? {
            Some(text) => text,
            None => {
                let fresh = PrivateKey::generate()?.pem().to_owned();
                write(&key, &fresh)?;
                fresh
            }
        };
        Ok(Self { path, _lock: lock, ca, front_proxy_ca, service_account_key })
    }

    /// A place in it.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// A client certificate for a component or the admin, who may do everything.
    pub(crate) fn master(&self, user: &str) -> Result<Pair> {
        let groups = ["system:masters".to_owned()];
        Ok(self.ca.issue_client(&ClientName { user, groups: &groups, plane: None }, VALIDITY)?)
    }

    /// Writes the admin's kubeconfig and says where it is.
    pub(crate) fn write_admin_kubeconfig(&self, server: &str) -> Result<PathBuf> {
        let pair = self.master("admin")?;
        let text = kubeconfig(&KubeconfigParams {
            name: "freehold",
            server,
            ca_pem: self.ca.cert_pem(),
            user: Credentials::ClientCert { cert_pem: &pair.cert_pem, key_pem: &pair.key_pem },
            namespace: "default",
        });
        let place = self.join("admin.kubeconfig");
        write(&place, &text)?;
        Ok(place)
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

fn read(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("{} can't be read", path.display())),
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    write_private(path, text.as_bytes()).with_context(|| format!("{} can't be written", path.display()))
}

fn authority(dir: &Path, file: &str, name: &str) -> Result<Authority> {
    let (cert, key) = (dir.join(format!("pki/{file}.crt")), dir.join(format!("pki/{file}.key")));
    match (read(&cert)?, read(&key)?) {
        (Some(cert_pem), Some(key_pem)) => Authority::from_pem(&cert_pem, &key_pem)
            .with_context(|| format!("{} and its key can't be used", cert.display())),
        (None, None) => {
            let fresh = Authority::generate(name)?;
            write(&key, fresh.key_pem())?;
            write(&cert, fresh.cert_pem())?;
            Ok(fresh)
        }
        (Some(_), None) => anyhow::bail!(
            "{} is missing; restore it, or remove {} as well to start with a new authority",
            key.display(),
            cert.display()
        ),
        (None, Some(_)) => anyhow::bail!(
            "{} is missing; restore it, or remove {} as well to start with a new authority",
            cert.display(),
            key.display()
        ),
    }
}
