//! The keys of service account tokens.
//!
//! The platform's keys serve all planes: what keeps planes apart are the claims. The first key signs; the others are still
//! believed, so that keys can be changed without ending every token. The pair of a dedicated plane signs with a key of its
//! own, which follows from the platform's and is believed in that plane alone.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use freehold_machinery::{PlaneId, user::Voucher};
use freehold_pki::{
    PrivateKey, pair_token_key,
    read::{blocks, p256_public},
};
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
    /// The key itself, where it is known.
    private: Option<PrivateKey>,
    pub(crate) key: DecodingKey,
    /// For those whose tokens it signed: withdrawn when it is not among the keys any more.
    pub(crate) voucher: Voucher,
    x: String,
    y: String,
}

impl KeySet {
    /// Reads the signing key, an ECDSA P-256 private key in PEM form, and further keys that are accepted, private or
    /// public.
    ///
    /// # Errors
    /// [`KeyError`] for text without a private key, or a signing key of another kind.
    pub fn from_pem(signing: &str, believed: &[&str]) -> Result<Self, KeyError> {
        let key = PrivateKey::from_pem(signing)?;
        let public = std::iter::once(signing).chain(believed.iter().copied()).map(PublicKey::from_pem);
        let public = public.collect::<Result<_, _>>()?;
        Ok(Self { signing: EncodingKey::from_ec_pem(key.pem().as_bytes())?, public })
    }

    /// Reads all keys of a PEM text: the first signs, the others are accepted too.
    ///
    /// # Errors
    /// [`KeyError`] for text without a private key, or a signing key of another kind.
    pub fn from_bundle(text: &str) -> Result<Self, KeyError> {
        let keys: Vec<&str> = blocks(text).map(|(_, block)| block).collect();
        match keys.split_first() {
            Some((signing, believed)) => Self::from_pem(signing, believed),
            None => Self::from_pem(text, &[]),
        }
    }

    /// The JSON Web Key Set that others verify tokens with (RFC 7517), with the keys of a plane's pair behind these.
    pub(crate) fn jwks(&self, pair: &[PublicKey]) -> Value {
        let key = |k: &PublicKey| json!({"use": "sig", "kty": "EC", "kid": k.id, "crv": "P-256", "alg": "ES256", "x": k.x, "y": k.y});
        json!({"keys": self.public.iter().chain(pair).map(key).collect::<Vec<_>>()})
    }

    /// The keys of the pair of a plane, one for each of these. Each is believed for as long as the one that it follows from.
    pub(crate) fn of_pair(&self, plane: &PlaneId) -> Result<Vec<PublicKey>, KeyError> {
        let known = self.public.iter().filter_map(|key| Some((key.private.as_ref()?, &key.voucher)));
        known
            .map(|(key, voucher)| {
                let own = PublicKey::of(pair_token_key(key, plane.as_str())?)?;
                Ok(PublicKey { voucher: voucher.clone(), ..own })
            })
            .collect()
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
        match p256_public(pem) {
            Some((der, point)) => Self::new(&der, &point, None),
            None => Self::of(PrivateKey::from_pem(pem)?),
        }
    }

    fn of(private: PrivateKey) -> Result<Self, KeyError> {
        let point = private.p256_point().filter(|point| point.len() == 65).ok_or(KeyError::NotP256)?.to_vec();
        Self::new(&private.public_der()?, &point, Some(private))
    }

    fn new(der: &[u8], point: &[u8], private: Option<PrivateKey>) -> Result<Self, KeyError> {
        let (x, y) = (URL_SAFE_NO_PAD.encode(&point[1..33]), URL_SAFE_NO_PAD.encode(&point[33..]));
        let key = DecodingKey::from_ec_components(&x, &y)?;
        let id = URL_SAFE_NO_PAD.encode(Sha256::digest(der));
        Ok(Self { id, private, key, voucher: Voucher::default(), x, y })
    }

    /// Whether it has that identifier.
    pub(crate) fn is(&self, id: &str) -> bool {
        self.id == id
    }
}

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.public.iter().map(|key| &key.id)).finish()
    }
}
