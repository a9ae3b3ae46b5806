//! TLS whose files are read again when they change.

use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// How often files are looked at.
const INTERVAL: Duration = Duration::from_secs(5);

/// A certificate and its key, and who signs clients' certificates.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate chain in PEM.
    pub cert: PathBuf,
    /// The key in PEM.
    pub key: PathBuf,
    /// Clients have to have a certificate that one of these signed.
    pub client_ca: Option<PathBuf>,
}

impl TlsFiles {
    /// When the files changed last.
    fn changed(&self) -> Vec<Option<SystemTime>> {
        let files = [Some(&self.cert), Some(&self.key), self.client_ca.as_ref()];
        files
            .into_iter()
            .flatten()
            .map(|file| std::fs::metadata(file).and_then(|m| m.modified()).ok())
            .collect()
    }

    fn read(&self) -> Result<ServerConfig, String> {
        let shown = |path: &PathBuf, error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let certificates = |path: &PathBuf| {
            CertificateDer::pem_file_iter(path)
                .and_then(Iterator::collect::<Result<Vec<_>, _>>)
                .map_err(|e| shown(path, &e))
        };
        let chain = certificates(&self.cert)?;
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|e| shown(&self.key, &e))?;
        let builder = ServerConfig::builder();
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = rustls::RootCertStore::empty();
                for certificate in certificates(path)? {
                    roots.add(certificate).map_err(|e| shown(path, &e))?;
                }
                let verifier =
                    WebPkiClientVerifier::builder(Arc::new(roots)).build().map_err(|e| shown(path, &e))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|e| shown(&self.cert, &e))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// The configuration of new connections.
#[derive(Clone, Debug)]
pub(crate) struct Current(Arc<RwLock<Arc<ServerConfig>>>);

impl Current {
    pub(crate) fn get(&self) -> Arc<ServerConfig> {
        self.0.read().clone()
    }

    /// Reads the files, and again whenever they change. Files that can't be read leave the last ones in place.
    pub(crate) fn watch(files: TlsFiles) -> Result<Self, String> {
        let current = Self(Arc::new(RwLock::new(Arc::new(files.read()?))));
        let weak = Arc::downgrade(&current.0);
        tokio::spawn(async move {
            let mut seen = files.changed();
            loop {
                tokio::time::sleep(INTERVAL).await;
                let Some(current) = weak.upgrade() else { return };
                let changed = files.changed();
                if changed == seen {
                    continue;
                }
                match files.read() {
                    Ok(config) => {
                        *current.write() = Arc::new(config);
                        seen = changed;
                        tracing::info!(file = %files.cert.display(), "serving with the new certificate");
                    }
                    Err(error) => {
                        tracing::warn!(%error, "failed to read the new certificate; the last one stays")
                    }
                }
            }
        });
        Ok(current)
    }
}
