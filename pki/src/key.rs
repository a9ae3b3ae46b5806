//! Private keys: making, reading, signing.

use crate::{Error, Result};
use aws_lc_rs::{
    encoding::{AsBigEndian, AsDer, EcPrivateKeyBin, EcPrivateKeyRfc5915Der, Pkcs8V1Der, PublicKeyX509Der},
    hkdf::{HKDF_SHA256, Salt},
    rand::SystemRandom,
    rsa,
    signature::{self, EcdsaKeyPair, EcdsaSigningAlgorithm, KeyPair},
};
use std::fmt;
use x509_cert::{
    der::{Any, Decode, Encode, asn1::Null, pem},
    spki::{AlgorithmIdentifierOwned, ObjectIdentifier, SubjectPublicKeyInfoOwned},
};
use x509_parser::pem::Pem;
use zeroize::Zeroizing;

const ECDSA_SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.2");
const ECDSA_SHA384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.3");
const RSA_SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.11");

/// The curves that are read, and with which digest they sign.
static CURVES: [(&EcdsaSigningAlgorithm, ObjectIdentifier); 2] = [
    (&signature::ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_SHA256),
    (&signature::ECDSA_P384_SHA384_ASN1_SIGNING, ECDSA_SHA384),
];

/// A private key with its PEM text.
pub struct PrivateKey {
    pem: String,
    pair: Pair,
}

enum Pair {
    Ec(EcdsaKeyPair, ObjectIdentifier),
    Rsa(rsa::KeyPair),
}

impl PrivateKey {
    /// Generates an ECDSA P-256 key, which serves certificates and signs service account tokens (ES256).
    ///
    /// # Errors
    /// [`Error::Key`] where the system's random source fails.
    pub fn generate() -> Result<Self> {
        Self::p256(
            EcdsaKeyPair::generate(&signature::ECDSA_P256_SHA256_ASN1_SIGNING).map_err(|_| Error::Key)?,
        )
    }

    fn p256(pair: EcdsaKeyPair) -> Result<Self> {
        let pkcs8 = pair.to_pkcs8v1().map_err(|_| Error::Key)?;
        let pem = pem::encode_string("PRIVATE KEY", pem::LineEnding::LF, pkcs8.as_ref())
            .map_err(|e| Error::malformed("private key", e))?;
        Ok(Self { pem, pair: Pair::Ec(pair, ECDSA_SHA256) })
    }

    /// Derives an ECDSA P-256 key for a purpose (HKDF, RFC 5869): the same key each time, which reveals neither this
    /// key nor that of another purpose.
    ///
    /// # Errors
    /// [`Error::Key`] for keys that nothing can be derived from.
    pub fn derive(&self, purpose: &str) -> Result<Self> {
        let secret = self.pair.secret()?;
        let extracted = Salt::new(HKDF_SHA256, b"freehold derived key 1").extract(&secret);
        // Not each number is a key of the curve; the first one is but for one in 2^32.
        (0..=u8::MAX)
            .find_map(|attempt| {
                let mut scalar = Zeroizing::new([0; 32]);
                let info = [purpose.as_bytes(), &[0, attempt]];
                extracted.expand(&info, HKDF_SHA256).ok()?.fill(&mut scalar[..]).ok()?;
                EcdsaKeyPair::from_private_key_der(CURVES[0].0, &sec1(&scalar)).ok()
            })
            .ok_or(Error::Key)
            .and_then(Self::p256)
    }

    /// A secret for a purpose, which follows from this key and does not lead back to it.
    ///
    /// # Errors
    /// [`Error::Key`] for a key of a kind that nothing can be derived from.
    pub(crate) fn derive_secret(&self, purpose: &str) -> Result<Zeroizing<[u8; 32]>> {
        let secret = self.pair.secret()?;
        let extracted = Salt::new(HKDF_SHA256, b"freehold derived secret 1").extract(&secret);
        let mut derived = Zeroizing::new([0; 32]);
        let filled =
            extracted.expand(&[purpose.as_bytes()], HKDF_SHA256).and_then(|okm| okm.fill(&mut derived[..]));
        filled.map_err(|_| Error::Key)?;
        Ok(derived)
    }

    /// Reads all private keys of a PEM text, of which there is at least one.
    ///
    /// # Errors
    /// [`Error::NotPem`] without a key, [`Error::Malformed`] or [`Error::Key`] for one that cannot be used.
    pub fn all_from_pem(text: &str) -> Result<Vec<Self>> {
        let keys: Vec<Self> = crate::read::blocks(text)
            .filter(|(label, _)| label.ends_with("PRIVATE KEY"))
            .map(|(_, block)| Self::from_pem(block))
            .collect::<Result<_>>()?;
        if keys.is_empty() { Err(Error::NotPem("private key")) } else { Ok(keys) }
    }

    /// Reads the first private key of a PEM text: PKCS#8, SEC 1 (`EC PRIVATE KEY`) or PKCS#1 (`RSA PRIVATE KEY`).
    ///
    /// # Errors
    /// [`Error::NotPem`] without a key, [`Error::Malformed`] or [`Error::Key`] for one that cannot be used.
    pub fn from_pem(text: &str) -> Result<Self> {
        let block = Pem::iter_from_buffer(text.as_bytes())
            .filter_map(|block| block.ok())
            .find(|block| block.label.ends_with("PRIVATE KEY"))
            .ok_or(Error::NotPem("private key"))?;
        let pair = Pair::from_der(&block.contents).ok_or(Error::Key)?;
        let pem = pem::encode_string(&block.label, pem::LineEnding::LF, &block.contents)
            .map_err(|e| Error::malformed("private key", e))?;
        Ok(Self { pem, pair })
    }

