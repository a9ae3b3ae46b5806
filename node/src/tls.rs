//! TLS of a node: serving logs to clients with a certificate, and probing without verifying one.

use anyhow::Context as _;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};
use std::io;
use std::sync::{Arc, LazyLock};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// A configuration that takes only clients with a certificate of `client_ca_pem`. All arguments are PEM.
pub(crate) fn server(
    cert_pem: &str,
    key_pem: &str,
    client_ca_pem: &str,
) -> anyhow::Result<Arc<ServerConfig>> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(client_ca_pem)? {
        roots.add(certificate).context("client CA")?;
    }
    let verifier =
        rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build()?;
    let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).context("serving key")?;
    let config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(certificates(cert_pem)?, key)?;
    Ok(Arc::new(config))
}

fn certificates(pem: &str) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().context("certificate")
}

/// A TLS connection to whoever answers.
pub(crate) async fn connect_unverified(stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
    static CONNECTOR: LazyLock<Option<TlsConnector>> = LazyLock::new(|| {
        let provider = provider();
        let verifier = Arc::new(Unverified(provider.signature_verification_algorithms));
        let builder =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().ok()?;
        let config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
        Some(TlsConnector::from(Arc::new(config)))
    });
    let connector = CONNECTOR.as_ref().ok_or_else(|| io::Error::other("TLS can't be set up"))?;
    connector.connect(ServerName::IpAddress(std::net::Ipv4Addr::LOCALHOST.into()), stream).await
}

/// Takes every certificate, but not a handshake by somebody without its key.
#[derive(Debug)]
struct Unverified(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
