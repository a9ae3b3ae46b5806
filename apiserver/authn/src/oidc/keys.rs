//! The keys of an issuer (RFC 7517), and signatures that they verify (RFC 7515).

use aws_lc_rs::signature::{ECDSA_P521_SHA512_FIXED, UnparsedPublicKey};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use freehold_machinery::{Map, Value};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;

/// How many keys of an issuer are kept.
const MAX_KEYS: usize = 128;
/// Bytes of a coordinate of P-521.
const P521: usize = 66;

/// A token, taken apart and not verified.
pub(crate) struct Signed<'a> {
    algorithm: String,
    kid: String,
    message: &'a str,
    signature: &'a str,
    /// What it claims.
    pub(crate) claims: Map,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: String,
    #[serde(default)]
    crit: Option<Value>,
}

impl<'a> Signed<'a> {
    /// Reads a compact token; `None` for anything else, and for one with critical headers, of which none is known.
    pub(crate) fn parse(token: &'a str) -> Option<Self> {
        let (message, signature) = token.rsplit_once('.')?;
        let (header, payload) = message.split_once('.')?;
        let decoded = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
        let header: Header = serde_json::from_slice(&decoded(header)?).ok()?;
        let claims = serde_json::from_slice(&decoded(payload)?).ok()?;
        let plain = header.crit.is_none() && !payload.contains('.');
        plain.then_some(Self { algorithm: header.alg, kid: header.kid, message, signature, claims })
    }
}

enum Material {
    Known(DecodingKey),
    P521(Vec<u8>),
}

struct RemoteKey {
    kid: String,
    /// The one algorithm that it is for; empty for all of its family.
    alg: String,
    family: Family,
    material: Material,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    Rsa,
    P256,
    P384,
    P521,
}

/// What the keys say of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Verified,
    /// There is no key of its identifier: it may be new.
    UnknownKey,
    Refused,
}

/// The keys of an issuer.
pub(crate) struct RemoteKeys(Vec<RemoteKey>);

#[derive(Deserialize)]
struct Set {
    keys: Vec<Jwk>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    #[serde(default)]
    kid: String,
    #[serde(default)]
    alg: String,
    #[serde(default, rename = "use")]
    usage: String,
    #[serde(default)]
    crv: String,
    #[serde(default)]
    n: String,
    #[serde(default)]
    e: String,
    #[serde(default)]
    x: String,
    #[serde(default)]
    y: String,
}

impl RemoteKeys {
    /// Reads a key set. Keys of other kinds or for other uses are left out.
    pub(crate) fn parse(json: &[u8]) -> Result<Self, String> {
        let set: Set =
            serde_json::from_slice(json).map_err(|error| format!("the key set can't be read: {error}"))?;
        let keys: Vec<RemoteKey> = set.keys.into_iter().filter_map(RemoteKey::read).take(MAX_KEYS).collect();
        if keys.is_empty() {
            Err("the key set has no keys that are known".to_owned())
        } else {
            Ok(Self(keys))
        }
    }

    /// Whether one of the keys signed a token.
    pub(crate) fn verify(&self, token: &Signed<'_>) -> Verdict {
        let Some(family) = family(&token.algorithm) else { return Verdict::Refused };
        let mut named = self.0.iter().filter(|key| token.kid.is_empty() || key.kid == token.kid).peekable();
        if named.peek().is_none() {
            return Verdict::UnknownKey;
        }
        let fits =
            |key: &&RemoteKey| key.family == family && (key.alg.is_empty() || key.alg == token.algorithm);
        match named.filter(fits).any(|key| key.signed(token)) {
            true => Verdict::Verified,
            // Its identifier may have been given to another key.
            false if token.kid.is_empty() => Verdict::UnknownKey,
            false => Verdict::Refused,
        }
    }
}

/// The family of an algorithm that is accepted: those that kube-apiserver accepts, none of them symmetric.
fn family(algorithm: &str) -> Option<Family> {
    Some(match algorithm {
        "RS256" | "RS384" | "RS512" | "PS256" | "PS384" | "PS512" => Family::Rsa,
        "ES256" => Family::P256,
        "ES384" => Family::P384,
        "ES512" => Family::P521,
        _ => return None,
    })
}

impl RemoteKey {
    fn read(jwk: Jwk) -> Option<Self> {
        if !["", "sig"].contains(&jwk.usage.as_str()) {
            return None;
        }
        let ec = |x: &str, y: &str| DecodingKey::from_ec_components(x, y).ok().map(Material::Known);
        let (family, material) = match (jwk.kty.as_str(), jwk.crv.as_str()) {
            ("RSA", _) => {
                (Family::Rsa, Material::Known(DecodingKey::from_rsa_components(&jwk.n, &jwk.e).ok()?))
            }
            ("EC", "P-256") => (Family::P256, ec(&jwk.x, &jwk.y)?),
            ("EC", "P-384") => (Family::P384, ec(&jwk.x, &jwk.y)?),
            ("EC", "P-521") => (Family::P521, Material::P521(point(&jwk.x, &jwk.y)?)),
            _ => return None,
        };
        Some(Self { kid: jwk.kid, alg: jwk.alg, family, material })
    }

    fn signed(&self, token: &Signed<'_>) -> bool {
        match &self.material {
            Material::Known(key) => {
                let algorithm = token.algorithm.parse::<Algorithm>();
                algorithm.is_ok_and(|algorithm| {
                    jsonwebtoken::crypto::verify(token.signature, token.message.as_bytes(), key, algorithm)
                        .unwrap_or(false)
                })
            }
            Material::P521(point) => {
                let Ok(signature) = URL_SAFE_NO_PAD.decode(token.signature) else { return false };
                let key = UnparsedPublicKey::new(&ECDSA_P521_SHA512_FIXED, point);
                key.verify(token.message.as_bytes(), &signature).is_ok()
            }
        }
    }
}

/// An uncompressed point.
fn point(x: &str, y: &str) -> Option<Vec<u8>> {
    let mut point = vec![4];
    for coordinate in [x, y] {
        let bytes = URL_SAFE_NO_PAD.decode(coordinate).ok().filter(|bytes| bytes.len() <= P521)?;
        point.extend(std::iter::repeat_n(0, P521 - bytes.len()));
        point.extend(bytes);
    }
    Some(point)
}
