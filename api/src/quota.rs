//! `quota.freehold.dev/v1alpha1`: allowances of organizations and projects. Served by the core plane.
//!
//! The shape is that of Milo's quota API. Reservations are made by the server in the commit of the object that they are
//! for, so no controller stands between a claim and its answer.

use crate::columns::column;
use crate::object::{Condition, Definition, KindSpec, Object, PrinterColumn};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The API group.
pub const GROUP: &str = "quota.freehold.dev";
/// The version of all its kinds.
pub const VERSION: &str = "v1alpha1";

/// What can be limited.
pub type ResourceRegistration = Object<ResourceRegistrationSpec>;
/// How much of it a consumer may use.
pub type ResourceGrant = Object<ResourceGrantSpec>;
/// The sum of a consumer's grants of one resource, and what is used of it.
pub type AllowanceBucket = Object<AllowanceBucketSpec>;
/// What something uses.
pub type ResourceClaim = Object<ResourceClaimSpec>;
/// Which objects claim what.
pub type ClaimCreationPolicy = Object<ClaimCreationPolicySpec>;
/// Which objects bring grants with them.
pub type GrantCreationPolicy = Object<GrantCreationPolicySpec>;

const ACTIVE: PrinterColumn = column("Active", ".status.conditions[?(@.type==\"Active\")].status");
const READY: PrinterColumn = column("Ready", ".status.conditions[?(@.type==\"Ready\")].status");

const fn integer(name: &'static str, json_path: &'static str) -> PrinterColumn {
    PrinterColumn { kind: "integer", ..column(name, json_path) }
}

/// What most kinds of quota report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct QuotaStatus {
    /// The generation of the spec that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Active` of registrations and grants, `Ready` of policies: it counts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// What kind of consumer a resource is for.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum ConsumerKind {
    /// An Organization.
    #[default]
    Organization,
    /// A Project.
    Project,
}

/// A kind of consumer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConsumerType {
    /// `resourcemanager.freehold.dev`.
    #[serde(default = "consumer_group")]
    #[schemars(extend("enum" = ["resourcemanager.freehold.dev"]))]
    pub api_group: String,
    /// The kind.
    pub kind: ConsumerKind,
}

fn consumer_group() -> String {
    crate::resourcemanager::GROUP.to_owned()
}

/// How a resource is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MeasurementType {
    /// Objects are counted: each claims one.
    #[default]
    Entity,
    /// Amounts are summed.
    Allocation,
}

/// A kind of object that may claim a resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimingResource {
    /// Its API group; empty for core.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub api_group: String,
    /// Its kind.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
}

/// The wanted state of a ResourceRegistration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self.resourceType == oldSelf.resourceType", "message": "resourceType is immutable"},
    {"rule": "self.consumerType == oldSelf.consumerType", "message": "consumerType is immutable"},
    {"rule": "self.type == oldSelf.type", "message": "type is immutable"}
]))]
pub struct ResourceRegistrationSpec {
    /// Who receives grants of it and whose use is counted. Can't be changed.
    pub consumer_type: ConsumerType,
    /// `Entity`: objects are counted. `Allocation`: amounts are summed. Can't be changed.
    #[serde(rename = "type")]
    pub type_: MeasurementType,
    /// The name of what is limited, such as `resourcemanager.freehold.dev/projects`. Can't be changed.
    #[schemars(length(min = 1, max = 253))]
    pub resource_type: String,
    /// What it is, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 500))]
    pub description: String,
    /// The unit of all amounts, such as `byte`.
    #[schemars(length(min = 1, max = 50))]
    pub base_unit: String,
    /// The unit that people are shown, such as `GiB`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 50))]
    pub display_unit: String,
    /// How many base units a display unit has.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    pub unit_conversion_factor: i64,
    /// The kinds whose objects may claim it.
    #[schemars(length(min = 1, max = 20))]
    pub claiming_resources: Vec<ClaimingResource>,
}

fn one() -> i64 {
    1
}

impl KindSpec for ResourceRegistrationSpec {
    type Status = QuotaStatus;
    const DEFINITION: Definition = Definition {
        group: GROUP,
        version: VERSION,
        kind: "ResourceRegistration",
        plural: "resourceregistrations",
        short_names: &[],
        namespaced: false,
        description: "A ResourceRegistration names something whose use can be limited.",
        columns: &[column("Resource Type", ".spec.resourceType"), column("Type", ".spec.type"), ACTIVE],
    };
}

/// A consumer: an organization or a project.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConsumerRef {
    /// `resourcemanager.freehold.dev`.
    #[serde(default = "consumer_group")]
    #[schemars(extend("enum" = ["resourcemanager.freehold.dev"]))]
    pub api_group: String,
    /// Its kind.
    pub kind: ConsumerKind,
    /// Its name. In the template of a policy it can have `{{ }}` with CEL.
    #[schemars(length(min = 1, max = 512))]
    pub name: String,
}

