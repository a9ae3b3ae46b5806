//! Validation of a CRD's schema: structural, with valid extensions and defaults.

use super::parts::{flag, given, list, text};
use crate::{
    Map, Value,
    schema::{self, Schema, structural},
    status::{FieldError, FieldErrorKind},
};

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
const NOT_SUPPORTED: [&str; 6] =
    ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"];
/// What may stand at the root where there is a status subresource, as Go names it.
const AT_ROOT: &str = "[Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields XValidations]";
const NOT_AT_ROOT: [&str; 21] = [
    "id",
    "$schema",
    "$ref",
    "nullable",
    "default",
    "maxProperties",
    "minProperties",
    "enum",
    "allOf",
    "oneOf",
    "anyOf",
    "not",
    "additionalProperties",
    "patternProperties",
    "dependencies",
    "additionalItems",
    "definitions",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
];

/// Bytes of the paths of all that is in a schema: each error names one.
const MAX_PATHS: usize = 64 << 20;

/// The bytes of the paths of all values within a value, about.
fn paths(value: &Value) -> usize {
    let (mut bytes, mut open) = (0usize, vec![(value, 0usize)]);
    while let Some((value, length)) = open.pop() {
        bytes = bytes.saturating_add(length);
        match value {
            Value::Object(map) => {
                open.extend(map.iter().map(|(name, value)| (value, length + name.len() + 1)))
            }
            Value::Array(list) => open.extend(list.iter().map(|value| (value, length + 4))),
            _ => {}
        }
    }
    bytes
}

/// Checks the schema of a version. `has_status`: the version has a status subresource.
pub(super) fn check(schema: &Value, path: &str, has_status: bool) -> Vec<FieldError> {
    if paths(schema) > MAX_PATHS {
        let detail = "the names of its fields are too long for so many of them";
        return vec![FieldError::new(FieldErrorKind::TooLong, path, detail)];
    }
    let mut errors = Vec::new();
    if has_status {
        errors.extend(check_root(schema, path));
    }
    if flag(schema, "nullable") {
        errors.push(FieldError::forbidden(format!("{path}.nullable"), "nullable cannot be true at the root"));
    }
    let not_structural = structural::check(schema, path);
    if not_structural.is_empty() {
        errors.extend(check_defaults(schema, path));
    } else {
        errors.extend(not_structural);
    }
    node(schema, path, Scope { is_root: true, ..Scope::default() }, &mut errors);
    errors
}

/// The formats in a schema that are not heeded, each once.
pub(super) fn unrecognized_formats(schema: &Value, found: &mut Vec<String>) {
    let format = text(schema, "format");
    let known = match text(schema, "type") {
        "" | "string" => schema::formats::is_known(format),
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double"),
        _ => false,
    };
    if !format.is_empty() && !known && !found.iter().any(|f| f == format) {
        found.push(format.to_owned());
    }
    let one = ["items", "not", "additionalProperties"].into_iter().filter_map(|key| given(schema, key));
    let many = ["allOf", "anyOf", "oneOf"].into_iter().flat_map(|key| list(schema, key));
    let fields =
        schema.get("properties").and_then(Value::as_object).into_iter().flatten().map(|(_, field)| field);
    for inner in one.chain(many).chain(fields).filter(|s| s.is_object()) {
        unrecognized_formats(inner, found);
    }
}

fn check_root(schema: &Value, path: &str) -> Option<FieldError> {
    let kind = text(schema, "type");
    if !kind.is_empty() && kind != "object" {
        let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        return Some(FieldError::invalid(format!("{path}.type"), kind.into(), detail));
    }
    let set = |key: &&str| given(schema, key).is_some_and(|v| *v != false && *v != "");
    NOT_AT_ROOT.iter().any(set).then(|| {
        let detail = format!(
            "only {AT_ROOT} fields are allowed at the root of the schema if the status subresource is enabled"
        );
        FieldError::invalid(path, schema.clone(), detail)
    })
}

