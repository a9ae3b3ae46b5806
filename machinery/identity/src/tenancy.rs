//! Ownership of objects of the core plane, and which objects may refer to them.
//!
//! The core plane holds the objects of all organizations. A reference is resolved on behalf of the organization whose object
//! it stands in; an object of another organization does not exist for it. [`OrganizationName`] is what such a lookup has to name.

use std::{fmt, sync::Arc};

/// The API group of organizations and projects.
const GROUP: &str = "resourcemanager.freehold.dev";
/// What the name of an organization's namespace begins with.
pub const NAMESPACE: &str = "organization-";

/// An organization that a reference is resolved for, by its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OrganizationName(Arc<str>);

impl OrganizationName {
    /// The organization of a name; `None` for the empty one.
    pub fn named(name: &str) -> Option<Self> {
        (!name.is_empty()).then(|| Self(name.into()))
    }

    /// The organization that a namespace of the core plane belongs to; `None` for the platform's namespaces.
    pub fn of_namespace(namespace: &str) -> Option<Self> {
        Self::named(namespace.strip_prefix(NAMESPACE)?)
    }

    /// Its namespace in the core plane.
    pub fn namespace(&self) -> String {
        format!("{NAMESPACE}{}", self.0)
    }

    /// The organization's name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for OrganizationName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Coordinates of an object of the core plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coordinates<'a> {
    /// API group, empty for core.
    pub group: &'a str,
    /// The plural resource.
    pub resource: &'a str,
    /// The namespace, empty for cluster-scoped objects.
    pub namespace: &'a str,
    /// The name.
    pub name: &'a str,
}

/// Whose an object of the core plane is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Tenant {
    /// The platform's.
    Platform,
    /// An organization's.
    Organization(OrganizationName),
}

impl Tenant {
    /// Whose the object at these coordinates is. `owner` gives the organization of a project by its name. `None` for a
    /// project that is not known.
    pub fn of(at: Coordinates<'_>, owner: impl FnOnce(&str) -> Option<OrganizationName>) -> Option<Self> {
        let organization = match (at.group, at.resource) {
            (GROUP, "projects") => return owner(at.name).map(Self::Organization),
            (GROUP, "organizations") => OrganizationName::named(at.name),
            ("", "namespaces") => OrganizationName::of_namespace(at.name),
            _ => OrganizationName::of_namespace(at.namespace),
        };
        Some(organization.map_or(Self::Platform, Self::Organization))
    }

    /// Whether an object of this tenant can refer to one of `other`: not to another organization's.
    pub fn sees(&self, other: &Self) -> bool {
        !matches!((self, other), (Self::Organization(own), Self::Organization(other)) if own != other)
    }

    /// Whether an object of this tenant can hold back the deletion of one of `other`: organizations hold back nothing that is
    /// not their own.
    pub fn holds(&self, other: &Self) -> bool {
        *self == Self::Platform || self == other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(group: &str, resource: &str, namespace: &str, name: &str) -> Option<Tenant> {
        Tenant::of(Coordinates { group, resource, namespace, name }, |project| match project {
            "web" => OrganizationName::named("acme"),
            _ => None,
        })
    }

    #[test]
    fn an_object_of_core_is_its_organizations_or_the_platforms() {
        let acme = || OrganizationName::named("acme").map(Tenant::Organization);
        let rows = [
            (tenant(GROUP, "projects", "", "web"), acme()),
            (tenant(GROUP, "projects", "", "gone"), None),
            (tenant(GROUP, "organizations", "", "acme"), acme()),
            (tenant("", "namespaces", "", "organization-acme"), acme()),
            (tenant("", "configmaps", "organization-acme", "a"), acme()),
            (tenant("", "namespaces", "", "default"), Some(Tenant::Platform)),
            (tenant("", "configmaps", "organization-", "a"), Some(Tenant::Platform)),
            (tenant("iam.freehold.dev", "users", "", "organization-acme"), Some(Tenant::Platform)),
        ];
        for (row, (found, expected)) in rows.into_iter().enumerate() {
            assert_eq!(found, expected, "row {row}");
        }
    }

    #[test]
    fn organizations_refer_to_their_own_and_the_platforms_and_hold_back_their_own() {
        let of = |name| OrganizationName::named(name).map_or(Tenant::Platform, Tenant::Organization);
        let rows = [
            (of("acme"), of("acme"), true, true),
            (of("evil"), of("acme"), false, false),
            (of("evil"), of(""), true, false),
            (of(""), of("acme"), true, true),
            (of(""), of(""), true, true),
        ];
        for (from, to, sees, holds) in rows {
            assert_eq!((from.sees(&to), from.holds(&to)), (sees, holds), "{from:?} {to:?}");
        }
    }
}
