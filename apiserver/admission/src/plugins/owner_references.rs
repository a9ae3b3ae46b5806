//! OwnerReferencesPermissionEnforcement: an owner reference can delete its object and block its owner's deletion, so
//! setting one requires the right to
//! (<https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#ownerreferencespermissionenforcement>).
//! In the core plane, which has the objects of all organizations, a reference leads to no other organization's object.

use crate::{Attributes, Lookup, Permission, Plugin, Verb, json::items};
use freehold_machinery::{
    Result, Value, meta,
    tenancy::{Coordinates, OrganizationName, Tenant},
};

/// The plugin.
pub struct OwnerReferencesPermissionEnforcement;

impl Plugin for OwnerReferencesPermissionEnforcement {
    fn name(&self) -> &'static str {
        "OwnerReferencesPermissionEnforcement"
    }

    fn validate(&self, attributes: &Attributes<'_>, lookup: &dyn Lookup) -> Result<()> {
        let Some(new) =
            attributes.object().filter(|_| matches!(attributes.verb, Verb::Create | Verb::Update))
        else {
            return Ok(());
        };
        let owners = |object: &Value| items(object, "/metadata/ownerReferences").cloned().collect::<Vec<_>>();
        let (new, old) = (owners(new), attributes.old.map(owners).unwrap_or_default());
        if new == old {
            return Ok(());
        }
        if attributes.verb == Verb::Update {
            check_deletion(attributes, lookup)?;
        }
        let blocks = |owner: &&Value| owner["blockOwnerDeletion"] == true;
        let blocked_before =
            |owner: &Value| old.iter().filter(blocks).any(|other| other["uid"] == owner["uid"]);
        new.iter()
            .filter(blocks)
            .filter(|owner| !blocked_before(owner))
            .try_for_each(|owner| check_blocking(attributes, lookup, owner))
    }
}

/// Keeps owner references of the core plane within an organization, and asks there what
/// [`OwnerReferencesPermissionEnforcement`] asks.
pub struct OrganizationOwnerReferences;

impl Plugin for OrganizationOwnerReferences {
    fn name(&self) -> &'static str {
        "OrganizationOwnerReferences"
    }

    fn validate(&self, attributes: &Attributes<'_>, lookup: &dyn Lookup) -> Result<()> {
        if !attributes.plane.is_core() || !matches!(attributes.verb, Verb::Create | Verb::Update) {
            return Ok(());
        }
        let Some(object) = attributes.object() else { return Ok(()) };
        let known = |owner: &Value| {
            let owners = attributes.old.map(|old| items(old, "/metadata/ownerReferences"));
            owners.into_iter().flatten().any(|other| is_same(other, owner))
        };
        let mut added = items(object, "/metadata/ownerReferences").filter(|owner| !known(owner)).peekable();
        if added.peek().is_some()
            && let Some(Tenant::Organization(own)) = tenant_of(attributes, object)
        {
            added.try_for_each(|owner| check_owner(attributes, lookup, &own, owner))?;
        }
        OwnerReferencesPermissionEnforcement.validate(attributes, lookup)
    }
}

fn is_same(one: &Value, other: &Value) -> bool {
    ["apiVersion", "kind", "name", "uid"].iter().all(|field| one[*field] == other[*field])
}

/// Whose the object that is written is.
fn tenant_of(attributes: &Attributes<'_>, object: &Value) -> Option<Tenant> {
    let at = Coordinates {
        group: &attributes.ty.group,
        resource: &attributes.ty.plural,
        namespace: attributes.namespace,
        name: meta::name(object),
    };
    Tenant::of(at, |_| OrganizationName::named(object["spec"]["ownerRef"]["name"].as_str()?))
}

/// An owner of another organization is answered for as one that is not there.
fn check_owner(
    attributes: &Attributes<'_>,
    lookup: &dyn Lookup,
    own: &OrganizationName,
    owner: &Value,
) -> Result<()> {
    let text = |field: &str| owner[field].as_str().unwrap_or_default();
    let (api_version, kind, name) = (text("apiVersion"), text("kind"), text("name"));
    let resource = lookup.resource_of(attributes.plane, api_version, kind);
    // A namespaced owner is one of the same namespace.
    let Some((resource, _)) = resource.filter(|(_, namespaced)| !namespaced) else { return Ok(()) };
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let at = Coordinates { group, resource: &resource, namespace: "", name };
    let tenant = Tenant::of(at, |project| lookup.organization_of(project));
    match tenant.is_some_and(|tenant| Tenant::Organization(own.clone()).sees(&tenant)) {
        true => Ok(()),
        false => Err(attributes.forbidden(&format!(
            "cannot set an ownerRef to {kind} {name:?}: there is none in organization {:?}",
            own.as_str()
        ))),
    }
}

/// Who gives an object to the garbage collector could as well delete it.
fn check_deletion(attributes: &Attributes<'_>, lookup: &dyn Lookup) -> Result<()> {
    let delete = Permission {
        verb: "delete",
        group: &attributes.ty.group,
        version: &attributes.ty.version,
        resource: &attributes.ty.plural,
        subresource: attributes.subresource,
        namespace: attributes.namespace,
        name: attributes.name,
    };
    if lookup.allows(attributes.plane, attributes.user, &delete) {
        return Ok(());
    }
    Err(attributes.forbidden("cannot set an ownerRef on a resource you can't delete: , <nil>"))
}

/// Who keeps an owner from being deleted could as well set a finalizer on it.
fn check_blocking(attributes: &Attributes<'_>, lookup: &dyn Lookup, owner: &Value) -> Result<()> {
    let text = |field: &str| owner[field].as_str().unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let Some((resource, namespaced)) = lookup.resource_of(attributes.plane, api_version, kind) else {
        return Err(attributes.forbidden(&format!(
            "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {api_version} \
             Kind {kind}: no matches for kind {kind:?} in version {api_version:?}"
        )));
    };
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let finalizers = Permission {
        verb: "update",
        group,
        version,
        resource: &resource,
        subresource: "finalizers",
        namespace: if namespaced { attributes.namespace } else { "" },
        name: text("name"),
    };
    if lookup.allows(attributes.plane, attributes.user, &finalizers) {
        return Ok(());
    }
    Err(attributes.forbidden(
        "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>",
    ))
}
