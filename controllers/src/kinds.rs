//! The resources that controllers here work with.

use freehold_client::Resource;

pub(crate) const CLAIMS: Resource = Resource::namespaced("", "v1", "persistentvolumeclaims");
pub(crate) const VOLUMES: Resource = Resource::cluster("", "v1", "persistentvolumes");
pub(crate) const STORAGE_CLASSES: Resource = Resource::cluster("storage.k8s.io", "v1", "storageclasses");
pub(crate) const NODES: Resource = Resource::cluster("", "v1", "nodes");
pub(crate) const PODS: Resource = Resource::namespaced("", "v1", "pods");
pub(crate) const SERVICES: Resource = Resource::namespaced("", "v1", "services");
pub(crate) const CONFIG_MAPS: Resource = Resource::namespaced("", "v1", "configmaps");
pub(crate) const LEASES: Resource = Resource::namespaced("coordination.k8s.io", "v1", "leases");
pub(crate) const RESOURCE_CLAIMS: Resource = Resource::namespaced("resource.k8s.io", "v1", "resourceclaims");
pub(crate) const RESOURCE_CLAIM_TEMPLATES: Resource =
    Resource::namespaced("resource.k8s.io", "v1", "resourceclaimtemplates");
