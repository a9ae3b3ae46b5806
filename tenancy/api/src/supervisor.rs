//! `ResourceSupervisor`: when namespaces sleep and how long they live; `SleepRecord`: what a sleeping namespace is restored to.

use crate::target::{LabelSelector, Target};
use crate::{GROUP, READY_COLUMN, VERSION, column};
use freehold_api::{Condition, Definition, KindSpec, Object, PrinterColumn};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// When namespaces sleep, and how long they live.
pub type ResourceSupervisor = Object<ResourceSupervisorSpec>;
/// The state that objects of a sleeping namespace are restored to.
pub type SleepRecord = Object<SleepRecordSpec>;

/// Annotation of a namespace that overrides schedules by hand: `asleep` or `awake`.
pub const SLEEP_ANNOTATION: &str = "tenancy.freehold.dev/sleep";
/// Annotation of a namespace with the time, RFC 3339, at which [`SLEEP_ANNOTATION`] ends; without it, it stays.
pub const SLEEP_UNTIL_ANNOTATION: &str = "tenancy.freehold.dev/sleep-until";
/// Annotation of a workload that keeps it running while its namespace sleeps, with the value `never`.
pub const WORKLOAD_ANNOTATION: &str = "tenancy.freehold.dev/sleep";
/// Annotation of an object that was put to sleep. Its value is the original state in JSON, as far as it is short.
pub const ASLEEP_ANNOTATION: &str = "tenancy.freehold.dev/asleep";
/// The node label that DaemonSets of sleeping namespaces wait for. No node must have it.
pub const ASLEEP_NODE_LABEL: &str = "tenancy.freehold.dev/asleep";
/// Annotation of a namespace with the time, RFC 3339, at which its life ends, instead of one computed from its creation.
pub const EXPIRES_AT_ANNOTATION: &str = "tenancy.freehold.dev/expires-at";

/// The wanted state of a ResourceSupervisor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceSupervisorSpec {
    /// The namespaces.
    pub target: Target,
    /// Priority among supervisors that select a namespace and have a wish for it: the highest counts;
    /// among equals, the one whose name comes first.
    pub priority: i32,
    /// When namespaces fall asleep and wake up.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub schedules: Vec<SleepSchedule>,
    /// Days and periods in which the schedules do not count. The first entry that matches decides.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub exceptions: Vec<Exception>,
    /// A state by hand, which counts more than schedules and exceptions.
    #[serde(rename = "override", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Override")]
    pub by_hand: Option<Override>,
    /// Whether the supervisor changes nothing. Namespaces that sleep go on sleeping.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// What sleeps in a namespace.
    pub workloads: Workloads,
    /// The end of a namespace's life.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "TimeToLive")]
    pub time_to_live: Option<TimeToLive>,
}

/// Asleep or awake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SleepState {
    /// Workloads are scaled to nothing.
    Asleep,
    /// Workloads run as their owners want them to.
    #[default]
    Awake,
}

/// When namespaces fall asleep and wake up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SleepSchedule {
    /// A cron schedule: when they fall asleep.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub sleep: String,
    /// A cron schedule: when they wake up.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub wake: String,
    /// A time zone by its IANA name; UTC where it is empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub time_zone: String,
}

/// Days, or a period, in which schedules do not count.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Exception {
    /// The state in that time.
    pub state: SleepState,
    /// Whole days as `2026-12-25`, or each year as `12-25`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 366))]
    pub days: Vec<String>,
    /// The beginning of a period, RFC 3339.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub from: String,
    /// The end of the period, RFC 3339.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub until: String,
    /// The time zone of `days`; UTC where it is empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub time_zone: String,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub reason: String,
}

/// A state by hand.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Override {
    /// The state.
    pub state: SleepState,
    /// When the schedules count again, RFC 3339; without it, when the override is removed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub until: String,
}

/// A kind of object that sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum WorkloadKind {
    /// Scaled to 0.
    Deployment,
    /// Scaled to 0.
    StatefulSet,
    /// Scaled to 0, unless a Deployment owns it.
    ReplicaSet,
    /// Bound to a node label that no node has.
    DaemonSet,
    /// Suspended.
    CronJob,
    /// Kept from scaling up.
    HorizontalPodAutoscaler,
    /// Paused at 0 replicas (KEDA).
    ScaledObject,
}

/// What becomes of Services of type LoadBalancer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LoadBalancers {
    /// They stay.
    #[default]
    Keep,
    /// They are deleted, and created again at waking; their addresses may be others then.
    Delete,
}

