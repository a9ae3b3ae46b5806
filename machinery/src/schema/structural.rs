//! Whether a CRD's schema is structural, in the words of `apiextensions/pkg/apiserver/schema`.
//!
//! This reads the JSON rather than the compiled [`Schema`](super::Schema), as what it forbids is not in the latter.

use super::pattern;
use crate::{Map, Value, status::FieldError};
use serde_json::json;

/// Where a schema stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// What is not structural about a schema at `path`, sorted by text.
pub fn check(schema: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    invariants(schema, Level::Root, path, &mut errors);
    complete(schema, Some(schema), path, path, &mut errors);
    errors.sort_by_cached_key(ToString::to_string);
    errors
}

fn map(schema: &Value) -> &Map {
    static EMPTY: std::sync::LazyLock<Map> = std::sync::LazyLock::new(Map::new);
    schema.as_object().unwrap_or(&EMPTY)
}

fn flag(schema: &Value, key: &str) -> bool {
    schema.get(key) == Some(&Value::Bool(true))
}

fn type_of(schema: &Value) -> &str {
    schema.get("type").and_then(Value::as_str).unwrap_or("")
}

/// The value of a key that is given and not null.
fn given<'a>(schema: &'a Value, key: &str) -> Option<&'a Value> {
    schema.get(key).filter(|v| !v.is_null())
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema.get("properties").map(map).into_iter().flatten()
}

fn list<'a>(schema: &'a Value, key: &str) -> &'a [Value] {
    schema.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn invariants(schema: &Value, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    match given(schema, "items") {
        Some(items) if items.is_array() => {}
        Some(items) => invariants(items, Level::Item, &format!("{path}.items"), errors),
        None if type_of(schema) == "array" => {
            errors.push(FieldError::required(format!("{path}.items"), "must be specified"));
        }
        None => {}
    }
    for (name, field) in properties(schema) {
        invariants(field, Level::Field, &format!("{path}.properties[{name}]"), errors);
    }
    if let Some(additional) = given(schema, "additionalProperties") {
        let at = format!("{path}.additionalProperties");
        if level == Level::Root {
            errors.push(FieldError::forbidden(&at, "must not be used at the root"));
        }
        if additional.is_object() {
            invariants(additional, Level::Field, &at, errors);
        }
    }
    extensions(schema, path, errors);
    validations(schema, is_int_or_string(list(schema, "anyOf")), true, path, errors);
    node_type(schema, level, path, errors);
    identity(schema, level, path, errors);
}

fn extensions(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if !flag(schema, "x-kubernetes-int-or-string") {
        return;
    }
    for key in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
        if flag(schema, key) {
            let detail = "must be false if x-kubernetes-int-or-string is true";
            errors.push(FieldError::invalid(format!("{path}.{key}"), true.into(), detail));
        }
    }
}

fn node_type(schema: &Value, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let (kind, at) = (type_of(schema), format!("{path}.type"));
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    let free =
        flag(schema, "x-kubernetes-int-or-string") || flag(schema, "x-kubernetes-preserve-unknown-fields");
    if embedded && kind != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(match kind {
            "" => FieldError::required(&at, detail),
            _ => FieldError::invalid(&at, kind.into(), detail),
        });
    } else if kind.is_empty() && !free {
        let place = match level {
            Level::Root => "at the root",
            Level::Item => "for specified array items",
            Level::Field => "for specified object fields",
        };
        errors.push(FieldError::required(&at, format!("must not be empty {place}")));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.push(FieldError::invalid(at, kind.into(), "must be object at the root"));
    }
}

/// `kind`, `apiVersion` and `metadata` of whole objects.
fn identity(schema: &Value, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    let fields = schema.get("properties").map(map);
    let field = |name: &str| fields.and_then(|f| f.get(name));
    let whole = level == Level::Root || embedded;
    for name in ["kind", "apiVersion"] {
        if let Some(kind) = field(name).filter(|_| whole).map(type_of).filter(|k| *k != "string") {
            let at = format!("{path}.properties[{name}].type");
            errors.push(FieldError::invalid(at, kind.into(), "must be string"));
        }
    }
    if let Some(meta) = field("metadata").filter(|_| whole) {
        let at = format!("{path}.properties[metadata]");
        if type_of(meta) != "object" {
            errors.push(FieldError::invalid(format!("{at}.type"), type_of(meta).into(), "must be object"));
        }
        if level == Level::Root && !is_bare_metadata(meta) {
            let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
            errors.push(FieldError::forbidden(at, detail));
        }
    }
    if embedded && given(schema, "additionalProperties").is_some() {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(FieldError::forbidden(format!("{path}.additionalProperties"), detail));
    }
    let undeclared = fields.is_none_or(Map::is_empty);
    if embedded && undeclared && !flag(schema, "x-kubernetes-preserve-unknown-fields") {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(format!("{path}.properties"), detail));
    }
}

fn is_bare_metadata(meta: &Value) -> bool {
    let mut fields = properties(meta);
    let names_only = fields.all(|(name, _)| name == "name" || name == "generateName");
    names_only
        && map(meta).iter().all(|(key, v)| {
            v.is_null() || ["type", "default", "properties", "description"].contains(&key.as_str())
        })
}

fn is_int_or_string(list: &[Value]) -> bool {
    *list == [json!({"type": "integer"}), json!({"type": "string"})]
}

