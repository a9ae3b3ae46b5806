//! Parts of objects as validation prints them: as the JSON of the structs inside of kube-apiserver.
//!
//! Those have other names than the served fields, in an order of their own, and show what is not set. Which they are is data
//! ([`Structs`]), made from Kubernetes' own types.

mod diff;

use super::json;
use crate::{Map, Value};
pub use diff::unified_diff;
use serde::Deserialize;
use std::collections::HashMap;

/// The structs behind the served kinds.
#[derive(Debug, Default, Deserialize)]
pub struct Structs {
    /// The struct of each kind, by the name of its definition without `io.k8s.api.` in front.
    roots: HashMap<String, String>,
    structs: HashMap<String, Vec<Row>>,
}

/// A field: its name in messages, the served field (a dotted path, `../` from the struct around it), its type, and
/// `omitempty`.
#[derive(Debug, Deserialize)]
#[serde(from = "Vec<String>")]
struct Row {
    name: String,
    path: String,
    kind: String,
    omit: bool,
}

impl From<Vec<String>> for Row {
    fn from(words: Vec<String>) -> Self {
        let omit = words.len() > 3;
        let mut words = words.into_iter();
        let mut next = || words.next().unwrap_or_default();
        Self { name: next(), path: next(), kind: next(), omit }
    }
}

/// JSON in an order of its own.
enum Node {
    Text(String),
    List(Vec<Node>),
    Fields(Vec<(String, Node)>),
}

impl Structs {
    /// Reads the table.
    ///
    /// # Errors
    /// What is not such a table.
    pub fn read(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The struct of a kind.
    pub fn root(&self, kind: &str) -> Option<&str> {
        self.roots.get(kind).map(String::as_str)
    }

    /// A value as messages show it; `field` is where it stands in an object of the kind (`spec.ports[0]`). `None` where no
    /// struct is known there.
    pub fn show(&self, kind: &str, field: &str, value: &Value) -> Option<String> {
        let mut out = String::new();
        self.node(self.type_at(kind, field)?, Some(value), None).write(None, &mut out);
        Some(out)
    }

    /// What differs between two values of a field: a unified diff of their indented JSON.
    pub fn diff(&self, kind: &str, field: &str, old: &Value, new: &Value) -> Option<String> {
        let at = self.type_at(kind, field)?;
        let text = |value: &Value| {
            let mut out = String::new();
            self.node(at, Some(value), None).write(Some(0), &mut out);
            out
        };
        Some(unified_diff(&text(old), &text(new)))
    }

    /// The type of a field.
    fn type_at(&self, kind: &str, field: &str) -> Option<&str> {
        let mut at = self.roots.get(kind)?.as_str();
        let mut prefix = String::new();
        for step in field.split('.').flat_map(|step| step.split_inclusive('[')) {
            let name = step.trim_end_matches('[');
            if let Some(index) = name.strip_suffix(']') {
                let _ = index;
                at = at.trim_start_matches('*');
                at = at.strip_prefix("[]").or_else(|| at.strip_prefix("map:"))?;
                continue;
            }
            prefix.push_str(name);
            let rows = self.structs.get(at.trim_start_matches('*'))?;
            match rows.iter().find(|row| row.path == prefix) {
                Some(row) => {
                    at = &row.kind;
                    prefix.clear();
                }
                None if rows.iter().any(|row| row.path.starts_with(&format!("{prefix}."))) => {
                    prefix.push('.');
                }
                None => return None,
            }
        }
        prefix.is_empty().then_some(at)
    }

    fn node(&self, kind: &str, value: Option<&Value>, parent: Option<&Map>) -> Node {
        let value = value.filter(|value| !value.is_null());
        let nothing = || Node::Text("null".to_owned());
        if let Some(pointee) = kind.strip_prefix('*') {
            return value.map_or_else(nothing, |value| self.node(pointee, Some(value), parent));
        }
        if let Some(items) = kind.strip_prefix("[]") {
            let list = value.and_then(Value::as_array);
            return list.map_or_else(nothing, |list| {
                Node::List(list.iter().map(|item| self.node(items, Some(item), parent)).collect())
            });
        }
        if let Some(values) = kind.strip_prefix("map:") {
            let map = value.and_then(Value::as_object);
            return map.map_or_else(nothing, |map| {
                let field =
                    |(key, value): (&String, &Value)| (key.clone(), self.node(values, Some(value), parent));
                Node::Fields(map.iter().map(field).collect())
            });
        }
        match (self.structs.get(kind), value) {
            // What anything may stand in is shown as it stands there.
            (Some(rows), Some(value)) if rows.is_empty() => Node::Text(json(value)),
            (Some(_), None) if kind == "runtime.RawExtension" => nothing(),
            (Some(rows), value) => self.fields(rows, value.and_then(Value::as_object), parent),
            (None, Some(value)) => Node::Text(json(value)),
            (None, None) => Node::Text(zero(kind).to_owned()),
        }
    }

    fn fields(&self, rows: &[Row], map: Option<&Map>, parent: Option<&Map>) -> Node {
        let mut fields = Vec::new();
        for row in rows {
            let (from, path) = match row.path.strip_prefix("../") {
                Some(path) => (parent, path),
                None => (map, row.path.as_str()),
            };
            let value = from.filter(|_| !path.is_empty()).and_then(|map| lookup(map, path));
            if row.omit && value.is_none_or(is_zero) {
                continue;
            }
            fields.push((row.name.clone(), self.node(&row.kind, value, map)));
        }
        Node::Fields(fields)
    }
}

fn lookup<'a>(map: &'a Map, path: &str) -> Option<&'a Value> {
    let mut steps = path.split('.');
    let first = map.get(steps.next()?)?;
    steps.try_fold(first, |value, step| value.get(step))
}

