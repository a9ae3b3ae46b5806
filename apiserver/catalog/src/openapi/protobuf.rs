//! OpenAPI 2 as gnostic's protobuf messages (`openapi.v2.Document`, from `OpenAPIv2.proto` of google/gnostic-models).
//!
//! The messages mirror the JSON closely enough for a table to say it all: each field's number and form by its JSON
//! name. Only what [`v2`](super::v2) writes is in the tables; other keys are left out.

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
    Message(&'static Message),
    /// A message in another that has it as its first field.
    Wrapped(&'static Message),
    /// Texts in a message of their own (`TypeItem`, `StringArray`), from one text or a list.
    TextList,
    Messages(&'static Message),
    /// A map as name and value pairs, in this field of a message of their own.
    Named(u32, NamedForm),
    /// `AdditionalPropertiesItem`: a schema or a boolean.
    SchemaOrFlag,
    Parameters,
    Security,
}

/// The values of a map.
#[derive(Clone, Copy)]
enum NamedForm {
    Message(&'static Message),
    /// In the first field of a message around it.
    Wrapped(&'static Message),
    /// In the second field of a message around it.
    Second(&'static Message),
}

static DOCUMENT: Message = Message {
    fields: &[
        ("swagger", 1, Form::Text),
        ("info", 2, Form::Message(&INFO)),
        ("paths", 8, Form::Named(2, NamedForm::Message(&PATH))),
        ("definitions", 9, Form::Named(1, NamedForm::Message(&SCHEMA))),
        ("security", 12, Form::Security),
        ("securityDefinitions", 13, Form::Named(1, NamedForm::Second(&API_KEY))),
    ],
    extensions: 16,
};

static INFO: Message =
    Message { fields: &[("title", 1, Form::Text), ("version", 2, Form::Text)], extensions: 7 };

static API_KEY: Message = Message {
    fields: &[
        ("type", 1, Form::Text),
        ("name", 2, Form::Text),
        ("in", 3, Form::Text),
        ("description", 4, Form::Text),
    ],
    extensions: 5,
};

static PATH: Message = Message {
    fields: &[
        ("get", 2, Form::Message(&OPERATION)),
        ("put", 3, Form::Message(&OPERATION)),
        ("post", 4, Form::Message(&OPERATION)),
        ("delete", 5, Form::Message(&OPERATION)),
        ("patch", 8, Form::Message(&OPERATION)),
        ("parameters", 9, Form::Parameters),
    ],
    extensions: 10,
};

static OPERATION: Message = Message {
    fields: &[
        ("tags", 1, Form::Texts),
        ("description", 3, Form::Text),
        ("operationId", 5, Form::Text),
        ("produces", 6, Form::Texts),
        ("consumes", 7, Form::Texts),
        ("parameters", 8, Form::Parameters),
        ("responses", 9, Form::Named(1, NamedForm::Wrapped(&RESPONSE))),
        ("schemes", 10, Form::Texts),
    ],
    extensions: 13,
};

static RESPONSE: Message = Message {
    fields: &[("description", 1, Form::Text), ("schema", 2, Form::Wrapped(&SCHEMA))],
    extensions: 5,
};

static BODY: Message = Message {
    fields: &[
        ("description", 1, Form::Text),
        ("name", 2, Form::Text),
        ("in", 3, Form::Text),
        ("required", 4, Form::Flag),
        ("schema", 5, Form::Message(&SCHEMA)),
    ],
    extensions: 6,
};

static QUERY: Message = Message {
    fields: &[
        ("required", 1, Form::Flag),
        ("in", 2, Form::Text),
        ("description", 3, Form::Text),
        ("name", 4, Form::Text),
        ("type", 6, Form::Text),
        ("uniqueItems", 20, Form::Flag),
    ],
    extensions: 23,
};

static IN_PATH: Message = Message {
    fields: &[
        ("required", 1, Form::Flag),
        ("in", 2, Form::Text),
        ("description", 3, Form::Text),
        ("name", 4, Form::Text),
        ("type", 5, Form::Text),
        ("uniqueItems", 19, Form::Flag),
    ],
    extensions: 22,
};

static SCHEMA: Message = Message {
    fields: &[
        ("$ref", 1, Form::Text),
        ("format", 2, Form::Text),
        ("title", 3, Form::Text),
        ("description", 4, Form::Text),
        ("default", 5, Form::Any),
        ("multipleOf", 6, Form::Float),
        ("maximum", 7, Form::Float),
        ("exclusiveMaximum", 8, Form::Flag),
        ("minimum", 9, Form::Float),
        ("exclusiveMinimum", 10, Form::Flag),
        ("maxLength", 11, Form::Integer),
        ("minLength", 12, Form::Integer),
        ("pattern", 13, Form::Text),
        ("maxItems", 14, Form::Integer),
        ("minItems", 15, Form::Integer),
        ("uniqueItems", 16, Form::Flag),
        ("maxProperties", 17, Form::Integer),
        ("minProperties", 18, Form::Integer),
        ("required", 19, Form::Texts),
        ("enum", 20, Form::Anys),
        ("additionalProperties", 21, Form::SchemaOrFlag),
        ("type", 22, Form::TextList),
        ("items", 23, Form::Wrapped(&SCHEMA)),
        ("allOf", 24, Form::Messages(&SCHEMA)),
        ("properties", 25, Form::Named(1, NamedForm::Message(&SCHEMA))),
        ("example", 30, Form::Any),
    ],
    extensions: 31,
};

/// Encodes a whole document.
pub(super) fn document(document: &Value) -> Vec<u8> {
    message(&DOCUMENT, document)
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
        Form::Message(shape) => bytes(out, number, &message(shape, value)),
        Form::Wrapped(shape) => bytes(out, number, &wrapped(1, &message(shape, value))),
        Form::TextList => bytes(out, number, &text_list(value)),
        Form::Messages(shape) => items(value).for_each(|item| bytes(out, number, &message(shape, item))),
        Form::Named(within, form) => bytes(out, number, &named(within, form, value)),
        Form::SchemaOrFlag => bytes(out, number, &schema_or_flag(value)),
        Form::Parameters => items(value).for_each(|item| bytes(out, number, &parameter(item))),
        Form::Security => items(value).for_each(|item| bytes(out, number, &security(item))),
    }
}

/// The items of a list; a single value is a list of one.
fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().map_or_else(|| std::slice::from_ref(value), Vec::as_slice).iter()
}

fn named(number: u32, form: NamedForm, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in value.as_object().unwrap_or(&Map::new()) {
        let value = match form {
            NamedForm::Message(shape) => message(shape, value),
            NamedForm::Wrapped(shape) => wrapped(1, &message(shape, value)),
            NamedForm::Second(shape) => wrapped(2, &message(shape, value)),
        };
        bytes(&mut out, number, &pair(name, &value));
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

fn text_list(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    items(value).for_each(|item| text(&mut out, 1, item));
    out
}

fn schema_or_flag(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    match value {
        Value::Bool(flag) => varint_field(&mut out, 2, (*flag).into()),
        schema => bytes(&mut out, 1, &message(&SCHEMA, schema)),
    }
    out
}

/// `ParametersItem` around `Parameter` around the parameter's own kind.
fn parameter(value: &Value) -> Vec<u8> {
    let inner = match value.get("in").and_then(Value::as_str) {
        Some("body") => wrapped(1, &message(&BODY, value)),
        Some("path") => wrapped(2, &wrapped(4, &message(&IN_PATH, value))),
        _ => wrapped(2, &wrapped(3, &message(&QUERY, value))),
    };
    wrapped(1, &inner)
}

fn security(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, scopes) in value.as_object().unwrap_or(&Map::new()) {
        bytes(&mut out, 1, &pair(name, &text_list(scopes)));
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
