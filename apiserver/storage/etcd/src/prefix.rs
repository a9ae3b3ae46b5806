//! The engine's prefix: in front of each key in etcd, and nowhere else.

use bytes::Bytes;
use freehold_apiserver_storage::{Key, KeyRange};

#[derive(Clone, Debug)]
pub(crate) struct Prefix(Bytes);

impl Prefix {
    pub(crate) fn new(prefix: &str) -> Self {
        Self(Bytes::copy_from_slice(prefix.as_bytes()))
    }

    fn add(&self, bytes: &[u8]) -> Bytes {
        [&self.0, bytes].concat().into()
    }

    pub(crate) fn key(&self, key: &Key) -> Bytes {
        self.add(key.as_bytes())
    }

    /// First key and end of a range.
    pub(crate) fn range(&self, range: &KeyRange) -> (Bytes, Bytes) {
        (self.add(&range.start), self.add(&range.end))
    }

    /// Reverses [`Prefix::key`]; `None` if the prefix is not there.
    pub(crate) fn strip(&self, key: &Bytes) -> Option<Key> {
        key.starts_with(&self.0).then(|| Key::from_store(key.slice(self.0.len()..)))
    }

    /// Reverses [`Prefix::range`]; an empty end stands for one key.
    pub(crate) fn strip_range(&self, key: &Bytes, end: &Bytes) -> Option<KeyRange> {
        let start = self.strip(key)?;
        if end.is_empty() {
            return Some(KeyRange::one(&start));
        }
        Some(KeyRange { start: start.as_bytes().clone(), end: self.strip(end)?.as_bytes().clone() })
    }
}
