//! The errors of `runtime.FromUnstructured`, which makes structs of what a strategic merge patch gives.

use crate::{
    Value,
    schema::{Kind, Schema},
};

/// What keeps a merged object from being one of its kind; `None` where nothing does.
pub fn unrestorable(value: &Value, schema: &Schema) -> Option<String> {
    // Types that read themselves are told when the object is read.
    if value.is_null() || schema.int_or_string || is_raw(schema) {
        return None;
    }
    match (schema.kind?, value) {
        (Kind::Object, Value::Object(map)) => map.iter().find_map(|(name, field)| {
            unrestorable(field, schema.properties.get(name.as_str()).or(schema.additional.as_ref())?)
        }),
        (Kind::Object, other) if schema.additional.is_some() => {
            Some(format!("cannot restore map from {}", go_kind(other)))
        }
        (Kind::Object, other) => Some(format!("cannot restore struct from: {}", go_kind(other))),
        (Kind::Array, Value::Array(list)) => {
            let items = schema.items.as_ref()?;
            list.iter().find_map(|item| unrestorable(item, items))
        }
        (Kind::Array, other) => Some(format!("cannot restore slice from {}", go_kind(other))),
        (Kind::String, Value::String(_)) | (Kind::Boolean, Value::Bool(_)) => None,
        (Kind::Integer | Kind::Number, Value::Number(_)) => None,
        (Kind::String, _) if schema.format.as_deref() == Some("date-time") => None,
        (Kind::String, other) if schema.format.as_deref() == Some("byte") => {
            Some(format!("cannot restore slice from {}", go_kind(other)))
        }
        (_, other) => {
            Some(format!("cannot convert {} to {}", go_kind(other), super::decode::go_type(schema)))
        }
    }
}

fn is_raw(schema: &Schema) -> bool {
    schema.kind == Some(Kind::Object) && schema.properties.is_empty() && schema.additional.is_none()
}

fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_merge_made_is_told_in_kubernetes_words() {
        let schema = crate::schema::object_meta();
        let rows = [
            (json!({"labels": 3}), "cannot restore map from int64"),
            (json!({"finalizers": {"a": "b"}}), "cannot restore slice from map"),
            (json!({"name": true}), "cannot convert bool to string"),
        ];
        for (value, expected) in rows {
            assert_eq!(unrestorable(&value, &schema).as_deref(), Some(expected));
        }
        assert_eq!(unrestorable(&json!({"labels": {"a": "b"}, "finalizers": null}), &schema), None);
    }
}
