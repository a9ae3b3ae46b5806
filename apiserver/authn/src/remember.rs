//! Answers that count for a while, by the token that they are about: its digest is kept, never itself.

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// A map of bounded size whose entries are forgotten.
pub struct Remembered<V> {
    time: Duration,
    most: usize,
    entries: Mutex<HashMap<[u8; 32], (Instant, V)>>,
}

impl<V: Clone> Remembered<V> {
    /// Entries count for `time`; there are at most so many.
    pub fn new(time: Duration, most: usize) -> Self {
        Self { time, most, entries: Mutex::default() }
    }

    /// What is known of a token.
    pub fn get(&self, token: &str) -> Option<V> {
        let entries = self.entries.lock();
        let (at, value) = entries.get(&digest(token))?;
        (at.elapsed() < self.time).then(|| value.clone())
    }

    /// Remembers something of a token.
    pub fn put(&self, token: &str, value: V) {
        let mut entries = self.entries.lock();
        if entries.len() >= self.most {
            entries.retain(|_, (at, _)| at.elapsed() < self.time);
            if entries.len() >= self.most {
                entries.clear();
            }
        }
        entries.insert(digest(token), (Instant::now(), value));
    }
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}
