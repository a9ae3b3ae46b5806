//! Answers, and the headers that browsers need with them.

use bytes::Bytes;
use freehold_machinery::Value;
use futures_util::Stream;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use std::convert::Infallible;

/// Any error of a body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// The body of an answer.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;
/// An answer.
pub type Reply = Response<Body>;

/// What pages may load: files of this origin alone, nothing inline, in no frame.
pub(crate) const PAGE_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; \
     manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
     trusted-types svelte-trusted-html",
);
/// What data may do if a browser shows it: nothing.
pub(crate) const DATA_POLICY: HeaderValue =
    HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'; sandbox");

const PROTECTION: [(HeaderName, HeaderValue); 6] = [
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
    (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
    (
        HeaderName::from_static("permissions-policy"),
        HeaderValue::from_static("camera=(), microphone=(), geolocation=(), payment=(), usb=()"),
    ),
];

/// Adds the headers that each answer has.
pub(crate) fn protect(mut reply: Reply) -> Reply {
    let headers = reply.headers_mut();
    for (name, value) in PROTECTION {
        headers.insert(name, value);
    }
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(DATA_POLICY);
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    reply
}

/// An answer with all of its bytes.
pub(crate) fn bytes(code: StatusCode, content_type: &'static str, bytes: impl Into<Bytes>) -> Reply {
    let body = Full::new(bytes.into()).map_err(|never: Infallible| match never {}).boxed_unsync();
    let mut reply = Response::new(body);
    *reply.status_mut() = code;
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    reply
}

/// An answer of JSON.
pub(crate) fn json(code: StatusCode, value: &Value) -> Reply {
    bytes(code, "application/json", value.to_string())
}

/// An answer without a body.
pub(crate) fn empty(code: StatusCode) -> Reply {
    let mut reply = bytes(code, "text/plain", Bytes::new());
    reply.headers_mut().remove(header::CONTENT_TYPE);
    reply
}

/// A redirect to a path of this origin, or to the sign-in page of an issuer.
pub(crate) fn redirect(location: &str) -> Reply {
    let mut reply = empty(StatusCode::SEE_OTHER);
    let location = HeaderValue::from_str(location).unwrap_or(HeaderValue::from_static(crate::PREFIX));
    reply.headers_mut().insert(header::LOCATION, location);
    reply
}

/// An answer whose bytes come as they come.
pub(crate) fn stream(
    content_type: HeaderValue,
    frames: impl Stream<Item = Result<Bytes, BoxError>> + Send + 'static,
) -> Reply {
    use futures_util::TryStreamExt;
    let mut reply = Response::new(StreamBody::new(frames.map_ok(Frame::data)).boxed_unsync());
    reply.headers_mut().insert(header::CONTENT_TYPE, content_type);
    reply
}
