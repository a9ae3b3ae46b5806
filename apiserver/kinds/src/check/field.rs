//! A value with the path under which errors name it.

use crate::access;
use freehold_machinery::{
    ResourceType, Value,
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
    /// Where it stands, if errors name it otherwise.
    at: Option<String>,
    /// The type of the whole object, where errors are made of it.
    ty: Option<&'a ResourceType>,
}

impl<'a> Field<'a> {
    /// A whole object of a type.
    pub(super) fn of(ty: &'a ResourceType, value: &'a Value) -> Self {
        Self { ty: Some(ty), ..Self::root(value) }
    }

    /// An object that is only looked at.
    pub(super) fn root(value: &'a Value) -> Self {
        Self { value, path: String::new(), at: None, ty: None }
    }

    /// This field's type and path with another value in the place of the whole.
    pub(super) fn with(&self, value: &'a Value) -> Self {
        Self { value, ..self.clone() }
    }

    /// This value under another path.
    pub(super) fn named(&self, path: &str) -> Self {
        let at = self.at.clone().unwrap_or_else(|| self.path.clone());
        Self { path: path.to_owned(), at: Some(at), ..self.clone() }
    }

    /// This value, shown as what stands at another path.
    pub(super) fn shown_as(&self, at: &str) -> Self {
        Self { at: Some(at.to_owned()), ..self.clone() }
    }

    /// What stands below, `step` from here.
    fn below(&self, value: &'a Value, step: &str) -> Self {
        let at = self.at.as_ref().map(|at| format!("{at}{step}"));
        let step = if self.path.is_empty() { step.trim_start_matches('.') } else { step };
        Self { value, path: format!("{}{step}", self.path), at, ty: self.ty }
    }

    /// The field at a dotted path below.
    pub(super) fn get(&self, path: &str) -> Self {
        self.below(access::at(self.value, path), &format!(".{path}"))
    }

    /// The value of a map's key.
    pub(super) fn key(&self, key: &str) -> Self {
        self.below(self.value.get(key).unwrap_or(&NULL), &format!("[{key}]"))
    }

    /// The items of a list.
    pub(super) fn items(&self) -> impl Iterator<Item = Self> + use<'a> {
        let list = self.value.as_array().map(Vec::as_slice).unwrap_or_default();
        let own = self.clone();
        list.iter().enumerate().map(move |(index, value)| own.below(value, &format!("[{index}]")))
    }

    /// The keys of a map, with their values.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&'a str, Self)> + use<'a> {
        let entries = self.value.as_object().into_iter().flatten();
        let own = self.clone();
        entries.map(move |(key, value)| (key.as_str(), own.below(value, &format!("[{key}]"))))
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
        FieldError { value, ..FieldError::new(kind, self.path.clone(), detail) }
    }

    /// The value as kube-apiserver has it: what is more than a word is shown as its struct.
    fn shown(&self) -> Option<String> {
        let plain = self.value.is_string() || self.value.is_number() || self.value.is_boolean();
        let ty = self.ty.filter(|ty| !plain && !ty.custom)?;
        freehold_apiserver_catalog::shown(&ty.gvk(), self.at.as_deref().unwrap_or(&self.path), self.value)
    }

    /// The error about the value as it stands there.
    fn about(&self, kind: FieldErrorKind, detail: impl Into<String>) -> FieldError {
        FieldError { shown: self.shown(), ..self.error(kind, Some(self.value.clone()), detail) }
    }

    /// It must be given.
    pub(super) fn required(&self, detail: &str) -> FieldError {
        self.error(FieldErrorKind::Required, None, detail)
    }

    /// It must not be given, or not be changed.
    pub(super) fn forbidden(&self, detail: impl Into<String>) -> FieldError {
        self.error(FieldErrorKind::Forbidden, None, detail)
    }

    /// It must not be changed like this; the error tells the changes, line by line.
    pub(super) fn forbidden_change(&self, detail: &str, old: &Value, new: &Value) -> FieldError {
        let at = self.at.as_deref().unwrap_or(&self.path);
        let lines = self.ty.and_then(|ty| freehold_apiserver_catalog::difference(&ty.gvk(), at, old, new));
        self.forbidden(format!("{detail}\n{}", lines.unwrap_or_default()))
    }

    /// It is not acceptable.
    pub(super) fn invalid(&self, detail: impl Into<String>) -> FieldError {
        self.about(FieldErrorKind::Invalid, detail)
    }

    /// It is not acceptable, and the error shows another value.
    pub(super) fn invalid_as(&self, value: impl Into<Value>, detail: impl Into<String>) -> FieldError {
        self.error(FieldErrorKind::Invalid, Some(value.into()), detail)
    }

    /// It is not acceptable, and the error shows no value.
    pub(super) fn invalid_bare(&self, detail: &str) -> FieldError {
        self.error(FieldErrorKind::Invalid, None, detail)
    }

    /// It is not one of a fixed set.
    pub(super) fn not_supported(&self, supported: &[&str]) -> FieldError {
        let value = if self.is_set() { self.value.clone() } else { json!("") };
        FieldError::not_supported(self.path.clone(), value, supported)
    }

    /// A value that stands in it is not one of a fixed set.
    pub(super) fn not_supported_as(&self, value: &str, supported: &[&str]) -> FieldError {
        FieldError::not_supported(self.path.clone(), value.into(), supported)
    }

    /// It is not one of a fixed set, and the error shows all of it.
    pub(super) fn not_supported_whole(&self, supported: &[&str]) -> FieldError {
        let detail = self.not_supported(supported).detail;
        self.about(FieldErrorKind::NotSupported, detail)
    }

    /// It was there before.
    pub(super) fn duplicate(&self) -> FieldError {
        self.about(FieldErrorKind::Duplicate, "")
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
