//! Reading certificates: their subject, validity and issuer.

use crate::{Error, GENERATION_URN, PLANE_URN, Result};
use std::net::IpAddr;
use x509_parser::{
    certificate::X509Certificate,
    extensions::{GeneralName, SubjectAlternativeName},
    pem::Pem,
    prelude::FromDer,
    x509::X509Name,
};

/// What a certificate says, read once and then kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateInfo {
    /// The subject's common name, empty where it has none.
    pub common_name: String,
    /// The subject's organizations, in order.
    pub organizations: Vec<String>,
    /// Alternative names.
    pub names: Names,
    /// Valid from, in seconds since 1970.
    pub not_before: i64,
    /// Valid through, in seconds since 1970.
    pub not_after: i64,
    /// Whether it may be used for TLS client authentication: no extended usage at all, `any`, or `client auth`.
    pub client_auth: bool,
    /// Whether it is an authority's.
    pub is_ca: bool,
}

/// The subject alternative names of a certificate or a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Host names.
    pub dns: Vec<String>,
    /// IP addresses.
    pub ips: Vec<IpAddr>,
    /// Mail addresses.
    pub emails: Vec<String>,
    /// URIs.
    pub uris: Vec<String>,
}

impl CertificateInfo {
    /// Reads a DER certificate, without judging whether it is to be trusted.
    ///
    /// # Errors
    /// [`Error::Malformed`] for what is no certificate.
    pub fn parse(der: &[u8]) -> Result<Self> {
        let certificate = parse(der)?;
        let malformed = |e| Error::malformed("certificate", e);
        let (common_name, organizations) = subject_parts(certificate.subject());
        let names = certificate.subject_alternative_name().map_err(malformed)?;
        let usage = certificate.extended_key_usage().map_err(malformed)?;
        Ok(Self {
            common_name,
            organizations,
            names: names.map(|names| Names::from(names.value)).unwrap_or_default(),
            not_before: certificate.validity().not_before.timestamp(),
            not_after: certificate.validity().not_after.timestamp(),
            client_auth: usage.is_none_or(|usage| usage.value.any || usage.value.client_auth),
            is_ca: certificate.is_ca(),
        })
    }

    /// The planes to which the certificate is bound. None: it is of the platform. More than one: none of ours.
    pub fn planes(&self) -> Vec<&str> {
        self.names.uris.iter().filter_map(|uri| uri.strip_prefix(PLANE_URN)).collect()
    }

    /// The generation of its plane's credentials that the certificate belongs to; 0 where it names none.
    ///
    /// # Errors
    /// It names several, or one that is no number: such a certificate is none of ours.
    pub fn generation(&self) -> Result<u64> {
        let malformed = || Error::malformed("certificate", "a generation that can't be read");
        let mut named = self.names.uris.iter().filter_map(|uri| uri.strip_prefix(GENERATION_URN));
        match (named.next(), named.next()) {
            (None, _) => Ok(0),
            (Some(generation), None) => generation.parse().map_err(|_| malformed()),
            (Some(_), Some(_)) => Err(malformed()),
        }
    }
}

impl From<&SubjectAlternativeName<'_>> for Names {
    fn from(names: &SubjectAlternativeName<'_>) -> Self {
        let mut all = Self::default();
        for name in &names.general_names {
            match name {
                GeneralName::DNSName(name) => all.dns.push((*name).to_owned()),
                GeneralName::RFC822Name(name) => all.emails.push((*name).to_owned()),
                GeneralName::URI(name) => all.uris.push((*name).to_owned()),
                GeneralName::IPAddress(bytes) => all.ips.extend(ip(bytes)),
                _ => {}
            }
        }
        all
    }
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(bytes).map(IpAddr::from).ok();
    let v6 = || <[u8; 16]>::try_from(bytes).map(IpAddr::from).ok();
    v4().or_else(v6)
}

