//! What has to hold, and to change, together with an object that says who belongs to what: it is one transaction, so that
//! no crash and no race leaves half of it.

use crate::{Operation, Registry, class_access};
use freehold_apiserver_authz::{
    Access,
    iam::{GROUP as IAM, RESOURCES_GROUP as RESOURCES},
    reserved::is_controller,
};
use freehold_apiserver_cache::{Entry, ListRequest, codec};
use freehold_apiserver_ledger::Also;
use freehold_apiserver_storage::{Change, Commit, Committed, Expect, Key, ObjectPath, StoreError};
use freehold_machinery::{
    PlaneId, Result, Status, User, Value, meta,
    user::{ANONYMOUS, MASTERS},
};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use uuid::Uuid;

const ORGANIZATIONS: &str = "organizations";
const PROJECTS: &str = "projects";
const CLASSES: &str = "controlplaneclasses";
const MEMBERSHIPS: &str = "organizationmemberships";
const RESTORES: &str = "projectrestores";
const INVITATIONS: &str = "userinvitations";
/// The label by which a namespace belongs to an organization.
const ORGANIZATION: &str = "resourcemanager.freehold.dev/organization";
/// The domain of Freehold's own finalizers.
const DOMAIN: &str = ".freehold.dev";
const VERSION: &str = "v1alpha1";
/// Bindings that go in one commit.
const MOST_BINDINGS: usize = 60;

fn namespace_of(organization: &str) -> String {
    format!("organization-{organization}")
}

fn path(group: &str, resource: &str, namespace: &str, name: &str) -> ObjectPath {
    let namespace = Some(namespace.to_owned()).filter(|namespace| !namespace.is_empty());
    ObjectPath { group: group.to_owned(), resource: resource.to_owned(), namespace, name: name.to_owned() }
}

/// Whether a membership gives its user all of its organization.
fn is_owner(membership: &Value) -> bool {
    let organization = membership["spec"]["organizationRef"]["name"].as_str().unwrap_or_default();
    let roles = membership["spec"]["roles"].as_array();
    !meta::is_deleting(membership)
        && meta::namespace(membership) == namespace_of(organization)
        && roles.is_some_and(|roles| roles.iter().any(|role| role == "owner"))
}

/// A new object, as it is stored.
fn made(mut object: Value) -> Value {
    meta::set(&mut object, "uid", Uuid::new_v4().to_string());
    meta::set(&mut object, "creationTimestamp", freehold_apiserver_operation::now());
    object
}

fn put(path: &ObjectPath, object: &Value) -> Also {
    let key = Key::object(&PlaneId::core(), path);
    (Expect { key: key.clone(), modified: 0 }, Some(Change::Put(key, codec::encode(object))))
}

/// What must still be as it is.
fn unchanged(path: &ObjectPath, entry: &Entry) -> Also {
    (Expect { key: Key::object(&PlaneId::core(), path), modified: entry.modified }, None)
}

/// The name of a user's membership: the user's own where that can be one.
fn membership_name(user: &str) -> String {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let fits = (1..=63).contains(&user.len());
    if fits && user.chars().all(plain) && !user.starts_with('-') && !user.ends_with('-') {
        return user.to_owned();
    }
    let kept: String = user.to_lowercase().chars().filter(|c| plain(*c)).take(40).collect();
    let digest = hex::encode(Sha256::digest(user));
    format!("user-{}-{}", kept.trim_matches('-'), &digest[..12]).replace("--", "-")
}

fn membership(organization: &str, user: &str, roles: &Value) -> (ObjectPath, Value) {
    let (namespace, name) = (namespace_of(organization), membership_name(user));
    let object = made(json!({
        "apiVersion": format!("{RESOURCES}/{VERSION}"), "kind": "OrganizationMembership",
        "metadata": {"name": name, "namespace": namespace, "generation": 1},
        "spec": {"organizationRef": {"name": organization}, "userRef": {"name": user}, "roles": roles},
    }));
    (path(RESOURCES, MEMBERSHIPS, &namespace, &name), object)
}

/// Puts back Freehold's finalizers: its controllers take them away, once what they stand for is done.
fn keep_finalizers(new: &mut Value, old: &Value) {
    let is_own =
        |finalizer: &&str| finalizer.split_once('/').is_some_and(|(domain, _)| domain.ends_with(DOMAIN));
    let kept = meta::finalizers(new);
    let mut lost = meta::finalizers(old);
    lost.retain(|finalizer| is_own(finalizer) && !kept.contains(finalizer));
    if !lost.is_empty() {
        let finalizers: Value = [kept, lost].concat().into();
        meta::set(new, "finalizers", finalizers);
    }
}

