//! Objects that are made.

use freehold_machinery::Value;
use freehold_workflow_api::{GROUP, VERSION};
use serde::Serialize;
use serde_json::{Map, json};

/// A text field of an object; empty where there is none.
pub(crate) fn text_of<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// The name of a definition, or what its generated names begin with.
pub(crate) fn name_of(object: &Value) -> &str {
    let metadata = &object["metadata"];
    match text_of(metadata, "name") {
        "" => text_of(metadata, "generateName").trim_end_matches(['-', '.']),
        name => name,
    }
}

/// An object of ours in the namespace, and with the labels and annotations, of the definition that it comes from.
pub(crate) fn object(kind: &str, name: &str, source: &Value, spec: &impl Serialize) -> Value {
    let mut metadata = Map::new();
    metadata.insert("name".into(), name.into());
    for field in ["namespace", "labels", "annotations"] {
        if let Some(value) = source["metadata"].get(field) {
            metadata.insert(field.into(), value.clone());
        }
    }
    let spec = serde_json::to_value(spec).unwrap_or_default();
    json!({"apiVersion": format!("{GROUP}/{VERSION}"), "kind": kind, "metadata": metadata, "spec": spec})
}

/// A scalar as text.
pub(crate) fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    }
}

/// Lays `over` on top of `under`: maps are merged, everything else is replaced.
pub(crate) fn overlay(under: &Value, over: &Value) -> Value {
    let (Value::Object(under), Value::Object(over)) = (under, over) else {
        return if over.is_null() { under.clone() } else { over.clone() };
    };
    let mut merged = under.clone();
    for (key, value) in over {
        let below = merged.get(key).cloned().unwrap_or_default();
        merged.insert(key.clone(), overlay(&below, value));
    }
    Value::Object(merged)
}