/// The DER of each certificate in a PEM text; other blocks are skipped.
///
/// # Errors
/// [`Error::NotPem`] where there is none.
pub fn certificates_der(pem: &str) -> Result<Vec<Vec<u8>>> {
    let blocks = Pem::iter_from_buffer(pem.as_bytes()).filter_map(|block| block.ok());
    let ders: Vec<_> =
        blocks.filter(|block| block.label == "CERTIFICATE").map(|block| block.contents).collect();
    if ders.is_empty() { Err(Error::NotPem("certificate")) } else { Ok(ders) }
}

/// The blocks of a PEM text, each with its label.
pub fn blocks(pem: &str) -> impl Iterator<Item = (&str, &str)> {
    const BEGIN: &str = "-----BEGIN ";
    let mut rest = pem.find(BEGIN).map_or("", |at| &pem[at..]);
    std::iter::from_fn(move || {
        let label = rest.strip_prefix(BEGIN)?.split("-----").next()?;
        let end = rest[BEGIN.len()..].find(BEGIN).map_or(rest.len(), |at| at + BEGIN.len());
        let (block, behind) = rest.split_at(end);
        rest = behind;
        Some((label, block))
    })
}

/// The DER of a public key in PEM form (`PUBLIC KEY`) and its uncompressed point, for a P-256 key; `None` for all else.
pub fn p256_public(pem: &str) -> Option<(Vec<u8>, Vec<u8>)> {
    /// What stands before the point: the two object identifiers of the algorithm.
    const HEAD: [u8; 26] = [
        0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
        0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
    ];
    let block = Pem::iter_from_buffer(pem.as_bytes()).next()?.ok()?;
    let point = block.contents.strip_prefix(&HEAD)?;
    let fits = block.label == "PUBLIC KEY" && point.len() == 65 && point[0] == 4;
    fits.then(|| (block.contents.clone(), point.to_vec()))
}

/// When the first certificate of a PEM text expires.
///
/// # Errors
/// [`Error::NotPem`] without a certificate, [`Error::Malformed`] for one that cannot be read.
pub fn not_after(cert_pem: &str) -> Result<jiff::Timestamp> {
    let ders = certificates_der(cert_pem)?;
    let first = ders.first().ok_or(Error::NotPem("certificate"))?;
    let seconds = parse(first)?.validity().not_after.timestamp();
    jiff::Timestamp::from_second(seconds).map_err(|e| Error::malformed("certificate", e))
}

/// Whether `certificate` was signed by the key of `authority` and names it as its issuer. Both DER.
///
/// Two authorities can have the same name, so the signature decides. Malformed certificates are issued by nobody.
pub fn is_issued_by(certificate: &[u8], authority: &[u8]) -> bool {
    let (Ok(certificate), Ok(authority)) = (parse(certificate), parse(authority)) else { return false };
    certificate.issuer().as_raw() == authority.subject().as_raw()
        && authority.is_ca()
        && certificate.verify_signature(Some(authority.public_key())).is_ok()
}

fn parse(der: &[u8]) -> Result<X509Certificate<'_>> {
    X509Certificate::from_der(der)
        .map(|(_, certificate)| certificate)
        .map_err(|e| Error::malformed("certificate", e))
}

/// Whether the common names and organizations of a subject can be read, all of them.
pub(crate) fn is_text(subject: &X509Name<'_>) -> bool {
    subject.iter_common_name().chain(subject.iter_organization()).all(|part| part.as_str().is_ok())
}

/// Common name (the last one, as Go reads it) and organizations of a subject.
pub(crate) fn subject_parts(subject: &X509Name<'_>) -> (String, Vec<String>) {
    let common_name = subject.iter_common_name().filter_map(|cn| cn.as_str().ok()).last().unwrap_or_default();
    let organizations =
        subject.iter_organization().filter_map(|o| o.as_str().ok()).map(str::to_owned).collect();
    (common_name.to_owned(), organizations)
}
