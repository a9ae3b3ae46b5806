//! Objects of all consumers.

use crate::PROJECT;
use kube::{Resource, ResourceExt};
use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

/// Names an object of one consumer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Request {
    /// The consumer's project.
    pub consumer: String,
    /// The object's namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// The object's name.
    pub name: String,
}

impl Request {
    /// The request for an object of the view; `None` for one that names no consumer.
    pub fn of<K: Resource>(object: &K) -> Option<Self> {
        Some(Self {
            consumer: object.annotations().get(PROJECT)?.clone(),
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
        })
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}|{}/{}", self.consumer, self.namespace, self.name)
    }
}

/// The objects of one type of all consumers. Clones share them.
pub struct Store<K>(Arc<RwLock<HashMap<Request, Arc<K>>>>);

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K> Default for Store<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K> Store<K> {
    /// The last known state of an object.
    pub fn get(&self, request: &Request) -> Option<Arc<K>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(request).cloned()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.0.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn put(&self, request: Request, object: K) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(request, Arc::new(object));
    }

    pub(crate) fn remove(&self, request: &Request) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(request);
    }

    /// Forgets what a complete list does not have, and returns it.
    pub(crate) fn retain(&self, listed: &HashSet<Request>) -> Vec<Request> {
        let mut objects = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let gone: Vec<Request> = objects.keys().filter(|known| !listed.contains(known)).cloned().collect();
        gone.iter().for_each(|request| drop(objects.remove(request)));
        gone
    }
}
