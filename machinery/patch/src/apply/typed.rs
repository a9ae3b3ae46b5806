//! Values as sets of fields: the fields of a value, and the differences of two.

use super::{
    element::{PathElement, same},
    set::FieldSet,
    shape::{Form, ListForm, MapForm, Relation, Shape},
};
use freehold_machinery::{Map, Value};
use std::collections::BTreeMap;

/// The fields that a value has: scalars, atomic lists and maps as one, items of associative lists and keys of maps
/// besides what is in them.
pub(super) fn fields_of(value: &Value, shape: Shape<'_>) -> FieldSet {
    let mut set = FieldSet::default();
    collect(shape, value, &mut set);
    set
}

/// Adds what is below `value`, and tells whether the value itself is a field.
fn collect(shape: Shape<'_>, value: &Value, into: &mut FieldSet) -> bool {
    match shape.form(Some(value)) {
        Form::Scalar(_) => true,
        Form::List(ListForm { relation: Relation::Atomic, .. }) => true,
        Form::List(list) => {
            collect_items(list, value, into);
            false
        }
        Form::Map(map) if map.atomic => true,
        Form::Map(map) => {
            for (name, value) in value.as_object().into_iter().flatten() {
                let mut below = FieldSet::default();
                let own = collect(map.child(name).unwrap_or(Shape::Deduced), value, &mut below)
                    || value.is_null()
                    || value.as_object().is_some_and(Map::is_empty)
                    || map.field(name).is_none();
                add(into, &PathElement::field(name), own, below);
            }
            false
        }
    }
}

/// Items that appear more than once are owned as one, without what is in them.
fn collect_items(list: ListForm<'_>, value: &Value, into: &mut FieldSet) {
    let mut items: BTreeMap<PathElement, Vec<&Value>> = BTreeMap::new();
    for (element, item) in elements(list, Some(value)) {
        items.entry(element).or_default().push(item);
    }
    for (element, items) in items {
        let mut below = FieldSet::default();
        if let [item] = items[..] {
            collect(list.items, item, &mut below);
        }
        add(into, &element, true, below);
    }
}

fn add(into: &mut FieldSet, element: &PathElement, own: bool, below: FieldSet) {
    if own {
        into.add_member(element.clone());
    }
    if !below.is_empty() {
        into.add_child(element.clone(), below);
    }
}

/// The items of an associative list with their names; what can't be named is left out.
fn elements<'v>(
    list: ListForm<'_>,
    value: Option<&'v Value>,
) -> impl Iterator<Item = (PathElement, &'v Value)> {
    let items = value.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(move |item| Some((list.element(item).ok()?, item)))
}

/// What differs between two values. No field is in two of the sets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    /// Fields of the old value only.
    pub removed: FieldSet,
    /// Fields of both that differ.
    pub modified: FieldSet,
    /// Fields of the new value only.
    pub added: FieldSet,
}

impl Comparison {
    /// Whether both values are equal.
    pub fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.modified.is_empty() && self.added.is_empty()
    }

    /// Leaves these fields, and all below them, out.
    pub fn without(self, fields: &FieldSet) -> Self {
        Self {
            removed: self.removed.recursive_difference(fields),
            modified: self.modified.recursive_difference(fields),
            added: self.added.recursive_difference(fields),
        }
    }

    /// Leaves these fields out, but not those below them.
    pub(super) fn difference(self, fields: &FieldSet) -> Self {
        Self {
            removed: self.removed.difference(fields),
            modified: self.modified.difference(fields),
            added: self.added.difference(fields),
        }
    }

    fn add(&mut self, element: impl FnOnce() -> PathElement, marks: Marks, below: Comparison) {
        if marks == Marks::default() && below.is_empty() {
            return;
        }
        let element = element();
        add(&mut self.removed, &element, marks.removed, below.removed);
        add(&mut self.modified, &element, marks.modified, below.modified);
        add(&mut self.added, &element, marks.added, below.added);
    }
}

/// In which sets of a [`Comparison`] a node itself is.
#[derive(Clone, Copy, Default, PartialEq)]
struct Marks {
    removed: bool,
    modified: bool,
    added: bool,
}

/// Compares two values.
pub(super) fn differences(old: &Value, new: &Value, shape: Shape<'_>) -> Comparison {
    let mut result = Comparison::default();
    walk(shape, Some(old), Some(new), &mut result);
    result
}

fn walk(shape: Shape<'_>, old: Option<&Value>, new: Option<&Value>, into: &mut Comparison) -> Marks {
    // Most of two versions of an object is equal: plain equality is much cheaper than the walk that it saves.
    if old == new {
        return Marks::default();
    }
    let (form, other) = shape.forms(old, new);
    let marks = walk_as(form, old, new, into);
    match other.map(|form| walk_as(form, old, new, into)) {
        None => marks,
        Some(more) => Marks {
            removed: marks.removed || more.removed,
            modified: marks.modified || more.modified,
            added: marks.added || more.added,
        },
    }
}

