//! Keys derived from the platform's keys and the identifier of a plane: the key with which a dedicated pair signs the
//! tokens of its plane, and the authority of a plane's clients.
//!
//! Both are derived and not drawn: each server knows them without being told, so there is nothing that anybody could write in
//! order to be believed, nothing to keep for a plane that nobody uses, and nothing to carry along when a plane moves. Who has
//! the key of one plane has neither the platform's nor that of another. They change with the platform's.

use crate::{
    Authority, Error, PrivateKey, Result,
    authority::{body, extension, pem, sign},
    name, usage,
};
use x509_cert::{
    der::flagset::FlagSet,
    ext::{
        Extension,
        pkix::{
            AuthorityKeyIdentifier, BasicConstraints, KeyUsage, KeyUsages, SubjectAltName,
            SubjectKeyIdentifier,
        },
    },
};

/// How the common name of the authority of a plane's clients begins; the plane's identifier follows.
const AUTHORITY: &str = "freehold:plane:";

/// Derives the key that signs service account tokens in the pair of a plane, from one of the platform's keys.
///
/// # Errors
/// [`Error::Key`] where the platform's key is of a kind that nothing can be derived from.
pub fn pair_token_key(platform: &PrivateKey, plane: &str) -> Result<PrivateKey> {
    platform.derive(&format!("service account tokens of plane {plane}"))
}

/// Returns what the pair of a plane gets for the platform's keys, as PEM: its own key, which signs, then the public
/// keys that are also accepted in the plane.
///
/// # Errors
/// [`Error::NotPem`], [`Error::Malformed`] or [`Error::Key`] for `platform` texts that cannot be used.
pub fn pair_token_keys(platform: &str, plane: &str) -> Result<String> {
    let platform = PrivateKey::all_from_pem(platform)?;
    let own = platform.iter().map(|key| pair_token_key(key, plane)).collect::<Result<Vec<_>>>()?;
    let mut text = own.first().map(|key| key.pem().to_owned()).unwrap_or_default();
    for key in own.iter().skip(1).chain(&platform) {
        text.push_str(&key.public_pem()?);
    }
    Ok(text)
}

impl Authority {
    /// A secret for a purpose, which every server with this authority has without being told.
    ///
    /// # Errors
    /// [`Error::Key`] where this authority's key is of a kind that nothing can be derived from.
    pub fn derived_secret(&self, purpose: &str) -> Result<zeroize::Zeroizing<[u8; 32]>> {
        self.key.derive_secret(purpose)
    }

    /// The authority of the clients of one plane, below this one.
    ///
    /// What it issues has its certificate behind it, so that who trusts this authority and gets both finds the way. That
    /// certificate says to which plane it is bound, allows no authority below it, and vouches for clients only.
    ///
    /// # Errors
    /// [`Error::PathLength`] where this authority may have none below it.
    pub fn for_plane(&self, plane: &str) -> Result<Self> {
        let own = &self.certificate.tbs_certificate;
        let constraints = own.get::<BasicConstraints>().map_err(|e| Error::malformed("certificate", e))?;
        if constraints.is_some_and(|(_, constraints)| constraints.path_len_constraint == Some(0)) {
            return Err(Error::PathLength);
        }
        let key = self.key.derive(&format!("authority of the clients of plane {plane}"))?;
        let (subject, public) = (name::subject(&format!("{AUTHORITY}{plane}"), &[])?, key.public_info()?);
        let mut extensions = client_authority(&key, plane)?;
        let issuer_key = AuthorityKeyIdentifier {
            key_identifier: Some(self.key_identifier()?),
            authority_cert_issuer: None,
            authority_cert_serial_number: None,
        };
        extensions.push(extension(false, &issuer_key)?);
        let body = body(own.subject.clone(), subject, public, own.validity, &self.key, extensions)?;
        let certificate = sign(body, &self.key)?;
        let cert_pem = pem(&certificate)?;
        Ok(Self { certificate, chain: cert_pem.clone(), cert_pem, key })
    }

    /// The self-signed certificate of the authority of a plane's clients: a program that trusts it trusts the
    /// clients of this plane and no others. Some programs accept no authority as a root that another one has signed.
    ///
    /// # Errors
    /// [`Error::Key`] where this authority's key is of a kind that nothing can be derived from.
    pub fn root_for_plane(&self, plane: &str) -> Result<String> {
        let Self { certificate, key, .. } = self.for_plane(plane)?;
        let own = certificate.tbs_certificate;
        let (name, public) = (own.subject, own.subject_public_key_info);
        let extensions = client_authority(&key, plane)?;
        pem(&sign(body(name.clone(), name, public, own.validity, &key, extensions)?, &key)?)
    }
}

