//! Structural defaulting.

use super::Schema;
use crate::{Map, Value, quantity::Quantity};
use std::sync::Arc;

/// Fills in defaults, and drops `null` where neither the schema allows it nor a default replaces it.
///
/// A default applies only where its parent is there; defaults within a default apply too.
pub fn default(value: &mut Value, schema: &Schema) {
    drop_nulls(value, schema);
    fill(value, schema);
}

/// Drops fields that are `null`, are declared, may not be null and have no default: such a field counts as absent.
pub fn drop_nulls(value: &mut Value, schema: &Schema) {
    match value {
        Value::Object(map) => map.retain(|name, field| {
            let Some(child) = child(schema, name) else { return true };
            if field.is_null() {
                return child.nullable || child.default.is_some();
            }
            drop_nulls(field, child);
            true
        }),
        Value::Array(list) => {
            if let Some(items) = &schema.items {
                list.iter_mut().for_each(|item| drop_nulls(item, items));
            }
        }
        _ => {}
    }
}

/// What Kubernetes' typed objects make of themselves when they are read: a zero that no pointer tells from absence counts
/// as absent, empty lists and maps do, nulls in lists and maps are zeros, and quantities are written in their canonical
/// form (`500m` for `0.5`). For built-in kinds.
pub fn normalize(value: &mut Value, schema: &Schema) {
    match value {
        Value::Object(map) => map.retain(|name, field| {
            let Some(child) = child(schema, name) else { return true };
            if !schema.properties.contains_key(name.as_str()) {
                zero_null(field, child);
                if is_quantity(child) {
                    // The quantities of a list of resources have no parts below thousandths.
                    canonicalize(field, Quantity::rounded_to_milli);
                }
            }
            normalize(field, child);
            !is_absent(name, field, schema, child)
        }),
        Value::Array(list) => {
            let Some(items) = &schema.items else { return };
            for item in list {
                zero_null(item, items);
                normalize(item, items);
            }
        }
        Value::String(_) | Value::Number(_) if is_quantity(schema) => canonicalize(value, |same| *same),
        _ => {}
    }
}

/// Makes of a null in a list or a map what Go does: the zero of its elements. What has a null of its own keeps it.
fn zero_null(value: &mut Value, schema: &Schema) {
    use super::Kind::{Boolean, Integer, Object, String};
    if !value.is_null() || schema.preserve_unknown {
        return;
    }
    *value = match (schema.format.as_deref(), schema.kind) {
        (Some("quantity"), _) => "0".into(),
        (Some("date-time"), _) => return,
        (_, Some(String)) => "".into(),
        (_, Some(Integer)) => 0.into(),
        (_, Some(Boolean)) => false.into(),
        (_, Some(Object)) => Value::Object(Map::new()),
        _ => return,
    };
}

/// Where a value has empty lists, maps and bytes that [`normalize`] takes out: Kubernetes' rules still see them.
pub fn empties(value: &Value, schema: &Schema) -> Vec<Empty> {
    let mut found = Vec::new();
    note_empties(value, schema, &mut Vec::new(), &mut found);
    found
}

/// A list, map or bytes without anything in it, and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Empty {
    path: Vec<String>,
    value: Value,
}

impl Empty {
    /// Whether it is the one at a dotted path.
    pub fn is_at(&self, path: &str) -> bool {
        path.split('.').eq(self.path.iter().map(String::as_str))
    }

    /// Puts it back, where what it stood in is still there and nothing has taken its place.
    pub fn restore(&self, value: &mut Value) {
        let Some((last, parents)) = self.path.split_last() else { return };
        let parent = parents.iter().try_fold(value, |value, step| match value {
            Value::Array(list) => list.get_mut(step.parse::<usize>().ok()?),
            other => other.get_mut(step),
        });
        if let Some(map) = parent.and_then(Value::as_object_mut) {
            map.entry(last.as_str()).or_insert_with(|| self.value.clone());
        }
    }
}

fn note_empties<'a>(
    value: &'a Value,
    schema: &Schema,
    path: &mut Vec<std::borrow::Cow<'a, str>>,
    found: &mut Vec<Empty>,
) {
    match value {
        Value::Object(map) => {
            for (name, field) in map {
                let Some(child) = child(schema, name) else { continue };
                path.push(name.as_str().into());
                let holds = field.is_array() || field.is_object() || child.format.as_deref() == Some("byte");
                if holds && is_absent(name, field, schema, child) {
                    let path = path.iter().map(|step| step.clone().into_owned()).collect();
                    found.push(Empty { path, value: field.clone() });
                } else {
                    note_empties(field, child, path, found);
                }
                path.pop();
            }
        }
        Value::Array(list) => {
            let Some(items) = &schema.items else { return };
            for (index, item) in list.iter().enumerate().filter(|(_, item)| item.is_object()) {
                path.push(index.to_string().into());
                note_empties(item, items, path, found);
                path.pop();
            }
        }
        _ => {}
    }
}

