//! The scale subresource: an `autoscaling/v1` Scale over the paths that a type declares.

use crate::Operation;
use freehold_machinery::{
    Map, Result, Status, Value, meta, resource::ScalePaths, selector::Labels, status::FieldError,
};
use serde_json::json;

fn paths(op: &Operation) -> Result<&ScalePaths> {
    let sub = op.ty.subresource("scale").ok_or_else(Status::no_such_resource)?;
    sub.scale.as_ref().ok_or_else(Status::no_such_resource)
}

fn lookup<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').filter(|key| !key.is_empty()).try_fold(object, |value, key| value.get(key))
}

/// The selector as a string, wherever the type keeps it: as a string, as a label selector or as a plain map.
fn selector(object: &Value, path: &str) -> String {
    match lookup(object, path) {
        Some(Value::String(text)) => text.clone(),
        Some(value @ Value::Object(map)) => {
            let plain = !map.contains_key("matchLabels") && !map.contains_key("matchExpressions");
            let value = if plain { json!({"matchLabels": map}) } else { value.clone() };
            Labels::from_value(&value).map(|labels| labels.to_string()).unwrap_or_default()
        }
        _ => String::new(),
    }
}

/// The Scale of an object.
pub(crate) fn read(op: &Operation, object: &Value) -> Result<Value> {
    let paths = paths(op)?;
    let mut metadata = Map::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object["metadata"].get(field) {
            metadata.insert(field.to_owned(), value.clone());
        }
    }
    let number = |path: &str| lookup(object, path).and_then(Value::as_i64).unwrap_or(0);
    let mut status = json!({"replicas": number(&paths.status_replicas)});
    let selector = paths.label_selector.as_deref().map(|path| selector(object, path)).unwrap_or_default();
    if !selector.is_empty() {
        status["selector"] = selector.into();
    }
    let wanted = number(&paths.spec_replicas);
    let spec = if wanted == 0 { json!({}) } else { json!({"replicas": wanted}) };
    Ok(
        json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status}),
    )
}

/// What an apply of a Scale applies to its object: the replicas, at their path, and nothing else.
pub(crate) fn apply_config(op: &Operation, live: &Value, scale: &Value) -> Result<Value> {
    let mut bare =
        json!({"apiVersion": op.ty.api_version(), "kind": op.ty.kind, "metadata": {"name": op.name()}});
    for field in ["namespace", "uid", "resourceVersion"] {
        let given = scale["metadata"]
            .get(field)
            .or_else(|| live["metadata"].get(field).filter(|_| field == "namespace"));
        if let Some(value) = given {
            meta::set(&mut bare, field, value.clone());
        }
    }
    write(op, &bare, scale)
}

/// Writes a Scale back into its object.
pub(crate) fn write(op: &Operation, object: &Value, scale: &Value) -> Result<Value> {
    let paths = paths(op)?;
    let wanted = scale["spec"].get("replicas").and_then(Value::as_i64).unwrap_or(0);
    if wanted < 0 {
        let detail = "must be greater than or equal to 0";
        let error = FieldError::invalid("spec.replicas", wanted.into(), detail);
        return Err(Status::invalid("autoscaling", "Scale", meta::name(object), &[error]));
    }
    let mut changed = object.clone();
    let mut place = &mut changed;
    for key in paths.spec_replicas.split('.').filter(|key| !key.is_empty()) {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        place = &mut place[key];
    }
    *place = wanted.into();
    Ok(changed)
}
