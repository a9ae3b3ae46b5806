//! What `kubectl get` prints of the built-in kinds, as Kubernetes' `pkg/printers/internalversion` declares it.
//!
//! `Name` comes first by itself, unless a column of format `name` says where it stands. The cell functions are
//! those of `freehold_machinery::table`.

use freehold_machinery::resource::{Cell, Column};

/// A column as the constants below state it.
pub(crate) struct Col {
    name: &'static str,
    kind: &'static str,
    format: &'static str,
    priority: i32,
    cell: &'static str,
    description: &'static str,
}

impl Col {
    /// The column in the form that tables read.
    pub(crate) fn column(&self) -> Column {
        Column {
            name: self.name.to_owned(),
            kind: self.kind.to_owned(),
            format: self.format.to_owned(),
            description: self.description.to_owned(),
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

const fn text(name: &'static str, cell: &'static str, description: &'static str) -> Col {
    Col { name, kind: "string", format: "", priority: 0, cell, description }
}

const fn number(name: &'static str, cell: &'static str, description: &'static str) -> Col {
    Col { kind: "integer", ..text(name, cell, description) }
}

const fn flag(name: &'static str, cell: &'static str, description: &'static str) -> Col {
    Col { kind: "boolean", ..text(name, cell, description) }
}

const AGE: Col = text("Age", "age", "Time since the object was created.");
const CONTAINERS: Col =
    text("Containers", "containers .spec.template.spec", "Names of each container in the template.").wide();
const IMAGES: Col =
    text("Images", "images .spec.template.spec", "Images referenced by each container in the template.")
        .wide();
const SELECTOR: Col = text("Selector", "selector .spec.selector", "Label selector for pods.").wide();

pub(super) const AGE_ONLY: &[Col] = &[AGE];

pub(super) const CREATED: &[Col] = &[Col {
    kind: "date",
    ..text("Created At", "created", "When the object was created, in RFC 3339 and UTC.")
}];

pub(super) const COMPONENT_STATUS: &[Col] = &[
    text("Status", "component-status", "Status of the component conditions"),
    text("Message", "component-message", "Message of the component conditions"),
    text("Error", "component-error", "Error of the component conditions"),
];

pub(super) const CONFIG_MAP: &[Col] = &[text("Data", "count .data .binaryData", "Number of keys."), AGE];

pub(super) const ENDPOINTS: &[Col] =
    &[text("Endpoints", "endpoints", "Addresses with their ports, the first three."), AGE];

pub(super) const EVENT: &[Col] = &[
    text("Last Seen", "event-last-seen", "Time since the event was last recorded."),
    text("Type", "text .type", "Type of this event (Normal, Warning)."),
    text("Reason", "text .reason", "Short, machine understandable reason."),
    text("Object", "event-object .involvedObject", "The object that this event is about."),
    text("Subobject", "text .involvedObject.fieldPath", "The part of the object.").wide(),
    text("Source", "event-source", "The component that reported this event.").wide(),
    text("Message", "message .message", "Description of what happened."),
    text("First Seen", "event-first-seen", "Time since the event was first recorded.").wide(),
    text("Count", "event-count", "How often this event has occurred.").wide(),
    text("Name", "text .metadata.name", "Name of the event.").name().wide(),
];

pub(super) const NEW_EVENT: &[Col] = &[
    text("Last Seen", "event-last-seen", "Time since the event was last recorded."),
    text("Type", "text .type", "Type of this event (Normal, Warning)."),
    text("Reason", "text .reason", "Short, machine understandable reason."),
    text("Object", "event-object .regarding", "The object that this event is about."),
    text("Subobject", "text .regarding.fieldPath", "The part of the object.").wide(),
    text("Source", "event-source", "The component that reported this event.").wide(),
    text("Message", "message .note", "Description of what happened."),
    text("First Seen", "event-first-seen", "Time since the event was first recorded.").wide(),
    text("Count", "event-count", "How often this event has occurred.").wide(),
    text("Name", "text .metadata.name", "Name of the event.").name().wide(),
];

pub(super) const NAMESPACE: &[Col] =
    &[text("Status", "text .status.phase", "The status of the namespace"), AGE];

pub(super) const NODES: &[Col] = &[
    text("Status", "node-status", "The status of the node"),
    text("Roles", "node-roles", "The roles of the node"),
    AGE,
    text("Version", "text .status.nodeInfo.kubeletVersion", "Version that the node reports."),
    text("Internal-IP", "node-address InternalIP", "The node's address within the cluster.").wide(),
    text("External-IP", "node-address ExternalIP", "The node's address from outside.").wide(),
    text("OS-Image", "or <unknown> .status.nodeInfo.osImage", "Operating system of the node.").wide(),
    text("Kernel-Version", "node-kernel", "Kernel of the node.").wide(),
    text(
        "Container-Runtime",
        "or <unknown> .status.nodeInfo.containerRuntimeVersion",
        "What runs its containers.",
    )
    .wide(),
];

pub(super) const PERSISTENT_VOLUME: &[Col] = &[
    text("Capacity", "or 0 .spec.capacity.storage", "Size of the volume."),
    text("Access Modes", "access-modes .spec.accessModes", "All ways in which the volume can be mounted."),
    text(
        "Reclaim Policy",
        "text .spec.persistentVolumeReclaimPolicy",
        "What happens when its claim is gone.",
    ),
    text("Status", "phase", "Whether it is available, bound or released."),
    text("Claim", "claim", "The claim that it is bound to."),
    text("StorageClass", "storage-class", "StorageClass of the pv"),
    text(
        "VolumeAttributesClass",
        "or <unset> .spec.volumeAttributesClassName",
        "VolumeAttributesClass of the pv",
    ),
    text("Reason", "text .status.reason", "Why it is in a failed state."),
    AGE,
    text("VolumeMode", "or <unset> .spec.volumeMode", "Whether it is a filesystem or a block device.").wide(),
];

pub(super) const PERSISTENT_VOLUME_CLAIM: &[Col] = &[
    text("Status", "phase", "Whether it is pending, bound or lost."),
    text("Volume", "text .spec.volumeName", "The volume that it is bound to."),
    text("Capacity", "claim-capacity", "Size of that volume."),
    text("Access Modes", "claim-access-modes", "Ways in which that volume can be mounted."),
    text("StorageClass", "storage-class", "StorageClass of the pvc"),
    text(
        "VolumeAttributesClass",
        "or <unset> .spec.volumeAttributesClassName",
        "VolumeAttributesClass of the pvc",
    ),
    AGE,
    text("VolumeMode", "or <unset> .spec.volumeMode", "Whether it is a filesystem or a block device.").wide(),
];

pub(super) const POD: &[Col] = &[
    text("Ready", "pod-ready", "The aggregate readiness state of this pod for accepting traffic."),
    text("Status", "pod-status", "The aggregate status of the containers in this pod."),
    text("Restarts", "pod-restarts", "The number of times the containers in this pod have been restarted."),
    AGE,
    text("IP", "pod-ip", "Address of the pod.").wide(),
    text("Node", "or <none> .spec.nodeName", "The node that it runs on.").wide(),
    text("Nominated Node", "or <none> .status.nominatedNodeName", "The node that it may get to run on.")
        .wide(),
    text("Readiness Gates", "pod-readiness-gates", "Conditions that its readiness waits for.").wide(),
];

pub(super) const POD_TEMPLATE: &[Col] = &[
    text("Containers", "containers .template.spec", "Names of each container in the template."),
    text("Images", "images .template.spec", "Images referenced by each container in the template."),
    text("Pod Labels", "selector .template.metadata.labels", "The labels for the pod template."),
];

pub(super) const REPLICA_SET: &[Col] = &[
    number("Desired", "int .spec.replicas", "Number of desired pods."),
    number("Current", "int .status.replicas", "Number of pods that exist."),
    number("Ready", "int .status.readyReplicas", "Number of pods that are ready."),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

pub(super) const RESOURCE_QUOTA: &[Col] = &[
    text("Request", "quota-requests", "Of each request that is limited, what is used and what is allowed."),
    text("Limit", "quota-limits", "Of each limit that is limited, what is used and what is allowed."),
    AGE,
];

pub(super) const SECRET: &[Col] = &[
    text("Type", "text .type", "What the secret is for."),
    text("Data", "count .data", "Number of keys."),
    AGE,
];

pub(super) const SERVICE: &[Col] = &[
    text("Type", "text .spec.type", "How the service is exposed."),
    text("Cluster-IP", "service-cluster-ip", "Address of the service within the cluster."),
    text("External-IP", "service-external-ip", "Addresses of the service from outside."),
    text("Port(s)", "service-ports", "Ports, with their node ports and protocols."),
    AGE,
    text("Selector", "selector .spec.selector", "Labels of the pods behind it.").wide(),
];

pub(super) const API_SERVICE: &[Col] = &[
    text("Service", "api-service", "The service that serves this version, or Local."),
    text("Available", "api-service-available", "Whether it is available, and if not, why."),
    AGE,
];

pub(super) const CONTROLLER_REVISION: &[Col] = &[
    text("Controller", "controller", "Controller of the object"),
    text("Revision", "int .revision", "Revision of the state."),
    AGE,
];

pub(super) const DAEMON_SET: &[Col] = &[
    number("Desired", "int .status.desiredNumberScheduled", "Number of nodes that should run the pod."),
    number("Current", "int .status.currentNumberScheduled", "Number of nodes that run it, as they should."),
    number("Ready", "int .status.numberReady", "Number of nodes on which it is ready."),
    number("Up-to-date", "int .status.updatedNumberScheduled", "Number of nodes that run its newest form."),
    number(
        "Available",
        "int .status.numberAvailable",
        "Number of nodes on which it has been ready long enough.",
    ),
    text(
        "Node Selector",
        "selector .spec.template.spec.nodeSelector",
        "Labels of the nodes that should run it.",
    ),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

pub(super) const DEPLOYMENT: &[Col] = &[
    text("Ready", "ratio .status.readyReplicas .spec.replicas", "Number of the pod with ready state"),
    text("Up-to-date", "int .status.updatedReplicas", "Number of pods of the newest template."),
    text("Available", "int .status.availableReplicas", "Number of pods that are available."),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

pub(super) const STATEFUL_SET: &[Col] = &[
    text("Ready", "ratio .status.readyReplicas .spec.replicas", "Number of the pod with ready state"),
    AGE,
    CONTAINERS,
    IMAGES,
];

pub(super) const AUTOSCALER: &[Col] = &autoscaler("hpa-targets");
pub(super) const AUTOSCALER_V1: &[Col] = &autoscaler("hpa-targets-v1");

const fn autoscaler(targets: &'static str) -> [Col; 6] {
    [
        text("Reference", "hpa-reference", "What is scaled."),
        text("Targets", targets, "Current and wanted metrics."),
        text("MinPods", "or <unset> .spec.minReplicas", "Fewest replicas."),
        text("MaxPods", "int .spec.maxReplicas", "Most replicas."),
        text("Replicas", "int .status.currentReplicas", "Replicas that are."),
        AGE,
    ]
}

pub(super) const CRON_JOB: &[Col] = &[
    text("Schedule", "text .spec.schedule", "When it runs, in the form of cron."),
    text("Timezone", "or <none> .spec.timeZone", "The time zone of the schedule."),
    flag("Suspend", "printed-flag .spec.suspend", "Whether it is suspended."),
    number("Active", "count .status.active", "Number of jobs that run."),
    text("Last Schedule", "since .status.lastScheduleTime", "Time since it ran last."),
    AGE,
    text("Containers", "containers .spec.jobTemplate.spec.template.spec", "Names of each container.").wide(),
    text("Images", "images .spec.jobTemplate.spec.template.spec", "Images of each container.").wide(),
    text("Selector", "selector .spec.jobTemplate.spec.selector", "Label selector for pods.").wide(),
];

pub(super) const JOB: &[Col] = &[
    text("Status", "job-status", "Status of the job."),
    text("Completions", "job-completions", "Pods that succeeded, of those that should."),
    text("Duration", "job-duration", "Time required to complete the job."),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

pub(super) const SIGNING_REQUEST: &[Col] = &[
    AGE,
    text("SignerName", "or <none> .spec.signerName", "Who is to sign."),
    text("Requestor", "text .spec.username", "Who asks."),
    text("RequestedDuration", "requested-duration", "How long the certificate should be valid."),
    text("Condition", "csr-condition", "Whether it is approved, denied or issued."),
];

pub(super) const INGRESS_CLASS: &[Col] = &[
    text("Name", "class-name", "Name of the class, and whether it is the default.").name(),
    text("Controller", "text .spec.controller", "Controller that is responsible for handling this class"),
    text("Parameters", "ingress-parameters", "A reference to a resource with additional parameters"),
    AGE,
];

pub(super) const INGRESS: &[Col] = &[
    text("Class", "ingress-class", "The class that it belongs to."),
    text("Hosts", "ingress-hosts", "Hosts that incoming requests are matched against."),
    text("Address", "load-balancer", "Addresses of the load balancer."),
    text("Ports", "ingress-ports", "Ports that are open."),
    AGE,
];

pub(super) const IP_ADDRESS: &[Col] = &[text("ParentRef", "parent-ref", "What uses the address.")];

pub(super) const NETWORK_POLICY: &[Col] =
    &[text("Pod-Selector", "selector .spec.podSelector", "The pods that it applies to."), AGE];

pub(super) const SERVICE_CIDR: &[Col] = &[text("CIDRs", "words .spec.cidrs", "Ranges of addresses."), AGE];

pub(super) const DISRUPTION_BUDGET: &[Col] = &[
    text("Min Available", "or N/A .spec.minAvailable", "The minimum number of pods that must be available."),
    text("Max Unavailable", "or N/A .spec.maxUnavailable", "The maximum number that may be unavailable."),
    number(
        "Allowed Disruptions",
        "int .status.disruptionsAllowed",
        "Number of pods that may be disrupted now.",
    ),
    AGE,
];

pub(super) const ROLE_BINDING: &[Col] = &[
    text("Role", "role-ref", "The role that is granted."),
    AGE,
    text("Users", "subjects User", "Users who get it.").wide(),
    text("Groups", "subjects Group", "Groups that get it.").wide(),
    text("ServiceAccounts", "subjects ServiceAccount", "ServiceAccounts that get it.").wide(),
];

pub(super) const CSI_DRIVER: &[Col] = &[
    flag("AttachRequired", "flag-or-true .spec.attachRequired", "Whether volumes must be attached."),
    flag("PodInfoOnMount", "flag .spec.podInfoOnMount", "Whether it wants to know the pod."),
    flag("StorageCapacity", "flag .spec.storageCapacity", "Whether it reports capacities."),
    text("TokenRequests", "csi-audiences", "Audiences of the tokens that it wants."),
    flag(
        "RequiresRepublish",
        "flag .spec.requiresRepublish",
        "Whether it wants to be called again and again.",
    ),
    text("Modes", "list .spec.volumeLifecycleModes", "Kinds of volumes that it serves."),
    AGE,
];

pub(super) const CSI_NODE: &[Col] =
    &[number("Drivers", "count .spec.drivers", "Number of CSI drivers registered on the node"), AGE];

pub(super) const CSI_CAPACITY: &[Col] = &[
    text("StorageClassName", "text .storageClassName", "The storage class that it is about."),
    text("Capacity", "or <unset> .capacity", "What is left."),
];

pub(super) const STORAGE_CLASS: &[Col] = &[
    text("Name", "class-name", "Name of the class, and whether it is the default.").name(),
    text("Provisioner", "text .provisioner", "Who makes the volumes."),
    text("ReclaimPolicy", "or Delete .reclaimPolicy", "What happens to them when their claim is gone."),
    text("VolumeBindingMode", "or Immediate .volumeBindingMode", "When they are made."),
    text("AllowVolumeExpansion", "flag .allowVolumeExpansion", "Whether they can grow."),
    AGE,
];

pub(super) const VOLUME_ATTACHMENT: &[Col] = &[
    text("Name", "text .metadata.name", "Name of the attachment.").name(),
    text("Attacher", "text .spec.attacher", "Who attaches it.").name(),
    text("PV", "text .spec.source.persistentVolumeName", "The volume."),
    text("Node", "text .spec.nodeName", "The node."),
    flag("Attached", "flag .status.attached", "Whether it is attached."),
    AGE,
];

pub(super) const VOLUME_ATTRIBUTES_CLASS: &[Col] =
    &[text("DriverName", "text .driverName", "The driver that the class is for."), AGE];

pub(super) const WEBHOOKS: &[Col] = &[number("Webhooks", "count .webhooks", "Number of webhooks."), AGE];

pub(super) const VALIDATING_POLICY: &[Col] = &[
    number("Validations", "count .spec.validations", "Number of rules."),
    text("ParamKind", "param-kind", "The kind of its parameters."),
    AGE,
];

pub(super) const MUTATING_POLICY: &[Col] = &[
    number("Mutations", "count .spec.mutations", "Number of mutations."),
    text("ParamKind", "param-kind", "The kind of its parameters."),
    AGE,
];

pub(super) const POLICY_BINDING: &[Col] = &[
    text("PolicyName", "text .spec.policyName", "The policy that is bound."),
    text("ParamRef", "param-ref", "Its parameters."),
    AGE,
];

pub(super) const PRIORITY_CLASS: &[Col] = &[
    number("Value", "int .value", "The priority of pods of this class."),
    flag("Global-Default", "flag .globalDefault", "Whether pods without a class get this one."),
    AGE,
    text("PreemptionPolicy", "text .preemptionPolicy", "Whether they evict others."),
];

pub(super) const LEASE: &[Col] = &[text("Holder", "text .spec.holderIdentity", "Who holds it."), AGE];

pub(super) const RUNTIME_CLASS: &[Col] = &[text("Handler", "text .handler", "What runs its pods."), AGE];

pub(super) const ENDPOINT_SLICE: &[Col] = &[
    text("AddressType", "text .addressType", "Kind of the addresses."),
    text("Ports", "slice-ports", "The first three ports."),
    text("Endpoints", "slice-endpoints", "The first three addresses."),
    AGE,
];

pub(super) const FLOW_SCHEMA: &[Col] = &[
    text("PriorityLevel", "text .spec.priorityLevelConfiguration.name", "The level that requests get."),
    text("MatchingPrecedence", "int .spec.matchingPrecedence", "Rank among flow schemas."),
    text("DistinguisherMethod", "or <none> .spec.distinguisherMethod.type", "What tells flows apart."),
    AGE,
    text("MissingPL", "missing-priority-level", "Whether the level doesn't exist."),
];

pub(super) const PRIORITY_LEVEL: &[Col] = &[
    text("Type", "text .spec.type", "Whether it is limited."),
    text(
        "NominalConcurrencyShares",
        "raw <none> .spec.limited.nominalConcurrencyShares",
        "Its share of concurrency.",
    ),
    text("Queues", "raw <none> .spec.limited.limitResponse.queuing.queues", "Number of queues."),
    text(
        "HandSize",
        "raw <none> .spec.limited.limitResponse.queuing.handSize",
        "Queues that a flow may use.",
    ),
    text(
        "QueueLengthLimit",
        "raw <none> .spec.limited.limitResponse.queuing.queueLengthLimit",
        "Requests per queue.",
    ),
    AGE,
];

pub(super) const RESOURCE_CLAIM: &[Col] = &[
    text("State", "claim-state", "A summary of the current state (allocated, pending, reserved, etc.)."),
    AGE,
];

pub(super) const RESOURCE_SLICE: &[Col] = &[
    text("Node", "text .spec.nodeName", "The node that offers the devices."),
    text("Driver", "text .spec.driver", "The driver of the devices."),
    text("Pool", "text .spec.pool.name", "The pool that they belong to."),
    AGE,
];
