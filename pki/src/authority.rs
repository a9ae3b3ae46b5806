//! Certificate authorities and what they issue.

use crate::{Error, PrivateKey, Result, name, read, usage};
use aws_lc_rs::{digest, rand};
use std::time::{Duration, SystemTime};
use x509_cert::{
    Certificate, TbsCertificate, Version,
    der::{
        DateTime, Decode, Encode, EncodePem,
        asn1::{BitString, GeneralizedTime, OctetString, UtcTime},
        flagset::FlagSet,
        oid::AssociatedOid,
        pem::LineEnding,
    },
    ext::{
        Extension,
        pkix::{
            AuthorityKeyIdentifier, BasicConstraints, KeyUsage, KeyUsages, SubjectAltName,
            SubjectKeyIdentifier, name::GeneralName,
        },
    },
    name::Name,
    serial_number::SerialNumber,
    spki::SubjectPublicKeyInfoOwned,
    time::{Time, Validity},
};

/// How long a generated authority is valid.
pub const AUTHORITY_VALIDITY: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// How far in the past certificates begin, for clocks that are behind.
pub const BACKDATE: Duration = Duration::from_secs(5 * 60);

/// A certificate with its key, both PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Pair {
    /// The certificate.
    pub cert_pem: String,
    /// Its private key.
    pub key_pem: String,
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pair").field("cert_pem", &self.cert_pem).finish_non_exhaustive()
    }
}

/// Who a client certificate speaks for.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientName<'a> {
    /// The user's name: the subject's common name.
    pub user: &'a str,
    /// The user's groups: the subject's organizations.
    pub groups: &'a [String],
    /// The only plane in which the certificate means anything; `None` for one of the platform.
    pub plane: Option<PlaneBinding<'a>>,
}

/// What a certificate is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaneBinding<'a> {
    /// The identifier of the plane.
    pub plane: &'a str,
    /// The generation of the plane's credentials: the certificate ends when the plane's generation is higher.
    pub generation: u64,
}

/// A certificate authority: its certificate and key.
#[derive(Debug)]
pub struct Authority {
    pub(crate) certificate: Certificate,
    pub(crate) cert_pem: String,
    pub(crate) key: PrivateKey,
    /// What stands behind each certificate that it issues to clients, PEM.
    pub(crate) chain: String,
}

/// A certificate to be.
pub(crate) struct Leaf<'a, S> {
    pub(crate) subject: Name,
    pub(crate) names: Vec<GeneralName>,
    pub(crate) public: SubjectPublicKeyInfoOwned,
    pub(crate) usages: &'a [S],
    pub(crate) validity: Duration,
}

impl Authority {
    /// Creates a self-signed authority, ECDSA P-256, valid for [`AUTHORITY_VALIDITY`].
    ///
    /// # Errors
    /// [`Error::Key`] where no key can be generated, [`Error::Name`] for a name that a certificate cannot have.
    pub fn generate(common_name: &str) -> Result<Self> {
        let key = PrivateKey::generate()?;
        let subject = name::subject(common_name, &[])?;
        let public = key.public_info()?;
        let signs = KeyUsages::DigitalSignature
            | KeyUsages::KeyEncipherment
            | KeyUsages::KeyCertSign
            | KeyUsages::CRLSign;
        let extensions = vec![
            extension(true, &KeyUsage(signs))?,
            extension(true, &BasicConstraints { ca: true, path_len_constraint: None })?,
            extension(false, &SubjectKeyIdentifier(key_identifier(&public)?))?,
        ];
        let validity = validity(AUTHORITY_VALIDITY, None)?;
        let body = body(subject.clone(), subject, public, validity, &key, extensions)?;
        let certificate = sign(body, &key)?;
        let cert_pem = pem(&certificate)?;
        Ok(Self { certificate, cert_pem, key, chain: String::new() })
    }

