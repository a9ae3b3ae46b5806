//! The server's proof that a binding was made by somebody who was allowed to make it, in this plane.

use aws_lc_rs::hmac;
use freehold_machinery::PlaneId;

/// What is put before everything that is proved.
const PURPOSE: &str = "freehold binding 1";

/// The key of proofs: the same on all servers of a store.
pub struct ProofKey(hmac::Key);

impl ProofKey {
    /// A key from a secret that all servers of a store have, and nobody else.
    pub fn new(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// The proof that a plane may consume an export: `(consumer, provider's plane, export)`.
    pub fn prove(&self, about: (&PlaneId, &str, &str)) -> String {
        hex::encode(hmac::sign(&self.0, text(about).as_bytes()))
    }

    /// Whether a proof is that of [`prove`](Self::prove).
    pub fn verify(&self, about: (&PlaneId, &str, &str), proof: &str) -> bool {
        let Ok(proof) = hex::decode(proof) else { return false };
        hmac::verify(&self.0, text(about).as_bytes(), &proof).is_ok()
    }
}

/// Names have no line breaks, so that no two questions have one text.
fn text((consumer, provider, export): (&PlaneId, &str, &str)) -> String {
    format!("{PURPOSE}\n{consumer}\n{provider}\n{export}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_of_one_plane_and_one_export() {
        let (key, other) = (ProofKey::new(b"secret"), ProofKey::new(b"another"));
        let [web, shop]: [PlaneId; 2] = ["web", "shop"].map(|id| id.parse().unwrap());
        let proof = key.prove((&web, "db", "postgres"));
        assert!(key.verify((&web, "db", "postgres"), &proof));
        assert!(!key.verify((&shop, "db", "postgres"), &proof));
        assert!(!key.verify((&web, "db", "mysql"), &proof));
        assert!(!other.verify((&web, "db", "postgres"), &proof));
        assert!(!key.verify((&web, "db", "postgres"), "") && !key.verify((&web, "db", "postgres"), "zz"));
    }
}
