//! `iam.freehold.dev/v1alpha1`: users, groups, roles and bindings of the platform. Served by the core plane.
//!
//! Where an object is says how far it reaches: in the namespace of an organization that organization and its projects,
//! in `freehold-system` everything. Elsewhere it counts for nothing.

use crate::columns::{READY_COLUMN, column};
use crate::object::{Condition, Definition, KindSpec, Object, PrinterColumn};
use crate::resourcemanager::{CredentialId, LocalRef, Role as MemberRole};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The API group.
pub const GROUP: &str = "iam.freehold.dev";
/// The version of all its kinds.
pub const VERSION: &str = "v1alpha1";

/// What may be done, by whoever a PolicyBinding gives it to.
pub type Role = Object<RoleSpec>;
/// A role given to subjects at a target.
pub type PolicyBinding = Object<PolicyBindingSpec>;
/// A person.
pub type User = Object<UserSpec>;
/// Several users of an organization.
pub type Group = Object<GroupSpec>;
/// A user in a group.
pub type GroupMembership = Object<GroupMembershipSpec>;
/// An offer to become a member.
pub type UserInvitation = Object<UserInvitationSpec>;
/// A user that is locked out.
pub type UserDeactivation = Object<UserDeactivationSpec>;
/// An identity for programs.
pub type ServiceAccount = Object<ServiceAccountSpec>;
/// A credential of a service account.
pub type ServiceAccountKey = Object<ServiceAccountKeySpec>;

/// The observed state of the kinds of this group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct IamStatus {
    /// The generation of the spec that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`: it counts; otherwise why not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// A reference to an object of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NamespacedRef {
    /// The object's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The object's namespace; without one, that of the object which refers to it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub namespace: String,
}

/// `GROUP/RESOURCE[/SUBRESOURCE].VERB`, each of which may be `*`; `core` is the empty group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Permission(
    #[schemars(
        length(max = 512),
        regex(pattern = r"^(\*|[a-z0-9.-]+)/(\*|[a-z0-9-]+)(/(\*|[a-z0-9-]+))?\.(\*|[a-z-]+)$")
    )]
    pub String,
);

/// The wanted state of a Role.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RoleSpec {
    /// What it is for.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub description: String,
    /// What it allows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000), extend("x-kubernetes-list-type" = "set"))]
    pub included_permissions: Vec<Permission>,
    /// What `includedPermissions` does not reach to. Inherited roles and other bindings may allow it all the same.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000), extend("x-kubernetes-list-type" = "set"))]
    pub excluded_permissions: Vec<Permission>,
    /// Roles whose permissions it has too: of its own namespace or of `freehold-system`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub inherited_roles: Vec<NamespacedRef>,
}

/// What kind of subject a binding names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SubjectKind {
    /// Who authenticates under that name.
    #[default]
    User,
    /// The members of a Group; in `freehold-system` and without a namespace, those whom authentication puts into it.
    Group,
    /// A ServiceAccount of this API group.
    ServiceAccount,
}

/// Whom a binding gives its role.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Subject {
    /// The kind of subject.
    pub kind: SubjectKind,
    /// The subject's name; of a user, the name under which they authenticate.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The namespace of a group or service account; without one, that of the binding.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub namespace: String,
}

/// At what a role is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TargetKind {
    /// Everything.
    #[default]
    Platform,
    /// An organization and its projects.
    Organization,
    /// A project.
    Project,
}

/// A kind of resource, or one of that kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSelector {
    /// The API group; empty for core.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub api_group: String,
    /// The resource as it stands in URLs: `deployments`. Its subresources are included.
    #[schemars(length(min = 1, max = 253))]
    pub resource: String,
    /// Objects in this namespace alone.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// The object of this name alone.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub name: String,
}

