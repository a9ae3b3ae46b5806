//! The keys of service account tokens.
//!
//! One set serves all planes: what keeps planes apart are the claims. The first key signs; the others are still
//! believed, so that keys can be changed without ending every token.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use freehold_machinery::user::Voucher;
use freehold_pki::PrivateKey;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fmt;

/// Why a key can't sign tokens.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// No private key in there.
    #[error("the key can't be read")]
    Unreadable(#[from] freehold_pki::Error),
    /// Tokens are signed with ES256 only.
    #[error("only ECDSA P-256 keys sign tokens")]
    NotP256,
    /// The token library's word.
    #[error("the key is refused")]
    Refused(#[from] jsonwebtoken::errors::Error),
}

/// Keys that sign and verify tokens.
pub struct KeySet {
    signing: EncodingKey,
    public: Vec<PublicKey>,
}

pub(crate) struct PublicKey {
    id: String,
    pub(crate) key: DecodingKey,
    /// For those whose tokens it signed: withdrawn when it is not among the keys any more.
    pub(crate) voucher: Voucher,
    x: String,
    y: String,
}

impl KeySet {
    /// The key that signs, and further ones that are believed, each an ECDSA P-256 private key in PEM form.
    pub fn from_pem(signing: &str, retired: &[&str]) -> Result<Self, KeyError> {
        let key = PrivateKey::from_pem(signing)?;
        let public = std::iter::once(signing).chain(retired.iter().copied()).map(PublicKey::from_pem);
        let public = public.collect::<Result<_, _>>()?;
        Ok(Self { signing: EncodingKey::from_ec_pem(key.pem().as_bytes())?, public })
    }

    /// All keys of a PEM text: the first signs, the others are believed still.
    pub fn from_bundle(text: &str) -> Result<Self, KeyError> {
        const BEGIN: &str = "-----BEGIN";
        let starts: Vec<usize> = text.match_indices(BEGIN).map(|(at, _)| at).collect();
        let ends = starts.iter().skip(1).copied().chain([text.len()]);
        let keys: Vec<&str> = starts.iter().zip(ends).map(|(start, end)| &text[*start..end]).collect();
        match keys.split_first() {
            Some((signing, retired)) => Self::from_pem(signing, retired),
            None => Self::from_pem(text, &[]),
        }
    }

    /// The JSON Web Key Set that others verify tokens with (RFC 7517).
    pub fn jwks(&self) -> Value {
        let key = |k: &PublicKey| json!({"use": "sig", "kty": "EC", "kid": k.id, "crv": "P-256", "alg": "ES256", "x": k.x, "y": k.y});
        json!({"keys": self.public.iter().map(key).collect::<Vec<_>>()})
    }

    pub(crate) fn sign(&self, claims: &impl serde::Serialize) -> Result<String, jsonwebtoken::errors::Error> {
        let mut header = Header::new(Algorithm::ES256);
        header.typ = None;
        header.kid = self.public.first().map(|key| key.id.clone());
        jsonwebtoken::encode(&header, claims, &self.signing)
    }

    /// The key of that identifier. A token without one is tried with the signing key.
    pub(crate) fn find(&self, id: Option<&str>) -> Option<&PublicKey> {
        match id {
            Some(id) => self.public.iter().find(|key| key.id == id),
            None => self.public.first(),
        }
    }

    /// Takes the place of other keys: those that are the same vouch for the same ones.
    pub(crate) fn follow(&mut self, before: &Self) {
        for key in &mut self.public {
            if let Some(known) = before.find(Some(&key.id)) {
                key.voucher = known.voucher.clone();
            }
        }
    }

    /// From now on nobody is believed for a key that is not among others.
    pub(crate) fn withdraw_unless_in(&self, others: &Self) {
        for key in self.public.iter().filter(|key| others.find(Some(&key.id)).is_none()) {
            key.voucher.withdraw();
        }
    }
}

impl PublicKey {
    fn from_pem(pem: &str) -> Result<Self, KeyError> {
        let private = PrivateKey::from_pem(pem)?;
        let point = private.p256_point().filter(|point| point.len() == 65).ok_or(KeyError::NotP256)?;
        let (x, y) = (URL_SAFE_NO_PAD.encode(&point[1..33]), URL_SAFE_NO_PAD.encode(&point[33..]));
        let key = DecodingKey::from_ec_components(&x, &y)?;
        let id = URL_SAFE_NO_PAD.encode(Sha256::digest(private.public_der()?));
        Ok(Self { id, key, voucher: Voucher::default(), x, y })
    }
}

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.public.iter().map(|key| &key.id)).finish()
    }
}
