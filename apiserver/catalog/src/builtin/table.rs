//! The kinds of Kubernetes 1.36's stable groups.
//!
//! Facts: kube-apiserver's own discovery documents; the strategies' `PrepareForCreate` for generations; the field
//! label conversions of each group for selectable fields.

use super::{
    columns::*,
    kind::{GroupData, KindData, Sub, cluster, connects, namespaced, posted, proxy, scale, verbs, view},
};

/// What definitions of a group's kinds are named after.
pub(crate) const PACKAGES: &[(&str, &str)] = &[
    ("", "io.k8s.api.core"),
    ("admissionregistration.k8s.io", "io.k8s.api.admissionregistration"),
    ("apiextensions.k8s.io", "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions"),
    ("apiregistration.k8s.io", "io.k8s.kube-aggregator.pkg.apis.apiregistration"),
    ("apps", "io.k8s.api.apps"),
    ("authentication.k8s.io", "io.k8s.api.authentication"),
    ("authorization.k8s.io", "io.k8s.api.authorization"),
    ("autoscaling", "io.k8s.api.autoscaling"),
    ("batch", "io.k8s.api.batch"),
    ("certificates.k8s.io", "io.k8s.api.certificates"),
    ("coordination.k8s.io", "io.k8s.api.coordination"),
    ("discovery.k8s.io", "io.k8s.api.discovery"),
    ("events.k8s.io", "io.k8s.api.events"),
    ("flowcontrol.apiserver.k8s.io", "io.k8s.api.flowcontrol"),
    ("networking.k8s.io", "io.k8s.api.networking"),
    ("node.k8s.io", "io.k8s.api.node"),
    ("policy", "io.k8s.api.policy"),
    ("rbac.authorization.k8s.io", "io.k8s.api.rbac"),
    ("resource.k8s.io", "io.k8s.api.resource"),
    ("scheduling.k8s.io", "io.k8s.api.scheduling"),
    ("storage.k8s.io", "io.k8s.api.storage"),
];

const STATUS: &[Sub] = &[view("status")];
const SCALED: &[Sub] = &[scale(".spec.selector"), view("status")];
const CREATE: &[&str] = &["create"];
const IN_ALL: &[&str] = &["all"];
const EXTENSIONS: &[&str] = &["api-extensions"];

/// Groups in the order of `/apis`, each with its versions, preferred first.
pub(super) const GROUPS: &[GroupData] = &[
    group("", 18100, CORE),
    group("apiregistration.k8s.io", 18000, APIREGISTRATION),
    group("apps", 17800, APPS),
    group("events.k8s.io", 17750, EVENTS),
    group("authentication.k8s.io", 17700, AUTHENTICATION),
    group("authorization.k8s.io", 17600, AUTHORIZATION),
    GroupData { version: "v2", version_priority: 30, ..group("autoscaling", 17500, AUTOSCALING_V2) },
    group("autoscaling", 17500, AUTOSCALING_V1),
    group("batch", 17400, BATCH),
    group("certificates.k8s.io", 17300, CERTIFICATES),
    group("networking.k8s.io", 17200, NETWORKING),
    group("policy", 17100, POLICY),
    group("rbac.authorization.k8s.io", 17000, RBAC),
    group("storage.k8s.io", 16800, STORAGE),
    group("admissionregistration.k8s.io", 16700, ADMISSIONREGISTRATION),
    group("apiextensions.k8s.io", 16700, APIEXTENSIONS),
    group("scheduling.k8s.io", 16600, SCHEDULING),
    group("coordination.k8s.io", 16500, COORDINATION),
    group("node.k8s.io", 16300, NODE),
    group("discovery.k8s.io", 16200, DISCOVERY),
    group("resource.k8s.io", 16150, RESOURCE),
    group("flowcontrol.apiserver.k8s.io", 16100, FLOWCONTROL),
];

const fn group(group: &'static str, priority: i32, kinds: &'static [KindData]) -> GroupData {
    GroupData { group, version: "v1", priority, version_priority: 15, kinds }
}

const POD_FIELDS: &[&str] = &[
    "spec.hostNetwork",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "status.nominatedNodeName",
    "status.phase",
    "status.podIP",
    "status.podIPs",
];

