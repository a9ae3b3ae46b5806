//! Merged collections: the sources of a stack in key order, merged while they are read. Nothing is copied, so a page
//! costs its own items.

use crate::layer_kind::key_of;
use crate::{Entry, LayerKind};
use freehold_apiserver_storage::KeyRange;
use freehold_machinery::PlaneId;
use std::{
    cmp::Ordering,
    ops::Bound::{self, Excluded, Included, Unbounded},
    sync::Arc,
};

/// Which part of a collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Within<S> {
    /// All of it.
    #[default]
    Everywhere,
    /// The objects of one namespace.
    Namespace(S),
    /// The object at one place (`namespace/name` or `name`), if it is there.
    Place(S),
}

impl<'a> Within<&'a str> {
    pub(crate) fn namespace(namespace: Option<&'a str>) -> Self {
        namespace.map_or(Self::Everywhere, Self::Namespace)
    }

    pub(crate) fn to_boxed(self) -> Within<Box<str>> {
        match self {
            Self::Everywhere => Within::Everywhere,
            Self::Namespace(namespace) => Within::Namespace(namespace.into()),
            Self::Place(place) => Within::Place(place.into()),
        }
    }

    /// The keys of the part of a plane's collection.
    pub(crate) fn keys(self, plane: &PlaneId, collection: &str) -> KeyRange {
        let (group, resource) = collection.split_once('/').unwrap_or_default();
        match self {
            Self::Everywhere => KeyRange::resource(plane, group, resource, None),
            Self::Namespace(namespace) => KeyRange::resource(plane, group, resource, Some(namespace)),
            Self::Place(place) => KeyRange::one(&key_of(plane, collection, place)),
        }
    }
}

impl Within<Box<str>> {
    pub(crate) fn as_deref(&self) -> Within<&str> {
        match self {
            Self::Everywhere => Within::Everywhere,
            Self::Namespace(namespace) => Within::Namespace(namespace),
            Self::Place(place) => Within::Place(place),
        }
    }
}

/// A part of a collection, behind a place (empty for all).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span<'a> {
    pub(crate) collection: &'a str,
    pub(crate) within: Within<&'a str>,
    pub(crate) after: &'a str,
}

/// An object of a plane: of its own, or of a layer, which it does not show as it is there
/// ([`Stack::show`](crate::Stack)).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found<'a> {
    pub(crate) layer: Option<LayerKind>,
    pub(crate) entry: &'a Arc<Entry>,
}

impl<'a> Found<'a> {
    pub(crate) fn own(entry: &'a Arc<Entry>) -> Self {
        Self { layer: None, entry }
    }
}

/// What a source has in a place: an object, or that what lies below is hidden.
pub(crate) type Slot<'a> = (&'a str, Option<Found<'a>>);

/// Slots in the order of their places, of which each has one.
pub(crate) type Slots<'a> = Box<dyn Iterator<Item = Slot<'a>> + Send + 'a>;

/// Two sources as one: in a place that both have, what is above counts.
pub(crate) fn over<'a>(
    above: impl Iterator<Item = Slot<'a>>,
    below: impl Iterator<Item = Slot<'a>>,
) -> impl Iterator<Item = Slot<'a>> {
    let (mut above, mut below) = (above.peekable(), below.peekable());
    std::iter::from_fn(move || {
        let order = match (above.peek(), below.peek()) {
            (Some((above, _)), Some((below, _))) => above.cmp(below),
            (None, _) => Ordering::Greater,
            (_, None) => Ordering::Less,
        };
        if order == Ordering::Equal {
            below.next();
        }
        if order == Ordering::Greater { below.next() } else { above.next() }
    })
}

/// The bounds of a part of a collection behind a place.
pub(crate) fn bounds(within: Within<&str>, after: &str) -> (Bound<Box<str>>, Bound<Box<str>>) {
    let behind = |start: Bound<Box<str>>| if after.is_empty() { start } else { Excluded(after.into()) };
    let namespace = match within {
        Within::Everywhere => return (behind(Unbounded), Unbounded),
        // The character behind a place is no part of any: nothing lies between the two.
        Within::Place(place) if after >= place => {
            return (Included(format!("{place}\0").into()), Excluded(format!("{place}\0").into()));
        }
        Within::Place(place) => return (Included(place.into()), Included(place.into())),
        Within::Namespace(namespace) => namespace,
    };
    // '0' is the character behind '/'.
    let (start, end): (Box<str>, Box<str>) = (format!("{namespace}/").into(), format!("{namespace}0").into());
    let from = match (after < &*start, after < &*end) {
        (true, _) => Included(start),
        (false, true) => Excluded(after.into()),
        (false, false) => Included(end.clone()),
    };
    (from, Excluded(end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeMap;

    fn source(slots: &[(&str, bool)], revision: u64) -> BTreeMap<String, Option<Arc<Entry>>> {
        let entry = |place: &str| {
            let object = json!({"metadata": {"name": place}}).to_string();
            Arc::new(Entry::new(object.as_bytes(), revision, revision).unwrap())
        };
        slots.iter().map(|(place, there)| ((*place).to_owned(), there.then(|| entry(place)))).collect()
    }

    fn slots(source: &BTreeMap<String, Option<Arc<Entry>>>) -> impl Iterator<Item = Slot<'_>> {
        source.iter().map(|(place, entry)| (&**place, entry.as_ref().map(Found::own)))
    }

    #[test]
    fn what_is_above_hides_what_is_below_in_the_same_place() {
        let above = source(&[("b", true), ("c", false), ("e", true), ("h", true)], 2);
        let below = source(&[("a", true), ("b", true), ("c", true), ("f", true)], 1);
        let merged: Vec<_> = over(slots(&above), slots(&below))
            .map(|(place, found)| (place, found.map(|found| found.entry.modified)))
            .collect();
        let expected =
            [("a", Some(1)), ("b", Some(2)), ("c", None), ("e", Some(2)), ("f", Some(1)), ("h", Some(2))];
        assert_eq!(merged, expected);
        assert_eq!(over(slots(&above), std::iter::empty()).count(), 4);
        assert_eq!(over(std::iter::empty(), slots(&below)).count(), 4);
    }

    #[test]
    fn a_part_ends_where_the_next_begins_wherever_it_is_begun() {
        let all = source(&[("a-b/c", true), ("a/b", true), ("a/z", true), ("b/x", true)], 1);
        let (everywhere, a) = (Within::Everywhere, Within::Namespace("a"));
        let rows: [(Within<&str>, &str, &[&str]); 12] = [
            (everywhere, "", &["a-b/c", "a/b", "a/z", "b/x"]),
            (everywhere, "a/b", &["a/z", "b/x"]),
            (everywhere, "zz", &[]),
            (a, "", &["a/b", "a/z"]),
            (a, "a/b", &["a/z"]),
            (a, "a-b/c", &["a/b", "a/z"]),
            (a, "b/x", &[]),
            (Within::Place("a/b"), "", &["a/b"]),
            (Within::Place("a/b"), "a-b/c", &["a/b"]),
            (Within::Place("a/b"), "a/b", &[]),
            (Within::Place("a/b"), "b/x", &[]),
            (Within::Place("a/c"), "", &[]),
        ];
        for (within, after, expected) in rows {
            let (from, to) = bounds(within, after);
            let bounds = (from.as_ref().map(|place| &**place), to.as_ref().map(|place| &**place));
            let found: Vec<_> = all.range::<str, _>(bounds).map(|(place, _)| place).collect();
            assert_eq!(found, expected, "{within:?} behind {after:?}");
        }
    }
}
