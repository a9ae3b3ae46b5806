//! OpenAPI 3 as gnostic's protobuf messages (`openapi.v3.Document`, from `OpenAPIv3.proto` of google/gnostic-models).
//! Only what [`v3`](super::super::v3) writes and CRDs may say is in the tables; other keys are left out.

use super::{Form, Message, Of, wrapped};
use freehold_machinery::Value;

pub(super) static DOCUMENT: Message = Message {
    fields: &[
        ("openapi", 1, Form::Text),
        ("info", 2, Form::One(Of::Message(&INFO))),
        ("paths", 4, Form::Named(1, Of::Message(&PATH))),
        ("components", 5, Form::One(Of::Message(&COMPONENTS))),
    ],
    extensions: 9,
};

static INFO: Message =
    Message { fields: &[("title", 1, Form::Text), ("version", 6, Form::Text)], extensions: 7 };

static COMPONENTS: Message = Message {
    fields: &[
        ("schemas", 1, Form::Named(1, Of::Or(&SCHEMA))),
        ("securitySchemes", 7, Form::Named(1, Of::Or(&SECURITY))),
    ],
    extensions: 10,
};

static SECURITY: Message = Message {
    fields: &[
        ("type", 1, Form::Text),
        ("description", 2, Form::Text),
        ("name", 3, Form::Text),
        ("in", 4, Form::Text),
    ],
    extensions: 9,
};

static PATH: Message = Message {
    fields: &[
        ("get", 4, Form::One(Of::Message(&OPERATION))),
        ("put", 5, Form::One(Of::Message(&OPERATION))),
        ("post", 6, Form::One(Of::Message(&OPERATION))),
        ("delete", 7, Form::One(Of::Message(&OPERATION))),
        ("options", 8, Form::One(Of::Message(&OPERATION))),
        ("head", 9, Form::One(Of::Message(&OPERATION))),
        ("patch", 10, Form::One(Of::Message(&OPERATION))),
        ("parameters", 13, Form::Many(Of::Or(&PARAMETER))),
    ],
    extensions: 14,
};

static OPERATION: Message = Message {
    fields: &[
        ("tags", 1, Form::Texts),
        ("description", 3, Form::Text),
        ("operationId", 5, Form::Text),
        ("parameters", 6, Form::Many(Of::Or(&PARAMETER))),
        ("requestBody", 7, Form::One(Of::Or(&BODY))),
        ("responses", 8, Form::Named(2, Of::Or(&RESPONSE))),
    ],
    extensions: 13,
};

static PARAMETER: Message = Message {
    fields: &[
        ("name", 1, Form::Text),
        ("in", 2, Form::Text),
        ("description", 3, Form::Text),
        ("required", 4, Form::Flag),
        ("schema", 10, Form::One(Of::Or(&SCHEMA))),
    ],
    extensions: 14,
};

static BODY: Message = Message {
    fields: &[("content", 2, Form::Named(1, Of::Message(&MEDIA))), ("required", 3, Form::Flag)],
    extensions: 4,
};

static RESPONSE: Message = Message {
    fields: &[("description", 1, Form::Text), ("content", 3, Form::Named(1, Of::Message(&MEDIA)))],
    extensions: 5,
};

static MEDIA: Message = Message { fields: &[("schema", 1, Form::One(Of::Or(&SCHEMA)))], extensions: 5 };

static SCHEMA: Message = Message {
    fields: &[
        ("nullable", 1, Form::Flag),
        ("example", 7, Form::Any),
        ("title", 9, Form::Text),
        ("multipleOf", 10, Form::Float),
        ("maximum", 11, Form::Float),
        ("exclusiveMaximum", 12, Form::Flag),
        ("minimum", 13, Form::Float),
        ("exclusiveMinimum", 14, Form::Flag),
        ("maxLength", 15, Form::Integer),
        ("minLength", 16, Form::Integer),
        ("pattern", 17, Form::Text),
        ("maxItems", 18, Form::Integer),
        ("minItems", 19, Form::Integer),
        ("uniqueItems", 20, Form::Flag),
        ("maxProperties", 21, Form::Integer),
        ("minProperties", 22, Form::Integer),
        ("required", 23, Form::Texts),
        ("enum", 24, Form::Anys),
        ("type", 25, Form::Text),
        ("allOf", 26, Form::Many(Of::Or(&SCHEMA))),
        ("oneOf", 27, Form::Many(Of::Or(&SCHEMA))),
        ("anyOf", 28, Form::Many(Of::Or(&SCHEMA))),
        ("not", 29, Form::One(Of::Message(&SCHEMA))),
        ("items", 30, Form::One(Of::FirstOr(&SCHEMA))),
        ("properties", 31, Form::Named(1, Of::Or(&SCHEMA))),
        ("additionalProperties", 32, Form::OrFlag(Of::Or(&SCHEMA))),
        ("default", 33, Form::One(Of::By(default))),
        ("description", 34, Form::Text),
        ("format", 35, Form::Text),
    ],
    extensions: 36,
};

/// `DefaultType`, which has numbers, flags and texts only.
fn default(value: &Value) -> Vec<u8> {
    match value {
        Value::Number(number) => {
            let mut out = vec![1 << 3 | 1];
            out.extend_from_slice(&number.as_f64().unwrap_or_default().to_le_bytes());
            out
        }
        Value::Bool(flag) => vec![2 << 3, u8::from(*flag)],
        Value::String(text) => wrapped(3, text.as_bytes()),
        _ => Vec::new(),
    }
}
