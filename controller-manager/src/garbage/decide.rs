//! What becomes of an object with owners or with a finalizer of this controller
//! (<https://kubernetes.io/docs/concepts/architecture/garbage-collection/>).

use super::graph::{FOREGROUND, ORPHAN, Owner, OwnerState, is_finalizing};
use freehold_client::Propagation;
use freehold_machinery::{Value, meta};

/// What is known of an object.
pub(super) struct Observed<'a> {
    /// As the server has it now.
    pub(super) object: &'a Value,
    pub(super) owners: Vec<(Owner, OwnerState)>,
    /// How many objects depend on it.
    pub(super) dependents: usize,
    /// How many of them hold it back.
    pub(super) blocking: usize,
    /// Whether one of them waits for its own dependents: then it may wait for this object, in a circle.
    pub(super) circle: bool,
}

/// What is to be done about an object.
#[derive(Debug, PartialEq)]
pub(super) enum Action {
    Nothing,
    /// Its references to these uids go.
    Detach(Vec<String>),
    Delete(Propagation),
    /// It stops to hold its owners back, then it is deleted with its dependents.
    Unblock,
    /// Its dependents are looked at, each of which will find that it waits.
    DeleteDependents,
    /// Its dependents lose their references to it, then it loses its finalizer.
    OrphanDependents,
    /// Nothing holds it back any more.
    RemoveFinalizer,
}

pub(super) fn decide(observed: &Observed<'_>) -> Action {
    let finalizers = meta::finalizers(observed.object);
    if is_finalizing(observed.object) {
        return match () {
            () if finalizers.contains(&ORPHAN) => Action::OrphanDependents,
            () if observed.blocking == 0 => Action::RemoveFinalizer,
            () => Action::DeleteDependents,
        };
    }
    if meta::is_deleting(observed.object) || observed.owners.is_empty() {
        return Action::Nothing;
    }
    let in_state =
        |state: OwnerState| observed.owners.iter().filter(move |(_, s)| *s == state).map(|(o, _)| &o.uid);
    let solid = in_state(OwnerState::Present).count();
    let waiting = in_state(OwnerState::Waiting).count();
    let lost: Vec<String> =
        in_state(OwnerState::Absent).chain(in_state(OwnerState::Waiting)).cloned().collect();
    let blocks = observed.owners.iter().any(|(owner, _)| owner.blocks);
    match (solid, lost.is_empty()) {
        (_, true) => Action::Nothing,
        (1.., false) => Action::Detach(lost),
        (0, false) if waiting > 0 && observed.circle && blocks => Action::Unblock,
        (0, false) if waiting > 0 && observed.dependents > 0 => Action::Delete(Propagation::Foreground),
        (0, false) if finalizers.contains(&ORPHAN) => Action::Delete(Propagation::Orphan),
        (0, false) if finalizers.contains(&FOREGROUND) => Action::Delete(Propagation::Foreground),
        (0, false) => Action::Delete(Propagation::Background),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use OwnerState::{Absent, Present, Waiting};
    use serde_json::json;

    fn decided(metadata: Value, states: &[OwnerState], dependents: usize, blocking: usize) -> Action {
        let owner = |i: usize| Owner {
            api_version: "v1".into(),
            kind: "K".into(),
            name: format!("o{i}"),
            uid: format!("o{i}"),
            blocks: true,
        };
        let owners = states.iter().enumerate().map(|(i, state)| (owner(i), *state)).collect();
        let object = json!({ "metadata": metadata });
        decide(&Observed { object: &object, owners, dependents, blocking, circle: false })
    }

    #[test]
    fn a_circle_of_owners_that_wait_for_each_other_is_broken_up() {
        let object = json!({"metadata": {}});
        let decided = |blocks: bool| {
            let owner = Owner {
                api_version: "v1".into(),
                kind: "K".into(),
                name: "o".into(),
                uid: "o".into(),
                blocks,
            };
            let owners = vec![(owner, Waiting)];
            decide(&Observed { object: &object, owners, dependents: 1, blocking: 1, circle: true })
        };
        assert_eq!(decided(true), Action::Unblock);
        assert_eq!(decided(false), Action::Delete(Propagation::Foreground));
    }

    #[test]
    fn an_object_goes_with_its_last_owner() {
        let detach = |uids: &[&str]| Action::Detach(uids.iter().map(|u| (*u).to_owned()).collect());
        let rows: [(&[OwnerState], Value, usize, Action); 9] = [
            (&[Present], json!({}), 0, Action::Nothing),
            (&[Absent], json!({}), 0, Action::Delete(Propagation::Background)),
            (&[Absent, Absent], json!({}), 3, Action::Delete(Propagation::Background)),
            (&[Present, Absent], json!({}), 0, detach(&["o1"])),
            (&[Waiting, Present, Absent], json!({}), 0, detach(&["o2", "o0"])),
            (&[Waiting], json!({}), 0, Action::Delete(Propagation::Background)),
            (&[Waiting], json!({}), 2, Action::Delete(Propagation::Foreground)),
            (&[Absent], json!({"finalizers": ["orphan"]}), 0, Action::Delete(Propagation::Orphan)),
            (&[Absent], json!({"deletionTimestamp": "x"}), 0, Action::Nothing),
        ];
        for (states, metadata, dependents, action) in rows {
            assert_eq!(decided(metadata.clone(), states, dependents, 0), action, "{states:?} {metadata}");
        }
    }

    #[test]
    fn foreground_deletion_waits_for_what_blocks_it() {
        let waiting = json!({"deletionTimestamp": "x", "finalizers": [FOREGROUND]});
        assert_eq!(decided(waiting.clone(), &[], 3, 2), Action::DeleteDependents);
        assert_eq!(decided(waiting, &[], 3, 0), Action::RemoveFinalizer);
        let orphaning = json!({"deletionTimestamp": "x", "finalizers": [ORPHAN]});
        assert_eq!(decided(orphaning, &[], 3, 2), Action::OrphanDependents);
    }
}
