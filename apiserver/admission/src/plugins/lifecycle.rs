//! NamespaceLifecycle: no new objects in an absent or terminating namespace, and no deletion of the system's
//! namespaces.

use crate::{Attributes, Lookup, Plugin, Verb};
use freehold_machinery::{GroupResource, Result, Status, status::Cause};

/// Namespaces that can't be deleted.
pub const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// The plugin.
pub struct NamespaceLifecycle;

impl Plugin for NamespaceLifecycle {
    fn name(&self) -> &'static str {
        "NamespaceLifecycle"
    }

    fn admit(&self, attributes: &mut Attributes<'_>, lookup: &dyn Lookup) -> Result<()> {
        let namespaces = GroupResource::new("", "namespaces");
        if attributes.ty.group_resource() == namespaces {
            let immortal = attributes.verb == Verb::Delete && IMMORTAL.contains(&attributes.name);
            let refuse =
                || Status::forbidden(&namespaces, attributes.name, "this namespace may not be deleted");
            return if immortal { Err(refuse()) } else { Ok(()) };
        }
        // A review must not tell whether a namespace is there.
        let review = attributes.is("authorization.k8s.io", "localsubjectaccessreviews");
        if attributes.verb != Verb::Create || attributes.namespace.is_empty() || review {
            return Ok(());
        }
        match lookup.is_terminating(attributes.plane, attributes.namespace) {
            Some(false) => Ok(()),
            Some(true) => Err(terminating(attributes)),
            None => Err(Status::not_found(&namespaces, attributes.namespace)),
        }
    }
}

/// Nothing at all is done in a namespace that is not there.
pub struct NamespaceExists;

impl Plugin for NamespaceExists {
    fn name(&self) -> &'static str {
        "NamespaceExists"
    }

    fn validate(&self, attributes: &Attributes<'_>, lookup: &dyn Lookup) -> Result<()> {
        let (namespaces, namespace) = (GroupResource::new("", "namespaces"), attributes.namespace);
        let ignored = attributes.verb == Verb::Connect || attributes.ty.group_resource() == namespaces;
        if ignored || namespace.is_empty() {
            return Ok(());
        }
        let found = lookup.is_terminating(attributes.plane, namespace);
        found.map(drop).ok_or_else(|| Status::not_found(&namespaces, namespace))
    }
}

fn terminating(attributes: &Attributes<'_>) -> Status {
    let namespace = attributes.namespace;
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    attributes.forbidden(&why).with_details(|details| {
        details.causes.push(Cause {
            reason: "NamespaceTerminating".into(),
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".into(),
        });
    })
}
