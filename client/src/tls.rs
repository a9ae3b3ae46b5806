//! The TLS side of a configuration.

use crate::{Config, Error, Identity, Result};
use rustls::{ClientConfig, RootCertStore, pki_types::CertificateDer};
use rustls_pki_types::{PrivateKeyDer, pem::PemObject};
use std::sync::Arc;

/// A TLS configuration that trusts the configured CA alone and offers HTTP/2 first.
pub(crate) fn client_config(config: &Config) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&config.ca_pem)? {
        roots.add(certificate).map_err(|e| Error::Config(format!("CA certificate: {e}")))?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| Error::Config(e.to_string()))?
        .with_root_certificates(roots);
    let mut tls = match &config.identity {
        Identity::ClientCert { cert_pem, key_pem } => {
            let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes())
                .map_err(|e| Error::Config(format!("client key: {e}")))?;
            builder
                .with_client_auth_cert(certificates(cert_pem)?, key)
                .map_err(|e| Error::Config(format!("client certificate: {e}")))?
        }
        _ => builder.with_no_client_auth(),
    };
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(tls))
}

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| Error::Config(format!("certificate: {e}")))
}
