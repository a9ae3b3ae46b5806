//! Tasks: what is done, after what, how often, and what happens when it fails.

use crate::artifact::{Artifacts, Memoize};
use crate::dag::{Parameter, Semaphore, is_false, is_zero, is_zero_i32};
use crate::run::Argument;
use crate::{GROUP, VERSION, column, schema};
use freehold_api::{Definition, KindSpec};
use freehold_machinery::Value;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A task of a DAG.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name"]))]
pub struct Task {
    /// Its name, unique in the DAG.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[A-Za-z0-9_]([-A-Za-z0-9_]*[A-Za-z0-9_])?$"))]
    pub name: String,
    /// What it does.
    #[serde(flatten)]
    pub template: TaskTemplate,
    /// A shared task that says what it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_ref: Option<TaskRef>,
    /// Values of parameters for this task alone, and of those of `taskRef` or `dag`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub parameters: Vec<Argument>,
    /// The tasks that it comes after.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub run_after: Vec<String>,
    /// What has to hold of the tasks in `runAfter`.
    #[serde(skip_serializing_if = "is_default")]
    pub trigger: TriggerRule,
    /// Instead of `runAfter` and `trigger`: an expression over outcomes, `a && (b.failed || !c.skipped)`.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 4096))]
    pub depends: String,
    /// A CEL expression over `params`, `tasks`, `run` and `item`; the task is skipped where it is false.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 4096))]
    pub when: String,
    /// Does it once for each of several items.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub for_each: Option<ForEach>,
    /// Whether the run can succeed although this task failed.
    #[serde(skip_serializing_if = "is_false")]
    pub allow_failure: bool,
    /// Names in the namespace that one task holds at a time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub mutexes: Vec<String>,
    /// Pools that it takes slots of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub semaphores: Vec<Semaphore>,
    /// Tasks with more come first where tasks wait for a slot.
    #[serde(skip_serializing_if = "is_zero_i32")]
    pub priority: i32,
}

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// What a task does: exactly one of a container (`image`), `resource`, `http`, `wait`, `approval` and `dag`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TaskTemplate {
    /// The image of its container.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub image: String,
    /// What its container runs; what the image says without one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Arguments of the command.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// A script that `command` interprets (`/bin/sh` without one), or the interpreter of its first line.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 131_072))]
    pub script: String,
    /// Environment variables, as containers have them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::objects")]
    pub env: Vec<Value>,
    /// Sources of environment variables, as containers have them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::objects")]
    pub env_from: Vec<Value>,
    /// Requests and limits, as containers have them.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(schema_with = "schema::object")]
    pub resources: Value,
    /// Mounts of volumes that `pod` declares, as containers have them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::objects")]
    pub volume_mounts: Vec<Value>,
    /// The working directory of the container.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 4096))]
    pub working_dir: String,
    /// What else its Pod has: metadata, volumes, sidecars, init containers, placement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodTemplate>,
    /// Acts on an object of the plane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<ResourceTask>,
    /// Sends a request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpTask>,
    /// Waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<Wait>,
    /// Waits for somebody's decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approve>,
    /// Runs another DAG.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dag: Option<ChildDag>,
    /// Values that it gives to tasks after it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub outputs: Vec<Output>,
    /// Files and folders that its container takes and gives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifacts: Option<Artifacts>,
    /// Takes the result of an earlier task with the same key instead of running a Pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memoize: Option<Memoize>,
    /// How it is tried again when it fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// How long one attempt may take.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub timeout: String,
    /// How long its Pod may be unable to start (no image, no node); 5 minutes without one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub start_timeout: String,
}

/// Which part of a [`TaskTemplate`] says what a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskKind {
    /// A Pod with a container.
    Pod,
    /// An action on an object.
    Resource,
    /// A request.
    Http,
    /// A time.
    Wait,
    /// A decision.
    Approval,
    /// Another DAG.
    Dag,
}

impl TaskTemplate {
    /// The names of its outputs: values, then keys of artifacts.
    pub fn output_names(&self) -> impl Iterator<Item = &String> {
        let artifacts = self.artifacts.iter().flat_map(|artifacts| &artifacts.outputs);
        self.outputs.iter().map(|output| &output.name).chain(artifacts.map(|output| &output.name))
    }

    /// Whether it gives an output of this name.
    pub fn has_output(&self, name: &str) -> bool {
        self.output_names().any(|known| known == name)
    }

