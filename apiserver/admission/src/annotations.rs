//! Audit annotations and warnings that admission adds to a request.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Bytes of all annotations and warnings of one request; further ones are dropped.
const MAX: usize = 256 << 10;

/// The audit annotations and warnings of one request. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Annotations(Arc<Mutex<Collected>>);

#[derive(Debug, Default)]
struct Collected {
    annotations: BTreeMap<String, String>,
    warnings: Vec<String>,
    bytes: usize,
}

impl Collected {
    fn has_room(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        self.bytes <= MAX
    }
}

impl Annotations {
    fn said(&self) -> MutexGuard<'_, Collected> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an annotation. The first of equal keys stays.
    pub fn add(&self, key: String, value: String) {
        let mut said = self.said();
        if said.has_room(key.len() + value.len()) {
            said.annotations.entry(key).or_insert(value);
        }
    }

    /// Adds several annotations of the audit event.
    pub fn extend(&self, all: impl IntoIterator<Item = (String, String)>) {
        all.into_iter().for_each(|(key, value)| self.add(key, value));
    }

    /// All of them, in the order of their keys.
    pub fn all(&self) -> BTreeMap<String, String> {
        self.said().annotations.clone()
    }

    /// Adds a warning, which the client gets as a header.
    pub fn warn(&self, warning: String) {
        let mut said = self.said();
        if said.has_room(warning.len()) {
            said.warnings.push(warning);
        }
    }

    /// Removes and returns the warnings so far.
    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.said().warnings)
    }
}
