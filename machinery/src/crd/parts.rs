//! Parts of a definition, whatever is wrong with it.

use crate::{Map, Value};

/// `status`, made where it is absent.
pub(super) fn status_mut(crd: &mut Value) -> &mut Map {
    if !crd["status"].is_object() {
        crd["status"] = Value::Object(Map::new());
    }
    crd["status"].as_object_mut().expect("made an object above")
}

pub(super) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or("")
}

pub(super) fn flag(value: &Value, field: &str) -> bool {
    value.get(field) == Some(&Value::Bool(true))
}

pub(super) fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The value of a field that is given and not null.
pub(super) fn given<'a>(value: &'a Value, field: &str) -> Option<&'a Value> {
    value.get(field).filter(|v| !v.is_null())
}

pub(super) fn strings(value: &Value, field: &str) -> Vec<String> {
    list(value, field).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

pub(super) fn versions(crd: &Value) -> &[Value] {
    crd.get("spec").map(|spec| list(spec, "versions")).unwrap_or_default()
}