fn zero(kind: &str) -> &'static str {
    match kind {
        "string" => "\"\"",
        "int" | "intorstring" => "0",
        "bool" => "false",
        "quantity" => "\"0\"",
        _ => "null",
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

impl Node {
    /// Writes compact JSON, or JSON indented by a space for each level.
    fn write(&self, indent: Option<usize>, out: &mut String) {
        match self {
            Self::Text(text) => out.push_str(text),
            Self::List(items) => {
                nested(out, indent, ('[', ']'), items, |out, inner, item| item.write(inner, out))
            }
            Self::Fields(fields) => nested(out, indent, ('{', '}'), fields, |out, inner, (name, value)| {
                out.push_str(&json(&Value::String(name.clone())));
                out.push_str(if inner.is_some() { ": " } else { ":" });
                value.write(inner, out);
            }),
        }
    }
}

fn nested<T>(
    out: &mut String,
    indent: Option<usize>,
    (open, close): (char, char),
    items: &[T],
    write: impl Fn(&mut String, Option<usize>, &T),
) {
    let inner = indent.map(|level| level + 1);
    let line = |out: &mut String, level: Option<usize>| {
        if let Some(level) = level {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', level));
        }
    };
    out.push(open);
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        line(out, inner);
        write(out, inner, item);
    }
    if !items.is_empty() {
        line(out, indent);
    }
    out.push(close);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TABLE: &str = r#"{"roots": {"x.v1.Pod": "x.Pod"}, "structs": {
        "x.Pod": [["name", "metadata.name", "string", "omitempty"], ["Spec", "spec", "x.Spec"]],
        "x.Spec": [["Ports", "ports", "[]x.Port"], ["Security", "security", "*x.Security"], ["At", "at", "time"]],
        "x.Port": [["Number", "number", "int"], ["Labels", "labels", "map:string"]],
        "x.Security": [["Host", "../host", "bool"]]}}"#;

    #[test]
    fn a_part_of_an_object_is_shown_as_its_struct() {
        let structs = Structs::read(TABLE).unwrap();
        let spec = json!({"ports": [{"number": 1}, {"labels": {"a": "<"}}], "host": true, "security": {}});
        assert_eq!(
            structs.show("x.v1.Pod", "spec", &spec).unwrap(),
            r#"{"Ports":[{"Number":1,"Labels":null},{"Number":0,"Labels":{"a":"\u003c"}}],"Security":{"Host":true},"At":null}"#
        );
        assert_eq!(
            structs.show("x.v1.Pod", "spec.ports[0]", &json!({"number": 2})).unwrap(),
            r#"{"Number":2,"Labels":null}"#
        );
        assert_eq!(structs.show("x.v1.Pod", "metadata.name", &json!("a")).unwrap(), r#""a""#);
        assert_eq!(structs.show("x.v1.Pod", "spec.other", &json!({})), None);
        let diff = structs.diff("x.v1.Pod", "spec", &json!({"host": false, "security": {}}), &spec).unwrap();
        assert!(diff.starts_with("@@ -1,7 +1,18 @@\n {\n- \"Ports\": null,\n"), "{diff}");
    }
}
