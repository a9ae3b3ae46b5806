//! Presigned requests to S3: Signature Version 4 in the query, so that whoever has the URL needs no credentials.
//!
//! <https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-query-string-auth.html>

use aws_lc_rs::{digest, hmac};
use jiff::Timestamp;
use std::fmt::Write as _;

/// Seconds that a presigned URL may hold at most.
pub const MAX_SECONDS: u32 = 7 * 24 * 3600;

/// Who signs.
#[derive(Clone, Default)]
pub struct Credentials {
    /// The access key, which URLs show.
    pub access_key: String,
    /// The secret key, which they do not.
    pub secret_key: String,
    /// The token of temporary credentials; empty for others.
    pub session_token: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("access_key", &self.access_key).finish_non_exhaustive()
    }
}

/// A request that is to be presigned.
#[derive(Clone, Copy, Debug)]
pub struct Unsigned<'a> {
    /// The method.
    pub method: &'a str,
    /// Host, with a port that is not the scheme's own.
    pub host: &'a str,
    /// The path, not escaped.
    pub path: &'a str,
    /// Parameters of the query, not escaped.
    pub query: &'a [(&'a str, &'a str)],
    /// The region.
    pub region: &'a str,
    /// When the signature begins to hold.
    pub at: Timestamp,
    /// Seconds for which it holds.
    pub seconds: u32,
}

/// Returns the path and query of a presigned request, escaped.
pub fn presign(request: &Unsigned<'_>, credentials: &Credentials) -> String {
    let at = request.at.strftime("%Y%m%dT%H%M%SZ").to_string();
    let day = &at[..8];
    let scope = format!("{day}/{}/s3/aws4_request", request.region);
    let credential = format!("{}/{scope}", credentials.access_key);
    let seconds = request.seconds.clamp(1, MAX_SECONDS).to_string();
    let mut query: Vec<(String, String)> = [
        ("X-Amz-Algorithm", "AWS4-HMAC-SHA256"),
        ("X-Amz-Credential", &credential),
        ("X-Amz-Date", &at),
        ("X-Amz-Expires", &seconds),
        ("X-Amz-SignedHeaders", "host"),
    ]
    .into_iter()
    .chain(
        Some(("X-Amz-Security-Token", credentials.session_token.as_str()))
            .filter(|(_, token)| !token.is_empty()),
    )
    .chain(request.query.iter().copied())
    .map(|(key, value)| (escape(key, false), escape(value, false)))
    .collect();
    query.sort_unstable();
    let query: Vec<String> = query.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    let (path, query) = (escape(request.path, true), query.join("&"));
    let canonical = format!(
        "{}\n{path}\n{query}\nhost:{}\n\nhost\nUNSIGNED-PAYLOAD",
        request.method,
        request.host.to_ascii_lowercase()
    );
    let to_sign = format!("AWS4-HMAC-SHA256\n{at}\n{scope}\n{}", sha256(canonical.as_bytes()));
    let key = signing_key(&credentials.secret_key, day, request.region, "s3");
    format!("{path}?{query}&X-Amz-Signature={}", hex::encode(mac(&key, to_sign.as_bytes())))
}

/// The key of one day, region and service.
fn signing_key(secret: &str, day: &str, region: &str, service: &str) -> Vec<u8> {
    let mut key = format!("AWS4{secret}").into_bytes();
    for word in [day, region, service, "aws4_request"] {
        key = mac(&key, word.as_bytes());
    }
    key
}

/// HMAC-SHA256.
pub(crate) fn mac(key: &[u8], text: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text).as_ref().to_vec()
}

/// Returns the SHA-256 of bytes in hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    hex::encode(digest::digest(&digest::SHA256, bytes))
}

/// Escapes as SigV4 wants it: everything but letters, digits, `-._~`, and slashes of paths.
fn escape(text: &str, is_path: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            b'/' if is_path => out.push('/'),
            // Writing to a String can't fail.
            other => drop(write!(out, "%{other:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_those_of_the_published_examples() {
        // "Authenticating Requests: Using Query Parameters", Amazon S3 API Reference.
        let credentials = Credentials {
            access_key: "AKIAIOSFODNN7EXAMPLE".into(),
            secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
            session_token: String::new(),
        };
        let request = Unsigned {
            method: "GET",
            host: "examplebucket.s3.amazonaws.com",
            path: "/test.txt",
            query: &[],
            region: "us-east-1",
            at: "2013-05-24T00:00:00Z".parse().unwrap(),
            seconds: 86400,
        };
        assert_eq!(
            presign(&request, &credentials),
            "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2F\
             aws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature=\
             aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
        );
        // "Deriving the signing key", AWS General Reference.
        let key = signing_key("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "20120215", "us-east-1", "iam");
        assert_eq!(hex::encode(key), "f4780e2d9f65fa895f9c67b32ce1baf0b0d8a43505a000a1a9e090d414db404d");
    }

    #[test]
    fn paths_and_parameters_are_escaped_once() {
        assert_eq!(escape("/a b/ü+~", true), "/a%20b/%C3%BC%2B~");
        assert_eq!(escape("a/b=c", false), "a%2Fb%3Dc");
    }
}