/// A part of an allowance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bucket {
    /// In base units.
    #[schemars(range(min = 0))]
    pub amount: i64,
}

/// How much of one resource is granted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Allowance {
    /// The resource, as it is registered.
    #[schemars(length(min = 1, max = 253))]
    pub resource_type: String,
    /// Their sum is granted.
    #[schemars(length(min = 1, max = 20))]
    pub buckets: Vec<Bucket>,
}

/// The wanted state of a ResourceGrant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceGrantSpec {
    /// Who may use it. Grants are in the namespace of the organization that this is, or that owns the project.
    #[schemars(extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "consumerRef is immutable"}]))]
    pub consumer_ref: ConsumerRef,
    /// What is granted.
    #[schemars(length(min = 1, max = 20))]
    pub allowances: Vec<Allowance>,
}

impl KindSpec for ResourceGrantSpec {
    type Status = QuotaStatus;
    const DEFINITION: Definition = Definition {
        group: GROUP,
        version: VERSION,
        kind: "ResourceGrant",
        plural: "resourcegrants",
        short_names: &[],
        namespaced: true,
        description: "A ResourceGrant says how much a consumer may use. Grants of one resource add up.",
        columns: &[
            column("Consumer Kind", ".spec.consumerRef.kind"),
            column("Consumer", ".spec.consumerRef.name"),
            ACTIVE,
        ],
    };
}

/// What a bucket is of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "spec is immutable"}]))]
pub struct AllowanceBucketSpec {
    /// The consumer.
    pub consumer_ref: ConsumerRef,
    /// The resource.
    #[schemars(length(min = 1, max = 253))]
    pub resource_type: String,
}

/// How full a bucket is: always exact, for each claim and each grant changes it in its own commit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AllowanceBucketStatus {
    /// The sum of the grants.
    pub limit: i64,
    /// The sum of the claims.
    pub allocated: i64,
    /// What is left; 0 where more is used than is granted now.
    pub available: i64,
    /// How many claims there are.
    pub claim_count: i64,
    /// How many grants there are.
    pub grant_count: i64,
}

impl KindSpec for AllowanceBucketSpec {
    type Status = AllowanceBucketStatus;
    const DEFINITION: Definition = Definition {
        group: GROUP,
        version: VERSION,
        kind: "AllowanceBucket",
        plural: "allowancebuckets",
        short_names: &[],
        namespaced: true,
        description: "An AllowanceBucket has what a consumer was granted of a resource and what it uses. The server writes it.",
        columns: &[
            column("Consumer", ".spec.consumerRef.name"),
            column("Resource Type", ".spec.resourceType"),
            integer("Limit", ".status.limit"),
            integer("Allocated", ".status.allocated"),
            integer("Available", ".status.available"),
        ],
    };
}

/// How much of one resource is claimed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceRequest {
    /// The resource, as it is registered.
    #[schemars(length(min = 1, max = 253))]
    pub resource_type: String,
    /// In base units.
    #[schemars(range(min = 0))]
    pub amount: i64,
}

/// The object that a claim is for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimedFor {
    /// Its API group; empty for core.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace; empty for cluster-scoped objects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The control plane that it is in: `core`, or the uid of its project.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub plane: String,
}

/// The wanted state of a ResourceClaim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceClaimSpec {
    /// Who uses it.
    #[schemars(extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "consumerRef is immutable"}]))]
    pub consumer_ref: ConsumerRef,
    /// What is used: all of it is granted, or nothing.
    #[schemars(length(min = 1, max = 20))]
    pub requests: Vec<ResourceRequest>,
    /// What uses it. Claims that a policy made have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_ref: Option<ClaimedFor>,
}

/// How one request of a claim was met.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimAllocation {
    /// The resource.
    pub resource_type: String,
    /// `Granted`: a claim that is not granted is not stored.
    pub status: String,
    /// In base units.
    pub allocated_amount: i64,
    /// The AllowanceBucket, in the claim's namespace, that it was taken from.
    pub allocating_bucket: String,
}

/// The observed state of a ResourceClaim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClaimStatus {
    /// The generation of the spec that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Where each request was taken from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allocations: Vec<ClaimAllocation>,
    /// `Granted`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

impl KindSpec for ResourceClaimSpec {
    type Status = ResourceClaimStatus;
    const DEFINITION: Definition = Definition {
        group: GROUP,
        version: VERSION,
        kind: "ResourceClaim",
        plural: "resourceclaims",
        short_names: &[],
        namespaced: true,
        description: "A ResourceClaim uses up some of what its consumer was granted, as long as it is there.",
        columns: &[
            column("Consumer", ".spec.consumerRef.name"),
            column("For Kind", ".spec.resourceRef.kind"),
            column("For", ".spec.resourceRef.name"),
            column("Granted", ".status.conditions[?(@.type==\"Granted\")].status"),
        ],
    };
}

