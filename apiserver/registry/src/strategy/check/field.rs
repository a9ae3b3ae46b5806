//! A value with the path under which errors name it.

use crate::strategy::access;
use freehold_machinery::{
    Value,
    status::{FieldError, FieldErrorKind},
};
use serde_json::json;

/// Problems found so far.
pub(super) type Errors = Vec<FieldError>;

static NULL: Value = Value::Null;

/// A part of an object, there or not, and where it stands.
#[derive(Clone)]
pub(super) struct Field<'a> {
    /// What stands there; null where nothing does.
    pub(super) value: &'a Value,
    path: String,
}

impl<'a> Field<'a> {
    /// The whole object.
    pub(super) fn root(value: &'a Value) -> Self {
        Self { value, path: String::new() }
    }

    /// The same value under another path.
    pub(super) fn named(&self, path: &str) -> Self {
        Self { value: self.value, path: path.to_owned() }
    }

    /// The field at a dotted path below.
    pub(super) fn get(&self, path: &str) -> Self {
        let dot = if self.path.is_empty() { "" } else { "." };
        Self { value: access::at(self.value, path), path: format!("{}{dot}{path}", self.path) }
    }

    /// The value of a map's key.
    pub(super) fn key(&self, key: &str) -> Self {
        let value = self.value.get(key).unwrap_or(&NULL);
        Self { value, path: format!("{}[{key}]", self.path) }
    }

    /// The items of a list.
    pub(super) fn items(&self) -> impl Iterator<Item = Self> + use<'a> {
        let path = self.path.clone();
        let list = self.value.as_array().map(Vec::as_slice).unwrap_or_default();
        list.iter().enumerate().map(move |(index, value)| Self { value, path: format!("{path}[{index}]") })
    }

    /// The keys of a map, with their values.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&'a str, Self)> + use<'a> {
        let path = self.path.clone();
        let entries = self.value.as_object().into_iter().flatten();
        entries.map(move |(key, value)| (key.as_str(), Self { value, path: format!("{path}[{key}]") }))
    }

    /// Whether something stands there.
    pub(super) fn is_set(&self) -> bool {
        !self.value.is_null()
    }

    /// Whether it is absent or without content.
    pub(super) fn is_empty(&self) -> bool {
        access::is_empty(self.value)
    }

    /// The string; empty where there is none.
    pub(super) fn text(&self) -> &'a str {
        self.value.as_str().unwrap_or_default()
    }

    /// The strings of a list.
    pub(super) fn texts(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.value.as_array().into_iter().flatten().filter_map(Value::as_str)
    }

    /// The whole number, where there is one.
    pub(super) fn int(&self) -> Option<i64> {
        self.value.as_i64()
    }

    /// The whole number; zero where there is none.
    pub(super) fn number(&self) -> i64 {
        self.value.as_i64().unwrap_or(0)
    }

    /// The path under which errors name it.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Whether it is `true`.
    pub(super) fn flag(&self) -> bool {
        self.value == &Value::Bool(true)
    }

    /// How many items or keys it has.
    pub(super) fn len(&self) -> usize {
        self.value.as_array().map(Vec::len).or_else(|| self.value.as_object().map(|m| m.len())).unwrap_or(0)
    }

    fn error(&self, kind: FieldErrorKind, value: Option<Value>, detail: impl Into<String>) -> FieldError {
        FieldError { kind, field: self.path.clone(), value, detail: detail.into() }
    }

    /// It must be given.
    pub(super) fn required(&self, detail: &str) -> FieldError {
        self.error(FieldErrorKind::Required, None, detail)
    }

    /// It must not be given, or not be changed.
    pub(super) fn forbidden(&self, detail: impl Into<String>) -> FieldError {
        self.error(FieldErrorKind::Forbidden, None, detail)
    }

    /// It is not acceptable.
    pub(super) fn invalid(&self, detail: impl Into<String>) -> FieldError {
        self.error(FieldErrorKind::Invalid, Some(self.value.clone()), detail)
    }

    /// It is not acceptable, and the error shows another value.
    pub(super) fn invalid_as(&self, value: impl Into<Value>, detail: impl Into<String>) -> FieldError {
        self.error(FieldErrorKind::Invalid, Some(value.into()), detail)
    }

    /// It is not acceptable, and the error shows all of a Go struct: its fields by their Go names, in their order.
    pub(super) fn invalid_struct(&self, shape: Shape, detail: &str) -> FieldError {
        self.invalid_text(&as_struct(self.value, shape), detail)
    }

    /// It is not acceptable, and the error shows no value.
    pub(super) fn invalid_bare(&self, detail: &str) -> FieldError {
        self.error(FieldErrorKind::Invalid, None, detail)
    }

    /// A selector of labels that is not acceptable; the error shows it as Kubernetes writes it.
    pub(super) fn invalid_selector(&self, detail: &str) -> FieldError {
        let labels = self.get("matchLabels");
        let requirement = |expression: Self| {
            let mut parts = vec![
                format!("\"key\":{}", json!(expression.get("key").text())),
                format!("\"operator\":{}", json!(expression.get("operator").text())),
            ];
            let values = expression.get("values");
            if !values.is_empty() {
                parts.push(format!("\"values\":{}", values.value));
            }
            format!("{{{}}}", parts.join(","))
        };
        let expressions: Vec<String> = self.get("matchExpressions").items().map(requirement).collect();
        let labels = (!labels.is_empty()).then(|| format!("\"matchLabels\":{}", labels.value));
        let expressions =
            (!expressions.is_empty()).then(|| format!("\"matchExpressions\":[{}]", expressions.join(",")));
        let parts: Vec<String> = labels.into_iter().chain(expressions).collect();
        let shown = if self.is_set() { format!("{{{}}}", parts.join(",")) } else { "null".to_owned() };
        self.invalid_text(&shown, detail)
    }

    /// It is not acceptable, and the error shows this text.
    pub(super) fn invalid_text(&self, shown: &str, detail: &str) -> FieldError {
        self.error(FieldErrorKind::Invalid, None, format!("{shown}: {detail}"))
    }

    /// It is not one of a fixed set.
    pub(super) fn not_supported(&self, supported: &[&str]) -> FieldError {
        let value = if self.is_set() { self.value.clone() } else { json!("") };
        FieldError::not_supported(self.path.clone(), value, supported)
    }

    /// It was there before.
    pub(super) fn duplicate(&self) -> FieldError {
        self.duplicate_as(self.value.clone())
    }

    /// It was there before; the error shows another value.
    pub(super) fn duplicate_as(&self, value: impl Into<Value>) -> FieldError {
        self.error(FieldErrorKind::Duplicate, Some(value.into()), "")
    }

    /// It names something that is not there.
    pub(super) fn not_found(&self) -> FieldError {
        self.error(FieldErrorKind::NotFound, Some(self.text().into()), "")
    }

    /// It has more bytes than allowed.
    pub(super) fn too_long(&self, limit: usize) -> FieldError {
        self.error(FieldErrorKind::TooLong, None, format!("may not be more than {limit} bytes"))
    }

    /// It has more items than allowed.
    pub(super) fn too_many(&self, limit: usize) -> FieldError {
        let items = if limit == 1 { "item" } else { "items" };
        let detail = format!("must have at most {limit} {items}");
        self.error(FieldErrorKind::TooMany, Some(self.len().into()), detail)
    }
}

