//! AWS Signature Version 4, as pure functions ("Authenticating Requests (AWS Signature Version 4)" of Amazon's S3 reference).

use aws_lc_rs::{digest, hmac};
use http::{Method, Uri};
use jiff::{Timestamp, tz::TimeZone};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use std::time::Duration;

/// What is not escaped in a query: RFC 3986's unreserved characters.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// What is not escaped in a path: those, and what divides it.
const PATH: &AsciiSet = &QUERY.remove(b'/');
/// The algorithm's name in signatures.
const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// The hash of a body that is not signed.
pub const UNSIGNED_PAYLOAD: &str = "UNSIGNED-PAYLOAD";
/// The longest time for which a presigned URL can be valid: seven days.
pub const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

/// A key pair of a store's user.
#[derive(Clone, Default)]
pub struct Credentials {
    /// The public half, `AKIA...` at Amazon.
    pub access_key: String,
    /// The secret half.
    pub secret_key: String,
    /// The token of temporary credentials.
    pub session_token: Option<String>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("access_key", &self.access_key).finish_non_exhaustive()
    }
}

/// Signs requests to one service in one region.
#[derive(Clone, Debug)]
pub struct Signer {
    /// Whose requests they are.
    pub credentials: Credentials,
    /// `us-east-1`, or what the store calls its region.
    pub region: String,
    /// `s3`.
    pub service: String,
}

/// A request as it is signed.
#[derive(Clone, Debug)]
pub struct Unsigned<'a> {
    /// The verb.
    pub method: &'a Method,
    /// The whole URL, with path and query escaped as they are sent.
    pub uri: &'a Uri,
    /// Headers to be signed beside `host` and those that signing adds; names in lower case.
    pub headers: Vec<(String, String)>,
    /// SHA-256 of the body in hexadecimal digits, or [`UNSIGNED_PAYLOAD`].
    pub payload: String,
}

impl Signer {
    /// Headers that are to be added to a request, `authorization` among them.
    pub fn headers(&self, request: &Unsigned<'_>, now: Timestamp) -> Vec<(String, String)> {
        let stamp = stamp(now);
        let mut added = vec![
            ("x-amz-content-sha256".to_owned(), request.payload.clone()),
            ("x-amz-date".to_owned(), stamp.clone()),
        ];
        if let Some(token) = &self.credentials.session_token {
            added.push(("x-amz-security-token".to_owned(), token.clone()));
        }
        let mut signed = request.headers.clone();
        signed.push(("host".to_owned(), authority(request.uri)));
        signed.extend(added.iter().cloned());
        let canonical = canonical(request, &query_pairs(request.uri), signed);
        let scope = self.scope(&stamp);
        let signature = self.signature(&canonical.text, &stamp, &scope);
        let value = format!(
            "{ALGORITHM} Credential={}/{scope},SignedHeaders={},Signature={signature}",
            self.credentials.access_key, canonical.signed
        );
        added.push(("authorization".to_owned(), value));
        added
    }

    /// A URL with which anybody may make the request until it expires, after [`LONGEST`] at most. Only `host` is signed.
    pub fn presign(&self, method: &Method, uri: &Uri, expires: Duration, now: Timestamp) -> String {
        let stamp = stamp(now);
        let scope = self.scope(&stamp);
        let mut pairs = query_pairs(uri);
        let mut add = |key: &str, value: String| pairs.push((escape(key), escape(&value)));
        add("X-Amz-Algorithm", ALGORITHM.to_owned());
        add("X-Amz-Credential", format!("{}/{scope}", self.credentials.access_key));
        add("X-Amz-Date", stamp.clone());
        add("X-Amz-Expires", expires.min(LONGEST).as_secs().max(1).to_string());
        add("X-Amz-SignedHeaders", "host".to_owned());
        if let Some(token) = &self.credentials.session_token {
            add("X-Amz-Security-Token", token.clone());
        }
        let request = Unsigned { method, uri, headers: Vec::new(), payload: UNSIGNED_PAYLOAD.to_owned() };
        let canonical = canonical(&request, &pairs, vec![("host".to_owned(), authority(uri))]);
        let signature = self.signature(&canonical.text, &stamp, &scope);
        let scheme = uri.scheme_str().unwrap_or("https");
        let query = canonical.query;
        format!("{scheme}://{}{}?{query}&X-Amz-Signature={signature}", authority(uri), uri.path())
    }

    fn scope(&self, stamp: &str) -> String {
        format!("{}/{}/{}/aws4_request", &stamp[..8], self.region, self.service)
    }

