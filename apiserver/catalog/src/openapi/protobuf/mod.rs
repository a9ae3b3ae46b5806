//! OpenAPI documents as gnostic's protobuf messages (google/gnostic-models).
//!
//! The messages mirror the JSON closely enough for a table to say it all: each field's number and form by its JSON
//! name.

mod v2;
mod v3;

use freehold_machinery::{Map, Value};

/// A message: fields by JSON name, and the number of the field that takes `x-` extensions (0: none).
struct Message {
    fields: &'static [(&'static str, u32, Form)],
    extensions: u32,
}

/// How a JSON value stands in a field.
#[derive(Clone, Copy)]
enum Form {
    Text,
    Texts,
    Flag,
    Integer,
    Float,
    /// Any JSON, as YAML text.
    Any,
    Anys,
    One(Of),
    Many(Of),
    /// A map as name and value pairs, in this field of a message of their own.
    Named(u32, Of),
    /// A message of which the first field is that and the second a flag.
    OrFlag(Of),
}

/// What a value becomes.
#[derive(Clone, Copy)]
enum Of {
    Message(&'static Message),
    /// In the first field of a message around it.
    First(&'static Message),
    /// In the second field of a message around it.
    Second(&'static Message),
    /// Itself in the first field of a message, or a reference in the second.
    Or(&'static Message),
    /// That in the first field of one more.
    FirstOr(&'static Message),
    By(fn(&Value) -> Vec<u8>),
}

/// What a reference is in version 3.
static REFERENCE: Message =
    Message { fields: &[("$ref", 1, Form::Text), ("description", 3, Form::Text)], extensions: 0 };

/// Encodes a whole document of version 2.
pub(super) fn v2(document: &Value) -> Vec<u8> {
    message(&v2::DOCUMENT, document)
}

/// Encodes a whole document of version 3.
pub(super) fn v3(document: &Value) -> Vec<u8> {
    message(&v3::DOCUMENT, document)
}

fn message(shape: &Message, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    let Some(map) = value.as_object() else { return out };
    for (name, number, form) in shape.fields {
        if let Some(value) = map.get(*name) {
            field(&mut out, *number, *form, value);
        }
    }
    for (name, value) in map.iter().filter(|(name, _)| shape.extensions > 0 && name.starts_with("x-")) {
        bytes(&mut out, shape.extensions, &pair(name, &any(value)));
    }
    out
}

fn field(out: &mut Vec<u8>, number: u32, form: Form, value: &Value) {
    match form {
        Form::Text => text(out, number, value),
        Form::Texts => items(value).for_each(|item| text(out, number, item)),
        Form::Flag => varint_field(out, number, value.as_bool().unwrap_or(false).into()),
        Form::Integer => varint_field(out, number, value.as_i64().unwrap_or(0).cast_unsigned()),
        Form::Float => float(out, number, value.as_f64().unwrap_or(0.0)),
        Form::Any => bytes(out, number, &any(value)),
        Form::Anys => items(value).for_each(|item| bytes(out, number, &any(item))),
        Form::One(of) => bytes(out, number, &made(of, value)),
        Form::Many(of) => items(value).for_each(|item| bytes(out, number, &made(of, item))),
        Form::Named(within, of) => bytes(out, number, &named(within, of, value)),
        Form::OrFlag(of) => bytes(out, number, &or_flag(of, value)),
    }
}

fn made(of: Of, value: &Value) -> Vec<u8> {
    match of {
        Of::Message(shape) => message(shape, value),
        Of::First(shape) => wrapped(1, &message(shape, value)),
        Of::Second(shape) => wrapped(2, &message(shape, value)),
        Of::Or(_) if value.get("$ref").is_some() => wrapped(2, &message(&REFERENCE, value)),
        Of::Or(shape) => wrapped(1, &message(shape, value)),
        Of::FirstOr(shape) => wrapped(1, &made(Of::Or(shape), value)),
        Of::By(make) => make(value),
    }
}

/// The items of a list; a single value is a list of one.
fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().map_or_else(|| std::slice::from_ref(value), Vec::as_slice).iter()
}

fn named(number: u32, of: Of, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in value.as_object().unwrap_or(&Map::new()) {
        bytes(&mut out, number, &pair(name, &made(of, value)));
    }
    out
}

/// A name with its value.
fn pair(name: &str, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len() + value.len() + 8);
    bytes(&mut out, 1, name.as_bytes());
    bytes(&mut out, 2, value);
    out
}

fn any(value: &Value) -> Vec<u8> {
    wrapped(2, value.to_string().as_bytes())
}

fn wrapped(number: u32, inner: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(inner.len() + 6);
    bytes(&mut out, number, inner);
    out
}

fn or_flag(of: Of, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    match value {
        Value::Bool(flag) => varint_field(&mut out, 2, (*flag).into()),
        schema => bytes(&mut out, 1, &made(of, schema)),
    }
    out
}

fn text(out: &mut Vec<u8>, number: u32, value: &Value) {
    if let Some(text) = value.as_str() {
        bytes(out, number, text.as_bytes());
    }
}

fn bytes(out: &mut Vec<u8>, number: u32, value: &[u8]) {
    varint(out, u64::from(number << 3 | 2));
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// A number or boolean; the default is left out, as protobuf 3 does.
fn varint_field(out: &mut Vec<u8>, number: u32, value: u64) {
    if value != 0 {
        varint(out, u64::from(number << 3));
        varint(out, value);
    }
}

fn float(out: &mut Vec<u8>, number: u32, value: f64) {
    if value != 0.0 {
        varint(out, u64::from(number << 3 | 1));
        out.extend_from_slice(&value.to_le_bytes());
    }
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
