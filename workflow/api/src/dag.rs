//! The DAG: tasks, parameters, schedule.

use crate::artifact::Notifications;
use crate::task::{PodTemplate, Retry, Task};
use crate::{GROUP, VERSION, column, schema};
use freehold_api::{Condition, Definition, KindSpec};
use freehold_machinery::Value;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The wanted state of a DAG.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DagSpec {
    /// What it does, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 2048))]
    pub description: String,
    /// When it runs: five cron fields, or a macro such as `@hourly`. Without a schedule it runs on demand alone.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub schedule: String,
    /// Further schedules.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub schedules: Vec<String>,
    /// The time zone of the schedules by its IANA name; UTC without one.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub time_zone: String,
    /// Whether no run is started on schedule. Runs on demand start all the same.
    #[serde(skip_serializing_if = "is_false")]
    pub suspended: bool,
    /// What happens when a run is due while another is not over.
    pub concurrency_policy: ConcurrencyPolicy,
    /// What happens to runs that were due while no controller was there.
    pub catch_up: CatchUp,
    /// Runs that could not be started so long after they were due are left out.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub starting_deadline: String,
    /// What runs can be given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub parameters: Vec<Parameter>,
    /// What is done.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub tasks: Vec<Task>,
    /// What is done when all tasks have ended, however they did; also when the run is stopped.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub finally: Vec<Task>,
    /// What Pods of all tasks have, before their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodTemplate>,
    /// How failed tasks are tried again that don't say themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// The service account of Pods; `default` without one.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub service_account_name: String,
    /// Whether Pods get a token of their service account.
    #[serde(skip_serializing_if = "is_false")]
    pub automount_service_account_token: bool,
    /// A volume that all Pods of a run share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Workspace>,
    /// How many tasks of a run are under way at once; 0 is no limit.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(range(max = 100_000))]
    pub parallelism: u32,
    /// Runs and tasks with more come first where they wait for a slot.
    #[serde(skip_serializing_if = "is_zero_i32")]
    pub priority: i32,
    /// Whether the first failed task ends the run. Otherwise other branches go on.
    #[serde(skip_serializing_if = "is_false")]
    pub fail_fast: bool,
    /// How long a run may take; finally tasks run after it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub timeout: String,
    /// Names in the namespace that one run holds at a time, from its start to its end.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub mutexes: Vec<String>,
    /// Pools that a run takes slots of, from its start to its end.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub semaphores: Vec<Semaphore>,
    /// Runs are deleted so long after their end; empty keeps them as `history` says.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ttl: String,
    /// How many ended runs are kept.
    pub history: History,
    /// What happens to Pods that ended.
    pub pod_retention: PodRetention,
    /// Who is told of what becomes of runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notifications: Option<Notifications>,
}

pub(crate) fn is_false(b: &bool) -> bool {
    !*b
}

pub(crate) fn is_zero(n: &u32) -> bool {
    *n == 0
}

pub(crate) fn is_zero_i32(n: &i32) -> bool {
    *n == 0
}

/// What happens when a run is due while another is not over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConcurrencyPolicy {
    /// Both run.
    #[default]
    Allow,
    /// The new one is left out.
    Forbid,
    /// The old one is terminated.
    Replace,
    /// The new one waits. Runs on demand wait too.
    Queue,
}

/// What happens to runs that were due while no controller was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CatchUp {
    /// Which of them run.
    pub policy: CatchUpPolicy,
    /// How many of them at most, the latest.
    #[schemars(range(min = 1, max = 1000))]
    pub limit: u32,
}

impl Default for CatchUp {
    fn default() -> Self {
        Self { policy: CatchUpPolicy::Latest, limit: 100 }
    }
}

/// Which missed runs are made up for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CatchUpPolicy {
    /// None.
    None,
    /// The latest.
    #[default]
    Latest,
    /// All, up to the limit.
    All,
}

/// What a run can be given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name"]))]
pub struct Parameter {
    /// Its name: `$(params.NAME)`.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[A-Za-z_]([-A-Za-z0-9_]*[A-Za-z0-9_])?$"))]
    pub name: String,
    /// What values it takes.
    #[serde(rename = "type")]
    pub type_: ParameterType,
    /// What it is, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub description: String,
    /// Its value where a run gives none. Without one, runs have to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::any")]
    pub default: Option<Value>,
    /// Where its value comes from where a run gives none. Values of Secrets reach environment variables alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_from: Option<ValueSource>,
    /// The only values that it takes.
    #[serde(rename = "enum", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), schema_with = "schema::list")]
    pub allowed: Vec<Value>,
}

/// What values a parameter takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ParameterType {
    /// Text.
    #[default]
    String,
    /// A number.
    Number,
    /// A whole number.
    Integer,
    /// `true` or `false`.
    Boolean,
    /// A list.
    List,
    /// A map.
    Object,
}

/// Where a value comes from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ValueSource {
    /// A key of a Secret. Only environment variables can have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<SecretKeyRef>,
    /// A key of a ConfigMap, read when the run starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<SecretKeyRef>,
}

/// A key of a Secret or ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name", "key"]))]
pub struct SecretKeyRef {
    /// The name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// A volume that all Pods of a run share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Workspace {
    /// Where it is mounted; `/workspace` without one.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 4096))]
    pub mount_path: String,
    /// A claim that exists. Otherwise each run has its own by `claim`, deleted with the run.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub claim_name: String,
    /// The spec of a PersistentVolumeClaim.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(schema_with = "schema::object")]
    pub claim: Value,
}

/// A pool of slots.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name"]))]
pub struct Semaphore {
    /// The pool's name in the namespace.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// How many slots it has. All users of a pool give the same number; the smallest counts.
    #[schemars(range(min = 1))]
    pub limit: u32,
    /// How many slots are taken; 0 is one.
    #[serde(skip_serializing_if = "is_zero")]
    pub weight: u32,
}

/// How many ended runs are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct History {
    /// How many that succeeded.
    pub successful: u32,
    /// How many that did not.
    pub failed: u32,
}

impl Default for History {
    fn default() -> Self {
        Self { successful: 100, failed: 100 }
    }
}

/// What happens to Pods that ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PodRetention {
    /// They are deleted when their end was recorded.
    #[default]
    Delete,
    /// Those that failed are kept until the run is deleted.
    KeepFailed,
    /// All are kept until the run is deleted.
    Keep,
}

/// The observed state of a DAG.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DagStatus {
    /// The generation of the spec that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Valid`: runs can be made of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The time of the schedule whose run was started last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_scheduled: Option<String>,
    /// When the next run is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_scheduled: Option<String>,
    /// How many runs are not over.
    pub active: u32,
}

impl KindSpec for DagSpec {
    type Status = DagStatus;
    const DEFINITION: Definition = Definition {
        group: GROUP,
        version: VERSION,
        kind: "DAG",
        plural: "dags",
        short_names: &[],
        namespaced: true,
        description: "Tasks, their order and their schedule.",
        columns: &[
            column("Schedule", ".spec.schedule"),
            column("Valid", ".status.conditions[?(@.type==\"Valid\")].status"),
            column("Last", ".status.lastScheduled"),
            column("Next", ".status.nextScheduled"),
        ],
    };
}
