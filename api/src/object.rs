//! The parts that all kinds share: the envelope, conditions, and a kind's description as data.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::collections::BTreeMap;

/// An object of a kind, as it stands on the wire.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", bound(deserialize = "S: KindSpec"))]
pub struct Object<S: KindSpec> {
    /// Group and version.
    #[serde(default)]
    pub api_version: String,
    /// The kind.
    #[serde(default)]
    pub kind: String,
    /// Name, labels and everything that all objects carry.
    #[serde(default)]
    #[schemars(skip)]
    pub metadata: ObjectMeta,
    /// What is wanted.
    #[serde(default)]
    pub spec: S,
    /// What is observed. Written by controllers only.
    #[serde(default)]
    pub status: S::Status,
}

/// The spec of a kind, which names everything else about it.
pub trait KindSpec: Serialize + DeserializeOwned + JsonSchema + Default {
    /// The observed side.
    type Status: Serialize + DeserializeOwned + JsonSchema + Default;
    /// Names, scope and columns.
    const DEFINITION: Definition;
}

/// Names, scope and columns of a kind.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// API group.
    pub group: &'static str,
    /// Version within the group.
    pub version: &'static str,
    /// Kind, in CamelCase.
    pub kind: &'static str,
    /// The name in URLs.
    pub plural: &'static str,
    /// What people type instead.
    pub short_names: &'static [&'static str],
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// One sentence on what the kind is.
    pub description: &'static str,
    /// Columns of `kubectl get` between name and age.
    pub columns: &'static [PrinterColumn],
}

/// A column of `kubectl get`.
#[derive(Clone, Copy, Debug)]
pub struct PrinterColumn {
    /// The header.
    pub name: &'static str,
    /// `string`, `integer`, `date`, ...
    pub kind: &'static str,
    /// Where its cell comes from.
    pub json_path: &'static str,
    /// 0 is shown always, others with `-o wide`.
    pub priority: i32,
}

impl Definition {
    /// The `apiVersion` of objects of this kind: group and version.
    pub fn api_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }
}

impl<S: KindSpec> Object<S> {
    /// An object with a name and a spec, to be created.
    pub fn new(name: &str, spec: S) -> Self {
        Self {
            api_version: S::DEFINITION.api_version(),
            kind: S::DEFINITION.kind.to_owned(),
            metadata: ObjectMeta { name: name.to_owned(), ..ObjectMeta::default() },
            spec,
            status: S::Status::default(),
        }
    }
}

/// The part of `metadata` that Freehold's programs read and write.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMeta {
    /// Unique within its kind and namespace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The namespace; empty for cluster-scoped objects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Unique over time.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The store's revision of the last write.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// Counts changes of the spec.
    #[serde(skip_serializing_if = "is_zero")]
    pub generation: i64,
    /// RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<String>,
    /// RFC 3339; set once deletion was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<String>,
    /// What objects are selected by.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// What programs note.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Who must agree before the object goes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// What the object goes with.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub owner_references: Vec<OwnerReference>,
}

fn is_zero(n: &i64) -> bool {
    *n == 0
}

/// What an object goes with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    /// Group and version of the owner.
    pub api_version: String,
    /// Kind of the owner.
    pub kind: String,
    /// Name of the owner.
    pub name: String,
    /// Uid of the owner.
    pub uid: String,
    /// Whether this owner manages the object.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub controller: bool,
    /// Whether foreground deletion of the owner waits for the object.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub block_owner_deletion: bool,
}

/// One aspect of an object's state, as `kubectl wait` and people read it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["type", "status", "lastTransitionTime", "reason", "message"]))]
pub struct Condition {
    /// Which aspect, in CamelCase.
    #[serde(rename = "type")]
    #[schemars(length(max = 316))]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    #[schemars(extend("enum" = ["True", "False", "Unknown"]))]
    pub status: String,
    /// Why, in CamelCase.
    #[schemars(length(max = 1024, min = 1), regex(pattern = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"))]
    pub reason: String,
    /// Why, for people.
    #[serde(default)]
    #[schemars(length(max = 32768))]
    pub message: String,
    /// When `status` last changed.
    #[schemars(extend("format" = "date-time"))]
    pub last_transition_time: String,
    /// The `metadata.generation` that this was observed at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
}

impl Condition {
    /// Whether a list of conditions says `True` to `type_`.
    pub fn is_true(conditions: &[Self], type_: &str) -> bool {
        conditions.iter().any(|c| c.type_ == type_ && c.status == "True")
    }
}