/// What holds on the way down.
#[derive(Clone, Copy, Default)]
struct Scope {
    is_root: bool,
    /// Within `metadata` of a whole object.
    in_meta: bool,
    /// Why defaults may not stand here.
    no_defaults: Option<&'static str>,
}

fn node(schema: &Value, path: &str, scope: Scope, errors: &mut Vec<FieldError>) {
    basics(schema, path, scope, errors);
    extensions(schema, path, errors);
    list_map(schema, path, errors);
    rules(schema, path, errors);
    children(schema, path, scope, errors);
}

fn children(schema: &Value, path: &str, scope: Scope, errors: &mut Vec<FieldError>) {
    let inner = Scope { is_root: false, ..scope };
    if let Some(additional) = given(schema, "additionalProperties") {
        let fields = schema.get("properties").and_then(Value::as_object).is_some_and(|p| !p.is_empty());
        if fields && *additional != true {
            let detail = "additionalProperties and properties are mutual exclusive";
            errors.push(FieldError::forbidden(format!("{path}.additionalProperties"), detail));
        }
        if additional.is_object() {
            let why = "inside additionalProperties applying to object metadata";
            let inner =
                Scope { no_defaults: if scope.in_meta { Some(why) } else { scope.no_defaults }, ..inner };
            node(additional, &format!("{path}.additionalProperties"), inner, errors);
        }
    }
    let whole = scope.is_root || flag(schema, "x-kubernetes-embedded-resource");
    for (name, field) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let mut inner = inner;
        let why = match name.as_str() {
            "metadata" => Some("in top-level metadata"),
            "kind" => Some("in top-level kind"),
            "apiVersion" => Some("in top-level apiVersion"),
            _ => None,
        };
        if whole && why.is_some() {
            inner.in_meta = true;
            inner.no_defaults = if scope.is_root { why } else { inner.no_defaults };
        }
        node(field, &format!("{path}.properties[{name}]"), inner, errors);
    }
    for key in ["not", "items"] {
        if let Some(one) = given(schema, key).filter(|s| s.is_object()) {
            node(one, &format!("{path}.{key}"), inner, errors);
        }
    }
    for key in ["allOf", "oneOf", "anyOf"] {
        for (index, one) in list(schema, key).iter().enumerate() {
            node(one, &format!("{path}.{key}[{index}]"), inner, errors);
        }
    }
}

fn basics(schema: &Value, path: &str, scope: Scope, errors: &mut Vec<FieldError>) {
    let kind = text(schema, "type");
    if !kind.is_empty() && !TYPES.contains(&kind) {
        errors.push(FieldError::not_supported(format!("{path}.type"), kind.into(), &TYPES));
    }
    if kind == "null" {
        let detail = "type cannot be set to null, use nullable as an alternative";
        errors.push(FieldError::forbidden(format!("{path}.type"), detail));
    }
    if let Some(why) = scope.no_defaults.filter(|_| given(schema, "default").is_some()) {
        errors.push(FieldError::forbidden(format!("{path}.default"), format!("must not be set {why}")));
    }
    for key in NOT_SUPPORTED {
        let empty =
            |v: &Value| *v == "" || (key != "dependencies" && v.as_object().is_some_and(Map::is_empty));
        if given(schema, key).is_some_and(|v| !empty(v)) {
            errors.push(FieldError::forbidden(format!("{path}.{key}"), format!("{key} is not supported")));
        }
    }
    if !list(schema, "items").is_empty() {
        let detail = "items must be a schema object and not an array";
        errors.push(FieldError::forbidden(format!("{path}.items"), detail));
    }
    if scope.in_meta && flag(schema, "x-kubernetes-embedded-resource") {
        let at = format!("{path}.x-kubernetes-embedded-resource");
        errors.push(FieldError::forbidden(at, "must not be used inside of resource meta"));
    }
    if flag(schema, "uniqueItems") {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(format!("{path}.uniqueItems"), detail));
    }
}

