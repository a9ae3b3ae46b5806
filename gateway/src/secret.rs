//! Random identifiers, of which only hashes are kept.

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};

/// The hash of a secret, by which it is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Hash([u8; 32]);

/// The hash of a text.
pub(crate) fn hash(text: &str) -> Hash {
    Hash(Sha256::digest(text.as_bytes()).into())
}

/// A new secret of 256 bits, as text for cookies and URLs.
pub fn fresh() -> String {
    let mut bytes = [0_u8; 32];
    aws_lc_rs::rand::fill(&mut bytes).expect("the system gives random bytes");
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The challenge of a verifier (RFC 7636, S256).
pub fn challenge(verifier: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()))
}

/// The claims of a token, unverified.
pub fn claims(token: &str) -> Option<serde_json::Value> {
    let payload = token.split('.').nth(1)?;
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload.trim_end_matches('=')).ok()?).ok()
}

/// Seals what a browser keeps for this process: others can neither read nor write it.
pub(crate) struct Seal(RandomizedNonceKey);

impl Seal {
    /// A seal with a key that is nowhere else.
    pub(crate) fn new() -> Self {
        let mut key = [0_u8; 32];
        aws_lc_rs::rand::fill(&mut key).expect("the system gives random bytes");
        Self(RandomizedNonceKey::new(&AES_256_GCM, &key).expect("a key of 32 bytes"))
    }

    /// Text for a cookie.
    pub(crate) fn seal(&self, mut data: Vec<u8>) -> String {
        let nonce = self.0.seal_in_place_append_tag(Aad::empty(), &mut data).expect("data of some bytes");
        URL_SAFE_NO_PAD.encode([nonce.as_ref().as_slice(), &data].concat())
    }

    /// What was sealed; `None` for what this seal did not.
    pub(crate) fn open(&self, text: &str) -> Option<Vec<u8>> {
        let all = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (nonce, data) = all.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut data = data.to_vec();
        Some(self.0.open_in_place(nonce, Aad::empty(), &mut data).ok()?.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_differ_and_challenges_follow_the_standard() {
        assert_ne!(fresh(), fresh());
        assert_eq!(fresh().len(), 43);
        // RFC 7636, appendix B.
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        assert_eq!(challenge(verifier), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }

    #[test]
    fn what_is_sealed_is_opened_by_the_same_seal_alone() {
        let (seal, other) = (Seal::new(), Seal::new());
        let text = seal.seal(b"state".to_vec());
        assert_eq!(seal.open(&text).as_deref(), Some(&b"state"[..]));
        assert_ne!(text, seal.seal(b"state".to_vec()));
        let mut changed = text.clone();
        changed.replace_range(20..21, if &text[20..21] == "A" { "B" } else { "A" });
        for wrong in [other.seal(b"state".to_vec()), changed, String::new(), "AAAA".to_owned()] {
            assert_eq!(seal.open(&wrong), None);
        }
    }
}
