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
        self.error(FieldErrorKind::NotFound, Some(self.value.clone()), "")
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

/// Whether two values say the same: what is null, false, or without content counts as absent.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    let absent = |value: &Value| !value.is_number() && access::is_empty(value);
    match (a, b) {
        (Value::Object(x), Value::Object(y)) => {
            let keys = x.keys().chain(y.keys());
            keys.into_iter().all(|key| same(x.get(key).unwrap_or(&NULL), y.get(key).unwrap_or(&NULL)))
        }
        (Value::Array(x), Value::Array(y)) => x.len() == y.len() && x.iter().zip(y).all(|(x, y)| same(x, y)),
        _ => a == b || (absent(a) && absent(b)),
    }
}
