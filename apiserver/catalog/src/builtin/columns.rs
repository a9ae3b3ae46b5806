//! The columns of built-in kinds in `kubectl get`, as Kubernetes' `pkg/printers/internalversion` declares them.
//!
//! `Name` comes first by itself, unless a column of format `name` says where it stands. The cell functions are
//! those of `freehold_machinery::table`. The columns' descriptions are in `printed.json`.

use freehold_machinery::resource::{Cell, Column};
use freehold_machinery_table as table;

/// A column as the constants below state it.
pub(crate) struct Col {
    name: &'static str,
    kind: &'static str,
    format: &'static str,
    priority: i32,
    cell: &'static str,
}

impl Col {
    /// The column in the form that tables read.
    pub(crate) fn column(&self, described: impl Fn(&str) -> Option<String>) -> Column {
        let description = described(self.name).unwrap_or_else(|| match self.cell {
            "age" | "created" => table::CREATED.to_owned(),
            _ => table::NAME.to_owned(),
        });
        Column {
            name: self.name.to_owned(),
            kind: self.kind.to_owned(),
            format: self.format.to_owned(),
            description,
            priority: self.priority,
            cell: Cell::Function(self.cell),
        }
    }

    /// Shown with `-o wide` only.
    const fn wide(self) -> Self {
        Self { priority: 1, ..self }
    }

    /// Where the name stands.
    const fn name(self) -> Self {
        Self { format: "name", ..self }
    }
}

const fn text(name: &'static str, cell: &'static str) -> Col {
    Col { name, kind: "string", format: "", priority: 0, cell }
}

const fn number(name: &'static str, cell: &'static str) -> Col {
    Col { kind: "integer", ..text(name, cell) }
}

const fn flag(name: &'static str, cell: &'static str) -> Col {
    Col { kind: "boolean", ..text(name, cell) }
}

const AGE: Col = text("Age", "age");
const CONTAINERS: Col = text("Containers", "containers .spec.template.spec").wide();
const IMAGES: Col = text("Images", "images .spec.template.spec").wide();
const SELECTOR: Col = text("Selector", "selector .spec.selector").wide();

pub(super) const AGE_ONLY: &[Col] = &[AGE];

pub(super) const CREATED: &[Col] = &[Col { kind: "date", ..text("Created At", "created") }];

pub(super) const COMPONENT_STATUS: &[Col] = &[
    text("Status", "component-status"),
    text("Message", "component-message"),
    text("Error", "component-error"),
];

pub(super) const CONFIG_MAP: &[Col] = &[text("Data", "count .data .binaryData"), AGE];

pub(super) const ENDPOINTS: &[Col] = &[text("Endpoints", "endpoints"), AGE];

pub(super) const EVENT: &[Col] = &[
    text("Last Seen", "event-last-seen"),
    text("Type", "text .type"),
    text("Reason", "text .reason"),
    text("Object", "event-object .involvedObject"),
    text("Subobject", "text .involvedObject.fieldPath").wide(),
    text("Source", "event-source").wide(),
    text("Message", "message .message"),
    text("First Seen", "event-first-seen").wide(),
    text("Count", "event-count").wide(),
    text("Name", "text .metadata.name").name().wide(),
];

pub(super) const NEW_EVENT: &[Col] = &[
    text("Last Seen", "event-last-seen"),
    text("Type", "text .type"),
    text("Reason", "text .reason"),
    text("Object", "event-object .regarding"),
    text("Subobject", "text .regarding.fieldPath").wide(),
    text("Source", "event-source").wide(),
    text("Message", "message .note"),
    text("First Seen", "event-first-seen").wide(),
    text("Count", "event-count").wide(),
    text("Name", "text .metadata.name").name().wide(),
];

pub(super) const NAMESPACE: &[Col] = &[text("Status", "text .status.phase"), AGE];

pub(super) const NODES: &[Col] = &[
    text("Status", "node-status"),
    text("Roles", "node-roles"),
    AGE,
    text("Version", "text .status.nodeInfo.kubeletVersion"),
    text("Internal-IP", "node-address InternalIP").wide(),
    text("External-IP", "node-address ExternalIP").wide(),
    text("OS-Image", "or <unknown> .status.nodeInfo.osImage").wide(),
    text("Kernel-Version", "node-kernel").wide(),
    text("Container-Runtime", "or <unknown> .status.nodeInfo.containerRuntimeVersion").wide(),
];

pub(super) const PERSISTENT_VOLUME: &[Col] = &[
    text("Capacity", "or 0 .spec.capacity.storage"),
    text("Access Modes", "access-modes .spec.accessModes"),
    text("Reclaim Policy", "text .spec.persistentVolumeReclaimPolicy"),
    text("Status", "phase"),
    text("Claim", "claim"),
    text("StorageClass", "storage-class"),
    text("VolumeAttributesClass", "or <unset> .spec.volumeAttributesClassName"),
    text("Reason", "text .status.reason"),
    AGE,
    text("VolumeMode", "or <unset> .spec.volumeMode").wide(),
];

