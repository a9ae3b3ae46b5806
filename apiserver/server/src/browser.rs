//! What browsers need to be told: which pages may send requests here (none, unless an operator names them), and not to
//! guess, frame or cache what they get.

use crate::edge::Edge;
use crate::origins::Origins;
use crate::respond::Reply;
use freehold_apiserver_transport::payload::Payload;
use http::{HeaderName, HeaderValue, Method, Response, StatusCode, header, request::Parts};

/// Whether a browser only asks whether a page may send a request.
pub(crate) fn is_preflight(origins: &Origins, parts: &Parts) -> bool {
    parts.method == Method::OPTIONS && origins.allowed(parts).is_some()
}

/// The answer to that; [`protect`] adds what it says.
pub(crate) fn preflight() -> Reply {
    let mut reply = Response::new(Payload::empty());
    *reply.status_mut() = StatusCode::NO_CONTENT;
    reply
}

/// kube-apiserver's answer to a page that may.
const CORS: [(HeaderName, &str); 4] = [
    (header::ACCESS_CONTROL_ALLOW_METHODS, "POST, GET, OPTIONS, PUT, DELETE, PATCH"),
    (
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, If-Modified-Since",
    ),
    (header::ACCESS_CONTROL_EXPOSE_HEADERS, "Date"),
    (header::ACCESS_CONTROL_ALLOW_CREDENTIALS, "true"),
];

/// What a browser is told of an answer that it shows.
const PROTECTION: [(HeaderName, &str); 5] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Adds the headers for browsers. Other clients get none of them.
pub(crate) fn protect(edge: &Edge, parts: &Parts, mut reply: Reply) -> Reply {
    let headers = reply.headers_mut();
    let allowed = edge.origins.allowed(parts);
    if let Some(origin) = allowed {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        CORS.into_iter().for_each(|(name, text)| drop(headers.insert(name, HeaderValue::from_static(text))));
        headers.append(header::VARY, HeaderValue::from_static("Origin"));
    }
    if let Some(directives) = &edge.strict_transport {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, directives.clone());
    }
    if is_browser(parts) {
        for (name, text) in PROTECTION {
            let shared = allowed.is_some() && name.as_str() == "cross-origin-resource-policy";
            if !shared {
                headers.entry(name).or_insert(HeaderValue::from_static(text));
            }
        }
    }
    reply
}

/// Whether a request is a browser's: they say what it is for, and what they show.
fn is_browser(parts: &Parts) -> bool {
    let accept = parts.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    parts.headers.contains_key("sec-fetch-mode")
        || parts.headers.contains_key(header::ORIGIN)
        || accept.contains("text/html")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origins::OriginsError;

    fn allows(expression: &str, origin: &str) -> bool {
        let parts = http::Request::get("/").header("origin", origin).body(()).unwrap().into_parts().0;
        Origins::parse(&[expression]).unwrap().allowed(&parts).is_some()
    }

    #[test]
    fn an_expression_is_about_a_whole_host() {
        assert!(allows("^https://example\\.com$", "https://example.com"));
        assert!(allows("//example\\.com(:|$)", "https://example.com:8443"));
        assert!(!allows("//example\\.com(:|$)", "https://example.com.evil.net"));
        for loose in ["example.com", "^https", "example.com$"] {
            assert!(matches!(Origins::parse(&[loose]), Err(OriginsError::Loose(_))), "{loose}");
        }
        assert_eq!(Origins::parse(&[""]).unwrap_err(), OriginsError::Empty);
        assert!(matches!(Origins::parse(&["^(:$"]), Err(OriginsError::Broken(..))));
    }
}
