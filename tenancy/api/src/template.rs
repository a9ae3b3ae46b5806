//! `Template`, `TemplateInstance` and `TemplateGroupInstance`: objects with parameters for one namespace or many;
//! `TemplateRevision`: a Template as it was.

use crate::target::Target;
use crate::tenant::free_object;
use crate::{GROUP, READY_COLUMN, VERSION, column};
use freehold_api::{Condition, Definition, KindSpec, Object, PrinterColumn};
use freehold_machinery::Map;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Objects with parameters.
pub type Template = Object<TemplateSpec>;
/// A Template as it was.
pub type TemplateRevision = Object<TemplateRevisionSpec>;
/// The objects of a Template in one namespace.
pub type TemplateInstance = Object<TemplateInstanceSpec>;
/// The objects of a Template in each namespace of a target.
pub type TemplateGroupInstance = Object<TemplateGroupInstanceSpec>;

/// The label of objects that an instance keeps, with the instance's name.
pub const INSTANCE_LABEL: &str = "tenancy.freehold.dev/template-instance";
/// The label of instances that a group keeps, with the group's name.
pub const GROUP_LABEL: &str = "tenancy.freehold.dev/template-group";
/// The annotation of objects that were there before their instance and outlive it.
pub const ADOPTED_ANNOTATION: &str = "tenancy.freehold.dev/adopted";
/// The annotation in which admission notes who created an instance: JSON with `username` and `groups`.
pub const CREATED_BY_ANNOTATION: &str = "tenancy.freehold.dev/created-by";
/// The finalizer of instances with cluster-scoped objects.
pub const INSTANCE_FINALIZER: &str = "tenancy.freehold.dev/template-instance";
/// Most objects that one instance keeps.
pub const MAX_OBJECTS: usize = 500;
/// Most bytes that one instance renders.
pub const MAX_RENDERED: usize = 10 << 20;

fn yes() -> bool {
    true
}

fn is_true(value: &bool) -> bool {
    *value
}

/// Objects with parameters: manifests, a Helm chart, and copies from other namespaces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TemplateSpec {
    /// The schema of the parameters, as in a CustomResourceDefinition: an object with `properties`.
    #[serde(skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "free_object")]
    pub parameters: Map,
    /// Objects. `${parameters.NAME}` in a text stands for a parameter.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 500))]
    pub manifests: Vec<Manifest>,
    /// A Helm chart.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "HelmChart")]
    pub helm: Option<HelmChart>,
    /// Secrets and ConfigMaps that are copied from other namespaces.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub copies: Vec<CopiedObject>,
    /// How many revisions are kept for instances to go back to; 0 stands for 10.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(range(max = 100))]
    pub revision_history_limit: u32,
}

fn is_zero(value: &u32) -> bool {
    *value == 0
}

/// An object with placeholders.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Manifest(pub Map);

impl JsonSchema for Manifest {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Manifest".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        free_object(generator)
    }

    fn inline_schema() -> bool {
        true
    }
}

/// A Helm chart with values. Exactly one of `files`, `oci` and `repository` is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HelmChart {
    /// The chart itself: text by path (`Chart.yaml`, `templates/app.yaml`).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
    /// The chart in an OCI registry: `oci://registry.example.com/charts/app`.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub oci: String,
    /// The URL of a chart repository.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub repository: String,
    /// The chart's name in the repository.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub chart: String,
    /// The chart's version. Required for charts from a registry or repository: a revision has to render the same later.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub version: String,
    /// The release's name; the instance's name where it is empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 53))]
    pub release_name: String,
    /// The chart's values, with placeholders as in manifests.
    #[serde(skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "free_object")]
    pub values: Map,
}

/// A kind of object that is copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CopiedKind {
    /// A Secret.
    #[default]
    Secret,
    /// A ConfigMap.
    ConfigMap,
}

/// A Secret or ConfigMap that is copied from another namespace and follows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CopiedObject {
    /// Its kind.
    pub kind: CopiedKind,
    /// Its namespace; placeholders are allowed.
    #[schemars(length(min = 1, max = 253))]
    pub namespace: String,
    /// Its name; placeholders are allowed.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The copy's name, where it is another.
    #[serde(default, rename = "as", skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub copy_name: String,
}

/// The observed state of a Template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TemplateStatus {
    /// The newest revision.
    pub revision: i64,
    /// The generation of the spec that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`: the template can be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

impl KindSpec for TemplateSpec {
    type Status = TemplateStatus;
    const DEFINITION: Definition = Definition {
        group: GROUP,
        version: VERSION,
        kind: "Template",
        plural: "templates",
        short_names: &[],
        namespaced: false,
        description: "A Template describes objects with parameters, for namespaces.",
        columns: &[REVISION_COLUMN, READY_COLUMN],
    };
}

const REVISION_COLUMN: PrinterColumn =
    PrinterColumn { name: "Revision", kind: "integer", json_path: ".status.revision", priority: 0 };

/// A Template as it was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TemplateRevisionSpec {
    /// The Template's name.
    #[schemars(length(max = 253))]
    pub template: String,
    /// Its number, counted up for each Template.
    pub revision: i64,
    /// The Template's spec.
    #[schemars(schema_with = "free_object")]
    pub content: Map,
}

/// A TemplateRevision reports nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TemplateRevisionStatus {}

