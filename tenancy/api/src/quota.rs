//! `Quota`: limits over the sum of a tenant's namespaces; `QuotaLedger`: what admission has reserved of them.

use crate::tenant::NamedSpec;
use crate::{GROUP, READY_COLUMN, VERSION, column};
use freehold_api::{Condition, Definition, KindSpec, Object};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Limits over the sum of a tenant's namespaces, for each Tenant that names it.
pub type Quota = Object<QuotaSpec>;
/// Reservations of objects that admission let in and that are not stored yet, of one Tenant.
pub type QuotaLedger = Object<QuotaLedgerSpec>;

/// The wanted state of a Quota.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct QuotaSpec {
    /// Limits by resource, as in a ResourceQuota: `pods`, `requests.cpu`, `count/deployments.apps`, ...
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub hard: BTreeMap<String, String>,
    /// Limits of things that a ResourceQuota cannot count.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub counted: Vec<Counted>,
    /// Which Pods `hard` counts: `Terminating`, `NotTerminating`, `BestEffort`, `NotBestEffort`; all of them must hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4))]
    pub scopes: Vec<Scope>,
    /// Limits that each namespace gets as a ResourceQuota of its own.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub per_namespace: BTreeMap<String, String>,
    /// LimitRanges that each namespace gets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub limit_ranges: Vec<NamedSpec>,
}

/// Which Pods are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Scope {
    /// Those with `spec.activeDeadlineSeconds`.
    Terminating,
    /// Those without it.
    NotTerminating,
    /// Those without requests and limits.
    BestEffort,
    /// Those with requests or limits.
    NotBestEffort,
}

/// A limit of objects of one kind, or of a sum over them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Counted {
    /// Its name in status and messages.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Group of the objects, empty for core.
    #[serde(default)]
    #[schemars(length(max = 253))]
    pub group: String,
    /// Version that they are read in.
    #[schemars(length(min = 1, max = 63))]
    pub version: String,
    /// Plural of their kind.
    #[schemars(length(min = 1, max = 253))]
    pub resource: String,
    /// The field of each object that is summed, as JSONPath (`.spec.replicas`); without it and `expression`, objects are
    /// counted.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 512))]
    pub json_path: String,
    /// A CEL expression over `object` that gives the amount of each object: an integer, a double or a quantity.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 4096))]
    pub expression: String,
    /// The most that the tenant may use, as a quantity.
    #[schemars(length(min = 1, max = 64))]
    pub limit: String,
}

/// The observed state of a Quota.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct QuotaStatus {
    /// How many Tenants name it.
    pub tenants: u64,
    /// The generation of the spec that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`: each limit can be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

impl KindSpec for QuotaSpec {
    type Status = QuotaStatus;
    const DEFINITION: Definition = Definition {
        group: GROUP,
        version: VERSION,
        kind: "Quota",
        plural: "quotas",
        short_names: &[],
        namespaced: false,
        description: "A Quota limits the sum over all namespaces of each Tenant that names it.",
        columns: &[column("Tenants", ".status.tenants"), READY_COLUMN],
    };
}

/// Reservations of one Tenant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct QuotaLedgerSpec {
    /// Objects that admission let in and that were not seen in the store yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024))]
    pub reservations: Vec<Reservation>,
    /// Resource versions by resource that a reader must have seen: reservations up to them are not listed any more.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub seen: BTreeMap<String, String>,
    /// Amounts by counter that stored objects use, where the API server keeps them: on Freehold they change with each object,
    /// and nothing is reserved.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub used: BTreeMap<String, String>,
    /// What `used` counts. The server counts anew where the Quota counts something else.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub counted: String,
    /// The state of the control plane that `used` was counted above. The server counts anew after a restore.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub above: String,
}

/// What an object will use when it is stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Reservation {
    /// Group and resource, namespace and name of the object: `pods/a/b`.
    pub object: String,
    /// Its uid, where the request named one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Amounts by counter.
    pub amounts: BTreeMap<String, String>,
    /// When the request cannot be in flight any more, RFC 3339.
    pub expires_at: String,
    /// The resource version that an update replaces; 0 for a creation.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(extend("format" = "int64"))]
    pub replaces: u64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// A QuotaLedger reports nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QuotaLedgerStatus {}

impl KindSpec for QuotaLedgerSpec {
    type Status = QuotaLedgerStatus;
    const DEFINITION: Definition = Definition {
        group: GROUP,
        version: VERSION,
        kind: "QuotaLedger",
        plural: "quotaledgers",
        short_names: &[],
        namespaced: false,
        description: "A QuotaLedger holds reservations of quota for objects that are being created, of one Tenant.",
        columns: &[],
    };
}