    /// The key as PEM text. Of generated keys PKCS#8, of others what was read.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// The key as PEM text whose first line names its kind: SEC 1 (`EC PRIVATE KEY`) for elliptic curves. Java's
    /// clients take any other form for RSA.
    ///
    /// # Errors
    /// [`Error::Key`] or [`Error::Malformed`] where the key cannot be written in that form.
    pub fn traditional_pem(&self) -> Result<String> {
        let Pair::Ec(pair, _) = &self.pair else { return Ok(self.pem.clone()) };
        let private = pair.private_key();
        let der: EcPrivateKeyRfc5915Der<'_> = private.as_der().map_err(|_| Error::Key)?;
        pem::encode_string("EC PRIVATE KEY", pem::LineEnding::LF, der.as_ref())
            .map_err(|e| Error::malformed("private key", e))
    }

    /// The public key as DER `SubjectPublicKeyInfo`.
    ///
    /// # Errors
    /// [`Error::Key`] where the key cannot be written in that form.
    pub fn public_der(&self) -> Result<Vec<u8>> {
        let der: Result<PublicKeyX509Der<'_>, _> = match &self.pair {
            Pair::Ec(pair, _) => pair.public_key().as_der(),
            Pair::Rsa(pair) => pair.public_key().as_der(),
        };
        Ok(der.map_err(|_| Error::Key)?.as_ref().to_vec())
    }

    /// The public key as a PEM text (`PUBLIC KEY`).
    ///
    /// # Errors
    /// [`Error::Key`] or [`Error::Malformed`] where the key cannot be written in that form.
    pub fn public_pem(&self) -> Result<String> {
        pem::encode_string("PUBLIC KEY", pem::LineEnding::LF, &self.public_der()?)
            .map_err(|e| Error::malformed("public key", e))
    }

    /// The uncompressed point of a P-256 key: 4, then 32 bytes of x, then 32 bytes of y. `None` for other keys.
    pub fn p256_point(&self) -> Option<&[u8]> {
        match &self.pair {
            Pair::Ec(pair, algorithm) if *algorithm == ECDSA_SHA256 => Some(pair.public_key().as_ref()),
            _ => None,
        }
    }

    pub(crate) fn public_info(&self) -> Result<SubjectPublicKeyInfoOwned> {
        SubjectPublicKeyInfoOwned::from_der(&self.public_der()?)
            .map_err(|e| Error::malformed("public key", e))
    }

    pub(crate) fn algorithm(&self) -> AlgorithmIdentifierOwned {
        match &self.pair {
            Pair::Ec(_, oid) => AlgorithmIdentifierOwned { oid: *oid, parameters: None },
            Pair::Rsa(_) => AlgorithmIdentifierOwned { oid: RSA_SHA256, parameters: Some(Any::from(Null)) },
        }
    }

    pub(crate) fn sign(&self, message: &impl Encode) -> Result<Vec<u8>> {
        let message = message.to_der().map_err(|e| Error::malformed("certificate", e))?;
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Ec(pair, _) => pair.sign(&random, &message).map(|s| s.as_ref().to_vec()),
            Pair::Rsa(pair) => {
                let mut out = vec![0; pair.public_modulus_len()];
                pair.sign(&signature::RSA_PKCS1_SHA256, &random, &message, &mut out).map(|()| out)
            }
        }
        .map_err(|_| Error::Key)
    }
}

/// A P-256 private key as SEC 1 has it, its public key left out.
fn sec1(scalar: &[u8; 32]) -> Zeroizing<Vec<u8>> {
    const HEAD: [u8; 7] = [0x30, 0x31, 0x02, 0x01, 0x01, 0x04, 0x20];
    const CURVE: [u8; 12] = [0xa0, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
    Zeroizing::new([&HEAD[..], scalar, &CURVE].concat())
}

impl Pair {
    /// The secret of a key, however its file has it.
    fn secret(&self) -> Result<Zeroizing<Vec<u8>>> {
        let bytes = match self {
            Self::Ec(pair, _) => {
                let bin: Result<EcPrivateKeyBin<'_>, _> = pair.private_key().as_be_bytes();
                bin.map(|bin| bin.as_ref().to_vec())
            }
            Self::Rsa(pair) => {
                let der: Result<Pkcs8V1Der<'_>, _> = pair.as_der();
                der.map(|der| der.as_ref().to_vec())
            }
        };
        bytes.map(Zeroizing::new).map_err(|_| Error::Key)
    }

    fn from_der(der: &[u8]) -> Option<Self> {
        let ec = CURVES.iter().find_map(|(curve, oid)| {
            let pair = EcdsaKeyPair::from_private_key_der(curve, der)
                .or_else(|_| EcdsaKeyPair::from_pkcs8(curve, der));
            Some(Self::Ec(pair.ok()?, *oid))
        });
        let rsa =
            || rsa::KeyPair::from_pkcs8(der).or_else(|_| rsa::KeyPair::from_der(der)).ok().map(Self::Rsa);
        ec.or_else(rsa)
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey")
    }
}
