//! What Kyverno generates by the policies of `deploy/gitops`: as much of its language as stands in them, and a panic for anything
//! else.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Map, Value, json};

/// The objects that a policy generates for an object, with the rules that match it.
pub(super) fn generated(policy: &Value, object: &Value) -> Vec<Value> {
    let rules = policy["spec"]["rules"].as_array().expect("rules").iter();
    rules.filter(|rule| matches(rule, object)).filter_map(|rule| generate(rule, object)).collect()
}

fn matches(rule: &Value, object: &Value) -> bool {
    let resources = &rule["match"]["any"][0]["resources"];
    let kinds = resources["kinds"].as_array().expect("kinds").iter();
    let kind = object["kind"].as_str().expect("a kind");
    let of_kind = kinds.filter_map(Value::as_str).any(|named| named.rsplit('/').next() == Some(kind));
    let names = resources["names"].as_array();
    of_kind && names.is_none_or(|names| names.contains(&object["metadata"]["name"]))
}

fn generate(rule: &Value, object: &Value) -> Option<Value> {
    let mut known = json!({"request": {"object": object}});
    for entry in rule["context"].as_array().into_iter().flatten() {
        let name = entry["name"].as_str().expect("a name").to_owned();
        known[name] = filled(&entry["variable"]["value"], &known);
    }
    let holds = |condition: &Value| {
        assert_eq!(condition["operator"], "Equals");
        filled(&condition["key"], &known) == filled(&condition["value"], &known)
    };
    if !rule["preconditions"]["all"].as_array().expect("preconditions").iter().all(holds) {
        return None;
    }
    let generate = &rule["generate"];
    let mut made = filled(&generate["data"], &known);
    for field in ["apiVersion", "kind"] {
        made[field] = generate[field].clone();
    }
    for field in ["name", "namespace"].into_iter().filter(|field| generate.get(field).is_some()) {
        made["metadata"][field] = filled(&generate[field], &known);
    }
    Some(made)
}

/// A value with its variables replaced.
fn filled(value: &Value, known: &Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields.iter().map(|(key, value)| (key.clone(), filled(value, known))).collect::<Map<_, _>>(),
        ),
        Value::Array(items) => items.iter().map(|item| filled(item, known)).collect(),
        Value::String(text) => replaced(text, known),
        other => other.clone(),
    }
}

/// A text with its variables replaced; one that is a variable and nothing else becomes what it stands for.
fn replaced(text: &str, known: &Value) -> Value {
    let whole = text.strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}"));
    if let Some(expression) = whole.filter(|inner| !inner.contains("}}")) {
        return evaluated(expression.trim(), known);
    }
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("{{") {
        let (expression, after) = after.split_once("}}").expect("a variable ends");
        let value = evaluated(expression.trim(), known);
        out = out + before + value.as_str().unwrap_or_else(|| panic!("{expression} is no text: {value}"));
        rest = after;
    }
    (out + rest).into()
}

fn evaluated(expression: &str, known: &Value) -> Value {
    if let Some((first, second)) = expression.split_once(" || ").filter(|_| !expression.contains('(')) {
        let found = evaluated(first, known);
        return if found.is_null() { evaluated(second, known) } else { found };
    }
    if let Some(literal) = expression.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) {
        return literal.into();
    }
    if let Some((function, argument)) = expression.strip_suffix(')').and_then(|rest| rest.split_once('(')) {
        let argument = evaluated(argument, known);
        let text = || argument.as_str().unwrap_or_else(|| panic!("{expression}: no text"));
        return match function {
            "parse_json" => serde_json::from_str(text()).expect("JSON"),
            "to_string" => argument.to_string().into(),
            "base64_encode" => BASE64_STANDARD.encode(text()).into(),
            other => panic!("{other} is a function that this test does not know"),
        };
    }
    path(expression).iter().fold(known.clone(), |value, key| value.get(key).cloned().unwrap_or_default())
}

/// `a.b."c.d"` as its keys.
fn path(expression: &str) -> Vec<String> {
    let quoted = expression.split('"').enumerate();
    let keys = quoted.flat_map(|(nth, part)| {
        let keys: Vec<&str> = if nth % 2 == 1 { vec![part] } else { part.split('.').collect() };
        keys.into_iter().map(str::to_owned).collect::<Vec<_>>()
    });
    keys.filter(|key| !key.is_empty()).collect()
}
