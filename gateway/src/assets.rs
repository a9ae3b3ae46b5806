//! The console's files, embedded by `build.rs`.
//!
//! Names of scripts and styles have a hash of their content, so browsers keep them for good. Every path that is no file is a
//! page of the console, which its one HTML file shows.

use crate::reply::{self, PAGE_POLICY, Reply};
use http::{HeaderMap, HeaderValue, StatusCode, header};

/// A file of the console.
struct File {
    path: &'static str,
    plain: &'static [u8],
    gzip: &'static [u8],
}

mod embedded {
    use super::File;
    include!(concat!(env!("OUT_DIR"), "/files.rs"));
}

/// What is served where the program was built without the console.
const ABSENT: &str = "<!doctype html><html lang=en><meta charset=utf-8><title>Freehold</title>\
<p>This program was built without the console. Run <code>make console</code>, then build it again.";
/// The page of the console.
const INDEX: &str = "index.html";
/// The folder whose files have hashes in their names.
const HASHED: &str = "assets/";

/// Answers a request for a path below the prefix.
pub(crate) fn serve(path: &str, headers: &HeaderMap) -> Reply {
    let find = |name: &str| embedded::FILES.iter().find(|file| file.path == name);
    let file = find(path).or_else(|| if path.starts_with(HASHED) { None } else { find(INDEX) });
    let Some(file) = file else {
        return match path.starts_with(HASHED) {
            true => reply::bytes(StatusCode::NOT_FOUND, "text/plain", "no such file\n"),
            false => page(reply::bytes(StatusCode::OK, "text/html; charset=utf-8", ABSENT)),
        };
    };
    let takes_gzip = headers
        .get_all(header::ACCEPT_ENCODING)
        .iter()
        .any(|value| value.to_str().is_ok_and(|text| text.contains("gzip")));
    let smaller = takes_gzip && file.gzip.len() < file.plain.len();
    let mut reply =
        reply::bytes(StatusCode::OK, media_type(file.path), if smaller { file.gzip } else { file.plain });
    if smaller {
        reply.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    reply.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    let forever = HeaderValue::from_static("public, max-age=31536000, immutable");
    if file.path.starts_with(HASHED) {
        reply.headers_mut().insert(header::CACHE_CONTROL, forever);
    }
    page(reply)
}

fn page(mut reply: Reply) -> Reply {
    let headers = reply.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, PAGE_POLICY);
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache"));
    reply
}

fn media_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map_or("", |(_, end)| end) {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "json" => "application/json",
        "webmanifest" => "application/manifest+json",
        "png" => "image/png",
        _ => "application/octet-stream",
    }
}
