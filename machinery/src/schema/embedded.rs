//! Embedded resources: whole objects within objects (`x-kubernetes-embedded-resource`).

use super::{Schema, node::MAX_ERRORS};
use crate::{GroupVersion, Map, Value, names, status::FieldError};
use std::fmt::Write;

/// Checks type and metadata of each object that is embedded in a value.
pub(super) fn check(value: &Value, schema: &Schema) -> Vec<FieldError> {
    check_at(value, schema, "")
}

/// Checks type and metadata of each object that is embedded in the value at `path`.
pub(super) fn check_at(value: &Value, schema: &Schema, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(value, schema, &mut path.to_owned(), &mut errors);
    errors
}

/// Why the metadata of an embedded object can't be read.
pub fn unreadable(value: &Value, schema: &Schema) -> Option<String> {
    unreadable_at(value, schema, &mut String::new())
}

fn unreadable_at(value: &Value, schema: &Schema, path: &mut String) -> Option<String> {
    let length = path.len();
    match value {
        Value::Object(map) => {
            let metadata = map.get("metadata").filter(|_| schema.embedded_resource && length > 0);
            let own = metadata.and_then(|metadata| {
                let why = crate::go::object_meta_mismatch(metadata)?;
                Some(format!("{path}.metadata: Invalid value: {}: {why}", crate::go::json(metadata)))
            });
            own.or_else(|| {
                map.iter().find_map(|(name, field)| {
                    let child = schema.properties.get(&**name).or(schema.additional.as_ref())?;
                    let dot = if length == 0 { "" } else { "." };
                    unreadable_below(field, child, path, format_args!("{dot}{name}"))
                })
            })
        }
        Value::Array(list) => {
            let items = schema.items.as_ref()?;
            list.iter()
                .enumerate()
                .find_map(|(index, item)| unreadable_below(item, items, path, format_args!("[{index}]")))
        }
        _ => None,
    }
}

fn unreadable_below(
    value: &Value,
    schema: &Schema,
    path: &mut String,
    step: std::fmt::Arguments<'_>,
) -> Option<String> {
    let length = path.len();
    path.write_fmt(step).expect("writing to a string does not fail");
    let found = unreadable_at(value, schema, path);
    path.truncate(length);
    found
}

fn walk(value: &Value, schema: &Schema, path: &mut String, errors: &mut Vec<FieldError>) {
    let length = path.len();
    match value {
        Value::Object(map) => {
            if schema.embedded_resource && length > 0 && errors.len() * length < MAX_ERRORS {
                errors.extend(check_object(map, path));
            }
            for (name, field) in map {
                let dot = if length == 0 { "" } else { "." };
                let (step, child) = match (schema.properties.get(&**name), &schema.additional) {
                    (Some(child), _) => (format!("{dot}{name}"), child),
                    (None, Some(child)) => (format!("[{name}]"), child),
                    (None, None) => continue,
                };
                path.push_str(&step);
                walk(field, child, path, errors);
                path.truncate(length);
            }
        }
        Value::Array(list) => {
            let Some(items) = &schema.items else { return };
            for (index, item) in list.iter().enumerate() {
                write!(path, "[{index}]").expect("writing to a string does not fail");
                walk(item, items, path, errors);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

fn check_object(map: &Map, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in ["apiVersion", "kind"] {
        let at = || format!("{path}.{field}");
        match map.get(field) {
            None => errors.push(FieldError::required(at(), "")),
            Some(Value::String(text)) if text.is_empty() => {
                errors.push(FieldError::invalid(at(), "".into(), "must not be empty"));
            }
            Some(Value::String(text)) => {
                errors.extend(wrong(field, text).map(|d| FieldError::invalid(at(), text.as_str().into(), d)))
            }
            Some(other) => errors.push(FieldError::invalid(at(), other.clone(), "must be a string")),
        }
    }
    if let Some(meta) = map.get("metadata").and_then(Value::as_object) {
        let wrong = names::validate_embedded_metadata(meta, "metadata");
        errors.extend(
            wrong.into_iter().map(|error| FieldError { field: format!("{path}.{}", error.field), ..error }),
        );
    }
    errors
}

fn wrong(field: &str, text: &str) -> Option<String> {
    if field == "apiVersion" {
        return GroupVersion::parse(text)
            .is_none()
            .then(|| format!("unexpected GroupVersion string: {text}"));
    }
    let messages = names::dns1035_label(&text.to_lowercase());
    (!messages.is_empty())
        .then(|| format!("may have mixed case, but should otherwise match: {}", messages.join(",")))
}
