//! What is special about a kind beyond its schema, as one table. A kind without a row is served all the same.

mod batch;
mod core;
mod crd;
mod devices;
mod identity;
mod policy;
mod project;
pub(crate) mod service;

use crate::Operation;
use freehold_apiserver_kinds::workloads;
use freehold_apiserver_ledger::Held;
use freehold_machinery::{ResourceType, Value, status::FieldError};

pub(crate) use policy::type_check;
pub(crate) use project::DELETE_PROJECTS;

/// The special parts of a kind.
pub(crate) struct Strategy {
    group: &'static str,
    resource: &'static str,
    /// Fills in a new object.
    pub(crate) create: fn(&Operation, &mut Value),
    /// Keeps from the old object what an update may not touch.
    pub(crate) update: fn(&Operation, &mut Value, &Value),
    /// What a delete that can't be done at once writes.
    pub(crate) begin_delete: fn(&mut Value),
    /// Whether a delete is refused while projects belong to the object, unless it is asked to take them along.
    pub(crate) has_projects: bool,
    /// Whether a PUT of an absent object makes it.
    pub(crate) create_on_update: bool,
    /// Whether a PUT needs no resource version.
    pub(crate) unconditional_update: bool,
    /// Whether a create keeps the status that its client sends.
    pub(crate) status_on_create: bool,
    /// Whether a delete answers with the object and not with a Status.
    pub(crate) returns_deleted: bool,
    /// What an update of the status changes in the metadata.
    pub(crate) status_metadata: StatusMetadata,
    /// What an object holds that no other of its plane may.
    pub(crate) holds: fn(&Value) -> Held,
    /// What a new or changed object is checked for beyond its schema and rules.
    pub(crate) check: fn(&Value, Option<&Value>) -> Vec<FieldError>,
    /// The API group that errors about an object name, where it is not that of its type.
    pub(crate) error_group: Option<&'static str>,
    /// Whether kube-apiserver looks at the metadata of an update once, and not twice.
    pub(crate) checks_metadata_once: bool,
    /// What is said of a field that cannot be selected; `None` says what is said of most kinds.
    pub(crate) unknown_field: Option<fn(&str) -> String>,
    /// What an import leaves out of an object.
    pub(crate) import: fn(&mut Value),
    /// Seconds that a delete waits for somebody to confirm it.
    grace: fn(&Value) -> i64,
}

/// What an update of an object's status may change in its metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatusMetadata {
    /// What every update may.
    All,
    /// That, but for these fields.
    AllBut(&'static [&'static str]),
    /// Nothing: `ResetObjectMetaForStatus` of Kubernetes.
    Nothing,
}

const DEFAULT: Strategy = Strategy {
    group: "",
    resource: "",
    create: |_, _| {},
    update: |_, _, _| {},
    begin_delete: |_| {},
    has_projects: false,
    create_on_update: false,
    unconditional_update: true,
    status_on_create: false,
    returns_deleted: false,
    status_metadata: StatusMetadata::All,
    holds: |_| Held::default(),
    check: |_, _| Vec::new(),
    error_group: None,
    checks_metadata_once: false,
    unknown_field: None,
    import: |_| {},
    grace: |_| 0,
};

const CUSTOM: Strategy =
    Strategy { unconditional_update: false, status_metadata: StatusMetadata::Nothing, ..DEFAULT };

/// A kind of which an update of the status changes no metadata.
const fn plain_status(group: &'static str, resource: &'static str) -> Strategy {
    Strategy { status_metadata: StatusMetadata::Nothing, ..row(group, resource) }
}

/// A kind of which a PUT says which version it replaces.
const fn versioned(group: &'static str, resource: &'static str) -> Strategy {
    Strategy { unconditional_update: false, ..row(group, resource) }
}

const fn row(group: &'static str, resource: &'static str) -> Strategy {
    Strategy { group, resource, ..DEFAULT }
}

/// A kind of Freehold's own, which is a custom resource to all else.
const fn own(group: &'static str, resource: &'static str) -> Strategy {
    Strategy { group, resource, ..CUSTOM }
}