/// What a binding is about.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "(self.kind == 'Platform') != has(self.name)", "message": "name must be given unless kind is Platform"
}]))]
pub struct Target {
    /// `Platform`, `Organization` or `Project`: that and all below it.
    pub kind: TargetKind,
    /// The organization's or project's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub name: String,
    /// Only this kind of resource there, or one resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<ResourceSelector>,
}

/// The wanted state of a PolicyBinding.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyBindingSpec {
    /// The Role: of the binding's own namespace or of `freehold-system`. Can't be changed.
    #[schemars(extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "roleRef is immutable"}]))]
    pub role_ref: NamespacedRef,
    /// Who gets it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub subjects: Vec<Subject>,
    /// What it is about. Can't be changed.
    #[schemars(extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "target is immutable"}]))]
    pub target: Target,
}

/// The wanted state of a User.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UserSpec {
    /// The name under which they authenticate, where that can't be an object's name. Can't be changed.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253), extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "username is immutable"}]))]
    pub username: String,
    /// A name for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub display_name: String,
    /// Where they are written to, and invited by.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 254))]
    pub email: String,
    /// Single credentials that don't count any more, while others of the user do: `X509SHA256=` and a certificate's
    /// fingerprint, or `JTI=` and a token's identifier, as `authentication.kubernetes.io/credential-id` has them in audit events.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "set"))]
    pub revoked_credentials: Vec<CredentialId>,
}

/// The wanted state of a Group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupSpec {
    /// What it is for.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub description: String,
}

/// The wanted state of a GroupMembership.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "spec is immutable"}]))]
pub struct GroupMembershipSpec {
    /// The group, of the same namespace.
    pub group_ref: LocalRef,
    /// The user, by the name under which they authenticate.
    pub user_ref: LocalRef,
}

/// What became of an invitation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum InvitationState {
    /// Nobody has answered yet.
    #[default]
    Pending,
    /// The user has become a member.
    Accepted,
    /// The user does not want to.
    Declined,
}

/// The wanted state of a UserInvitation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "has(self.userRef) != has(self.email)", "message": "exactly one of userRef and email must be given"
    },
    {
        "rule": "self.organizationRef == oldSelf.organizationRef && has(self.userRef) == has(oldSelf.userRef) && (!has(self.userRef) || self.userRef == oldSelf.userRef) && has(self.email) == has(oldSelf.email) && (!has(self.email) || self.email == oldSelf.email) && self.roles == oldSelf.roles && self.expirationDate == oldSelf.expirationDate",
        "message": "only state can be changed"
    },
    {
        "rule": "oldSelf.state == 'Pending' || self.state == oldSelf.state", "message": "it has been answered"
    }
]))]
pub struct UserInvitationSpec {
    /// The organization, whose namespace the invitation is in.
    pub organization_ref: LocalRef,
    /// Who is invited, by the name under which they authenticate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_ref: Option<LocalRef>,
    /// Who is invited, by the address of their User object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 3, max = 254))]
    pub email: Option<String>,
    /// What they may do once they are members.
    #[schemars(length(min = 1, max = 3), extend("x-kubernetes-list-type" = "set"))]
    pub roles: Vec<MemberRole>,
    /// Until when it can be accepted.
    #[schemars(extend("format" = "date-time"))]
    pub expiration_date: String,
    /// The invited user's answer, which is given once.
    #[serde(default)]
    pub state: InvitationState,
}

/// The wanted state of a UserDeactivation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "spec is immutable"}]))]
pub struct UserDeactivationSpec {
    /// The user, by the name under which they authenticate.
    pub user_ref: LocalRef,
    /// Why. The user is told.
    #[schemars(length(min = 1, max = 1024))]
    pub reason: String,
}

/// The wanted state of a ServiceAccount.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceAccountSpec {
    /// What it is for.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub description: String,
    /// Whether its keys count.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub disabled: bool,
}