const EVENT_FIELDS: &[&str] = &[
    "involvedObject.apiVersion",
    "involvedObject.fieldPath",
    "involvedObject.kind",
    "involvedObject.name",
    "involvedObject.namespace",
    "involvedObject.resourceVersion",
    "involvedObject.uid",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

const NEW_EVENT_FIELDS: &[&str] = &[
    "reason",
    "regarding.apiVersion",
    "regarding.fieldPath",
    "regarding.kind",
    "regarding.name",
    "regarding.namespace",
    "regarding.resourceVersion",
    "regarding.uid",
    "reportingController",
    "type",
];

const CORE: &[KindData] = &[
    namespaced("Binding", "bindings", CREATED).verbs(CREATE),
    cluster("ComponentStatus", "componentstatuses", COMPONENT_STATUS)
        .short(&["cs"])
        .verbs(&["get", "list"])
        .deprecated("v1 ComponentStatus is deprecated in v1.19+"),
    namespaced("ConfigMap", "configmaps", CONFIG_MAP).short(&["cm"]),
    namespaced("Endpoints", "endpoints", ENDPOINTS)
        .short(&["ep"])
        .deprecated("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
    namespaced("Event", "events", EVENT).short(&["ev"]).fields(EVENT_FIELDS),
    namespaced("LimitRange", "limitranges", CREATED).short(&["limits"]),
    cluster("Namespace", "namespaces", NAMESPACE)
        .short(&["ns"])
        .verbs(&["create", "delete", "get", "list", "patch", "update", "watch"])
        .subs(&[verbs("finalize", &["update"]), view("status")])
        .fields(&["status.phase"]),
    cluster("Node", "nodes", NODES)
        .short(&["no"])
        .subs(&[proxy("NodeProxyOptions"), view("status")])
        .fields(&["spec.unschedulable"]),
    namespaced("PersistentVolumeClaim", "persistentvolumeclaims", PERSISTENT_VOLUME_CLAIM)
        .short(&["pvc"])
        .subs(STATUS),
    cluster("PersistentVolume", "persistentvolumes", PERSISTENT_VOLUME).short(&["pv"]).subs(STATUS),
    namespaced("Pod", "pods", POD)
        .short(&["po"])
        .category(IN_ALL)
        .subs(&[
            connects("attach", "PodAttachOptions"),
            posted("binding", "", "v1", "Binding"),
            view("ephemeralcontainers"),
            posted("eviction", "policy", "v1", "Eviction"),
            connects("exec", "PodExecOptions"),
            verbs("log", &["get"]),
            connects("portforward", "PodPortForwardOptions"),
            proxy("PodProxyOptions"),
            view("resize"),
            view("status"),
        ])
        .fields(POD_FIELDS)
        .generation(),
    namespaced("PodTemplate", "podtemplates", POD_TEMPLATE).generation(),
    namespaced("ReplicationController", "replicationcontrollers", REPLICA_SET)
        .short(&["rc"])
        .category(IN_ALL)
        .subs(SCALED)
        .fields(&["status.replicas"])
        .generation(),
    namespaced("ResourceQuota", "resourcequotas", RESOURCE_QUOTA).short(&["quota"]).subs(STATUS),
    namespaced("Secret", "secrets", SECRET).fields(&["type"]),
    namespaced("ServiceAccount", "serviceaccounts", AGE_ONLY).short(&["sa"]).subs(&[posted(
        "token",
        "authentication.k8s.io",
        "v1",
        "TokenRequest",
    )]),
    namespaced("Service", "services", SERVICE)
        .short(&["svc"])
        .category(IN_ALL)
        .subs(&[proxy("ServiceProxyOptions"), view("status")])
        .fields(&["spec.clusterIP", "spec.type"]),
];

const APIREGISTRATION: &[KindData] =
    &[cluster("APIService", "apiservices", API_SERVICE).category(EXTENSIONS).subs(STATUS)];

const APPS: &[KindData] = &[
    namespaced("ControllerRevision", "controllerrevisions", CONTROLLER_REVISION),
    namespaced("DaemonSet", "daemonsets", DAEMON_SET)
        .short(&["ds"])
        .category(IN_ALL)
        .subs(STATUS)
        .generation(),
    namespaced("Deployment", "deployments", DEPLOYMENT)
        .short(&["deploy"])
        .category(IN_ALL)
        .subs(SCALED)
        .generation(),
    namespaced("ReplicaSet", "replicasets", REPLICA_SET)
        .short(&["rs"])
        .category(IN_ALL)
        .subs(SCALED)
        .generation(),
    namespaced("StatefulSet", "statefulsets", STATEFUL_SET)
        .short(&["sts"])
        .category(IN_ALL)
        .subs(SCALED)
        .generation(),
];

const EVENTS: &[KindData] = &[namespaced("Event", "events", NEW_EVENT)
    .short(&["ev"])
    .fields(NEW_EVENT_FIELDS)
    .stored_as("", "v1", "events")];

const AUTHENTICATION: &[KindData] = &[
    cluster("SelfSubjectReview", "selfsubjectreviews", CREATED).verbs(CREATE),
    cluster("TokenReview", "tokenreviews", CREATED).verbs(CREATE),
];

const AUTHORIZATION: &[KindData] = &[
    namespaced("LocalSubjectAccessReview", "localsubjectaccessreviews", CREATED).verbs(CREATE),
    cluster("SelfSubjectAccessReview", "selfsubjectaccessreviews", CREATED).verbs(CREATE),
    cluster("SelfSubjectRulesReview", "selfsubjectrulesreviews", CREATED).verbs(CREATE),
    cluster("SubjectAccessReview", "subjectaccessreviews", CREATED).verbs(CREATE),
];

const HPA: KindData = namespaced("HorizontalPodAutoscaler", "horizontalpodautoscalers", AUTOSCALER)
    .short(&["hpa"])
    .category(IN_ALL)
    .subs(STATUS);

const AUTOSCALING_V2: &[KindData] = &[HPA];

const AUTOSCALING_V1: &[KindData] =
    &[KindData { columns: AUTOSCALER_V1, ..HPA }.stored_as("autoscaling", "v2", "horizontalpodautoscalers")];

const BATCH: &[KindData] = &[
    namespaced("CronJob", "cronjobs", CRON_JOB).short(&["cj"]).category(IN_ALL).subs(STATUS).generation(),
    namespaced("Job", "jobs", JOB).category(IN_ALL).subs(STATUS).fields(&["status.successful"]).generation(),
];

const CERTIFICATES: &[KindData] =
    &[cluster("CertificateSigningRequest", "certificatesigningrequests", SIGNING_REQUEST)
        .short(&["csr"])
        .subs(&[view("approval"), view("status")])
        .fields(&["spec.signerName"])];

const NETWORKING: &[KindData] = &[
    cluster("IngressClass", "ingressclasses", INGRESS_CLASS).generation(),
    namespaced("Ingress", "ingresses", INGRESS).short(&["ing"]).subs(STATUS).generation(),
    cluster("IPAddress", "ipaddresses", IP_ADDRESS).short(&["ip"]),
    namespaced("NetworkPolicy", "networkpolicies", NETWORK_POLICY).short(&["netpol"]).generation(),
    cluster("ServiceCIDR", "servicecidrs", SERVICE_CIDR).subs(STATUS),
];

const POLICY: &[KindData] = &[namespaced("PodDisruptionBudget", "poddisruptionbudgets", DISRUPTION_BUDGET)
    .short(&["pdb"])
    .subs(STATUS)
    .generation()];

const RBAC: &[KindData] = &[
    cluster("ClusterRoleBinding", "clusterrolebindings", ROLE_BINDING),
    cluster("ClusterRole", "clusterroles", CREATED),
    namespaced("RoleBinding", "rolebindings", ROLE_BINDING),
    namespaced("Role", "roles", CREATED),
];

const STORAGE: &[KindData] = &[
    cluster("CSIDriver", "csidrivers", CSI_DRIVER),
    cluster("CSINode", "csinodes", CSI_NODE),
    namespaced("CSIStorageCapacity", "csistoragecapacities", CSI_CAPACITY),
    cluster("StorageClass", "storageclasses", STORAGE_CLASS).short(&["sc"]),
    cluster("VolumeAttachment", "volumeattachments", VOLUME_ATTACHMENT).subs(STATUS),
    cluster("VolumeAttributesClass", "volumeattributesclasses", VOLUME_ATTRIBUTES_CLASS).short(&["vac"]),
];

const ADMISSIONREGISTRATION: &[KindData] = &[
    cluster("MutatingAdmissionPolicy", "mutatingadmissionpolicies", MUTATING_POLICY)
        .category(EXTENSIONS)
        .generation(),
    cluster("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings", POLICY_BINDING)
        .category(EXTENSIONS)
        .generation(),
    cluster("MutatingWebhookConfiguration", "mutatingwebhookconfigurations", WEBHOOKS)
        .category(EXTENSIONS)
        .generation(),
    cluster("ValidatingAdmissionPolicy", "validatingadmissionpolicies", VALIDATING_POLICY)
        .category(EXTENSIONS)
        .subs(STATUS)
        .generation(),
    cluster("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", POLICY_BINDING)
        .category(EXTENSIONS)
        .generation(),
    cluster("ValidatingWebhookConfiguration", "validatingwebhookconfigurations", WEBHOOKS)
        .category(EXTENSIONS)
        .generation(),
];

const APIEXTENSIONS: &[KindData] =
    &[cluster("CustomResourceDefinition", "customresourcedefinitions", CREATED)
        .short(&["crd", "crds"])
        .category(EXTENSIONS)
        .subs(STATUS)
        .generation()];

const SCHEDULING: &[KindData] =
    &[cluster("PriorityClass", "priorityclasses", PRIORITY_CLASS).short(&["pc"]).generation()];

const COORDINATION: &[KindData] = &[namespaced("Lease", "leases", LEASE)];

const NODE: &[KindData] = &[cluster("RuntimeClass", "runtimeclasses", RUNTIME_CLASS)];

const DISCOVERY: &[KindData] = &[namespaced("EndpointSlice", "endpointslices", ENDPOINT_SLICE).generation()];

const FLOWCONTROL: &[KindData] = &[
    cluster("FlowSchema", "flowschemas", FLOW_SCHEMA).subs(STATUS).generation(),
    cluster("PriorityLevelConfiguration", "prioritylevelconfigurations", PRIORITY_LEVEL)
        .subs(STATUS)
        .generation(),
];

const RESOURCE: &[KindData] = &[
    cluster("DeviceClass", "deviceclasses", AGE_ONLY).generation(),
    namespaced("ResourceClaim", "resourceclaims", RESOURCE_CLAIM).subs(STATUS),
    namespaced("ResourceClaimTemplate", "resourceclaimtemplates", AGE_ONLY),
    cluster("ResourceSlice", "resourceslices", RESOURCE_SLICE)
        .fields(&["spec.driver", "spec.nodeName"])
        .generation(),
];