/// Whether somebody becomes the owner of what they make: people and their programs, but not who runs the platform.
fn becomes_owner(user: &User) -> bool {
    user.plane.is_none() && !user.from_host && !is_controller(user) && user.name != ANONYMOUS
}

impl Registry {
    /// What goes into the commit by which `old` becomes `new`; `None` for what is not, or goes.
    ///
    /// Fails with 403 where it would leave an organization without an owner, or a project without an organization, or
    /// where an invitation is answered by another than who is invited, or too late.
    pub(crate) async fn platform_changes(
        &self,
        op: &Operation,
        new: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<Vec<Also>> {
        if !op.plane.is_core() || op.subresource.is_some() || !matches!(op.ty.group.as_str(), IAM | RESOURCES)
        {
            return Ok(Vec::new());
        }
        match (op.ty.plural.as_str(), new, old) {
            (ORGANIZATIONS, Some(new), None) => self.with_organization(op, new).await,
            (PROJECTS, Some(new), None) => {
                let mut also = self.with_project(op, new).await?;
                also.extend(self.with_class(op, new).await?);
                Ok(also)
            }
            (PROJECTS, Some(new), Some(old)) if class_access::is_chosen(new, old) => {
                self.with_class(op, new).await
            }
            (MEMBERSHIPS, new, Some(old)) if is_owner(old) && !new.is_some_and(is_owner) => {
                self.without_owner(op, old).await
            }
            (INVITATIONS, Some(new), Some(old)) if new["spec"]["state"] != old["spec"]["state"] => {
                self.with_answer(op, new).await
            }
            (ORGANIZATIONS, None, Some(old)) => {
                self.without_bindings(op, ("Organization", meta::name(old)), meta::name(old)).await
            }
            (PROJECTS, None, Some(old)) => {
                let owner = old["spec"]["ownerRef"]["name"].as_str().unwrap_or_default();
                self.without_bindings(op, ("Project", meta::name(old)), owner).await
            }
            (INVITATIONS, Some(new), None) if new["spec"]["state"] != "Pending" => {
                Err(Status::forbidden(&op.ty.group_resource(), op.name(), "it begins as Pending"))
            }
            _ => Ok(Vec::new()),
        }
    }

    async fn core_entry(&self, path: &ObjectPath) -> Result<Option<Arc<Entry>>> {
        Ok(self.cache.get_for_update(&PlaneId::core(), path).await?.0)
    }

    /// An organization begins with its namespace, and with its maker as an owner.
    async fn with_organization(&self, op: &Operation, new: &Value) -> Result<Vec<Also>> {
        let organization = meta::name(new);
        let namespace = namespace_of(organization);
        let at = path("", "namespaces", "", &namespace);
        let mut also = Vec::new();
        match self.core_entry(&at).await? {
            Some(entry) if entry.is_deleting() => {
                let why = format!("namespace {namespace:?} of an earlier one is being deleted");
                return Err(Status::conflict(&op.ty.group_resource(), organization, &why));
            }
            Some(entry) => also.push(unchanged(&at, &entry)),
            None => also.push(put(
                &at,
                &made(json!({
                    "apiVersion": "v1", "kind": "Namespace",
                    "metadata": {
                        "name": namespace,
                        "labels": {"kubernetes.io/metadata.name": namespace, ORGANIZATION: organization},
                    },
                    "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
                })),
            )),
        }
        if becomes_owner(&op.user) {
            let (at, object) = membership(organization, &op.user.name, &json!(["owner"]));
            match self.core_entry(&at).await? {
                Some(entry) => also.push(unchanged(&at, &entry)),
                None => also.push(put(&at, &object)),
            }
        }
        Ok(also)
    }

    /// A project is made in an organization that is there when it is.
    async fn with_project(&self, op: &Operation, new: &Value) -> Result<Vec<Also>> {
        let organization = new["spec"]["ownerRef"]["name"].as_str().unwrap_or_default();
        let at = path(RESOURCES, ORGANIZATIONS, "", organization);
        let refuse = |why: &str| Err(Status::forbidden(&op.ty.group_resource(), meta::name(new), why));
        match self.core_entry(&at).await? {
            // Who runs the platform may apply them in any order; the controller waits for the organization.
            None if op.user.is_in(MASTERS) => {
                Ok(vec![(Expect { key: Key::object(&op.plane, &at), modified: 0 }, None)])
            }
            None => refuse(&format!("there is no organization {organization:?}")),
            Some(entry) if entry.is_deleting() => {
                refuse(&format!("organization {organization:?} is being deleted"))
            }
            Some(entry) => Ok(vec![unchanged(&at, &entry)]),
        }
    }

    /// A project takes a class, and a mode, that the class allows its organization when it does.
    async fn with_class(&self, op: &Operation, new: &Value) -> Result<Vec<Also>> {
        let organization = new["spec"]["ownerRef"]["name"].as_str().unwrap_or_default();
        let name = class_access::name_of(new);
        let refuse = |why: &str| Err(Status::forbidden(&op.ty.group_resource(), meta::name(new), why));
        let at = path(RESOURCES, CLASSES, "", name);
        let class = match self.core_entry(&at).await? {
            Some(class) => class,
            // Nobody has to make the default one, and who runs the platform may apply them in any order.
            None if name == class_access::DEFAULT || op.user.is_in(MASTERS) => {
                return Ok(vec![(Expect { key: Key::object(&op.plane, &at), modified: 0 }, None)]);
            }
            None => return refuse(&format!("there is no ControlPlaneClass {name:?}")),
        };
        let namespace = path("", "namespaces", "", &namespace_of(organization));
        let home = self.core_entry(&namespace).await?;
        let mut also = vec![unchanged(&at, &class)];
        also.extend(home.iter().map(|home| unchanged(&namespace, home)));
        let home = home.map(|home| home.value()).unwrap_or_default();
        match class_access::refusal(&class.value(), &home, new) {
            Some(why) => refuse(&why),
            None => Ok(also),
        }
    }

    /// An owner goes as long as another stays: the other stays as it is until this one is gone.
    async fn without_owner(&self, op: &Operation, old: &Value) -> Result<Vec<Also>> {
        let namespace = meta::namespace(old);
        let request = ListRequest {
            plane: &PlaneId::core(),
            group: RESOURCES,
            resource: MEMBERSHIPS,
            namespace: Some(namespace),
        };
        let listed = self.cache.list(request).await?.objects;
        let user = &old["spec"]["userRef"]["name"];
        let other = |entry: &&Arc<Entry>| {
            let value = entry.value();
            entry.name() != meta::name(old) && is_owner(&value) && value["spec"]["userRef"]["name"] != *user
        };
        if let Some(entry) = listed.iter().find(other) {
            return Ok(vec![unchanged(&path(RESOURCES, MEMBERSHIPS, namespace, entry.name()), entry)]);
        }
        let organization = old["spec"]["organizationRef"]["name"].as_str().unwrap_or_default();
        match self.core_entry(&path(RESOURCES, ORGANIZATIONS, "", organization)).await? {
            Some(entry) if !entry.is_deleting() => {
                let why = format!("{user} is the last owner of organization {organization:?}");
                Err(Status::forbidden(&op.ty.group_resource(), meta::name(old), &why))
            }
            _ => Ok(Vec::new()),
        }
    }

    /// What was given at an organization or project goes with it: another of that name begins with nothing.
    async fn without_bindings(
        &self,
        op: &Operation,
        (kind, name): (&str, &str),
        organization: &str,
    ) -> Result<Vec<Also>> {
        // Bindings are known once the feed has told of them.
        self.cache.catch_up().await?;
        let access = self.policies.access(&op.plane).await?;
        let mut also = Vec::new();
        for (namespace, binding) in access.bindings_of(kind, name, organization) {
            let at = path(IAM, "policybindings", &namespace, &binding);
            if let Some(entry) = self.core_entry(&at).await? {
                let (expect, _) = unchanged(&at, &entry);
                let gone = Change::Delete(expect.key.clone());
                also.push((expect, Some(gone)));
            }
        }
        // What one commit can't hold goes before.
        while also.len() > MOST_BINDINGS {
            let (expect, changes): (Vec<_>, Vec<_>) =
                also.split_off(also.len() - MOST_BINDINGS).into_iter().unzip();
            let commit = Commit { expect, changes: changes.into_iter().flatten().collect() };
            let done = self.stores.of(&op.plane).commit(commit).await.map_err(StoreError::of_commit)?;
            if let Committed::Refused(_) = done {
                return Err(Status::conflict(
                    &op.ty.group_resource(),
                    name,
                    "its bindings are being changed",
                ));
            }
        }
        Ok(also)
    }

    /// Who is invited answers once, and becomes a member by accepting.
    async fn with_answer(&self, op: &Operation, new: &Value) -> Result<Vec<Also>> {
        let spec = &new["spec"];
        let refuse = |why: &str| Err(Status::forbidden(&op.ty.group_resource(), meta::name(new), why));
        if !self.policies.access(&op.plane).await?.is_invited(&op.user, spec) {
            return refuse("only who is invited can answer");
        }
        let organization = spec["organizationRef"]["name"].as_str().unwrap_or_default();
        if meta::namespace(new) != namespace_of(organization) {
            return refuse("it is not in the namespace of its organization");
        }
        if spec["state"] != "Accepted" {
            return Ok(Vec::new());
        }
        let expires = spec["expirationDate"].as_str().and_then(freehold_machinery::time::parse);
        if expires.is_none_or(|expires| expires <= jiff::Timestamp::now()) {
            return refuse("it has expired");
        }
        let at = path(RESOURCES, ORGANIZATIONS, "", organization);
        let there = match self.core_entry(&at).await? {
            Some(entry) if !entry.is_deleting() => unchanged(&at, &entry),
            _ => return refuse(&format!("organization {organization:?} is gone")),
        };
        let (member, object) = membership(organization, &op.user.name, &spec["roles"]);
        if self.core_entry(&member).await?.is_some() {
            return refuse(&format!(
                "{:?} is a member of organization {organization:?} already",
                op.user.name
            ));
        }
        Ok(vec![there, put(&member, &object)])
    }

    /// Completes a write that says who may do what, or that nothing is served, and checks that its author may do that. Fails
    /// with 403.
    pub(crate) async fn check_platform(
        &self,
        op: &Operation,
        new: &mut Value,
        old: Option<&Value>,
    ) -> Result<()> {
        let (group, resource) = (op.ty.group.as_str(), op.ty.plural.as_str());
        if !op.plane.is_core() || op.subresource.is_some() || !matches!(group, IAM | RESOURCES) {
            return Ok(());
        }
        if let Some(old) = old.filter(|_| !is_controller(&op.user)) {
            keep_finalizers(new, old);
        }
        let access: Access = self.policies.access(&op.plane).await?;
        match (group, resource) {
            (RESOURCES, ORGANIZATIONS) => {
                access.complete_suspension(&op.user, resource, new);
                access.check_suspension(&op.user, resource, Some(new), old)
            }
            (RESOURCES, PROJECTS) => {
                access.complete_suspension(&op.user, resource, new);
                access.check_suspension(&op.user, resource, Some(new), old)?;
                access.check_credentials(&op.user, new, old)?;
                access.check_return(&op.user, resource, new, old)?;
                // The commit says so too, of the class as it is then; a dry run has none.
                if old.is_none_or(|old| class_access::is_chosen(new, old)) {
                    self.with_class(op, new).await?;
                }
                Ok(())
            }
            (RESOURCES, RESTORES) => access.check_return(&op.user, resource, new, old),
            // An answer gives what the invitation offered, which was checked then.
            (IAM, INVITATIONS) if old.is_some() => Ok(()),
            (RESOURCES, MEMBERSHIPS) => access.check_grant(&op.user, resource, new, old),
            (IAM, _) => access.check_grant(&op.user, resource, new, old),
            _ => Ok(()),
        }
    }
}

impl Registry {
    /// Whether an object that says who may do what, or that nothing is served, may be deleted. Fails with 403.
    pub(crate) async fn check_platform_deletion(&self, op: &Operation, old: &Value) -> Result<()> {
        let resource = op.ty.plural.as_str();
        if !op.plane.is_core() || op.ty.group != RESOURCES || !matches!(resource, ORGANIZATIONS | PROJECTS) {
            return Ok(());
        }
        let access = self.policies.access(&op.plane).await?;
        access.check_suspension(&op.user, resource, None, Some(old))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_membership_is_named_after_its_user() {
        let rows = [("ann", "ann"), ("x-1", "x-1")];
        for (user, name) in rows {
            assert_eq!(membership_name(user), name);
        }
        for user in ["ann@example.com", "Ann", "-a", "freehold:serviceaccount:a:b", ""] {
            let name = membership_name(user);
            assert!(name.starts_with("user-") && name.len() <= 63 && !name.contains("--"), "{name}");
        }
        assert_ne!(membership_name("a@b"), membership_name("ab"));
    }

    #[test]
    fn freeholds_finalizers_stay_and_others_go() {
        let of = |finalizers: Value| json!({"metadata": {"finalizers": finalizers}});
        let old = of(json!(["a.example/b", "resourcemanager.freehold.dev/project", "foregroundDeletion"]));
        for (new, expected) in [
            (json!([]), json!(["resourcemanager.freehold.dev/project"])),
            (json!(["c.example/d"]), json!(["c.example/d", "resourcemanager.freehold.dev/project"])),
            (
                json!(["resourcemanager.freehold.dev/project"]),
                json!(["resourcemanager.freehold.dev/project"]),
            ),
        ] {
            let mut new = of(new);
            keep_finalizers(&mut new, &old);
            assert_eq!(new["metadata"]["finalizers"], expected);
        }
    }

    #[test]
    fn an_owner_is_one_in_the_namespace_of_the_organization() {
        let of = |namespace: &str, roles: Value| {
            is_owner(
                &json!({"metadata": {"namespace": namespace}, "spec": {"organizationRef": {"name": "a"}, "roles": roles}}),
            )
        };
        assert!(of("organization-a", json!(["viewer", "owner"])));
        assert!(!of("organization-b", json!(["owner"])) && !of("organization-a", json!(["editor"])));
    }
}
