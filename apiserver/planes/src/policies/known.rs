//! Policies that are kept, and what has changed in their planes since they were compiled.

use freehold_apiserver_authz::Policy;
use freehold_apiserver_catalog::TypeSet;
use freehold_machinery::{PlaneId, PlaneMap};
use std::{collections::BTreeSet, sync::Arc};

/// Planes whose policies are kept; over it the table starts anew.
const MAX_PLANES: usize = 2_048;
/// Changes that are kept of a plane that nobody asks for; with more, its policy is compiled from all again.
const MAX_CHANGES: usize = 4_096;

/// The place of ClusterRoles among the four resources.
const CLUSTER_ROLES: usize = 0;

/// The revisions of the four resources: ClusterRoles, ClusterRoleBindings, Roles and RoleBindings.
pub(super) type Revisions = [u64; 4];

/// A policy, and the types that exports brought when it was compiled: kept, so that their address stays theirs.
#[derive(Clone)]
pub(super) struct Compiled {
    pub(super) policy: Arc<Policy>,
    pub(super) types: Option<Arc<TypeSet>>,
}

/// A change of a role or binding.
struct Change {
    /// Which of the four resources it is of.
    resource: usize,
    revision: u64,
    /// Empty at the cluster scope.
    namespace: Box<str>,
}

struct Known {
    /// Tells this entry from one of the same plane that was dropped.
    number: u64,
    /// With the revisions of the four resources that it is of at least; `None` while it is compiled for the first time.
    compiled: Option<(Revisions, Compiled)>,
    /// In the order in which they happened.
    changes: Vec<Change>,
}

/// What is known of a plane whose policy is asked for.
pub(super) enum Found {
    /// It is current.
    Current(Compiled),
    /// It is current but for what these namespaces have (empty: the ClusterRoleBindings).
    Behind(Begun, Compiled, BTreeSet<Box<str>>),
    /// Something has changed that only reading everything shows.
    Unknown(Begun),
}

/// A compilation that was begun.
#[derive(Clone, Copy)]
pub(super) struct Begun {
    number: u64,
    /// What it was begun from.
    from: Option<Revisions>,
}

#[derive(Default)]
pub(super) struct Table {
    planes: PlaneMap<Known>,
    count: u64,
}

impl Table {
    /// Notes a change, once readers can see it.
    pub(super) fn note(&mut self, plane: &PlaneId, resource: usize, revision: u64, namespace: Option<&str>) {
        let Some(known) = self.planes.get_mut(plane) else { return };
        if known.changes.len() >= MAX_CHANGES {
            self.planes.remove(plane);
            return;
        }
        known.changes.push(Change { resource, revision, namespace: namespace.unwrap_or_default().into() });
    }

    /// Begins to note the changes of a plane. What readers could see before is in what they read from now on.
    pub(super) fn attend(&mut self, plane: &PlaneId) {
        if self.planes.contains_key(plane) {
            return;
        }
        if self.planes.len() >= MAX_PLANES {
            self.planes.clear();
        }
        self.count += 1;
        self.planes.insert(plane.clone(), Known { number: self.count, compiled: None, changes: Vec::new() });
    }

    /// What is known of a plane whose resources are at these revisions; `fits` says of which policies it may be.
    /// `None` where the plane is not attended to.
    pub(super) fn find(
        &self,
        plane: &PlaneId,
        now: &Revisions,
        fits: impl Fn(&Compiled) -> bool,
    ) -> Option<Found> {
        let known = self.planes.get(plane)?;
        let begun = |from| Begun { number: known.number, from };
        let Some((from, compiled)) = known.compiled.as_ref().filter(|(_, compiled)| fits(compiled)) else {
            let from = known.compiled.as_ref().map(|(from, _)| *from);
            return Some(Found::Unknown(begun(from)));
        };
        if from == now {
            return Some(Found::Current(compiled.clone()));
        }
        let unknown = Some(Found::Unknown(begun(Some(*from))));
        let mut reached = *from;
        let mut places = BTreeSet::new();
        for change in
            known.changes.iter().filter(|c| now.get(c.resource).is_some_and(|now| c.revision <= *now))
        {
            if let Some(reached) = reached.get_mut(change.resource) {
                *reached = change.revision.max(*reached);
            }
            // Any binding may name a ClusterRole.
            if change.resource == CLUSTER_ROLES {
                return unknown;
            }
            places.insert(change.namespace.clone());
        }
        // Layers, or a plane that was read again, change what there is without a change of an object.
        if reached != *now {
            return unknown;
        }
        Some(Found::Behind(begun(Some(*from)), compiled.clone(), places))
    }