    /// What it does; `None` where it says nothing, or several things.
    pub fn kind(&self) -> Option<TaskKind> {
        let pod = !self.image.is_empty() || !self.script.is_empty();
        let mut kinds = [
            (pod, TaskKind::Pod),
            (self.resource.is_some(), TaskKind::Resource),
            (self.http.is_some(), TaskKind::Http),
            (self.wait.is_some(), TaskKind::Wait),
            (self.approval.is_some(), TaskKind::Approval),
            (self.dag.is_some(), TaskKind::Dag),
        ]
        .into_iter()
        .filter_map(|(given, kind)| given.then_some(kind));
        kinds.next().filter(|_| kinds.next().is_none())
    }
}

/// What a Pod has beside its task's container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodTemplate {
    /// Labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Fields of a Pod's spec. Of its containers the one named `main` adds to the task's own, others are sidecars that end
    /// with the task.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(schema_with = "schema::object")]
    pub spec: Value,
}

/// A shared task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name"]))]
pub struct TaskRef {
    /// A task of the run's namespace, or of all namespaces.
    pub kind: TaskRefKind,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Which shared tasks a name is looked up among.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum TaskRefKind {
    /// A `DAGTask` of the run's namespace.
    #[default]
    DAGTask,
    /// A `ClusterDAGTask`, for all namespaces.
    ClusterDAGTask,
}

/// What has to hold of the tasks before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TriggerRule {
    /// All succeeded.
    #[default]
    AllSuccess,
    /// All failed.
    AllFailed,
    /// All ended.
    AllDone,
    /// All were skipped.
    AllSkipped,
    /// One failed; the others may go on.
    OneFailed,
    /// One succeeded; the others may go on.
    OneSuccess,
    /// One ended without being skipped; the others may go on.
    OneDone,
    /// All ended and none failed.
    NoneFailed,
    /// All ended, none failed and one succeeded.
    NoneFailedMinOneSuccess,
    /// All ended and none was skipped.
    NoneSkipped,
    /// Nothing.
    Always,
}

/// Items that a task is done for. Exactly one of its sources is given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ForEach {
    /// These: `$(item)`, or `$(item.FIELD)` of objects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::list")]
    pub items: Vec<Value>,
    /// Items of a list that a CEL expression gives: `params.regions`, `tasks.list.outputs.names`.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 4096))]
    pub expression: String,
    /// Numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<Range>,
    /// Each combination of values: `$(item.NAME)`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::lists_by_name")]
    pub matrix: BTreeMap<String, Vec<Value>>,
    /// How many are under way at once; 0 is no limit.
    #[serde(skip_serializing_if = "is_zero")]
    pub parallelism: u32,
    /// How many may fail while the task still succeeds.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_failures: u32,
}

/// Numbers from `start` on, `count` of them, `step` apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["count"]))]
pub struct Range {
    /// The first.
    pub start: i64,
    /// How many.
    #[schemars(range(max = 100_000))]
    pub count: u32,
    /// How far apart.
    pub step: i64,
}

impl Default for Range {
    fn default() -> Self {
        Self { start: 0, count: 0, step: 1 }
    }
}

/// An action on an object of the plane, done with the rights of the run's service account.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["action", "manifest"]))]
pub struct ResourceTask {
    /// What is done.
    pub action: ResourceAction,
    /// The object, or what is changed of it.
    #[schemars(schema_with = "schema::object")]
    pub manifest: Value,
    /// A CEL expression over `object`; the task succeeds when it is true. Without one it does at once.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 4096))]
    pub success_condition: String,
    /// A CEL expression over `object`; the task fails when it is true.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 4096))]
    pub failure_condition: String,
    /// Whether the run owns the object that it creates.
    #[serde(skip_serializing_if = "is_false")]
    pub set_owner_reference: bool,
}

/// What is done to an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ResourceAction {
    /// It is created. One that exists by this attempt is taken for its own.
    #[default]
    Create,
    /// It is applied.
    Apply,
    /// It is patched (merge patch).
    Patch,
    /// It is deleted.
    Delete,
    /// It is read.
    Get,
}

