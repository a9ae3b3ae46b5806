//! The objects of one collection, in order.

use crate::{
    Entry,
    merge::{Within, bounds},
};
use std::{ops::Bound, sync::Arc};

/// Objects of a chunk at most. For the next change each reader has a chunk copied that it shares.
const MOST: usize = 64;

/// Some objects that follow one another, at least one.
type Chunk = Arc<Vec<Arc<Entry>>>;

/// Objects by their place, which each has in itself: nothing is kept of them beside a pointer. They lie in chunks that are
/// shared with readers, so that to take note of all of them takes no longer than to take note of the chunks.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    chunks: Vec<Chunk>,
    len: usize,
}

/// Objects as they were at one moment.
#[derive(Debug, Default)]
pub(crate) struct Run {
    chunks: Vec<Chunk>,
    /// Objects of the first chunk that come before it.
    skip: usize,
    len: usize,
}

/// A chunk, and a place in it.
type At = (usize, usize);

impl Objects {
    /// The first object of which something does not hold that holds of those before it, or the end of the last chunk before it.
    fn behind(&self, holds: impl Fn(&[u8]) -> bool) -> At {
        let holds = |entry: &Arc<Entry>| holds(entry.place_bytes());
        let begun = self.chunks.partition_point(|chunk| chunk.first().is_some_and(&holds));
        match begun.checked_sub(1) {
            Some(last) => (last, self.chunks[last].partition_point(holds)),
            None => (0, 0),
        }
    }

    fn at(&self, (chunk, index): At) -> Option<&Arc<Entry>> {
        self.chunks.get(chunk)?.get(index)
    }

    /// Where a place is, or where it would be.
    fn find(&self, place: &str) -> Result<At, At> {
        let (chunk, behind) = self.behind(|other| other <= place.as_bytes());
        match behind.checked_sub(1).map(|index| (chunk, index)) {
            Some(at) if self.at(at).is_some_and(|entry| entry.place() == place) => Ok(at),
            _ => Err((chunk, behind)),
        }
    }

    pub(crate) fn get(&self, place: &str) -> Option<&Arc<Entry>> {
        self.at(self.find(place).ok()?)
    }

    /// Puts an object to its place, and gives the one that was there.
    pub(crate) fn insert(&mut self, entry: Arc<Entry>) -> Option<Arc<Entry>> {
        let found = self.find(entry.place());
        let (Ok((chunk, index)) | Err((chunk, index))) = found;
        if chunk == self.chunks.len() {
            self.chunks.push(Chunk::default());
        }
        let objects = Arc::make_mut(&mut self.chunks[chunk]);
        if found.is_ok() {
            return Some(std::mem::replace(&mut objects[index], entry));
        }
        objects.insert(index, entry);
        self.len += 1;
        if objects.len() > MOST {
            // What comes in order, as from the store, fills chunks.
            let upper = objects.split_off(if index == MOST { MOST } else { MOST / 2 });
            self.chunks.insert(chunk + 1, Arc::new(upper));
        }
        None
    }

