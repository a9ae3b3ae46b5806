//! Cell functions by name, and those that many kinds use.
//!
//! A column says `function argument...`; an argument with a leading dot is a JSON path, any other a word. The
//! words in angle brackets are Kubernetes' own for what is absent.

use crate::duration;
use crate::jsonpath::JsonPath;
use freehold_machinery::{Value, meta, quantity::Quantity};
use jiff::Timestamp;

/// What a cell function gets beside the object.
pub(crate) struct Arguments {
    pub(crate) paths: Vec<JsonPath>,
    pub(crate) word: &'static str,
}

pub(crate) type Function = fn(&Value, &Arguments, Timestamp) -> Value;

/// The functions that all kinds share.
pub(crate) const COMMON: &[(&str, Function)] = &[
    ("access-modes", |o, a, _| access_modes(a.value(o)).into()),
    ("age", |o, _, now| duration::since(Some(meta::text(o, "creationTimestamp")), now).into()),
    ("containers", |o, a, _| of_containers(a.value(o), "name").into()),
    ("containers-usage", |o, a, _| containers_usage(o, a.word).into()),
    ("count", |o, a, _| a.paths.iter().filter_map(|path| path.first(o)).map(length).sum::<usize>().into()),
    ("created", |o, _, _| meta::text(o, "creationTimestamp").into()),
    ("flag", |o, a, _| a.value(o).and_then(Value::as_bool).unwrap_or(false).into()),
    ("flag-or-true", |o, a, _| a.value(o).and_then(Value::as_bool).unwrap_or(true).into()),
    ("images", |o, a, _| of_containers(a.value(o), "image").into()),
    ("int", |o, a, _| a.value(o).and_then(Value::as_i64).unwrap_or(0).into()),
    ("list", |o, a, _| joined(strings(a.value(o)), ",").into()),
    ("message", |o, a, _| a.text(o).trim().into()),
    ("or", |o, a, _| or(a.value(o), a.word).into()),
    ("printed-flag", |o, a, _| printed_flag(a.value(o)).into()),
    ("ratio", |o, a, _| ratio(o, a).into()),
    ("raw", |o, a, _| a.value(o).filter(|v| !v.is_null()).cloned().unwrap_or_else(|| a.word.into())),
    ("selector", |o, a, _| selector(a.value(o)).into()),
    ("since", |o, a, now| a.value(o).map_or("<none>".into(), |t| duration::since(t.as_str(), now).into())),
    ("text", |o, a, _| or(a.value(o), "").into()),
    ("words", |o, a, _| strings(a.value(o)).collect::<Vec<_>>().join(",").into()),
];

impl Arguments {
    /// What the first path selects.
    pub(crate) fn value<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        self.paths.first()?.first(object)
    }

    fn text<'a>(&self, object: &'a Value) -> &'a str {
        self.value(object).and_then(Value::as_str).unwrap_or("")
    }
}

/// The value at a JSON pointer as text; empty where there is none.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or("")
}

/// The integer at a JSON pointer; 0 where there is none.
pub(crate) fn int(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

/// The items of the list at a JSON pointer.
pub(crate) fn items<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Whether the object has a condition of a type with status `True`.
pub(crate) fn holds(object: &Value, condition: &str) -> bool {
    self::condition(object, condition).is_some_and(|found| text(found, "/status") == "True")
}

/// A condition of the object by type.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    items(object, "/status/conditions").iter().find(|condition| text(condition, "/type") == kind)
}