    fn signature(&self, canonical: &str, stamp: &str, scope: &str) -> String {
        let text = format!("{ALGORITHM}\n{stamp}\n{scope}\n{}", sha256(canonical.as_bytes()));
        let first = format!("AWS4{}", self.credentials.secret_key);
        let parts = [&stamp[..8], &self.region, &self.service, "aws4_request"];
        let key = parts.iter().fold(first.into_bytes(), |key, part| mac(&key, part.as_bytes()));
        hex::encode(mac(&key, text.as_bytes()))
    }
}

/// SHA-256 in hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    hex::encode(digest::digest(&digest::SHA256, bytes))
}

/// A key as it stands in a URL's path.
pub fn escape_path(key: &str) -> String {
    utf8_percent_encode(key, PATH).to_string()
}

/// A text as it stands in a URL's query.
pub fn escape(text: &str) -> String {
    utf8_percent_encode(text, QUERY).to_string()
}

fn mac(key: &[u8], text: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text).as_ref().to_vec()
}

/// `20130524T000000Z`.
fn stamp(now: Timestamp) -> String {
    now.to_zoned(TimeZone::UTC).strftime("%Y%m%dT%H%M%SZ").to_string()
}

fn authority(uri: &Uri) -> String {
    uri.authority().map(ToString::to_string).unwrap_or_default()
}

/// Parameters of a query, each escaped as signatures have it.
fn query_pairs(uri: &Uri) -> Vec<(String, String)> {
    let decode = |text: &str| escape(&percent_decode_str(text).decode_utf8_lossy());
    let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(key), decode(value))
        })
        .collect()
}

/// What is hashed for a signature.
struct Canonical {
    text: String,
    /// Names of the headers in it.
    signed: String,
    query: String,
}

fn canonical(
    request: &Unsigned<'_>,
    pairs: &[(String, String)],
    mut headers: Vec<(String, String)>,
) -> Canonical {
    let mut pairs = pairs.to_vec();
    pairs.sort();
    let query: Vec<String> = pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let query = query.join("&");
    headers.sort();
    let signed: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
    let signed = signed.join(";");
    let lines: String = headers.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
    let (method, path, payload) = (request.method, request.uri.path(), &request.payload);
    let text = format!("{method}\n{path}\n{query}\n{lines}\n{signed}\n{payload}");
    Canonical { text, signed, query }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Amazon's examples ("Signature Calculations for the Authorization Header" of the S3 reference).
    fn signer() -> Signer {
        let credentials = Credentials {
            access_key: "AKIAIOSFODNN7EXAMPLE".into(),
            secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
            session_token: None,
        };
        Signer { credentials, region: "us-east-1".into(), service: "s3".into() }
    }

    fn when() -> Timestamp {
        "2013-05-24T00:00:00Z".parse().unwrap()
    }

    #[test]
    fn signatures_are_those_of_amazons_examples() {
        let empty = sha256(b"");
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let rows = [
            (
                Method::GET,
                "/test.txt",
                vec![header("range", "bytes=0-9")],
                empty.clone(),
                "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
            ),
            (
                Method::PUT,
                "/test%24file.text",
                vec![
                    header("date", "Fri, 24 May 2013 00:00:00 GMT"),
                    header("x-amz-storage-class", "REDUCED_REDUNDANCY"),
                ],
                sha256(b"Welcome to Amazon S3."),
                "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
            ),
            (
                Method::GET,
                "/?lifecycle",
                Vec::new(),
                empty.clone(),
                "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
            ),
            (
                Method::GET,
                "/?max-keys=2&prefix=J",
                Vec::new(),
                empty,
                "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
            ),
        ];
        for (method, path, headers, payload, expected) in rows {
            let uri: Uri = format!("https://examplebucket.s3.amazonaws.com{path}").parse().unwrap();
            let request = Unsigned { method: &method, uri: &uri, headers, payload };
            let added = signer().headers(&request, when());
            let (_, value) = added.iter().find(|(name, _)| name == "authorization").unwrap();
            assert!(value.ends_with(&format!("Signature={expected}")), "{path}: {value}");
        }
    }

    #[test]
    fn a_presigned_url_is_that_of_amazons_example() {
        let uri: Uri = "https://examplebucket.s3.amazonaws.com/test.txt".parse().unwrap();
        let url = signer().presign(&Method::GET, &uri, Duration::from_secs(86400), when());
        assert_eq!(
            url,
            "https://examplebucket.s3.amazonaws.com/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256\
             &X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request\
             &X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host\
             &X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
        );
    }

    #[test]
    fn a_presigned_url_lives_for_a_week_at_most() {
        let uri: Uri = "https://a/b".parse().unwrap();
        let url = signer().presign(&Method::GET, &uri, Duration::from_secs(u64::MAX), when());
        assert!(url.contains("X-Amz-Expires=604800&"), "{url}");
    }

    #[test]
    fn a_secret_does_not_reach_debug_output() {
        assert!(!format!("{:?}", signer()).contains("wJalr"));
    }
}
