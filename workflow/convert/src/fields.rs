//! Reading of objects that notices what was not read.

use crate::Report;
use crate::build::scalar;
use freehold_machinery::Value;
use serde_json::Map;
use std::collections::BTreeSet;

/// The fields of an object. Those that nothing took are refused by [`finish`](Self::finish).
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    path: String,
    map: Option<&'a Map<String, Value>>,
    left: BTreeSet<&'a str>,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(path: impl Into<String>, value: &'a Value) -> Self {
        let map = value.as_object();
        let left = map
            .into_iter()
            .flatten()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, _)| key.as_str())
            .collect();
        Self { path: path.into(), map, left }
    }

    /// The path of a field.
    pub(crate) fn at(&self, field: &str) -> String {
        if self.path.is_empty() { field.to_owned() } else { format!("{}.{field}", self.path) }
    }

    /// A field as it is.
    pub(crate) fn take(&mut self, field: &str) -> Option<&'a Value> {
        self.left.remove(field);
        self.map?.get(field).filter(|value| !value.is_null())
    }

    /// A field as it is, which has still to be taken.
    pub(crate) fn peek(&self, field: &str) -> Option<&'a Value> {
        self.map?.get(field)
    }

    /// A scalar as text.
    pub(crate) fn text(&mut self, field: &str, report: &mut Report) -> Option<String> {
        let value = self.take(field)?;
        let text = scalar(value);
        if text.is_none() {
            report.refuse(self.at(field), "a text is wanted");
        }
        text
    }

    /// A list of texts.
    pub(crate) fn texts(&mut self, field: &str, report: &mut Report) -> Vec<String> {
        let mut texts = Vec::new();
        for (n, value) in self.list(field).iter().enumerate() {
            match scalar(value) {
                Some(text) => texts.push(text),
                None => report.refuse(format!("{}[{n}]", self.at(field)), "a text is wanted"),
            }
        }
        texts
    }

    /// A list. Another value is left, and refused at the end.
    pub(crate) fn list(&mut self, field: &str) -> &'a [Value] {
        match self.peek(field) {
            Some(Value::Array(list)) => {
                self.left.remove(field);
                list
            }
            _ => &[],
        }
    }

    /// The objects of a list, each with its path.
    pub(crate) fn objects(&mut self, field: &str) -> Vec<Fields<'a>> {
        let at = self.at(field);
        self.list(field)
            .iter()
            .enumerate()
            .map(|(n, value)| Fields::new(format!("{at}[{n}]"), value))
            .collect()
    }

    /// An object. Another value is left, and refused at the end.
    pub(crate) fn object(&mut self, field: &str) -> Option<Fields<'a>> {
        let value = self.peek(field).filter(|value| value.is_object())?;
        self.left.remove(field);
        Some(Fields::new(self.at(field), value))
    }

    /// Whether a field is `true`. A value that is no truth value is left, and refused at the end.
    pub(crate) fn flag(&mut self, field: &str) -> bool {
        let flag = match self.peek(field) {
            Some(Value::Bool(flag)) => *flag,
            Some(Value::String(text)) if text == "true" || text == "false" => text == "true",
            _ => return false,
        };
        self.left.remove(field);
        flag
    }

    /// A whole number, also as text.
    pub(crate) fn number(&mut self, field: &str, report: &mut Report) -> Option<u32> {
        let text = self.text(field, report)?;
        let number = text.parse().ok();
        if number.is_none() {
            report.refuse(
                self.at(field),
                format!("{text:?}: a whole number is wanted; references are not supported here"),
            );
        }
        number
    }

    /// Reads fields that say nothing more.
    pub(crate) fn ignore(&mut self, fields: &[&str]) {
        self.left.retain(|field| !fields.contains(field));
    }

    /// Refuses a field, if it is there, with a reason.
    pub(crate) fn refuse(&mut self, field: &str, why: &str, report: &mut Report) {
        if self.take(field).is_some_and(|value| {
            value != &Value::Bool(false) && value.as_array().is_none_or(|list| !list.is_empty())
        }) {
            report.refuse(self.at(field), why);
        }
    }

    /// Notes a field, if it is there.
    pub(crate) fn note(&mut self, field: &str, what: &str, report: &mut Report) {
        if self.take(field).is_some() {
            report.note(self.at(field), what);
        }
    }

    /// Refuses what is left.
    pub(crate) fn finish(self, report: &mut Report) {
        for field in &self.left {
            report.refuse(self.at(field), "not supported");
        }
    }
}
