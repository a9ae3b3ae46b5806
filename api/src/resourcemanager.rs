//! `resourcemanager.freehold.dev/v1alpha1`: who owns what. Served by the core plane.

use crate::object::{Condition, Definition, KindSpec, Object, PrinterColumn};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The API group.
pub const GROUP: &str = "resourcemanager.freehold.dev";
/// The version of all its kinds.
pub const VERSION: &str = "v1alpha1";

/// A column with the status of the `Ready` condition.
pub(crate) const READY_COLUMN: PrinterColumn =
    column("Ready", ".status.conditions[?(@.type==\"Ready\")].status");
/// A wide column with the reason of the `Ready` condition.
pub(crate) const REASON_COLUMN: PrinterColumn =
    PrinterColumn { priority: 1, ..column("Reason", ".status.conditions[?(@.type==\"Ready\")].reason") };

/// A text column that is always shown.
pub(crate) const fn column(name: &'static str, json_path: &'static str) -> PrinterColumn {
    PrinterColumn { name, kind: "string", json_path, priority: 0 }
}

/// Who owns projects: a company, a team or one person.
pub type Organization = Object<OrganizationSpec>;
/// A control plane of its own for an organization.
pub type Project = Object<ProjectSpec>;
/// A user's roles in an organization.
pub type OrganizationMembership = Object<OrganizationMembershipSpec>;
/// What a new control plane starts from.
pub type ControlPlaneClass = Object<ControlPlaneClassSpec>;

/// What kind of owner an organization is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OrganizationType {
    /// Several people.
    #[default]
    Standard,
    /// One person.
    Personal,
}

/// The wanted state of an Organization.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct OrganizationSpec {
    /// What kind of owner it is. Can't be changed.
    #[serde(rename = "type")]
    #[schemars(extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "type is immutable"}]))]
    pub type_: OrganizationType,
    /// A name for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub display_name: String,
}

/// The observed state of an Organization.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct OrganizationStatus {
    /// The organization's namespace in the core plane, once it is there.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The generation of the spec that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`: its namespace is there. `Terminating`: what its deletion waits for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

impl KindSpec for OrganizationSpec {
    type Status = OrganizationStatus;
    const DEFINITION: Definition = Definition {
        group: GROUP,
        version: VERSION,
        kind: "Organization",
        plural: "organizations",
        short_names: &["org"],
        namespaced: false,
        description: "An Organization owns projects: a company, a team or one person.",
        columns: &[column("Display Name", ".spec.displayName"), column("Type", ".spec.type"), READY_COLUMN],
    };
}

/// What can own a project.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OwnerKind {
    /// An Organization.
    #[default]
    Organization,
}

/// The owner of a project.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OwnerRef {
    /// The owner's kind.
    pub kind: OwnerKind,
    /// The owner's name.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
}

/// Where a project's control plane runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ControlPlaneMode {
    /// In the core server, beside many others.
    #[default]
    Shared,
    /// In an apiserver and controller manager of its own.
    Dedicated,
}

impl ControlPlaneMode {
    /// As it stands in objects.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Shared => "Shared",
            Self::Dedicated => "Dedicated",
        }
    }
}

/// How a project's control plane is to be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ControlPlaneSpec {
    /// Where it runs. Can be changed: the plane moves and its address stays.
    pub mode: ControlPlaneMode,
    /// The ControlPlaneClass that it starts from.
    #[schemars(length(min = 1, max = 63))]
    pub class: String,
}

impl Default for ControlPlaneSpec {
    fn default() -> Self {
        Self { mode: ControlPlaneMode::Shared, class: crate::keys::DEFAULT_CLASS.to_owned() }
    }
}

/// The wanted state of a Project.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProjectSpec {
    /// Who owns it. Can't be changed.
    #[schemars(extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "ownerRef is immutable"}]))]
    pub owner_ref: OwnerRef,
    /// A name for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub display_name: String,
    /// Where its control plane runs and what it starts from.
    #[serde(default)]
    pub control_plane: ControlPlaneSpec,
}

/// Where a project's control plane is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ControlPlaneStatus {
    /// The plane's identifier: the project's uid.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// The server URL of its kubeconfig. The same in both modes.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// Where it runs now.
    pub mode: ControlPlaneMode,
}

/// The observed state of a Project.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProjectStatus {
    /// Where its control plane is, once it is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<ControlPlaneStatus>,
    /// The generation of the spec that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`: its kubeconfig is there and its control plane answers. `Terminating`: how far its deletion is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

impl KindSpec for ProjectSpec {
    type Status = ProjectStatus;
    const DEFINITION: Definition = Definition {
        group: GROUP,
        version: VERSION,
        kind: "Project",
        plural: "projects",
        short_names: &["proj"],
        namespaced: false,
        description: "A Project has a Kubernetes control plane of its own.",
        columns: &[
            column("Organization", ".spec.ownerRef.name"),
            column("Mode", ".spec.controlPlane.mode"),
            READY_COLUMN,
            REASON_COLUMN,
            PrinterColumn { priority: 1, ..column("URL", ".status.controlPlane.url") },
        ],
    };
}

/// A reference by name to an object whose kind is known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LocalRef {
    /// The object's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// What a member may do in an organization.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Everything, memberships included.
    Owner,
    /// Everything but memberships.
    Editor,
    /// Reading.
    Viewer,
}

/// The wanted state of an OrganizationMembership.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.organizationRef == oldSelf.organizationRef && self.userRef == oldSelf.userRef",
    "message": "organizationRef and userRef are immutable"
}]))]
pub struct OrganizationMembershipSpec {
    /// The organization.
    pub organization_ref: LocalRef,
    /// The user, by the name under which they authenticate.
    pub user_ref: LocalRef,
    /// What the user may do; each adds to the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 3), extend("x-kubernetes-list-type" = "set"))]
    pub roles: Vec<Role>,
}

/// The observed state of an OrganizationMembership.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct OrganizationMembershipStatus {
    /// The generation of the spec that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`: the membership counts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

impl KindSpec for OrganizationMembershipSpec {
    type Status = OrganizationMembershipStatus;
    const DEFINITION: Definition = Definition {
        group: GROUP,
        version: VERSION,
        kind: "OrganizationMembership",
        plural: "organizationmemberships",
        short_names: &["orgmember"],
        namespaced: true,
        description: "An OrganizationMembership gives a user roles in the organization whose namespace it is in.",
        columns: &[
            column("Organization", ".spec.organizationRef.name"),
            column("User", ".spec.userRef.name"),
            column("Roles", ".spec.roles"),
            READY_COLUMN,
        ],
    };
}

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
}

/// The observed state of a ControlPlaneClass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ControlPlaneClassStatus {
    /// Nothing is observed yet beyond what people set here.
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
