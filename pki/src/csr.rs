//! Certificate signing requests.
//!
//! The subject of a request goes into the certificate unchanged, each organization included. Its alternative names
//! do, too, but for those in Freehold's own URN namespace: to which plane a certificate is bound is decided by where
//! the request was made, never by the request.

use crate::{
    Authority, ClientName, Error, PLANE_URN, PlaneBinding, PrivateKey, Result,
    authority::{Leaf, extension},
    name,
    read::{Names, is_text, subject_parts},
};
use std::time::Duration;
use x509_cert::{
    attr::Attributes,
    der::{Decode, Encode, EncodePem, asn1::BitString, oid::AssociatedOid, pem::LineEnding},
    ext::pkix::{SubjectAltName, name::GeneralName},
    request::{CertReq, CertReqInfo, ExtensionReq, Version},
};
use x509_parser::{
    certification_request::X509CertificationRequest, extensions::ParsedExtension, pem::Pem, prelude::FromDer,
};

/// Requests larger than this are refused. Real ones are about 1 KiB.
pub const MAX_BYTES: usize = 64 * 1024;

/// What a signer adds to a request.
#[derive(Clone, Copy, Debug)]
pub struct CsrTerms<'a, S> {
    /// Usages in the words of `certificates.k8s.io`.
    pub usages: &'a [S],
    /// How long the certificate is valid from now.
    pub validity: Duration,
    /// The plane in which the request was made, to which the certificate is then bound; `None` only for requests of
    /// the platform itself.
    pub plane: Option<PlaneBinding<'a>>,
}

/// Who a request asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsrInfo {
    /// The subject's common name, empty where it has none.
    pub common_name: String,
    /// The subject's organizations, in order.
    pub organizations: Vec<String>,
    /// The alternative names that are asked for.
    pub names: Names,
}

impl CsrInfo {
    /// Reads a signing request, PEM or DER.
    ///
    /// # Errors
    /// [`Error::Malformed`] for what is no request or has a subject in an unreadable encoding, [`Error::Signature`]
    /// where it is not signed by its own key.
    pub fn parse(request: &[u8]) -> Result<Self> {
        let der = der(request)?;
        let (_, csr) =
            X509CertificationRequest::from_der(&der).map_err(|e| Error::malformed("request", e))?;
        csr.verify_signature().map_err(|_| Error::Signature("request"))?;
        let subject = &csr.certification_request_info.subject;
        // What another program might read is what an approver has to see.
        if !is_text(subject) {
            return Err(Error::malformed(
                "request",
                "a name of the subject is in an encoding that is not read",
            ));
        }
        let (common_name, organizations) = subject_parts(subject);
        let names = csr
            .requested_extensions()
            .into_iter()
            .flatten()
            .find_map(|extension| match extension {
                ParsedExtension::SubjectAlternativeName(names) => Some(Names::from(names)),
                _ => None,
            })
            .unwrap_or_default();
        Ok(Self { common_name, organizations, names })
    }
}

impl Authority {
    /// Signs a request, PEM or DER, and returns the certificate as PEM.
    ///
    /// # Errors
    /// Those of [`CsrInfo::parse`], and [`Error::Usage`] for an unknown usage.
    pub fn sign_csr<S: AsRef<str>>(&self, request: &[u8], terms: &CsrTerms<'_, S>) -> Result<String> {
        CsrInfo::parse(request)?;
        let csr = CertReq::from_der(&der(request)?).map_err(|e| Error::malformed("request", e))?;
        let mut names = requested_names(&csr.info)?;
        names.retain(|name| !is_reserved(name));
        for bound in terms.plane.iter().flat_map(name::binding) {
            names.push(bound?);
        }
        let CertReqInfo { subject, public_key: public, .. } = csr.info;
        self.issue(Leaf { subject, names, public, usages: terms.usages, validity: terms.validity })
    }
}

/// Creates a request, PEM, for a client and for host names (may be none), signed with `key`. It asks for no plane.
///
/// # Errors
/// [`Error::Name`] for a name that a request cannot have.
pub fn request<S: AsRef<str>>(key: &PrivateKey, client: &ClientName<'_>, hosts: &[S]) -> Result<String> {
    let names = hosts.iter().map(|host| name::host(host.as_ref())).collect::<Result<Vec<_>>>()?;
    request_with(key, client, names)
}

