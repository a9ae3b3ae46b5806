//! The objects of one collection, in order.

use crate::{Entry, merge::bounds};
use std::{borrow::Borrow, cmp::Ordering, collections::BTreeSet, sync::Arc};

/// Objects by their place, which each has in itself: nothing is kept of them beside a pointer.
#[derive(Debug, Default)]
pub(crate) struct Objects(BTreeSet<Placed>);

#[derive(Debug)]
struct Placed(Arc<Entry>);

impl Borrow<[u8]> for Placed {
    fn borrow(&self) -> &[u8] {
        self.0.place_bytes()
    }
}

impl PartialEq for Placed {
    fn eq(&self, other: &Self) -> bool {
        self.0.place_bytes() == other.0.place_bytes()
    }
}

impl Eq for Placed {}

impl PartialOrd for Placed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Placed {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.place_bytes().cmp(other.0.place_bytes())
    }
}

impl Objects {
    pub(crate) fn get(&self, place: &str) -> Option<&Arc<Entry>> {
        self.0.get(place.as_bytes()).map(|placed| &placed.0)
    }

    /// Puts an object to its place, and gives the one that was there.
    pub(crate) fn insert(&mut self, entry: Arc<Entry>) -> Option<Arc<Entry>> {
        self.0.replace(Placed(entry)).map(|before| before.0)
    }

    pub(crate) fn remove(&mut self, place: &str) -> Option<Arc<Entry>> {
        self.0.take(place.as_bytes()).map(|before| before.0)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those of a namespace, or all, behind a place.
    pub(crate) fn range(
        &self,
        namespace: Option<&str>,
        after: &str,
    ) -> impl Iterator<Item = &Arc<Entry>> + use<'_> {
        let (from, to) = bounds(namespace, after);
        let bounds = (from.as_ref().map(|place| place.as_bytes()), to.as_ref().map(|place| place.as_bytes()));
        self.0.range::<[u8], _>(bounds).map(|placed| &placed.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(place: &str, revision: u64) -> Arc<Entry> {
        let object = match place.split_once('/') {
            Some((namespace, name)) => json!({"metadata": {"name": name, "namespace": namespace}}),
            None => json!({"metadata": {"name": place}}),
        };
        Arc::new(Entry::new(object.to_string().as_bytes(), revision, revision).unwrap())
    }

    fn objects(places: &[&str], revision: u64) -> Objects {
        let mut objects = Objects::default();
        places.iter().for_each(|place| drop(objects.insert(entry(place, revision))));
        objects
    }

    #[test]
    fn objects_are_in_the_order_of_their_places_and_found_by_them() {
        let mut objects = objects(&["b/x", "a/z", "a-b/c", "a/b"], 1);
        let places = |objects: &Objects, namespace| {
            objects.range(namespace, "").map(|entry| entry.place().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(places(&objects, None), ["a-b/c", "a/b", "a/z", "b/x"]);
        assert_eq!(places(&objects, Some("a")), ["a/b", "a/z"]);
        assert_eq!(objects.insert(entry("a/z", 2)).unwrap().modified, 1);
        assert_eq!(objects.get("a/z").unwrap().modified, 2);
        assert_eq!(objects.remove("a/z").unwrap().modified, 2);
        assert!(objects.get("a/z").is_none() && objects.remove("a/z").is_none());
    }
}
