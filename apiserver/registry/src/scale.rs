//! The scale subresource: an `autoscaling/v1` Scale over the paths that a type declares.

use crate::Operation;
use freehold_machinery::{
    Map, Result, Status, Value, meta, resource::ScalePaths, selector::Labels, status::FieldError,
};
use serde_json::json;

/// Where a type keeps what a Scale shows; 404 where it has none.
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

/// The Scale of an object, for who asks for it; 500 for a custom resource that does not say how many it wants.
pub(crate) fn get(op: &Operation, object: &Value) -> Result<Value> {
    let path = &paths(op)?.spec_replicas;
    if op.ty.custom && lookup(object, path).is_none() {
        return Err(Status::internal(format!("the spec replicas field {path:?} does not exist")));
    }
    read(op, object)
}

/// What is wrong about the numbers and the selector of a custom resource that can be scaled; of its status alone where
/// that is what is written.
pub(crate) fn check(op: &Operation, object: &Value) -> Vec<FieldError> {
    let Ok(paths) = paths(op) else { return Vec::new() };
    let number = |path: &str| {
        let wrong = |value: i64, detail: String| Some(FieldError::invalid(path, value.into(), detail));
        match lookup(object, path) {
            None => None,
            Some(value) => match value.as_i64() {
                Some(number) if number < 0 => wrong(number, "should be a non-negative integer".to_owned()),
                Some(number) if number > i64::from(i32::MAX) => {
                    wrong(number, format!("should be less than or equal to {}", i32::MAX))
                }
                Some(_) => None,
                None => wrong(0, unfit(path, value, "int64")),
            },
        }
    };
    let spec = number(&paths.spec_replicas).filter(|_| op.subresource.as_deref() != Some("status"));
    let selector = paths.label_selector.as_deref().and_then(|path| {
        let value = lookup(object, path).filter(|value| !value.is_string())?;
        Some(FieldError::invalid(path, "".into(), unfit(path, value, "string")))
    });
    spec.into_iter().chain(number(&paths.status_replicas)).chain(selector).collect()
}

/// That a value is of another type, in the words of Kubernetes' unstructured objects.
fn unfit(path: &str, value: &Value, wanted: &str) -> String {
    let (given, shown) = match value {
        Value::Null => ("<nil>", "<nil>".to_owned()),
        Value::Bool(value) => ("bool", value.to_string()),
        Value::Number(value) => (if value.is_i64() { "int64" } else { "float64" }, value.to_string()),
        Value::String(value) => ("string", value.clone()),
        Value::Array(_) => ("[]interface {}", value.to_string()),
        Value::Object(_) => ("map[string]interface {}", value.to_string()),
    };
    format!("{path} accessor error: {shown} is of the type {given}, expected {wanted}")
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

/// An object as owners of its replicas are told: a Scale says nothing of none, so that who scales to none removes what
/// others own, and who scales up from none adds it.
pub(crate) fn as_owned(op: &Operation, object: &Value) -> Result<Value> {
    let path = &paths(op)?.spec_replicas;
    let mut owned = object.clone();
    if lookup(object, path).and_then(Value::as_i64) == Some(0) {
        let (parents, field) = path.rsplit_once('.').unwrap_or(("", path));
        let mut keys = parents.split('.').filter(|key| !key.is_empty());
        let parent = keys.try_fold(&mut owned, |value, key| value.get_mut(key));
        parent.and_then(Value::as_object_mut).map(|parent| parent.remove(field));
    }
    Ok(owned)
}

/// Removes the times of updates through `scale`: kube-apiserver keeps none, since a Scale has no managed fields of its own.
pub(crate) fn drop_times(managed: &mut Value) {
    let scaled = |entry: &&mut Value| entry["subresource"] == "scale" && entry["operation"] == "Update";
    for entry in managed.as_array_mut().into_iter().flatten().filter(scaled) {
        entry.as_object_mut().map(|entry| entry.remove("time"));
    }
}

/// Writes a Scale back into its object.
pub(crate) fn write(op: &Operation, object: &Value, scale: &Value) -> Result<Value> {
    let paths = paths(op)?;
    let wanted = scale["spec"].get("replicas").and_then(Value::as_i64).unwrap_or(0);
    if wanted < 0 && !op.ty.custom {
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
