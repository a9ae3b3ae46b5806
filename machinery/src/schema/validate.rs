//! Validation of values by schema, with the words of kube-openapi and apiextensions.
//!
//! Texts and kinds of errors are those that a client of kube-apiserver gets for a custom resource, including their
//! habit to say `<nil>` where a junctor (`oneOf`, ...) fails. On an update, errors below a value that did not change are
//! dropped (ratcheting, KEP-4008).

use super::{Checks, Kind, ListType, Schema, embedded, formats, lists, node::MAX_ERRORS, pattern};
use crate::{
    Map, Value,
    quantity::Quantity,
    status::{FieldError, FieldErrorKind},
};
use std::{collections::HashSet, fmt::Write};

/// Checks a whole object. With `old`, what was wrong already and did not change is let through.
pub fn validate(value: &Value, schema: &Schema, old: Option<&Value>) -> Vec<FieldError> {
    with_items(value, schema, old, against(value, schema, old, ""))
}

/// Checks one field's value as if it were the whole object. An absent field is valid.
pub fn validate_field(value: &Value, field: &str, schema: &Schema, old: Option<&Value>) -> Vec<FieldError> {
    let before = old.map(|old| &old[field]);
    let errors = match (value.get(field), schema.properties.get(field)) {
        (Some(part), Some(schema)) => against(part, schema, before, field),
        _ => Vec::new(),
    };
    with_items(value, schema, old, errors)
}

/// Adds what is wrong with embedded resources and the keys of lists.
fn with_items(
    value: &Value,
    schema: &Schema,
    old: Option<&Value>,
    mut errors: Vec<FieldError>,
) -> Vec<FieldError> {
    errors.extend(embedded::check(value, schema));
    let repeated = lists::duplicates(value, schema);
    if !repeated.is_empty() && old.is_none_or(|old| lists::duplicates(old, schema).is_empty()) {
        errors.extend(repeated);
    }
    errors
}

/// Checks type and metadata of each whole object in a value that stands at `prefix`, itself among them.
pub fn embedded(value: &Value, schema: &Schema, prefix: &str) -> Vec<FieldError> {
    embedded::check_at(value, schema, prefix)
}

/// Checks a value that stands at `prefix`, by its schema alone: neither embedded resources nor lists' keys.
pub fn against(value: &Value, schema: &Schema, old: Option<&Value>, prefix: &str) -> Vec<FieldError> {
    let mut walk = Walk { path: String::new() };
    let mut errors = walk.node(value, schema, old, true).errors;
    let mut seen = HashSet::new();
    errors.retain(|error| seen.insert((error.kind.reason(), error.to_string())));
    for error in &mut errors {
        error.field = match (prefix, error.field.trim_start_matches('.')) {
            ("", "") => "<nil>".to_owned(),
            (prefix, "") => prefix.to_owned(),
            ("", field) => field.to_owned(),
            (prefix, field) => format!("{prefix}.{field}"),
        };
    }
    errors
}

/// Errors, and how many checks applied: the alternative with most of them is reported where none fits.
#[derive(Default)]
struct Outcome {
    errors: Vec<FieldError>,
    /// About what they take.
    bytes: usize,
    matches: usize,
}

impl Outcome {
    /// Clients choose how much is wrong, and how long the paths to it are: when enough is known no more is made.
    fn add(&mut self, error: impl FnOnce() -> FieldError) {
        if self.bytes < MAX_ERRORS {
            let error = error();
            let value = error.value.as_ref().map_or(0, |value| match value {
                Value::String(text) => text.len(),
                Value::Array(_) | Value::Object(_) => value.to_string().len(),
                _ => 0,
            });
            self.bytes += size_of::<FieldError>() + error.field.len() + error.detail.len() + value;
            self.errors.push(error);
        }
    }

    fn merge(&mut self, other: Self) {
        self.matches += other.matches;
        if self.bytes < MAX_ERRORS {
            self.bytes += other.bytes;
            self.errors.extend(other.errors);
        }
    }

