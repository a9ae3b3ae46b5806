//! Sets of fields: a trie of path elements, sorted at each level.
//!
//! Whether a node is in the set (`.` in `FieldsV1`) and whether anything below it is are separate facts. No empty
//! subtree is ever kept, so equal sets are equal tries.
//! This module must not know schemas or who owns what.

use super::element::PathElement;
use freehold_machinery::{Map, Value};
use std::{cmp::Ordering, fmt, iter::Peekable};

/// A set of fields (`FieldsV1` of managed fields).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    members: Vec<PathElement>,
    children: Vec<(PathElement, FieldSet)>,
}

impl FieldSet {
    /// The set of these fields, each a path of field names.
    pub fn of_paths(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            set.insert(path.iter().map(|name| PathElement::field(name)));
        }
        set
    }

    /// Adds the field at `path`; its parents are not added. An empty path adds nothing.
    pub fn insert(&mut self, path: impl IntoIterator<Item = PathElement>) {
        let mut path = path.into_iter().peekable();
        let mut set = self;
        while let Some(element) = path.next() {
            if path.peek().is_none() {
                return set.add_member(element);
            }
            let at = position(&set.children, |c| c.0.cmp(&element)).unwrap_or_else(|at| {
                set.children.insert(at, (element, Self::default()));
                at
            });
            set = &mut set.children[at].1;
        }
    }

    pub(super) fn add_member(&mut self, element: PathElement) {
        if self.members.last().is_none_or(|last| *last < element) {
            self.members.push(element);
        } else if let Err(at) = self.members.binary_search(&element) {
            self.members.insert(at, element);
        }
    }

    /// Adds all of `set` below `element`.
    pub(super) fn add_child(&mut self, element: PathElement, set: FieldSet) {
        if set.is_empty() {
            return;
        }
        if self.children.last().is_none_or(|last| last.0 < element) {
            return self.children.push((element, set));
        }
        match position(&self.children, |c| c.0.cmp(&element)) {
            Ok(at) => {
                let before = std::mem::take(&mut self.children[at].1);
                self.children[at].1 = before.union(set);
            }
            Err(at) => self.children.insert(at, (element, set)),
        }
    }

    /// Whether there is no field in it.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.is_empty()
    }

    /// How many fields are in it.
    pub fn len(&self) -> usize {
        self.members.len() + self.children.iter().map(|(_, set)| set.len()).sum::<usize>()
    }

    /// Whether the field at `path` is in it.
    pub fn contains(&self, path: &[PathElement]) -> bool {
        match path {
            [] => false,
            [last] => self.members.binary_search(last).is_ok(),
            [first, rest @ ..] => self.child(first).is_some_and(|set| set.contains(rest)),
        }
    }

    pub(super) fn has_member(&self, element: &PathElement) -> bool {
        self.members.binary_search(element).is_ok()
    }

    /// What is in it below `element`.
    pub(super) fn child(&self, element: &PathElement) -> Option<&FieldSet> {
        position(&self.children, |c| c.0.cmp(element)).ok().map(|at| &self.children[at].1)
    }

    pub(super) fn has_field(&self, name: &str) -> bool {
        position(&self.members, |m| m.cmp_field(name)).is_ok()
    }

    pub(super) fn field_child(&self, name: &str) -> Option<&FieldSet> {
        position(&self.children, |c| c.0.cmp_field(name)).ok().map(|at| &self.children[at].1)
    }

    pub(super) fn remove_field_member(&mut self, name: &str) {
        if let Ok(at) = position(&self.members, |m| m.cmp_field(name)) {
            self.members.remove(at);
        }
    }

    pub(super) fn into_parts(self) -> (Vec<PathElement>, Vec<(PathElement, FieldSet)>) {
        (self.members, self.children)
    }

    pub(super) fn children(&self) -> &[(PathElement, FieldSet)] {
        &self.children
    }

    /// The fields of both.
    pub fn union(self, other: Self) -> Self {
        if self.is_empty() {
            return other;
        }
        if other.is_empty() {
            return self;
        }
        let members = zip(self.members, other.members, Ord::cmp).map(|side| match side {
            Side::Left(m) | Side::Right(m) | Side::Both(m, _) => m,
        });
        let children = zip(self.children, other.children, |a, b| a.0.cmp(&b.0)).map(|side| match side {
            Side::Left(c) | Side::Right(c) => c,
            Side::Both((element, a), (_, b)) => (element, a.union(b)),
        });
        Self { members: members.collect(), children: children.collect() }
    }

    /// The fields that are in each of the two.
    pub fn intersection(&self, other: &Self) -> Self {
        let members = zip(&self.members, &other.members, |a, b| a.cmp(b)).filter_map(|side| match side {
            Side::Both(m, _) => Some(m.clone()),
            _ => None,
        });
        let children =
            zip(&self.children, &other.children, |a, b| a.0.cmp(&b.0)).filter_map(|side| match side {
                Side::Both((element, a), (_, b)) => non_empty(element.clone(), a.intersection(b)),
                _ => None,
            });
        Self { members: members.collect(), children: children.collect() }
    }

    /// The fields that are not in `other`. A field in `other` does not take those below it away.
    pub fn difference(self, other: &Self) -> Self {
        self.subtract(other, false)
    }

    /// The fields that neither are in `other` nor have a parent there.
    pub fn recursive_difference(self, other: &Self) -> Self {
        self.subtract(other, true)
    }

    fn subtract(self, other: &Self, below: bool) -> Self {
        if self.is_empty() || other.is_empty() {
            return self;
        }
        let members = zip(self.members, &other.members, |a, b| a.cmp(b)).filter_map(|side| match side {
            Side::Left(m) => Some(m),
            _ => None,
        });
        let kept = |child: &(PathElement, FieldSet)| !below || !other.has_member(&child.0);
        let children =
            zip(self.children, &other.children, |a, b| a.0.cmp(&b.0)).filter_map(|side| match side {
                Side::Left(child) => kept(&child).then_some(child),
                Side::Both(child, (_, b)) if kept(&child) => non_empty(child.0, child.1.subtract(b, below)),
                _ => None,
            });
        Self { members: members.collect(), children: children.collect() }
    }

    /// The fields that have none of its fields below them.
    pub fn leaves(&self) -> Self {
        let leaf = |m: &&PathElement| self.child(m).is_none();
        Self {
            members: self.members.iter().filter(leaf).cloned().collect(),
            children: self.children.iter().map(|(element, set)| (element.clone(), set.leaves())).collect(),
        }
    }

    /// Each field's path: those of a level first, then level by level what is below.
    pub fn paths(&self) -> Vec<Path> {
        let mut paths = Vec::new();
        self.collect_paths(&mut Vec::new(), &mut paths);
        paths
    }

    fn collect_paths(&self, prefix: &mut Vec<PathElement>, into: &mut Vec<Path>) {
        for member in &self.members {
            into.push(Path(prefix.iter().chain([member]).cloned().collect()));
        }
        for (element, set) in &self.children {
            prefix.push(element.clone());
            set.collect_paths(prefix, into);
            prefix.pop();
        }
    }

    /// Writes the set as `FieldsV1`.
    pub fn to_json(&self) -> Value {
        Value::Object(self.encode(false))
    }

    fn encode(&self, own: bool) -> Map {
        let mut map = Map::new();
        if own {
            map.insert(".".to_owned(), Value::Object(Map::new()));
        }
        for side in zip(&self.members, &self.children, |m, c| (*m).cmp(&c.0)) {
            let (element, below) = match side {
                Side::Left(member) => (member, Map::new()),
                Side::Right((element, set)) => (element, set.encode(false)),
                Side::Both(_, (element, set)) => (element, set.encode(true)),
            };
            map.insert(element.encode(), Value::Object(below));
        }
        map
    }

    /// Reads a set from `FieldsV1`. Elements of unknown kinds are dropped; `null` is the empty set.
    ///
    /// # Errors
    /// A value that is no object, or an element that cannot be parsed.
    pub fn from_json(fields: &Value) -> Result<Self, String> {
        match fields {
            Value::Object(map) => Ok(Self::decode(map)?.0.unwrap_or_default()),
            Value::Null => Ok(Self::default()),
            _ => Err("managed fields are not an object".to_owned()),
        }
    }

    /// The set of what is below, and whether the node itself is meant: it is when it says so, or when nothing is below.
    fn decode(map: &Map) -> Result<(Option<Self>, bool), String> {
        let (mut set, mut own) = (None::<Self>, false);
        for (text, below) in map {
            if text == "." {
                own = true;
                continue;
            }
            let Some(element) = PathElement::decode(text)? else { continue };
            let (child, member) = match below {
                Value::Object(below) => Self::decode(below)?,
                _ => return Err(format!("expected an object below {text}")),
            };
            let set = set.get_or_insert_default();
            if member {
                set.add_member(element.clone());
            }
            set.add_child(element, child.unwrap_or_default());
        }
        let own = own || set.is_none();
        Ok((set, own))
    }
}

