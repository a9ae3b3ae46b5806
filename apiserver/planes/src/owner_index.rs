//! Index of objects by their owner, now and for the recent past, so that a view of few objects among many reads those
//! alone.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::Arc,
};

/// How many departures are remembered.
const MOST: usize = 10_000;

/// Objects that belong to somebody no longer, for reads as of a past revision.
pub(crate) struct Departures {
    /// From this revision on all of them are known.
    floor: u64,
    /// Revision, owner and place of each, in the order of the revisions.
    gone: VecDeque<(u64, Arc<str>, Arc<str>)>,
}

impl Default for Departures {
    /// Knows nothing of any revision.
    fn default() -> Self {
        Self { floor: u64::MAX, gone: VecDeque::new() }
    }
}

impl Departures {
    /// Takes note that all departures behind a revision have been told.
    pub(crate) fn complete_from(&mut self, revision: u64) {
        let full = self.gone.len() >= MOST;
        let oldest = self.gone.front().filter(|_| full).map_or(0, |(revision, ..)| *revision);
        self.floor = revision.max(oldest);
    }

    /// Takes note of one.
    pub(crate) fn note(&mut self, revision: u64, owner: &Arc<str>, place: &Arc<str>) {
        if self.gone.len() >= MOST
            && let Some((forgotten, ..)) = self.gone.pop_front()
        {
            self.floor = self.floor.max(forgotten);
        }
        self.gone.push_back((revision, owner.clone(), place.clone()));
    }

    /// Adds the places of an owner's objects that were there at a revision and departed since. False where that is not known.
    pub(crate) fn add_since(&self, at: u64, owner: &str, to: &mut BTreeSet<Arc<str>>) -> bool {
        let since = self.gone.iter().rev().take_while(|(revision, ..)| *revision > at);
        to.extend(since.filter(|(_, of, _)| **of == *owner).map(|(.., place)| place.clone()));
        at >= self.floor
    }

    /// The last departure of an owner's objects, or the revision from which on departures are known.
    fn last_of(&self, owner: &str) -> u64 {
        let last = self.gone.iter().rev().find(|(_, of, _)| **of == *owner);
        last.map_or(0, |(revision, ..)| *revision).max(self.floor)
    }
}

/// What belongs to somebody.
#[derive(Default)]
struct OwnedObjects {
    places: BTreeSet<Arc<str>>,
    /// The last revision at which one of them was written.
    written: u64,
}

/// The objects of one kind by those whom they belong to.
#[derive(Default)]
pub(crate) struct OwnerIndex {
    by_owner: HashMap<Arc<str>, OwnedObjects>,
    owners: HashMap<Arc<str>, Vec<Arc<str>>>,
    departures: Departures,
}

impl OwnerIndex {
    /// No objects, as of a revision from which on every change is told.
    pub(crate) fn from(revision: u64) -> Self {
        let departures = Departures { floor: revision, gone: VecDeque::new() };
        Self { departures, ..Self::default() }
    }

    /// Takes in whom the object at a place belongs to, as of a revision; nobody once it is gone.
    pub(crate) fn put(&mut self, revision: u64, place: &str, owners: &[String]) {
        let (place, before) = self.owners.remove_entry(place).unwrap_or_else(|| (place.into(), Vec::new()));
        for owner in before.iter().filter(|owner| !owners.iter().any(|kept| **kept == ***owner)) {
            self.departures.note(revision, owner, &place);
            if let Some(belongings) = self.by_owner.get_mut(owner) {
                belongings.places.remove(&place);
                if belongings.places.is_empty() {
                    self.by_owner.remove(owner);
                }
            }
        }
        let mut now = Vec::with_capacity(owners.len());
        for owner in owners {
            let owner = match self.by_owner.get_key_value(owner.as_str()) {
                Some((known, _)) => known.clone(),
                None => owner.as_str().into(),
            };
            let belongings = self.by_owner.entry(owner.clone()).or_default();
            belongings.places.insert(place.clone());
            belongings.written = revision;
            now.push(owner);
        }
        if !now.is_empty() {
            self.owners.insert(place, now);
        }
    }

    /// Adds the places of an owner's objects as of a revision, perhaps of some that came later. False where that is not known.
    pub(crate) fn add(&self, at: u64, owner: &str, to: &mut BTreeSet<Arc<str>>) -> bool {
        to.extend(self.by_owner.get(owner).into_iter().flat_map(|own| own.places.iter().cloned()));
        self.departures.add_since(at, owner, to)
    }

    /// The last revision at which an owner's objects changed, or the first from which on that is known.
    pub(crate) fn changed_for(&self, owner: &str) -> u64 {
        let written = self.by_owner.get(owner).map_or(0, |own| own.written);
        written.max(self.departures.last_of(owner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(places: &OwnerIndex, revision: u64, owner: &str) -> Option<Vec<String>> {
        let mut found = BTreeSet::new();
        let is_known = places.add(revision, owner, &mut found);
        is_known.then(|| found.iter().map(|place| place.to_string()).collect())
    }

    #[test]
    fn place_is_found_until_its_departure() {
        let mut places = OwnerIndex::from(10);
        let [ann, bob] = ["ann", "bob"].map(str::to_owned);
        places.put(11, "a/x", std::slice::from_ref(&ann));
        places.put(12, "a/y", &[ann.clone(), bob.clone()]);
        assert_eq!(at(&places, 12, "ann").unwrap(), ["a/x", "a/y"]);
        assert_eq!(at(&places, 12, "bob").unwrap(), ["a/y"]);
        places.put(13, "a/y", &[bob]);
        places.put(14, "a/x", &[]);
        assert_eq!(at(&places, 14, "ann").unwrap(), Vec::<String>::new());
        assert_eq!(at(&places, 13, "ann").unwrap(), ["a/x"]);
        assert_eq!(at(&places, 12, "ann").unwrap(), ["a/x", "a/y"]);
        assert_eq!(at(&places, 14, "bob").unwrap(), ["a/y"]);
        assert!(places.owners.len() == 1 && places.by_owner.len() == 1);
        assert_eq!(["ann", "bob", "eve"].map(|owner| places.changed_for(owner)), [14, 13, 10]);
    }

    #[test]
    fn what_was_before_all_remembered_departures_is_not_known() {
        let mut places = OwnerIndex::from(10);
        assert!(at(&places, 9, "ann").is_none());
        assert!(at(&OwnerIndex::default(), 9, "ann").is_none());
        let ann = ["ann".to_owned()];
        for revision in (0..=MOST as u64).map(|nth| 11 + 2 * nth) {
            places.put(revision, "a", &ann);
            places.put(revision + 1, "a", &[]);
        }
        assert!(at(&places, 11, "ann").is_none());
        assert_eq!(at(&places, 12, "ann").unwrap(), ["a"]);
    }
}
