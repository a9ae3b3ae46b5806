//! The organization's view of the core plane: its own objects and nobody else's, for every verb.

use crate::backend::is_read;
use freehold_apiserver_authz::{
    Attributes,
    iam::{Iam, RESOURCES_GROUP},
};
use freehold_apiserver_planes::OrganizationScope;
use freehold_apiserver_registry::{
    DeleteOptions, List, ListOptions, Object, Operation, Patch, Registry, WatchEvent, WatchOptions,
};
use freehold_machinery::{GroupResource, PlaneId, Result, Status, Value, meta};
use futures_util::{Stream, StreamExt, future::ready, stream::BoxStream};
use parking_lot::RwLock;
use serde_json::json;
use std::sync::Arc;

/// The API group of organizations, projects and memberships.
pub(crate) const GROUP: &str = RESOURCES_GROUP;
/// That of people, roles and bindings.
pub(crate) const IAM: &str = freehold_apiserver_authz::iam::GROUP;
/// That of what an organization is allowed.
const QUOTA: &str = freehold_apiserver_authz::iam::QUOTA_GROUP;

/// Whether an operation is about objects of the core plane: those that say who owns what, and whatever is in the
/// organization's own namespace. Everything else is asked over all of its projects.
pub(crate) fn is_core(op: &Operation, scope: &OrganizationScope) -> bool {
    matches!(op.ty.group.as_str(), GROUP | IAM | QUOTA) || op.namespace.as_deref() == Some(&*scope.namespace)
}

/// Whether an object of the core plane belongs to the organization.
fn belongs(op: &Operation, scope: &OrganizationScope, object: &Value) -> bool {
    match op.ty.plural.as_str() {
        "projects" => object["spec"]["ownerRef"]["name"].as_str() == Some(&*scope.name),
        "organizations" => meta::name(object) == &*scope.name,
        _ => meta::namespace(object) == &*scope.namespace,
    }
}

/// A namespaced request is confined to the organization's namespace.
fn confine(mut op: Operation, scope: &OrganizationScope) -> Result<Operation> {
    op.plane = PlaneId::core();
    if !op.ty.namespaced {
        return Ok(op);
    }
    match op.namespace.as_deref() {
        Some(namespace) if namespace != &*scope.namespace => {
            Err(Status::not_found(&GroupResource::new("", "namespaces"), namespace))
        }
        _ => {
            op.namespace = Some(scope.namespace.to_string());
            Ok(op)
        }
    }
}

fn not_found(op: &Operation) -> Status {
    Status::not_found(&op.ty.group_resource(), op.name.as_deref().unwrap_or_default())
}

/// Whether an object is the organization's; `None` where it is absent.
async fn is_own(registry: &Registry, op: &Operation, scope: &OrganizationScope) -> Result<Option<bool>> {
    let mut whole = confine(op.clone(), scope)?;
    whole.subresource = None;
    match registry.get(&whole, "").await {
        Ok(object) => Ok(Some(belongs(op, scope, &object.value()))),
        Err(status) if status.is_not_found() => Ok(None),
        Err(status) => Err(status),
    }
}

/// 404 for an object that is not there, or belongs to others.
pub(crate) async fn check_object(
    registry: &Registry,
    op: &Operation,
    scope: &OrganizationScope,
) -> Result<()> {
    let own = is_own(registry, op, scope).await?;
    own.filter(|own| *own).map(drop).ok_or_else(|| not_found(op))
}

/// 404 for a patch of an object that belongs to others, or is absent unless an apply creates it; 403 for an apply that would
/// create an object of others.
pub(crate) async fn check_patch(
    registry: &Registry,
    op: &Operation,
    scope: &OrganizationScope,
    patch: &Patch,
) -> Result<()> {
    match (is_own(registry, op, scope).await?, patch) {
        (Some(true), _) => Ok(()),
        (None, Patch::Apply(body)) if op.subresource.is_none() => check_write(op, scope, &body.value),
        _ => Err(not_found(op)),
    }
}

/// 403 for an object that would belong to others.
pub(crate) fn check_write(op: &Operation, scope: &OrganizationScope, object: &Value) -> Result<()> {
    confine(op.clone(), scope)?;
    let mut placed = object.clone();
    if op.ty.namespaced && meta::namespace(object).is_empty() {
        meta::set(&mut placed, "namespace", &*scope.namespace);
    }
    if belongs(op, scope, &placed) {
        return Ok(());
    }
    let why = format!("it must belong to organization {:?}", scope.name);
    Err(Status::forbidden(&op.ty.group_resource(), meta::name(object), &why))
}

fn keep(list: &mut List, wanted: impl Fn(&Value) -> bool) {
    list.items.retain(|object| wanted(&object.value()));
    list.remaining = None;
}

/// Lists the organization's own.
pub(crate) async fn list(
    registry: &Registry,
    op: Operation,
    scope: &OrganizationScope,
    options: &ListOptions,
) -> Result<List> {
    let op = confine(op, scope)?;
    let mut list = registry.list(&op, options).await?;
    keep(&mut list, |object| belongs(&op, scope, object));
    Ok(list)
}