    /// Reads an authority: the first certificate of one PEM text and the first key of the other.
    ///
    /// # Errors
    /// [`Error::NotPem`] or [`Error::Malformed`] for text that cannot be read, [`Error::Key`] for an unsupported
    /// key, [`Error::Mismatch`] where certificate and key do not belong together.
    pub fn from_pem(cert: &str, key: &str) -> Result<Self> {
        let key = PrivateKey::from_pem(key)?;
        let der = read::certificates_der(cert)?.into_iter().next().ok_or(Error::NotPem("certificate"))?;
        let certificate = Certificate::from_der(&der).map_err(|e| Error::malformed("certificate", e))?;
        if certificate.tbs_certificate.subject_public_key_info != key.public_info()? {
            return Err(Error::Mismatch);
        }
        let cert_pem = pem(&certificate)?;
        Ok(Self { certificate, cert_pem, key, chain: String::new() })
    }

    /// The authority's certificate: what clients and servers trust.
    pub fn cert_pem(&self) -> &str {
        &self.cert_pem
    }

    /// The authority's private key.
    pub fn key_pem(&self) -> &str {
        self.key.pem()
    }

    /// Issues a client certificate with a new key.
    ///
    /// # Errors
    /// [`Error::Key`] where no key can be generated, [`Error::Name`] for a name that a certificate cannot have.
    pub fn issue_client(&self, client: &ClientName<'_>, validity: Duration) -> Result<Pair> {
        self.issue_pair(client, &[] as &[&str], usage::CLIENT, validity)
    }

    /// Issues a serving certificate with a new key, for host names and IP addresses. The first one is its common
    /// name.
    ///
    /// # Errors
    /// [`Error::Key`] where no key can be generated, [`Error::Name`] for a name that a certificate cannot have.
    pub fn issue_server<S: AsRef<str>>(&self, names: &[S], validity: Duration) -> Result<Pair> {
        let user = names.first().map(AsRef::as_ref).unwrap_or_default();
        self.issue_pair(&ClientName { user, ..ClientName::default() }, names, usage::SERVER, validity)
    }

    /// Issues a certificate for a process that serves under `names` and calls others as `client`.
    ///
    /// # Errors
    /// [`Error::Key`] where no key can be generated, [`Error::Name`] for a name that a certificate cannot have.
    pub fn issue_peer<S: AsRef<str>>(
        &self,
        client: &ClientName<'_>,
        names: &[S],
        validity: Duration,
    ) -> Result<Pair> {
        self.issue_pair(client, names, usage::PEER, validity)
    }

    fn issue_pair<S: AsRef<str>>(
        &self,
        client: &ClientName<'_>,
        hosts: &[S],
        usages: &[&str],
        validity: Duration,
    ) -> Result<Pair> {
        let key = PrivateKey::generate()?;
        let hosts = hosts.iter().map(|host| name::host(host.as_ref()));
        let bound = client.plane.iter().flat_map(name::binding);
        let names = hosts.chain(bound).collect::<Result<_>>()?;
        let subject = name::subject(client.user, client.groups)?;
        let cert_pem = self.issue(Leaf { subject, names, public: key.public_info()?, usages, validity })?;
        Ok(Pair { cert_pem, key_pem: key.pem().to_owned() })
    }

    /// Signs a leaf certificate. It never outlives the authority.
    pub(crate) fn issue<S: AsRef<str>>(&self, leaf: Leaf<'_, S>) -> Result<String> {
        let authority = &self.certificate.tbs_certificate;
        let (key_usage, extended) = usage::extensions(leaf.usages)?;
        let mut extensions =
            vec![extension(true, &BasicConstraints { ca: false, path_len_constraint: None })?];
        if key_usage.0 != FlagSet::default() {
            extensions.push(extension(true, &key_usage)?);
        }
        if !extended.0.is_empty() {
            extensions.push(extension(false, &extended)?);
        }
        let issuer_key = AuthorityKeyIdentifier {
            key_identifier: Some(self.key_identifier()?),
            authority_cert_issuer: None,
            authority_cert_serial_number: None,
        };
        extensions.push(extension(false, &issuer_key)?);
        if !leaf.names.is_empty() {
            extensions.push(extension(false, &SubjectAltName(leaf.names))?);
        }
        let validity = validity(leaf.validity, Some(authority.validity.not_after))?;
        let body =
            body(authority.subject.clone(), leaf.subject, leaf.public, validity, &self.key, extensions)?;
        Ok(pem(&sign(body, &self.key)?)? + &self.chain)
    }