/// A scalar as it is printed, or a word where it is absent or empty.
pub(crate) fn or(value: Option<&Value>, absent: &str) -> String {
    match value {
        None | Some(Value::Null) => absent.to_owned(),
        Some(Value::String(text)) if text.is_empty() => absent.to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// Words in one cell; `<none>` where there are none.
pub(crate) fn joined<S: AsRef<str>>(words: impl IntoIterator<Item = S>, separator: &str) -> String {
    let mut out = String::new();
    for word in words {
        if !out.is_empty() {
            out.push_str(separator);
        }
        out.push_str(word.as_ref());
    }
    if out.is_empty() { "<none>".to_owned() } else { out }
}

/// The first few of a list, and how many are left out.
pub(crate) fn first_of(list: &[String], most: usize, separator: &str) -> String {
    match list.len().checked_sub(most) {
        None | Some(0) => list.join(separator),
        Some(more) => format!("{} + {more} more...", list[..most].join(separator)),
    }
}

/// The strings of a list.
pub(crate) fn strings(list: Option<&Value>) -> impl Iterator<Item = &str> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

fn length(value: &Value) -> usize {
    value.as_array().map(Vec::len).or_else(|| value.as_object().map(|map| map.len())).unwrap_or(0)
}

/// What the containers of a Pod's metrics use of a resource together.
fn containers_usage(metrics: &Value, resource: &str) -> String {
    let used =
        items(metrics, "/containers").iter().filter_map(|container| container["usage"][resource].as_str());
    let used = used.filter_map(|amount| amount.parse::<Quantity>().ok());
    used.fold(Quantity::ZERO, |sum, amount| sum.plus(&amount)).to_string()
}

fn of_containers(spec: Option<&Value>, field: &str) -> String {
    let containers = spec.and_then(|spec| spec.get("containers")).and_then(Value::as_array);
    let field = |container: &Value| container.get(field).and_then(Value::as_str).unwrap_or("").to_owned();
    containers.map(|list| list.iter().map(field).collect::<Vec<_>>().join(",")).unwrap_or_default()
}

fn printed_flag(value: Option<&Value>) -> &'static str {
    match value.and_then(Value::as_bool) {
        None => "<unset>",
        Some(true) => "True",
        Some(false) => "False",
    }
}

fn ratio(object: &Value, arguments: &Arguments) -> String {
    let number = |path: &JsonPath| path.first(object).and_then(Value::as_i64).unwrap_or(0).to_string();
    arguments.paths.iter().map(number).collect::<Vec<_>>().join("/")
}

/// A label selector or a plain map of labels, as text.
pub(crate) fn selector(value: Option<&Value>) -> String {
    let Some(map) = value.and_then(Value::as_object) else { return "<none>".to_owned() };
    let labels = map.get("matchLabels").and_then(Value::as_object);
    let expressions = map.get("matchExpressions").and_then(Value::as_array);
    if labels.is_none() && expressions.is_none() {
        return joined(map.iter().map(|(key, value)| equals(key, value)), ",");
    }
    let labels = labels.into_iter().flatten().map(|(key, value)| (key.as_str(), equals(key, value)));
    let expressions = expressions.into_iter().flatten().map(|e| (text(e, "/key"), expression(e)));
    let mut parts: Vec<_> = labels.chain(expressions).collect();
    parts.sort();
    joined(parts.into_iter().map(|(_, part)| part), ",")
}

fn equals(key: &str, value: &Value) -> String {
    format!("{key}={}", value.as_str().unwrap_or(""))
}

fn expression(expression: &Value) -> String {
    let key = text(expression, "/key");
    let mut values: Vec<_> = strings(expression.get("values")).collect();
    values.sort_unstable();
    match text(expression, "/operator") {
        "In" => format!("{key} in ({})", values.join(",")),
        "NotIn" => format!("{key} notin ({})", values.join(",")),
        "DoesNotExist" => format!("!{key}"),
        _ => key.to_owned(),
    }
}

/// Access modes of volumes in their short form.
pub(crate) fn access_modes(modes: Option<&Value>) -> String {
    const SHORT: [(&str, &str); 4] = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let modes: Vec<_> = strings(modes).collect();
    let present = SHORT.iter().filter(|(mode, _)| modes.contains(mode));
    present.map(|(_, short)| *short).collect::<Vec<_>>().join(",")
}
