//! What tokens are bound to, looked up in memory.

use freehold_apiserver_authn::{BoundKind, ServiceAccountLookup};
use freehold_apiserver_cache::Cache;
use freehold_apiserver_storage::ObjectPath;
use freehold_machinery::PlaneId;
use std::sync::Arc;

/// The cache as authentication asks it. The plane must be loaded.
pub(crate) struct Lookup {
    cache: Arc<Cache>,
}

impl Lookup {
    pub(crate) fn new(cache: Arc<Cache>) -> Self {
        Self { cache }
    }

    fn uid(&self, plane: &PlaneId, resource: &str, namespace: &str, name: &str) -> Option<String> {
        let namespace = Some(namespace.to_owned()).filter(|n| !n.is_empty());
        let path =
            ObjectPath { group: String::new(), resource: resource.into(), namespace, name: name.into() };
        let entry = self.cache.peek(plane, &path)?;
        (!entry.is_deleting() || resource == "pods").then(|| entry.uid().to_owned())
    }
}

impl ServiceAccountLookup for Lookup {
    fn service_account(&self, plane: &PlaneId, namespace: &str, name: &str) -> Option<String> {
        self.uid(plane, "serviceaccounts", namespace, name)
    }

    fn object_uid(&self, plane: &PlaneId, kind: BoundKind, namespace: &str, name: &str) -> Option<String> {
        self.uid(plane, kind.names().1, namespace, name)
    }
}
