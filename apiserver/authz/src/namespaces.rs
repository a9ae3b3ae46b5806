//! What each namespace of a plane has of roles and bindings, in a table of which a change copies a small part.

use crate::{Rules, policy::Scope};
use freehold_machinery::User;
use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, OnceLock},
};

/// Parts of the table. A plane of 10,000 namespaces has some 160 in each.
const PARTS: usize = 64;

/// One namespace's Roles and RoleBindings.
#[derive(Debug, Default)]
pub(crate) struct Namespace {
    pub(crate) roles: HashMap<Box<str>, Arc<Rules>>,
    pub(crate) scope: Scope,
    /// Whether there are RoleBindings, if only to nobody.
    pub(crate) is_bound: bool,
}

/// Namespaces in which a subject has RoleBindings, with the rules of their roles.
type Places = HashMap<Box<str>, Vec<(Arc<str>, Arc<Rules>)>>;

#[derive(Debug, Default)]
struct Part {
    namespaces: HashMap<Arc<str>, Arc<Namespace>>,
    /// By users and by groups; made when they are first asked for.
    places: OnceLock<[Places; 2]>,
}

impl Part {
    fn places(&self) -> &[Places; 2] {
        self.places.get_or_init(|| {
            let [mut users, mut groups] = [Places::new(), Places::new()];
            for (name, namespace) in &self.namespaces {
                let scope = &namespace.scope;
                for (table, subjects) in [(&mut users, &scope.users), (&mut groups, &scope.groups)] {
                    for (subject, grants) in subjects {
                        let rules = grants.iter().filter_map(|grant| grant.rules.clone());
                        let found = table.entry(subject.clone()).or_default();
                        found.extend(rules.map(|rules| (name.clone(), rules)));
                    }
                }
            }
            [users, groups]
        })
    }
}

/// The namespaces of a plane that have roles or bindings. A copy shares what does not change.
#[derive(Clone, Debug, Default)]
pub(crate) struct Namespaces {
    /// Empty where there are none.
    parts: Vec<Arc<Part>>,
}

fn part_of(name: &str) -> usize {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    (hasher.finish() % PARTS as u64) as usize
}

impl Namespaces {
    pub(crate) fn get(&self, name: &str) -> Option<&Namespace> {
        self.parts.get(part_of(name))?.namespaces.get(name).map(|namespace| &**namespace)
    }

    /// Replaces what a namespace has; `None`: it has nothing.
    pub(crate) fn set(&mut self, name: &str, namespace: Option<Namespace>) {
        if self.parts.is_empty() {
            self.parts = vec![Arc::default(); PARTS];
        }
        let Some(part) = self.parts.get_mut(part_of(name)) else { return };
        if Arc::get_mut(part).is_none() {
            *part = Arc::new(Part { namespaces: part.namespaces.clone(), places: OnceLock::new() });
        }
        let Some(part) = Arc::get_mut(part) else { return };
        part.places = OnceLock::new();
        match namespace {
            Some(namespace) => part.namespaces.insert(name.into(), Arc::new(namespace)),
            None => part.namespaces.remove(name),
        };
    }

    /// Where a user and the user's groups have RoleBindings, with the rules of their roles.
    pub(crate) fn places_of<'p>(
        &'p self,
        user: &'p User,
    ) -> impl Iterator<Item = &'p (Arc<str>, Arc<Rules>)> {
        self.parts.iter().filter(|part| !part.namespaces.is_empty()).flat_map(|part| {
            let [users, groups] = part.places();
            let of_groups = user.groups.iter().filter_map(|group| groups.get(group.as_str()));
            users.get(user.name.as_str()).into_iter().chain(of_groups).flatten()
        })
    }
}
