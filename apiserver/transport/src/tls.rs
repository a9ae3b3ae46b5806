//! Certificates, as PEM, made into TLS configurations; what is served can be replaced while it runs.

use arc_swap::ArcSwap;
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::{CryptoProvider, aws_lc_rs},
    server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier},
    sign::CertifiedKey,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use std::{fmt, sync::Arc};

/// What is wrong with TLS material.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// It is not PEM, or not of what it should be.
    #[error("{what} can't be read: {source}")]
    Pem {
        /// Which material.
        what: &'static str,
        /// What the parser says.
        source: rustls_pki_types::pem::Error,
    },
    /// There is none of it.
    #[error("{0} holds no certificate")]
    Empty(&'static str),
    /// TLS can't work with it.
    #[error("TLS can't be set up")]
    Rustls(#[from] rustls::Error),
    /// A certificate authority can't be used.
    #[error("the client certificate authority can't be used")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// A serving certificate that can be replaced: new connections get the new one.
pub struct Certificate(ArcSwap<CertifiedKey>);

impl Certificate {
    /// Reads a certificate chain, leaf first, and its key, both as PEM.
    ///
    /// # Errors
    /// Fails where they are no PEM, or the key is not that of the leaf.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Arc<Self>, TlsError> {
        Ok(Arc::new(Self(ArcSwap::from_pointee(certified(chain, key)?))))
    }

    /// Replaces it.
    ///
    /// # Errors
    /// Fails as [`Certificate::from_pem`] does; the old one stays then.
    pub fn replace(&self, chain: &[u8], key: &[u8]) -> Result<(), TlsError> {
        self.0.store(Arc::new(certified(chain, key)?));
        Ok(())
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Certificate")
    }
}

/// Who the server is to others that it passes requests to, and whom it believes there.
#[derive(Clone, Copy)]
pub struct ClientMaterial<'a> {
    /// Certificate chain, PEM.
    pub chain: &'a [u8],
    /// Its key, PEM.
    pub key: &'a [u8],
    /// The authorities of those servers, PEM.
    pub ca: &'a [u8],
}

/// The TLS configuration of a client, in a place where it can be replaced.
#[derive(Clone)]
pub struct ClientTls(Arc<ArcSwap<ClientConfig>>);

impl ClientTls {
    /// Reads certificates, key and authorities.
    ///
    /// # Errors
    /// Fails where one of them is no PEM, or the key is not that of the certificate.
    pub fn from_pem(material: ClientMaterial<'_>) -> Result<Self, TlsError> {
        Ok(Self(Arc::new(ArcSwap::from_pointee(client_config(material)?))))
    }

    /// Replaces it for new connections.
    ///
    /// # Errors
    /// Fails as [`ClientTls::from_pem`] does; the old one stays then.
    pub fn replace(&self, material: ClientMaterial<'_>) -> Result<(), TlsError> {
        self.0.store(Arc::new(client_config(material)?));
        Ok(())
    }

    /// Returns the configuration for a new connection.
    pub fn load(&self) -> Arc<ClientConfig> {
        self.0.load_full()
    }
}

/// The configuration of the server: client certificates are optional, but those that are shown must be signed by one
/// of `client_cas` (PEM bundles, empty ones left out). With `certificates_only` there is no connection without one.
///
/// # Errors
/// Fails where a bundle is no PEM or holds no authority.
pub fn server_config(
    certificate: Arc<dyn ResolvesServerCert>,
    client_cas: &[&str],
    certificates_only: bool,
) -> Result<ServerConfig, TlsError> {
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let mut roots = RootCertStore::empty();
    for ca in client_cas.iter().filter(|ca| !ca.is_empty()) {
        add_roots(&mut roots, ca.as_bytes(), "the client certificate authority")?;
    }
    let builder = if roots.is_empty() && !certificates_only {
        builder.with_no_client_auth()
    } else {
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
        let verifier = if certificates_only { verifier } else { verifier.allow_unauthenticated() };
        builder.with_client_cert_verifier(verifier.build()?)
    };
    let mut config = builder.with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn client_config(material: ClientMaterial<'_>) -> Result<ClientConfig, TlsError> {
    let mut roots = RootCertStore::empty();
    add_roots(&mut roots, material.ca, "the server certificate authority")?;
    let chain = certificates(material.chain, "the client certificate")?;
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, private_key(material.key)?)?;
    Ok(config)
}

fn certified(chain: &[u8], key: &[u8]) -> Result<CertifiedKey, TlsError> {
    let chain = certificates(chain, "the serving certificate")?;
    Ok(CertifiedKey::from_der(chain, private_key(key)?, &provider())?)
}

fn add_roots(roots: &mut RootCertStore, pem: &[u8], what: &'static str) -> Result<(), TlsError> {
    for certificate in certificates(pem, what)? {
        roots.add(certificate)?;
    }
    Ok(())
}

/// Reads the certificates of a PEM text; `what` names it in errors.
///
/// # Errors
/// The text is no PEM, or has no certificate.
pub fn certificates(pem: &[u8], what: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|source| TlsError::Pem { what, source })?;
    if found.is_empty() { Err(TlsError::Empty(what)) } else { Ok(found) }
}

fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|source| TlsError::Pem { what: "the private key", source })
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::version::{TLS12, TLS13};

    #[test]
    fn only_suites_with_forward_secrecy_and_authenticated_encryption_are_spoken() {
        let suites: Vec<String> =
            provider().cipher_suites.iter().map(|suite| format!("{:?}", suite.suite())).collect();
        assert!(suites.len() > 2);
        for suite in suites {
            let forward = suite.starts_with("TLS13_") || suite.starts_with("TLS_ECDHE_");
            let authenticated = suite.contains("_GCM_") || suite.contains("_CHACHA20_POLY1305_");
            assert!(forward && authenticated, "{suite}");
        }
        assert_eq!(rustls::DEFAULT_VERSIONS, [&TLS13, &TLS12]);
    }
}
