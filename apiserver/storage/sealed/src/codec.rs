//! Values to sealed values and back, with what is at hand: nothing here waits.

use crate::{
    cipher::{Cipher, Sealer},
    compress::Dictionary,
    dictionaries::Dictionaries,
    format::{self, BOTH, CHECK, COMPRESSED, ENCRYPTED, Form, NONCE, PLAIN, TAG},
    kinds::{Area, Kinds, area},
};
use arc_swap::ArcSwapOption;
use bytes::Bytes;
use freehold_apiserver_storage::Key;
use parking_lot::RwLock;
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Values shorter than this are not compressed: a frame would hardly be shorter.
const MIN_COMPRESSED: usize = 64;
/// Most data keys that are kept unwrapped.
const MAX_OPENERS: usize = 4096;

/// Seals and opens.
pub(crate) struct Codec {
    /// Whether values are compressed when they are written.
    pub(crate) compress: bool,
    /// What is encrypted when it is written.
    pub(crate) encrypt: Option<Kinds>,
    pub(crate) dictionaries: Dictionaries,
    pub(crate) keys: DataKeys,
}

/// Data keys, unwrapped.
#[derive(Default)]
pub(crate) struct DataKeys {
    openers: RwLock<HashMap<u32, Arc<Cipher>>>,
    /// The key of this process that seals.
    pub(crate) sealer: ArcSwapOption<Sealer>,
    /// Data keys below this one don't seal any more.
    pub(crate) oldest: AtomicU32,
}

/// Why a value can't be opened now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    /// A dictionary is not loaded.
    Dictionary(u32),
    /// A data key is not unwrapped.
    DataKey(u32),
    /// It is damaged, or not where it belongs.
    Damaged(String),
}

/// There is no data key that seals, or it has sealed enough.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoSealer;

impl DataKeys {
    /// A key that opens.
    pub(crate) fn opener(&self, id: u32) -> Option<Arc<Cipher>> {
        self.openers.read().get(&id).cloned()
    }

    /// Remembers a key that opens.
    pub(crate) fn remember(&self, id: u32, cipher: Arc<Cipher>) {
        let mut openers = self.openers.write();
        if openers.len() >= MAX_OPENERS {
            openers.clear();
        }
        openers.insert(id, cipher);
    }

    /// The key that seals, if there is one that still may.
    pub(crate) fn current(&self) -> Option<Arc<Sealer>> {
        let sealer = self.sealer.load_full()?;
        (sealer.id >= self.oldest.load(Ordering::Relaxed)).then_some(sealer)
    }
}

/// The check of a plain value, bound to its key.
fn check(key: &Key, value: &[u8]) -> [u8; CHECK] {
    let hash = xxh3_64_with_seed(value, xxh3_64(key.as_bytes()));
    (hash as u32).to_le_bytes()
}

impl Codec {
    /// Whether a value of this key is encrypted when it is written.
    pub(crate) fn encrypts(&self, area: Area<'_>) -> bool {
        self.encrypt.as_ref().is_some_and(|kinds| match area {
            Area::Object(ty) => kinds.has(ty),
            Area::Dictionary | Area::Secret => true,
        })
    }

    /// Seals a value as it is to be stored.
    pub(crate) fn seal(&self, key: &Key, value: &Bytes) -> Result<Bytes, NoSealer> {
        let Some(area) = area(key) else { return Ok(value.clone()) };
        let dictionary = match area {
            Area::Object(ty) if self.compress && value.len() >= MIN_COMPRESSED => {
                Some(self.dictionaries.of_type(ty))
            }
            _ => None,
        };
        if self.encrypts(area) {
            return self.encrypt(key, value, dictionary.as_deref());
        }
        let compressed = dictionary.and_then(|dictionary| compress(key, value, &dictionary));
        Ok(compressed.unwrap_or_else(|| plain(value)))
    }

    fn encrypt(&self, key: &Key, value: &Bytes, dictionary: Option<&Dictionary>) -> Result<Bytes, NoSealer> {
        let sealer = self.keys.current().ok_or(NoSealer)?;
        if !sealer.count() {
            return Err(NoSealer);
        }
        let mut out = Vec::with_capacity(value.len() + 16 + NONCE + TAG);
        out.push(BOTH);
        format::write_id(&mut out, sealer.id);
        let from = out.len();
        let compressed = dictionary.is_some_and(|dictionary| {
            format::write_id(&mut out, dictionary.id);
            dictionary.compress(value, value.len(), &mut out)
        });
        if !compressed {
            out[0] = ENCRYPTED;
            out.truncate(from);
            out.extend_from_slice(value);
        }
        sealer.cipher.seal(key.as_bytes(), &mut out, from).map_err(|_| NoSealer)?;
        out.shrink_to_fit();
        Ok(out.into())
    }

    /// Opens a value as it is stored.
    pub(crate) fn open(&self, key: &Key, value: &Bytes) -> Result<Bytes, Closed> {
        // Nearly all values of a mixed store say with their first byte that they are plain.
        if !value.first().is_some_and(|first| format::is_marker(*first)) || area(key).is_none() {
            return Ok(value.clone());
        }
        match format::parse(value) {
            None => Err(damaged("its header is cut short or of a later version")),
            Some(Form::Plain) => Ok(value.clone()),
            Some(Form::Escaped) => Ok(value.slice(1..)),
            Some(Form::Compressed { dictionary, check: expected, frame }) => {
                let opened = self.decompress(dictionary, frame)?;
                let fine = check(key, &opened) == expected;
                if fine { Ok(opened) } else { Err(damaged("its check is wrong")) }
            }
            Some(Form::Encrypted { key: id, header, nonce, ciphertext, compressed }) => {
                let cipher = self.keys.opener(id).ok_or(Closed::DataKey(id))?;
                let text = cipher.open(header, key.as_bytes(), nonce, ciphertext).map_err(|_| {
                    damaged(&format!(
                        "data key {id} does not open it: it was changed, or moved from another key"
                    ))
                })?;
                if !compressed {
                    return Ok(text.into());
                }
                let (dictionary, frame) =
                    format::read_id(&text).ok_or_else(|| damaged("its frame is cut short"))?;
                self.decompress(dictionary, frame)
            }
        }
    }

    fn decompress(&self, dictionary: u32, frame: &[u8]) -> Result<Bytes, Closed> {
        let dictionary = self.dictionaries.get(dictionary).ok_or(Closed::Dictionary(dictionary))?;
        dictionary.decompress(frame).map(Bytes::from).ok_or_else(|| damaged("its frame is damaged"))
    }
}

fn damaged(why: &str) -> Closed {
    Closed::Damaged(why.to_owned())
}

fn plain(value: &Bytes) -> Bytes {
    match value.first() {
        Some(first) if format::is_marker(*first) => [&[PLAIN], &value[..]].concat().into(),
        _ => value.clone(),
    }
}

/// `None` where that makes it no shorter.
fn compress(key: &Key, value: &[u8], dictionary: &Dictionary) -> Option<Bytes> {
    let mut out = Vec::with_capacity(value.len());
    out.push(COMPRESSED);
    format::write_id(&mut out, dictionary.id);
    out.extend_from_slice(&check(key, value));
    let limit = value.len().checked_sub(out.len())?;
    let shorter = dictionary.compress(value, limit, &mut out);
    out.shrink_to_fit();
    shorter.then(|| out.into())
}

#[cfg(test)]
mod tests;
