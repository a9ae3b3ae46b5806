//! `apis.freehold.dev/v1alpha1`: APIs that one project publishes and others consume. Served by the core plane and by every
//! project's.

use crate::object::{Condition, Definition, KindSpec, Object, PrinterColumn};
use crate::resourcemanager::{READY_COLUMN, REASON_COLUMN, column};
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
/// The verb on an export that lets somebody bind it.
pub const BIND: &str = "bind";
/// The annotation that lets an export be deleted while projects consume it; their objects are kept.
pub const KEEP_OBJECTS: &str = "apis.freehold.dev/keep-objects";
/// The condition of a binding that the consumer's plane serves the export's types.
pub const BOUND: &str = "Bound";

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

/// A kind: what a CustomResourceDefinition has, without a webhook for conversions.
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
    /// Versions with schema, subresources and columns. Between them only `apiVersion` differs.
    #[schemars(schema_with = "versions")]
    pub versions: Vec<Value>,
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
    /// Who may bind it, beside those who have the verb `bind` on it in this project.
    pub consumers: Consumers,
    /// Terms that are shown to who binds it.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 4096))]
    pub terms: String,
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
    /// `Ready`: each schema is there and can be served.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Which export.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExportRef {
    /// The provider's project.
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
    /// Claims of the provider that are neither accepted nor rejected, at the time of the last write of the binding.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub pending_claims: Vec<PermissionClaim>,
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
