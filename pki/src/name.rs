//! Subjects and alternative names.
//!
//! A user's groups are the organizations of the subject. Each stands in a relative distinguished name of its own, so
//! that their order is kept and none hides another.

use crate::{Error, PlaneBinding, Result};
use std::net::IpAddr;
use x509_cert::{
    attr::AttributeTypeAndValue,
    der::{
        Any,
        asn1::{Ia5String, SetOfVec, Utf8StringRef},
    },
    ext::pkix::name::GeneralName,
    name::{Name, RdnSequence, RelativeDistinguishedName},
    spki::ObjectIdentifier,
};

const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
const ORGANIZATION: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.10");

/// The subject with those organizations, then the common name.
pub(crate) fn subject(common_name: &str, organizations: &[String]) -> Result<Name> {
    let organizations = organizations.iter().map(|o| (ORGANIZATION, o.as_str()));
    organizations.chain([(COMMON_NAME, common_name)]).map(attribute).collect::<Result<_>>().map(RdnSequence)
}

fn attribute((oid, text): (ObjectIdentifier, &str)) -> Result<RelativeDistinguishedName> {
    let refuse = || Error::Name(text.to_owned());
    if text.is_empty() || text.contains('\0') {
        return Err(refuse());
    }
    let value = Utf8StringRef::new(text).map(Any::from).map_err(|_| refuse())?;
    let set = SetOfVec::try_from(vec![AttributeTypeAndValue { oid, value }]).map_err(|_| refuse())?;
    Ok(RelativeDistinguishedName(set))
}

/// A host name or an IP address as a subject alternative name.
pub(crate) fn host(name: &str) -> Result<GeneralName> {
    match name.parse::<IpAddr>() {
        Ok(ip) => Ok(GeneralName::from(ip)),
        Err(_) => ia5(name).map(GeneralName::DnsName),
    }
}

/// The URIs that bind a certificate to a plane, and to a generation of its credentials where that is not the first.
pub(crate) fn binding(to: &PlaneBinding<'_>) -> impl Iterator<Item = Result<GeneralName>> + use<> {
    let generation = (to.generation > 0).then(|| uri(&format!("{}{}", crate::GENERATION_URN, to.generation)));
    [Some(plane(to.plane)), generation].into_iter().flatten()
}

/// The URI that names a plane.
pub(crate) fn plane(plane: &str) -> Result<GeneralName> {
    uri(&format!("{}{plane}", crate::PLANE_URN))
}

fn uri(text: &str) -> Result<GeneralName> {
    ia5(text).map(GeneralName::UniformResourceIdentifier)
}

fn ia5(text: &str) -> Result<Ia5String> {
    let printable = !text.is_empty() && text.bytes().all(|c| c.is_ascii_graphic());
    let refuse = || Error::Name(text.to_owned());
    printable.then_some(()).ok_or_else(refuse)?;
    Ia5String::new(text).map_err(|_| refuse())
}
