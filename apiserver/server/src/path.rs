//! URL paths: decoded once.
//!
//! Whatever lies behind (contexts, authorization, the registry) sees the same decoded text, so that no two of them can read
//! one URL differently. Nothing is ever taken out of it or put together: `..` is a name like any other, and one that
//! nothing has. What other servers could read differently is marked, and is not sent to any.

use freehold_machinery::Status;
use http::{Uri, Version};
use std::borrow::Cow;

/// Longest raw path, in bytes.
const LONGEST: usize = 8 * 1024;

/// The path of a request.
#[derive(Debug, PartialEq)]
pub(crate) struct Decoded {
    /// What it says.
    pub(crate) text: String,
    /// Whether others could read it differently: it has an encoded slash or backslash, a control character, what is no
    /// UTF-8, or an empty, `.` or `..` segment (but for one slash at its end).
    pub(crate) odd: bool,
}

/// Decodes a path; what is no UTF-8 becomes U+FFFD, as it does where kube-apiserver tells of it.
///
/// 400 for an absolute-form or authority-form target and a broken escape, 414 where it is over 8 KiB.
pub(crate) fn decode(uri: &Uri, version: Version) -> Result<Decoded, Status> {
    let raw = uri.path();
    if version < Version::HTTP_2 && uri.authority().is_some() || !raw.starts_with('/') {
        return Err(Status::bad_request("the request target must be a path"));
    }
    if raw.len() > LONGEST {
        return Err(Status::new(414, "RequestURITooLong", "the request path is too long"));
    }
    let bytes = percent_bytes(raw, false)
        .ok_or_else(|| Status::bad_request("the request path is not valid percent-encoded text"))?;
    let text = String::from_utf8_lossy(&bytes);
    let named = text.strip_suffix('/').unwrap_or(&text);
    let odd = matches!(text, Cow::Owned(_))
        || raw.len() != text.len() && has_encoded_separator(raw)
        || text.bytes().any(|b| b < 0x20 || b == 0x7f || b == b'\\')
        || named.split('/').skip(1).any(is_tricky);
    Ok(Decoded { odd, text: text.into_owned() })
}

impl Decoded {
    /// Whether what comes before the last so many bytes is written as it is read: what decides between control planes is
    /// spelled in one way.
    pub(crate) fn is_plain_before(&self, rest: &str, uri: &Uri) -> bool {
        let before = self.text.strip_suffix(rest).unwrap_or(&self.text);
        !self.odd || uri.path().starts_with(before) && !before.split('/').skip(1).any(is_tricky)
    }
}

fn is_tricky(segment: &str) -> bool {
    matches!(segment, "" | "." | "..")
}

fn has_encoded_separator(raw: &str) -> bool {
    raw.as_bytes().windows(3).any(|w| matches!(w, [b'%', b'2', b'F' | b'f'] | [b'%', b'5', b'C' | b'c']))
}

/// Decodes `%XX`, and `+` to a space where `form` is set. `None` where an escape is broken. What isn't UTF-8 is replaced (by
/// U+FFFD): it stands for something, and must not count as absent.
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
    fn a_path_is_decoded_once_and_what_others_could_read_differently_is_odd() {
        // The path -> what it says and whether it is odd.
        type Row = (&'static str, Result<(&'static str, bool), u16>);
        let rows: [Row; 25] = [
            ("/", Ok(("/", false))),
            ("/api/", Ok(("/api/", false))),
            ("/api/v1/namespaces/a%3Ab", Ok(("/api/v1/namespaces/a:b", false))),
            (
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node",
                Ok(("/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node", false)),
            ),
            ("/api/%2561", Ok(("/api/%61", false))),
            ("/api/%252e%252e/x", Ok(("/api/%2e%2e/x", false))),
            ("/a/%C3%A4", Ok(("/a/ä", false))),
            ("/a/%EF%BF%BD", Ok(("/a/\u{fffd}", false))),
            ("//", Ok(("//", true))),
            ("//api", Ok(("//api", true))),
            ("/api//v1", Ok(("/api//v1", true))),
            ("/api/v1//", Ok(("/api/v1//", true))),
            ("/api/../version", Ok(("/api/../version", true))),
            ("/api/%2e%2e/version", Ok(("/api/../version", true))),
            ("/api/%2E/version", Ok(("/api/./version", true))),
            ("/api/..", Ok(("/api/..", true))),
            ("/api/../", Ok(("/api/../", true))),
            ("/api%2fv1", Ok(("/api/v1", true))),
            ("/api%2Fv1", Ok(("/api/v1", true))),
            ("/api/a%5Cb", Ok(("/api/a\\b", true))),
            ("/api/%00", Ok(("/api/\0", true))),
            ("/api/%0a", Ok(("/api/\n", true))),
            ("/api/%ff", Ok(("/api/\u{fffd}", true))),
            ("/api/%zz", Err(400)),
            ("http://other/api", Err(400)),
        ];
        for (raw, expected) in rows {
            let uri: Uri = raw.parse().unwrap();
            let got = decode(&uri, Version::HTTP_11);
            assert_eq!(got.as_ref().map(|d| (&*d.text, d.odd)).map_err(|s| s.code), expected, "{raw}");
        }
        let long: Uri = format!("/{}", "a".repeat(LONGEST)).parse().unwrap();
        assert_eq!(decode(&long, Version::HTTP_11).unwrap_err().code, 414);
        let absolute: Uri = "https://host/api".parse().unwrap();
        assert_eq!(
            decode(&absolute, Version::HTTP_2).unwrap().text,
            "/api",
            "HTTP/2 always has an authority"
        );
    }

    #[test]
    fn what_decides_between_control_planes_is_spelled_in_one_way() {
        let rows = [
            ("/projects/web/api", "/api", true),
            ("/projects/%77eb/api", "/api", true),
            ("/projects/web//api", "//api", true),
            ("/projects/web/..", "/..", true),
            ("/projects/web%2fapi", "/api", true),
            ("/projects/web/a%2fb", "/a/b", true),
            ("/projects%2fweb/api", "/api", false),
            ("/projects/%77eb//api", "//api", false),
            ("/projects/../api/", "/api/", false),
            ("/projects/web%00/api", "/api", false),
        ];
        for (raw, rest, expected) in rows {
            let uri: Uri = raw.parse().unwrap();
            let decoded = decode(&uri, Version::HTTP_11).unwrap();
            assert_eq!(decoded.is_plain_before(rest, &uri), expected, "{raw}");
        }
    }

    #[test]
    fn what_is_encoded_is_decoded_to_the_same() {
        for text in ["plain", "a b/c?d#e%", "ä:@", ""] {
            assert_eq!(percent_decode_lossy(&percent_encode(text, b"/"), false).unwrap(), text);
        }
        assert_eq!(percent_encode("a/b:c d", b"/:"), "a/b:c%20d");
    }
}