fn extensions(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
    if schema.get(PRESERVE) == Some(&Value::Bool(false)) {
        errors.push(FieldError::invalid(
            format!("{path}.{PRESERVE}"),
            false.into(),
            "must be true or undefined",
        ));
    }
    let kind = text(schema, "type");
    let typed = [
        ("x-kubernetes-map-type", "object", &["atomic", "granular"][..]),
        ("x-kubernetes-list-type", "array", &["atomic", "set", "map"]),
    ];
    for (key, wanted, allowed) in typed {
        let Some(given) = given(schema, key) else { continue };
        if kind != wanted {
            let (at, detail) = (format!("{path}.type"), format!("must be {wanted} if {key} is specified"));
            errors.push(match kind {
                "" => FieldError::required(at, detail),
                _ => FieldError::invalid(at, kind.into(), detail),
            });
        }
        if !allowed.iter().any(|a| given == a) {
            errors.push(FieldError::not_supported(format!("{path}.{key}"), given.clone(), allowed));
        }
    }
    let items = given(schema, "items").unwrap_or(&Value::Null);
    if kind == "array" && text(schema, "x-kubernetes-list-type") == "set" {
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let (key, bad) = match text(items, "type") {
            "array" => {
                ("x-kubernetes-list-type", !matches!(text(items, "x-kubernetes-list-type"), "" | "atomic"))
            }
            "object" => ("x-kubernetes-map-type", text(items, "x-kubernetes-map-type") != "atomic"),
            _ => ("", false),
        };
        if bad {
            let value = items.get("x-kubernetes-list-type").cloned().unwrap_or_default();
            errors.push(FieldError::invalid(format!("{path}.items.{key}"), value, detail));
        }
    }
}

fn list_map(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    const TYPE: &str = "x-kubernetes-list-type";
    const KEYS: &str = "x-kubernetes-list-map-keys";
    let (list_type, keys) = (text(schema, TYPE), list(schema, KEYS));
    if !keys.is_empty() && list_type != "map" {
        let (at, detail) =
            (format!("{path}.{TYPE}"), "must be map if x-kubernetes-list-map-keys is non-empty");
        errors.push(match list_type {
            "" => FieldError::required(at, detail),
            _ => FieldError::invalid(at, list_type.into(), detail),
        });
    }
    let items = given(schema, "items");
    if items.is_some_and(|i| flag(i, "nullable")) && matches!(list_type, "set" | "map") {
        let detail = format!("cannot be nullable when {TYPE} is {list_type}");
        errors.push(FieldError::forbidden(format!("{path}.items.nullable"), detail));
    }
    if list_type != "map" {
        return;
    }
    if keys.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        errors.push(FieldError::required(format!("{path}.{KEYS}"), detail));
    }
    let Some(items) = items else {
        let detail = "must have a schema if x-kubernetes-list-type is map";
        errors.push(FieldError::required(format!("{path}.items"), detail));
        return;
    };
    if text(items, "type") != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(format!("{path}.items.type"), text(items, "type").into(), detail));
        return;
    }
    list_map_keys(items, keys, path, errors);
}

fn list_map_keys(items: &Value, keys: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    let at = format!("{path}.x-kubernetes-list-map-keys");
    let names = || keys.iter().filter_map(Value::as_str).enumerate();
    let field = |key: &str| items.get("properties").and_then(|properties| properties.get(key));
    let inner = |key: &str| format!("{path}.items.properties[{key}]");
    for (index, key) in names() {
        match field(key) {
            None => {
                let detail = "entries must all be names of item properties";
                errors.push(FieldError::invalid(&at, keys.to_vec().into(), detail));
            }
            Some(field) if matches!(text(field, "type"), "array" | "object") => {
                let (at, detail) = (
                    format!("{}.type", inner(key)),
                    "must be a scalar type if parent array's x-kubernetes-list-type is map",
                );
                errors.push(FieldError::invalid(at, text(items, "type").into(), detail));
            }
            Some(_) => {}
        }
        if keys[..index].iter().any(|k| k == key) {
            errors.push(FieldError::invalid(&at, keys.to_vec().into(), "must not contain duplicate entries"));
        }
    }
    for (key, field) in names().filter_map(|(_, key)| Some((key, field(key)?))) {
        if !list(items, "required").iter().any(|r| r == key) && given(field, "default").is_none() {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.push(FieldError::required(format!("{}.default", inner(key)), detail));
        }
        if flag(field, "nullable") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(FieldError::forbidden(format!("{}.nullable", inner(key)), detail));
        }
    }
}

