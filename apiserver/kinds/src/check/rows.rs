//! Rules as data: what must hold of the fields of an object, in the order in which Kubernetes looks at them.

use super::{
    field::{Errors, Field},
    rules::{self, NameCheck},
};
use std::collections::BTreeSet;

/// What must hold of a field. Where nothing is said of its absence, it may be absent.
pub(super) enum Rule {
    /// It is there; the words are for when it is not.
    Required(&'static str),
    /// It is a name of this form.
    Name(NameCheck),
    /// It is a name of this form, and it is there.
    RequiredName(NameCheck),
    /// It is a name of this form, and one that is not there is told with the words for an empty one.
    AlwaysName(NameCheck),
    /// It is one of these.
    OneOf(&'static [&'static str]),
    /// It is there, and one of these.
    RequiredOneOf(&'static [&'static str]),
    /// It is one of these; being absent is being something else.
    AlwaysOneOf(&'static [&'static str]),
    /// It is a number from the first to the second.
    Within(i64, i64),
    /// It is not negative.
    Nonnegative,
    /// It is more than nothing; absence is nothing.
    Positive,
    /// It is a map of labels.
    Labels,
    /// Each of its items satisfies this.
    Each(&'static [Row]),
    /// It has at most so many items. Of each holds this, and none has the same in this field (the empty one: is the same)
    /// as one before.
    Set(usize, &'static str, &'static [Row]),
    /// Something stands there, be it without content; the words are for when nothing does.
    There(&'static str),
    /// Its fields satisfy this, where it is there.
    Fields(&'static [Row]),
    /// Its fields satisfy this, also where it is not there.
    Always(&'static [Row]),
    /// Whatever else this says.
    Also(fn(&Field<'_>, &mut Errors)),
}

/// A dotted path below an object and what must hold there; the empty path is the object itself.
pub(super) type Row = (&'static str, Rule);

/// The rule of a field that must be there.
pub(super) const REQUIRED: Rule = Rule::Required("");

/// Checks an object by its rows.
pub(super) fn check(object: &Field<'_>, rows: &[Row], errors: &mut Errors) {
    for (path, rule) in rows {
        if path.is_empty() {
            apply(object, rule, errors);
        } else {
            apply(&object.get(path), rule, errors);
        }
    }
}

fn apply(field: &Field<'_>, rule: &Rule, errors: &mut Errors) {
    match rule {
        Rule::Required(words) => {
            if field.is_empty() {
                errors.push(field.required(words));
            }
        }
        Rule::Name(form) if field.is_set() => rules::name(field, *form, errors),
        Rule::RequiredName(form) => rules::required_name(field, *form, errors),
        Rule::AlwaysName(form) => rules::name(field, *form, errors),
        Rule::OneOf(supported) => rules::optional_one_of(field, supported, errors),
        Rule::RequiredOneOf(supported) => rules::one_of(field, supported, errors),
        Rule::AlwaysOneOf(supported) => {
            if !supported.contains(&field.text()) {
                errors.push(field.not_supported(supported));
            }
        }
        Rule::Within(low, high) => rules::within(field, *low, *high, errors),
        Rule::Nonnegative => rules::nonnegative(field, errors),
        Rule::Positive => {
            if field.number() <= 0 {
                errors.push(field.invalid_as(field.number(), "must be greater than zero"));
            }
        }
        Rule::Labels => rules::labels(field, errors),
        Rule::Each(rows) => field.items().for_each(|item| check(&item, rows, errors)),
        Rule::Set(most, key, rows) => {
            set(field, *most, key, errors, |item, errors| check(item, rows, errors))
        }
        Rule::There(words) => {
            if !field.is_set() {
                errors.push(field.required(words));
            }
        }
        Rule::Fields(rows) if field.is_set() => check(field, rows, errors),
        Rule::Always(rows) => check(field, rows, errors),
        Rule::Also(more) => more(field, errors),
        Rule::Name(_) | Rule::Fields(_) => {}
    }
}

/// Checks the items of a list that has at most so many, and none twice by this field.
pub(super) fn set(
    field: &Field<'_>,
    most: usize,
    key: &str,
    errors: &mut Errors,
    mut each: impl FnMut(&Field<'_>, &mut Errors),
) {
    if field.len() > most {
        return errors.push(field.too_many(most));
    }
    field.items().for_each(|item| each(&item, errors));
    let mut seen = BTreeSet::new();
    for item in field.items() {
        let text = if key.is_empty() { item.text() } else { item.get(key).text() };
        if !seen.insert(text) {
            errors.push(item.duplicate_as(text));
        }
    }
}
