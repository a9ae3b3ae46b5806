//! OpenAPI 2 as gnostic's protobuf messages (`openapi.v2.Document`, from `OpenAPIv2.proto` of google/gnostic-models).
//! Only what [`v2`](super::super::v2) writes is in the tables; other keys are left out.

use super::{Form, Message, Of, bytes, items, message, pair, text, wrapped};
use freehold_machinery::{Map, Value};

pub(super) static DOCUMENT: Message = Message {
    fields: &[
        ("swagger", 1, Form::Text),
        ("info", 2, Form::One(Of::Message(&INFO))),
        ("paths", 8, Form::Named(2, Of::Message(&PATH))),
        ("definitions", 9, Form::Named(1, Of::Message(&SCHEMA))),
        ("parameters", 10, Form::Named(1, Of::By(parameter))),
        ("security", 12, Form::Many(Of::By(security))),
        ("securityDefinitions", 13, Form::Named(1, Of::Second(&API_KEY))),
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
        ("get", 2, Form::One(Of::Message(&OPERATION))),
        ("put", 3, Form::One(Of::Message(&OPERATION))),
        ("post", 4, Form::One(Of::Message(&OPERATION))),
        ("delete", 5, Form::One(Of::Message(&OPERATION))),
        ("options", 6, Form::One(Of::Message(&OPERATION))),
        ("head", 7, Form::One(Of::Message(&OPERATION))),
        ("patch", 8, Form::One(Of::Message(&OPERATION))),
        ("parameters", 9, Form::Many(Of::By(parameter_item))),
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
        ("parameters", 8, Form::Many(Of::By(parameter_item))),
        ("responses", 9, Form::Named(1, Of::First(&RESPONSE))),
        ("schemes", 10, Form::Texts),
    ],
    extensions: 13,
};

static RESPONSE: Message = Message {
    fields: &[("description", 1, Form::Text), ("schema", 2, Form::One(Of::First(&SCHEMA)))],
    extensions: 5,
};

static BODY: Message = Message {
    fields: &[
        ("description", 1, Form::Text),
        ("name", 2, Form::Text),
        ("in", 3, Form::Text),
        ("required", 4, Form::Flag),
        ("schema", 5, Form::One(Of::Message(&SCHEMA))),
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
        ("additionalProperties", 21, Form::OrFlag(Of::Message(&SCHEMA))),
        ("type", 22, Form::One(Of::By(text_list))),
        ("items", 23, Form::One(Of::First(&SCHEMA))),
        ("allOf", 24, Form::Many(Of::Message(&SCHEMA))),
        ("properties", 25, Form::Named(1, Of::Message(&SCHEMA))),
        ("example", 30, Form::Any),
    ],
    extensions: 31,
};

static REFERENCE: Message = Message { fields: &[("$ref", 1, Form::Text)], extensions: 0 };

fn text_list(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    items(value).for_each(|item| text(&mut out, 1, item));
    out
}

/// `ParametersItem` around a parameter, or around a reference to one.
fn parameter_item(value: &Value) -> Vec<u8> {
    match value.get("$ref") {
        Some(_) => wrapped(2, &message(&REFERENCE, value)),
        None => wrapped(1, &parameter(value)),
    }
}

/// `Parameter` around the parameter's own kind.
fn parameter(value: &Value) -> Vec<u8> {
    match value.get("in").and_then(Value::as_str) {
        Some("body") => wrapped(1, &message(&BODY, value)),
        Some("path") => wrapped(2, &wrapped(4, &message(&IN_PATH, value))),
        _ => wrapped(2, &wrapped(3, &message(&QUERY, value))),
    }
}

fn security(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, scopes) in value.as_object().unwrap_or(&Map::new()) {
        bytes(&mut out, 1, &pair(name, &text_list(scopes)));
    }
    out
}
