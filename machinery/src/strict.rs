//! Strict decoding: the duplicate and unknown fields that `fieldValidation=Strict` and `Warn` report.
//!
//! [`decode_json`] finds fields that stand twice, [`unknown`] those that no schema names. Their texts are joined by the
//! caller: `strict decoding error: unknown field "spec.foo", duplicate field "spec.bar"`.

use crate::{
    Map, Value, go,
    schema::{Schema, prune},
};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::{collections::HashMap, fmt};

/// Complaints beyond this number are not collected, as in Kubernetes' decoder.
const LIMIT: usize = 100;

/// Decodes JSON once, keeping the last of fields that stand twice and naming each of them
/// (`duplicate field "spec.x"`). Integers beyond 64 signed bits become floating point numbers, as Go decodes them.
///
/// # Errors
/// Text that is no UTF-8, or half of a pair of surrogates, becomes U+FFFD. What is not JSON, is followed by something, or is nested
/// more than 127 deep is refused, in Go's words where Go refuses it as well.
pub fn decode_json(bytes: &[u8]) -> Result<(Value, Vec<String>), String> {
    decode(bytes).or_else(|error| match go::syntax_error(bytes) {
        Some(why) => Err(why),
        // What is left are texts that can't be read as they are.
        None => decode(&go::readable(bytes)).map_err(|_| error.to_string()),
    })
}

fn decode(bytes: &[u8]) -> serde_json::Result<(Value, Vec<String>)> {
    let mut found = Found::default();
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = Node(&mut found).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok((value, found.duplicates))
}

/// Puts complaints about a JSON document ([`decode_json`]'s and [`unknown`]'s) in the order in which it has the fields, as
/// Kubernetes finds them while it decodes built-in kinds. Those that it has not come last.
pub fn in_order(document: &[u8], complaints: &mut [String]) {
    let wanted = complaints.iter().cloned().map(|complaint| (complaint, usize::MAX)).collect();
    let mut found = Found { wanted: Some(wanted), ..Found::default() };
    if Node(&mut found).deserialize(&mut serde_json::Deserializer::from_slice(document)).is_ok() {
        let places = found.wanted.unwrap_or_default();
        complaints.sort_by_key(|complaint| places.get(complaint).copied());
    }
}

/// Fields of an object that its schema does not name, as `unknown field "spec.foo"`.
pub fn unknown(value: &Value, schema: &Schema) -> Vec<String> {
    prune::unknown_fields(value, schema)
        .into_iter()
        .take(LIMIT)
        .map(|f| format!("unknown field {f:?}"))
        .collect()
}

#[derive(Default)]
struct Found {
    path: String,
    duplicates: Vec<String>,
    /// Complaints, and how many fields stand before what each is about.
    wanted: Option<HashMap<String, usize>>,
    fields: usize,
}

impl Found {
    /// Runs `inner` with `step` appended to the path.
    fn below<T>(&mut self, step: fmt::Arguments<'_>, inner: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.path.len();
        fmt::Write::write_fmt(&mut self.path, step).expect("writing to a string does not fail");
        let result = inner(self);
        self.path.truncate(length);
        result
    }

    /// Takes note of a field, which may be there a second time.
    fn field(&mut self, again: bool) {
        self.fields += 1;
        if let Some(wanted) = &mut self.wanted {
            let what = if again { "duplicate" } else { "unknown" };
            let place = wanted.get_mut(&format!("{what} field {:?}", self.path));
            place.into_iter().for_each(|place| *place = self.fields.min(*place));
        } else if again {
            self.duplicate();
        }
    }

    fn duplicate(&mut self) {
        if self.duplicates.len() >= LIMIT {
            return;
        }
        // A field that stands three times is told once.
        let duplicate = format!("duplicate field {:?}", self.path);
        if !self.duplicates.contains(&duplicate) {
            self.duplicates.push(duplicate);
        }
    }
}

struct Node<'a>(&'a mut Found);

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(i64::try_from(value).map_or_else(|_| Value::from(value as f64), Value::from))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) =
            self.0.below(format_args!("[{}]", items.len()), |found| seq.next_element_seed(Node(found)))?
        {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let dot = if self.0.path.is_empty() { "" } else { "." };
            let value = self.0.below(format_args!("{dot}{key}"), |found| {
                found.field(fields.contains_key(&key));
                map.next_value_seed(Node(found))
            })?;
            fields.insert(key, value);
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn complaints_stand_in_the_order_of_the_document() {
        let document = br#"{"foo": 1, "data": {"a": "1", "a": "2"}, "bar": 2, "last": true, "last": false}"#;
        let mut complaints = [
            r#"unknown field "bar""#,
            r#"unknown field "foo""#,
            r#"unknown field "elsewhere""#,
            r#"duplicate field "data.a""#,
            r#"duplicate field "last""#,
        ]
        .map(str::to_owned);
        in_order(document, &mut complaints);
        assert_eq!(
            complaints,
            [
                r#"unknown field "foo""#,
                r#"duplicate field "data.a""#,
                r#"unknown field "bar""#,
                r#"duplicate field "last""#,
                r#"unknown field "elsewhere""#,
            ]
        );
    }

    #[test]
    fn the_last_of_two_fields_wins_and_both_are_named() {
        let text = br#"{"a": 0, "a": 1, "spec": {"x": 1, "x": [{"y": 1, "y": 2}]}, "a": 2}"#;
        let (value, duplicates) = decode_json(text).unwrap();
        assert_eq!(value, json!({"a": 2, "spec": {"x": [{"y": 2}]}}));
        assert_eq!(
            duplicates,
            [r#"duplicate field "a""#, r#"duplicate field "spec.x""#, r#"duplicate field "spec.x[0].y""#]
        );
    }

    #[test]
    fn what_is_not_one_json_value_is_refused() {
        for bad in ["", "{", "{} {}", "nul", &"[".repeat(100_000)] {
            assert!(decode_json(bad.as_bytes()).is_err());
        }
        assert_eq!(decode_json(b"18446744073709551615").unwrap().0, json!(18446744073709551615.0));
    }
}
