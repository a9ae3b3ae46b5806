//! Classes of control planes, of `resourcemanager.freehold.dev/v1alpha1`.

use crate::apis::{BoundExport, ClassBinding};
use crate::columns::column;
use crate::object::{Condition, Definition, KindSpec};
use crate::resourcemanager::{ControlPlaneMode, GROUP, VERSION};
use crate::workloads::ClassWorkloads;
use freehold_machinery::Value;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Limits of a control plane. What is left out is not limited beyond the server's own limits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PlaneLimits {
    /// How many objects it may hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub objects: Option<i64>,
    /// How many bytes its objects may take, as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub bytes: Option<i64>,
    /// How many bytes one object may take, as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub object_bytes: Option<i64>,
    /// How many CustomResourceDefinitions of its own it may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub custom_resource_definitions: Option<i64>,
    /// How many admission webhooks it may have, in all of its configurations together.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub webhooks: Option<i64>,
    /// How many requests a second one server takes of it over time; as many more at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub requests_per_second: Option<i64>,
    /// How many requests one server works on for it at a time, watches aside.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub in_flight_requests: Option<i64>,
    /// How many watches one server holds open for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub watches: Option<i64>,
}

/// Whose controllers work in a control plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Controllers {
    /// Freehold's controller manager.
    #[default]
    Freehold,
    /// Others, such as a kube-controller-manager with the plane's kubeconfig. Freehold signs certificates and tears
    /// down planes of deleted projects, and leaves everything else to them.
    External,
}

/// The wanted state of a ControlPlaneClass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ControlPlaneClassSpec {
    /// What it is for.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub description: String,
    /// What planes of this class may hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<PlaneLimits>,
    /// Whose Kubernetes controllers (namespaces, garbage, service accounts, quotas, workloads, ...) work in shared planes
    /// of this class.
    pub controllers: Controllers,
    /// Objects that each plane of this class begins with, CRDs among them. They are there once for all planes. A change
    /// reaches all of them, but not the objects that a project has changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "manifests")]
    pub objects: Vec<Value>,
    /// APIs of other projects that each plane of this class serves, without a key in it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), extend(
        "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]
    ))]
    pub bindings: Vec<ClassBinding>,
    /// Whether a project may delete what the class and the server start it with.
    pub object_deletion: ObjectDeletion,
    /// Which organizations may use it for their projects, by the labels of the organization's namespace in the core plane,
    /// which the platform alone writes. Where it is not given, or empty: all. Projects that have the class keep it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_organizations: Option<NamespaceSelector>,
    /// Where control planes of this class may run. Without any: in all modes. Projects that run elsewhere stay there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2), extend("x-kubernetes-list-type" = "set"))]
    pub allowed_modes: Vec<ControlPlaneMode>,
    /// Where Pods of its projects run that share clusters. Without it, projects have nodes of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workloads: Option<ClassWorkloads>,
    /// What holds for its projects that have a pair of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dedicated: Option<ClassDedicated>,
}

/// What a class says of dedicated pairs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClassDedicated {
    /// Seconds after which a pair sleeps that no user has sent a request: its programs end, and the next request starts them and
    /// waits. A watch or another long request of a user that goes on is use. Without it, pairs never sleep.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 2678400))]
    pub sleep_after_seconds: Option<u32>,
}

/// A `LabelSelector` of namespaces. All of its requirements have to hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NamespaceSelector {
    /// Labels that have to be there with these values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub match_labels: BTreeMap<String, String>,
    /// Further requirements.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub match_expressions: Vec<LabelRequirement>,
}

/// What has to hold of one label.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelRequirement {
    /// The label.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,
    /// How its value relates to `values`.
    pub operator: LabelOperator,
    /// Values; none for `Exists` and `DoesNotExist`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub values: Vec<String>,
}

/// How a label relates to values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LabelOperator {
    /// It has one of them.
    In,
    /// It has none of them, or is not there.
    NotIn,
    /// It is there.
    Exists,
    /// It is not there.
    DoesNotExist,
}

/// Whether objects that come from below a plane can be deleted in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ObjectDeletion {
    /// They are hidden in the plane that deletes them.
    #[default]
    Allowed,
    /// A delete is answered with 403.
    Refused,
}

/// Objects of any kind. The server checks each like one that is created.
fn manifests(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "array",
        "maxItems": 500,
        "items": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": true,
            "x-kubernetes-embedded-resource": true,
        },
    })
}

/// The observed state of a ControlPlaneClass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ControlPlaneClassStatus {
    /// The layer of its objects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub layer: String,
    /// The exports that it binds. The server alone writes it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bindings: Vec<BoundExport>,
    /// The generation of the spec that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`: planes have its objects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

impl KindSpec for ControlPlaneClassSpec {
    type Status = ControlPlaneClassStatus;
    const DEFINITION: Definition = Definition {
        group: GROUP,
        version: VERSION,
        kind: "ControlPlaneClass",
        plural: "controlplaneclasses",
        short_names: &["cpc"],
        namespaced: false,
        description: "A ControlPlaneClass says what a new control plane starts from and what it may hold.",
        columns: &[column("Description", ".spec.description")],
    };
}
