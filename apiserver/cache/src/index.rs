//! Objects of a large collection by the value of a label or a field, so that a list by it costs what it finds and not
//! what there is.
//!
//! An index is made when somebody asks for the second time. It is filled a part at a time while writes go on, which
//! keep it up from its beginning, and nobody reads it before it is whole.

use crate::{Entry, objects::Objects};
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Objects from which on a collection is worth an index: fewer are looked through in a fraction of a millisecond.
pub(crate) const WORTHWHILE: usize = 1_000;
/// Indexes that one collection has at most; a further one takes the place of that which was not asked for the longest.
const MOST: usize = 4;
/// What an index takes for an object and for a value, in bytes, about.
const OBJECT: usize = 16;
const VALUE: usize = 192;

/// What objects can be found by: the key of a label, or the path of a field (`spec.nodeName`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By<S> {
    /// A label.
    Label(S),
    /// A field. Objects in which it is absent or empty are not found by it.
    Field(S),
}

impl<S: AsRef<str>> By<S> {
    fn value<'e>(&self, entry: &'e Entry) -> Option<&'e str> {
        match self {
            Self::Label(key) => entry.label(key.as_ref()),
            Self::Field(path) => Some(entry.field(path.as_ref())).filter(|value| !value.is_empty()),
        }
    }

    fn is(&self, other: By<&str>) -> bool {
        match (self, other) {
            (Self::Label(own), By::Label(other)) | (Self::Field(own), By::Field(other)) => {
                own.as_ref() == other
            }
            _ => false,
        }
    }
}

/// How far an index is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Somebody asked once.
    Asked,
    /// It is kept up, but lacks objects from before it began.
    Filling,
    /// It has all objects that have a value.
    Whole,
}

struct Index {
    by: By<Box<str>>,
    stage: Stage,
    values: HashMap<Box<str>, Objects>,
    objects: usize,
    /// The number of the last question, of those of the collection.
    used: AtomicU64,
}

impl Index {
    fn insert(&mut self, entry: &Arc<Entry>) {
        let Some(value) = self.by.value(entry) else { return };
        if !self.values.contains_key(value) {
            self.values.insert(value.into(), Objects::default());
        }
        let known = self.values.get_mut(value).and_then(|objects| objects.insert(entry.clone()));
        self.objects += usize::from(known.is_none());
    }

    fn remove(&mut self, entry: &Entry) {
        let Some(value) = self.by.value(entry) else { return };
        let Some(objects) = self.values.get_mut(value) else { return };
        self.objects -= usize::from(objects.remove(entry.place()).is_some());
        if objects.is_empty() {
            self.values.remove(value);
        }
    }
}

/// The indexes of one collection.
#[derive(Default)]
pub(crate) struct Indexes {
    all: Vec<Index>,
    asked: AtomicU64,
}

impl Indexes {
    /// The objects that have a value, `None` among them for none; `None` where there is no whole index.
    pub(crate) fn find(&self, by: By<&str>, value: &str) -> Option<Option<&Objects>> {
        let index = self.all.iter().find(|index| index.by.is(by) && index.stage == Stage::Whole)?;
        index.used.store(self.asked.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        Some(index.values.get(value))
    }

    /// Whether a question needs [`Indexes::ask`]: whether there is no index for it, whole or being filled.
    pub(crate) fn lacks(&self, by: By<&str>) -> bool {
        !self.all.iter().any(|index| index.by.is(by) && index.stage != Stage::Asked)
    }

    /// Takes note of a question; `true` for who is to fill the index now ([`Indexes::fill`], then [`Indexes::finish`]).
    pub(crate) fn ask(&mut self, by: By<&str>) -> bool {
        let now = *self.asked.get_mut() + 1;
        *self.asked.get_mut() = now;
        if let Some(index) = self.all.iter_mut().find(|index| index.by.is(by)) {
            let begins = index.stage == Stage::Asked;
            if begins {
                index.stage = Stage::Filling;
            }
            return begins;
        }
        if self.all.len() >= MOST {
            let idle = self.all.iter().enumerate().filter(|(_, index)| index.stage != Stage::Filling);
            let Some((oldest, _)) = idle.min_by_key(|(_, index)| index.used.load(Ordering::Relaxed)) else {
                return false;
            };
            self.all.swap_remove(oldest);
        }
        let by = match by {
            By::Label(key) => By::Label(key.into()),
            By::Field(path) => By::Field(path.into()),
        };
        let used = AtomicU64::new(now);
        self.all.push(Index { by, stage: Stage::Asked, values: HashMap::new(), objects: 0, used });
        false
    }

    /// Adds present objects of the collection to an index. `false` where it is gone.
    pub(crate) fn fill<'e>(&mut self, by: By<&str>, entries: impl Iterator<Item = &'e Arc<Entry>>) -> bool {
        let filling = self.all.iter_mut().find(|index| index.by.is(by) && index.stage == Stage::Filling);
        filling.map(|index| entries.for_each(|entry| index.insert(entry))).is_some()
    }