impl KindSpec for TemplateRevisionSpec {
    type Status = TemplateRevisionStatus;
    const DEFINITION: Definition = Definition {
        group: GROUP,
        version: VERSION,
        kind: "TemplateRevision",
        plural: "templaterevisions",
        short_names: &[],
        namespaced: false,
        description: "A TemplateRevision holds a Template as it was. The template controller writes it.",
        columns: &[
            column("Template", ".spec.template"),
            PrinterColumn { name: "Number", kind: "integer", json_path: ".spec.revision", priority: 0 },
        ],
    };
}

/// The objects of a Template in the instance's namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateInstanceSpec {
    /// The Template's name.
    #[schemars(length(min = 1, max = 253))]
    pub template: String,
    /// Values of the parameters.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "free_object")]
    pub parameters: Map,
    /// The revision to hold; without it the newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64", range(min = 1))]
    pub revision: Option<i64>,
    /// Whether objects follow the Template and are repaired when others change them. Otherwise they are applied once for
    /// each change of this spec.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub sync: bool,
    /// Whether objects are deleted that the Template has no more, and all of them with the instance.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub prune: bool,
    /// Whether objects of others are taken over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// Whether nothing is written, and the status says what would be.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// The service account of this namespace whose rights decide what may be written; `default` where it is empty and no
    /// creator is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub service_account: String,
}

/// An object that an instance keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeptObject {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace; empty for cluster-scoped objects.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Whether it existed before: it is not deleted with the instance.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopted: bool,
}

/// What a dry run found about one object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectDiff {
    /// Kind and name.
    pub object: String,
    /// `Create`, `Update` or `Delete`.
    pub operation: String,
    /// The first fields that would change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
}

/// The observed state of a TemplateInstance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TemplateInstanceStatus {
    /// The revision that was applied last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64")]
    pub revision: Option<i64>,
    /// A digest of what was applied last.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub applied: String,
    /// Objects that the instance keeps.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub objects: Vec<KeptObject>,
    /// Revisions that were applied before, the newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub history: Vec<AppliedRevision>,
    /// What a dry run found.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub diff: Vec<ObjectDiff>,
    /// The generation of the spec that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`: each object is as the Template has it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// A revision that was applied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppliedRevision {
    /// Its number.
    pub revision: i64,
    /// When, RFC 3339.
    pub time: String,
}

impl KindSpec for TemplateInstanceSpec {
    type Status = TemplateInstanceStatus;
    const DEFINITION: Definition = Definition {
        group: GROUP,
        version: VERSION,
        kind: "TemplateInstance",
        plural: "templateinstances",
        short_names: &[],
        namespaced: true,
        description: "A TemplateInstance keeps the objects of a Template in its namespace.",
        columns: &[column("Template", ".spec.template"), REVISION_COLUMN, READY_COLUMN, REASON_COLUMN],
    };
}

const REASON_COLUMN: PrinterColumn = column("Reason", ".status.conditions[?(@.type==\"Ready\")].reason");

/// The objects of a Template in each namespace of a target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateGroupInstanceSpec {
    /// The Template's name.
    #[schemars(length(min = 1, max = 253))]
    pub template: String,
    /// The namespaces.
    #[serde(default)]
    pub target: Target,
    /// Values of the parameters.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "free_object")]
    pub parameters: Map,
    /// The revision to hold; without it the newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64", range(min = 1))]
    pub revision: Option<i64>,
    /// Whether objects follow the Template and are repaired when others change them.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub sync: bool,
    /// Whether objects are deleted that the Template has no more, and those of namespaces that leave the target.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub prune: bool,
    /// Whether objects of others are taken over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// Whether nothing is written, and the status of each instance says what would be.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// The service account whose rights decide what may be written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ServiceAccountRef")]
    pub service_account: Option<ServiceAccountRef>,
    /// How a new revision reaches the namespaces.
    #[serde(default)]
    pub rollout: Rollout,
}

/// A service account by namespace and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceAccountRef {
    /// Its namespace.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// How a new revision reaches the namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Rollout {
    /// How many namespaces have the revision after each wave, as a number or a percentage (`10%`); the last wave is always
    /// all. Without waves, all at once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub waves: Vec<String>,
    /// How many namespaces may fail before the rollout halts.
    pub max_failures: u32,
}

/// The observed state of a TemplateGroupInstance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TemplateGroupInstanceStatus {
    /// The revision that is rolled out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64")]
    pub revision: Option<i64>,
    /// How many namespaces the target has.
    pub namespaces: u64,
    /// How many of them hold the revision.
    pub updated: u64,
    /// How many of them hold it and are ready.
    pub ready: u64,
    /// How many of them failed.
    pub failed: u64,
    /// The wave under way, counted from 1.
    pub wave: u64,
    /// The generation of the spec that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`: each namespace holds the revision and is ready. `Halted`: too many failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

impl KindSpec for TemplateGroupInstanceSpec {
    type Status = TemplateGroupInstanceStatus;
    const DEFINITION: Definition = Definition {
        group: GROUP,
        version: VERSION,
        kind: "TemplateGroupInstance",
        plural: "templategroupinstances",
        short_names: &[],
        namespaced: false,
        description: "A TemplateGroupInstance keeps the objects of a Template in each namespace of its target.",
        columns: &[
            column("Template", ".spec.template"),
            REVISION_COLUMN,
            PrinterColumn {
                name: "Namespaces",
                kind: "integer",
                json_path: ".status.namespaces",
                priority: 0,
            },
            READY_COLUMN,
            REASON_COLUMN,
        ],
    };
}
