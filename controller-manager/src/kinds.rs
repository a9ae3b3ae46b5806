//! The resources that controllers here work with.

use freehold_client::Resource;

pub(crate) const NAMESPACES: Resource = Resource::cluster("", "v1", "namespaces");
pub(crate) const PODS: Resource = Resource::namespaced("", "v1", "pods");
pub(crate) const SECRETS: Resource = Resource::namespaced("", "v1", "secrets");
pub(crate) const SERVICES: Resource = Resource::namespaced("", "v1", "services");
pub(crate) const ENDPOINTS: Resource = Resource::namespaced("", "v1", "endpoints");
pub(crate) const CONFIG_MAPS: Resource = Resource::namespaced("", "v1", "configmaps");
pub(crate) const SERVICE_ACCOUNTS: Resource = Resource::namespaced("", "v1", "serviceaccounts");
pub(crate) const RESOURCE_QUOTAS: Resource = Resource::namespaced("", "v1", "resourcequotas");
pub(crate) const DEPLOYMENTS: Resource = Resource::namespaced("apps", "v1", "deployments");
pub(crate) const REPLICA_SETS: Resource = Resource::namespaced("apps", "v1", "replicasets");
pub(crate) const STATEFUL_SETS: Resource = Resource::namespaced("apps", "v1", "statefulsets");
pub(crate) const DAEMON_SETS: Resource = Resource::namespaced("apps", "v1", "daemonsets");
pub(crate) const CONTROLLER_REVISIONS: Resource = Resource::namespaced("apps", "v1", "controllerrevisions");
pub(crate) const REPLICATION_CONTROLLERS: Resource = Resource::namespaced("", "v1", "replicationcontrollers");
pub(crate) const AUTOSCALERS: Resource =
    Resource::namespaced("autoscaling", "v2", "horizontalpodautoscalers");
pub(crate) const LEASES: Resource = Resource::namespaced("coordination.k8s.io", "v1", "leases");
pub(crate) const JOBS: Resource = Resource::namespaced("batch", "v1", "jobs");
pub(crate) const CRON_JOBS: Resource = Resource::namespaced("batch", "v1", "cronjobs");
pub(crate) const NODES: Resource = Resource::cluster("", "v1", "nodes");
pub(crate) const DISRUPTION_BUDGETS: Resource = Resource::namespaced("policy", "v1", "poddisruptionbudgets");
pub(crate) const ENDPOINT_SLICES: Resource = Resource::namespaced("discovery.k8s.io", "v1", "endpointslices");
pub(crate) const CLUSTER_ROLES: Resource =
    Resource::cluster("rbac.authorization.k8s.io", "v1", "clusterroles");
pub(crate) const SIGNING_REQUESTS: Resource =
    Resource::cluster("certificates.k8s.io", "v1", "certificatesigningrequests");
pub(crate) const ACCESS_REVIEWS: Resource =
    Resource::cluster("authorization.k8s.io", "v1", "subjectaccessreviews");
pub(crate) const CLAIMS: Resource = Resource::namespaced("", "v1", "persistentvolumeclaims");
pub(crate) const VOLUMES: Resource = Resource::cluster("", "v1", "persistentvolumes");
pub(crate) const ATTRIBUTES_CLASSES: Resource =
    Resource::cluster("storage.k8s.io", "v1", "volumeattributesclasses");
pub(crate) const DEVICE_CLASSES: Resource = Resource::cluster("resource.k8s.io", "v1", "deviceclasses");
pub(crate) const API_SERVICES: Resource = Resource::cluster("apiregistration.k8s.io", "v1", "apiservices");
pub(crate) const CRDS: Resource =
    Resource::cluster("apiextensions.k8s.io", "v1", "customresourcedefinitions");
pub(crate) const ORGANIZATIONS: Resource =
    Resource::cluster("resourcemanager.freehold.dev", "v1alpha1", "organizations");
pub(crate) const PROJECTS: Resource =
    Resource::cluster("resourcemanager.freehold.dev", "v1alpha1", "projects");
pub(crate) const CLASSES: Resource =
    Resource::cluster("resourcemanager.freehold.dev", "v1alpha1", "controlplaneclasses");
pub(crate) const MEMBERSHIPS: Resource =
    Resource::namespaced("resourcemanager.freehold.dev", "v1alpha1", "organizationmemberships");
pub(crate) const CONTROL_PLANES: Resource =
    Resource::cluster("infrastructure.freehold.dev", "v1alpha1", "projectcontrolplanes");
pub(crate) const QUOTA_CLAIMS: Resource =
    Resource::namespaced("quota.freehold.dev", "v1alpha1", "resourceclaims");
pub(crate) const SNAPSHOTS: Resource =
    Resource::namespaced("resourcemanager.freehold.dev", "v1alpha1", "projectsnapshots");
pub(crate) const RESTORES: Resource =
    Resource::namespaced("resourcemanager.freehold.dev", "v1alpha1", "projectrestores");
pub(crate) const API_SCHEMAS: Resource =
    Resource::cluster("apis.freehold.dev", "v1alpha1", "apiresourceschemas");
pub(crate) const API_EXPORTS: Resource = Resource::cluster("apis.freehold.dev", "v1alpha1", "apiexports");
pub(crate) const API_ROLLOUTS: Resource = Resource::cluster("apis.freehold.dev", "v1alpha1", "apirollouts");
pub(crate) const IAM_ROLES: Resource = iam("roles");
pub(crate) const BINDINGS: Resource = iam("policybindings");
pub(crate) const GROUPS: Resource = iam("groups");
pub(crate) const GROUP_MEMBERSHIPS: Resource = iam("groupmemberships");
pub(crate) const INVITATIONS: Resource = iam("userinvitations");
pub(crate) const IAM_ACCOUNTS: Resource = iam("serviceaccounts");
pub(crate) const IAM_KEYS: Resource = iam("serviceaccountkeys");

const fn iam(plural: &'static str) -> Resource {
    Resource::namespaced("iam.freehold.dev", "v1alpha1", plural)
}
