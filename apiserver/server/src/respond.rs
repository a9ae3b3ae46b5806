//! Answers: documents, objects and failures, written the way the client asked for.

use crate::{
    negotiate::{self, Accepted, Format},
    query::Query,
};
use bytes::Bytes;
use freehold_apiserver_catalog::discovery::Ordered;
use freehold_apiserver_transport::payload::Payload;
use freehold_machinery::{Status, Value};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use serde::Serialize;

/// An answer.
pub(crate) type Reply = Response<Payload>;

/// Answers below this are not worth compressing, in bytes (kube-apiserver's threshold).
pub(crate) const GZIP_FROM: usize = 128 * 1024;
/// Most characters of all warnings together, and of each once that is reached (kube-apiserver's numbers).
const WARNINGS: (usize, usize) = (4096, 256);

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const PROTOBUF: HeaderValue = HeaderValue::from_static(freehold_machinery_protobuf::MEDIA_TYPE);
const YAML: HeaderValue = HeaderValue::from_static("application/yaml");

/// An answer with a body of some type.
pub(crate) fn reply(code: u16, content_type: HeaderValue, payload: Payload) -> Reply {
    let mut reply = Response::new(payload);
    *reply.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    reply.headers_mut().insert(header::CONTENT_TYPE, content_type);
    reply
}

/// A JSON answer whose bytes are ready.
pub(crate) fn json(code: u16, bytes: Bytes) -> Reply {
    reply(code, JSON, Payload::Full(bytes))
}

/// A line or more of text.
pub(crate) fn text(code: u16, text: impl Into<Bytes>) -> Reply {
    let mut reply =
        reply(code, HeaderValue::from_static("text/plain; charset=utf-8"), Payload::Full(text.into()));
    reply.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    reply
}

/// A value in the negotiated format. What has no message is JSON for who asked for protobuf.
pub(crate) fn value(accepted: Accepted, code: u16, value: &Value) -> Result<Reply, Status> {
    shown(accepted, code, value, value)
}

/// Answers with a discovery document, whose JSON has its fields in Kubernetes' order.
///
/// # Errors
/// 500 where it can't be serialized.
pub(crate) fn discovery(accepted: Accepted, code: u16, document: &Value) -> Result<Reply, Status> {
    match accepted.format {
        Format::Json | Format::Protobuf => shown(accepted, code, document, &Ordered(document)),
        Format::Yaml => value(accepted, code, document),
    }
}

fn shown(mut accepted: Accepted, code: u16, value: &Value, text: &impl Serialize) -> Result<Reply, Status> {
    if accepted.format == Format::Protobuf {
        match freehold_machinery_protobuf::encode(value) {
            Some(bytes) => return Ok(reply(code, PROTOBUF, Payload::Full(bytes.into()))),
            None => accepted.format = Format::Json,
        }
    }
    let bytes = encode(accepted, text)?;
    Ok(reply(code, content_type(accepted.format), Payload::Full(bytes)))
}

/// The media type of a format.
pub(crate) fn content_type(format: Format) -> HeaderValue {
    match format {
        Format::Yaml => YAML,
        Format::Json => JSON,
        Format::Protobuf => PROTOBUF,
    }
}

/// A value's bytes as text: YAML or JSON.
pub(crate) fn encode(accepted: Accepted, value: &impl Serialize) -> Result<Bytes, Status> {
    let bytes = match (accepted.format, accepted.pretty) {
        (Format::Yaml, _) => {
            serde_saphyr::to_string(value).map(String::into_bytes).map_err(Status::internal)?
        }
        (_, true) => serde_json::to_vec_pretty(value).map_err(Status::internal)?,
        (_, false) => serde_json::to_vec(value).map_err(Status::internal)?,
    };
    Ok(bytes.into())
}

/// A failure, in the format that the client asked for, or as JSON where that can't be had.
pub(crate) fn failure(headers: &HeaderMap, query: &Query, status: &Status) -> Reply {
    let accepted = negotiate::failure(headers, query).unwrap_or(Accepted {
        format: Format::Json,
        shape: negotiate::Shape::Whole,
        pretty: true,
    });
    let message = (accepted.format == Format::Protobuf).then(|| failure_message(status)).flatten();
    let mut reply = match message {
        Some(message) => reply(status.code, PROTOBUF, Payload::Full(message)),
        None => {
            let body = status.to_json();
            value(accepted, status.code, &body)
                .unwrap_or_else(|_| json(status.code, Bytes::from(body.to_string())))
        }
    };
    let seconds = status.details.as_ref().map_or(0, |d| d.retry_after_seconds);
    if seconds > 0 {
        reply.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if let Some(warnings) = &status.warnings {
        warn(&mut reply, warnings);
    }
    reply
}

/// A failure in protobuf, with its fields in the order of their numbers and those that are empty too, as Kubernetes
/// writes it.
pub(crate) fn failure_message(status: &Status) -> Option<Bytes> {
    #[derive(Serialize)]
    struct Message<'a> {
        metadata: ListMeta<'a>,
        status: &'a str,
        message: &'a str,
        reason: &'a str,
        details: Option<Details<'a>>,
        code: u16,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct ListMeta<'a> {
        self_link: &'a str,
        resource_version: &'a str,
        r#continue: &'a str,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Details<'a> {
        name: &'a str,
        group: &'a str,
        kind: &'a str,
        causes: Vec<Cause<'a>>,
        retry_after_seconds: u32,
        uid: &'a str,
    }
    #[derive(Serialize)]
    struct Cause<'a> {
        reason: &'a str,
        message: &'a str,
        field: &'a str,
    }
    let details = status.details.as_deref().map(|details| Details {
        name: &details.name,
        group: &details.group,
        kind: &details.kind,
        causes: details
            .causes
            .iter()
            .map(|c| Cause { reason: &c.reason, message: &c.message, field: &c.field })
            .collect(),
        retry_after_seconds: details.retry_after_seconds,
        uid: &details.uid,
    });
    let token = status.continue_token.as_deref().unwrap_or("");
    let message = Message {
        metadata: ListMeta { self_link: "", resource_version: "", r#continue: token },
        status: &status.status,
        message: &status.message,
        reason: &status.reason,
        details,
        code: status.code,
    };
    let json = serde_json::to_vec(&message).ok()?;
    freehold_machinery_protobuf::Kind::of("v1", "Status")?.encode(&json).ok().map(Bytes::from)
}