    fn clear(&mut self) {
        (self.errors, self.bytes) = (Vec::new(), 0);
    }
}

struct Walk {
    path: String,
}

impl Walk {
    fn below<T>(&mut self, step: std::fmt::Arguments<'_>, inner: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.path.len();
        write!(self.path, "{step}").expect("writing to a string does not fail");
        let result = inner(self);
        self.path.truncate(length);
        result
    }

    /// Not by [`Walk::below`]: each field of each object comes by here, and formatting takes longer than most checks.
    fn field<T>(&mut self, name: &str, inner: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        let result = inner(self);
        self.path.truncate(length);
        result
    }

    fn invalid(&self, value: Value, what: impl std::fmt::Display) -> FieldError {
        FieldError::invalid(&*self.path, value, format!("{} in body {what}", self.path))
    }

    fn wrong_type(&self, wanted: &str, given: &str) -> FieldError {
        let detail = format!("{} in body must be of type {wanted}: {given:?}", self.path);
        FieldError::new(FieldErrorKind::TypeInvalid, &*self.path, detail).of(given.into())
    }

    fn too_many(&self, count: usize, limit: u64) -> FieldError {
        let items = if limit == 1 { "item" } else { "items" };
        let detail = format!("must have at most {limit} {items}");
        FieldError::new(FieldErrorKind::TooMany, &*self.path, detail).of(count.into())
    }

    /// Checks one node. `ratchet`: what is wrong with a value that equals `old` is let through.
    fn node(&mut self, value: &Value, schema: &Schema, old: Option<&Value>, ratchet: bool) -> Outcome {
        let mut outcome = Outcome::default();
        self.check_type(value, schema, &mut outcome);
        if value.is_null() {
            self.check_enum(value, schema, &mut outcome);
        } else {
            if let Some(checks) = &schema.checks {
                self.check_junctors(value, checks, old, &mut outcome);
            }
            match value {
                Value::String(text) => self.check_string(text, schema, &mut outcome),
                Value::Number(_) => self.check_number(value, schema, &mut outcome),
                Value::Array(list) => self.check_array(list, schema, old, &mut outcome),
                _ => {}
            }
            self.check_enum(value, schema, &mut outcome);
            if let Value::Object(map) = value {
                self.check_object(map, schema, old, &mut outcome);
            }
            outcome.matches += 3;
        }
        if ratchet && !outcome.errors.is_empty() && old == Some(value) {
            outcome.clear();
        }
        outcome
    }

    fn check_type(&self, value: &Value, schema: &Schema, outcome: &mut Outcome) {
        let wanted = match (schema.kind, schema.int_or_string) {
            (_, true) => "integer,string",
            (Some(kind), false) => kind_name(kind),
            (None, false) => return,
        };
        let given = value_type(value);
        let fits = match (value, schema.kind) {
            (Value::Null, _) => schema.nullable,
            (Value::String(_), None) => true,
            (Value::Number(n), None) => is_whole(n) || is_quantity(schema),
            (Value::Number(n), Some(Kind::Integer)) => is_whole(n),
            (Value::Number(_), Some(Kind::Number)) => true,
            _ => given == wanted,
        };
        if fits {
            outcome.matches += 1;
            return;
        }
        outcome.matches += 1;
        let format = schema.format.as_deref().filter(|f| format_counts(schema, f));
        outcome.add(|| match (format, value) {
            (Some(format), Value::Number(n)) => {
                self.wrong_type(format, if n.is_f64() { "float64" } else { "int64" })
            }
            (Some(format), Value::Bool(_) | Value::Object(_)) => self.wrong_type(format, ""),
            _ => self.wrong_type(wanted, given),
        });
    }

