//! `IntegrationConfig`: a system that tenants are set up in; `Extension`: one tenant in such a system.

use crate::{GROUP, READY_COLUMN, VERSION, column};
use freehold_api::{Condition, Definition, KindSpec, Object, PrinterColumn};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A system that tenants are set up in.
pub type IntegrationConfig = Object<IntegrationConfigSpec>;
/// One tenant in a system.
pub type Extension = Object<ExtensionSpec>;

/// The label of objects that an Extension keeps, with the Extension's name.
pub const EXTENSION_LABEL: &str = "tenancy.freehold.dev/extension";
/// The finalizer of Extensions.
pub const EXTENSION_FINALIZER: &str = "tenancy.freehold.dev/extension";

/// The kind of a system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum IntegrationType {
    /// Argo CD.
    #[default]
    ArgoCD,
}

/// A system that tenants are set up in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IntegrationConfigSpec {
    /// Its kind.
    #[serde(rename = "type")]
    pub type_: IntegrationType,
    /// Settings of Argo CD.
    #[serde(default, rename = "argoCD")]
    pub argo_cd: ArgoCdConfig,
}

/// Settings of Argo CD.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ArgoCdConfig {
    /// The namespace in which Argo CD reads AppProjects and Secrets.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// This cluster, as destinations name it.
    #[schemars(length(min = 1, max = 1024))]
    pub server: String,
    /// Patterns of repositories that tenants may use; an empty list allows those that their Extensions name, except `*`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub allowed_repositories: Vec<String>,
    /// Cluster-scoped kinds that Extensions may allow.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub allowed_cluster_kinds: Vec<GroupKind>,
    /// Namespaced kinds that no tenant may deploy. By default those that limit the tenant itself.
    #[schemars(length(max = 100))]
    pub denied_kinds: Vec<GroupKind>,
}

impl Default for ArgoCdConfig {
    fn default() -> Self {
        let core = |kind: &str| GroupKind { group: String::new(), kind: kind.into() };
        Self {
            namespace: "argocd".into(),
            server: "https://kubernetes.default.svc".into(),
            allowed_repositories: Vec::new(),
            allowed_cluster_kinds: Vec::new(),
            denied_kinds: vec![core("ResourceQuota"), core("LimitRange")],
        }
    }
}

/// A kind in a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupKind {
    /// The group; empty for core.
    #[serde(default)]
    #[schemars(length(max = 253))]
    pub group: String,
    /// The kind.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
}

/// The observed state of an IntegrationConfig.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct IntegrationConfigStatus {
    /// How many Extensions name it.
    pub extensions: u64,
    /// The generation of the spec that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`: the system's namespace and kinds are there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

impl KindSpec for IntegrationConfigSpec {
    type Status = IntegrationConfigStatus;
    const DEFINITION: Definition = Definition {
        group: GROUP,
        version: VERSION,
        kind: "IntegrationConfig",
        plural: "integrationconfigs",
        short_names: &[],
        namespaced: false,
        description: "An IntegrationConfig describes a system that tenants are set up in, such as Argo CD.",
        columns: &[
            column("Type", ".spec.type"),
            PrinterColumn { kind: "integer", ..column("Extensions", ".status.extensions") },
            READY_COLUMN,
        ],
    };
}

/// One tenant in a system.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExtensionSpec {
    /// The tenant.
    #[schemars(length(min = 1, max = 63))]
    pub tenant: String,
    /// The IntegrationConfig.
    #[schemars(length(min = 1, max = 253))]
    pub integration: String,
    /// The tenant in Argo CD.
    #[serde(default, rename = "argoCD")]
    pub argo_cd: ArgoCdTenant,
    /// Whether its objects stay when the Extension is deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_on_deletion: bool,
}

/// A tenant in Argo CD: an AppProject, and Secrets for repositories and clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ArgoCdTenant {
    /// The AppProject's description.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 255))]
    pub description: String,
    /// Repositories that Applications may use, as patterns; those of `repositories` are added.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub source_repositories: Vec<String>,
    /// Cluster-scoped kinds that Applications may deploy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub cluster_kinds: Vec<GroupKind>,
    /// Roles within the AppProject. Groups among the tenant's members get the roles `owner`, `editor` and `viewer` besides.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub roles: Vec<ArgoCdRole>,
    /// Repositories with credentials of the tenant.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub repositories: Vec<ArgoCdRepository>,
    /// Further clusters of the tenant.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub clusters: Vec<ArgoCdCluster>,
}

/// A role within an AppProject.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArgoCdRole {
    /// Its name.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Groups that have it.
    #[schemars(length(max = 100))]
    pub groups: Vec<String>,
    /// Actions on Applications: `get`, `create`, `update`, `delete`, `sync`, `override`, `action/*`, `*`.
    #[schemars(length(min = 1, max = 20))]
    pub actions: Vec<String>,
}

/// A Secret by namespace and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretRef {
    /// Its namespace, which must be one of the tenant's.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// A repository with credentials.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArgoCdRepository {
    /// Its URL; a prefix of URLs where `template` is set.
    #[schemars(length(min = 1, max = 1024))]
    pub url: String,
    /// `git`, `helm` or `oci`.
    #[serde(default = "git", rename = "type")]
    #[schemars(extend("enum" = ["git", "helm", "oci"]))]
    pub type_: String,
    /// Whether the credentials are for all repositories below the URL.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub template: bool,
    /// A Secret with `username` and `password`, `bearerToken`, `sshPrivateKey` or `tlsClientCertData` and
    /// `tlsClientCertKey`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "SecretRef")]
    pub secret: Option<SecretRef>,
}

fn git() -> String {
    "git".into()
}

/// A cluster of the tenant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArgoCdCluster {
    /// Its name in Argo CD.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Its URL.
    #[schemars(length(min = 1, max = 1024))]
    pub server: String,
    /// Namespaces that Applications may deploy into; an empty list allows all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub namespaces: Vec<String>,
    /// A Secret whose `config` is the cluster's configuration as Argo CD wants it.
    pub secret: SecretRef,
}

/// The observed state of an Extension.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ExtensionStatus {
    /// How many objects it keeps in the system.
    pub objects: u64,
    /// How many namespaces of the tenant it covers.
    pub namespaces: u64,
    /// The generation of the spec that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`: the system has the tenant as the spec says.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

impl KindSpec for ExtensionSpec {
    type Status = ExtensionStatus;
    const DEFINITION: Definition = Definition {
        group: GROUP,
        version: VERSION,
        kind: "Extension",
        plural: "extensions",
        short_names: &[],
        namespaced: false,
        description: "An Extension sets a tenant up in a system, such as Argo CD.",
        columns: &[
            column("Tenant", ".spec.tenant"),
            column("Integration", ".spec.integration"),
            READY_COLUMN,
        ],
    };
}
