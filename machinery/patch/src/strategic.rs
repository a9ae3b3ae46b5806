//! Strategic merge patch, as `k8s.io/apimachinery/pkg/util/strategicpatch` applies it.
//!
//! Directives: `$patch` (`replace`, `delete`), `$retainKeys`, `$setElementOrder/<list>`,
//! `$deleteFromPrimitiveList/<list>`.

use crate::list::{self, Rules};
use crate::words::go_text;
use freehold_machinery::{
    Map, Value, go,
    schema::Schema,
    status::{Result, Status},
};
use std::collections::HashSet;

/// The directive of a map or a list's item.
pub(super) const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder";
const DELETE: &str = "$deleteFromPrimitiveList";

/// Applies a strategic merge patch, which merges lists as `schema` says. Custom resources do not have it: callers
/// answer 415 for them.
///
/// # Errors
/// 400: malformed directives. 422: lists of lists. 500 without a reason, as in Kubernetes: items without their merge
/// key, items of several types in one list, unknown directives.
pub fn strategic(target: &Value, patch: &Value, schema: &Schema) -> Result<Value> {
    let Value::Object(patch) = patch else {
        let kind = go::word(patch);
        let message =
            format!("json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}");
        return Err(Status::bad_request(message));
    };
    let original = target.as_object().cloned().unwrap_or_default();
    merge_map(original, patch.clone(), Some(schema)).map(Value::Object)
}

/// An error that Kubernetes answers with 500 and no reason.
pub(super) fn failed(message: String) -> Status {
    Status::new(500, "", message)
}

pub(super) fn no_merge_key(item: &Value, key: &str) -> Status {
    failed(format!("map: {} does not contain declared merge key: {key}", go_text(item)))
}

pub(super) fn unknown_directive(directive: &Value, item: &Value) -> Status {
    failed(format!("unknown patch type: {} in map: {}", go_text(directive), go_text(item)))
}

pub(super) fn wrong_type(wanted: &str, found: &Value) -> Status {
    let found = match found {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    };
    failed(format!("expected a {wanted}, but received a {found}"))
}

fn malformed(what: &str) -> Status {
    Status::bad_request(format!("invalid patch format of {what}"))
}

/// The schema of a field, whether it is named or a key of a map.
fn field<'s>(schema: Option<&'s Schema>, name: &str) -> Option<&'s Schema> {
    let schema = schema?;
    schema.properties.get(name).or(schema.additional.as_ref()).map(|schema| &**schema)
}

/// Merges `patch` into `original`.
pub(super) fn merge_map(mut original: Map, mut patch: Map, schema: Option<&Schema>) -> Result<Map> {
    if let Some(directive) = patch.get(PATCH) {
        return match directive.as_str() {
            Some("replace") => {
                patch.retain(|key, _| key != PATCH);
                Ok(patch)
            }
            Some("delete") => Ok(Map::new()),
            _ => Err(unknown_directive(directive, &Value::Object(patch.clone()))),
        };
    }
    retain_keys(&mut original, &mut patch)?;
    order_lists(&mut original, &mut patch, schema)?;
    let (deletions, fields): (Vec<_>, Vec<_>) =
        patch.into_iter().partition(|(key, _)| key.starts_with(DELETE));
    for (key, gone) in deletions {
        let name = key[DELETE.len()..].strip_prefix('/').ok_or_else(|| malformed("primitive list"))?;
        delete_from(&mut original, name, gone, field(schema, name))?;
    }
    for (key, value) in fields {
        merge_field(&mut original, key, value, schema)?;
    }
    Ok(original)
}

/// `$retainKeys`: drops all fields that it does not list; all that the patch sets must be listed.
fn retain_keys(original: &mut Map, patch: &mut Map) -> Result<()> {
    let Some(listed) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let Value::Array(listed) = listed else { return Err(malformed("retainKeys")) };
    let listed: HashSet<&str> = listed.iter().filter_map(Value::as_str).collect();
    let exempt =
        |key: &str, value: &Value| value.is_null() || key.starts_with(DELETE) || key.starts_with(ORDER);
    if patch.iter().any(|(key, value)| !exempt(key, value) && !listed.contains(key.as_str())) {
        return Err(malformed("retainKeys"));
    }
    original.retain(|key, _| listed.contains(key.as_str()));
    Ok(())
}

/// `$setElementOrder/<list>`: merges these lists, which then come in that order.
fn order_lists(original: &mut Map, patch: &mut Map, schema: Option<&Schema>) -> Result<()> {
    let directives: Vec<String> = patch.keys().filter(|key| key.starts_with(ORDER)).cloned().collect();
    for directive in directives {
        let order = match patch.remove(&directive) {
            Some(Value::Array(order)) => order,
            other => return Err(wrong_type("[]interface {}", &other.unwrap_or_default())),
        };
        let name =
            directive[ORDER.len()..].strip_prefix('/').ok_or_else(|| malformed("setElementOrder list"))?;
        let take = |map: &mut Map| match map.remove(name) {
            None => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items)),
            Some(other) => Err(wrong_type("[]interface {}", &other)),
        };
        let (before, changes) = (take(original)?, take(patch)?);
        if before.is_none() && changes.is_none() {
            continue;
        }
        let rules = Rules::of(field(schema, name), name);
        original.insert(name.to_owned(), Value::Array(list::merge_in_order(before, changes, order, rules)?));
    }
    Ok(())
}

/// `$deleteFromPrimitiveList/<list>`: takes items out of a list.
fn delete_from(original: &mut Map, name: &str, gone: Value, schema: Option<&Schema>) -> Result<()> {
    match (original.get_mut(name), gone) {
        (Some(_), Value::Null) => drop(original.remove(name)),
        (Some(Value::Array(items)), Value::Array(gone)) => {
            *items = list::delete(std::mem::take(items), gone, Rules::of(schema, name))?;
        }
        _ => {}
    }
    Ok(())
}

fn merge_field(original: &mut Map, key: String, value: Value, schema: Option<&Schema>) -> Result<()> {
    let schema = field(schema, &key);
    let merged = match (original.get_mut(&key), value) {
        (_, Value::Null) => None,
        (Some(Value::Object(before)), Value::Object(changes)) => {
            Some(Value::Object(merge_map(std::mem::take(before), changes, schema)?))
        }
        (Some(Value::Array(before)), Value::Array(changes)) if Rules::of(schema, &key).merge => {
            Some(Value::Array(list::merge(std::mem::take(before), changes, Rules::of(schema, &key))?))
        }
        (_, value) => cleaned(value),
    };
    match merged {
        Some(merged) => original.insert(key, merged),
        None => original.remove(&key),
    };
    Ok(())
}

/// A value that is new to the object: without directives and without fields that are `null`. `None` where the value
/// itself is a directive.
pub(super) fn cleaned(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(PATCH) => None,
        Value::Object(map) => {
            let directive =
                |key: &str| key == RETAIN_KEYS || key.starts_with(ORDER) || key.starts_with(DELETE);
            let fields = map.into_iter().filter(|(key, value)| !value.is_null() && !directive(key));
            Some(fields.filter_map(|(key, value)| Some((key, cleaned(value)?))).collect())
        }
        Value::Array(items) => Some(items.into_iter().filter_map(cleaned).collect()),
        scalar => Some(scalar),
    }
}

#[cfg(test)]
mod tests;
