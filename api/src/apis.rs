//! `apis.freehold.dev/v1alpha1`: APIs that one project publishes and others consume. Served by the core plane and by every
//! project's.

use crate::columns::{READY_COLUMN, REASON_COLUMN, column};
use crate::object::{Condition, Definition, KindSpec, Object, PrinterColumn};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The API group.
pub const GROUP: &str = "apis.freehold.dev";
/// The version of all its kinds.
pub const VERSION: &str = "v1alpha1";
/// The plural of APIResourceSchema.
pub const SCHEMAS: &str = "apiresourceschemas";
/// The plural of APIExport.
pub const EXPORTS: &str = "apiexports";
/// The plural of APIBinding.
pub const BINDINGS: &str = "apibindings";
/// The subresource of an export that the provider's view is authorized as.
pub const CONTENT: &str = "content";
/// The subresource of objects that others name, with who names them.
pub const REFERRERS: &str = "referrers";
/// The subresource of a binding with what its export brings and what the provider did of late.
pub const ACCESS: &str = "access";
/// The verb on an export that lets somebody bind it.
pub const BIND: &str = "bind";
/// The annotation that lets an export be deleted while projects consume it; their objects are kept.
pub const KEEP_OBJECTS: &str = "apis.freehold.dev/keep-objects";
/// The condition of a binding that the consumer's plane serves the export's types.
pub const BOUND: &str = "Bound";
/// The label, with the name of a ControlPlaneClass, of a binding that comes from it.
pub const CLASS_LABEL: &str = "apis.freehold.dev/class";

/// One kind as a provider publishes it. It never changes: a new state of the kind is a new object.
pub type ApiResourceSchema = Object<ApiResourceSchemaSpec>;
/// Kinds that a project publishes.
pub type ApiExport = Object<ApiExportSpec>;
/// An export that a project consumes.
pub type ApiBinding = Object<ApiBindingSpec>;

/// JSON of any form.
fn any_object(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// Versions of a kind, as a CustomResourceDefinition has them.
fn versions(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "array",
        "minItems": 1,
        "maxItems": 20,
        "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    })
}

/// A kind: what a CustomResourceDefinition has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiResourceSchemaSpec {
    /// The API group of the kind.
    #[schemars(length(min = 1, max = 253))]
    pub group: String,
    /// Names of the kind: `kind`, `plural`, `singular`, `listKind`, `shortNames` and `categories`.
    #[schemars(schema_with = "any_object")]
    pub names: Value,
    /// Whether objects live in namespaces: `Namespaced` or `Cluster`.
    #[schemars(extend("enum" = ["Namespaced", "Cluster"]))]
    pub scope: String,
    /// Versions with schema, subresources and columns.
    #[schemars(schema_with = "versions")]
    pub versions: Vec<Value>,
    /// How objects come from one version into another, as in a CustomResourceDefinition: with `strategy: None`, which is the
    /// default, only `apiVersion` differs; with `strategy: Webhook`, the provider's webhook converts the objects of all
    /// consumers. A Service is one of the provider's project.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schemars(schema_with = "any_object")]
    pub conversion: Value,
}

/// Nothing is observed of a schema.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApiResourceSchemaStatus {}

/// What a provider may do in a consumer's plane beside its own kinds, once the consumer accepts it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PermissionClaim {
    /// The API group; empty for core.
    #[serde(default)]
    #[schemars(length(max = 253))]
    pub group: String,
    /// The resource.
    #[schemars(length(min = 1, max = 63))]
    pub resource: String,
    /// The verbs: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, or `*`.
    #[schemars(length(min = 1, max = 16))]
    pub verbs: Vec<String>,
    /// Only the objects with these names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub names: Vec<String>,
    /// Only the objects with these labels.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    #[schemars(schema_with = "labels")]
    pub labels: std::collections::BTreeMap<String, String>,
}

fn labels(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "object", "additionalProperties": {"type": "string", "maxLength": 63}})
}

/// Who may bind an export without a right in the provider's project.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Consumers {
    /// Organizations whose projects may; `*` for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub organizations: Vec<String>,
    /// Only projects of those with these labels: whoever may write the Project decides.
    #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    #[schemars(schema_with = "labels")]
    pub labels: std::collections::BTreeMap<String, String>,
}

