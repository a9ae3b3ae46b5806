//! Admission: whether a request fits the rules of the tenant whose namespace it is about, and what it is given by default.
//!
//! [`admit`] decides all that needs no reservation: quotas are reserved by the caller afterwards, for a request that is
//! allowed. Whoever is exempt is never refused, so that no tenant locks an administrator out.

mod content;
mod hosts;
mod namespaces;

pub use content::{INGRESS_CLASS_ANNOTATION, STORAGE_CLASS_ANNOTATION, image_is_allowed};
pub use hosts::{HostUse, hosts_of};
pub use namespaces::{OWNERS_KEYS, is_system_key, may_provision};

use crate::tenant::{Chain, Namespace, chain};
use freehold_machinery::{GroupResource, Value};
use freehold_tenancy_api::tenant::{Member, Subject, SubjectKind, Tenant};
use freehold_tenancy_api::{GROUP, MANAGED_LABEL, TENANT_LABEL};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Creates an object.
    Create,
    /// Changes an object.
    Update,
    /// Deletes an object.
    Delete,
}

/// Who makes a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: String,
    /// The groups.
    pub groups: Vec<String>,
}

/// A request to be decided on.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// What it does.
    pub operation: Operation,
    /// Group and plural of the object.
    pub resource: GroupResource,
    /// The subresource, empty for the object itself.
    pub subresource: &'a str,
    /// The namespace; for a Namespace, its own name.
    pub namespace: &'a str,
    /// The name; may be empty where the server is to make one.
    pub name: &'a str,
    /// The new object; null for a deletion.
    pub object: &'a Value,
    /// The existing object; null for a creation.
    pub old: &'a Value,
    /// Who asks.
    pub user: &'a User,
}

/// What admission says.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// The request goes on, with these JSON patch operations.
    Allow(Vec<Value>),
    /// The request is refused, with a message.
    Deny(String),
}

/// What decisions look things up in. Lookups never make a request.
pub trait Index {
    /// A namespace by name.
    fn namespace(&self, name: &str) -> Option<Arc<Namespace>>;
    /// A tenant by name.
    fn tenant(&self, name: &str) -> Option<Arc<Tenant>>;
    /// The tenants that a subject is a member of, by role whatever it is.
    fn tenants_of(&self, subject: &Subject) -> Vec<Arc<Tenant>>;
    /// Uses of a host name with a path.
    fn host_uses(&self, host: &str, path: &str) -> Vec<HostUse>;
}

/// Who is never refused.
#[derive(Clone, Debug)]
pub struct Exempt {
    /// Groups of administrators.
    pub groups: BTreeSet<String>,
}

impl Default for Exempt {
    /// The group of cluster administrators.
    fn default() -> Self {
        Self { groups: ["system:masters".to_owned()].into() }
    }
}

/// What names of providers of shared APIs begin with, in the planes of those who bind them.
const PROVIDERS: &str = "system:freehold:provider:";

impl Exempt {
    /// Whether a user is an administrator.
    pub fn is_admin(&self, user: &User) -> bool {
        user.groups.iter().any(|group| self.groups.contains(group))
    }

    /// Whether the rules of what objects say do not hold for a request: an administrator makes it in person. Controllers and
    /// service accounts act for others, whatever their rights; so does who creates the Pod of a workload.
    pub fn is_in_person(&self, request: &Request<'_>) -> bool {
        self.is_admin(request.user) && acts_in_person(&request.user.name, &request.resource, request.object)
    }

    /// Whether a user is an administrator or a part of the cluster: rules of who may do what do not hold for those. Rules
    /// of what objects say hold for parts of the cluster, since they create Pods of members' workloads.
    pub fn is_system(&self, user: &User) -> bool {
        const ACCOUNTS: &str = "system:serviceaccount:";
        let name = user.name.as_str();
        let system_account = name.strip_prefix(ACCOUNTS).is_some_and(|account| {
            let namespace = account.split(':').next().unwrap_or_default();
            crate::target::is_protected(namespace) && namespace != "default"
        });
        self.is_admin(user)
            || system_account
            || (name.starts_with("system:")
                && !name.starts_with(ACCOUNTS)
                // A provider of shared APIs writes in a plane what the plane's owner accepted, and is no part of it.
                && !name.starts_with(PROVIDERS)
                && name != "system:anonymous")
    }
}

/// Whether a user writes an object in person: controllers and service accounts act for others, and so does whoever creates
/// a Pod that an owner controls.
pub fn acts_in_person(user: &str, resource: &GroupResource, object: &Value) -> bool {
    let acts_for_others = user.starts_with("system:serviceaccount:")
        || user.starts_with("system:freehold:")
        || user == "system:kube-controller-manager";
    let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let is_pod = resource.group.is_empty() && resource.resource == "pods";
    let of_a_workload = is_pod && owners.into_iter().flatten().any(|owner| owner["controller"] == true);
    !acts_for_others && !of_a_workload
}

/// Whether a subject stands for a user.
pub fn is_subject(subject: &Subject, user: &User) -> bool {
    match subject.kind {
        SubjectKind::User => subject.name == user.name,
        SubjectKind::Group => user.groups.contains(&subject.name),
        SubjectKind::ServiceAccount => {
            user.name == format!("system:serviceaccount:{}:{}", subject.namespace, subject.name)
        }
    }
}