/// The fields of a Go struct without JSON tags: their names there, ours, and what they are.
pub(super) type Shape = &'static [(&'static str, &'static str, Part)];

/// A field of a Go struct.
pub(super) enum Part {
    /// A pointer, list or map: null where it is absent.
    Pointer,
    /// A string that is empty where it is absent.
    Text,
    /// Another struct, null where it is absent.
    Struct(Shape),
    /// Another struct, always there.
    Whole(Shape),
    /// A list of structs, null where it is absent.
    List(Shape),
}

/// The JSON of a Go struct without tags.
fn as_struct(value: &Value, shape: Shape) -> String {
    let part = |(name, ours, part): &(&str, &str, Part)| {
        let value = value.get(*ours).unwrap_or(&NULL);
        let shown = match part {
            Part::Struct(shape) if value.is_object() => as_struct(value, shape),
            Part::Whole(shape) => as_struct(value, shape),
            Part::List(shape) if value.is_array() => {
                let items = value.as_array().into_iter().flatten().map(|item| as_struct(item, shape));
                format!("[{}]", items.collect::<Vec<_>>().join(","))
            }
            Part::Text if value.is_null() => "\"\"".to_owned(),
            _ => value.to_string(),
        };
        format!("{name:?}:{shown}")
    };
    format!("{{{}}}", shape.iter().map(part).collect::<Vec<_>>().join(","))
}

/// Whether two values say the same: what is null or without content counts as absent.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    let absent = |value: &Value| !value.is_number() && !value.is_boolean() && access::is_empty(value);
    match (a, b) {
        (Value::Object(x), Value::Object(y)) => {
            let keys = x.keys().chain(y.keys());
            keys.into_iter().all(|key| same(x.get(key).unwrap_or(&NULL), y.get(key).unwrap_or(&NULL)))
        }
        (Value::Array(x), Value::Array(y)) => x.len() == y.len() && x.iter().zip(y).all(|(x, y)| same(x, y)),
        _ => a == b || (absent(a) && absent(b)),
    }
}