/// What is published.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ApiExportSpec {
    /// The current APIResourceSchema of each kind, by name: one for each group and resource.
    #[schemars(length(max = 50))]
    pub schemas: Vec<String>,
    /// What the provider wants to do in consumers' planes beside that.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub claims: Vec<PermissionClaim>,
    /// Claims that count as accepted by who binds the export and does not reject them. Those may be about reading
    /// Namespaces and labelled ConfigMaps, and about writing Events.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub default_claims: Vec<PermissionClaim>,
    /// Who may bind it, beside those who have the verb `bind` on it in this project.
    pub consumers: Consumers,
    /// Terms that who binds it has to accept.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 4096))]
    pub terms: String,
    /// What the ClusterRoles `view`, `edit` and `admin` of consumers allow to do with the exported kinds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub roles: Vec<ExportedRole>,
    /// Admission policies about the exported kinds, which hold in each consumer's project.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub policies: Vec<ExportedPolicy>,
    /// The provider's admission webhooks about the exported kinds, called for writes in each consumer's project.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub webhooks: Vec<ExportedWebhook>,
    /// How many objects of exported kinds each consumer may have. The least counts of several for one resource.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub limits: Vec<ExportLimit>,
}

/// What admission does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AdmissionKind {
    /// It refuses writes, or warns of them.
    #[default]
    Validating,
    /// It changes what is written.
    Mutating,
}

/// An admission policy that comes with an export. It is about objects of the exported kinds alone, whatever it matches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExportedPolicy {
    /// Its name, which refusals show behind the export's.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Which sort of policy.
    #[serde(default)]
    pub kind: AdmissionKind,
    /// What happens where a validating policy does not hold: `Deny`, which is the default, `Warn` or `Audit`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "actions")]
    pub actions: Vec<String>,
    /// The spec of a ValidatingAdmissionPolicy or MutatingAdmissionPolicy, without parameters, selectors of namespaces and
    /// audit annotations. Without `matchConstraints` it is about all creations and updates.
    #[schemars(schema_with = "any_object")]
    pub spec: Value,
}

/// An admission webhook that comes with an export. It is asked about objects of the exported kinds alone, whatever it
/// matches, and reached from the provider's project.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExportedWebhook {
    /// Which sort of webhook.
    #[serde(default)]
    pub kind: AdmissionKind,
    /// An entry of `webhooks` of a ValidatingWebhookConfiguration or MutatingWebhookConfiguration, without a selector of
    /// namespaces. A Service is one of the provider's project. Without `rules` it is about all creations and updates.
    #[schemars(schema_with = "any_object")]
    pub webhook: Value,
}

fn actions(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "array", "maxItems": 2, "items": {"type": "string", "enum": ["Deny", "Warn", "Audit"]},
    })
}

/// Whose objects a limit is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum LimitedConsumer {
    /// Each project that binds the export.
    #[default]
    Project,
    /// Each organization, over all of its projects that bind the export.
    Organization,
}

/// How many objects of an exported kind each consumer may have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExportLimit {
    /// The resource, such as `databases`.
    #[schemars(length(min = 1, max = 63))]
    pub resource: String,
    /// Whose objects are counted together.
    #[serde(default)]
    pub per: LimitedConsumer,
    /// How many there may be.
    #[schemars(range(min = 0, max = 1_000_000_000))]
    pub count: i64,
    /// How many there may be of single projects or organizations, by name.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    #[schemars(schema_with = "counts")]
    pub overrides: std::collections::BTreeMap<String, i64>,
}

fn counts(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object", "maxProperties": 1000,
        "additionalProperties": {"type": "integer", "format": "int64", "minimum": 0, "maximum": 1_000_000_000},
    })
}

/// A ClusterRole of consumers that an export adds to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RoleName {
    /// `view`, which `edit` and `admin` contain.
    #[default]
    View,
    /// `edit`, which `admin` contains.
    Edit,
    /// `admin`.
    Admin,
}

/// What a ClusterRole of consumers allows to do with exported kinds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExportedRole {
    /// The ClusterRole.
    pub role: RoleName,
    /// Resources of the export, such as `databases` and `databases/status`. Others count for nothing.
    #[schemars(length(min = 1, max = 50))]
    pub resources: Vec<String>,
    /// The verbs.
    #[schemars(length(min = 1, max = 16))]
    pub verbs: Vec<String>,
}

/// The observed state of an APIExport.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ApiExportStatus {
    /// Tells objects of this export from those of another one with the same group and resource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub identity: String,
    /// The path of the provider's view on this server.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub view: String,
    /// The digest of the terms, which bindings name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub terms: String,
    /// The reason in the annotation `apis.freehold.dev/breaking-change` that a change of schemas was made for: it counts for
    /// no further change.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub breaking_change: String,
    /// `Ready`: each schema is there and can be served.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Which export.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExportRef {
    /// The provider's project; `system:freehold` for an export of the platform.
    #[schemars(length(min = 1, max = 253))]
    pub project: String,
    /// The export.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// What becomes of the objects of a binding's kinds when it is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BoundObjects {
    /// The binding can't be deleted while there are any.
    #[default]
    Refuse,
    /// They are deleted first.
    Delete,
    /// They are kept out of sight, until the export is bound again.
    Keep,
}

