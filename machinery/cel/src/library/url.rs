//! URLs: `url('https://a/b')`. Absolute URLs and absolute paths, as Go's `url.ParseRequestURI` takes them.

use super::{failed, opaque, texts};
use cel::{
    DeclarationError, Env, ExecutionError, add_member_overload, add_overload,
    common::{
        types::{CelBool, CelMap, CelMapKey, CelString},
        value::Val,
    },
};
use std::{collections::BTreeMap, net::Ipv6Addr};

/// The parts of a URL that expressions can ask for.
#[derive(Clone, Debug, PartialEq, Default)]
pub(super) struct Parts {
    scheme: String,
    host: String,
    path: String,
    query: String,
}

opaque!(
    /// A URL.
    Url(Parts), URL = "kubernetes.URL", copy
);

pub(super) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_type(URL.to_owned())?;
    add_overload!(env, fn url: (CelString<'_>) -> Result<Url>)?;
    add_overload!(env, fn is_url: (CelString<'_>) -> CelBool, name = "isURL")?;
    add_member_overload!(env, fn get_scheme: (Url) -> CelString<'_>)?;
    add_member_overload!(env, fn get_host: (Url) -> CelString<'_>)?;
    add_member_overload!(env, fn get_hostname: (Url) -> CelString<'_>)?;
    add_member_overload!(env, fn get_port: (Url) -> CelString<'_>)?;
    add_member_overload!(env, fn get_escaped_path: (Url) -> CelString<'_>)?;
    add_member_overload!(env, fn get_query: (Url) -> CelMap<'_>)
}

fn parse(text: &str) -> Option<Parts> {
    if text.is_empty() || text.bytes().any(|c| c < b' ' || c == 0x7f) {
        return None;
    }
    let (scheme, rest) = match text.split_once(':') {
        Some((scheme, rest)) if is_scheme(scheme) => (scheme.to_ascii_lowercase(), rest),
        _ if text.starts_with('/') => (String::new(), text),
        _ => return None,
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (host, path) = match rest.strip_prefix("//") {
        Some(rest) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            (authority.rsplit_once('@').map_or(authority, |(_, host)| host), path)
        }
        None => ("", rest),
    };
    if !is_host(host) || unescape(path, false).is_none() {
        return None;
    }
    Some(Parts { scheme, host: host.to_owned(), path: escape(path), query: query.to_owned() })
}

fn is_scheme(scheme: &str) -> bool {
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|c| c.is_ascii_alphanumeric() || b"+-.".contains(&c))
}

fn is_host(host: &str) -> bool {
    let (name, port) = split_port(host);
    let port = port.is_empty() || port.bytes().all(|c| c.is_ascii_digit());
    match name.strip_prefix('[') {
        Some(v6) => port && v6.strip_suffix(']').is_some_and(|a| a.parse::<Ipv6Addr>().is_ok()),
        None => port && !name.contains([':', ' ', '<', '>', '"', '[', ']', '\\', '^', '`', '{', '}', '|']),
    }
}

/// The name and the port of a host; brackets stay.
fn split_port(host: &str) -> (&str, &str) {
    match host.rfind(':') {
        Some(at) if !host[at..].contains(']') => (&host[..at], &host[at + 1..]),
        _ => (host, ""),
    }
}

/// Percent-encodes what may not stand in a path.
fn escape(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@%!'()*".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// Decodes percent-encoding; `None` where it is broken.
fn unescape(text: &str, plus_is_blank: bool) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let hex = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(std::str::from_utf8(&hex).ok()?, 16).ok()?
            }
            b'+' if plus_is_blank => b' ',
            byte => byte,
        });
    }
    Some(String::from_utf8_lossy(&out).into_owned())
}

fn url(text: &CelString<'_>) -> Result<Url, ExecutionError> {
    let wrong =
        || failed("url", format!("URL parse error during conversion from string: {:?}", text.inner()));
    parse(text.inner()).map(Url).ok_or_else(wrong)
}

fn is_url(text: &CelString<'_>) -> CelBool {
    parse(text.inner()).is_some().into()
}

fn get_scheme(this: &Url) -> CelString<'static> {
    CelString::from(this.0.scheme.clone())
}

fn get_host(this: &Url) -> CelString<'static> {
    CelString::from(this.0.host.clone())
}

fn get_hostname(this: &Url) -> CelString<'static> {
    let name = split_port(&this.0.host).0;
    CelString::from(name.trim_start_matches('[').trim_end_matches(']').to_owned())
}

fn get_port(this: &Url) -> CelString<'static> {
    CelString::from(split_port(&this.0.host).1.to_owned())
}

fn get_escaped_path(this: &Url) -> CelString<'static> {
    CelString::from(this.0.path.clone())
}

fn get_query(this: &Url) -> CelMap<'static> {
    let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pair in this.0.query.split('&').filter(|p| !p.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if let (Some(key), Some(value)) = (unescape(key, true), unescape(value, true)) {
            values.entry(key).or_default().push(value);
        }
    }
    let entry = |(k, v): (String, Vec<String>)| (CelMapKey::from(k), Box::new(texts(v)) as Box<dyn Val>);
    CelMap::from(values.into_iter().map(entry).collect::<std::collections::HashMap<_, _>>())
}
