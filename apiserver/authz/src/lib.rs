//! May they: role-based access control as Kubernetes has it
//! (<https://kubernetes.io/docs/reference/access-authn-authz/rbac/>), and the platform's own above it ([`iam`]).
//!
//! A [`Policy`] is compiled from one plane's roles and bindings and answers from memory. Bindings are found by their
//! subjects, so an answer costs by the groups and bindings of the one who asks, not by how many there are. What roles
//! allow is compiled once for all planes, by content ([`RuleCache`]).
//!
//! Guarantees: what is not allowed by a binding is refused, but for members of `system:masters`; nobody can grant,
//! by a role or a binding, what they do not hold themselves ([`escalation`]); reasons and refusals are worded as
//! kube-apiserver words them. [`Access`] joins both for one plane.
//!
//! This crate must not know: HTTP, where roles are kept and when they change, how users were authenticated.

pub mod access;
mod accounts;
pub mod aggregation;
pub mod bootstrap;
pub mod escalation;
pub mod iam;
mod namespaces;
pub mod node;
pub mod policy;
pub mod reserved;
pub mod review;
pub mod rule;
mod selectors;
pub mod visible;

pub use access::Access;
pub use bootstrap::{bootstrap_objects, predefined_roles, settle};
pub use policy::Policy;
pub use rule::{Rule, RuleCache, Rules};
pub use selectors::{Selector, Selectors};
pub use visible::{LIST_VISIBLE, Reach};

use freehold_machinery::{GroupResource, Status, User};

/// The API group of roles and bindings.
pub const GROUP: &str = "rbac.authorization.k8s.io";

/// What is to be done, and by whom.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    /// Who asks.
    pub user: &'a User,
    /// `get`, `list`, `create`, ...; for paths the HTTP method in lower case.
    pub verb: &'a str,
    /// API group, empty for core.
    pub group: &'a str,
    /// API version.
    pub version: &'a str,
    /// The plural resource; empty when a path is asked for.
    pub resource: &'a str,
    /// The subresource, empty for the main one.
    pub subresource: &'a str,
    /// The namespace, empty for all and for cluster-scoped resources.
    pub namespace: &'a str,
    /// The object's name, empty for collections and creations.
    pub name: &'a str,
    /// The path, where it is not one of a resource (`/healthz`).
    pub path: &'a str,
    /// What a list, a watch or a deletion of many is narrowed to.
    pub selectors: Selectors<'a>,
}

impl<'a> Attributes<'a> {
    /// A question about a resource; further fields are empty.
    pub fn resource(user: &'a User, verb: &'a str, group: &'a str, resource: &'a str) -> Self {
        let none = "";
        Self {
            user,
            verb,
            group,
            version: none,
            resource,
            subresource: none,
            namespace: none,
            name: none,
            path: none,
            selectors: Selectors::default(),
        }
    }

    /// A question about a path that is not one of a resource.
    pub fn path(user: &'a User, verb: &'a str, path: &'a str) -> Self {
        Self { path, ..Self::resource(user, verb, "", "") }
    }

    /// Whether this is about a resource, and not about a path.
    pub fn is_resource(&self) -> bool {
        !self.resource.is_empty()
    }

    /// Whether it changes nothing: get, list or watch.
    pub fn is_read(&self) -> bool {
        matches!(self.verb, "get" | "list" | "watch")
    }
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether they may.
    pub allowed: bool,
    /// Whether somebody said that they may not, whatever others would say.
    pub denied: bool,
    /// Why, or why not; can be empty.
    pub reason: String,
}

impl Decision {
    /// A decision that allows, with its reason.
    pub fn allow(reason: impl Into<String>) -> Self {
        Self { allowed: true, denied: false, reason: reason.into() }
    }

    /// Not allowed whatever others say, because.
    pub fn deny(reason: impl Into<String>) -> Self {
        Self { allowed: false, denied: true, reason: reason.into() }
    }

    /// A decision that does not allow, with its reason.
    pub fn refuse(reason: impl Into<String>) -> Self {
        Self { allowed: false, denied: false, reason: reason.into() }
    }
}

/// 403, worded as kube-apiserver words it. `reason` follows the message, where there is one.
pub fn forbidden(attributes: &Attributes<'_>, reason: &str) -> Status {
    let mut message = escaped(&refusal(attributes));
    if !reason.is_empty() {
        message.push_str(": ");
        message.push_str(reason);
    }
    Status::forbidden(&GroupResource::new(attributes.group, attributes.resource), attributes.name, &message)
}

fn refusal(attributes: &Attributes<'_>) -> String {
    let Attributes { user, verb, group, resource, subresource, namespace, path, .. } = attributes;
    let user = &user.name;
    if !attributes.is_resource() {
        return format!("User {user:?} cannot {verb} path {path:?}");
    }
    let slash = if subresource.is_empty() { "" } else { "/" };
    let resource = format!("{resource}{slash}{subresource}");
    let place = match *namespace {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace {namespace:?}"),
    };
    format!("User {user:?} cannot {verb} resource {resource:?} in API group {group:?} {place}")
}

/// Names come from clients, and old clients show messages as HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
