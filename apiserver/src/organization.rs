//! The organization's view of the core plane: its own objects and nobody else's, for every verb.

use crate::backend::{allow, is_read};
use freehold_apiserver_authz::{Attributes, Decision};
use freehold_apiserver_planes::OrganizationScope;
use freehold_apiserver_registry::{
    DeleteOptions, List, ListOptions, Object, Operation, Registry, WatchEvent, WatchOptions,
};
use freehold_machinery::{GroupResource, PlaneId, Result, Status, Value, meta};
use futures_util::{StreamExt, future::ready, stream::BoxStream};
use std::sync::Arc;

const GROUP: &str = "resourcemanager.freehold.dev";
/// What an organization is allowed: it reads that and does not write it.
const QUOTA: &str = "quota.freehold.dev";

/// Whether an operation is about objects of the core plane: those that say who owns what, and whatever is in the
/// organization's own namespace. Everything else is asked over all of its projects.
pub(crate) fn is_core(op: &Operation, scope: &OrganizationScope) -> bool {
    op.ty.group == GROUP || op.ty.group == QUOTA || op.namespace.as_deref() == Some(&*scope.namespace)
}

/// What owners alone may change: who is somebody in the organization.
const OWNERS_ALONE: [&str; 2] = ["organizationmemberships", "identityproviders"];

/// What a member may do. Owners do everything, editors all but memberships, viewers read; what was done in the organization is
/// for owners to read. Nobody is somebody else by a role: that could be who the platform trusts.
pub(crate) fn decide(roles: &[String], asked: &Attributes<'_>) -> Decision {
    let may = |role: &str| match role {
        _ if asked.verb.starts_with("impersonate") => false,
        "owner" | "editor" if asked.group == QUOTA => is_read(asked.verb),
        "owner" => true,
        _ if asked.group == "audit.k8s.io" => false,
        "editor" => is_read(asked.verb) || !OWNERS_ALONE.contains(&asked.resource),
        "viewer" => is_read(asked.verb) && asked.resource != "secrets",
        _ => false,
    };
    match roles.iter().find(|role| may(role)) {
        Some(role) => allow(format!("the user is {role} of the organization")),
        None if !asked.is_resource() && !roles.is_empty() && asked.verb == "get" => {
            allow("the user is a member of the organization")
        }
        None => Decision::default(),
    }
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

/// 404 for an object that is not there, or belongs to others.
pub(crate) async fn check_object(
    registry: &Registry,
    op: &Operation,
    scope: &OrganizationScope,
) -> Result<()> {
    let mut whole = confine(op.clone(), scope)?;
    whole.subresource = None;
    let object = registry.get(&whole, "").await?.value();
    if belongs(op, scope, &object) {
        return Ok(());
    }
    Err(Status::not_found(&op.ty.group_resource(), op.name.as_deref().unwrap_or_default()))
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
    let seen = move |event: &WatchEvent| {
        let object: Option<&Object> = match event {
            WatchEvent::Changed(changed) => Some(&changed.object),
            WatchEvent::Bookmark(..) | WatchEvent::Error(_) => None,
        };
        ready(object.is_none_or(|object| belongs(&op, &scope, &object.value())))
    };
    Ok(events.filter(seen).boxed())
}

/// Lists what a user is a member of: memberships, their organizations, and the projects of those.
pub(crate) async fn list_of_user(
    registry: &Registry,
    mut op: Operation,
    user: &str,
    options: &ListOptions,
) -> Result<List> {
    op.plane = PlaneId::core();
    let mut of_memberships = op.clone();
    let memberships =
        op.types.by_resource(GROUP, "organizationmemberships").ok_or_else(Status::no_such_resource)?;
    of_memberships.ty = Arc::clone(memberships);
    (of_memberships.namespace, of_memberships.name) = (None, None);
    let all = registry.list(&of_memberships, &ListOptions::default()).await?;
    let mine = |object: &Value| object["spec"]["userRef"]["name"].as_str() == Some(user);
    let organizations: Vec<Value> = all
        .items
        .iter()
        .map(Object::value)
        .filter(|object| mine(object))
        .map(|object| object["spec"]["organizationRef"]["name"].clone())
        .collect();
    let mut list = registry.list(&op, options).await?;
    match op.ty.plural.as_str() {
        _ if op.ty.group != GROUP => return Err(Status::no_such_resource()),
        "organizationmemberships" => keep(&mut list, mine),
        "organizations" => {
            keep(&mut list, |object| organizations.iter().any(|name| *name == meta::name(object)))
        }
        "projects" => keep(&mut list, |object| organizations.contains(&object["spec"]["ownerRef"]["name"])),
        _ => return Err(Status::no_such_resource()),
    }
    Ok(list)
}
