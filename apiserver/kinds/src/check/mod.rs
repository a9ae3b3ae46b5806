//! What must hold of built-in kinds beyond their schemas, as one table.
//!
//! Pure functions over the object and, for updates, the one before. They run when defaults are filled in and
//! admission is done. Fields, kinds of errors and words are those of Kubernetes' validation, because clients and
//! people read them.

mod addresses;
mod cluster;
mod containers;
mod data;
mod device_slices;
mod devices;
mod drivers;
mod extensions;
mod field;
mod job_status;
mod jobs;
mod networking;
mod placement;
mod pod_actions;
mod pod_update;
mod pods;
mod policies;
mod probes;
mod projected;
mod rbac;
mod resources;
mod rows;
mod rules;
mod scaling;
mod security;
mod services;
mod status;
mod storage;
mod volumes;
pub mod warnings;
mod workloads;

use field::{Errors, Field};
use freehold_machinery::{ResourceType, Value, crd, status::FieldError};

type Check = fn(&Field<'_>, Option<&Value>, &mut Errors);

const RBAC: &str = "rbac.authorization.k8s.io";
const WEBHOOKS: &str = "admissionregistration.k8s.io";
const DEVICES: &str = "resource.k8s.io";

static TABLE: &[(&str, &str, Check)] = &[
    ("", "pods", pods::pod),
    ("", "podtemplates", pods::pod_template),
    ("", "replicationcontrollers", workloads::replication_controller),
    ("", "services", services::service),
    ("", "endpoints", services::endpoints),
    ("", "secrets", data::secret),
    ("", "configmaps", data::config_map),
    ("", "persistentvolumeclaims", storage::claim),
    ("", "persistentvolumes", storage::volume),
    ("", "resourcequotas", resources::quota),
    ("", "limitranges", resources::limit_range),
    ("", "nodes", cluster::node),
    ("", "namespaces", cluster::namespace),
    ("", "events", cluster::event),
    ("events.k8s.io", "events", cluster::new_event),
    ("apps", "deployments", workloads::deployment),
    ("apps", "controllerrevisions", workloads::controller_revision),
    ("apps", "replicasets", workloads::replica_set),
    ("apps", "statefulsets", workloads::stateful_set),
    ("apps", "daemonsets", workloads::daemon_set),
    ("batch", "jobs", jobs::job),
    ("batch", "cronjobs", jobs::cron_job),
    ("autoscaling", "horizontalpodautoscalers", scaling::autoscaler),
    ("policy", "poddisruptionbudgets", scaling::disruption_budget),
    ("networking.k8s.io", "ingresses", networking::ingress),
    ("networking.k8s.io", "ingressclasses", networking::ingress_class),
    ("networking.k8s.io", "ipaddresses", addresses::address),
    ("networking.k8s.io", "servicecidrs", addresses::service_range),
    ("networking.k8s.io", "networkpolicies", networking::network_policy),
    ("discovery.k8s.io", "endpointslices", services::endpoint_slice),
    (RBAC, "roles", rbac::role),
    (RBAC, "clusterroles", rbac::cluster_role),
    (RBAC, "rolebindings", rbac::role_binding),
    (RBAC, "clusterrolebindings", rbac::cluster_role_binding),
    ("storage.k8s.io", "storageclasses", storage::class),
    ("storage.k8s.io", "volumeattachments", drivers::attachment),
    ("storage.k8s.io", "csidrivers", drivers::driver),
    ("storage.k8s.io", "csinodes", drivers::node),
    ("storage.k8s.io", "csistoragecapacities", drivers::capacity),
    ("storage.k8s.io", "volumeattributesclasses", drivers::attributes),
    ("node.k8s.io", "runtimeclasses", drivers::runtime_class),
    ("flowcontrol.apiserver.k8s.io", "flowschemas", drivers::flow_schema),
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations", drivers::priority_level),
    ("scheduling.k8s.io", "priorityclasses", cluster::priority_class),
    ("coordination.k8s.io", "leases", cluster::lease),
    ("certificates.k8s.io", "certificatesigningrequests", cluster::signing_request),
    (WEBHOOKS, "validatingwebhookconfigurations", extensions::webhooks),
    (WEBHOOKS, "mutatingwebhookconfigurations", extensions::webhooks),
    (WEBHOOKS, "validatingadmissionpolicies", policies::validating),
    (WEBHOOKS, "validatingadmissionpolicybindings", policies::validating_binding),
    (WEBHOOKS, "mutatingadmissionpolicies", policies::mutating),
    (WEBHOOKS, "mutatingadmissionpolicybindings", policies::mutating_binding),
    (DEVICES, "deviceclasses", devices::class),
    (DEVICES, "resourceclaims", devices::claim),
    (DEVICES, "resourceclaimtemplates", devices::template),
    (DEVICES, "resourceslices", device_slices::slice),
    ("apiregistration.k8s.io", "apiservices", extensions::api_service),
    ("apiextensions.k8s.io", "customresourcedefinitions", custom_resource),
];

/// What is wrong with the families of a Service's addresses and with the addresses, before it gets any.
pub fn service_families(ty: &ResourceType, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::new();
    services::families(&Field::of(ty, object).get("spec"), old, &mut errors);
    errors
}

fn custom_resource(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    errors.extend(definition(object.value, old));
}

/// What is wrong with a CustomResourceDefinition, its rules in CEL among it.
fn definition(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = match old {
        Some(old) => crd::validate_update(object, old),
        None => crd::validate(object),
    };
    let of_rules = freehold_machinery_cel::check_crd(object, old, &errors);
    errors.extend(of_rules);
    errors
}

/// Subresources that write the whole object, whose updates follow rules of their own: it is held against itself.
const ACTIONS: [&str; 2] = ["binding", "approval"];

/// Checks an object of a built-in kind, as it is about to be stored.
pub fn run(
    ty: &ResourceType,
    subresource: Option<&str>,
    object: &Value,
    old: Option<&Value>,
) -> Vec<FieldError> {
    let mut errors = Errors::new();
    if ty.custom {
        return errors;
    }
    let old = match (subresource, old) {
        (Some("ephemeralcontainers"), Some(old)) => {
            pod_actions::ephemeral(&Field::of(ty, object), old, &mut errors);
            return errors;
        }
        (Some("resize"), Some(old)) => {
            pod_actions::resize(&Field::of(ty, object), old, &mut errors);
            return errors;
        }
        (None | Some("scale"), old) => old,
        (Some(action), _) if ACTIONS.contains(&action) => Some(object),
        (Some("status"), old) => {
            status::run(ty, &Field::of(ty, object), old, &mut errors);
            return errors;
        }
        (Some("finalize"), _) if ty.group.is_empty() => {
            cluster::namespace_finalizers(&Field::of(ty, object), &mut errors);
            return errors;
        }
        (Some(_), _) => return errors,
    };
    if let Some((.., check)) = TABLE.iter().find(|(group, name, _)| *group == ty.group && *name == ty.plural)
    {
        check(&Field::of(ty, object), old, &mut errors);
    }
    errors
}

#[cfg(test)]
#[path = "tests/mod.rs"]
mod tests;
