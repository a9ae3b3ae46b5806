//! Reading objects of which nothing is certain but that they are JSON.

use freehold_machinery::Value;

/// A string at a JSON pointer; empty where there is none.
pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The items of a list at a JSON pointer.
pub(crate) fn items<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}