    fn check_string(&self, text: &str, schema: &Schema, outcome: &mut Outcome) {
        outcome.matches += 1;
        if let Some(error) = schema.checks.as_ref().and_then(|c| self.string_error(text, c)) {
            outcome.add(|| error);
        }
        let Some(format) = schema.format.as_deref() else { return };
        if is_quantity(schema) {
            if let Err(e) = text.parse::<Quantity>() {
                outcome.add(|| FieldError::invalid(&*self.path, text.into(), e.to_string()));
            }
        } else if format_counts(schema, format) && formats::check(format, text) == Some(false) {
            outcome.matches += 1;
            outcome.add(|| self.wrong_type(format, text));
        }
    }

    fn string_error(&self, text: &str, checks: &Checks) -> Option<FieldError> {
        let length = text.chars().count() as u64;
        if let Some(limit) = checks.max_length.filter(|limit| length > *limit) {
            let bytes = if limit == 1 { "byte" } else { "bytes" };
            let detail = format!("may not be more than {limit} {bytes}");
            return Some(FieldError::new(FieldErrorKind::TooLong, &*self.path, detail));
        }
        if let Some(limit) = checks.min_length.filter(|limit| length < *limit) {
            return Some(self.invalid(text.into(), format_args!("should be at least {limit} chars long")));
        }
        let regex = checks.pattern.as_deref()?;
        match pattern::compile(regex) {
            Ok(compiled) if compiled.is_match(text) => None,
            Ok(_) => Some(self.invalid(text.into(), format_args!("should match '{regex}'"))),
            Err(e) => {
                Some(self.invalid(
                    text.into(),
                    format_args!("should match '{regex}, but pattern is invalid: {e}'"),
                ))
            }
        }
    }

    fn check_number(&self, value: &Value, schema: &Schema, outcome: &mut Outcome) {
        outcome.matches += 2;
        let Some(number) = value.as_f64() else { return };
        if let Some(wanted) = beyond_range(value, schema) {
            let detail = format!("Checked value must be of type {wanted} in {}", self.path);
            outcome.add(|| FieldError::invalid("", "".into(), detail));
        }
        let Some(checks) = schema.checks.as_deref() else { return };
        if let Some(error) = checks.multiple_of.and_then(|factor| self.multiple(value, number, factor)) {
            outcome.add(|| error);
        }
        if let Some(max) = checks.maximum {
            let (bad, words) = match checks.exclusive_maximum {
                true => (number >= max, "less than"),
                false => (number > max, "less than or equal to"),
            };
            if bad {
                outcome.add(|| self.invalid(value.clone(), format_args!("should be {words} {max}")));
            }
        }
        if let Some(min) = checks.minimum {
            let (bad, words) = match checks.exclusive_minimum {
                true => (number <= min, "greater than"),
                false => (number < min, "greater than or equal to"),
            };
            if bad {
                outcome.add(|| self.invalid(value.clone(), format_args!("should be {words} {min}")));
            }
        }
    }

    /// Whole numbers are held against the whole part of the factor, as kube-openapi does.
    fn multiple(&self, value: &Value, number: f64, factor: f64) -> Option<FieldError> {
        let factor = if value.is_i64() { factor.trunc() } else { factor };
        if factor <= 0.0 {
            let detail = format!("factor MultipleOf declared for {} must be positive: {factor}", self.path);
            return Some(FieldError::invalid(&*self.path, (factor as i64).into(), detail));
        }
        (!is_multiple(number, factor))
            .then(|| self.invalid(value.clone(), format_args!("should be a multiple of {factor}")))
    }