/// Deletes the organization's own, one by one.
pub(crate) async fn delete_collection(
    registry: &Registry,
    op: Operation,
    scope: &OrganizationScope,
    options: &ListOptions,
    delete: &DeleteOptions,
) -> Result<List> {
    let found = list(registry, op.clone(), scope, options).await?;
    for object in &found.items {
        let value = object.value();
        let mut one = confine(op.clone(), scope)?;
        one.name = Some(meta::name(&value).to_owned());
        let options = DeleteOptions { uid: Some(meta::uid(&value).to_owned()), ..delete.clone() };
        match registry.delete(&one, &options).await {
            Ok(_) => {}
            Err(status) if status.is_not_found() || status.is_conflict() => {}
            Err(status) => return Err(status),
        }
    }
    Ok(found)
}

/// Watches the organization's own.
pub(crate) async fn watch(
    registry: &Registry,
    op: Operation,
    scope: &OrganizationScope,
    options: &WatchOptions,
) -> Result<BoxStream<'static, WatchEvent>> {
    let op = confine(op, scope)?;
    let scope = scope.clone();
    let events = registry.watch(&op, options).await?;
    Ok(only(events, move |object| belongs(&op, &scope, object)))
}

/// What a user may do in their own view: read, answer invitations, leave organizations.
pub(crate) fn is_users_own(asked: &Attributes<'_>) -> bool {
    let write = match (asked.group, asked.resource, asked.subresource) {
        (IAM, "userinvitations", "") => asked.verb == "patch",
        (GROUP, "organizationmemberships", "") => asked.verb == "delete",
        _ => false,
    };
    write || is_read(asked.verb)
}

/// The same of an operation.
pub(crate) fn is_users_to(op: &Operation, verb: &str) -> bool {
    op.subresource.is_none()
        && matches!(
            (op.ty.group.as_str(), op.ty.plural.as_str(), verb),
            (IAM, "userinvitations", "patch") | (GROUP, "organizationmemberships", "delete")
        )
}

/// 403 for a patch that is more than the answer to an invitation.
pub(crate) fn check_answer(op: &Operation, patch: &Patch) -> Result<()> {
    let answers = match patch {
        Patch::Merge(body) => body.value == json!({"spec": {"state": body.value["spec"]["state"]}}),
        _ => false,
    };
    if answers {
        return Ok(());
    }
    let why = "an answer is a merge patch of spec.state and of nothing else";
    Err(Status::forbidden(&op.ty.group_resource(), op.name.as_deref().unwrap_or_default(), why))
}

/// A user's view of the core plane: what they are a member of, and what they are invited to.
#[derive(Clone)]
pub(crate) struct UserView {
    pub(crate) name: Arc<str>,
    pub(crate) iam: Arc<RwLock<Iam>>,
}

impl UserView {
    fn is_mine(&self, op: &Operation, object: &Value) -> bool {
        let spec = &object["spec"];
        let me = spec["userRef"]["name"] == *self.name;
        match (op.ty.group.as_str(), op.ty.plural.as_str()) {
            (GROUP, "organizationmemberships") | (IAM, "groupmemberships") => me,
            (GROUP, "organizations") => self.iam.read().is_member(meta::name(object), &self.name),
            (GROUP, "projects") => {
                let owner = spec["ownerRef"]["name"].as_str().unwrap_or_default();
                self.iam.read().is_member(owner, &self.name)
            }
            (IAM, "userinvitations") => {
                let email = spec["email"].as_str().filter(|email| !email.is_empty());
                me || email.is_some_and(|email| self.iam.read().email(&self.name) == Some(email))
            }
            (IAM, "users") => {
                let username = spec["username"].as_str().filter(|name| !name.is_empty());
                username.unwrap_or(meta::name(object)) == &*self.name
            }
            _ => false,
        }
    }

    fn core(mut op: Operation) -> Result<Operation> {
        let served = matches!(op.ty.group.as_str(), GROUP | IAM);
        op.plane = PlaneId::core();
        if served { Ok(op) } else { Err(Status::no_such_resource()) }
    }

    /// 404 for an object that is not there, or another's.
    pub(crate) async fn check_object(&self, registry: &Registry, op: &Operation) -> Result<()> {
        let mut whole = Self::core(op.clone())?;
        whole.subresource = None;
        let object = registry.get(&whole, "").await?.value();
        if self.is_mine(op, &object) {
            return Ok(());
        }
        Err(Status::not_found(&op.ty.group_resource(), op.name.as_deref().unwrap_or_default()))
    }

    /// Lists the user's own.
    pub(crate) async fn list(
        &self,
        registry: &Registry,
        op: Operation,
        options: &ListOptions,
    ) -> Result<List> {
        let op = Self::core(op)?;
        let mut list = registry.list(&op, options).await?;
        keep(&mut list, |object| self.is_mine(&op, object));
        Ok(list)
    }

    /// Watches the user's own.
    pub(crate) async fn watch(
        &self,
        registry: &Registry,
        op: Operation,
        options: &WatchOptions,
    ) -> Result<BoxStream<'static, WatchEvent>> {
        let op = Self::core(op)?;
        let events = registry.watch(&op, options).await?;
        let view = self.clone();
        Ok(only(events, move |object| view.is_mine(&op, object)))
    }
}

/// The events of objects that are wanted.
fn only(
    events: impl Stream<Item = WatchEvent> + Send + 'static,
    wanted: impl Fn(&Value) -> bool + Send + 'static,
) -> BoxStream<'static, WatchEvent> {
    let seen = move |event: &WatchEvent| {
        let object: Option<&Object> = match event {
            WatchEvent::Changed(changed) => Some(&changed.object),
            WatchEvent::Bookmark(..) | WatchEvent::Error(_) => None,
        };
        ready(object.is_none_or(|object| wanted(&object.value())))
    };
    events.filter(seen).boxed()
}
