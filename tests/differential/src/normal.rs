//! What differs from run to run is replaced, so that answers can be compared.

use regex::{Captures, Regex};
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Replaces times, uids, revisions, addresses and generated names by placeholders. One uid gets the same placeholder
/// wherever it stands in a scenario.
pub struct Normal {
    uids: HashMap<String, usize>,
    uid: Regex,
    rules: Vec<(Regex, &'static str)>,
}

const UID: &str = r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b";

/// Replaced in every text, in this order.
const RULES: [(&str, &str); 12] = [
    (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z\b", "<time>"),
    (r"resource version: \d+, current: \d+", "resource version: <n>, current: <n>"),
    (r"too old resource version: \d+ \(\d+\)", "too old resource version: <n> (<n>)"),
    (r"precondition \(\d+\)", "precondition (<n>)"),
    (r"record \(\d+\)", "record (<n>)"),
    (r#""resourceVersion":"\d+""#, r#""resourceVersion":"<revision>""#),
    (r"\b10\.\d{1,3}\.\d{1,3}\.\d{1,3}\b", "<address>"),
    (r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", "<token>"),
    (r"^(<invalid>|\d+[smhdy](\d+[smhd])?)$", "<age>"),
    (r"kube-api-access-[a-z0-9]{5}", "kube-api-access-<generated>"),
    (r"ResourceVersion: \d+", "ResourceVersion: <revision>"),
    (r"selfType\d+", "selfType"),
];

impl Normal {
    /// A normalizer for one scenario.
    pub fn new() -> Self {
        let compile = |pattern: &str| Regex::new(pattern).expect("a pattern of this crate");
        let rules = RULES.iter().map(|(pattern, with)| (compile(pattern), *with)).collect();
        Self { uids: HashMap::new(), uid: compile(UID), rules }
    }

    /// Replaces what differs between runs in a text.
    pub fn text(&mut self, text: &str) -> String {
        let uids = &mut self.uids;
        let mut text = self
            .uid
            .replace_all(text, |found: &Captures<'_>| {
                let next = uids.len() + 1;
                format!("<uid {}>", uids.entry(found[0].to_owned()).or_insert(next))
            })
            .into_owned();
        for (pattern, with) in &self.rules {
            text = pattern.replace_all(&text, *with).into_owned();
        }
        text
    }

    /// Replaces what differs between runs anywhere in a JSON value.
    pub fn value(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(fields) => self.fields(fields),
            _ => {}
        }
    }

    fn fields(&mut self, fields: &mut Map<String, Value>) {
        let generated = fields.get("generateName").and_then(Value::as_str).map(str::to_owned);
        for (key, value) in fields.iter_mut() {
            match (key.as_str(), &generated, value) {
                ("resources", _, value) if by_name(value).is_some() => {
                    *value = by_name(value).unwrap_or_default();
                    self.value(value);
                }
                ("resourceVersion", _, Value::String(text)) if revision(text) => *text = "<revision>".into(),
                ("continue", _, Value::String(text)) if !text.is_empty() => *text = "<continue>".into(),
                ("nodePort" | "healthCheckNodePort", _, value @ Value::Number(_)) => *value = "<port>".into(),
                ("name", Some(prefix), Value::String(text)) if text.starts_with(prefix) => {
                    *text = format!("{prefix}<generated>");
                }
                (_, _, value) => self.value(value),
            }
        }
    }
}

/// The resources of a discovery document by their names: one that is missing shifts no others.
fn by_name(resources: &Value) -> Option<Value> {
    let named = |resource: &Value| {
        resource.get("verbs")?;
        Some((resource.get("name")?.as_str()?.to_owned(), resource.clone()))
    };
    let fields: Option<Map<String, Value>> = resources.as_array()?.iter().map(named).collect();
    fields.filter(|fields| !fields.is_empty()).map(Value::Object)
}

impl Default for Normal {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether it is a revision of a store: 0 has a meaning of its own.
fn revision(text: &str) -> bool {
    text != "0" && !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}
