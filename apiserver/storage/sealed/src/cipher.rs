//! AES-256-GCM: data keys seal values, key-encryption keys seal data keys.
//!
//! **Why no nonce repeats.** A data key seals in the one process that made it and only while that process runs: it is
//! made at the first value that needs it, and what others (or a later start) read from the store is used to open alone.
//! Each nonce is 96 random bits, drawn by the library for the call. A key is replaced after [`MAX_SEALED`] = 2^28 values,
//! so the chance that any two nonces under it are equal is below 2^(2·28 − 1 − 96) = 2^-41, well inside of what NIST
//! SP 800-38D (8.3) allows random nonces (2^32 values, 2^-32). Random rather than counted, because a virtual machine that
//! is copied while it runs copies its counters too.

use crate::format::{NONCE, TAG};
use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey},
    rand,
};
use std::sync::atomic::{AtomicU64, Ordering};
use zeroize::Zeroizing;

/// Bytes of a key.
pub(crate) const KEY: usize = 32;
/// How many values one data key seals.
pub(crate) const MAX_SEALED: u64 = 1 << 28;

/// The bytes of a key; wiped when they are dropped, and never printed.
pub(crate) type KeyBytes = Zeroizing<[u8; KEY]>;

/// Why something can't be sealed or opened. There is nothing more to say without helping who tampers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refused;

/// A key that seals and opens.
pub(crate) struct Cipher(RandomizedNonceKey);

impl Cipher {
    /// From a key's bytes. The library wipes its copy when it is dropped.
    pub(crate) fn new(key: &KeyBytes) -> Result<Self, Refused> {
        RandomizedNonceKey::new(&AES_256_GCM, &key[..]).map(Self).map_err(|_| Refused)
    }

    /// Seals what lies in `out` from `from` on. The bytes before are authenticated together with `context`; nonce,
    /// ciphertext and tag follow them.
    pub(crate) fn seal(&self, context: &[u8], out: &mut Vec<u8>, from: usize) -> Result<(), Refused> {
        let additional = [&out[..from], context].concat();
        let length = out.len();
        out.resize(length + NONCE + TAG, 0);
        out.copy_within(from..length, from + NONCE);
        let text = from + NONCE..length + NONCE;
        let sealed = self.0.seal_in_place_separate_tag(Aad::from(&additional), &mut out[text.clone()]);
        let (nonce, tag) = sealed.map_err(|_| Refused)?;
        out[from..text.start].copy_from_slice(nonce.as_ref());
        out[text.end..].copy_from_slice(tag.as_ref());
        Ok(())
    }

    /// Opens a ciphertext with its tag, given what was authenticated with it.
    pub(crate) fn open(
        &self,
        header: &[u8],
        context: &[u8],
        nonce: [u8; NONCE],
        ciphertext: &[u8],
    ) -> Result<Vec<u8>, Refused> {
        let mut text = ciphertext.to_vec();
        let aad = Aad::from([header, context].concat());
        let length = self.0.open_in_place(Nonce::from(&nonce), aad, &mut text).map_err(|_| Refused)?.len();
        text.truncate(length);
        Ok(text)
    }
}

/// A data key of this process, which seals.
pub(crate) struct Sealer {
    pub(crate) id: u32,
    pub(crate) cipher: Cipher,
    sealed: AtomicU64,
}

impl Sealer {
    pub(crate) fn new(id: u32, cipher: Cipher) -> Self {
        Self { id, cipher, sealed: AtomicU64::new(0) }
    }

    /// Counts one value; false when the key has sealed as many as it may.
    pub(crate) fn count(&self) -> bool {
        self.sealed.fetch_add(1, Ordering::Relaxed) < MAX_SEALED
    }
}

/// Random bytes for a key.
pub(crate) fn random_key() -> Result<KeyBytes, Refused> {
    let mut key = KeyBytes::default();
    rand::fill(&mut key[..]).map_err(|_| Refused)?;
    Ok(key)
}

/// What a wrapped data key is bound to.
fn wrapping(id: u32) -> String {
    format!("freehold data key {id}")
}

impl Cipher {
    /// Seals a data key under this key-encryption key: nonce, ciphertext, tag.
    pub(crate) fn wrap(&self, id: u32, key: &KeyBytes) -> Result<Vec<u8>, Refused> {
        let mut out = Vec::with_capacity(NONCE + KEY + TAG);
        out.extend_from_slice(&key[..]);
        self.seal(wrapping(id).as_bytes(), &mut out, 0)?;
        Ok(out)
    }

    /// Opens a data key that this key-encryption key sealed.
    pub(crate) fn unwrap(&self, id: u32, wrapped: &[u8]) -> Result<KeyBytes, Refused> {
        let (nonce, ciphertext) = wrapped.split_first_chunk().ok_or(Refused)?;
        let plain = Zeroizing::new(self.open(&[], wrapping(id).as_bytes(), *nonce, ciphertext)?);
        let mut key = KeyBytes::default();
        if plain.len() != KEY {
            return Err(Refused);
        }
        key.copy_from_slice(&plain);
        Ok(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrapped_key_opens_under_its_own_key_and_identifier_alone() {
        let [kek, other, data] = [(); 3].map(|()| random_key().unwrap());
        let (kek, other) = (Cipher::new(&kek).unwrap(), Cipher::new(&other).unwrap());
        let mut wrapped = kek.wrap(7, &data).unwrap();
        assert_eq!(kek.unwrap(7, &wrapped), Ok(data));
        assert_eq!(kek.unwrap(8, &wrapped), Err(Refused));
        assert_eq!(other.unwrap(7, &wrapped), Err(Refused));
        wrapped[20] ^= 1;
        assert_eq!(kek.unwrap(7, &wrapped), Err(Refused));
        assert_eq!(kek.unwrap(7, &wrapped[..5]), Err(Refused));
    }

    #[test]
    fn a_data_key_stops_at_its_bound() {
        let sealer = Sealer::new(1, Cipher::new(&random_key().unwrap()).unwrap());
        sealer.sealed.store(MAX_SEALED - 1, Ordering::Relaxed);
        assert!(sealer.count());
        assert!(!sealer.count());
    }

    #[test]
    fn equal_values_are_sealed_differently() {
        let cipher = Cipher::new(&random_key().unwrap()).unwrap();
        let seal = || {
            let mut out = b"same".to_vec();
            cipher.seal(b"key", &mut out, 0).unwrap();
            out
        };
        assert_ne!(seal(), seal());
    }
}