fn walk_as(form: Form<'_>, old: Option<&Value>, new: Option<&Value>, into: &mut Comparison) -> Marks {
    match form {
        Form::Scalar(_) => return leaf(old, new),
        Form::Map(map) => {
            if map.atomic || (entries(old) == 0 && entries(new) == 0) {
                return leaf(old, new);
            }
            walk_fields(map, old.and_then(Value::as_object), new.and_then(Value::as_object), into);
        }
        Form::List(list) => {
            if matches!(list.relation, Relation::Atomic) || (items(old) == 0 && items(new) == 0) {
                return leaf(old, new);
            }
            walk_items(list, old, new, into);
        }
    }
    Marks { removed: new.is_none(), modified: false, added: old.is_none() }
}

fn entries(value: Option<&Value>) -> usize {
    value.and_then(Value::as_object).map_or(0, Map::len)
}

fn items(value: Option<&Value>) -> usize {
    value.and_then(Value::as_array).map_or(0, Vec::len)
}

fn leaf(old: Option<&Value>, new: Option<&Value>) -> Marks {
    let modified = old.zip(new).is_some_and(|(old, new)| !same(old, new));
    Marks { removed: new.is_none(), modified, added: old.is_none() }
}

fn walk_fields(map: MapForm<'_>, old: Option<&Map>, new: Option<&Map>, into: &mut Comparison) {
    let mut visit = |name: &str, old: Option<&Value>, new: Option<&Value>| {
        let mut below = Comparison::default();
        let marks = walk(map.child(name).unwrap_or(Shape::Deduced), old, new, &mut below);
        into.add(|| PathElement::field(name), marks, below);
    };
    for (name, value) in old.into_iter().flatten() {
        visit(name, Some(value), new.and_then(|new| new.get(name)));
    }
    for (name, value) in new.into_iter().flatten() {
        if old.is_none_or(|old| !old.contains_key(name)) {
            visit(name, None, Some(value));
        }
    }
}

fn walk_items(list: ListForm<'_>, old: Option<&Value>, new: Option<&Value>, into: &mut Comparison) {
    let mut both: BTreeMap<PathElement, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
    for (element, item) in elements(list, old) {
        both.entry(element).or_default().0.push(item);
    }
    for (element, item) in elements(list, new) {
        both.entry(element).or_default().1.push(item);
    }
    for (element, (old, new)) in both {
        let mut below = Comparison::default();
        let marks = walk_item(list.items, &old, &new, &mut below);
        into.add(|| element, marks, below);
    }
}

/// Compares the items of one name. Those that appear several times are one value; when they begin or cease to, the
/// single item's fields go or come besides.
fn walk_item(shape: Shape<'_>, old: &[&Value], new: &[&Value], into: &mut Comparison) -> Marks {
    match (old, new) {
        ([] | [_], [] | [_]) => walk(shape, old.first().copied(), new.first().copied(), into),
        ([_, _, ..], [_, _, ..]) => {
            let equal = old.len() == new.len() && old.iter().zip(new).all(|(old, new)| same(old, new));
            Marks { modified: !equal, ..Marks::default() }
        }
        ([_, _, ..], _) => {
            let single = new.first().map(|new| walk(shape, None, Some(new), into));
            Marks { removed: true, ..single.unwrap_or_default() }
        }
        (_, [_, _, ..]) => {
            let single = old.first().map(|old| walk(shape, Some(old), None, into));
            Marks { added: true, ..single.unwrap_or_default() }
        }
    }
}

/// A set besides the named fields (of structs, not keys of maps) that lead to its fields.
pub(super) fn with_named_parents(set: &FieldSet, shape: Shape<'_>) -> FieldSet {
    let mut full = FieldSet::default();
    let (members, children) = set.clone().into_parts();
    members.into_iter().for_each(|member| full.add_member(member));
    for (element, below) in children {
        if shape.names(&element) {
            full.add_member(element.clone());
        }
        let inner = with_named_parents(&below, shape.below(&element).unwrap_or(Shape::Deduced));
        full.add_child(element, inner);
    }
    full
}

/// A set as the schema of today has it: what is below a list or map that has become atomic is replaced by the list or
/// map itself. `None` where nothing changes.
pub(super) fn reconciled(set: &FieldSet, shape: Shape<'_>) -> Option<FieldSet> {
    let mut changes = Vec::new();
    for (element, below) in set.children() {
        let Some(inner) = shape.below(element).filter(|inner| !matches!(inner, Shape::Deduced)) else {
            continue;
        };
        if inner.is_atomic() {
            changes.push((element, None));
        } else if let Some(below) = reconciled(below, inner) {
            changes.push((element, Some(below)));
        }
    }
    if changes.is_empty() {
        return None;
    }
    let mut gone = FieldSet::default();
    changes.iter().for_each(|(element, _)| gone.add_member((*element).clone()));
    let mut result = FieldSet::default();
    let (members, children) = set.clone().into_parts();
    members.into_iter().for_each(|member| result.add_member(member));
    for (element, below) in children.into_iter().filter(|(element, _)| !gone.has_member(element)) {
        result.add_child(element, below);
    }
    for (element, below) in changes {
        match below {
            Some(below) => result.add_child(element.clone(), below),
            None => result.add_member(element.clone()),
        }
    }
    Some(result)
}
