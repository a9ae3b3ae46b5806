//! Collections as they show above one another: sources in the order of places, merged as they are read. Nothing is copied
//! for it, so a page costs what is on it.

use crate::{Entry, LayerKind};
use std::{
    cmp::Ordering,
    ops::Bound::{self, Excluded, Included, Unbounded},
    sync::Arc,
};

/// Which objects of a collection: those of a namespace or all, behind a place (empty for all).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span<'a> {
    pub(crate) collection: &'a str,
    pub(crate) namespace: Option<&'a str>,
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

/// The bounds of what lies in a namespace, or of everything, behind a place.
pub(crate) fn bounds(namespace: Option<&str>, after: &str) -> (Bound<Box<str>>, Bound<Box<str>>) {
    let behind = |start: Bound<Box<str>>| if after.is_empty() { start } else { Excluded(after.into()) };
    let Some(namespace) = namespace else { return (behind(Unbounded), Unbounded) };
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
    fn a_namespace_ends_before_the_next_wherever_it_is_begun() {
        let all = source(&[("a-b/c", true), ("a/b", true), ("a/z", true), ("b/x", true)], 1);
        let rows: [(Option<&str>, &str, &[&str]); 7] = [
            (None, "", &["a-b/c", "a/b", "a/z", "b/x"]),
            (None, "a/b", &["a/z", "b/x"]),
            (None, "zz", &[]),
            (Some("a"), "", &["a/b", "a/z"]),
            (Some("a"), "a/b", &["a/z"]),
            (Some("a"), "a-b/c", &["a/b", "a/z"]),
            (Some("a"), "b/x", &[]),
        ];
        for (namespace, after, expected) in rows {
            let (from, to) = bounds(namespace, after);
            let bounds = (from.as_ref().map(|place| &**place), to.as_ref().map(|place| &**place));
            let found: Vec<_> = all.range::<str, _>(bounds).map(|(place, _)| place).collect();
            assert_eq!(found, expected, "{namespace:?} behind {after:?}");
        }
    }
}
