//! Encryption of backups: AES-256-GCM in chunks, each bound to its place, the last one marked (the STREAM construction).
//!
//! ```text
//! magic, id of the key, salt | chunk of 64 KiB and its tag | ... | last chunk and its tag
//! ```
//!
//! The key of a backup follows from the salt and a key of the file of keys (HKDF-SHA256). A backup that was cut, changed or put
//! together from others is refused before its end is believed.

use anyhow::{Context, Result, bail, ensure};
use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey},
    digest, hkdf, rand,
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use std::path::Path;

/// How a sealed backup begins.
const MAGIC: &[u8; 8] = b"FHSEAL1\n";
/// Bytes of content in a chunk.
const CHUNK: usize = 64 << 10;
/// Bytes of a chunk's tag.
const TAG: usize = 16;
/// Bytes of the salt.
const SALT: usize = 32;
/// Bytes of the name of a key.
const ID: usize = 8;
/// Bytes before the first chunk.
const HEADER: usize = MAGIC.len() + ID + SALT;

/// Keys of backups. The first one seals; all of them open.
#[derive(Clone)]
pub(crate) struct Keys(Vec<[u8; 32]>);

impl Keys {
    /// Reads a file of keys: 32 bytes in base64 on each line, the newest first.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("{} can't be read", path.display()))?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let keys: Result<Vec<[u8; 32]>> = lines
            .map(|line| {
                let bytes = BASE64_STANDARD.decode(line).ok().and_then(|bytes| bytes.try_into().ok());
                bytes.with_context(|| format!("{}: a line is not 32 bytes in base64", path.display()))
            })
            .collect();
        let keys = keys?;
        ensure!(!keys.is_empty(), "{} has no key: `openssl rand -base64 32` makes one", path.display());
        Ok(Self(keys))
    }
}

fn id(key: &[u8; 32]) -> [u8; ID] {
    let mut id = [0; ID];
    id.copy_from_slice(&digest::digest(&digest::SHA256, key).as_ref()[..ID]);
    id
}

fn derive(key: &[u8; 32], salt: &[u8]) -> Result<LessSafeKey> {
    let failed = |_| anyhow::anyhow!("no key can be made");
    let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, salt);
    let derived = salt.extract(key);
    let info = [b"freehold backup".as_slice()];
    let okm = derived.expand(&info, &AES_256_GCM).map_err(failed)?;
    Ok(LessSafeKey::new(UnboundKey::from(okm)))
}

/// The nonce of a chunk: its number, and whether it is the last.
fn nonce(number: u64, last: bool) -> Nonce {
    let mut nonce = [0; 12];
    nonce[3] = u8::from(last);
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

/// Seals what is fed to it, in pieces of any size.
pub(crate) struct Sealer {
    key: LessSafeKey,
    number: u64,
    pending: Vec<u8>,
    header: Option<Vec<u8>>,
}

impl Sealer {
    /// A sealer with the first of the keys and a salt of its own.
    pub(crate) fn new(keys: &Keys) -> Result<Self> {
        let mut salt = [0; SALT];
        rand::fill(&mut salt).map_err(|_| anyhow::anyhow!("the system gives no random numbers"))?;
        let key = &keys.0[0];
        let header = [MAGIC.as_slice(), &id(key), &salt].concat();
        Ok(Self { key: derive(key, &salt)?, number: 0, pending: Vec::new(), header: Some(header) })
    }

    /// Takes content; gives what can be written already.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<Vec<u8>> {
        self.pending.extend_from_slice(bytes);
        let mut out = self.header.take().unwrap_or_default();
        // A whole chunk stays until it is known whether it is the last.
        while self.pending.len() > CHUNK {
            let rest = self.pending.split_off(CHUNK);
            let chunk = std::mem::replace(&mut self.pending, rest);
            out.extend(self.seal(chunk, false)?);
        }
        Ok(out)
    }

    /// Ends the content; gives the rest of what is to be written.
    pub(crate) fn finish(mut self) -> Result<Vec<u8>> {
        let mut out = self.header.take().unwrap_or_default();
        let chunk = std::mem::take(&mut self.pending);
        out.extend(self.seal(chunk, true)?);
        Ok(out)
    }

    fn seal(&mut self, mut chunk: Vec<u8>, last: bool) -> Result<Vec<u8>> {
        let sealed = self.key.seal_in_place_append_tag(nonce(self.number, last), Aad::empty(), &mut chunk);
        sealed.map_err(|_| anyhow::anyhow!("a chunk can't be encrypted"))?;
        self.number += 1;
        Ok(chunk)
    }
}

/// Opens what was sealed, in pieces of any size. Without keys it passes on what is not sealed.
pub(crate) struct Opener<'a> {
    keys: Option<&'a Keys>,
    state: State,
    pending: Vec<u8>,
}

enum State {
    Beginning,
    Plain,
    Sealed { key: Box<LessSafeKey>, number: u64 },
}

impl<'a> Opener<'a> {
    /// An opener that takes sealed backups alone if there are keys, and others alone if there are none.
    pub(crate) fn new(keys: Option<&'a Keys>) -> Self {
        Self { keys, state: State::Beginning, pending: Vec::new() }
    }