    /// Keeps what was compiled, unless somebody else was faster.
    pub(super) fn keep(&mut self, plane: &PlaneId, begun: Begun, now: Revisions, compiled: Compiled) {
        let Some(known) = self.planes.get_mut(plane).filter(|known| known.number == begun.number) else {
            return;
        };
        if known.compiled.as_ref().map(|(at, _)| *at) != begun.from {
            return;
        }
        known.changes.retain(|change| now.get(change.resource).is_some_and(|now| change.revision > *now));
        known.compiled = Some((now, compiled));
    }

    pub(super) fn forget(&mut self, plane: &PlaneId) {
        self.planes.remove(plane);
    }

    pub(super) fn clear(&mut self) {
        self.planes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiled() -> Compiled {
        Compiled { policy: Arc::new(Policy::default()), types: None }
    }

    fn plane() -> PlaneId {
        "p".parse().unwrap()
    }

    /// A table with a policy at revision 10 of each resource.
    fn table() -> Table {
        let mut table = Table::default();
        table.attend(&plane());
        let Some(Found::Unknown(begun)) = table.find(&plane(), &[10; 4], |_| true) else { panic!() };
        table.keep(&plane(), begun, [10; 4], compiled());
        table
    }

    fn behind(table: &Table, now: Revisions) -> Option<Vec<Box<str>>> {
        match table.find(&plane(), &now, |_| true) {
            Some(Found::Behind(_, _, places)) => Some(places.into_iter().collect()),
            _ => None,
        }
    }

    #[test]
    fn a_policy_is_current_until_something_changes_and_then_behind_in_that_place_alone() {
        let mut table = table();
        assert!(matches!(table.find(&plane(), &[10; 4], |_| true), Some(Found::Current(_))));
        table.note(&plane(), 3, 12, Some("shop"));
        table.note(&plane(), 3, 13, Some("shop"));
        table.note(&plane(), 1, 14, None);
        assert_eq!(behind(&table, [10, 10, 10, 13]).unwrap(), ["shop".into()]);
        assert_eq!(behind(&table, [10, 14, 10, 13]).unwrap(), ["".into(), "shop".into()]);
        assert!(matches!(table.find(&plane(), &[10; 4], |_| false), Some(Found::Unknown(_))));
    }

    #[test]
    fn what_changed_without_a_change_that_was_noted_is_read_again() {
        let mut table = table();
        assert!(behind(&table, [10, 10, 10, 11]).is_none(), "a layer");
        table.note(&plane(), 3, 12, Some("shop"));
        assert!(behind(&table, [10, 10, 10, 13]).is_none(), "a layer after it");
        assert_eq!(behind(&table, [10, 10, 10, 12]).unwrap(), ["shop".into()]);
        table.note(&plane(), 0, 14, None);
        assert!(behind(&table, [14, 10, 10, 12]).is_none(), "a ClusterRole");
    }

    #[test]
    fn a_change_during_a_compilation_is_seen_by_the_next() {
        let mut table = table();
        table.note(&plane(), 3, 12, Some("a"));
        let Some(Found::Behind(begun, ..)) = table.find(&plane(), &[10, 10, 10, 12], |_| true) else {
            panic!()
        };
        table.note(&plane(), 3, 15, Some("b"));
        table.keep(&plane(), begun, [10, 10, 10, 12], compiled());
        assert_eq!(behind(&table, [10, 10, 10, 15]).unwrap(), ["b".into()]);
        table.keep(&plane(), begun, [10, 10, 10, 99], compiled());
        assert_eq!(behind(&table, [10, 10, 10, 15]).unwrap(), ["b".into()], "what was begun before is late");
        table.forget(&plane());
        table.attend(&plane());
        table.keep(&plane(), begun, [10, 10, 10, 12], compiled());
        assert!(matches!(table.find(&plane(), &[10, 10, 10, 12], |_| true), Some(Found::Unknown(_))));
    }

    #[test]
    fn a_plane_that_changes_without_being_asked_for_keeps_a_bounded_number_of_changes() {
        let mut table = table();
        for revision in 0..=MAX_CHANGES as u64 {
            table.note(&plane(), 3, 11 + revision, Some("a"));
        }
        assert!(table.find(&plane(), &[10; 4], |_| true).is_none());
    }
}
