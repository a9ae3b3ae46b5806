//! `Tenant`: a team, its members, its namespaces and the rules that hold in them.

use crate::{GROUP, READY_COLUMN, VERSION, column};
use freehold_api::{Condition, Definition, KindSpec, Object, PrinterColumn};
use freehold_machinery::Map;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A team, its members, its namespaces and the rules that hold in them.
pub type Tenant = Object<TenantSpec>;

/// The wanted state of a Tenant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TenantSpec {
    /// The Tenant above this one, whose limits hold for the sum of itself and all below it.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub parent: String,
    /// Members, by role.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub members: Vec<Member>,
    /// Namespaces of the tenant.
    pub namespaces: Namespaces,
    /// Labels and annotations of its namespaces, and which of them members may set.
    pub metadata: Metadata,
    /// Name of the Quota that holds for the sum of the tenant's namespaces.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub quota: String,
    /// Storage, ingress, gateway, priority and runtime classes that members may use.
    pub classes: Classes,
    /// Where images may come from.
    pub images: Images,
    /// Host names of Ingresses and of HTTP routes.
    pub hosts: Hosts,
    /// Types and addresses of Services.
    pub services: Services,
    /// Node selectors and tolerations of Pods.
    pub scheduling: Scheduling,
    /// NetworkPolicies that each namespace gets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub network_policies: Vec<NamedSpec>,
    /// LimitRanges that each namespace gets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub limit_ranges: Vec<NamedSpec>,
    /// What becomes of the tenant's objects when it is deleted.
    pub deletion: Deletion,
    /// Whether members are kept from changing anything in the tenant's namespaces.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cordoned: bool,
    /// Whether the tenant cannot be deleted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub prevent_deletion: bool,
}

/// Subjects with a role in the tenant's namespaces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// `owner`, `editor`, `viewer`, or the name of a ClusterRole.
    #[schemars(length(min = 1, max = 253))]
    pub role: String,
    /// Users, groups and service accounts that have it.
    #[schemars(length(min = 1, max = 256))]
    pub subjects: Vec<Subject>,
}

/// The kind of a subject.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum SubjectKind {
    /// A user by name.
    #[default]
    User,
    /// A group by name; an organization's groups are groups with the name that the authenticator gives them.
    Group,
    /// A service account by namespace and name.
    ServiceAccount,
}

/// A user, a group or a service account.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Subject {
    /// What it is.
    #[serde(default)]
    pub kind: SubjectKind,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The namespace of a service account.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub namespace: String,
}

/// Namespaces of a tenant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Namespaces {
    /// Namespaces that the controller creates.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub declared: Vec<DeclaredNamespace>,
    /// A namespace for each user among the owners and editors.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Personal")]
    pub personal: Option<Personal>,
    /// Whether owners and editors may create namespaces.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub self_service: bool,
    /// Whether namespaces that members create must be named `TENANT-...`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub require_prefix: bool,
    /// Whether namespaces named `TENANT-...` without the tenant label are adopted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub adopt_by_prefix: bool,
    /// Most namespaces of the tenant and all tenants below it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32")]
    pub max: Option<u32>,
}

/// A namespace that the controller creates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeclaredNamespace {
    /// Its name, without the tenant's as prefix unless `prefixed` is false.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Whether the namespace is called `TENANT-NAME`.
    #[serde(default = "yes")]
    pub prefixed: bool,
    /// Whether an existing namespace without tenant is adopted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopt: bool,
    /// Labels of this namespace beside the common ones.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of this namespace beside the common ones.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

fn yes() -> bool {
    true
}

/// A namespace for each user among the owners and editors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Personal {
    /// After how many seconds a personal namespace is deleted with its content, to be created empty again; 0 keeps it.
    #[schemars(range(max = 315_360_000))]
    pub ttl_seconds: u32,
}

/// Labels and annotations of a tenant's namespaces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    /// Labels that each namespace gets.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations that each namespace gets.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Rules for labels that members set on namespaces.
    pub label_rules: KeyRules,
    /// Rules for annotations that members set on namespaces.
    pub annotation_rules: KeyRules,
}

/// Rules for keys of labels or annotations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KeyRules {
    /// Keys that must be there, with the values that they may have; no values stands for any.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub required: BTreeMap<String, Vec<String>>,
    /// Keys that members may not set; `prefix/*` stands for all keys of a prefix.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub forbidden: Vec<String>,
    /// Keys that members may not change or remove once they are set.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub protected: Vec<String>,
}

