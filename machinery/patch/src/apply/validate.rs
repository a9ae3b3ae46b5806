//! Whether a configuration can be applied at all: it must fit its schema, and no list may have an item twice.

use super::{
    element::PathElement,
    shape::{Form, ListForm, MapForm, Relation, Scalar, Shape},
};
use freehold_machinery::Value;
use std::collections::BTreeSet;

/// The most problems that are told.
const MAX_ERRORS: usize = 32;

/// Checks a configuration; the error lists the problems as structured-merge-diff words them.
pub(super) fn check(value: &Value, shape: Shape<'_>) -> Result<(), String> {
    let mut errors = Vec::new();
    walk(value, shape, &mut Vec::new(), &mut errors);
    errors.sort();
    match &errors[..] {
        [] => Ok(()),
        [one] => Err(one.clone()),
        many => Err(many.iter().fold("errors:".to_owned(), |text, error| text + "\n  " + error)),
    }
}

/// Whether an item of a list has none of the keys by which its list tells items apart.
pub(super) fn lacks_keys(value: &Value, shape: Shape<'_>) -> bool {
    match (shape.form(Some(value)), value) {
        (Form::Map(form), Value::Object(map)) if !form.atomic => {
            map.iter().any(|(name, value)| form.child(name).is_some_and(|shape| lacks_keys(value, shape)))
        }
        (Form::List(form), Value::Array(items)) if !matches!(form.relation, Relation::Atomic) => {
            let keyed = matches!(form.relation, Relation::Keyed(_));
            items.iter().any(|item| keyed && form.element(item).is_err() || lacks_keys(item, form.items))
        }
        _ => false,
    }
}

/// Whether something in it is of another type than its schema says.
pub(super) fn misfits(value: &Value, shape: Shape<'_>) -> bool {
    match (shape.form(Some(value)), value) {
        (_, Value::Null) => false,
        (Form::Map(form), Value::Object(map)) => {
            map.iter().any(|(name, value)| form.child(name).is_some_and(|shape| misfits(value, shape)))
        }
        (Form::List(form), Value::Array(items)) => items.iter().any(|item| misfits(item, form.items)),
        (Form::Map(_) | Form::List(_), _) => true,
        (Form::Scalar(scalar), _) => misfit(scalar, value).is_some(),
    }
}

fn walk(value: &Value, shape: Shape<'_>, path: &mut Vec<PathElement>, errors: &mut Vec<String>) {
    if value.is_null() || errors.len() >= MAX_ERRORS {
        return;
    }
    match (shape.form(Some(value)), value) {
        (Form::Map(form), Value::Object(map)) => {
            for (name, value) in map {
                walk_field(name, value, form, path, errors);
            }
        }
        (Form::List(form), Value::Array(items)) => walk_items(items, form, path, errors),
        (Form::Map(_), other) => report(path, format!("expected map, got &{{{}}}", go(other)), errors),
        (Form::List(_), other) => report(path, format!("expected list, got &{{{}}}", go(other)), errors),
        (Form::Scalar(scalar), _) => {
            if let Some(problem) = misfit(scalar, value) {
                report(path, problem, errors);
            }
        }
    }
}

fn walk_field(
    name: &str,
    value: &Value,
    form: MapForm<'_>,
    path: &mut Vec<PathElement>,
    errors: &mut Vec<String>,
) {
    path.push(PathElement::field(name));
    match form.child(name) {
        Some(shape) => walk(value, shape, path, errors),
        None => report(path, "field not declared in schema".to_owned(), errors),
    }
    path.pop();
}

fn walk_items(items: &[Value], form: ListForm<'_>, path: &mut Vec<PathElement>, errors: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for (i, item) in items.iter().enumerate() {
        let element = match form.relation {
            Relation::Atomic => PathElement::Index(i),
            Relation::Set | Relation::Keyed(_) => match form.element(item) {
                Ok(element) => element,
                Err(problem) => {
                    return report(path, format!("element {i}: {}", explained(problem, form)), errors);
                }
            },
        };
        if !matches!(form.relation, Relation::Atomic) && !seen.insert(element.clone()) {
            report(path, format!("duplicate entries for key {element}"), errors);
        }
        path.push(element);
        walk(item, form.items, path, errors);
        path.pop();
    }
}

fn explained(problem: &str, form: ListForm<'_>) -> String {
    match form.relation {
        Relation::Keyed(keys) if problem.ends_with("omits all key fields") => {
            let keys: Vec<String> = keys.iter().map(|key| format!("{key:?}")).collect();
            format!("{problem} [{}] (and doesn't have default values for any key fields)", keys.join(" "))
        }
        _ => problem.to_owned(),
    }
}

fn misfit(scalar: Scalar, value: &Value) -> Option<String> {
    match (scalar, value) {
        (Scalar::Number, Value::Number(_))
        | (Scalar::String, Value::String(_))
        | (Scalar::Boolean, Value::Bool(_))
        | (Scalar::Any, Value::Number(_) | Value::String(_) | Value::Bool(_)) => None,
        (Scalar::Number, _) => Some(format!("expected numeric (int or float), got {}", go_type(value))),
        (Scalar::String, _) => {
            Some(format!("expected string, got &value.valueUnstructured{{Value:{value}}}"))
        }
        (Scalar::Boolean, _) => Some(format!("expected boolean, got &{{{}}}", go(value))),
        (Scalar::Any, _) => Some(format!("expected any scalar, got &{{{}}}", go(value))),
    }
}

fn report(path: &[PathElement], problem: String, errors: &mut Vec<String>) {
    let path: String = path.iter().map(ToString::to_string).collect();
    errors.push(if path.is_empty() { problem } else { format!("{path}: {problem}") });
}

/// A value as Go prints it with `%v`.
fn go(value: &Value) -> String {
    crate::words::go_text(value)
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