    pub(crate) fn remove(&mut self, place: &str) -> Option<Arc<Entry>> {
        let (chunk, index) = self.find(place).ok()?;
        let objects = Arc::make_mut(&mut self.chunks[chunk]);
        let removed = objects.remove(index);
        self.len -= 1;
        let (left, next) = (objects.len(), self.chunks.get(chunk + 1).map(|next| next.len()));
        if left == 0 {
            self.chunks.remove(chunk);
        } else if next.is_some_and(|next| left + next <= MOST / 2) {
            let next = self.chunks.remove(chunk + 1);
            Arc::make_mut(&mut self.chunks[chunk]).extend(next.iter().cloned());
        }
        Some(removed)
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where a part behind a place begins and ends, and how many it has.
    fn span(&self, within: Within<&str>, after: &str) -> (At, At, usize) {
        let (from, to) = bounds(within, after);
        let from = match &from {
            Bound::Included(from) => self.behind(|place| place < from.as_bytes()),
            Bound::Excluded(from) => self.behind(|place| place <= from.as_bytes()),
            Bound::Unbounded => (0, 0),
        };
        let to = match &to {
            Bound::Included(to) => self.behind(|place| place <= to.as_bytes()),
            Bound::Excluded(to) => self.behind(|place| place < to.as_bytes()),
            Bound::Unbounded => (self.chunks.len(), 0),
        };
        let between = self.chunks.get(from.0..to.0).unwrap_or_default();
        let len = between.iter().map(|chunk| chunk.len()).sum::<usize>() + to.1;
        (from, to, len.saturating_sub(from.1))
    }

    /// How many a part has behind a place.
    pub(crate) fn count(&self, within: Within<&str>, after: &str) -> usize {
        self.span(within, after).2
    }

    /// The first `most` of a part behind a place, as they are now.
    pub(crate) fn run(&self, within: Within<&str>, after: &str, most: usize) -> Run {
        let ((first, skip), (last, _), len) = self.span(within, after);
        let len = len.min(most);
        let mut left = skip + len;
        let chunks = self.chunks.get(first..).unwrap_or_default().iter().take(last + 1 - first);
        let needed = chunks.take_while(|chunk| {
            let needed = left > 0;
            left = left.saturating_sub(chunk.len());
            needed
        });
        Run { chunks: needed.cloned().collect(), skip, len }
    }
}

impl Run {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.chunks.iter().flat_map(|chunk| chunk.iter()).skip(self.skip).take(self.len)
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn to_vec(&self) -> Vec<Arc<Entry>> {
        let mut all = Vec::with_capacity(self.len);
        all.extend(self.iter().cloned());
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeMap;

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
            objects
                .run(Within::namespace(namespace), "", 9)
                .iter()
                .map(|entry| entry.place().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(places(&objects, None), ["a-b/c", "a/b", "a/z", "b/x"]);
        assert_eq!(places(&objects, Some("a")), ["a/b", "a/z"]);
        assert_eq!(objects.insert(entry("a/z", 2)).unwrap().modified, 1);
        assert_eq!(objects.get("a/z").unwrap().modified, 2);
        assert_eq!(objects.remove("a/z").unwrap().modified, 2);
        assert!(objects.get("a/z").is_none() && objects.remove("a/z").is_none());
    }

    /// Any sequence of changes gives what a sorted map gives, and what was noted before stays as it was.
    #[test]
    fn chunks_hold_what_a_sorted_map_holds() {
        let mut random = 7u64;
        let mut below = |most: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % most
        };
        for (inserts, rounds) in [(1, 2_000), (2, 2_000), (3, 4_000)] {
            let (mut objects, mut model) = (Objects::default(), BTreeMap::new());
            let mut noted = Vec::new();
            for revision in 1..=rounds {
                let place = format!("{}/{:03}", ["a", "a-b", "b"][below(3) as usize], below(300));
                if below(4) < inserts {
                    let before = objects.insert(entry(&place, revision)).map(|entry| entry.modified);
                    assert_eq!(before, model.insert(place, revision));
                } else {
                    assert_eq!(objects.remove(&place).map(|entry| entry.modified), model.remove(&place));
                }
                assert_eq!(objects.len(), model.len());
                if revision % 97 == 0 {
                    noted.push((objects.run(Within::Everywhere, "", usize::MAX), model.clone()));
                }
            }
            let seen = |run: &Run| -> Vec<(String, u64)> {
                run.iter().map(|entry| (entry.place().to_owned(), entry.modified)).collect()
            };
            for (run, model) in noted {
                assert_eq!((seen(&run), run.len()), (model.clone().into_iter().collect(), model.len()));
                assert_eq!(run.to_vec().len(), run.len());
            }
            assert!(objects.chunks.iter().all(|chunk| (1..=MOST).contains(&chunk.len())));
            for (namespace, after) in
                [(None, ""), (None, "a/150"), (Some("a"), ""), (Some("a"), "a/299"), (Some("c"), "b")]
            {
                let is_within = |place: &str| {
                    place > after && namespace.is_none_or(|name: &str| place.starts_with(&format!("{name}/")))
                };
                let within = Within::namespace(namespace);
                let expected: Vec<_> =
                    model.clone().into_iter().filter(|(place, _)| is_within(place)).collect();
                assert_eq!(objects.count(within, after), expected.len());
                for most in [0, 1, 10, MOST, 100, usize::MAX] {
                    let run = objects.run(within, after, most);
                    let first: Vec<_> = expected.iter().take(most).cloned().collect();
                    assert_eq!(seen(&run), first, "{namespace:?} behind {after:?}, {most}");
                }
            }
        }
    }
}