fn rules(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let broken = |s: &str| s.contains(['\n', '\r']);
    for (index, rule) in list(schema, "x-kubernetes-validations").iter().enumerate() {
        let at = |field: &str| format!("{path}.x-kubernetes-validations[{index}].{field}");
        let (expression, message) = (text(rule, "rule"), text(rule, "message"));
        if expression.trim().is_empty() {
            errors.push(FieldError::required(at("rule"), "rule is not specified"));
        } else if !message.is_empty() && message.trim().is_empty() {
            errors.push(FieldError::invalid(at("message"), message.into(), "must be non-empty if specified"));
        } else if broken(message.trim()) {
            errors.push(FieldError::invalid(at("message"), message.into(), "must not contain line breaks"));
        } else if broken(expression.trim()) && message.trim().is_empty() {
            errors.push(FieldError::required(
                at("message"),
                "message must be specified if rule contains line breaks",
            ));
        }
        let message = text(rule, "messageExpression");
        if !message.is_empty() && message.trim().is_empty() {
            let detail = "messageExpression must be non-empty if specified";
            errors.push(FieldError::required(at("messageExpression"), detail));
        }
        if let Some(reason) = given(rule, "reason").filter(|r| !REASONS.iter().any(|known| r == known)) {
            errors.push(FieldError::not_supported(at("reason"), reason.clone(), &REASONS));
        }
        let field = text(rule, "fieldPath");
        if !field.is_empty() && field.trim().is_empty() {
            errors.push(FieldError::invalid(at("fieldPath"), field.into(), "must be non-empty if specified"));
        }
        if broken(field) {
            errors.push(FieldError::invalid(at("fieldPath"), field.into(), "must not contain line breaks"));
        }
        if !field.is_empty() && !is_field(schema, field) {
            errors.push(FieldError::invalid(at("fieldPath"), field.into(), "must be a valid path"));
        }
    }
}

/// Whether a path like `.spec['a.b'].c` leads to a field that the schema declares.
fn is_field(schema: &Value, path: &str) -> bool {
    let (mut node, mut rest) = (schema, path);
    while !rest.is_empty() {
        let (step, tail) = if let Some(tail) = rest.strip_prefix("['") {
            let Some((step, tail)) = tail.split_once("']") else { return false };
            (step, tail)
        } else if let Some(tail) = rest.strip_prefix('.') {
            tail.split_at(tail.find(['.', '[']).unwrap_or(tail.len()))
        } else {
            return false;
        };
        let fields = node.get("properties").filter(|p| p.is_object());
        let found = match fields {
            Some(fields) => fields.get(step.replace("\\'", "'")),
            None => node.get("additionalProperties").filter(|a| a.is_object()),
        };
        let Some(found) = found else { return false };
        (node, rest) = (found, tail);
    }
    true
}

/// Whether each default is valid by the schema that it stands in.
fn check_defaults(source: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    // What can't be read is complained about where it stands.
    if let Ok(schema) = schema::parse::node(source) {
        defaults(&schema, path, &mut errors);
    }
    errors
}

fn defaults(schema: &Schema, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(default) = &schema.default {
        let at = format!("{path}.default");
        let mut pruned = default.clone();
        schema::prune(&mut pruned, schema, schema.embedded_resource);
        if pruned == *default {
            errors.extend(schema::validate::against(default, schema, None, &at));
            errors.extend(schema::validate::embedded(default, schema, &at));
        } else {
            errors.push(FieldError::invalid(at, default.clone(), "must not have unknown fields"));
        }
    }
    if let Some(items) = &schema.items {
        defaults(items, &format!("{path}.items"), errors);
    }
    for (name, field) in &schema.properties {
        defaults(field, &format!("{path}.properties[{name}]"), errors);
    }
}