    /// Lets an index that was filled be read.
    pub(crate) fn finish(&mut self, by: By<&str>) {
        if let Some(index) = self.all.iter_mut().find(|index| index.by.is(by)) {
            index.stage = Stage::Whole;
        }
    }

    /// Takes in a change of the collection: the object before and after it.
    pub(crate) fn change(&mut self, before: Option<&Arc<Entry>>, after: Option<&Arc<Entry>>) {
        for index in self.all.iter_mut().filter(|index| index.stage != Stage::Asked) {
            before.into_iter().for_each(|entry| index.remove(entry));
            after.into_iter().for_each(|entry| index.insert(entry));
        }
    }

    /// Bytes that they take, about.
    pub(crate) fn bytes(&self) -> usize {
        self.all.iter().map(|index| index.objects * OBJECT + index.values.len() * VALUE).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merge::Within;
    use serde_json::json;

    fn entry(name: &str, app: Option<&str>, revision: u64) -> Arc<Entry> {
        let labels = app.map_or(json!({}), |app| json!({"app": app}));
        let object = json!({"metadata": {"name": name, "labels": labels}}).to_string();
        Arc::new(Entry::new(object.as_bytes(), revision, revision).unwrap())
    }

    fn names(indexes: &Indexes, by: By<&str>, value: &str) -> Option<Vec<String>> {
        let found = indexes.find(by, value)?;
        let run = found.map(|objects| objects.run(Within::Everywhere, "", usize::MAX)).unwrap_or_default();
        Some(run.iter().map(|entry| entry.name().to_owned()).collect())
    }

    #[test]
    fn an_index_is_begun_with_the_second_question_and_read_when_it_is_whole() {
        let (mut indexes, by) = (Indexes::default(), By::Label("app"));
        assert!(indexes.lacks(by) && !indexes.ask(by) && indexes.lacks(by));
        assert!(indexes.ask(by) && !indexes.ask(by), "one asks for it to be filled");
        assert!(!indexes.lacks(by));
        assert!(indexes.fill(by, [entry("a", Some("x"), 1), entry("b", Some("y"), 1)].iter()));
        assert_eq!(names(&indexes, by, "x"), None);
        indexes.finish(by);
        assert_eq!(names(&indexes, by, "x").unwrap(), ["a"]);
        assert!(names(&indexes, by, "z").unwrap().is_empty());
    }

    #[test]
    fn changes_while_it_is_filled_and_after_are_in_it() {
        let (mut indexes, by) = (Indexes::default(), By::Field("metadata.labels.app"));
        indexes.ask(by);
        indexes.ask(by);
        let (a, b) = (entry("a", Some("x"), 1), entry("b", Some("x"), 1));
        indexes.change(Some(&a), None);
        indexes.change(None, Some(&b));
        indexes.finish(by);
        assert_eq!(names(&indexes, by, "x").unwrap(), ["b"]);
        indexes.change(Some(&b), Some(&entry("b", Some("y"), 2)));
        assert!(names(&indexes, by, "x").unwrap().is_empty());
        assert_eq!(names(&indexes, by, "y").unwrap(), ["b"]);
        indexes.change(Some(&entry("b", Some("y"), 2)), Some(&entry("b", None, 3)));
        assert!(names(&indexes, by, "y").unwrap().is_empty());
        assert_eq!(indexes.bytes(), 0);
    }

    #[test]
    fn a_collection_has_few_indexes() {
        let mut indexes = Indexes::default();
        let keys: Vec<_> = (0..9).map(|nth| format!("key-{nth}")).collect();
        for key in &keys {
            indexes.ask(By::Label(key));
            indexes.ask(By::Label(key));
            indexes.finish(By::Label(key));
        }
        assert_eq!(indexes.all.len(), MOST);
        assert!(indexes.lacks(By::Label("key-0")) && !indexes.lacks(By::Label("key-8")));
    }
}