/// The subjects that a user can be named as.
pub fn subjects_of(user: &User) -> Vec<Subject> {
    let subject = |kind, name: &str, namespace: &str| Subject {
        kind,
        name: name.to_owned(),
        namespace: namespace.to_owned(),
    };
    let mut subjects = vec![subject(SubjectKind::User, &user.name, "")];
    let account = user.name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    if let Some((namespace, name)) = account {
        subjects.push(subject(SubjectKind::ServiceAccount, name, namespace));
    }
    subjects.extend(user.groups.iter().map(|group| subject(SubjectKind::Group, group, "")));
    subjects
}

/// Whether any of the members is a user.
fn includes<'a>(mut members: impl Iterator<Item = &'a Member>, user: &User) -> bool {
    members.any(|member| member.subjects.iter().any(|subject| is_subject(subject, user)))
}

/// Decides on a request.
pub fn admit(request: &Request<'_>, index: &dyn Index, exempt: &Exempt) -> Decision {
    match decide(request, index, exempt) {
        Ok(patch) => Decision::Allow(patch),
        Err(message) => Decision::Deny(message),
    }
}

fn is(request: &Request<'_>, group: &str, resource: &str) -> bool {
    request.resource.group == group && request.resource.resource == resource
}

fn decide(request: &Request<'_>, index: &dyn Index, exempt: &Exempt) -> Result<Vec<Value>, String> {
    if is(request, GROUP, "tenants") {
        return tenant(request, index).map(|()| Vec::new());
    }
    if is(request, "", "namespaces") {
        return namespaces::decide(request, index, exempt);
    }
    let Some(namespace) = index.namespace(request.namespace) else { return Ok(Vec::new()) };
    let Some(chain) = chain_of(index, namespace.tenant()) else { return Ok(Vec::new()) };
    if !exempt.is_system(request.user) {
        may_change(request, &chain)?;
    }
    let said = |object: &Value| (object.get("spec").cloned(), object["metadata"].get("annotations").cloned());
    let is_same = request.operation == Operation::Update && said(request.object) == said(request.old);
    if exempt.is_in_person(request) || request.operation == Operation::Delete || is_same {
        return Ok(Vec::new());
    }
    let patch = content::decide(request, &chain)?;
    hosts::check(request, &chain, index)?;
    Ok(patch)
}

/// The tenant of a name with all above it.
fn chain_of(index: &dyn Index, tenant: Option<&str>) -> Option<Chain> {
    Some(chain(index.tenant(tenant?)?, |name| index.tenant(name)))
}

fn name_of(chain: &Chain) -> &str {
    chain.tenant().map_or("", |tenant| &tenant.metadata.name)
}

/// Refuses members' writes in a cordoned tenant, and their changes of objects that the controllers keep.
fn may_change(request: &Request<'_>, chain: &Chain) -> Result<(), String> {
    // What runs must be able to go on: states of objects are written by parts that members run.
    if let Some(tenant) = chain.tenants.iter().find(|tenant| tenant.spec.cordoned)
        && request.subresource != "status"
    {
        return Err(format!("tenant {:?} is cordoned: nothing can be changed", tenant.metadata.name));
    }
    let managed =
        |object: &Value| object.pointer("/metadata/labels").and_then(|l| l.get(MANAGED_LABEL)).is_some();
    if managed(request.old) || (request.operation == Operation::Create && managed(request.object)) {
        let tenant = name_of(chain);
        return Err(format!("the object is kept by tenant {tenant:?}: change the Tenant instead"));
    }
    Ok(())
}

/// Checks a Tenant: the name, the parents, and whether it may be deleted.
fn tenant(request: &Request<'_>, index: &dyn Index) -> Result<(), String> {
    if request.operation == Operation::Delete {
        let prevented = request.old.pointer("/spec/preventDeletion").is_some_and(|prevent| prevent == true);
        return if prevented {
            Err("spec.preventDeletion is set: set it to false before the tenant is deleted".to_owned())
        } else {
            Ok(())
        };
    }
    if !request.subresource.is_empty() {
        return Ok(());
    }
    let name = request.object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or(request.name);
    let is_name = || name.len() <= 40 && freehold_machinery::names::dns1123_label(name).is_empty();
    // One that was created before must be able to lose its finalizers.
    if request.operation == Operation::Create && !is_name() {
        return Err(
            "a tenant's name is a DNS label of at most 40 characters: names of namespaces begin with it"
                .into(),
        );
    }
    let text = |object: &Value| {
        object.pointer("/spec/parent").and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let mut parent = text(request.object);
    if parent == text(request.old) {
        return Ok(());
    }
    for _ in 0..=crate::tenant::MAX_DEPTH {
        if parent.is_empty() {
            return Ok(());
        }
        if parent == name {
            return Err(format!("spec.parent: tenant {name:?} would be its own ancestor"));
        }
        match index.tenant(&parent) {
            Some(above) => parent.clone_from(&above.spec.parent),
            // Manifests may come in any order; a condition says what is missing.
            None => return Ok(()),
        }
    }
    Err(format!("spec.parent: more than {} tenants above", crate::tenant::MAX_DEPTH))
}

/// The label of an object with its tenant.
fn tenant_label(object: &Value) -> Option<&str> {
    object.pointer("/metadata/labels")?.get(TENANT_LABEL)?.as_str().filter(|label| !label.is_empty())
}

#[cfg(test)]
mod tests;
