//! Files that all core servers of one installation share: two authorities and the key of tokens, in a directory
//! readable by their owner alone.
//!
//! ```text
//! ca.{crt,key}                the authority of serving and client certificates
//! front-proxy-ca.{crt,key}    the authority of those who may speak for others
//! service-account.key         signs service account tokens
//! ```
//!
//! They are files, as kubeadm has them, and not objects in the store: who can read the store's backups can't sign
//! certificates, and a server can say who it is before it reaches a store.

use crate::pki_secret::SecretArgs;
use anyhow::{Context, Result};
use freehold_pki::{
    Authority, ClientName, Credentials, KubeconfigParams, Pair, PrivateKey, kubeconfig, write_private,
};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// The files of a directory.
pub(crate) const FILES: [&str; 5] =
    ["ca.crt", "ca.key", "front-proxy-ca.crt", "front-proxy-ca.key", "service-account.key"];
const DAY: Duration = Duration::from_secs(86_400);
/// Lifetime of the certificates that are made anew at each start.
pub(crate) const VALIDITY: Duration = DAY.saturating_mul(365);

/// Authorities and keys.
pub(crate) struct Pki {
    /// Where they are.
    pub(crate) dir: PathBuf,
    /// What is believed of clients: `ca.crt`, which may have further authorities behind the first.
    pub(crate) client_ca: String,
    /// What is believed of front proxies, likewise.
    pub(crate) front_proxies: String,
    /// Vouches for serving certificates and clients.
    pub(crate) ca: Arc<Authority>,
    /// Vouches for front proxies.
    pub(crate) front_proxy_ca: Arc<Authority>,
    /// Signs service account tokens, PEM.
    pub(crate) service_account_key: String,
}

impl Pki {
    /// Reads a directory, making what is missing.
    pub(crate) fn open_or_make(dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("directory {} can't be created", dir.display()))?;
        let (ca, client_ca) = authority(dir, "ca", "freehold-ca")?;
        let (front_proxy_ca, front_proxies) = authority(dir, "front-proxy-ca", "freehold-front-proxy-ca")?;
        ca.for_plane("core").with_context(|| format!("{} can't be used", dir.join("ca.crt").display()))?;
        let (ca, front_proxy_ca) = (Arc::new(ca), Arc::new(front_proxy_ca));
        let key = dir.join("service-account.key");
        let service_account_key = match read(&key)? {
            Some(text) => text,
            None => {
                let fresh = PrivateKey::generate()?.pem().to_owned();
                write(&key, &fresh)?;
                fresh
            }
        };
        let dir = dir.to_owned();
        Ok(Self { dir, client_ca, front_proxies, ca, front_proxy_ca, service_account_key })
    }

    /// Reads a directory that must have everything: a server that made its own would share nothing with the others.
    pub(crate) fn open(dir: &Path) -> Result<Self> {
        for file in FILES {
            let path = dir.join(file);
            anyhow::ensure!(
                path.is_file(),
                "{} is missing; `freehold pki --dir {}` makes what servers share, once for all of them",
                path.display(),
                dir.display()
            );
        }
        Self::open_or_make(dir)
    }

    /// A client certificate for a component or the admin, who may do everything.
    pub(crate) fn master(&self, user: &str) -> Result<Pair> {
        let groups = ["system:masters".to_owned()];
        Ok(self.ca.issue_client(&ClientName { user, groups: &groups, plane: None }, VALIDITY)?)
    }

    /// Writes the admin's kubeconfig to `place`.
    pub(crate) fn write_admin_kubeconfig(&self, server: &str, place: &Path) -> Result<()> {
        let pair = self.master("admin")?;
        let text = kubeconfig(&KubeconfigParams {
            tls_server_name: "",
            name: "freehold",
            server,
            ca_pem: self.ca.cert_pem(),
            user: Credentials::ClientCert { cert_pem: &pair.cert_pem, key_pem: &pair.key_pem },
            namespace: "default",
        });
        write(place, &text)
    }
}

/// Flags of `freehold pki`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder in which missing files are created.
    #[arg(long)]
    dir: PathBuf,
    /// Also write the admin's kubeconfig, to this file.
    #[arg(long, requires = "server")]
    admin_kubeconfig: Option<PathBuf>,
    /// The URL of the servers, which the kubeconfig names.
    #[arg(long)]
    server: Option<String>,
    #[command(flatten)]
    secret: SecretArgs,
}

/// Makes what servers share.
pub(crate) async fn run(args: &Args) -> Result<()> {
    let pki = args.secret.open_or_make(&args.dir).await?;
    if let (Some(place), Some(server)) = (&args.admin_kubeconfig, &args.server) {
        pki.write_admin_kubeconfig(server, place)?;
    }
    Ok(())
}

/// Reads a file that may be absent.
pub(crate) fn read(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("{} can't be read", path.display())),
    }
}

/// Writes a file that only its owner can read.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    write_private(path, text.as_bytes()).with_context(|| format!("{} can't be written", path.display()))
}

/// An authority, and its file of certificates.
fn authority(dir: &Path, file: &str, name: &str) -> Result<(Authority, String)> {
    let (cert, key) = (dir.join(format!("{file}.crt")), dir.join(format!("{file}.key")));
    match (read(&cert)?, read(&key)?) {
        (Some(cert_pem), Some(key_pem)) => {
            let read = Authority::from_pem(&cert_pem, &key_pem);
            Ok((read.with_context(|| format!("{} and its key can't be used", cert.display()))?, cert_pem))
        }
        (None, None) => {
            let fresh = Authority::generate(name)?;
            write(&key, fresh.key_pem())?;
            write(&cert, fresh.cert_pem())?;
            let text = fresh.cert_pem().to_owned();
            Ok((fresh, text))
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
