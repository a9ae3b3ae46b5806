//! Interning: equal CRDs share one type, and equal sets of types are one value.
//!
//! Values are held weakly: what no plane uses any more is gone, and its entry goes with the next sweep.

use crate::{Remote, TypeSet};
use freehold_machinery::{ResourceType, Value, crd, meta, resource::CONTEXTS_ANNOTATION, status::FieldError};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Weak},
};

/// A map from a content hash to things that live elsewhere.
struct Interner<T> {
    entries: Mutex<Entries<T>>,
}

struct Entries<T> {
    map: HashMap<String, Vec<Weak<T>>>,
    /// Entries after which the dead ones are swept out.
    sweep_at: usize,
}

impl<T> Interner<T> {
    fn new() -> Self {
        Self { entries: Mutex::new(Entries { map: HashMap::new(), sweep_at: 64 }) }
    }

    /// What is known under `hash`, if all of it is alive still.
    fn get(&self, hash: &str) -> Option<Vec<Arc<T>>> {
        self.entries.lock().map.get(hash)?.iter().map(Weak::upgrade).collect()
    }

    /// Keeps `values` under `hash`, unless another was quicker: the first to come is what all get.
    fn put(&self, hash: String, values: Vec<Arc<T>>) -> Vec<Arc<T>> {
        let mut entries = self.entries.lock();
        if let Some(known) =
            entries.map.get(&hash).and_then(|known| known.iter().map(Weak::upgrade).collect())
        {
            return known;
        }
        entries.map.insert(hash, values.iter().map(Arc::downgrade).collect());
        if entries.map.len() >= entries.sweep_at {
            entries.map.retain(|_, values| values.iter().all(|value| value.strong_count() > 0));
            entries.sweep_at = (entries.map.len() * 2).max(64);
        }
        values
    }
}

static TYPES: LazyLock<Interner<ResourceType>> = LazyLock::new(Interner::new);
static SETS: LazyLock<Interner<TypeSet>> = LazyLock::new(Interner::new);

/// The types of a CustomResourceDefinition, one for each served version. A CRD of the same content, in whichever
/// plane, gives the same types; only the first one is compiled.
///
/// # Errors
/// What [`crd::compile`] finds wrong with it.
pub fn custom_types(crd: &Value) -> Result<Vec<Arc<ResourceType>>, Vec<FieldError>> {
    let hash = content_hash(crd);
    if let Some(known) = TYPES.get(&hash) {
        return Ok(known);
    }
    Ok(TYPES.put(hash, crd::compile(crd)?))
}

/// Names what a CRD's types depend on: its name, spec and accepted names, its contexts, and whether it is ending.
fn content_hash(crd: &Value) -> String {
    let parts = ["/metadata/name", "/spec", "/status/acceptedNames"].map(|path| crd.pointer(path));
    let contexts = meta::annotation(crd, CONTEXTS_ANNOTATION);
    let text = serde_json::to_vec(&(parts, meta::is_deleting(crd), contexts));
    hex::encode(Sha256::digest(text.expect("JSON values can be written")))
}

/// The set of the built-in types with these. Equal sets are one: planes that serve the same types cost one set.
pub fn share(custom: Vec<Arc<ResourceType>>, remote: Vec<Arc<Remote>>) -> Arc<TypeSet> {
    if custom.is_empty() && remote.is_empty() {
        return TypeSet::builtin();
    }
    let set = TypeSet::new(custom, remote);
    let hash = set.hash().to_owned();
    SETS.put(hash, vec![Arc::new(set)]).remove(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_content_is_one_value_while_it_is_used() {
        let interner = Interner::new();
        let first = interner.put("a".to_owned(), vec![Arc::new(1)]);
        let second = interner.put("a".to_owned(), vec![Arc::new(1)]);
        assert!(Arc::ptr_eq(&first[0], &second[0]));
        drop((first, second));
        assert!(interner.get("a").is_none(), "nobody uses it any more");
    }

    #[test]
    fn unused_entries_are_swept_out() {
        let interner = Interner::new();
        for n in 0..1000 {
            interner.put(n.to_string(), vec![Arc::new(n)]);
        }
        assert!(interner.entries.lock().map.len() <= 64, "dead entries must not pile up");
    }
}
