//! Definitions that others refer to by name.

use crate::build::{name_of, text_of};
use freehold_machinery::Value;
use std::collections::HashMap;

/// Definitions by kind and name.
#[derive(Debug)]
pub(crate) struct Library<'a> {
    by_name: HashMap<(&'a str, &'a str), &'a Value>,
}

impl<'a> Library<'a> {
    pub(crate) fn new(documents: impl Iterator<Item = &'a Value>) -> Self {
        let mut by_name = HashMap::new();
        for document in documents {
            by_name.entry((text_of(document, "kind"), name_of(document))).or_insert(document);
        }
        Self { by_name }
    }

    pub(crate) fn get(&self, kind: &str, name: &str) -> Option<&'a Value> {
        self.by_name.get(&(kind, name)).copied()
    }
}
