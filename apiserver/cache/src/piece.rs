//! Bytes of answers that are sent from where the cache keeps them.

use crate::Entry;
use bytes::Bytes;
use std::sync::Arc;

/// A piece of an answer.
#[derive(Clone, Debug)]
pub enum Piece {
    /// An object of the cache with a comma behind it, sent from where it lies.
    Item(Arc<Entry>),
    /// Bytes that were made for it.
    Bytes(Bytes),
}

impl std::ops::Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Item(entry) => entry.item(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

impl Piece {
    /// Returns it without its last byte: the last item of a list has no comma behind it.
    pub fn without_last(self) -> Self {
        match self {
            Self::Item(entry) => Self::Bytes(entry.json()),
            Self::Bytes(mut bytes) => {
                bytes.truncate(bytes.len().saturating_sub(1));
                Self::Bytes(bytes)
            }
        }
    }
}

impl<T: Into<Bytes>> From<T> for Piece {
    fn from(bytes: T) -> Self {
        Self::Bytes(bytes.into())
    }
}
