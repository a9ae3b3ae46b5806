//! Owners in the core plane, where the objects of all organizations are beside each other: a reference to another
//! organization's object is none, and what an organization has holds back nothing of the platform's.
//!
//! Admission refuses such references. What was stored before, or names the uid of one object and the place of another, ends here.

use super::graph::{Bond, Item, Owner};
use freehold_controllers_context::project::ProjectView;
use freehold_machinery::{
    PlaneId,
    tenancy::{Coordinates, OrganizationName, Tenant},
};
use freehold_runtime::{Key, Store};

/// Whose the objects of the core plane are; without projects in a dedicated pair, which has no core plane.
pub(super) struct Tenants(pub(super) Option<Store<ProjectView>>);

impl Tenants {
    fn organization(&self, project: &str) -> Option<OrganizationName> {
        let project = self.0.as_ref()?.get(&Key::new(PlaneId::core(), "", project))?;
        OrganizationName::named(&project.organization)
    }

    fn tenant(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Tenant> {
        let at = Coordinates { group, resource, namespace, name };
        Tenant::of(at, |project| self.organization(project))
    }

    fn of_item(&self, item: &Item) -> Option<Tenant> {
        self.tenant(&item.resource.group, &item.resource.plural, &item.namespace, &item.name)
    }

    /// Whether an object can have this owner, as far as its place tells.
    pub(super) fn allow(&self, item: &Item, owner: &Owner) -> bool {
        if !item.plane.is_core() {
            return true;
        }
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        // The kinds that are an organization's without being in its namespace.
        let resource = match &*owner.kind {
            "Project" => "projects",
            "Organization" => "organizations",
            "Namespace" => "namespaces",
            _ => "",
        };
        let namespace = if resource.is_empty() { &*item.namespace } else { "" };
        let tenants = self.of_item(item).zip(self.tenant(group, resource, namespace, &owner.name));
        tenants.is_none_or(|(own, owner)| own.sees(&owner))
    }

    /// How an object can depend on one that it names as its owner.
    pub(super) fn bond(&self, item: &Item, owner: &Item) -> Bond {
        if !item.plane.is_core() {
            return Bond::Holds;
        }
        match (self.of_item(item), self.of_item(owner)) {
            (Some(own), Some(owner)) if own.holds(&owner) => Bond::Holds,
            (Some(own), Some(owner)) if !own.sees(&owner) => Bond::None,
            _ => Bond::Follows,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_client::Resource;
    use std::sync::Arc;

    fn item(group: &'static str, plural: &'static str, namespace: &str, name: &str) -> Item {
        let resource = match namespace {
            "" => Resource::cluster(group, "v1", plural),
            _ => Resource::namespaced(group, "v1", plural),
        };
        Item::new(PlaneId::core(), Arc::new(resource), namespace.into(), name.into())
    }

    fn owner(api_version: &str, kind: &str, name: &str) -> Owner {
        let (api_version, kind, name) = (api_version.into(), kind.into(), name.into());
        Owner { api_version, kind, name, uid: "u".into(), blocks: true }
    }

    #[test]
    fn owners_of_another_organization_are_none() {
        let tenants = Tenants(None);
        let map = item("", "configmaps", "organization-evil", "anchor");
        let resources = "resourcemanager.freehold.dev";
        let rows = [
            ("Organization", "acme", "organizations", false, Bond::None),
            ("Organization", "evil", "organizations", true, Bond::Holds),
            ("ControlPlaneClass", "gold", "controlplaneclasses", true, Bond::Follows),
        ];
        for (kind, name, plural, allowed, bond) in rows {
            let reference = owner(&format!("{resources}/v1alpha1"), kind, name);
            assert_eq!(tenants.allow(&map, &reference), allowed, "{kind} {name}");
            assert_eq!(tenants.bond(&map, &item(resources, plural, "", name)), bond, "{kind} {name}");
        }
        let (theirs, own) = (
            item("", "configmaps", "organization-acme", "a"),
            item("", "configmaps", "organization-evil", "a"),
        );
        assert_eq!((tenants.bond(&map, &theirs), tenants.bond(&map, &own)), (Bond::None, Bond::Holds));
        assert!(!tenants.allow(&map, &owner("v1", "Namespace", "organization-acme")));
        assert!(tenants.allow(&map, &owner("v1", "ConfigMap", "a")), "one of its own namespace");
    }
}
