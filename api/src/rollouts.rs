//! `APIRollout` of `apis.freehold.dev/v1alpha1`: other schemas of an export, served to its consumers stage by stage.

use crate::apis::{GROUP, VERSION};
use crate::columns::{REASON_COLUMN, column};
use crate::object::{Condition, Definition, KindSpec, Object, PrinterColumn};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The plural of APIRollout.
pub const ROLLOUTS: &str = "apirollouts";
/// The condition of a rollout that its schemas are the export's current ones.
pub const COMPLETE: &str = "Complete";

/// A staged change of an export's schemas.
pub type ApiRollout = Object<ApiRolloutSpec>;

/// Consumers of an export: those that any of the fields selects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.percent) || has(self.organizations) || has(self.labels)",
    "message": "one of percent, organizations and labels must be given"
}]))]
pub struct RolloutStage {
    /// So many percent of all consumers, chosen by a hash of their control plane: those of a smaller percentage are among those
    /// of a larger one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub percent: Option<u8>,
    /// All projects of these organizations that consume the export.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), inner(length(max = 253)))]
    pub organizations: Vec<String>,
    /// Consumers whose APIBinding has these labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "labels")]
    pub labels: BTreeMap<String, String>,
    /// How long the stage is observed before the next one begins.
    #[schemars(range(min = 0, max = 2_592_000))]
    pub pause_seconds: u32,
}

fn labels(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object", "maxProperties": 16, "additionalProperties": {"type": "string", "maxLength": 63},
    })
}

/// What has to be so before a rollout goes on. Stored objects of consumers have to be valid in any case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutHealth {
    /// A condition that the provider sets in the status of the rollout: `True` lets it go on, `False` fails it.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 316))]
    pub condition: String,
    /// A condition in the status of exported objects: none of a consumer in the stage may have it with status `False`.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 316))]
    pub object_condition: String,
    /// How long a stage may be unhealthy after its pause before the rollout fails.
    #[schemars(range(min = 0, max = 2_592_000))]
    pub timeout_seconds: u32,
}

impl Default for RolloutHealth {
    fn default() -> Self {
        Self { condition: String::new(), object_condition: String::new(), timeout_seconds: 600 }
    }
}

/// What a rollout does when it fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RolloutFailure {
    /// It stays where it is.
    #[default]
    Halt,
    /// All consumers get the export's current schemas back.
    Revert,
}

/// Why a breaking change is rolled out although objects of consumers would be invalid.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Force {
    /// The reason, for the audit log.
    #[schemars(length(min = 1, max = 1024))]
    pub reason: String,
}

/// The wanted course of a staged change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiRolloutSpec {
    /// The APIExport of this project. Can't be changed.
    #[schemars(length(min = 1, max = 253), extend("x-kubernetes-validations" = [{
        "rule": "self == oldSelf", "message": "export is immutable"
    }]))]
    pub export: String,
    /// The next APIResourceSchema of each kind, by name, as the export will have them. Can't be changed.
    #[schemars(length(min = 1, max = 50), inner(length(max = 253)), extend("x-kubernetes-validations" = [{
        "rule": "self == oldSelf", "message": "schemas is immutable"
    }]))]
    pub schemas: Vec<String>,
    /// Which consumers get them, one stage after the other; after the last one all do. Can't be changed.
    #[schemars(length(min = 1, max = 20), extend("x-kubernetes-validations" = [{
        "rule": "self == oldSelf", "message": "stages is immutable"
    }]))]
    pub stages: Vec<RolloutStage>,
    /// What has to be so before the next stage.
    #[serde(default)]
    pub health: RolloutHealth,
    /// What is done when a stage does not become healthy.
    #[serde(default)]
    pub on_failure: RolloutFailure,
    /// Whether it stays at its stage.
    #[serde(default)]
    pub paused: bool,
    /// Whether all consumers get the export's current schemas back.
    #[serde(default)]
    pub revert: bool,
    /// Rolls out although objects of consumers would be invalid or lose fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force: Option<Force>,
}

/// Where a rollout stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RolloutPhase {
    /// No consumer has the next schemas yet.
    #[default]
    Pending,
    /// Stage after stage gets them.
    Progressing,
    /// It stays where it is because the spec says so.
    Paused,
    /// It failed and stays where it is, until its spec changes.
    Halted,
    /// Nobody has the next schemas any more.
    Reverted,
    /// The next schemas are the export's current ones.
    Complete,
}

/// The observed state of an APIRollout.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ApiRolloutStatus {
    /// Where it stands.
    pub phase: RolloutPhase,
    /// How many stages have the next schemas; grows by one at a time.
    #[schemars(range(min = 0, max = 20))]
    pub stage: u32,
    /// Since when the stage is what it is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub stage_time: String,
    /// Consumers of the export, at the time of the last write of the rollout.
    pub consumers: u32,
    /// Consumers that had the next schemas at that time.
    pub updated: u32,
    /// Why it stands there, in CamelCase.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Why it stands there, for people: objects that fail are named.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 8192))]
    pub message: String,
    /// The generation of the spec that this is about.
    pub observed_generation: i64,
    /// `Complete`, by the server, and what the provider sets for `spec.health.condition`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

impl KindSpec for ApiRolloutSpec {
    type Status = ApiRolloutStatus;
    const DEFINITION: Definition = Definition {
        group: GROUP,
        version: VERSION,
        kind: "APIRollout",
        plural: ROLLOUTS,
        short_names: &[],
        namespaced: false,
        description: "An APIRollout changes the schemas of an export for its consumers, stage by stage.",
        columns: &[
            column("Export", ".spec.export"),
            column("Phase", ".status.phase"),
            PrinterColumn { kind: "integer", ..column("Stage", ".status.stage") },
            PrinterColumn { kind: "integer", ..column("Updated", ".status.updated") },
            PrinterColumn { kind: "integer", ..column("Consumers", ".status.consumers") },
            PrinterColumn { json_path: ".status.reason", ..REASON_COLUMN },
            PrinterColumn { priority: 1, ..column("Message", ".status.message") },
        ],
    };
}