/// A binding that every control plane of a class has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClassBinding {
    /// The name of the APIBinding that projects see.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The export.
    pub export: ExportRef,
    /// Claims of the provider that are granted in each of these control planes, at most as far as the export has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub accepted_claims: Vec<PermissionClaim>,
    /// Claims of the provider that were looked at and are not granted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub rejected_claims: Vec<PermissionClaim>,
    /// The digest of the provider's terms, which the platform accepts for these control planes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 100))]
    pub accepted_terms: String,
    /// What the removal of the binding from the class does about objects.
    #[serde(default)]
    pub objects: ClassObjects,
}

/// What becomes of objects when a class stops binding their export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ClassObjects {
    /// The binding can't be removed while a control plane of the class has objects.
    #[default]
    Refuse,
    /// Objects are kept out of sight, until the export is bound again.
    Keep,
}

/// The server's record of an export that a class binds: the one that its author was allowed to bind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BoundExport {
    /// The name of the binding.
    pub name: String,
    /// The plane of the export.
    pub plane: String,
    /// The name of the export.
    pub export: String,
    /// The identity of the export.
    pub identity: String,
    /// Default claims that the export had then, and that are not rejected.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub default_claims: Vec<PermissionClaim>,
}

/// What is consumed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiBindingSpec {
    /// The export. Can't be changed.
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "self == oldSelf", "message": "export is immutable"
    }]))]
    pub export: ExportRef,
    /// Claims of the provider that are granted, at most as far as the export has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub accepted_claims: Vec<PermissionClaim>,
    /// Claims of the provider that were looked at and are not granted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub rejected_claims: Vec<PermissionClaim>,
    /// The digest of the provider's terms, as the export's status has it: who writes it accepts them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 100))]
    pub accepted_terms: String,
    /// What a deletion of the binding does about objects.
    #[serde(default)]
    pub objects: BoundObjects,
}

/// A kind that a binding brings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BoundSchema {
    /// The API group.
    pub group: String,
    /// The resource.
    pub resource: String,
    /// The APIResourceSchema, at the time of the last write of the binding.
    pub schema: String,
}

/// The observed state of an APIBinding. The server alone writes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ApiBindingStatus {
    /// The plane of the export.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub plane: String,
    /// The identity of the export.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub identity: String,
    /// The server's proof that somebody who was allowed to bind did so in this plane.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub proof: String,
    /// The kinds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub schemas: Vec<BoundSchema>,
    /// Default claims that the export had when it was bound, and that are not rejected: they count as accepted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub default_claims: Vec<PermissionClaim>,
    /// Claims of the provider that are neither accepted nor rejected, at the time of the last write of the binding.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub pending_claims: Vec<PermissionClaim>,
    /// Since when no objects of its kinds are made, because it is being deleted.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub closing: String,
    /// `Bound`: the kinds are served here. `Ready`: claims of the export are all answered too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

impl KindSpec for ApiResourceSchemaSpec {
    type Status = ApiResourceSchemaStatus;
    const DEFINITION: Definition = Definition {
        group: GROUP,
        version: VERSION,
        kind: "APIResourceSchema",
        plural: SCHEMAS,
        short_names: &[],
        namespaced: false,
        description: "An APIResourceSchema is one kind as a project publishes it. It never changes.",
        columns: &[column("Group", ".spec.group"), column("Resource", ".spec.names.plural")],
    };
}

impl KindSpec for ApiExportSpec {
    type Status = ApiExportStatus;
    const DEFINITION: Definition = Definition {
        group: GROUP,
        version: VERSION,
        kind: "APIExport",
        plural: EXPORTS,
        short_names: &[],
        namespaced: false,
        description: "An APIExport publishes kinds of a project to other projects.",
        columns: &[
            READY_COLUMN,
            REASON_COLUMN,
            PrinterColumn { priority: 1, ..column("Identity", ".status.identity") },
        ],
    };
}

impl KindSpec for ApiBindingSpec {
    type Status = ApiBindingStatus;
    const DEFINITION: Definition = Definition {
        group: GROUP,
        version: VERSION,
        kind: "APIBinding",
        plural: BINDINGS,
        short_names: &[],
        namespaced: false,
        description: "An APIBinding makes a project serve the kinds of another project's export.",
        columns: &[
            column("Provider", ".spec.export.project"),
            column("Export", ".spec.export.name"),
            column("Bound", ".status.conditions[?(@.type==\"Bound\")].status"),
            column("Reason", ".status.conditions[?(@.type==\"Bound\")].reason"),
        ],
    };
}