/// A kind of object that a policy is about.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TriggerResource {
    /// Group and version. Expressions see objects in this version.
    #[schemars(length(min = 1, max = 253))]
    pub api_version: String,
    /// The kind.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
}

/// A condition in CEL.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConditionExpression {
    /// Gives true or false. It can name `trigger` (the object), `user`, `requestInfo`, `organization` and `project`.
    #[schemars(length(min = 1, max = 1024))]
    pub expression: String,
    /// What it means, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub message: String,
}

/// Which objects a policy is about.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Trigger {
    /// Their kind, in whichever plane they are.
    pub resource: TriggerResource,
    /// All must hold. One that fails to give an answer refuses the write.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub constraints: Vec<ConditionExpression>,
}

/// Labels and annotations of what a policy makes. Values can have `{{ }}` with CEL.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TemplateMeta {
    /// Labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// A request of a policy's claims.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.amount) != has(self.amountExpression)", "message": "either amount or amountExpression has to be given"
}]))]
pub struct RequestTemplate {
    /// The resource, as it is registered.
    #[schemars(length(min = 1, max = 253))]
    pub resource_type: String,
    /// In base units.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub amount: Option<i64>,
    /// CEL that gives the amount, a whole number that is not negative: an object that grows claims more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub amount_expression: Option<String>,
}

/// The spec of a policy's claims.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimSpecTemplate {
    /// Who uses it. Without it, the organization or project that the object belongs to, as each resource is registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consumer_ref: Option<ConsumerRef>,
    /// What each object uses.
    #[schemars(length(min = 1, max = 20))]
    pub requests: Vec<RequestTemplate>,
}

/// The claims that a policy makes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceClaimTemplate {
    /// Labels and annotations.
    #[serde(default)]
    pub metadata: TemplateMeta,
    /// What is claimed.
    pub spec: ClaimSpecTemplate,
}

/// What a policy makes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimTarget {
    /// The claim.
    pub resource_claim_template: ResourceClaimTemplate,
}

/// The wanted state of a ClaimCreationPolicy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimCreationPolicySpec {
    /// Which objects claim.
    pub trigger: Trigger,
    /// What they claim.
    pub target: ClaimTarget,
    /// Whether it does nothing.
    #[serde(default)]
    pub disabled: bool,
}

impl KindSpec for ClaimCreationPolicySpec {
    type Status = QuotaStatus;
    const DEFINITION: Definition = Definition {
        group: GROUP,
        version: VERSION,
        kind: "ClaimCreationPolicy",
        plural: "claimcreationpolicies",
        short_names: &[],
        namespaced: false,
        description: "A ClaimCreationPolicy makes objects of a kind claim what they use, in the commit that writes them.",
        columns: &[
            column("Trigger", ".spec.trigger.resource.kind"),
            PrinterColumn { kind: "boolean", ..column("Disabled", ".spec.disabled") },
            READY,
        ],
    };
}

/// The grants that a policy makes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceGrantTemplate {
    /// Labels and annotations.
    #[serde(default)]
    pub metadata: TemplateMeta,
    /// What is granted, to whom.
    pub spec: GrantSpecTemplate,
}

/// The spec of a policy's grants.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GrantSpecTemplate {
    /// Who may use it. Its name can have `{{ }}` with CEL.
    pub consumer_ref: ConsumerRef,
    /// What is granted.
    #[schemars(length(min = 1, max = 20))]
    pub allowances: Vec<Allowance>,
}

/// What a policy makes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GrantTarget {
    /// The grant.
    pub resource_grant_template: ResourceGrantTemplate,
}

/// The wanted state of a GrantCreationPolicy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GrantCreationPolicySpec {
    /// Which objects of the core plane bring a grant with them.
    pub trigger: Trigger,
    /// The grant.
    pub target: GrantTarget,
    /// Whether it does nothing.
    #[serde(default)]
    pub disabled: bool,
}

impl KindSpec for GrantCreationPolicySpec {
    type Status = QuotaStatus;
    const DEFINITION: Definition = Definition {
        group: GROUP,
        version: VERSION,
        kind: "GrantCreationPolicy",
        plural: "grantcreationpolicies",
        short_names: &[],
        namespaced: false,
        description: "A GrantCreationPolicy gives objects of a kind a grant, which comes and goes with them.",
        columns: &[
            column("Trigger", ".spec.trigger.resource.kind"),
            PrinterColumn { kind: "boolean", ..column("Disabled", ".spec.disabled") },
            READY,
        ],
    };
}
