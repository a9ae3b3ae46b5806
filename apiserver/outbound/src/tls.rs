//! TLS verification of servers.

use crate::{Identity, Trust};
use rustls::{
    AlertDescription, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{CryptoProvider, aws_lc_rs},
    server::ParsedCertificate,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject};
use std::sync::{Arc, LazyLock};

static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| Arc::new(aws_lc_rs::default_provider()));
/// The authorities that the machine trusts, read once.
static SYSTEM: LazyLock<Arc<RootCertStore>> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    Arc::new(roots)
});

/// The TLS side of a destination.
///
/// # Errors
/// A bundle or an identity that can't be read.
pub(crate) fn config(trust: &Trust, identity: Option<&Identity>) -> Result<ClientConfig, String> {
    let builder = ClientConfig::builder_with_provider(PROVIDER.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Verifier::new(trust)?));
    match identity {
        None => Ok(builder.with_no_client_auth()),
        Some(identity) => {
            let key = PrivateKeyDer::from_pem_slice(&identity.key).map_err(|e| format!("client key: {e}"))?;
            let chain = certificates(&identity.chain)?;
            builder.with_client_auth_cert(chain, key).map_err(|e| format!("client certificate: {e}"))
        }
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    found.map_err(|error| format!("certificate: {error}"))
}

/// Webpki's rules, and beside them two of Go's: a certificate of the bundle is trusted itself, though it is one of an
/// authority (as `openssl req -x509` makes them); and everything may be trusted.
#[derive(Debug)]
struct Verifier {
    /// `None` trusts everything.
    rules: Option<Arc<WebPkiServerVerifier>>,
    bundle: Vec<CertificateDer<'static>>,
}

impl Verifier {
    fn new(trust: &Trust) -> Result<Self, String> {
        let (roots, bundle) = match trust {
            Trust::Anything => return Ok(Self { rules: None, bundle: Vec::new() }),
            Trust::System => (SYSTEM.clone(), Vec::new()),
            Trust::Bundle(pem) => {
                let bundle = certificates(pem)?;
                let mut roots = RootCertStore::empty();
                for certificate in &bundle {
                    roots.add(certificate.clone()).map_err(|error| error.to_string())?;
                }
                (Arc::new(roots), bundle)
            }
        };
        let rules = WebPkiServerVerifier::builder_with_provider(roots, PROVIDER.clone()).build();
        let rules =
            rules.map_err(|_| "unable to load root certificates: unable to parse bytes as PEM block")?;
        Ok(Self { rules: Some(rules), bundle })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(rules) = &self.rules else { return Ok(ServerCertVerified::assertion()) };
        match rules.verify_server_cert(end_entity, intermediates, server_name, ocsp, now) {
            // Its times are right: webpki looks at them before what a certificate may be used for.
            Err(Error::InvalidCertificate(rustls::CertificateError::Other(_)))
                if self.bundle.iter().any(|own| own == end_entity) =>
            {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &PROVIDER.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &PROVIDER.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        PROVIDER.signature_verification_algorithms.supported_schemes()
    }

    fn root_hint_subjects(&self) -> Option<&[DistinguishedName]> {
        None
    }
}

/// A failed handshake in Go's words, which users of Kubernetes know.
pub(crate) fn describe(error: &Error) -> String {
    use rustls::CertificateError as Bad;
    let bad = match error {
        Error::InvalidCertificate(bad) => bad,
        Error::AlertReceived(alert) => return format!("remote error: tls: {}", alert_text(*alert)),
        Error::InvalidMessage(_) => return "tls: first record does not look like a TLS handshake".to_owned(),
        Error::PeerIncompatible(_) => return "remote error: tls: handshake failure".to_owned(),
        other => return format!("tls: {other}"),
    };
    let why = match bad {
        Bad::UnknownIssuer => "certificate signed by unknown authority".to_owned(),
        Bad::Expired | Bad::ExpiredContext { .. } | Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
            "certificate has expired or is not yet valid".to_owned()
        }
        Bad::NotValidForNameContext { expected, presented } if presented.is_empty() => {
            format!("certificate is not valid for any names, but wanted to match {}", expected.to_str())
        }
        Bad::NotValidForNameContext { expected, presented } => {
            let names: Vec<&str> = presented.iter().map(|name| name_of(name)).collect();
            format!("certificate is valid for {}, not {}", names.join(", "), expected.to_str())
        }
        other => other.to_string(),
    };
    format!("tls: failed to verify certificate: x509: {why}")
}

/// Returns Go's text of a TLS alert (`crypto/tls`, `alertText`).
fn alert_text(alert: AlertDescription) -> String {
    use AlertDescription as Alert;
    let text = match alert {
        Alert::CloseNotify => "close notify",
        Alert::UnexpectedMessage => "unexpected message",
        Alert::BadRecordMac => "bad record MAC",
        Alert::DecryptionFailed => "decryption failed",
        Alert::RecordOverflow => "record overflow",
        Alert::DecompressionFailure => "decompression failure",
        Alert::HandshakeFailure => "handshake failure",
        Alert::BadCertificate => "bad certificate",
        Alert::UnsupportedCertificate => "unsupported certificate",
        Alert::CertificateRevoked => "revoked certificate",
        Alert::CertificateExpired => "expired certificate",
        Alert::CertificateUnknown => "unknown certificate",
        Alert::IllegalParameter => "illegal parameter",
        Alert::UnknownCA => "unknown certificate authority",
        Alert::AccessDenied => "access denied",
        Alert::DecodeError => "error decoding message",
        Alert::DecryptError => "error decrypting message",
        Alert::ExportRestriction => "export restriction",
        Alert::ProtocolVersion => "protocol version not supported",
        Alert::InsufficientSecurity => "insufficient security level",
        Alert::InternalError => "internal error",
        Alert::InappropriateFallback => "inappropriate fallback",
        Alert::UserCanceled => "user canceled",
        Alert::NoRenegotiation => "no renegotiation",
        Alert::MissingExtension => "missing extension",
        Alert::UnsupportedExtension => "unsupported extension",
        Alert::UnrecognisedName => "unrecognized name",
        Alert::CertificateRequired => "certificate required",
        Alert::NoApplicationProtocol => "no application protocol",
        other => return format!("alert({})", u8::from(other)),
    };
    text.to_owned()
}

/// `DnsName("a.example")` without what is around it.
fn name_of(presented: &str) -> &str {
    presented.split('"').nth(1).unwrap_or(presented)
}