fn request_with(key: &PrivateKey, client: &ClientName<'_>, names: Vec<GeneralName>) -> Result<String> {
    let malformed = |e| Error::malformed("request", e);
    let mut attributes = Attributes::new();
    if !names.is_empty() {
        let wanted = ExtensionReq(vec![extension(false, &SubjectAltName(names))?]);
        attributes.insert(wanted.try_into().map_err(malformed)?).map_err(malformed)?;
    }
    let subject = name::subject(client.user, client.groups)?;
    let info = CertReqInfo { version: Version::V1, subject, public_key: key.public_info()?, attributes };
    let signature = BitString::from_bytes(&key.sign(&info)?).map_err(malformed)?;
    CertReq { info, algorithm: key.algorithm(), signature }.to_pem(LineEnding::LF).map_err(malformed)
}

/// The names that a request asks for. It may ask once only: what an approver read must be what is signed.
fn requested_names(info: &CertReqInfo) -> Result<Vec<GeneralName>> {
    let malformed = |e| Error::malformed("request", e);
    let mut lists = Vec::new();
    for attribute in info.attributes.iter().filter(|a| a.oid == ExtensionReq::OID) {
        for value in attribute.values.iter() {
            let wanted = value.to_der().and_then(|der| ExtensionReq::from_der(&der)).map_err(malformed)?;
            for extension in wanted.0.iter().filter(|e| e.extn_id == SubjectAltName::OID) {
                lists.push(SubjectAltName::from_der(extension.extn_value.as_bytes()).map_err(malformed)?.0);
            }
        }
    }
    match lists.len() {
        0 | 1 => Ok(lists.pop().unwrap_or_default()),
        _ => Err(Error::malformed("request", "more than one list of alternative names")),
    }
}

fn is_reserved(name: &GeneralName) -> bool {
    let namespace = PLANE_URN.trim_end_matches("plane:");
    match name {
        GeneralName::UniformResourceIdentifier(uri) => {
            uri.as_str().get(..namespace.len()).is_some_and(|start| start.eq_ignore_ascii_case(namespace))
        }
        _ => false,
    }
}

fn der(request: &[u8]) -> Result<Vec<u8>> {
    if request.len() > MAX_BYTES {
        return Err(Error::malformed("request", format_args!("more than {MAX_BYTES} bytes")));
    }
    if request.first() == Some(&0x30) {
        return Ok(request.to_vec());
    }
    Pem::iter_from_buffer(request)
        .filter_map(|block| block.ok())
        .find(|block| block.label.ends_with("CERTIFICATE REQUEST"))
        .map(|block| block.contents)
        .ok_or(Error::NotPem("certificate request"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CertificateInfo, certificates_der};

    #[test]
    fn a_request_can_choose_neither_its_plane_nor_its_generation() {
        let authority = Authority::generate("ca").unwrap();
        let key = PrivateKey::generate().unwrap();
        let client = ClientName { user: "eve", ..ClientName::default() };
        let victim = PlaneBinding { plane: "victim", generation: 9 };
        let forged =
            name::binding(&victim).chain([name::host("eve.example")]).collect::<Result<_>>().unwrap();
        let request = request_with(&key, &client, forged).unwrap();
        for plane in [Some(PlaneBinding { plane: "own", generation: 3 }), None] {
            let terms = CsrTerms { usages: crate::usage::CLIENT, validity: Duration::from_secs(60), plane };
            let pem = authority.sign_csr(request.as_bytes(), &terms).unwrap();
            let info = CertificateInfo::parse(&certificates_der(&pem).unwrap()[0]).unwrap();
            assert_eq!(info.planes(), plane.iter().map(|bound| bound.plane).collect::<Vec<_>>());
            assert_eq!(info.generation().unwrap(), plane.map_or(0, |bound| bound.generation));
            assert_eq!(info.names.dns, ["eve.example"]);
        }
    }
}
