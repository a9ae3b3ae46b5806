//! What users were shown lately.

use freehold_machinery::PlaneId;
use parking_lot::Mutex;
use std::{
    collections::{HashMap, VecDeque},
    hash::RandomState,
};

/// Most views of a plane that are remembered, and most states of each.
pub(crate) const MAX_VIEWS: usize = 2_048;

pub(crate) const MAX_STATES: usize = 16;

/// Most planes whose views are remembered.
pub(crate) const MAX_PLANES: usize = 2_048;

/// What a view showed at a revision, as a hash.
pub(crate) type State = (u64, u64);

/// The hash of a state between two others: no watch goes on behind it.
pub(crate) const MIXED: u64 = 0;

/// What users were shown lately, as hashes: a watch may go on behind a list that showed the same.
#[derive(Default)]
pub(crate) struct ShownLately {
    pub(crate) planes: Mutex<HashMap<PlaneId, HashMap<u64, VecDeque<State>>>>,
    pub(crate) hasher: RandomState,
}

impl ShownLately {
    /// Remembers that a view showed these names at a revision.
    pub(crate) fn remember(&self, plane: &PlaneId, view: u64, revision: u64, names: u64) {
        let mut planes = self.planes.lock();
        if planes.len() >= MAX_PLANES && !planes.contains_key(plane) {
            planes.clear();
        }
        let views = planes.entry(plane.clone()).or_default();
        if views.len() >= MAX_VIEWS && !views.contains_key(&view) {
            views.clear();
        }
        let states = views.entry(view).or_default();
        let at = states.partition_point(|(known, _)| *known <= revision);
        let before = at.checked_sub(1).map(|before| states[before]);
        match before {
            Some((_, last)) if last == names => return,
            // A page of a list whose first pages showed something else.
            Some((known, _)) if known == revision => states[at - 1].1 = MIXED,
            _ if at < states.len() => states.insert(at, (revision, MIXED)),
            _ => states.push_back((revision, names)),
        }
        if states.len() > MAX_STATES {
            states.pop_front();
        }
    }

    /// What a view showed last at or before a revision, as far as that is remembered.
    pub(crate) fn last(&self, plane: &PlaneId, view: u64, revision: u64) -> Option<State> {
        let planes = self.planes.lock();
        let states = planes.get(plane)?.get(&view)?;
        states.iter().rev().find(|(at, _)| *at <= revision).copied()
    }

    /// Whether a view showed at a revision what it shows now. `changed` is when roles and bindings changed last.
    pub(crate) fn showed(
        &self,
        (plane, view): (&PlaneId, u64),
        revision: u64,
        changed: u64,
        now: u64,
    ) -> bool {
        match self.last(plane, view, revision) {
            Some((at, state)) if at >= changed || state == now => state == now,
            _ => revision >= changed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_goes_on_only_behind_a_list_that_showed_the_same() {
        let (lately, plane) = (ShownLately::default(), PlaneId::core());
        // Nothing is remembered: what has not changed since was the same.
        let showed = |revision, changed, now| lately.showed((&plane, 1), revision, changed, now);
        assert!(!showed(9, 10, 70) && showed(10, 10, 70));
        for (revision, names) in [(5, 70), (6, 70), (8, 71), (9, 70)] {
            lately.remember(&plane, 1, revision, names);
        }
        assert_eq!([4, 5, 7, 8, 9, 99].map(|at| showed(at, 100, 70)), [false, true, true, false, true, true]);
        // A page that comes later than others' lists, of something else than the first.
        lately.remember(&plane, 1, 7, 72);
        assert!(!showed(7, 100, 72) && !showed(7, 100, 70) && showed(6, 100, 70));
        // A list that was read while it changed is followed by no watch.
        lately.remember(&plane, 1, 120, MIXED);
        assert!(!showed(120, 110, 72) && showed(130, 130, 72));
        for revision in 0..200 {
            lately.remember(&plane, 1, 200 + revision, revision);
        }
        assert!(lately.planes.lock()[&plane][&1].len() <= MAX_STATES);
        for view in 0..2 * MAX_VIEWS as u64 {
            lately.remember(&plane, view, 1, 1);
        }
        assert!(lately.planes.lock()[&plane].len() <= MAX_VIEWS);
    }
}
