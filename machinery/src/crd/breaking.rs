//! Changes of a kind that objects or clients of it may not survive.
//!
//! The comparison is of two specs of `APIResourceSchema`, version by version and field by field. A change that only allows
//! more breaks nothing.

use crate::{Map, Value};

/// Deepest schema that is looked at.
const DEPTH: usize = 64;
/// Bounds that allow less when they grow.
const LOWER: [&str; 4] = ["minimum", "minLength", "minItems", "minProperties"];
/// Bounds that allow less when they shrink.
const UPPER: [&str; 4] = ["maximum", "maxLength", "maxItems", "maxProperties"];
/// Constraints that are as good as new ones when they change.
const FIXED: [&str; 10] = [
    "pattern",
    "format",
    "multipleOf",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "uniqueItems",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-embedded-resource",
];
/// Combinations of schemas, which are not looked into.
const COMBINED: [&str; 4] = ["allOf", "anyOf", "oneOf", "not"];

/// Returns what a new state of an exported kind takes away from the one before, a line each. Both are specs of an
/// `APIResourceSchema`.
pub fn breaking(old: &Value, new: &Value) -> Vec<String> {
    let mut found = Vec::new();
    if old["scope"] != new["scope"] {
        found.push(format!("scope changed from {} to {}", shown(&old["scope"]), shown(&new["scope"])));
    }
    if old["names"]["kind"] != new["names"]["kind"] {
        found.push(format!(
            "kind changed from {} to {}",
            shown(&old["names"]["kind"]),
            shown(&new["names"]["kind"])
        ));
    }
    if loses_webhook(old, new) {
        found.push("objects are no longer converted by a webhook".to_owned());
    }
    for before in versions(old) {
        let name = shown(&before["name"]);
        let Some(after) = versions(new).find(|after| after["name"] == before["name"]) else {
            found.push(format!("version {name} was removed"));
            continue;
        };
        for subresource in ["status", "scale"] {
            if !before["subresources"][subresource].is_null() && after["subresources"][subresource].is_null()
            {
                found.push(format!("version {name}: subresource {subresource} was removed"));
            }
        }
        let path = "/schema/openAPIV3Schema";
        let none = Value::Null;
        let schemas = [before, after].map(|version| version.pointer(path).unwrap_or(&none));
        compare(&format!("version {name}: "), "", schemas, &mut found, 0);
    }
    found
}

/// Whether objects come from one version into another by their `apiVersion` alone, and did so by a webhook before.
pub fn loses_webhook(old: &Value, new: &Value) -> bool {
    let converts = |spec: &Value| spec["conversion"]["strategy"] == "Webhook";
    converts(old) && !converts(new)
}

