//! Which object a reconcile is about.

use freehold_machinery::{PlaneId, Value, meta};
use std::fmt;
use std::hash::Hash;

/// An object of a type that the controller knows.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The plane that it is in.
    pub plane: PlaneId,
    /// Its namespace; empty for cluster-scoped objects.
    pub namespace: Box<str>,
    /// Its name.
    pub name: Box<str>,
}

/// A key that a [`Queue`](crate::Queue) can hold.
pub trait QueueKey: Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static {
    /// The plane whose share of work the key counts towards.
    fn plane(&self) -> &PlaneId;
}

impl QueueKey for Key {
    fn plane(&self) -> &PlaneId {
        &self.plane
    }
}

impl Key {
    /// The object `name` in `namespace` (empty for cluster-scoped objects).
    pub fn new(plane: PlaneId, namespace: &str, name: &str) -> Self {
        Self { plane, namespace: namespace.into(), name: name.into() }
    }

    /// The key of an object.
    pub fn of(plane: PlaneId, object: &Value) -> Self {
        Self::new(plane, meta::namespace(object), meta::name(object))
    }

    /// The namespace as a request wants it.
    pub fn ns(&self) -> Option<&str> {
        Some(&*self.namespace).filter(|n| !n.is_empty())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ns() {
            Some(namespace) => write!(f, "{}:{namespace}/{}", self.plane, self.name),
            None => write!(f, "{}:{}", self.plane, self.name),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
