//! Schemas of CRDs as they are published.

use super::names::META;
use crate::definitions::REF_PREFIX;
use freehold_machinery::{Map, ResourceType, Value, resource::Documentation};
use serde_json::json;

pub(super) const API_VERSION: &str = "APIVersion defines the versioned schema of this representation of an object. \
    Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. \
    More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
pub(super) const KIND: &str = "Kind is a string value representing the REST resource this object represents. Servers \
    may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const EMBEDDED_API_VERSION: &str = "apiVersion defines the versioned schema of this representation of an object. \
    More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const EMBEDDED_KIND: &str = "kind is a string value representing the type of this object. In CamelCase. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
/// The keyword that names the fields of field selectors.
pub(super) const SELECTABLE: &str = "x-kubernetes-selectable-fields";
const METADATA: &str = "Standard object's metadata. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// Keywords that OpenAPI 2 does not have.
const NOT_IN_V2: [&str; 5] = ["allOf", "anyOf", "oneOf", "not", "nullable"];

/// Keywords below which there are schemas.
const CHILDREN: [&str; 3] = ["items", "properties", "additionalProperties"];

/// The schema of a CRD's version, with the fields that each object has.
pub(super) fn published(ty: &ResourceType) -> Value {
    let mut schema = match &ty.openapi {
        Documentation::Schema(document) => document.read(),
        _ => json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
    };
    embed(&mut schema);
    complete(&mut schema, (API_VERSION, KIND));
    if !ty.selectable_fields.is_empty() {
        schema[SELECTABLE] = selectable(ty);
    }
    schema
}

/// The fields of a custom type that selectors can name (KEP-4358), as its schema and that of its lists tell them.
pub(super) fn selectable(ty: &ResourceType) -> Value {
    ty.selectable_fields.iter().map(|path| json!({"fieldPath": path})).collect()
}

/// Completes what is below a schema: embedded resources, and what is a number or a string.
fn embed(schema: &mut Value) {
    each_child(schema, &mut |child| {
        embed(child);
        let Some(map) = child.as_object_mut() else { return };
        if map.get("properties").and_then(Value::as_object).is_some_and(Map::is_empty) {
            map.remove("properties");
        }
        let is = |key: &str| map.get(key) == Some(&Value::Bool(true));
        if is("x-kubernetes-int-or-string") && !map.contains_key("anyOf") && !map.contains_key("allOf") {
            map.insert("anyOf".to_owned(), json!([{"type": "integer"}, {"type": "string"}]));
        } else if is("x-kubernetes-embedded-resource") {
            let required = map.entry("required").or_insert_with(|| json!([]));
            for field in ["kind", "apiVersion"] {
                required
                    .as_array_mut()
                    .filter(|all| !all.contains(&field.into()))
                    .into_iter()
                    .for_each(|all| all.push(field.into()));
            }
            complete(child, (EMBEDDED_API_VERSION, EMBEDDED_KIND));
        }
    });
}

/// Adds `apiVersion`, `kind` and `metadata`, the first two with what is said of them.
fn complete(schema: &mut Value, (api_version, kind): (&str, &str)) {
    let Some(map) = schema.as_object_mut() else { return };
    let properties = map.entry("properties").or_insert_with(|| json!({}));
    let Some(properties) = properties.as_object_mut() else { return };
    properties.insert("apiVersion".to_owned(), json!({"type": "string", "description": api_version}));
    properties.insert("kind".to_owned(), json!({"type": "string", "description": kind}));
    let metadata = format!("{REF_PREFIX}{META}ObjectMeta");
    properties.insert("metadata".to_owned(), json!({"description": METADATA, "allOf": [{"$ref": metadata}]}));
}

/// Visits the schemas directly below one.
pub(super) fn each_child(schema: &mut Value, visit: &mut dyn FnMut(&mut Value)) {
    let Some(map) = schema.as_object_mut() else { return };
    if let Some(properties) = map.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(&mut *visit);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(child) = map.get_mut(key).filter(|child| child.is_object()) {
            visit(child);
        }
    }
}

/// Reduces the schema of whole objects to what OpenAPI 2 can say. Where objects keep unknown fields no field is
/// declared: `kubectl` would refuse all others.
pub(super) fn root_for_v2(schema: &mut Value) {
    const GVK: &str = "x-kubernetes-group-version-kind";
    if schema.get("x-kubernetes-preserve-unknown-fields") != Some(&Value::Bool(true)) {
        return for_v2(schema);
    }
    let kinds = schema.get(GVK).cloned();
    *schema = json!({"type": "object"});
    if let Some(kinds) = kinds {
        schema[GVK] = kinds;
    }
}

/// Takes from a published schema what OpenAPI 2 can't say: logical junctors, null, and the type of what may be of
/// several types. Where unknown fields are kept, declared ones are left out, as `kubectl` would refuse the others.
pub(super) fn for_v2(schema: &mut Value) {
    if is_reference(schema) {
        return;
    }
    if let Some(map) = schema.as_object_mut() {
        let is = |map: &Map, key: &str| map.get(key) == Some(&Value::Bool(true));
        let (nullable, keeps) = (is(map, "nullable"), is(map, "x-kubernetes-preserve-unknown-fields"));
        if nullable || keeps || is(map, "x-kubernetes-int-or-string") {
            map.remove("type");
        }
        if keeps {
            map.remove("required");
        }
        if nullable || keeps {
            map.retain(|key, _| !CHILDREN.contains(&key.as_str()));
        }
        map.retain(|key, _| !NOT_IN_V2.contains(&key.as_str()));
    }
    each_child(schema, &mut for_v2);
}

/// Whether it is a reference with a description, which version 2 states in another way.
fn is_reference(schema: &Value) -> bool {
    schema.pointer("/allOf/0/$ref").is_some()
}