/// What is at a path at which nothing is served.
pub(crate) fn no_page() -> Reply {
    text(404, "404 page not found\n")
}

/// A refusal of the authorizer, of which browsers are told not to guess the type.
pub(crate) fn forbidden(headers: &HeaderMap, query: &Query, status: &Status) -> Reply {
    let mut reply = failure(headers, query, status);
    reply.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    reply
}

/// Compresses a large answer for a client that takes it.
pub(crate) fn compressed(headers: &HeaderMap, reply: Reply) -> Reply {
    let large = reply.body().len().is_some_and(|n| n > GZIP_FROM);
    let encoded = reply.body().is_foreign() || reply.headers().contains_key(header::CONTENT_ENCODING);
    if !large || encoded || !negotiate::takes_gzip(headers) {
        return reply;
    }
    gzipped(reply.map(Payload::gzip))
}

/// Says that a body is compressed.
pub(crate) fn gzipped(mut reply: Reply) -> Reply {
    reply.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    if !reply.headers().get_all(header::VARY).iter().any(|name| name == "Accept-Encoding") {
        reply.headers_mut().append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    reply
}

/// Adds a warning before those that there are.
pub(crate) fn warn_first(reply: &mut Reply, warning: &str) {
    let others: Vec<HeaderValue> = reply.headers().get_all(header::WARNING).iter().cloned().collect();
    reply.headers_mut().remove(header::WARNING);
    warn(reply, &[warning.to_owned()]);
    for other in others {
        reply.headers_mut().append(header::WARNING, other);
    }
}

/// Adds `Warning` headers (RFC 7234, code 299), each text once, cut as kube-apiserver cuts them.
pub(crate) fn warn(reply: &mut Reply, warnings: &[String]) {
    let (all, each) = WARNINGS;
    let long = warnings.iter().map(|w| w.chars().count()).sum::<usize>() > all;
    let mut left = all;
    let mut seen: Vec<&str> = Vec::new();
    for warning in warnings {
        if seen.contains(&warning.as_str()) || left == 0 {
            continue;
        }
        seen.push(warning);
        let limit = if long { each.min(left) } else { left };
        let text: String = warning.chars().take(limit).collect();
        left -= text.chars().count();
        if let Ok(value) = HeaderValue::from_str(&quoted(&text))
            .or_else(|_| HeaderValue::from_bytes(quoted(&text).as_bytes()))
        {
            reply.headers_mut().append(header::WARNING, value);
        }
    }
}

fn quoted(text: &str) -> String {
    let mut out = String::from("299 - \"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// `Audit-Id`.
pub(crate) const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(texts: &[&str]) -> Vec<String> {
        let mut reply = text(200, "");
        warn(&mut reply, &texts.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>());
        let values = reply.headers().get_all(header::WARNING).into_iter();
        values.map(|v| String::from_utf8(v.as_bytes().to_vec()).unwrap()).collect()
    }

    #[test]
    fn warnings_are_quoted_once_each_and_cut() {
        assert_eq!(warnings(&["a \"b\" \\ c\nd", "ä", "ä"]), [r#"299 - "a \"b\" \\ c d""#, "299 - \"ä\""]);
        let long = "x".repeat(3000);
        let other = "y".repeat(3000);
        assert_eq!(warnings(&[&long]).concat().len(), 3000 + 8);
        assert_eq!(warnings(&[&long, &other]).iter().map(String::len).collect::<Vec<_>>(), [256 + 8; 2]);
    }

    #[test]
    fn what_goes_out_as_yaml_reads_back_as_it_was() {
        let texts = [
            "yes",
            "null",
            "~",
            "1e3",
            "0644",
            "0x1f",
            "1_000",
            "12:30:45",
            "2024-01-01",
            "true",
            "",
            " x ",
            "a: b",
            "#c",
            "- d",
            "a\nb\n",
            "\u{7f}",
            "'",
            "=",
            "<<",
            ".inf",
            "ä",
        ];
        let value = serde_json::json!({"texts": texts, "n": [1, -1, 1.5, 1e300, null, true], "yes": {"0644": {}, "": []}});
        let accepted = Accepted { format: Format::Yaml, shape: negotiate::Shape::Whole, pretty: false };
        let yaml = encode(accepted, &value).unwrap();
        let back = crate::read::decode(&yaml, Format::Yaml).unwrap().value;
        assert_eq!(back, value, "{}", String::from_utf8_lossy(&yaml));
    }

    #[test]
    fn a_failure_is_written_as_asked_or_as_json() {
        let status = Status::too_many_requests("later", 1);
        for (accept, expected) in
            [("application/yaml", "application/yaml"), ("text/html", "application/json")]
        {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            let reply = failure(&headers, &Query::default(), &status);
            assert_eq!(
                (reply.status().as_u16(), &reply.headers()[header::CONTENT_TYPE]),
                (429, &expected.parse::<HeaderValue>().unwrap())
            );
            assert_eq!(reply.headers()[header::RETRY_AFTER], "1");
        }
    }
}
