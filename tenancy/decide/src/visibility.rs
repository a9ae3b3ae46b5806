//! What a member sees of a plane: tenants, and through them namespaces and classes.

use crate::admission::{User, subjects_of};
use crate::rules::{ClassRule, allowed_classes};
use crate::tenant::chain;
use freehold_tenancy_api::TENANT_LABEL;
use freehold_tenancy_api::tenant::{Subject, Tenant};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What memberships are looked up in. Lookups never make a request.
pub trait Directory {
    /// A tenant by name.
    fn tenant(&self, name: &str) -> Option<Arc<Tenant>>;
    /// The tenants that a subject is a member of, whatever its role.
    fn tenants_of(&self, subject: &Subject) -> Vec<Arc<Tenant>>;
    /// A tenant and all below it.
    fn family(&self, name: &str) -> BTreeSet<String>;
}

/// The tenants that a user is a member of; an owner is one of all tenants below, too.
pub fn tenants(user: &User, directory: &impl Directory) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    for subject in subjects_of(user) {
        for tenant in directory.tenants_of(&subject) {
            let owns = tenant.spec.members.iter().any(|m| m.role == "owner" && m.subjects.contains(&subject));
            let name = tenant.metadata.name.clone();
            match owns {
                true => seen.extend(directory.family(&name)),
                false => drop(seen.insert(name)),
            }
        }
    }
    seen
}

/// The label selector of the namespaces of tenants; `None` without tenants.
pub fn selector(tenants: &BTreeSet<String>) -> Option<String> {
    let names: Vec<&str> = tenants.iter().map(String::as_str).collect();
    (!names.is_empty()).then(|| format!("{TENANT_LABEL} in ({})", names.join(",")))
}

/// Names of classes that a member sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Names {
    /// All: a tenant of the member is not limited.
    All,
    /// These.
    Only(BTreeSet<String>),
}

impl Names {
    /// Whether a name is among them.
    pub fn contains(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(name),
        }
    }
}

/// The classes that any of the tenants may use.
pub fn classes(tenants: &BTreeSet<String>, rule: &ClassRule, directory: &impl Directory) -> Names {
    let mut names = BTreeSet::new();
    for tenant in tenants.iter().filter_map(|name| directory.tenant(name)) {
        match allowed_classes(&chain(tenant, |name| directory.tenant(name)), rule) {
            None => return Names::All,
            Some(allowed) => names.extend(allowed),
        }
    }
    Names::Only(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::CLASSES;
    use freehold_tenancy_api::tenant::{AllowedClasses, Member, SubjectKind, TenantSpec};

    struct Tenants(Vec<Arc<Tenant>>);

    impl Directory for Tenants {
        fn tenant(&self, name: &str) -> Option<Arc<Tenant>> {
            self.0.iter().find(|tenant| tenant.metadata.name == name).cloned()
        }

        fn tenants_of(&self, subject: &Subject) -> Vec<Arc<Tenant>> {
            let has = |tenant: &&Arc<Tenant>| {
                tenant.spec.members.iter().any(|member| member.subjects.contains(subject))
            };
            self.0.iter().filter(has).cloned().collect()
        }

        fn family(&self, name: &str) -> BTreeSet<String> {
            let below = self.0.iter().filter(|tenant| tenant.spec.parent == name);
            below.map(|t| t.metadata.name.clone()).chain([name.to_owned()]).collect()
        }
    }

    fn tenant(name: &str, parent: &str, role: &str, group: &str, storage: Option<&[&str]>) -> Arc<Tenant> {
        let subject = Subject { kind: SubjectKind::Group, name: group.to_owned(), namespace: String::new() };
        let mut spec = TenantSpec {
            parent: parent.to_owned(),
            members: vec![Member { role: role.to_owned(), subjects: vec![subject] }],
            ..TenantSpec::default()
        };
        spec.classes.storage = storage.map(|names| AllowedClasses {
            allowed: names.iter().map(|name| (*name).to_owned()).collect(),
            ..AllowedClasses::default()
        });
        Arc::new(Tenant::new(name, spec))
    }

    fn user(groups: &[&str]) -> User {
        User { name: "ann".into(), groups: groups.iter().map(|group| (*group).to_owned()).collect() }
    }

    #[test]
    fn an_owner_sees_tenants_below_and_a_viewer_does_not() {
        let directory = Tenants(vec![
            tenant("acme", "", "owner", "bosses", None),
            tenant("acme-web", "acme", "viewer", "web", None),
            tenant("globex", "", "viewer", "readers", None),
            tenant("globex-web", "globex", "owner", "web-owners", None),
        ]);
        let seen = |groups: &[&str]| Vec::from_iter(tenants(&user(groups), &directory));
        assert_eq!(seen(&["bosses"]), ["acme", "acme-web"]);
        assert_eq!(seen(&["web"]), ["acme-web"]);
        assert_eq!(seen(&["readers", "web"]), ["acme-web", "globex"]);
        assert!(seen(&["strangers"]).is_empty());
        assert_eq!(selector(&tenants(&user(&["strangers"]), &directory)), None);
        assert_eq!(
            selector(&tenants(&user(&["bosses"]), &directory)).as_deref(),
            Some("tenancy.freehold.dev/tenant in (acme,acme-web)")
        );
    }

    #[test]
    fn classes_are_those_of_any_own_tenant_within_what_is_allowed_above() {
        let directory = Tenants(vec![
            tenant("acme", "", "viewer", "a", Some(&["fast", "slow"])),
            tenant("below", "acme", "viewer", "b", Some(&["slow", "other"])),
            tenant("free", "", "viewer", "f", None),
        ]);
        let seen = |names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            classes(&names, &CLASSES[0], &directory)
        };
        let only = |names: &[&str]| Names::Only(names.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(seen(&["below"]), only(&["slow"]));
        assert_eq!(seen(&["acme", "below"]), only(&["fast", "slow"]));
        assert_eq!(seen(&["below", "free"]), Names::All);
        assert_eq!(seen(&[]), only(&[]));
    }
}