    /// Whether a certificate, PEM, is one of this authority, whenever it was made.
    pub fn is(&self, cert_pem: &str) -> bool {
        let Ok(Some(der)) = read::certificates_der(cert_pem).map(|ders| ders.into_iter().next()) else {
            return false;
        };
        let (own, other) = (&self.certificate.tbs_certificate, Certificate::from_der(&der));
        other.is_ok_and(|other| {
            let other = other.tbs_certificate;
            (&other.subject, &other.subject_public_key_info, &other.validity)
                == (&own.subject, &own.subject_public_key_info, &own.validity)
        })
    }

    /// The identifier that the authority's certificate gives its key, which others may compute differently.
    pub(crate) fn key_identifier(&self) -> Result<OctetString> {
        let own = self.certificate.tbs_certificate.get::<SubjectKeyIdentifier>();
        match own.map_err(|e| Error::malformed("certificate", e))? {
            Some((_, id)) => Ok(id.0),
            None => key_identifier(&self.certificate.tbs_certificate.subject_public_key_info),
        }
    }
}

pub(crate) fn body(
    issuer: Name,
    subject: Name,
    public: SubjectPublicKeyInfoOwned,
    validity: Validity,
    key: &PrivateKey,
    extensions: Vec<Extension>,
) -> Result<TbsCertificate> {
    Ok(TbsCertificate {
        version: Version::V3,
        serial_number: serial()?,
        signature: key.algorithm(),
        issuer,
        validity,
        subject,
        subject_public_key_info: public,
        issuer_unique_id: None,
        subject_unique_id: None,
        extensions: Some(extensions),
    })
}

pub(crate) fn sign(tbs_certificate: TbsCertificate, key: &PrivateKey) -> Result<Certificate> {
    let signature =
        BitString::from_bytes(&key.sign(&tbs_certificate)?).map_err(|e| Error::malformed("signature", e))?;
    Ok(Certificate { tbs_certificate, signature_algorithm: key.algorithm(), signature })
}

pub(crate) fn pem(certificate: &Certificate) -> Result<String> {
    certificate.to_pem(LineEnding::LF).map_err(|e| Error::malformed("certificate", e))
}

pub(crate) fn extension<E: AssociatedOid + Encode>(critical: bool, value: &E) -> Result<Extension> {
    let der = value.to_der().and_then(OctetString::new).map_err(|e| Error::malformed("extension", e))?;
    Ok(Extension { extn_id: E::OID, critical, extn_value: der })
}

/// The leftmost 160 bits of the SHA-256 of the public key (RFC 7093, method 1).
pub(crate) fn key_identifier(public: &SubjectPublicKeyInfoOwned) -> Result<OctetString> {
    let hash = digest::digest(&digest::SHA256, public.subject_public_key.raw_bytes());
    OctetString::new(&hash.as_ref()[..20]).map_err(|e| Error::malformed("key identifier", e))
}

/// 127 random bits: positive, and never the same twice.
fn serial() -> Result<SerialNumber> {
    let mut bytes = [0; 16];
    rand::fill(&mut bytes).map_err(|_| Error::Key)?;
    bytes[0] = bytes[0] & 0x7f | 0x40;
    SerialNumber::new(&bytes).map_err(|e| Error::malformed("serial number", e))
}

fn validity(length: Duration, limit: Option<Time>) -> Result<Validity> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let end = now.saturating_add(length);
    let end = limit.map_or(end, |limit| end.min(limit.to_unix_duration()));
    Ok(Validity { not_before: time(now.saturating_sub(BACKDATE))?, not_after: time(end)? })
}

/// `UTCTime` through 2049, then `GeneralizedTime` (RFC 5280, 4.1.2.5).
fn time(since_epoch: Duration) -> Result<Time> {
    let whole = DateTime::from_unix_duration(Duration::from_secs(since_epoch.as_secs()))
        .map_err(|e| Error::malformed("validity", e))?;
    Ok(match UtcTime::from_date_time(whole) {
        Ok(time) => Time::UtcTime(time),
        Err(_) => Time::GeneralTime(GeneralizedTime::from_date_time(whole)),
    })
}
