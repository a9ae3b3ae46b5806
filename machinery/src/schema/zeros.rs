//! Zero values that the JSON of built-in kinds always contains.
//!
//! Kubernetes keeps built-in kinds as Go structs, and writes fields without `omitempty` with their zero value. A
//! definition tells them under [`ZEROS`](super::ZEROS).

use super::Schema;
use crate::{Map, Value};

/// Adds the structs that are always there: what fields within them have for defaults is filled in too, then.
pub fn complete_structs(value: &mut Value, schema: &Schema) {
    complete_with(value, schema, &Value::is_object);
}

/// Adds everything that is always there: empty structs, empty strings, zeros, `false` and `null`.
pub fn complete(value: &mut Value, schema: &Schema) {
    complete_with(value, schema, &|_| true);
}

/// The object that nobody has filled in, from which a new one's changes are told.
pub fn unset(schema: &Schema) -> Value {
    let mut value = Value::Object(Map::new());
    complete(&mut value, schema);
    value
}

fn complete_with(value: &mut Value, schema: &Schema, wanted: &dyn Fn(&Value) -> bool) {
    match value {
        Value::Object(map) => {
            for (name, zero) in schema.zeros.iter().filter(|(_, zero)| wanted(zero)) {
                if !map.contains_key(&**name) {
                    map.insert(name.to_string(), zero.clone());
                }
            }
            for (name, field) in map.iter_mut() {
                if let Some(child) = schema.properties.get(name.as_str()).or(schema.additional.as_ref()) {
                    complete_with(field, child, wanted);
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = &schema.items {
                list.iter_mut().for_each(|item| complete_with(item, items, wanted));
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Definitions, ZEROS};
    use serde_json::json;

    #[test]
    fn structs_and_zeros_are_there_whoever_set_them() {
        let inner = json!({"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "string"}},
            ZEROS: {"n": 0, "when": null}});
        let outer = json!({"type": "object", "properties": {"spec": {"$ref": "#/a/inner"},
            "list": {"type": "array", "items": {"$ref": "#/a/inner"}}}, ZEROS: {"spec": {}}});
        let definitions = Definitions::new(
            [("inner".to_owned(), inner), ("outer".to_owned(), outer)].into_iter().collect(),
        );
        let schema = definitions.get("outer").unwrap();
        assert_eq!(unset(&schema), json!({"spec": {"n": 0, "when": null}}));
        let mut value = json!({"list": [{"n": 3}]});
        complete_structs(&mut value, &schema);
        assert_eq!(value, json!({"spec": {}, "list": [{"n": 3}]}));
        complete(&mut value, &schema);
        assert_eq!(value, json!({"spec": {"n": 0, "when": null}, "list": [{"n": 3, "when": null}]}));
    }
}
