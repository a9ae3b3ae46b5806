//! Spans as OTLP has them (opentelemetry-proto, `trace/v1`), written out because a generator would need `protoc`.

use crate::span::{Finished, dropped};
use prost::Message;

/// What spans have in common: the program that made them.
#[derive(Clone, Debug, Default)]
pub struct Resource {
    /// `service.name` and whatever else is known.
    pub attributes: Vec<(String, String)>,
}

#[derive(Clone, PartialEq, Message)]
struct Export {
    #[prost(message, repeated, tag = "1")]
    resources: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<ResourceMessage>,
    #[prost(message, repeated, tag = "2")]
    scopes: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceMessage {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<SpanMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct Scope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(string, optional, tag = "1")]
    string: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct SpanMessage {
    #[prost(bytes = "vec", tag = "1")]
    trace: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start: u64,
    #[prost(fixed64, tag = "8")]
    end: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    status: Option<Status>,
    #[prost(fixed32, tag = "16")]
    flags: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(string, tag = "2")]
    message: String,
    #[prost(int32, tag = "3")]
    code: i32,
}

/// `STATUS_CODE_ERROR`.
const ERROR: i32 = 2;

fn pair(key: &str, value: &str) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { string: Some(value.to_owned()) }) }
}

/// The body of a request to `/v1/traces` with these spans (`ExportTraceServiceRequest`, as protobuf).
pub fn encode(resource: &Resource, spans: Vec<Finished>) -> Vec<u8> {
    let mut attributes: Vec<KeyValue> =
        resource.attributes.iter().map(|(key, value)| pair(key, value)).collect();
    if dropped() > 0 {
        attributes.push(pair("freehold.spans.dropped", &dropped().to_string()));
    }
    let scope = Scope { name: "freehold".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
    let spans = spans.into_iter().map(message).collect();
    let of_resource = ResourceSpans {
        resource: Some(ResourceMessage { attributes }),
        scopes: vec![ScopeSpans { scope: Some(scope), spans }],
    };
    Export { resources: vec![of_resource] }.encode_to_vec()
}

fn message(span: Finished) -> SpanMessage {
    SpanMessage {
        trace: span.context.trace.to_vec(),
        span: span.context.span.to_vec(),
        parent: span.parent.map(Vec::from).unwrap_or_default(),
        name: span.name,
        kind: span.kind as i32,
        start: span.start,
        end: span.end,
        attributes: span.attributes.iter().map(|(key, value)| pair(key, value)).collect(),
        status: span.error.map(|message| Status { message, code: ERROR }),
        flags: 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Context, Kind};

    #[test]
    fn a_span_is_encoded_as_otlp_has_it() {
        let span = Finished {
            context: Context { trace: [0xaa; 16], span: [0xbb; 8], sampled: true },
            parent: Some([0xcc; 8]),
            name: "n".into(),
            kind: Kind::Server,
            start: 1,
            end: 2,
            attributes: vec![("k", "v".into())],
            error: Some("e".into()),
        };
        let body = encode(&Resource::default(), vec![span]);
        let hex = hex::encode(body);
        let expected = [
            "0a10",
            &"aa".repeat(16),
            "1208",
            &"bb".repeat(8),
            "2208",
            &"cc".repeat(8),
            "2a016e",
            "3002",
            "390100000000000000",
            "410200000000000000",
            "4a08",
            "0a016b",
            "12030a0176",
            "7a05",
            "120165",
            "1802",
            "850101000000",
        ]
        .concat();
        assert!(hex.contains(&expected), "{hex}");
    }
}
