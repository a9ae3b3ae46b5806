//! Reading and writing `metadata` of an object that is a [`Value`].

use crate::{Map, Value};

/// `metadata` of an object, if it is one.
pub fn metadata(object: &Value) -> Option<&Map> {
    object.get("metadata")?.as_object()
}

/// `metadata` of an object, made where it is absent. Anything else that stands there is replaced.
pub fn metadata_mut(object: &mut Value) -> &mut Map {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let map = object.as_object_mut().expect("made an object above");
    let meta = map.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if !meta.is_object() {
        *meta = Value::Object(Map::new());
    }
    meta.as_object_mut().expect("made an object above")
}

/// A string field of `metadata`; empty where it is absent.
pub fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    metadata(object).and_then(|m| m.get(field)).and_then(Value::as_str).unwrap_or("")
}

/// Returns `metadata.name`; empty where absent.
pub fn name(object: &Value) -> &str {
    text(object, "name")
}

/// `metadata.namespace`, empty for cluster-scoped objects.
pub fn namespace(object: &Value) -> &str {
    text(object, "namespace")
}

/// Returns `metadata.uid`; empty where absent.
pub fn uid(object: &Value) -> &str {
    text(object, "uid")
}

/// Returns `metadata.resourceVersion`; empty where absent.
pub fn resource_version(object: &Value) -> &str {
    text(object, "resourceVersion")
}

/// Whether `metadata.deletionTimestamp` is set.
pub fn is_deleting(object: &Value) -> bool {
    !text(object, "deletionTimestamp").is_empty()
}

/// Returns `metadata.finalizers`; empty where absent.
pub fn finalizers(object: &Value) -> Vec<&str> {
    metadata(object)
        .and_then(|m| m.get("finalizers"))
        .and_then(Value::as_array)
        .map(|list| list.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default()
}

/// The value of a label, where the object has it.
pub fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    metadata(object)?.get("labels")?.get(key)?.as_str()
}

/// The value of an annotation, where the object has it.
pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    metadata(object)?.get("annotations")?.get(key)?.as_str()
}

/// Sets a field of `metadata`.
pub fn set(object: &mut Value, field: &str, value: impl Into<Value>) {
    metadata_mut(object).insert(field.to_owned(), value.into());
}

/// Removes a field of `metadata`.
pub fn remove(object: &mut Value, field: &str) {
    metadata_mut(object).remove(field);
}