/// What sleeps in a namespace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Workloads {
    /// Kinds that sleep; an empty list stands for all of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 7))]
    pub kinds: Vec<WorkloadKind>,
    /// Custom resources with a `scale` subresource, which are scaled to 0.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub scalable: Vec<ScalableKind>,
    /// Objects that go on running.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub excluded: Vec<WorkloadMatch>,
    /// What becomes of Services of type LoadBalancer.
    pub load_balancers: LoadBalancers,
    /// Whether Applications of Argo CD that deploy into a sleeping namespace are kept from reconciling.
    pub hold_argo_cd: bool,
}

impl Default for Workloads {
    fn default() -> Self {
        Self {
            kinds: Vec::new(),
            scalable: Vec::new(),
            excluded: Vec::new(),
            load_balancers: LoadBalancers::Keep,
            hold_argo_cd: true,
        }
    }
}

/// A custom resource with a `scale` subresource.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScalableKind {
    /// Its group.
    #[schemars(length(min = 1, max = 253))]
    pub group: String,
    /// Its plural.
    #[schemars(length(min = 1, max = 63))]
    pub resource: String,
}

/// Objects by kind, name and label; an empty field matches all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadMatch {
    /// The kind.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub kind: String,
    /// The name.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub name: String,
    /// Labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "LabelSelector")]
    pub selector: Option<LabelSelector>,
}

/// What happens at the end of a namespace's life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum EndOfLife {
    /// It is put to sleep.
    #[default]
    Sleep,
    /// It is deleted with its content.
    Delete,
}

/// The end of a namespace's life.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TimeToLive {
    /// How long after its creation, such as `72h`. The annotation `tenancy.freehold.dev/expires-at` of a namespace counts more.
    #[schemars(length(min = 1, max = 32))]
    pub after: String,
    /// What happens then.
    #[serde(default)]
    pub action: EndOfLife,
}

/// The observed state of a ResourceSupervisor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceSupervisorStatus {
    /// `Asleep` or `Awake`; empty where the supervisor has no wish.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub state: String,
    /// How many namespaces it selects.
    pub namespaces: u64,
    /// How many of them sleep.
    pub asleep: u64,
    /// How many of them could not be brought to their state; they are tried again.
    pub failing: u64,
    /// When the state changes next, RFC 3339.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub next_transition: String,
    /// The generation of the spec that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`: the spec can be read, and each namespace is in its state. `Overlapping`: another supervisor counts more for
    /// some namespaces.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

impl KindSpec for ResourceSupervisorSpec {
    type Status = ResourceSupervisorStatus;
    const DEFINITION: Definition = Definition {
        group: GROUP,
        version: VERSION,
        kind: "ResourceSupervisor",
        plural: "resourcesupervisors",
        short_names: &["supervisor"],
        namespaced: false,
        description: "A ResourceSupervisor puts namespaces to sleep, wakes them, and ends their lives.",
        columns: &[
            column("State", ".status.state"),
            COUNT_NAMESPACES,
            PrinterColumn { name: "Asleep", kind: "integer", json_path: ".status.asleep", priority: 0 },
            column("Next", ".status.nextTransition"),
            READY_COLUMN,
        ],
    };
}

const COUNT_NAMESPACES: PrinterColumn =
    PrinterColumn { name: "Namespaces", kind: "integer", json_path: ".status.namespaces", priority: 0 };

/// Original states of objects in one namespace, or a part of them: no record is larger than 64 KiB, one large object aside.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SleepRecordSpec {
    /// The original states.
    #[schemars(length(max = 2000))]
    pub entries: Vec<Original>,
}

/// The original state of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Original {
    /// Group of the object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Version that it was read in.
    pub version: String,
    /// Plural of its kind.
    pub resource: String,
    /// Its namespace, where that is not the record's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its original state in JSON: a field, or the whole object where it was deleted. Empty: the field was not set.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub state: String,
}

/// A SleepRecord reports nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SleepRecordStatus {}

impl KindSpec for SleepRecordSpec {
    type Status = SleepRecordStatus;
    const DEFINITION: Definition = Definition {
        group: GROUP,
        version: VERSION,
        kind: "SleepRecord",
        plural: "sleeprecords",
        short_names: &[],
        namespaced: true,
        description: "A SleepRecord holds the original state of objects in a sleeping namespace. The supervisor writes it.",
        columns: &[],
    };
}