static TABLE: &[Strategy] = &[
    Strategy {
        create: core::create_namespace,
        update: core::update_namespace,
        begin_delete: core::terminate_namespace,
        ..row("", "namespaces")
    },
    Strategy {
        create: core::create_pod,
        update: core::update_pod,
        grace: core::pod_grace,
        import: core::import_pod,
        returns_deleted: true,
        status_metadata: StatusMetadata::AllBut(&["ownerReferences"]),
        ..row("", "pods")
    },
    Strategy {
        create: core::create_claim,
        update: core::update_claim,
        returns_deleted: true,
        ..row("", "persistentvolumeclaims")
    },
    Strategy {
        create: core::create_node,
        update: core::update_node,
        // A kubelet registers with its addresses and capacity.
        status_on_create: true,
        ..row("", "nodes")
    },
    Strategy {
        create: core::create_volume,
        update: core::update_volume,
        returns_deleted: true,
        ..row("", "persistentvolumes")
    },
    Strategy {
        update: service::update,
        returns_deleted: true,
        holds: Held::of,
        checks_metadata_once: true,
        ..row("", "services")
    },
    Strategy { returns_deleted: true, ..row("", "serviceaccounts") },
    Strategy { returns_deleted: true, ..row("", "podtemplates") },
    Strategy { returns_deleted: true, ..row("", "resourcequotas") },
    Strategy { create_on_update: true, ..row("", "endpoints") },
    Strategy { create_on_update: true, ..row("", "events") },
    // Events are of core, whoever asks for them.
    Strategy { error_group: Some(""), ..row("events.k8s.io", "events") },
    Strategy { create_on_update: true, ..row("", "limitranges") },
    Strategy {
        create: |_, draft| core::plain_lease(draft),
        update: |_, draft, _| core::plain_lease(draft),
        create_on_update: true,
        unconditional_update: false,
        ..row("coordination.k8s.io", "leases")
    },
    Strategy {
        update: |_, draft, old| core::keep_generation(draft, old),
        ..row("scheduling.k8s.io", "priorityclasses")
    },
    versioned("node.k8s.io", "runtimeclasses"),
    Strategy { update: core::count_spec, ..versioned("storage.k8s.io", "csidrivers") },
    versioned("storage.k8s.io", "csinodes"),
    versioned("storage.k8s.io", "csistoragecapacities"),
    versioned("policy", "poddisruptionbudgets"),
    versioned("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    versioned("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    versioned("admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
    Strategy {
        update: batch::update_deployment,
        status_metadata: StatusMetadata::AllBut(&["labels"]),
        checks_metadata_once: true,
        ..row("apps", "deployments")
    },
    Strategy {
        create: |_, draft| workloads::set_template_generation(draft, 1),
        update: batch::update_daemon_set,
        checks_metadata_once: true,
        ..row("apps", "daemonsets")
    },
    Strategy {
        update: batch::update_stateful_set,
        checks_metadata_once: true,
        ..row("apps", "statefulsets")
    },
    Strategy { checks_metadata_once: true, ..row("apps", "replicasets") },
    Strategy { checks_metadata_once: true, ..row("apps", "controllerrevisions") },
    Strategy {
        create: batch::create_job,
        unknown_field: Some(|label| format!("field label {label:?} not supported for Job")),
        ..row("batch", "jobs")
    },
    Strategy { create: core::create_slice, ..row("discovery.k8s.io", "endpointslices") },
    Strategy { create_on_update: true, ..row("rbac.authorization.k8s.io", "roles") },
    Strategy { create_on_update: true, ..row("rbac.authorization.k8s.io", "clusterroles") },
    Strategy { create_on_update: true, ..row("rbac.authorization.k8s.io", "rolebindings") },
    Strategy { create_on_update: true, ..row("rbac.authorization.k8s.io", "clusterrolebindings") },
    Strategy {
        create: policy::create_csr,
        update: policy::update_csr,
        ..row("certificates.k8s.io", "certificatesigningrequests")
    },
    Strategy {
        unconditional_update: false,
        status_metadata: StatusMetadata::AllBut(&["labels"]),
        ..row("apiregistration.k8s.io", "apiservices")
    },
    plain_status("apiextensions.k8s.io", "customresourcedefinitions"),
    Strategy {
        unconditional_update: false,
        ..plain_status("admissionregistration.k8s.io", "validatingadmissionpolicies")
    },
    plain_status("flowcontrol.apiserver.k8s.io", "flowschemas"),
    plain_status("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"),
    plain_status("networking.k8s.io", "servicecidrs"),
    plain_status("resource.k8s.io", "resourceclaims"),
    Strategy {
        unknown_field: Some(|label| {
            format!("field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: {label}")
        }),
        ..row("resource.k8s.io", "resourceslices")
    },
    Strategy { unconditional_update: false, ..plain_status("storage.k8s.io", "volumeattachments") },
    Strategy { returns_deleted: true, ..row("storage.k8s.io", "storageclasses") },
];

/// Kinds that Freehold defines. A plane may have others of the same name, so that each row has to look where it is.
static OWN: &[Strategy] = &[
    Strategy {
        create: project::create,
        unconditional_update: false,
        ..row("resourcemanager.freehold.dev", "projects")
    },
    Strategy {
        begin_delete: project::end_organization,
        has_projects: true,
        unconditional_update: false,
        status_metadata: StatusMetadata::Nothing,
        ..row("resourcemanager.freehold.dev", "organizations")
    },
    Strategy { check: identity::check_provider, ..own("iam.freehold.dev", "identityproviders") },
    Strategy { check: |user, _| identity::check_user(user), ..own("iam.freehold.dev", "users") },
];

/// The strategy of a type.
pub(crate) fn of(ty: &ResourceType) -> &'static Strategy {
    let (table, default) = if ty.custom { (OWN, &CUSTOM) } else { (TABLE, &DEFAULT) };
    table.iter().find(|row| row.group == ty.group && row.resource == ty.plural).unwrap_or(default)
}

impl Strategy {
    /// Whether deletes of the kind have a grace period at all.
    pub(crate) fn is_graceful(&self) -> bool {
        self.group.is_empty() && self.resource == "pods"
    }

    /// Seconds that a delete of this object waits for somebody to confirm it.
    pub(crate) fn grace(&self, object: &Value) -> i64 {
        (self.grace)(object)
    }
}
