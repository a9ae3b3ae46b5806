//! The identifier of a control plane.

use parking_lot::Mutex;
use std::{
    collections::{HashMap, HashSet},
    fmt,
    hash::{BuildHasherDefault, Hasher},
    str::FromStr,
    sync::{Arc, LazyLock},
};

/// One isolated Kubernetes API: its own objects, RBAC, CRDs and discovery.
///
/// Cheap to clone. Only lower-case letters, digits and `-` are in it, 1 to 63 of them, so it is one path segment of a
/// store key and one DNS label. A project's plane is named by the project's uid: a project that is deleted and made
/// again under the same name never meets the keys of its predecessor.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PlaneId(Arc<str>);

/// What is known of each plane. Each request looks into a dozen of them.
pub type PlaneMap<V> = HashMap<PlaneId, V, BuildHasherDefault<PlaneHasher>>;

/// Hashes identifiers of planes, a fifth of the work of what guards against keys that somebody chose: nobody chooses these,
/// they are the server's own uids.
#[derive(Default)]
pub struct PlaneHasher(u64);

impl PlaneHasher {
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hasher for PlaneHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        words.iter().for_each(|word| self.add(u64::from_le_bytes(*word)));
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.add(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, byte: u8) {
        self.add(byte.into());
    }

    fn finish(&self) -> u64 {
        // A table looks at the highest and at the lowest bits.
        self.0 ^ (self.0 >> 32)
    }
}

/// A string that can't name a plane.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a plane: a lower-case DNS label of 1 to 63 characters is")]
pub struct InvalidPlaneId(String);

impl PlaneId {
    /// The plane of organizations, users, projects and provider objects.
    pub fn core() -> Self {
        static CORE: LazyLock<PlaneId> = LazyLock::new(|| PlaneId(Arc::from("core")));
        CORE.clone()
    }

    /// The plane on which dedicated pairs run, when Freehold itself serves it.
    pub fn infra() -> Self {
        static INFRA: LazyLock<PlaneId> = LazyLock::new(|| PlaneId(Arc::from("infra")));
        INFRA.clone()
    }

    /// The identifier as it stands in keys and metrics.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is the core plane.
    pub fn is_core(&self) -> bool {
        &*self.0 == "core"
    }
}

/// The texts of identifiers that are in use, each once: many parts of a server know the same planes. What nobody uses any
/// more goes whenever the table would grow beyond twice what is used.
#[derive(Default)]
struct Texts {
    known: HashSet<Arc<str>>,
    limit: usize,
}

/// Below so many texts nothing is cleared away.
const FEW: usize = 1_024;

static TEXTS: LazyLock<Mutex<Texts>> = LazyLock::new(Mutex::default);

fn shared(text: &str) -> Arc<str> {
    let mut texts = TEXTS.lock();
    if let Some(known) = texts.known.get(text) {
        return known.clone();
    }
    if texts.known.len() >= texts.limit {
        texts.known.retain(|text| Arc::strong_count(text) > 1);
        texts.known.shrink_to(FEW);
        texts.limit = FEW.max(2 * texts.known.len());
    }
    let fresh: Arc<str> = Arc::from(text);
    texts.known.insert(fresh.clone());
    fresh
}

impl FromStr for PlaneId {
    type Err = InvalidPlaneId;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
        let edge = |c: Option<&u8>| c.is_some_and(|c| *c != b'-');
        let bytes = s.as_bytes();
        let valid =
            bytes.len() <= 63 && bytes.iter().all(|c| inner(*c)) && edge(bytes.first()) && edge(bytes.last());
        if valid { Ok(Self(shared(s))) } else { Err(InvalidPlaneId(s.to_owned())) }
    }
}

impl fmt::Display for PlaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for PlaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "plane {}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::BuildHasher;

    #[test]
    fn equal_identifiers_share_their_text_and_those_not_used_go() {
        let kept: PlaneId = "kept".parse().unwrap();
        for nth in 0..10 * FEW {
            drop(format!("p{nth}").parse::<PlaneId>().unwrap());
        }
        assert!(Arc::ptr_eq(&kept.0, &"kept".parse::<PlaneId>().unwrap().0));
        assert!(TEXTS.lock().known.len() <= 2 * FEW);
    }

    #[test]
    fn identifiers_that_differ_little_hash_apart() {
        let hash = |nth| BuildHasherDefault::<PlaneHasher>::default().hash_one(PlaneId(Arc::from(nth)));
        let hashes = (0..10_000).map(|nth| hash(format!("0d3c9a62-5b0c-4d65-9f3f-{nth:012x}")));
        assert_eq!(hashes.collect::<HashSet<u64>>().len(), 10_000);
    }

    #[test]
    fn a_plane_is_one_dns_label() {
        for good in ["core", "a", "0d3c9a62-5b0c-4d65-9f3f-1f3c1c1f6f7e"] {
            assert_eq!(good.parse::<PlaneId>().unwrap().as_str(), good);
        }
        for bad in ["", "-a", "a-", "A", "a/b", "a.b", "..", &"x".repeat(64)] {
            assert!(bad.parse::<PlaneId>().is_err(), "{bad:?} must be refused");
        }
    }
}
