//! URL paths: decoded once, strictly.
//!
//! Whatever lies behind (contexts, authorization, the registry, a dedicated pair) sees the same decoded text, so that
//! no two of them can read one URL differently. What could be read differently is refused.

use freehold_machinery::Status;
use http::{Uri, Version};
use std::borrow::Cow;

/// Longest raw path, in bytes.
const LONGEST: usize = 8 * 1024;

/// The decoded path of a request, without a slash at its end (but for `/` itself).
///
/// 400 for an absolute-form or authority-form target, an encoded slash, backslash, control character or invalid UTF-8,
/// an empty, `.` or `..` segment. 414 where it is over 8 KiB.
pub(crate) fn decode(uri: &Uri, version: Version) -> Result<String, Status> {
    let raw = uri.path();
    if version < Version::HTTP_2 && uri.authority().is_some() || !raw.starts_with('/') {
        return Err(Status::bad_request("the request target must be a path"));
    }
    if raw.len() > LONGEST {
        return Err(Status::new(414, "RequestURITooLong", "the request path is too long"));
    }
    let mut path = percent_decode(raw, false)
        .ok_or_else(|| Status::bad_request("the request path is not valid percent-encoded UTF-8"))?
        .into_owned();
    if raw.len() != path.len() && has_encoded_separator(raw) {
        return Err(Status::bad_request("the request path has an encoded separator"));
    }
    if path.bytes().any(|b| b < 0x20 || b == 0x7f || b == b'\\') {
        return Err(Status::bad_request("the request path has a character that is not allowed"));
    }
    if path.len() > 1 && path.ends_with('/') {
        path.pop();
    }
    let tricky = |segment: &str| matches!(segment, "" | "." | "..");
    if path != "/" && path[1..].split('/').any(tricky) {
        return Err(Status::bad_request("the request path has an empty, . or .. segment"));
    }
    Ok(path)
}

fn has_encoded_separator(raw: &str) -> bool {
    raw.as_bytes().windows(3).any(|w| matches!(w, [b'%', b'2', b'F' | b'f'] | [b'%', b'5', b'C' | b'c']))
}

/// Decodes `%XX`, and `+` to a space where `form` is set. `None` where an escape is broken or the result isn't UTF-8.
pub(crate) fn percent_decode(text: &str, form: bool) -> Option<Cow<'_, str>> {
    match percent_bytes(text, form)? {
        Cow::Borrowed(_) => Some(Cow::Borrowed(text)),
        Cow::Owned(bytes) => String::from_utf8(bytes).ok().map(Cow::Owned),
    }
}

/// The same, where what isn't UTF-8 is replaced (by U+FFFD): it stands for something, and must not count as absent.
pub(crate) fn percent_decode_lossy(text: &str, form: bool) -> Option<Cow<'_, str>> {
    Some(match percent_bytes(text, form)? {
        Cow::Borrowed(_) => Cow::Borrowed(text),
        Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
    })
}

fn percent_bytes(text: &str, form: bool) -> Option<Cow<'_, [u8]>> {
    if !text.bytes().any(|b| b == b'%' || form && b == b'+') {
        return Some(Cow::Borrowed(text.as_bytes()));
    }
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => hex(bytes.next()?)? << 4 | hex(bytes.next()?)?,
            b'+' if form => b' ',
            other => other,
        });
    }
    Some(Cow::Owned(out))
}

fn hex(digit: u8) -> Option<u8> {
    (digit as char).to_digit(16).map(|d| d as u8)
}

/// Encodes everything but unreserved characters and those in `keep`.
pub(crate) fn percent_encode(text: &str, keep: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || keep.contains(&byte) {
            out.push(byte as char);
        } else {
            out.push('%');
            out.push(DIGITS[usize::from(byte >> 4)] as char);
            out.push(DIGITS[usize::from(byte & 15)] as char);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_decoded_once_and_tricks_are_refused() {
        let rows: [(&str, Result<&str, u16>); 22] = [
            ("/", Ok("/")),
            ("/api/", Ok("/api")),
            ("/api/v1/namespaces/a%3Ab", Ok("/api/v1/namespaces/a:b")),
            (
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node",
                Ok("/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node"),
            ),
            ("/api/%2561", Ok("/api/%61")),
            ("/api/%252e%252e/x", Ok("/api/%2e%2e/x")),
            ("/a/%C3%A4", Ok("/a/ä")),
            ("//api", Err(400)),
            ("/api//v1", Err(400)),
            ("/api/v1//", Err(400)),
            ("/api/../version", Err(400)),
            ("/api/%2e%2e/version", Err(400)),
            ("/api/%2E/version", Err(400)),
            ("/api/..", Err(400)),
            ("/api%2fv1", Err(400)),
            ("/api%2Fv1", Err(400)),
            ("/api/a%5Cb", Err(400)),
            ("/api/%00", Err(400)),
            ("/api/%0a", Err(400)),
            ("/api/%ff", Err(400)),
            ("/api/%zz", Err(400)),
            ("http://other/api", Err(400)),
        ];
        for (raw, expected) in rows {
            let uri: Uri = raw.parse().unwrap();
            let got = decode(&uri, Version::HTTP_11);
            assert_eq!(got.as_deref().map_err(|s| s.code), expected, "{raw}");
        }
        let long: Uri = format!("/{}", "a".repeat(LONGEST)).parse().unwrap();
        assert_eq!(decode(&long, Version::HTTP_11).unwrap_err().code, 414);
        let absolute: Uri = "https://host/api".parse().unwrap();
        assert_eq!(decode(&absolute, Version::HTTP_2).unwrap(), "/api", "HTTP/2 always has an authority");
    }

    #[test]
    fn what_is_encoded_is_decoded_to_the_same() {
        for text in ["plain", "a b/c?d#e%", "ä:@", ""] {
            assert_eq!(percent_decode(&percent_encode(text, b"/"), false).unwrap(), text);
        }
        assert_eq!(percent_encode("a/b:c d", b"/:"), "a/b:c%20d");
    }
}
