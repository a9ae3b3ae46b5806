//! Reading and changing parts of objects whose shape nobody has checked: nothing here panics, whatever stands there.

use freehold_machinery::{Map, Value};

static NULL: Value = Value::Null;

/// The value at a dotted path; null where it is absent.
pub fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    path.split('.').try_fold(value, |value, key| value.get(key)).unwrap_or(&NULL)
}

/// The value at a dotted path, where it is there.
pub fn at_mut<'a>(value: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    path.split('.').try_fold(value, |value, key| value.get_mut(key))
}

/// The object at a dotted path, made where it is absent. `None` where something else stands in its way.
pub fn object_mut<'a>(value: &'a mut Value, path: &str) -> Option<&'a mut Map> {
    let found = path.split('.').try_fold(value, |value, key| {
        let map = value.as_object_mut()?;
        Some(map.entry(key).or_insert_with(|| Value::Object(Map::new())))
    });
    found?.as_object_mut()
}

/// The text at a dotted path; empty where it is absent.
pub fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    at(value, path).as_str().unwrap_or_default()
}

/// The items of the list at a dotted path.
pub fn list<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    at(value, path).as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The items of the list at a dotted path, to change them.
pub fn list_mut<'a>(value: &'a mut Value, path: &str) -> impl Iterator<Item = &'a mut Value> {
    at_mut(value, path).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Whether a value counts as absent: null, false, zero, or without content.
pub fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Bool(true) => false,
    }
}

/// Sets a field of the object at a dotted path, where both are absent.
pub fn fill(value: &mut Value, path: &str, field: &str, default: impl Into<Value>) {
    if let Some(map) = object_mut(value, path)
        && map.get(field).is_none_or(Value::is_null)
    {
        map.insert(field.to_owned(), default.into());
    }
}