/// The versions that are served.
fn versions(spec: &Value) -> impl Iterator<Item = &Value> {
    spec["versions"].as_array().into_iter().flatten().filter(|version| version["served"] == true)
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn compare(version: &str, at: &str, [old, new]: [&Value; 2], found: &mut Vec<String>, depth: usize) {
    let place = if at.is_empty() { "the object" } else { at };
    let mut note = |what: String| found.push(format!("{version}{place}: {what}"));
    if depth > DEPTH {
        note("the schema is too deep to be compared".to_owned());
        return;
    }
    if old["type"] != new["type"] && !is_free(new) {
        note(format!("type changed from {} to {}", shown(&old["type"]), shown(&new["type"])));
        return;
    }
    if old["nullable"] == true && new["nullable"] != true {
        note("null is no longer allowed".to_owned());
    }
    enums(old, new, &mut note);
    bounds(old, new, &mut note);
    for key in FIXED.iter().chain(&COMBINED) {
        let (before, after) = (&old[*key], &new[*key]);
        if before != after && !(after.is_null() || *after == false) {
            note(format!("{key} was added or changed"));
        }
    }
    rules(old, new, &mut note);
    required(old, new, &mut note);
    let none = Map::new();
    let fields =
        |schema: &'_ Value| schema["properties"].as_object().cloned().unwrap_or_else(|| none.clone());
    let (before, after) = (fields(old), fields(new));
    let is_open =
        is_free(new) || !new["additionalProperties"].is_null() && new["additionalProperties"] != false;
    for (name, field) in &before {
        let at = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
        match after.get(name) {
            Some(now) => compare(version, &at, [field, now], found, depth + 1),
            None if is_open => {}
            None => found.push(format!("{version}{at}: the field was removed")),
        }
    }
    if old["items"].is_object() && new["items"].is_object() {
        compare(version, &format!("{at}[]"), [&old["items"], &new["items"]], found, depth + 1);
    }
    let (before, after) = (&old["additionalProperties"], &new["additionalProperties"]);
    if before.is_object() && after.is_object() {
        compare(version, &format!("{at}[*]"), [before, after], found, depth + 1);
    } else if !before.is_null() && *before != false && (after.is_null() || *after == false) && !is_free(new) {
        found.push(format!("{version}{at}: further keys are no longer allowed"));
    } else if *before == true && after.is_object() {
        found.push(format!("{version}{at}: values of further keys have a schema now"));
    }
    if is_free(old) && !is_free(new) {
        found.push(format!("{version}{at}: unknown fields are no longer kept"));
    }
}

/// Whether fields that the schema does not have are kept.
fn is_free(schema: &Value) -> bool {
    schema["x-kubernetes-preserve-unknown-fields"] == true
}

fn enums(old: &Value, new: &Value, note: &mut impl FnMut(String)) {
    let Some(after) = new["enum"].as_array() else { return };
    match old["enum"].as_array() {
        None => note("only some values are allowed now".to_owned()),
        Some(before) => {
            for gone in before.iter().filter(|value| !after.contains(value)) {
                note(format!("value {} is no longer allowed", shown(gone)));
            }
        }
    }
}

fn bounds(old: &Value, new: &Value, note: &mut impl FnMut(String)) {
    let tighter = |key: &str, is_tighter: fn(f64, f64) -> bool| {
        let after = new[key].as_f64()?;
        old[key].as_f64().is_none_or(|before| is_tighter(before, after)).then_some(after)
    };
    for key in LOWER {
        if let Some(bound) = tighter(key, |before, after| after > before) {
            note(format!("{key} was tightened to {bound}"));
        }
    }
    for key in UPPER {
        if let Some(bound) = tighter(key, |before, after| after < before) {
            note(format!("{key} was tightened to {bound}"));
        }
    }
}

fn rules(old: &Value, new: &Value, note: &mut impl FnMut(String)) {
    let of = |schema: &Value| schema["x-kubernetes-validations"].as_array().cloned().unwrap_or_default();
    let before = of(old);
    for rule in of(new) {
        if !before.iter().any(|known| known["rule"] == rule["rule"]) {
            note(format!("rule {} was added", shown(&rule["rule"])));
        }
    }
}

fn required(old: &Value, new: &Value, note: &mut impl FnMut(String)) {
    let of = |schema: &Value| schema["required"].as_array().cloned().unwrap_or_default();
    let before = of(old);
    for field in of(new).iter().filter(|field| !before.contains(field)) {
        let has_default = field.as_str().is_some_and(|name| !new["properties"][name]["default"].is_null());
        if !has_default {
            note(format!("field {} is required now", shown(field)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn kind(schema: Value) -> Value {
        json!({
            "scope": "Namespaced", "names": {"kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema}}],
        })
    }

    fn field(schema: Value) -> Value {
        kind(json!({"type": "object", "properties": {"a": schema}}))
    }

    #[test]
    fn each_breaking_change_of_a_field_is_found() {
        let text = json!({"type": "string"});
        let rows = [
            ("changed type", text.clone(), json!({"type": "integer"}), "type changed from string to integer"),
            (
                "removed enum value",
                json!({"type": "string", "enum": ["x", "y"]}),
                json!({"type": "string", "enum": ["x"]}),
                "value y is no longer allowed",
            ),
            (
                "new enum",
                text.clone(),
                json!({"type": "string", "enum": ["x"]}),
                "only some values are allowed now",
            ),
            (
                "new pattern",
                text.clone(),
                json!({"type": "string", "pattern": "^a"}),
                "pattern was added or changed",
            ),
            (
                "new format",
                text.clone(),
                json!({"type": "string", "format": "date"}),
                "format was added or changed",
            ),
            (
                "shorter",
                json!({"type": "string", "maxLength": 9}),
                json!({"type": "string", "maxLength": 8}),
                "maxLength was tightened to 8",
            ),
            (
                "longer at least",
                text.clone(),
                json!({"type": "string", "minLength": 1}),
                "minLength was tightened to 1",
            ),
            (
                "lower maximum",
                json!({"type": "integer"}),
                json!({"type": "integer", "maximum": 5}),
                "maximum was tightened to 5",
            ),
            (
                "not null",
                json!({"type": "string", "nullable": true}),
                text.clone(),
                "null is no longer allowed",
            ),
            (
                "new rule",
                text.clone(),
                json!({"type": "string", "x-kubernetes-validations": [{"rule": "self != ''"}]}),
                "rule self != '' was added",
            ),
            (
                "combined",
                text.clone(),
                json!({"type": "string", "anyOf": [{"minLength": 2}]}),
                "anyOf was added or changed",
            ),
        ];
        for (name, old, new, expected) in rows {
            assert_eq!(breaking(&field(old), &field(new)), [format!("version v1: a: {expected}")], "{name}");
        }
    }

    #[test]
    fn each_breaking_change_of_an_object_is_found() {
        let whole = |schema: Value| kind(schema);
        let two = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}});
        let mut needs = two.clone();
        needs["required"] = json!(["b"]);
        let one = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        assert_eq!(breaking(&whole(two.clone()), &whole(one)), ["version v1: b: the field was removed"]);
        assert_eq!(
            breaking(&whole(two.clone()), &whole(needs.clone())),
            ["version v1: the object: field b is required now"]
        );
        needs["properties"]["b"]["default"] = "x".into();
        assert!(breaking(&whole(two.clone()), &whole(needs)).is_empty(), "a default fills it in");
        let list = |items: Value| field(json!({"type": "array", "items": items}));
        let below = breaking(&list(json!({"type": "string"})), &list(json!({"type": "integer"})));
        assert_eq!(below, ["version v1: a[]: type changed from string to integer"]);
        let map = |values: Value| field(json!({"type": "object", "additionalProperties": values}));
        let closed = breaking(&map(json!({"type": "string"})), &field(json!({"type": "object"})));
        assert_eq!(closed, ["version v1: a: further keys are no longer allowed"]);
    }

    #[test]
    fn a_removed_version_subresource_or_scope_breaks() {
        let base = kind(json!({"type": "object"}));
        let mut gone = base.clone();
        gone["versions"][0]["name"] = "v2".into();
        assert_eq!(breaking(&base, &gone), ["version v1 was removed"]);
        let mut plain = base.clone();
        plain["versions"][0]["subresources"] = json!({});
        assert_eq!(breaking(&base, &plain), ["version v1: subresource status was removed"]);
        let mut wide = base.clone();
        wide["scope"] = "Cluster".into();
        assert_eq!(breaking(&base, &wide), ["scope changed from Namespaced to Cluster"]);
    }

    #[test]
    fn a_removed_conversion_breaks() {
        let plain = kind(json!({"type": "object"}));
        let mut converted = plain.clone();
        converted["conversion"] = json!({"strategy": "Webhook"});
        assert_eq!(breaking(&converted, &plain), ["objects are no longer converted by a webhook"]);
        assert!(breaking(&plain, &converted).is_empty() && breaking(&converted, &converted).is_empty());
    }

    #[test]
    fn what_allows_more_breaks_nothing() {
        let rows = [
            (json!({"type": "string", "enum": ["x"]}), json!({"type": "string", "enum": ["x", "y"]})),
            (json!({"type": "string", "enum": ["x"]}), json!({"type": "string"})),
            (
                json!({"type": "string", "maxLength": 8, "pattern": "a"}),
                json!({"type": "string", "maxLength": 9}),
            ),
            (json!({"type": "object"}), json!({"type": "object", "properties": {"n": {"type": "string"}}})),
            (
                json!({"type": "object", "properties": {"n": {"type": "string"}}}),
                json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
            ),
        ];
        for (old, new) in rows {
            assert_eq!(
                breaking(&field(old.clone()), &field(new.clone())),
                Vec::<String>::new(),
                "{old} {new}"
            );
        }
    }
}
