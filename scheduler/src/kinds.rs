//! The types that the scheduler reads and writes.

use freehold_client::Resource;

pub(crate) const PODS: Resource = Resource::namespaced("", "v1", "pods");
pub(crate) const NODES: Resource = Resource::cluster("", "v1", "nodes");
pub(crate) const NAMESPACES: Resource = Resource::cluster("", "v1", "namespaces");
pub(crate) const CLAIMS: Resource = Resource::namespaced("", "v1", "persistentvolumeclaims");
pub(crate) const VOLUMES: Resource = Resource::cluster("", "v1", "persistentvolumes");
pub(crate) const CLASSES: Resource = Resource::cluster("storage.k8s.io", "v1", "storageclasses");
pub(crate) const BUDGETS: Resource = Resource::namespaced("policy", "v1", "poddisruptionbudgets");

/// Objects that say which Pods belong together, and where their selector is.
pub(crate) const GROUPS: [(Resource, &str); 4] = [
    (Resource::namespaced("", "v1", "services"), "/spec/selector"),
    (Resource::namespaced("", "v1", "replicationcontrollers"), "/spec/selector"),
    (Resource::namespaced("apps", "v1", "replicasets"), ""),
    (Resource::namespaced("apps", "v1", "statefulsets"), ""),
];