    fn check_enum(&self, value: &Value, schema: &Schema, outcome: &mut Outcome) {
        let Some(allowed) = schema.checks.as_ref().map(|c| &c.allowed).filter(|a| !a.is_empty()) else {
            return;
        };
        let same = |a: &Value| match (a, value) {
            (Value::Null, _) | (_, Value::Null) => false,
            (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
            (a, b) => a == b,
        };
        if !allowed.iter().any(same) {
            let shown: Vec<String> =
                allowed.iter().map(|a| a.as_str().map_or_else(|| a.to_string(), str::to_owned)).collect();
            let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
            outcome.add(|| FieldError::not_supported(&*self.path, value.clone(), &shown));
        }
    }

    fn check_array(&mut self, list: &[Value], schema: &Schema, old: Option<&Value>, outcome: &mut Outcome) {
        outcome.matches += 2;
        if let Some(items) = &schema.items {
            let old = old.and_then(Value::as_array).filter(|_| schema.list_type == Some(ListType::Map));
            let old = old.map(|old| lists::Keyed::new(old, &schema.list_map_keys));
            for (index, item) in list.iter().enumerate() {
                let was = old.as_ref().and_then(|old| old.same_as(item));
                let inner = self.below(format_args!("[{index}]"), |w| w.node(item, items, was, true));
                outcome.merge(inner);
            }
        }
        let Some(checks) = schema.checks.as_deref() else { return };
        let count = list.len() as u64;
        if let Some(limit) = checks.min_items.filter(|limit| count < *limit) {
            outcome.add(|| self.invalid(count.into(), format_args!("should have at least {limit} items")));
        }
        if let Some(limit) = checks.max_items.filter(|limit| count > *limit) {
            outcome.add(|| self.too_many(list.len(), limit));
        }
        if checks.unique_items && lists::has_duplicates(list) {
            outcome.add(|| self.invalid("".into(), "shouldn't contain duplicates"));
        }
    }

    fn check_object(&mut self, map: &Map, schema: &Schema, old: Option<&Value>, outcome: &mut Outcome) {
        outcome.matches += 1;
        if let Some(checks) = schema.checks.as_deref() {
            let count = map.len() as u64;
            if let Some(limit) = checks.min_properties.filter(|limit| count < *limit) {
                outcome.add(|| {
                    self.invalid(count.into(), format_args!("should have at least {limit} properties"))
                });
            }
            if let Some(limit) = checks.max_properties.filter(|limit| count > *limit) {
                outcome.add(|| self.too_many(map.len(), limit));
            }
        }
        let old = old.and_then(Value::as_object);
        let is_root = self.path.is_empty();
        let declared =
            schema.properties.iter().filter_map(|(name, child)| Some((&**name, map.get(&**name)?, child)));
        let undeclared = |name: &str| !schema.properties.contains_key(name);
        let others = schema.additional.iter().flat_map(|child| {
            map.iter().filter(move |(k, _)| undeclared(k)).map(move |(k, v)| (k.as_str(), v, child))
        });
        for (name, value, child) in others.chain(declared) {
            // Both sides were converted to the version of the request, so a type's own fields never differ.
            let was = old.filter(|_| !(is_root && matches!(name, "apiVersion" | "kind")));
            let was = was.and_then(|old| old.get(name));
            let inner = self.field(name, |w| w.node(value, child, was, was.is_some()));
            outcome.merge(inner);
        }
        for name in schema.required.iter().filter(|name| !map.contains_key(&***name)) {
            outcome.add(|| self.field(name, |w| FieldError::required(&*w.path, "")));
        }
    }

    fn check_junctors(&mut self, value: &Value, checks: &Checks, old: Option<&Value>, outcome: &mut Outcome) {
        outcome.matches += 1;
        self.check_any_of(value, checks, old, outcome);
        self.check_one_of(value, checks, old, outcome);
        let (mut good, mut merged) = (0, Outcome::default());
        for schema in &checks.all_of {
            let inner = self.node(value, schema, old, false);
            good += usize::from(inner.errors.is_empty());
            merged.merge(inner);
        }
        outcome.merge(merged);
        if good < checks.all_of.len() {
            let none = if good == 0 { ". None validated" } else { "" };
            outcome.add(|| self.junctor(format_args!("must validate all the schemas (allOf){none}")));
        }
        if let Some(schema) = &checks.not
            && self.node(value, schema, old, false).errors.is_empty()
        {
            outcome.add(|| self.junctor("must not validate the schema (not)"));
        }
    }

    fn check_any_of(&mut self, value: &Value, checks: &Checks, old: Option<&Value>, outcome: &mut Outcome) {
        let mut best: Option<Outcome> = None;
        for schema in &checks.any_of {
            let inner = self.node(value, schema, old, false);
            if inner.errors.is_empty() {
                outcome.merge(inner);
                return;
            }
            if best.as_ref().is_none_or(|b| inner.matches > b.matches) {
                best = Some(inner);
            }
        }
        if let Some(best) = best {
            outcome.add(|| self.junctor("must validate at least one schema (anyOf)"));
            outcome.merge(best);
        }
    }

    fn check_one_of(&mut self, value: &Value, checks: &Checks, old: Option<&Value>, outcome: &mut Outcome) {
        if checks.one_of.is_empty() {
            return;
        }
        let (mut good, mut best): (usize, Option<Outcome>) = (0, None);
        for schema in &checks.one_of {
            let inner = self.node(value, schema, old, false);
            if inner.errors.is_empty() {
                good += 1;
                if good == 1 {
                    best = Some(inner);
                }
            } else if good == 0 && best.as_ref().is_none_or(|b| inner.matches > b.matches) {
                best = Some(inner);
            }
        }
        let found = match good {
            1 => None,
            0 => Some("Found none valid".to_owned()),
            n => Some(format!("Found {n} valid alternatives")),
        };
        if let Some(found) = found {
            outcome
                .add(|| self.junctor(format_args!("must validate one and only one schema (oneOf). {found}")));
        }
        if let Some(best) = best {
            outcome.merge(best);
        }
    }

    fn junctor(&self, what: impl std::fmt::Display) -> FieldError {
        FieldError::invalid("", "".into(), format!("{:?} {what}", self.path))
    }
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Object => "object",
        Kind::Array => "array",
        Kind::String => "string",
        Kind::Integer => "integer",
        Kind::Number => "number",
        Kind::Boolean => "boolean",
    }
}

