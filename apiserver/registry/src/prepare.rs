//! What the server alone writes in an object: identity, times, generation, and which parts a request may touch.

use crate::{
    Operation,
    strategy::{self, StatusMetadata},
};
use freehold_machinery::{ResourceType, Result, Status, Value, meta};
use jiff::Timestamp;
use uuid::Uuid;

/// Characters of a generated name; no vowels, so that no words come about.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// The longest `generateName` that is kept whole.
const MAX_PREFIX: usize = 58;

/// Now, as objects spell it.
pub(crate) fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// `metadata.name` from `metadata.generateName`.
pub(crate) fn generate_name(prefix: &str) -> String {
    let random = Uuid::new_v4();
    let suffix = random.as_bytes()[..5].iter().map(|b| ALPHABET[usize::from(*b) % ALPHABET.len()] as char);
    let end = prefix.char_indices().nth(MAX_PREFIX).map_or(prefix.len(), |(at, _)| at);
    prefix[..end].chars().chain(suffix).collect()
}

/// Checks that the body is of the type and namespace that the URL names.
pub(crate) fn check_body(op: &Operation, body: &mut Value, kind: &str, api_version: &str) -> Result<()> {
    if !body.is_object() {
        let what = format!(
            "couldn't get version/kind; json parse error: cannot unmarshal {} into an object",
            type_of(body)
        );
        return Err(Status::bad_request(what));
    }
    for (field, expected) in [("apiVersion", api_version), ("kind", kind)] {
        let given = body.get(field).and_then(Value::as_str).unwrap_or("").to_owned();
        if given.is_empty() && !op.ty.custom {
            body[field] = expected.into();
        } else if given.is_empty() {
            return Err(Status::bad_request(format!(
                "Object '{}' is missing in 'unstructured'",
                capital(field)
            )));
        } else if given != expected {
            let what = if field == "kind" { "kind" } else { "API version" };
            return Err(Status::bad_request(format!(
                "the {what} in the data ({given}) does not match the expected {what} ({expected})"
            )));
        }
    }
    check_namespace(op, body)
}

fn capital(field: &str) -> &str {
    if field == "kind" { "Kind" } else { "apiVersion" }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "bool",
        Value::Null => "null",
        Value::Object(_) => "object",
    }
}

/// Checks that the body's namespace is that of the URL, and fills it in.
pub(crate) fn check_namespace(op: &Operation, body: &mut Value) -> Result<()> {
    let given = meta::namespace(body).to_owned();
    match (&op.namespace, given.is_empty()) {
        (Some(namespace), true) if op.ty.namespaced => meta::set(body, "namespace", namespace.clone()),
        (Some(namespace), false) if op.ty.namespaced && *namespace != given => {
            return Err(Status::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        (None, false) if !op.ty.namespaced => meta::remove(body, "namespace"),
        _ => {}
    }
    Ok(())
}

/// Fills in what a new object gets from the server.
pub(crate) fn for_create(ty: &ResourceType, object: &mut Value, now: &str) {
    let metadata = meta::metadata_mut(object);
    for field in
        ["selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion", "generation"]
    {
        metadata.remove(field);
    }
    metadata.insert("uid".into(), Uuid::new_v4().to_string().into());
    metadata.insert("creationTimestamp".into(), now.into());
    if ty.generation {
        metadata.insert("generation".into(), 1.into());
    }
    if ty.has_status()
        && let Some(map) = object.as_object_mut()
    {
        map.remove("status");
    }
}

/// Fields of `metadata` that only the server writes.
const SYSTEM: [&str; 7] = [
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
    "generateName",
];

/// Fields of `metadata` that clients write.
const METADATA: [&str; 4] = ["labels", "annotations", "finalizers", "ownerReferences"];

/// Keeps from the live object what this request may not change, and counts its generation.
pub(crate) fn for_update(op: &Operation, object: &mut Value, live: &Value) {
    for field in SYSTEM {
        let metadata = meta::metadata_mut(object);
        let kept = live["metadata"].get(field);
        match kept {
            Some(value) => drop(metadata.insert(field.to_owned(), value.clone())),
            None => drop(metadata.remove(field)),
        }
    }
    match op.subresource.as_deref() {
        Some("status") => keep_all_but_status(op, object, live),
        Some("finalize") => {
            let finalizers = object["spec"]["finalizers"].take();
            let version = object["metadata"]["resourceVersion"].take();
            *object = live.clone();
            object["spec"]["finalizers"] =
                if finalizers.is_null() { Value::Array(Vec::new()) } else { finalizers };
            if version.is_string() {
                meta::set(object, "resourceVersion", version);
            }
        }
        Some(_) => {}
        None if op.ty.has_status() => copy_field(object, live, "status"),
        None => {}
    }
    if op.ty.generation && changed_outside_metadata(object, live, op.ty.has_status()) {
        let next = live["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
        meta::set(object, "generation", next);
    }
}

fn copy_field(object: &mut Value, from: &Value, field: &str) {
    let Some(map) = object.as_object_mut() else { return };
    match from.get(field) {
        Some(value) => drop(map.insert(field.to_owned(), value.clone())),
        None => drop(map.remove(field)),
    }
}

fn keep_all_but_status(op: &Operation, object: &mut Value, live: &Value) {
    let mut kept = live.clone();
    copy_field(&mut kept, object, "status");
    let changes = |field: &&&str| match strategy::of(&op.ty).status_metadata {
        StatusMetadata::All => true,
        StatusMetadata::AllBut(fields) => !fields.contains(field),
        StatusMetadata::Nothing => false,
    };
    for field in METADATA.iter().filter(changes) {
        copy_field(&mut kept["metadata"], &object["metadata"], field);
    }
    for field in ["managedFields", "resourceVersion"] {
        if let Some(value) = object["metadata"].get(field) {
            meta::set(&mut kept, field, value.clone());
        }
    }
    *object = kept;
}

fn changed_outside_metadata(object: &Value, live: &Value, has_status: bool) -> bool {
    let relevant = |value: &Value, key: &str| {
        let skipped = key == "metadata" || (has_status && key == "status");
        if skipped { None } else { value.get(key).cloned() }
    };
    let keys =
        |value: &Value| value.as_object().map(|m| m.keys().cloned().collect::<Vec<_>>()).unwrap_or_default();
    keys(object).iter().chain(&keys(live)).any(|key| relevant(object, key) != relevant(live, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_name_is_its_prefix_and_five_characters() {
        let name = generate_name("web-");
        assert!(name.starts_with("web-") && name.len() == 9, "{name}");
        assert_eq!(generate_name(&"x".repeat(80)).len(), 63);
        assert_ne!(generate_name("a"), generate_name("a"));
    }
}