/// A request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["url"]))]
pub struct HttpTask {
    /// `GET` without one.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 16))]
    pub method: String,
    /// Where to.
    #[schemars(length(min = 1, max = 8192))]
    pub url: String,
    /// Headers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub headers: Vec<HttpHeader>,
    /// The body.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 131_072))]
    pub body: String,
    /// A CEL expression over `response` (`code`, `headers`, `body`, `json`); without one, a code of 200 to 299.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 4096))]
    pub success_condition: String,
}

/// A header of a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name"]))]
pub struct HttpHeader {
    /// Its name.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    /// Its value.
    #[schemars(length(max = 8192))]
    pub value: String,
    /// Where its value comes from instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_from: Option<crate::ValueSource>,
}

/// A time that is waited for: one of the two.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Wait {
    /// So long.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub duration: String,
    /// Until this time (RFC 3339).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub until: String,
}

/// A decision that is waited for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Approve {
    /// What is asked.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 2048))]
    pub message: String,
}

/// Another DAG of the namespace, of which a run is made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name"]))]
pub struct ChildDag {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// A value that a task gives to those after it: `$(tasks.TASK.outputs.NAME)`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name"]))]
pub struct Output {
    /// Its name.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[A-Za-z_]([-A-Za-z0-9_]*[A-Za-z0-9_])?$"))]
    pub name: String,
    /// What it is; text is read as this.
    #[serde(rename = "type")]
    pub type_: OutputType,
    /// Where it comes from.
    pub from: OutputSource,
    /// For an object from the container, resource or response: the field that it is (`.status.phase`).
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub json_path: String,
}

/// How the text of an output is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OutputType {
    /// Text.
    #[default]
    String,
    /// A number.
    Number,
    /// A whole number.
    Integer,
    /// `true` or `false`.
    Boolean,
    /// A JSON list.
    List,
    /// A JSON object.
    Object,
}

/// Where an output comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OutputSource {
    /// Containers: the termination message (`/dev/termination-log`, 4 KiB). With several outputs it is a JSON object, or
    /// lines `NAME=value`. Resource and HTTP tasks: the object or the response.
    #[default]
    Result,
    /// Containers: the log, without the line end at its end (1 MiB).
    Log,
}

/// How a task is tried again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Retry {
    /// How often after the first time.
    #[schemars(range(max = 1000))]
    pub limit: u32,
    /// How long it is waited before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Backoff>,
    /// Only after these exit codes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub exit_codes: Vec<i32>,
    /// A CEL expression over `exitCode`, `reason`, `message`, `duration` (seconds) and `attempt`; only where it is true.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 4096))]
    pub when: String,
    /// No further attempt begins so long after the first began.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub max_duration: String,
}

/// How long it is waited before a task is tried again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Backoff {
    /// Before the second attempt.
    pub duration: String,
    /// How much longer each time, in percent; 200 doubles.
    #[schemars(range(min = 100, max = 10_000))]
    pub factor_percent: u32,
    /// At most.
    pub max: String,
    /// Up to so many percent more, by chance.
    #[schemars(range(max = 100))]
    pub jitter_percent: u32,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { duration: "10s".into(), factor_percent: 200, max: "10m".into(), jitter_percent: 10 }
    }
}

/// The wanted state of a DAGTask.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DagTaskSpec {
    /// What it does, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 2048))]
    pub description: String,
    /// What it can be given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub parameters: Vec<Parameter>,
    /// What it does.
    #[serde(flatten)]
    pub template: TaskTemplate,
}

/// The wanted state of a ClusterDAGTask.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterDagTaskSpec {
    /// The task.
    #[serde(flatten)]
    pub task: DagTaskSpec,
}

/// The observed state of a shared task, of which there is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SharedTaskStatus {}

impl KindSpec for DagTaskSpec {
    type Status = SharedTaskStatus;
    const DEFINITION: Definition = Definition {
        group: GROUP,
        version: VERSION,
        kind: "DAGTask",
        plural: "dagtasks",
        short_names: &[],
        namespaced: true,
        description: "A task that DAGs of its namespace share.",
        columns: &[column("Image", ".spec.image")],
    };
}

impl KindSpec for ClusterDagTaskSpec {
    type Status = SharedTaskStatus;
    const DEFINITION: Definition = Definition {
        group: GROUP,
        version: VERSION,
        kind: "ClusterDAGTask",
        plural: "clusterdagtasks",
        short_names: &[],
        namespaced: false,
        description: "A task that DAGs of all namespaces share.",
        columns: &[column("Image", ".spec.image")],
    };
}