/// What the certificate of an authority of a plane's clients says of its key.
fn client_authority(key: &PrivateKey, plane: &str) -> Result<Vec<Extension>> {
    let signs: FlagSet<KeyUsages> = KeyUsages::DigitalSignature | KeyUsages::KeyCertSign | KeyUsages::CRLSign;
    let (_, clients) = usage::extensions(usage::CLIENT)?;
    let own = crate::authority::key_identifier(&key.public_info()?)?;
    Ok(vec![
        extension(true, &KeyUsage(signs))?,
        extension(true, &BasicConstraints { ca: true, path_len_constraint: Some(0) })?,
        extension(false, &clients)?,
        extension(false, &SubjectKeyIdentifier(own))?,
        extension(false, &SubjectAltName(vec![name::plane(plane)?]))?,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        CertificateInfo, ClientName, PlaneBinding, certificates_der, is_issued_by,
        read::{blocks, p256_public},
    };
    use std::time::Duration;

    #[test]
    fn each_plane_has_an_authority_of_its_own_below_the_platforms() {
        let platform = Authority::generate("ca").unwrap();
        let (a, b) = (platform.for_plane("a").unwrap(), platform.for_plane("b").unwrap());
        let client =
            ClientName { user: "jane", groups: &[], plane: Some(PlaneBinding { plane: "a", generation: 0 }) };
        let issued = a.issue_client(&client, Duration::from_secs(60)).unwrap();
        let ders = certificates_der(&issued.cert_pem).unwrap();
        let der = |pem: &str| certificates_der(pem).unwrap().remove(0);
        let root = |plane: &str| der(&platform.root_for_plane(plane).unwrap());
        assert_eq!(ders.len(), 2);
        assert!(is_issued_by(&ders[0], &root("a")) && is_issued_by(&ders[0], &ders[1]));
        assert!(is_issued_by(&ders[1], &der(platform.cert_pem())));
        assert!(!is_issued_by(&ders[0], &root("b")) && !is_issued_by(&ders[0], &der(platform.cert_pem())));
        let below = CertificateInfo::parse(&ders[1]).unwrap();
        assert!(below.is_ca && below.planes() == ["a"]);
        let again = platform.for_plane("a").unwrap();
        assert!(
            again.is(a.cert_pem())
                && !again.is(b.cert_pem())
                && !again.is(platform.cert_pem())
                && !again.is("?")
        );
    }

    #[test]
    fn a_pair_has_one_private_key_and_public_keys_of_all_that_are_believed() {
        let (now, before) = (PrivateKey::generate().unwrap(), PrivateKey::generate().unwrap());
        let bundle = format!("{}{}", now.pem(), before.pem());
        let text = pair_token_keys(&bundle, "a").unwrap();
        let labels: Vec<_> = blocks(&text).map(|(label, _)| label).collect();
        assert_eq!(labels, ["PRIVATE KEY", "PUBLIC KEY", "PUBLIC KEY", "PUBLIC KEY"]);
        assert_eq!(PrivateKey::from_pem(&text).unwrap().pem(), pair_token_key(&now, "a").unwrap().pem());
        let public: Vec<_> = blocks(&text).skip(1).map(|(_, block)| p256_public(block).unwrap().0).collect();
        let expected =
            [&pair_token_key(&before, "a").unwrap(), &now, &before].map(|key| key.public_der().unwrap());
        assert_eq!(public, expected);
        assert_eq!(pair_token_keys(&bundle, "a").unwrap(), text, "the same each time");
    }

    #[test]
    fn keys_differ_by_plane_and_by_the_key_that_they_follow_from() {
        let keys = [PrivateKey::generate().unwrap(), PrivateKey::generate().unwrap()];
        let mut points: Vec<_> = keys
            .iter()
            .flat_map(|key| ["a", "b"].map(|plane| pair_token_key(key, plane).unwrap().public_der().unwrap()))
            .chain(keys.iter().map(|key| key.public_der().unwrap()))
            .collect();
        points.sort();
        points.dedup();
        assert_eq!(points.len(), 6);
    }

    #[test]
    fn a_key_follows_from_the_key_and_not_from_the_form_of_its_file() {
        let key = PrivateKey::generate().unwrap();
        let traditional = PrivateKey::from_pem(&key.traditional_pem().unwrap()).unwrap();
        assert_eq!(
            pair_token_key(&key, "a").unwrap().pem(),
            pair_token_key(&traditional, "a").unwrap().pem()
        );
    }
}
