//! Usages of a certificate, in the words of `certificates.k8s.io` (`spec.usages`).

use crate::{Error, Result};
use x509_cert::{
    der::flagset::FlagSet,
    ext::pkix::{ExtendedKeyUsage, KeyUsage, KeyUsages},
    spki::ObjectIdentifier,
};

/// A serving certificate's usages.
pub const SERVER: &[&str] = &["digital signature", "key encipherment", "server auth"];
/// A client certificate's usages.
pub const CLIENT: &[&str] = &["digital signature", "key encipherment", "client auth"];
/// The usages of a certificate for both directions.
pub const PEER: &[&str] = &["digital signature", "key encipherment", "server auth", "client auth"];

enum Bit {
    Key(KeyUsages),
    Extended(&'static str),
}

/// <https://kubernetes.io/docs/reference/kubernetes-api/authentication-resources/certificate-signing-request-v1/>
const USAGES: &[(&str, Bit)] = &[
    ("signing", Bit::Key(KeyUsages::DigitalSignature)),
    ("digital signature", Bit::Key(KeyUsages::DigitalSignature)),
    ("content commitment", Bit::Key(KeyUsages::NonRepudiation)),
    ("key encipherment", Bit::Key(KeyUsages::KeyEncipherment)),
    ("key agreement", Bit::Key(KeyUsages::KeyAgreement)),
    ("data encipherment", Bit::Key(KeyUsages::DataEncipherment)),
    ("cert sign", Bit::Key(KeyUsages::KeyCertSign)),
    ("crl sign", Bit::Key(KeyUsages::CRLSign)),
    ("encipher only", Bit::Key(KeyUsages::EncipherOnly)),
    ("decipher only", Bit::Key(KeyUsages::DecipherOnly)),
    ("any", Bit::Extended("2.5.29.37.0")),
    ("server auth", Bit::Extended("1.3.6.1.5.5.7.3.1")),
    ("client auth", Bit::Extended("1.3.6.1.5.5.7.3.2")),
    ("code signing", Bit::Extended("1.3.6.1.5.5.7.3.3")),
    ("email protection", Bit::Extended("1.3.6.1.5.5.7.3.4")),
    ("s/mime", Bit::Extended("1.3.6.1.5.5.7.3.4")),
    ("ipsec end system", Bit::Extended("1.3.6.1.5.5.7.3.5")),
    ("ipsec tunnel", Bit::Extended("1.3.6.1.5.5.7.3.6")),
    ("ipsec user", Bit::Extended("1.3.6.1.5.5.7.3.7")),
    ("timestamping", Bit::Extended("1.3.6.1.5.5.7.3.8")),
    ("ocsp signing", Bit::Extended("1.3.6.1.5.5.7.3.9")),
    ("microsoft sgc", Bit::Extended("1.3.6.1.4.1.311.10.3.3")),
    ("netscape sgc", Bit::Extended("2.16.840.1.113730.4.1")),
];

/// The two usage extensions for a list of usages. Fails on one that Kubernetes does not define.
pub(crate) fn extensions<S: AsRef<str>>(usages: &[S]) -> Result<(KeyUsage, ExtendedKeyUsage)> {
    let mut key: FlagSet<KeyUsages> = FlagSet::default();
    let mut extended = Vec::new();
    for usage in usages {
        let usage = usage.as_ref();
        match USAGES.iter().find(|(name, _)| *name == usage).map(|(_, bit)| bit) {
            Some(Bit::Key(bit)) => key |= *bit,
            Some(Bit::Extended(oid)) => extended.push(ObjectIdentifier::new_unwrap(oid)),
            None => return Err(Error::Usage(usage.to_owned())),
        }
    }
    extended.sort();
    extended.dedup();
    Ok((KeyUsage(key), ExtendedKeyUsage(extended)))
}
