//! The types that the syncer reads and writes.

use freehold_client::Resource;

pub(crate) const CLUSTERS: Resource =
    Resource::cluster("infrastructure.freehold.dev", "v1alpha1", "workloadclusters");
pub(crate) const PROJECTS: Resource =
    Resource::cluster("resourcemanager.freehold.dev", "v1alpha1", "projects");
pub(crate) const CLASSES: Resource =
    Resource::cluster("resourcemanager.freehold.dev", "v1alpha1", "controlplaneclasses");
pub(crate) const NAMESPACES: Resource = Resource::cluster("", "v1", "namespaces");
pub(crate) const NODES: Resource = Resource::cluster("", "v1", "nodes");
pub(crate) const PODS: Resource = Resource::namespaced("", "v1", "pods");
pub(crate) const EVENTS: Resource = Resource::namespaced("", "v1", "events");
pub(crate) const SECRETS: Resource = Resource::namespaced("", "v1", "secrets");
pub(crate) const CONFIG_MAPS: Resource = Resource::namespaced("", "v1", "configmaps");
pub(crate) const CLAIMS: Resource = Resource::namespaced("", "v1", "persistentvolumeclaims");
pub(crate) const SERVICES: Resource = Resource::namespaced("", "v1", "services");
pub(crate) const ACCOUNTS: Resource = Resource::namespaced("", "v1", "serviceaccounts");

/// Kinds of objects that the syncer makes on hosts, Pods aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    Namespace,
    ServiceAccount,
    NetworkPolicy,
    ResourceQuota,
    LimitRange,
    ConfigMap,
    Secret,
    Claim,
    Service,
}

/// Every kind, in the order of [`Kind`].
pub(crate) static KINDS: [(Kind, &str, Resource); 9] = [
    (Kind::Namespace, "Namespace", NAMESPACES),
    (Kind::ServiceAccount, "ServiceAccount", ACCOUNTS),
    (
        Kind::NetworkPolicy,
        "NetworkPolicy",
        Resource::namespaced("networking.k8s.io", "v1", "networkpolicies"),
    ),
    (Kind::ResourceQuota, "ResourceQuota", Resource::namespaced("", "v1", "resourcequotas")),
    (Kind::LimitRange, "LimitRange", Resource::namespaced("", "v1", "limitranges")),
    (Kind::ConfigMap, "ConfigMap", CONFIG_MAPS),
    (Kind::Secret, "Secret", SECRETS),
    (Kind::Claim, "PersistentVolumeClaim", CLAIMS),
    (Kind::Service, "Service", SERVICES),
];

impl Kind {
    /// The type of its objects.
    pub(crate) fn resource(self) -> &'static Resource {
        &KINDS[self as usize].2
    }

    /// The kind of an object that was decided on.
    pub(crate) fn of(name: &str) -> Option<Self> {
        KINDS.iter().find(|(_, known, _)| *known == name).map(|(kind, _, _)| *kind)
    }

    /// Whether it stands in each host namespace before any Pod.
    pub(crate) fn is_guard(self) -> bool {
        self < Self::ConfigMap
    }
}
