//! Answers: `Status` objects, JSON documents, and streams.

use bytes::Bytes;
use freehold_client::Error;
use freehold_machinery::{Status, Value};
use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;

/// An error in the middle of a body.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// A body of an answer.
pub(crate) type Body = UnsyncBoxBody<Bytes, BoxError>;
/// An answer.
pub(crate) type Reply = Response<Body>;

/// Headers that belong to one connection.
const HOP_BY_HOP: [HeaderName; 7] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Removes what belongs to one connection.
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
    headers.remove("keep-alive");
    headers.remove("proxy-connection");
}

/// A body that is complete.
pub(crate) fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A `Status` as an answer.
pub(crate) fn status(status: &Status) -> Reply {
    json(StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), &status.to_json())
}

/// A JSON document as an answer.
pub(crate) fn json(code: StatusCode, value: &Value) -> Reply {
    let mut reply = Response::new(whole(value.to_string()));
    *reply.status_mut() = code;
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply
}

/// The answer where the API server gave none.
pub(crate) fn failure(error: &Error) -> Reply {
    match error {
        Error::Api(status) => self::status(status),
        Error::Timeout(_) => self::status(&Status::timeout("the API server did not answer in time")),
        error => {
            tracing::warn!(%error, "failed to reach the API server");
            self::status(&Status::unavailable("the API server cannot be reached; try again"))
        }
    }
}

/// Pieces that are sent as they come.
pub(crate) fn stream(pieces: impl Stream<Item = Result<Bytes, BoxError>> + Send + 'static) -> Body {
    StreamBody::new(pieces.map_ok(Frame::data)).boxed_unsync()
}

/// Lines that are sent as they come: a watch in JSON.
pub(crate) fn lines(lines: impl Stream<Item = Bytes> + Send + 'static) -> Reply {
    let mut reply = Response::new(stream(lines.map(Ok)));
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply
}

/// The last line of a watch whose caller has to list again.
pub(crate) fn list_again(why: &str) -> Bytes {
    let status = Status::expired(format!("{why}; list again")).to_json();
    Bytes::from(format!("{}\n", serde_json::json!({"type": "ERROR", "object": status})))
}
