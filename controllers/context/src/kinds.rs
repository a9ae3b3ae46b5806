//! The resources that controllers work with.

use freehold_client::Resource;

/// Makes a constant of each resource: name, scope, group, version and plural.
macro_rules! resources {
    ($($name:ident = $scope:ident $group:literal $version:literal $plural:literal;)*) => {
        $(
            #[doc = concat!("The resource `", $plural, "` of the group `", $group, "`.")]
            pub const $name: Resource = Resource::$scope($group, $version, $plural);
        )*
    };
}

resources! {
    NAMESPACES = cluster "" "v1" "namespaces";
    PODS = namespaced "" "v1" "pods";
    SECRETS = namespaced "" "v1" "secrets";
    SERVICES = namespaced "" "v1" "services";
    ENDPOINTS = namespaced "" "v1" "endpoints";
    CONFIG_MAPS = namespaced "" "v1" "configmaps";
    SERVICE_ACCOUNTS = namespaced "" "v1" "serviceaccounts";
    RESOURCE_QUOTAS = namespaced "" "v1" "resourcequotas";
    DEPLOYMENTS = namespaced "apps" "v1" "deployments";
    REPLICA_SETS = namespaced "apps" "v1" "replicasets";
    STATEFUL_SETS = namespaced "apps" "v1" "statefulsets";
    DAEMON_SETS = namespaced "apps" "v1" "daemonsets";
    CONTROLLER_REVISIONS = namespaced "apps" "v1" "controllerrevisions";
    REPLICATION_CONTROLLERS = namespaced "" "v1" "replicationcontrollers";
    AUTOSCALERS = namespaced "autoscaling" "v2" "horizontalpodautoscalers";
    LEASES = namespaced "coordination.k8s.io" "v1" "leases";
    JOBS = namespaced "batch" "v1" "jobs";
    CRON_JOBS = namespaced "batch" "v1" "cronjobs";
    NODES = cluster "" "v1" "nodes";
    DISRUPTION_BUDGETS = namespaced "policy" "v1" "poddisruptionbudgets";
    ENDPOINT_SLICES = namespaced "discovery.k8s.io" "v1" "endpointslices";
    CLUSTER_ROLES = cluster "rbac.authorization.k8s.io" "v1" "clusterroles";
    SIGNING_REQUESTS = cluster "certificates.k8s.io" "v1" "certificatesigningrequests";
    ACCESS_REVIEWS = cluster "authorization.k8s.io" "v1" "subjectaccessreviews";
    CLAIMS = namespaced "" "v1" "persistentvolumeclaims";
    VOLUMES = cluster "" "v1" "persistentvolumes";
    ATTRIBUTES_CLASSES = cluster "storage.k8s.io" "v1" "volumeattributesclasses";
    DEVICE_CLASSES = cluster "resource.k8s.io" "v1" "deviceclasses";
    API_SERVICES = cluster "apiregistration.k8s.io" "v1" "apiservices";
    CRDS = cluster "apiextensions.k8s.io" "v1" "customresourcedefinitions";
    ORGANIZATIONS = cluster "resourcemanager.freehold.dev" "v1alpha1" "organizations";
    PROJECTS = cluster "resourcemanager.freehold.dev" "v1alpha1" "projects";
    CLASSES = cluster "resourcemanager.freehold.dev" "v1alpha1" "controlplaneclasses";
    MEMBERSHIPS = namespaced "resourcemanager.freehold.dev" "v1alpha1" "organizationmemberships";
    CONTROL_PLANES = cluster "infrastructure.freehold.dev" "v1alpha1" "projectcontrolplanes";
    QUOTA_CLAIMS = namespaced "quota.freehold.dev" "v1alpha1" "resourceclaims";
    SNAPSHOTS = namespaced "resourcemanager.freehold.dev" "v1alpha1" "projectsnapshots";
    RESTORES = namespaced "resourcemanager.freehold.dev" "v1alpha1" "projectrestores";
    API_SCHEMAS = cluster "apis.freehold.dev" "v1alpha1" "apiresourceschemas";
    API_EXPORTS = cluster "apis.freehold.dev" "v1alpha1" "apiexports";
    API_ROLLOUTS = cluster "apis.freehold.dev" "v1alpha1" "apirollouts";
    IAM_ROLES = namespaced "iam.freehold.dev" "v1alpha1" "roles";
    BINDINGS = namespaced "iam.freehold.dev" "v1alpha1" "policybindings";
    GROUPS = namespaced "iam.freehold.dev" "v1alpha1" "groups";
    GROUP_MEMBERSHIPS = namespaced "iam.freehold.dev" "v1alpha1" "groupmemberships";
    INVITATIONS = namespaced "iam.freehold.dev" "v1alpha1" "userinvitations";
    IAM_ACCOUNTS = namespaced "iam.freehold.dev" "v1alpha1" "serviceaccounts";
    IAM_KEYS = namespaced "iam.freehold.dev" "v1alpha1" "serviceaccountkeys";
}