/// Whether a field of a Go struct would not be written.
fn is_absent(name: &str, field: &Value, parent: &Schema, child: &Schema) -> bool {
    let Some(pointers) = parent.pointers.as_ref().filter(|_| parent.properties.contains_key(name)) else {
        return false;
    };
    let listed = || pointers.iter().any(|pointer| **pointer == *name);
    match field {
        Value::String(text) => {
            let own_form =
                matches!(child.format.as_deref(), Some("date-time" | "quantity" | "int-or-string"));
            text.is_empty() && !own_form && !child.int_or_string && !listed()
        }
        Value::Number(number) => {
            number.as_f64() == Some(0.0) && child.kind == Some(super::Kind::Integer) && !listed()
        }
        Value::Bool(flag) => !flag && !listed(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty() && child.additional.is_some(),
        Value::Null => false,
    }
}

/// Adds the objects and lists that the schema requires and that are absent, empty.
pub fn complete(value: &mut Value, schema: &Schema) {
    match value {
        Value::Object(map) => {
            for name in &schema.required {
                let empty = match schema.properties.get(name).and_then(|child| child.kind) {
                    Some(super::Kind::Object) => Value::Object(Map::new()),
                    Some(super::Kind::Array) => Value::Array(Vec::new()),
                    _ => continue,
                };
                map.entry(name.to_string()).or_insert(empty);
            }
            for (name, field) in map.iter_mut() {
                if let Some(child) = child(schema, name) {
                    complete(field, child);
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = &schema.items {
                list.iter_mut().for_each(|item| complete(item, items));
            }
        }
        _ => {}
    }
}

fn is_quantity(schema: &Schema) -> bool {
    schema.format.as_deref() == Some("quantity")
}

/// What is no quantity stays as it is, for the validation to find.
fn canonicalize(value: &mut Value, rounded: fn(&Quantity) -> Quantity) {
    let parsed = match &*value {
        Value::String(text) => text.parse::<Quantity>(),
        other => other.to_string().parse(),
    };
    if let Ok(quantity) = parsed {
        *value = rounded(&quantity).to_string().into();
    }
}

fn child<'a>(schema: &'a Schema, name: &str) -> Option<&'a Arc<Schema>> {
    schema.properties.get(name).or(schema.additional.as_ref())
}

fn fill(value: &mut Value, schema: &Schema) {
    match value {
        Value::Object(map) => {
            add_absent(map, schema);
            for (name, field) in map.iter_mut() {
                if let Some(child) = child(schema, name) {
                    replace_null(field, child);
                    fill(field, child);
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = &schema.items {
                for item in list {
                    replace_null(item, items);
                    fill(item, items);
                }
            }
        }
        _ => {}
    }
}

fn add_absent(map: &mut Map, schema: &Schema) {
    for (name, field) in &schema.properties {
        if let Some(default) = &field.default
            && !map.contains_key(&**name)
        {
            map.insert(name.to_string(), default.clone());
        }
    }
}

fn replace_null(field: &mut Value, schema: &Schema) {
    if field.is_null()
        && !schema.nullable
        && let Some(default) = &schema.default
    {
        *field = default.clone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::parse;
    use serde_json::json;

    #[test]
    fn typed_objects_have_no_blanks_for_defaults_and_write_quantities_canonically() {
        let amount = json!({"x-kubernetes-int-or-string": true, "format": "quantity"});
        let schema = parse(&json!({"type": "object", "x-freehold-pointers": ["c"], "properties": {
            "a": {"type": "string", "default": "x"},
            "b": {"type": "string", "default": ""},
            "c": {"type": "string"},
            "limits": {"type": "object", "additionalProperties": amount},
        }}))
        .unwrap();
        let limits = json!({"cpu": 0.5, "memory": "1024Mi", "pods": 2, "odd": "x", "disk": "1500M"});
        let mut got = json!({"a": "", "b": "", "c": "", "d": "", "limits": limits});
        normalize(&mut got, &schema);
        let limits = json!({"cpu": "500m", "memory": "1Gi", "pods": "2", "odd": "x", "disk": "1500M"});
        assert_eq!(got, json!({"c": "", "d": "", "limits": limits}));
    }

    #[test]
    fn defaults_apply_where_their_parent_is_there() {
        let inner = json!({"type": "object", "properties": {"replicas": {"type": "integer", "default": 1}}});
        let schema = parse(&json!({"type": "object", "properties": {
            "spec": inner,
            "made": {"type": "object", "default": {}, "properties": {"deep": {"type": "string", "default": "d"}}},
            "list": {"type": "array", "items": inner},
            "map": {"type": "object", "additionalProperties": inner},
            "nullable": {"type": "string", "nullable": true, "default": "n"},
            "plain": {"type": "string"},
        }}))
        .unwrap();
        for (given, want) in [
            (json!({}), json!({"made": {"deep": "d"}, "nullable": "n"})),
            (
                json!({"spec": {"replicas": null}, "plain": null, "nullable": null, "made": {"deep": "x"}}),
                json!({"spec": {"replicas": 1}, "nullable": null, "made": {"deep": "x"}}),
            ),
            (
                json!({"spec": {}, "list": [{}, {"replicas": 3}], "map": {"a": {}}, "unknown": null, "nullable": "y", "made": {"deep": "z"}}),
                json!({"spec": {"replicas": 1}, "list": [{"replicas": 1}, {"replicas": 3}], "map": {"a": {"replicas": 1}},
                       "unknown": null, "nullable": "y", "made": {"deep": "z"}}),
            ),
        ] {
            let mut got = given.clone();
            default(&mut got, &schema);
            assert_eq!(got, want, "{given}");
        }
    }
}