/// A field's path. Displays as conflicts do: `.spec.containers[name="web"].image`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(pub Vec<PathElement>);

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|element| element.fmt(f))
    }
}

fn non_empty(element: PathElement, set: FieldSet) -> Option<(PathElement, FieldSet)> {
    (!set.is_empty()).then_some((element, set))
}

fn position<T>(sorted: &[T], cmp: impl Fn(&T) -> Ordering) -> Result<usize, usize> {
    sorted.binary_search_by(cmp)
}

/// An item of one or both of two sorted sequences.
enum Side<A, B> {
    Left(A),
    Right(B),
    Both(A, B),
}

/// Walks two sorted sequences in step.
fn zip<A: IntoIterator, B: IntoIterator>(
    a: A,
    b: B,
    cmp: impl Fn(&A::Item, &B::Item) -> Ordering,
) -> impl Iterator<Item = Side<A::Item, B::Item>> {
    let (mut a, mut b): (Peekable<_>, Peekable<_>) = (a.into_iter().peekable(), b.into_iter().peekable());
    std::iter::from_fn(move || {
        let order = match (a.peek(), b.peek()) {
            (Some(x), Some(y)) => cmp(x, y),
            (Some(_), None) => Ordering::Less,
            (None, _) => Ordering::Greater,
        };
        match order {
            Ordering::Less => a.next().map(Side::Left),
            Ordering::Greater => b.next().map(Side::Right),
            Ordering::Equal => a.next().zip(b.next()).map(|(a, b)| Side::Both(a, b)),
        }
    })
}