    /// Takes bytes of a backup; gives the content that is certain by now.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<Vec<u8>> {
        self.pending.extend_from_slice(bytes);
        if matches!(self.state, State::Beginning) && self.pending.len() >= HEADER {
            self.begin()?;
        }
        match &mut self.state {
            State::Beginning => Ok(Vec::new()),
            State::Plain => Ok(std::mem::take(&mut self.pending)),
            State::Sealed { key, number } => {
                let mut out = Vec::new();
                while self.pending.len() > CHUNK + TAG {
                    let rest = self.pending.split_off(CHUNK + TAG);
                    let chunk = std::mem::replace(&mut self.pending, rest);
                    out.extend(open(key, *number, false, chunk)?);
                    *number += 1;
                }
                Ok(out)
            }
        }
    }

    /// Ends the backup; gives the rest of its content.
    pub(crate) fn finish(mut self) -> Result<Vec<u8>> {
        if matches!(self.state, State::Beginning) {
            self.begin()?;
        }
        let rest = std::mem::take(&mut self.pending);
        match &self.state {
            State::Sealed { key, number } => open(key, *number, true, rest),
            _ => Ok(rest),
        }
    }

    fn begin(&mut self) -> Result<()> {
        let sealed = self.pending.starts_with(MAGIC);
        let keys = match (sealed, self.keys) {
            (false, None) => {
                self.state = State::Plain;
                return Ok(());
            }
            // Whoever may write into the store could put one of his own there.
            (false, Some(_)) => bail!("the backup is not encrypted, and with --backup-key it has to be"),
            (true, None) => bail!("the backup is encrypted: --backup-key FILE names its key"),
            (true, Some(keys)) => keys,
        };
        ensure!(self.pending.len() >= HEADER, "the backup is cut off");
        let rest = self.pending.split_off(HEADER);
        let header = std::mem::replace(&mut self.pending, rest);
        let (name, salt) = header[MAGIC.len()..].split_at(ID);
        let key = keys.0.iter().find(|key| id(key) == name);
        let key = key.context("the backup is encrypted with a key that the file of keys does not have")?;
        self.state = State::Sealed { key: Box::new(derive(key, salt)?), number: 0 };
        Ok(())
    }
}

fn open(key: &LessSafeKey, number: u64, last: bool, mut chunk: Vec<u8>) -> Result<Vec<u8>> {
    let content = key.open_in_place(nonce(number, last), Aad::empty(), &mut chunk);
    let length =
        content.map_err(|_| anyhow::anyhow!("the backup was changed or cut off at chunk {number}"))?.len();
    chunk.truncate(length);
    Ok(chunk)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(keys: &Keys, content: &[u8], piece: usize) -> Vec<u8> {
        let mut sealer = Sealer::new(keys).unwrap();
        let mut out: Vec<u8> = content.chunks(piece).flat_map(|piece| sealer.feed(piece).unwrap()).collect();
        out.extend(sealer.finish().unwrap());
        out
    }

    fn opened(keys: Option<&Keys>, bytes: &[u8], piece: usize) -> Result<Vec<u8>> {
        let (mut opener, mut out) = (Opener::new(keys), Vec::new());
        for piece in bytes.chunks(piece) {
            out.extend(opener.feed(piece)?);
        }
        out.extend(opener.finish()?);
        Ok(out)
    }

    fn keys(byte: u8) -> Keys {
        Keys(vec![[byte; 32]])
    }

    #[test]
    fn what_was_sealed_opens_whatever_the_pieces() {
        for length in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK] {
            let content: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            let bytes = sealed(&keys(1), &content, 1000);
            assert!(opened(Some(&keys(1)), &bytes, 777).unwrap() == content, "{length}");
            assert!(opened(Some(&Keys(vec![[2; 32], [1; 32]])), &bytes, 1 << 20).unwrap() == content);
        }
    }

    #[test]
    fn what_was_changed_cut_or_put_together_does_not_open() {
        let content = vec![7; 2 * CHUNK + 5];
        let bytes = sealed(&keys(1), &content, 4096);
        let refused = |bytes: &[u8]| opened(Some(&keys(1)), bytes, 4096).is_err();
        for at in [0, 9, 20, HEADER, HEADER + CHUNK + TAG, bytes.len() - 1] {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert!(refused(&other), "a change at {at}");
        }
        let whole = CHUNK + TAG;
        for length in [0, 5, HEADER, HEADER + 1, HEADER + whole, HEADER + 2 * whole] {
            assert!(refused(&bytes[..length]), "cut to {length}");
        }
        let (header, chunks) = bytes.split_at(HEADER);
        let swapped = [header, &chunks[whole..2 * whole], &chunks[..whole], &chunks[2 * whole..]].concat();
        assert!(refused(&swapped));
        assert!(refused(&[bytes.as_slice(), b"x"].concat()));
    }

    #[test]
    fn keys_and_encryption_belong_together() {
        let bytes = sealed(&keys(1), b"secret", 10);
        assert!(!bytes.windows(6).any(|window| window == b"secret"));
        assert!(opened(None, &bytes, 10).unwrap_err().to_string().contains("--backup-key"));
        assert!(opened(Some(&keys(2)), &bytes, 10).unwrap_err().to_string().contains("does not have"));
        assert!(opened(Some(&keys(1)), &[b'x'; 100], 10).unwrap_err().to_string().contains("not encrypted"));
        assert_eq!(opened(None, b"short", 2).unwrap(), b"short");
    }

    #[test]
    fn a_file_of_keys_has_a_key_on_each_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Keys::read(&path).map(|keys| keys.0.len())
        };
        let key = BASE64_STANDARD.encode([1; 32]);
        assert_eq!(read(&format!("# newest\n{key}\n\n{key}\n")).unwrap(), 2);
        for bad in ["", "#", "abc", &key[..40]] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }
}