/// Value validations of a node. `any_of_is_type`: its `anyOf` is the int-or-string idiom. `first_all_of`: so may be
/// the one of its first `allOf`.
fn validations(
    schema: &Value,
    any_of_is_type: bool,
    first_all_of: bool,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    for key in ["anyOf", "allOf", "oneOf"] {
        if key == "anyOf" && any_of_is_type {
            continue;
        }
        for (index, inner) in list(schema, key).iter().enumerate() {
            let idiom =
                key == "allOf" && first_all_of && index == 0 && is_int_or_string(list(inner, "anyOf"));
            nested(inner, idiom, &format!("{path}.{key}[{index}]"), errors);
        }
    }
    if let Some(not) = given(schema, "not") {
        nested(not, false, &format!("{path}.not"), errors);
    }
    if let Some(Err(e)) = schema.get("pattern").and_then(Value::as_str).map(pattern::compile) {
        let detail = format!("must be a valid regular expression, but isn't: {e}");
        errors.push(FieldError::invalid(format!("{path}.pattern"), schema["pattern"].clone(), detail));
    }
}

/// What may not stand below a junctor, and the words for it.
const FORBIDDEN_BELOW: &[(&str, &str)] = &[
    ("type", "must be empty to be structural"),
    ("additionalProperties", "must be undefined to be structural"),
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
    ("x-kubernetes-embedded-resource", "must be false to be structural"),
    ("x-kubernetes-int-or-string", "must be false to be structural"),
    ("x-kubernetes-list-map-keys", "must be empty to be structural"),
    ("x-kubernetes-list-type", "must be undefined to be structural"),
    ("x-kubernetes-map-type", "must be undefined to be structural"),
    ("x-kubernetes-validations", "must be empty to be structural"),
];

fn nested(schema: &Value, any_of_is_type: bool, path: &str, errors: &mut Vec<FieldError>) {
    validations(schema, any_of_is_type, false, path, errors);
    if let Some(items) = given(schema, "items") {
        nested(items, false, &format!("{path}.items"), errors);
    }
    for (name, field) in properties(schema) {
        nested(field, false, &format!("{path}.properties[{name}]"), errors);
    }
    for (key, detail) in FORBIDDEN_BELOW {
        let empty = |v: &Value| *v == false || *v == "" || v.as_array().is_some_and(Vec::is_empty);
        if given(schema, key).is_some_and(|v| !empty(v)) {
            errors.push(FieldError::forbidden(format!("{path}.{key}"), *detail));
        }
    }
    if schema.get("properties").is_some_and(|p| p.get("metadata").is_some()) {
        let at = format!("{path}.properties[metadata]");
        errors.push(FieldError::forbidden(at, "must not be specified in a nested context"));
    }
}

/// Whether everything that junctors of `schema` talk about is declared in `main`, the structural part.
fn complete(
    schema: &Value,
    main: Option<&Value>,
    path: &str,
    nested_path: &str,
    errors: &mut Vec<FieldError>,
) {
    if let Some(not) = given(schema, "not") {
        complete_nested(not, main, path, &format!("{nested_path}.not"), errors);
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        for (index, inner) in list(schema, key).iter().enumerate() {
            complete_nested(inner, main, path, &format!("{nested_path}.{key}[{index}]"), errors);
        }
    }
}

fn complete_nested(
    schema: &Value,
    main: Option<&Value>,
    path: &str,
    nested_path: &str,
    errors: &mut Vec<FieldError>,
) {
    let Some(main) = main else {
        errors.push(FieldError::required(path, format!("because it is defined in {nested_path}")));
        return;
    };
    complete(schema, Some(main), path, nested_path, errors);
    if let Some(items) = given(schema, "items") {
        let at = format!("{nested_path}.items");
        complete_nested(items, given(main, "items"), &format!("{path}.items"), &at, errors);
    }
    for (name, field) in properties(schema) {
        let step = format!(".properties[{name}]");
        let declared = main.get("properties").and_then(|p| p.get(name));
        complete_nested(field, declared, &format!("{path}{step}"), &format!("{nested_path}{step}"), errors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_structural_is_named() {
        let rows = [
            (
                json!({"type": "object", "properties": {"a": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}}}),
                vec![],
            ),
            (
                json!({"type": "object", "properties": {"a": {"x-kubernetes-int-or-string": true, "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"pattern": "a"}]}}}),
                vec![],
            ),
            (
                json!({"properties": {"a": {}}}),
                vec![
                    "s.properties[a].type: Required value: must not be empty for specified object fields",
                    "s.type: Required value: must not be empty at the root",
                ],
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "array"}}}),
                vec!["s.properties[a].items: Required value: must be specified"],
            ),
            (
                json!({"type": "object", "anyOf": [{"type": "object", "properties": {"x": {"pattern": "("}}}]}),
                vec![
                    "s.anyOf[0].properties[x].pattern: Invalid value: \"(\": must be a valid regular expression, but isn't: error parsing regexp: missing closing ): `(`",
                    "s.anyOf[0].type: Forbidden: must be empty to be structural",
                    "s.properties[x]: Required value: because it is defined in s.anyOf[0].properties[x]",
                ],
            ),
            (
                json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}}),
                vec![
                    "s.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified",
                ],
            ),
            (
                json!({"type": "array", "items": {"type": "string"}}),
                vec!["s.type: Invalid value: \"array\": must be object at the root"],
            ),
        ];
        for (schema, want) in rows {
            let got: Vec<String> = check(&schema, "s").iter().map(ToString::to_string).collect();
            assert_eq!(got, want, "{schema}");
        }
    }
}
