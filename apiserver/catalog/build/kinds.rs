//! The types whose definitions are wanted; whatever they refer to comes with them.

use k8s_openapi::{api, apiextensions_apiserver, apimachinery, kube_aggregator};
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

/// Asks `generator` for the definition of each type.
macro_rules! define {
    ($generator:ident: $($module:path { $($kind:ident),* $(,)? })*) => {
        $({ use $module as module; $( $generator.subschema_for::<module::$kind>(); )* })*
    };
}

/// Definitions by Kubernetes' names for them.
pub(crate) fn definitions() -> Map<String, Value> {
    let mut generator = SchemaSettings::openapi3().into_generator();
    define! { generator:
        api::core::v1 {
            Binding, ComponentStatus, ConfigMap, Endpoints, Event, LimitRange, Namespace, Node, PersistentVolume,
            PersistentVolumeClaim, Pod, PodTemplate, ReplicationController, ResourceQuota, Secret, Service,
            ServiceAccount,
        }
        api::admissionregistration::v1 {
            MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, MutatingWebhookConfiguration,
            ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
        }
        api::apps::v1 { ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet }
        api::authentication::v1 { SelfSubjectReview, TokenRequest, TokenReview }
        api::authorization::v1 {
            LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview,
        }
        api::autoscaling::v1 { HorizontalPodAutoscaler, Scale }
        api::autoscaling::v2 { HorizontalPodAutoscaler }
        api::batch::v1 { CronJob, Job }
        api::certificates::v1 { CertificateSigningRequest }
        api::coordination::v1 { Lease }
        api::discovery::v1 { EndpointSlice }
        api::events::v1 { Event }
        api::flowcontrol::v1 { FlowSchema, PriorityLevelConfiguration }
        api::networking::v1 { IPAddress, Ingress, IngressClass, NetworkPolicy, ServiceCIDR }
        api::node::v1 { RuntimeClass }
        api::policy::v1 { Eviction, PodDisruptionBudget }
        api::rbac::v1 { ClusterRole, ClusterRoleBinding, Role, RoleBinding }
        api::resource::v1 { DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice }
        api::scheduling::v1 { PriorityClass }
        api::storage::v1 {
            CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment, VolumeAttributesClass,
        }
        apiextensions_apiserver::pkg::apis::apiextensions::v1 { CustomResourceDefinition }
        kube_aggregator::pkg::apis::apiregistration::v1 { APIService }
        apimachinery::pkg::apis::meta::v1 {
            APIGroup, APIGroupList, APIResourceList, APIVersions, DeleteOptions, ListMeta, Patch, Status,
        }
        apimachinery::pkg::version { Info }
    }
    generator.subschema_for::<apimachinery::pkg::apis::meta::v1::WatchEvent<api::core::v1::Pod>>();
    generator.take_definitions(true)
}
