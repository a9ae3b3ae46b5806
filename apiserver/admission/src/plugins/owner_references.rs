//! Owner references delete things and keep their owners from being deleted: who sets them must be allowed to
//! (<https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#ownerreferencespermissionenforcement>).

use crate::{Attributes, Lookup, Permission, Plugin, Verb, json::items};
use freehold_machinery::{Result, Value};

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