/// Classes that members may use. A class without an entry is not limited.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Classes {
    /// StorageClasses of PersistentVolumeClaims.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "AllowedClasses")]
    pub storage: Option<AllowedClasses>,
    /// IngressClasses of Ingresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "AllowedClasses")]
    pub ingress: Option<AllowedClasses>,
    /// GatewayClasses of Gateways.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "AllowedClasses")]
    pub gateway: Option<AllowedClasses>,
    /// PriorityClasses of Pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "AllowedClasses")]
    pub priority: Option<AllowedClasses>,
    /// RuntimeClasses of Pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "AllowedClasses")]
    pub runtime: Option<AllowedClasses>,
}

/// Names of classes that may be used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AllowedClasses {
    /// The names.
    #[schemars(length(max = 64))]
    pub allowed: Vec<String>,
    /// The class of objects that name none.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub default: String,
}

/// Where images may come from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Images {
    /// Registries, with a path where wanted (`registry.example.com/team`); an empty list allows all. Images without a
    /// registry are of `docker.io`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub registries: Vec<String>,
}

/// Among which namespaces a host name may stand only once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CollisionScope {
    /// Host names may repeat.
    #[default]
    Disabled,
    /// One namespace.
    Namespace,
    /// The tenant's namespaces.
    Tenant,
    /// All namespaces.
    Cluster,
}

/// Host names of Ingresses and of HTTP routes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Hosts {
    /// Host names; `*.example.com` stands for all names below it. An empty list allows all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub allowed: Vec<String>,
    /// Whether wildcard hosts are refused.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub forbid_wildcards: bool,
    /// Among which namespaces a host name with the same path may stand only once.
    pub collision_scope: CollisionScope,
}

/// Types and addresses of Services.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Services {
    /// Types that may be used; an empty list allows all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4))]
    pub types: Vec<String>,
    /// Address ranges of `spec.externalIPs`; without an entry all addresses are allowed, with an empty list none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>")]
    pub external_ips: Option<Vec<String>>,
}

/// Node selectors and tolerations of Pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Scheduling {
    /// Labels of nodes that the tenant's Pods run on. Pods get them, and may not name others for these keys.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Keys of taints that Pods may tolerate; without an entry all may be tolerated.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>")]
    pub tolerations: Option<Vec<String>>,
}

/// A named spec of an object that each namespace gets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamedSpec {
    /// The object is called `tenancy-NAME`.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"))]
    pub name: String,
    /// Its `spec`.
    #[schemars(schema_with = "free_object")]
    pub spec: Map,
}

/// An object whose fields the server does not know.
pub(crate) fn free_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// What becomes of a kind of object when the tenant is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// It stays, without what made it the tenant's: a namespace without the label and the objects that the controller kept in it.
    #[default]
    Keep,
    /// It is deleted.
    Delete,
}

/// What becomes of the tenant's objects when it is deleted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Deletion {
    /// Its namespaces.
    pub namespaces: DeletionPolicy,
    /// Its Extensions, with their objects in Argo CD. Those that stay reach no namespace any more.
    pub argocd: DeletionPolicy,
}

/// The observed state of a Tenant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TenantStatus {
    /// `Active`, `Cordoned` or `Terminating`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// How many namespaces the tenant has. `kubectl get ns -l tenancy.freehold.dev/tenant=NAME` lists them.
    pub namespaces: u64,
    /// How many of them are ready.
    pub ready_namespaces: u64,
    /// Use and limits of the tenant's Quota, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub quota: BTreeMap<String, QuotaUse>,
    /// The generation of the spec that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`, and one for each thing that keeps it from being so.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Use and limit of one thing that a Quota counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct QuotaUse {
    /// The limit.
    pub hard: String,
    /// How much is used.
    pub used: String,
}

impl KindSpec for TenantSpec {
    type Status = TenantStatus;
    const DEFINITION: Definition = Definition {
        group: GROUP,
        version: VERSION,
        kind: "Tenant",
        plural: "tenants",
        short_names: &["tnt"],
        namespaced: false,
        description: "A Tenant is a team with members, namespaces and the rules that hold in them.",
        columns: &[
            column("Phase", ".status.phase"),
            PrinterColumn { kind: "integer", ..column("Namespaces", ".status.namespaces") },
            column("Quota", ".spec.quota"),
            READY_COLUMN,
            PrinterColumn {
                priority: 1,
                ..column("Reason", ".status.conditions[?(@.type==\"Ready\")].reason")
            },
        ],
    };
}