/// The wanted state of a ServiceAccountKey.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "spec is immutable"}]))]
pub struct ServiceAccountKeySpec {
    /// The service account, of the same namespace.
    pub service_account_ref: LocalRef,
    /// Until when it counts; without it, until it is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub expiration_date: Option<String>,
    /// SHA-256 of the token, in hexadecimal digits. The server makes it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub token_hash: String,
}

/// The observed state of a ServiceAccountKey.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceAccountKeyStatus {
    /// The bearer token: only in the answer to the request that made the key, and nowhere kept.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub token: String,
    /// The generation of the spec that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`: it counts; otherwise why not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// What most kinds here have in common.
const fn definition(kind: &'static str, plural: &'static str, description: &'static str) -> Definition {
    Definition {
        group: GROUP,
        version: VERSION,
        kind,
        plural,
        short_names: &[],
        namespaced: true,
        description,
        columns: &[READY_COLUMN],
    }
}

macro_rules! kinds {
    ($($spec:ident, $status:ident: $definition:expr;)*) => {
        $(impl KindSpec for $spec {
            type Status = $status;
            const DEFINITION: Definition = $definition;
        })*
    };
}

kinds! {
    RoleSpec, IamStatus: Definition {
        short_names: &["iamrole"],
        columns: &[column("Description", ".spec.description"), READY_COLUMN],
        ..definition("Role", "roles", "A Role says what may be done by whoever a PolicyBinding gives it to.")
    };
    PolicyBindingSpec, IamStatus: Definition {
        short_names: &["pb"],
        columns: &[
            column("Role", ".spec.roleRef.name"),
            column("Target", ".spec.target.kind"),
            column("Name", ".spec.target.name"),
            READY_COLUMN,
            PrinterColumn { priority: 1, ..column("Subjects", ".spec.subjects[*].name") },
        ],
        ..definition("PolicyBinding", "policybindings", "A PolicyBinding gives a role to subjects at a target.")
    };
    UserSpec, IamStatus: Definition {
        namespaced: false,
        columns: &[
            column("Username", ".spec.username"),
            column("Display Name", ".spec.displayName"),
            column("Email", ".spec.email"),
        ],
        ..definition("User", "users", "A User is a person who may be a member of organizations.")
    };
    GroupSpec, IamStatus: Definition {
        columns: &[column("Description", ".spec.description")],
        ..definition("Group", "groups", "A Group is several users of an organization.")
    };
    GroupMembershipSpec, IamStatus: Definition {
        columns: &[column("Group", ".spec.groupRef.name"), column("User", ".spec.userRef.name"), READY_COLUMN],
        ..definition("GroupMembership", "groupmemberships", "A GroupMembership puts a user into a group.")
    };
    UserInvitationSpec, IamStatus: Definition {
        columns: &[
            column("User", ".spec.userRef.name"),
            column("Email", ".spec.email"),
            column("Roles", ".spec.roles"),
            column("State", ".spec.state"),
            column("Expires", ".spec.expirationDate"),
        ],
        ..definition("UserInvitation", "userinvitations", "A UserInvitation offers a user to become a member of an organization.")
    };
    UserDeactivationSpec, IamStatus: Definition {
        namespaced: false,
        columns: &[column("User", ".spec.userRef.name"), column("Reason", ".spec.reason")],
        ..definition("UserDeactivation", "userdeactivations", "A UserDeactivation locks a user out, everywhere and at once.")
    };
    ServiceAccountSpec, IamStatus: Definition {
        short_names: &["iamsa"],
        columns: &[column("Description", ".spec.description")],
        ..definition("ServiceAccount", "serviceaccounts", "A ServiceAccount is an identity for programs that work for an organization.")
    };
    ServiceAccountKeySpec, ServiceAccountKeyStatus: Definition {
        columns: &[
            column("Account", ".spec.serviceAccountRef.name"),
            column("Expires", ".spec.expirationDate"),
        ],
        ..definition("ServiceAccountKey", "serviceaccountkeys", "A ServiceAccountKey is a token with which programs authenticate as a service account.")
    };
}
