//! Fields that no schema names: dropping them, and naming them.
//!
//! `apiVersion`, `kind` and `metadata` of a whole object (the root, or an embedded resource) always stay; fields within
//! that `metadata` are looked at where the schema declares them.

use super::Schema;
use crate::{Map, Value};
use std::{fmt::Write, sync::Arc};

/// Drops the fields that the schema does not name. `is_root`: the value is a whole object.
pub fn prune(value: &mut Value, schema: &Schema, is_root: bool) {
    let scope = Scope { schema: Some(schema), whole: is_root, free: false };
    drop_unknown(value, scope);
}

/// The paths of fields that the schema of a whole object does not name, sorted: `spec.containers[0].foo`. Those in the
/// metadata of embedded resources, which Kubernetes looks at by themselves, are behind the others.
pub fn unknown_fields(value: &Value, schema: &Schema) -> Vec<String> {
    let mut found = Vec::new();
    find_unknown(
        value,
        Scope { schema: Some(schema), whole: true, free: false },
        &mut String::new(),
        &mut found,
    );
    found.sort_unstable();
    found.into_iter().map(|(_, path)| path).collect()
}

/// Paths, and whether each is in the metadata of an embedded resource.
type Found = Vec<(bool, String)>;

/// What is known about a value on the way down.
#[derive(Clone, Copy)]
struct Scope<'a> {
    schema: Option<&'a Schema>,
    /// Whether it is a whole object.
    whole: bool,
    /// Whether it is an item of a list in which everything stays.
    free: bool,
}

/// What becomes of a field.
enum Fate<'a> {
    Keep,
    Look(Scope<'a>),
    Drop,
}

impl<'a> Scope<'a> {
    fn of(schema: Option<&'a Arc<Schema>>) -> Self {
        let schema = schema.map(|s| &**s);
        Self { schema, whole: schema.is_some_and(|s| s.embedded_resource), free: false }
    }

    fn field(self, name: &str) -> Fate<'a> {
        let Some(schema) = self.schema else { return Fate::Drop };
        let whole = self.whole || schema.embedded_resource;
        let property = schema.properties.get(name);
        if whole && matches!(name, "apiVersion" | "kind" | "metadata") {
            let declared = property.filter(|p| name == "metadata" && !p.properties.is_empty());
            return declared.map_or(Fate::Keep, |p| Fate::Look(Self::of(Some(p))));
        }
        match property.or(schema.additional.as_ref()) {
            Some(child) => Fate::Look(Self::of(Some(child))),
            None if self.free || schema.preserve_unknown => Fate::Keep,
            None => Fate::Drop,
        }
    }

    /// The scope of items; `None` where they are not looked at.
    fn item(self) -> Option<Self> {
        let free = self.free || self.schema.is_some_and(|s| s.preserve_unknown);
        let items = self.schema.and_then(|s| s.items.as_ref());
        if free && items.is_none() {
            return None;
        }
        Some(Self { free, ..Self::of(items) })
    }
}

fn drop_unknown(value: &mut Value, scope: Scope<'_>) {
    match value {
        Value::Object(map) => map.retain(|name, field| match scope.field(name) {
            Fate::Keep => true,
            Fate::Drop => false,
            Fate::Look(inner) => {
                drop_unknown(field, inner);
                true
            }
        }),
        Value::Array(list) => {
            if let Some(inner) = scope.item() {
                list.iter_mut().for_each(|item| drop_unknown(item, inner));
            }
        }
        _ => {}
    }
}

fn find_unknown(value: &Value, scope: Scope<'_>, path: &mut String, found: &mut Found) {
    match value {
        Value::Object(map) => find_in_map(map, scope, path, found),
        Value::Array(list) => {
            let Some(inner) = scope.item() else { return };
            for (index, item) in list.iter().enumerate() {
                let length = path.len();
                write!(path, "[{index}]").expect("writing to a string does not fail");
                find_unknown(item, inner, path, found);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

fn find_in_map(map: &Map, scope: Scope<'_>, path: &mut String, found: &mut Found) {
    let embedded = scope.schema.is_some_and(|schema| schema.embedded_resource);
    for (name, field) in map {
        let (length, known) = (path.len(), found.len());
        if length > 0 {
            path.push('.');
        }
        path.push_str(name);
        match scope.field(name) {
            Fate::Keep => {}
            Fate::Drop => found.push((false, path.clone())),
            Fate::Look(inner) => find_unknown(field, inner, path, found),
        }
        if embedded && name == "metadata" {
            found[known..].iter_mut().for_each(|(late, _)| *late = true);
        }
        path.truncate(length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::parse;
    use serde_json::json;

    #[test]
    fn what_the_schema_does_not_name_goes() {
        let schema = parse(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "known": {"type": "string"},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"a": {"type": "string"}}}},
            "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
            "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
                "inner": {"type": "object", "properties": {"a": {"type": "string"}}}}},
            "embedded": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}},
            "true": {"type": "object", "additionalProperties": true}
        }}}}))
        .unwrap();
        let object = json!({
            "apiVersion": "a/v1", "kind": "K", "metadata": {"name": "x", "odd": 1, "labels": {"a": "b"}}, "extra": 1,
            "spec": {
                "known": "x", "unknown": 1,
                "map": {"k": {"a": "1", "b": 2}},
                "list": [{"a": "1"}, {"b": {"c": 1}}],
                "any": {"x": {"y": 1}, "inner": {"a": "1", "z": 1}},
                "embedded": {"apiVersion": "v1", "kind": "E", "metadata": {"name": "e"}, "spec": {"q": 1}, "status": 1},
                "true": {"s": 1, "o": {"p": 1}}
            }
        });
        assert_eq!(
            unknown_fields(&object, &schema),
            [
                "extra",
                "metadata.odd",
                "spec.any.inner.z",
                "spec.embedded.spec.q",
                "spec.embedded.status",
                "spec.list[1].b",
                "spec.map.k.b",
                "spec.true.o.p",
                "spec.unknown"
            ]
        );
        let mut pruned = object.clone();
        prune(&mut pruned, &schema, true);
        assert!(unknown_fields(&pruned, &schema).is_empty());
        assert_eq!(
            pruned,
            json!({
                "apiVersion": "a/v1", "kind": "K", "metadata": {"name": "x", "labels": {"a": "b"}},
                "spec": {
                    "known": "x", "map": {"k": {"a": "1"}}, "list": [{"a": "1"}, {}],
                    "any": {"x": {"y": 1}, "inner": {"a": "1"}},
                    "embedded": {"apiVersion": "v1", "kind": "E", "metadata": {"name": "e"}, "spec": {}},
                    "true": {"s": 1, "o": {}}
                }
            })
        );
    }
}
