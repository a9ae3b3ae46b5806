//! `resourcemanager.freehold.dev/v1alpha1`: organizations, projects and memberships. Served by the core plane.

pub use crate::classes::{
    ClassDedicated, ControlPlaneClassSpec, ControlPlaneClassStatus, Controllers, LabelOperator,
    LabelRequirement, NamespaceSelector, ObjectDeletion, PlaneLimits,
};
use crate::columns::{READY_COLUMN, REASON_COLUMN, column};
use crate::object::{Condition, Definition, KindSpec, Object, PrinterColumn};
use crate::workloads::ProjectWorkloads;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The API group.
pub const GROUP: &str = "resourcemanager.freehold.dev";
/// The version of all its kinds.
pub const VERSION: &str = "v1alpha1";

/// Who owns projects: a company, a team or one person.
pub type Organization = Object<OrganizationSpec>;
/// A control plane of its own for an organization.
pub type Project = Object<ProjectSpec>;
/// A user's roles in an organization.
pub type OrganizationMembership = Object<OrganizationMembershipSpec>;
/// What a project had at one moment.
pub type ProjectSnapshot = Object<ProjectSnapshotSpec>;
/// A project going back to one of its snapshots, once.
pub type ProjectRestore = Object<ProjectRestoreSpec>;
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

/// Who may lift a suspension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SuspensionLift {
    /// Whoever may `suspend` in the organization: its owners.
    Organization,
    /// Whoever may `suspend` on the platform.
    Platform,
}

/// Why nothing is served. Setting and lifting one needs the verb `suspend`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Suspension {
    /// Why. Who is refused is told.
    #[schemars(length(min = 1, max = 1024))]
    pub reason: String,
    /// Who may lift it, and change it. Where it is not given: the platform, if its author may `suspend` on the platform, and
    /// the organization otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "SuspensionLift")]
    pub lifted_by: Option<SuspensionLift>,
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
    /// Refuses all requests to its projects, and writes to what is its own, while it is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspension: Option<Suspension>,
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

/// What a fork begins with: what another project has, or had at a snapshot or revision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!(has(self.snapshot) && has(self.revision))", "message": "only one of snapshot and revision can be given"
}]))]
pub struct ForkSource {
    /// A project of the same organization.
    #[schemars(length(min = 1, max = 63))]
    pub project: String,
    /// A ProjectSnapshot of that project. Without it and without a revision: what the project has when the fork is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub snapshot: Option<String>,
    /// A resource version of that project. They are kept for some minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub revision: Option<i64>,
}

/// Which credentials of a control plane count. Changing it needs `write` on `projects/credentials`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self.generation >= oldSelf.generation", "message": "generation can only be raised"}
]))]
pub struct PlaneCredentials {
    /// The generation of its certificates. Raising it ends all that were signed before: those of its kubeconfig, which is
    /// made anew, and those of signing requests.
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub generation: i64,
    /// Single credentials that don't count any more, as `authentication.kubernetes.io/credential-id` has them in audit
    /// events: `X509SHA256=` and the certificate's fingerprint, or `JTI=` and the token's identifier.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "set"))]
    pub revoked: Vec<CredentialId>,
}

/// `X509SHA256=` and 64 hexadecimal digits, or `JTI=` and a token's identifier.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct CredentialId(
    #[schemars(length(max = 128), regex(pattern = r"^(X509SHA256=[0-9a-f]{64}|JTI=[!-~]+)$"))] pub String,
);

/// How a project's control plane is to be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "has(self.from) == has(oldSelf.from) && (!has(self.from) || self.from == oldSelf.from)",
        "message": "from is immutable"
    },
    {"rule": "self.class == oldSelf.class", "message": "class is immutable"},
    {
        "rule": "has(self.credentials) || !has(oldSelf.credentials)", "message": "credentials can not be removed"
    }
]))]
pub struct ControlPlaneSpec {
    /// Where it runs. Can be changed: the plane moves and its address stays.
    pub mode: ControlPlaneMode,
    /// The ControlPlaneClass that it starts from. Can't be changed. While there is no class of that name, the project has no
    /// limits and no objects of one, and is Ready all the same.
    #[schemars(length(min = 1, max = 63))]
    pub class: String,
    /// What it is a fork of. Can't be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<ForkSource>,
    /// Which of its credentials count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials: Option<PlaneCredentials>,
    /// Puts a dedicated control plane to rest: none of its programs runs, and requests are refused with 503 until this is
    /// taken back. Nothing that it holds is lost. It is nothing to a shared one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub asleep: bool,
}

impl Default for ControlPlaneSpec {
    fn default() -> Self {
        Self {
            mode: ControlPlaneMode::Shared,
            class: crate::keys::DEFAULT_CLASS.to_owned(),
            from: None,
            credentials: None,
            asleep: false,
        }
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
    /// Refuses all requests to its control plane while it is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspension: Option<Suspension>,
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
    /// Where its Pods run, where they share a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workloads: Option<ProjectWorkloads>,
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

/// The wanted state of a ProjectSnapshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "spec is immutable"}]))]
pub struct ProjectSnapshotSpec {
    /// The project, which must belong to the organization whose namespace this is in.
    pub project_ref: LocalRef,
    /// A resource version of the project; without one, what it has when the snapshot is made. They are kept for some
    /// minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub revision: Option<i64>,
}

/// The observed state of a ProjectSnapshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProjectSnapshotStatus {
    /// `Pending`, `Ready` or `Failed`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// The resource version that it is of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// How many objects it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects: Option<i64>,
    /// How many bytes they take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<i64>,
    /// The plane that it is of.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub plane: String,
    /// The layer that holds it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub layer: String,
    /// The generation of the spec that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`: it is complete.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

impl KindSpec for ProjectSnapshotSpec {
    type Status = ProjectSnapshotStatus;
    const DEFINITION: Definition = Definition {
        group: GROUP,
        version: VERSION,
        kind: "ProjectSnapshot",
        plural: "projectsnapshots",
        short_names: &["projsnap"],
        namespaced: true,
        description: "A ProjectSnapshot keeps what a project of the organization whose namespace it is in had at one moment.",
        columns: &[
            column("Project", ".spec.projectRef.name"),
            column("Phase", ".status.phase"),
            PrinterColumn { kind: "integer", ..column("Revision", ".status.revision") },
            PrinterColumn { kind: "integer", ..column("Objects", ".status.objects") },
            PrinterColumn { kind: "integer", priority: 1, ..column("Bytes", ".status.bytes") },
        ],
    };
}

/// The wanted state of a ProjectRestore.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "spec is immutable"}]))]
pub struct ProjectRestoreSpec {
    /// The project, which must belong to the organization whose namespace this is in.
    pub project_ref: LocalRef,
    /// A ProjectSnapshot of that project, in the same namespace.
    pub snapshot_ref: LocalRef,
}

/// The observed state of a ProjectRestore.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProjectRestoreStatus {
    /// `Pending`, `Completed` or `Failed`. The last two are final.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// The resource version from which the project is as it was in the snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,
    /// The generation of the spec that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`: it is done.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

impl KindSpec for ProjectRestoreSpec {
    type Status = ProjectRestoreStatus;
    const DEFINITION: Definition = Definition {
        group: GROUP,
        version: VERSION,
        kind: "ProjectRestore",
        plural: "projectrestores",
        short_names: &["projrestore"],
        namespaced: true,
        description: "A ProjectRestore puts a project back to one of its snapshots, once.",
        columns: &[
            column("Project", ".spec.projectRef.name"),
            column("Snapshot", ".spec.snapshotRef.name"),
            column("Phase", ".status.phase"),
        ],
    };
}
