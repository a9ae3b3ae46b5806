//! The run of a DAG.

use crate::artifact::Delivery;
use crate::dag::{DagSpec, ValueSource, is_zero, is_zero_i32};
use crate::{GROUP, VERSION, column, schema};
use freehold_api::{Condition, Definition, KindSpec};
use freehold_machinery::Value;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The wanted state of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "has(self.dag) == has(oldSelf.dag) && (!has(self.dag) || self.dag == oldSelf.dag)", "message": "dag is immutable"},
]))]
pub struct DagRunSpec {
    /// The DAG that it is a run of, as that is when the run starts.
    #[schemars(length(max = 253))]
    pub dag: String,
    /// Instead of `dag`: the definition itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object")]
    pub dag_spec: Option<Box<DagSpec>>,
    /// Values of the DAG's parameters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub parameters: Vec<Argument>,
    /// What is to become of it. Changed by `suspend`, `resume`, `stop` and `terminate`.
    pub state: RunState,
    /// Failed tasks to be done again. Changed by `retry`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// Decisions by the names of tasks that wait for approval.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub approvals: BTreeMap<String, Approval>,
    /// Runs with more come first where runs wait.
    #[serde(skip_serializing_if = "is_zero_i32")]
    pub priority: i32,
}

/// What is to become of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RunState {
    /// It runs.
    #[default]
    Running,
    /// No further task begins.
    Suspended,
    /// No further task begins but finally tasks; those under way come to their end.
    Stopped,
    /// Everything ends at once, without finally tasks.
    Terminated,
}

/// A request to do failed tasks of an ended run again, and what depends on them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Retry {
    /// How often that was asked for. A higher number asks again.
    pub count: u32,
    /// Tasks to be done again that succeeded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub tasks: Vec<String>,
}

/// Somebody's decision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Approval {
    /// Which.
    pub decision: Decision,
    /// By whom.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub by: String,
    /// Why.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 2048))]
    pub message: String,
}

/// What was decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Decision {
    /// The task succeeds.
    #[default]
    Approved,
    /// The task fails.
    Rejected,
}

/// A value for a parameter.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name"]))]
pub struct Argument {
    /// The parameter's name.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// The value.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::any")]
    pub value: Option<Value>,
    /// Where the value comes from instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_from: Option<ValueSource>,
}

/// Where a run or a task stands.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum Phase {
    /// It has not begun.
    #[default]
    Pending,
    /// A run: it waits for other runs. A task: it waits for a slot.
    Queued,
    /// It is under way.
    Running,
    /// A run: no further task begins. A task: it waits for a decision.
    Suspended,
    /// It did what it should.
    Succeeded,
    /// It did not.
    Failed,
    /// It was left out.
    Skipped,
    /// It was ended before its time.
    Stopped,
}

impl Phase {
    /// Whether nothing more comes.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Skipped | Self::Stopped)
    }
}

/// The observed state of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DagRunStatus {
    /// Where it stands.
    pub phase: Phase,
    /// Why, in CamelCase.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Why, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// When its first task could begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// When it was over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<String>,
    /// The generation of the spec that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The ControllerRevision with the definition that it runs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub revision: String,
    /// Tasks done, of all that are known: `3/10`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub progress: String,
    /// Tasks by where they stand, each item of a fan-out as one.
    pub counts: RunCounts,
    /// Tasks, at most 100: failed ones first, then those under way, then others in their order. An item of a fan-out is
    /// `TASK[ITEM]`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<TaskStatus>,
    /// `Succeeded`: whether it did.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Notifications of its end that were not delivered yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deliveries: Vec<Delivery>,
    /// Where all tasks stand, for the controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<EncodedState>,
    /// How often the status was written. Each write says how many there were before, so that a controller whose share of the
    /// work went to another is refused.
    #[serde(skip_serializing_if = "is_zero")]
    pub writes: u32,
}

/// Tasks by where they stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RunCounts {
    /// All that are known: fan-outs count once they began.
    pub total: u32,
    /// Not begun.
    #[serde(skip_serializing_if = "is_zero")]
    pub pending: u32,
    /// Under way.
    #[serde(skip_serializing_if = "is_zero")]
    pub running: u32,
    /// Succeeded.
    #[serde(skip_serializing_if = "is_zero")]
    pub succeeded: u32,
    /// Failed.
    #[serde(skip_serializing_if = "is_zero")]
    pub failed: u32,
    /// Left out, or ended before their time.
    #[serde(skip_serializing_if = "is_zero")]
    pub skipped: u32,
    /// Further attempts that were made.
    #[serde(skip_serializing_if = "is_zero")]
    pub retries: u32,
}

/// Where a task stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TaskStatus {
    /// Its name.
    pub name: String,
    /// Where it stands.
    pub phase: Phase,
    /// Why, in CamelCase.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Why, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// How many attempts were made before this one.
    #[serde(skip_serializing_if = "is_zero")]
    pub attempt: u32,
    /// The Pod of its last attempt.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pod: String,
    /// The exit code of its last attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// When its last attempt began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// When it was over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<String>,
}

/// Where all tasks stand, in as few bytes as that takes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EncodedState {
    /// How `data` is encoded: `zstd` or `json`.
    pub encoding: String,
    /// The state, in Base64 where it is compressed.
    pub data: String,
}

impl KindSpec for DagRunSpec {
    type Status = DagRunStatus;
    const DEFINITION: Definition = Definition {
        group: GROUP,
        version: VERSION,
        kind: "DAGRun",
        plural: "dagruns",
        short_names: &["dr"],
        namespaced: true,
        description: "One run of a DAG.",
        columns: &[
            column("DAG", ".spec.dag"),
            column("Phase", ".status.phase"),
            column("Progress", ".status.progress"),
            column("Message", ".status.message"),
        ],
    };
}

/// Returns a run to be created that has the definition and parameters of another, as its object is.
pub fn again(run: &Value) -> Value {
    let metadata = &run["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    let dag = run["spec"]["dag"].as_str().filter(|dag| !dag.is_empty()).unwrap_or(name);
    let mut spec = run["spec"].clone();
    for field in ["retry", "approvals", "state"] {
        spec.as_object_mut().map(|spec| spec.remove(field));
    }
    let mut again = serde_json::json!({
        "apiVersion": format!("{}/{}", crate::GROUP, crate::VERSION), "kind": "DAGRun",
        "metadata": {"generateName": format!("{dag}-"), "namespace": metadata["namespace"]}, "spec": spec,
    });
    if metadata["labels"].is_object() {
        again["metadata"]["labels"] = metadata["labels"].clone();
    }
    again
}