pub(super) const PERSISTENT_VOLUME_CLAIM: &[Col] = &[
    text("Status", "phase"),
    text("Volume", "text .spec.volumeName"),
    text("Capacity", "claim-capacity"),
    text("Access Modes", "claim-access-modes"),
    text("StorageClass", "storage-class"),
    text("VolumeAttributesClass", "or <unset> .spec.volumeAttributesClassName"),
    AGE,
    text("VolumeMode", "or <unset> .spec.volumeMode").wide(),
];

pub(super) const POD: &[Col] = &[
    text("Ready", "pod-ready"),
    text("Status", "pod-status"),
    text("Restarts", "pod-restarts"),
    AGE,
    text("IP", "pod-ip").wide(),
    text("Node", "or <none> .spec.nodeName").wide(),
    text("Nominated Node", "or <none> .status.nominatedNodeName").wide(),
    text("Readiness Gates", "pod-readiness-gates").wide(),
];

pub(super) const POD_TEMPLATE: &[Col] = &[
    text("Containers", "containers .template.spec"),
    text("Images", "images .template.spec"),
    text("Pod Labels", "selector .template.metadata.labels"),
];

pub(super) const REPLICA_SET: &[Col] = &[
    number("Desired", "int .spec.replicas"),
    number("Current", "int .status.replicas"),
    number("Ready", "int .status.readyReplicas"),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

pub(super) const RESOURCE_QUOTA: &[Col] =
    &[text("Request", "quota-requests"), text("Limit", "quota-limits"), AGE];

pub(super) const SECRET: &[Col] = &[text("Type", "text .type"), text("Data", "count .data"), AGE];

pub(super) const SERVICE: &[Col] = &[
    text("Type", "text .spec.type"),
    text("Cluster-IP", "service-cluster-ip"),
    text("External-IP", "service-external-ip"),
    text("Port(s)", "service-ports"),
    AGE,
    text("Selector", "selector .spec.selector").wide(),
];

pub(super) const API_SERVICE: &[Col] =
    &[text("Service", "api-service"), text("Available", "api-service-available"), AGE];

pub(super) const CONTROLLER_REVISION: &[Col] =
    &[text("Controller", "controller"), text("Revision", "int .revision"), AGE];

pub(super) const DAEMON_SET: &[Col] = &[
    number("Desired", "int .status.desiredNumberScheduled"),
    number("Current", "int .status.currentNumberScheduled"),
    number("Ready", "int .status.numberReady"),
    number("Up-to-date", "int .status.updatedNumberScheduled"),
    number("Available", "int .status.numberAvailable"),
    text("Node Selector", "selector .spec.template.spec.nodeSelector"),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

pub(super) const DEPLOYMENT: &[Col] = &[
    text("Ready", "ratio .status.readyReplicas .spec.replicas"),
    text("Up-to-date", "int .status.updatedReplicas"),
    text("Available", "int .status.availableReplicas"),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

pub(super) const STATEFUL_SET: &[Col] =
    &[text("Ready", "ratio .status.readyReplicas .spec.replicas"), AGE, CONTAINERS, IMAGES];

pub(super) const AUTOSCALER: &[Col] = &autoscaler("hpa-targets");
pub(super) const AUTOSCALER_V1: &[Col] = &autoscaler("hpa-targets-v1");

const fn autoscaler(targets: &'static str) -> [Col; 6] {
    [
        text("Reference", "hpa-reference"),
        text("Targets", targets),
        text("MinPods", "or <unset> .spec.minReplicas"),
        text("MaxPods", "int .spec.maxReplicas"),
        text("Replicas", "int .status.currentReplicas"),
        AGE,
    ]
}

pub(super) const CRON_JOB: &[Col] = &[
    text("Schedule", "text .spec.schedule"),
    text("Timezone", "or <none> .spec.timeZone"),
    flag("Suspend", "printed-flag .spec.suspend"),
    number("Active", "count .status.active"),
    text("Last Schedule", "since .status.lastScheduleTime"),
    AGE,
    text("Containers", "containers .spec.jobTemplate.spec.template.spec").wide(),
    text("Images", "images .spec.jobTemplate.spec.template.spec").wide(),
    text("Selector", "selector .spec.jobTemplate.spec.selector").wide(),
];

pub(super) const JOB: &[Col] = &[
    text("Status", "job-status"),
    text("Completions", "job-completions"),
    text("Duration", "job-duration"),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

pub(super) const SIGNING_REQUEST: &[Col] = &[
    AGE,
    text("SignerName", "or <none> .spec.signerName"),
    text("Requestor", "text .spec.username"),
    text("RequestedDuration", "requested-duration"),
    text("Condition", "csr-condition"),
];

pub(super) const INGRESS_CLASS: &[Col] = &[
    text("Name", "class-name").name(),
    text("Controller", "text .spec.controller"),
    text("Parameters", "ingress-parameters"),
    AGE,
];

pub(super) const INGRESS: &[Col] = &[
    text("Class", "ingress-class"),
    text("Hosts", "ingress-hosts"),
    text("Address", "load-balancer"),
    text("Ports", "ingress-ports"),
    AGE,
];

pub(super) const IP_ADDRESS: &[Col] = &[text("ParentRef", "parent-ref")];

pub(super) const NETWORK_POLICY: &[Col] = &[text("Pod-Selector", "selector .spec.podSelector"), AGE];

pub(super) const SERVICE_CIDR: &[Col] = &[text("CIDRs", "words .spec.cidrs"), AGE];

pub(super) const DISRUPTION_BUDGET: &[Col] = &[
    text("Min Available", "or N/A .spec.minAvailable"),
    text("Max Unavailable", "or N/A .spec.maxUnavailable"),
    number("Allowed Disruptions", "int .status.disruptionsAllowed"),
    AGE,
];

pub(super) const ROLE_BINDING: &[Col] = &[
    text("Role", "role-ref"),
    AGE,
    text("Users", "subjects User").wide(),
    text("Groups", "subjects Group").wide(),
    text("ServiceAccounts", "subjects ServiceAccount").wide(),
];

pub(super) const CSI_DRIVER: &[Col] = &[
    flag("AttachRequired", "flag-or-true .spec.attachRequired"),
    flag("PodInfoOnMount", "flag .spec.podInfoOnMount"),
    flag("StorageCapacity", "flag .spec.storageCapacity"),
    text("TokenRequests", "csi-audiences"),
    flag("RequiresRepublish", "flag .spec.requiresRepublish"),
    text("Modes", "list .spec.volumeLifecycleModes"),
    AGE,
];

pub(super) const CSI_NODE: &[Col] = &[number("Drivers", "count .spec.drivers"), AGE];

pub(super) const CSI_CAPACITY: &[Col] =
    &[text("StorageClassName", "text .storageClassName"), text("Capacity", "or <unset> .capacity")];

pub(super) const STORAGE_CLASS: &[Col] = &[
    text("Name", "class-name").name(),
    text("Provisioner", "text .provisioner"),
    text("ReclaimPolicy", "or Delete .reclaimPolicy"),
    text("VolumeBindingMode", "or Immediate .volumeBindingMode"),
    text("AllowVolumeExpansion", "flag .allowVolumeExpansion"),
    AGE,
];

pub(super) const VOLUME_ATTACHMENT: &[Col] = &[
    text("Name", "text .metadata.name").name(),
    text("Attacher", "text .spec.attacher").name(),
    text("PV", "text .spec.source.persistentVolumeName"),
    text("Node", "text .spec.nodeName"),
    flag("Attached", "flag .status.attached"),
    AGE,
];

pub(super) const VOLUME_ATTRIBUTES_CLASS: &[Col] = &[text("DriverName", "text .driverName"), AGE];

pub(super) const WEBHOOKS: &[Col] = &[number("Webhooks", "count .webhooks"), AGE];

pub(super) const VALIDATING_POLICY: &[Col] =
    &[number("Validations", "count .spec.validations"), text("ParamKind", "param-kind"), AGE];

pub(super) const MUTATING_POLICY: &[Col] =
    &[number("Mutations", "count .spec.mutations"), text("ParamKind", "param-kind"), AGE];

pub(super) const POLICY_BINDING: &[Col] =
    &[text("PolicyName", "text .spec.policyName"), text("ParamRef", "param-ref"), AGE];

pub(super) const PRIORITY_CLASS: &[Col] = &[
    number("Value", "int .value"),
    flag("Global-Default", "flag .globalDefault"),
    AGE,
    text("PreemptionPolicy", "text .preemptionPolicy"),
];

pub(super) const LEASE: &[Col] = &[text("Holder", "text .spec.holderIdentity"), AGE];

pub(super) const RUNTIME_CLASS: &[Col] = &[text("Handler", "text .handler"), AGE];

pub(super) const ENDPOINT_SLICE: &[Col] = &[
    text("AddressType", "text .addressType"),
    text("Ports", "slice-ports"),
    text("Endpoints", "slice-endpoints"),
    AGE,
];

pub(super) const FLOW_SCHEMA: &[Col] = &[
    text("PriorityLevel", "text .spec.priorityLevelConfiguration.name"),
    text("MatchingPrecedence", "int .spec.matchingPrecedence"),
    text("DistinguisherMethod", "or <none> .spec.distinguisherMethod.type"),
    AGE,
    text("MissingPL", "missing-priority-level"),
];

pub(super) const PRIORITY_LEVEL: &[Col] = &[
    text("Type", "text .spec.type"),
    text("NominalConcurrencyShares", "raw <none> .spec.limited.nominalConcurrencyShares"),
    text("Queues", "raw <none> .spec.limited.limitResponse.queuing.queues"),
    text("HandSize", "raw <none> .spec.limited.limitResponse.queuing.handSize"),
    text("QueueLengthLimit", "raw <none> .spec.limited.limitResponse.queuing.queueLengthLimit"),
    AGE,
];

pub(super) const RESOURCE_CLAIM: &[Col] = &[text("State", "claim-state"), AGE];

pub(super) const RESOURCE_SLICE: &[Col] = &[
    text("Node", "text .spec.nodeName"),
    text("Driver", "text .spec.driver"),
    text("Pool", "text .spec.pool.name"),
    AGE,
];
