//! Reading and writing objects of which nothing is certain but that they are JSON.

use freehold_machinery::{Map, Value};

/// A string at a JSON pointer; empty where there is none.
pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The items of a list at a JSON pointer.
pub(crate) fn items<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// The list in a field, made where it is absent. `None` where something else stands there.
pub(crate) fn list_mut<'a>(value: &'a mut Value, field: &str) -> Option<&'a mut Vec<Value>> {
    let slot = value.as_object_mut()?.entry(field).or_insert(Value::Null);
    if slot.is_null() {
        *slot = Value::Array(Vec::new());
    }
    slot.as_array_mut()
}

/// The object in a field, made where it is absent. `None` where something else stands there.
pub(crate) fn map_mut<'a>(value: &'a mut Value, field: &str) -> Option<&'a mut Map> {
    let slot = value.as_object_mut()?.entry(field).or_insert(Value::Null);
    if slot.is_null() {
        *slot = Value::Object(Map::new());
    }
    slot.as_object_mut()
}

/// One problem as it is, several in brackets, as Kubernetes' aggregated errors read.
pub(crate) fn aggregate(errors: Vec<String>) -> Option<String> {
    match errors.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("[{}]", many.join(", "))),
    }
}