fn value_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn is_quantity(schema: &Schema) -> bool {
    schema.int_or_string && schema.format.as_deref() == Some("quantity")
}

/// Whether Kubernetes heeds a format on this type; others are as good as absent.
fn format_counts(schema: &Schema, format: &str) -> bool {
    match schema.kind {
        Some(Kind::String) | None => formats::is_known(format),
        Some(Kind::Integer) => matches!(format, "int32" | "int64"),
        Some(Kind::Number) => matches!(format, "float" | "double"),
        _ => false,
    }
}

fn is_whole(number: &serde_json::Number) -> bool {
    number.is_i64() || number.as_f64().is_some_and(|f| f.fract() == 0.0 && f.abs() <= MAX_SAFE)
}

/// The greatest whole number that is one as JSON: floating point numbers beyond are not taken for whole.
const MAX_SAFE: f64 = 9_007_199_254_740_991.0;

/// The type, with its format, whose range a number leaves.
fn beyond_range(value: &Value, schema: &Schema) -> Option<String> {
    let format = schema.format.as_deref().unwrap_or("");
    match schema.kind? {
        Kind::Integer => {
            let number = value.as_i64().or_else(|| {
                let float = value.as_f64().filter(|f| f.fract() == 0.0 && f.abs() <= MAX_SAFE)?;
                Some(float as i64)
            });
            let fits = number.is_some_and(|n| format != "int32" || i32::try_from(n).is_ok());
            (!fits).then(|| match format {
                "int32" | "int64" => format!("integer with format {format}"),
                _ => "integer (default format)".to_owned(),
            })
        }
        Kind::Number if format == "float" => {
            let fits = value.as_f64().is_some_and(|f| f.abs() <= f64::from(f32::MAX));
            (!fits).then(|| "number with format float".to_owned())
        }
        _ => None,
    }
}

fn is_multiple(number: f64, factor: f64) -> bool {
    let ratio = if factor < 1.0 { 1.0 / factor * number } else { number / factor };
    ratio.abs() <= MAX_SAFE && (ratio - ratio.round()).abs() < 1e-9 * ratio.abs().max(1.0)
}

#[cfg(test)]
#[path = "validate_tests.rs"]
mod tests;
