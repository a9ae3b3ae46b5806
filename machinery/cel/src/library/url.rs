//! URLs: `url('https://a/b')`. Absolute URLs and absolute paths, as Go takes them.

use super::{
    opaque::opaque,
    outcome::{failed, texts},
};
use cel::{
    DeclarationError, Env, ExecutionError, add_member_overload, add_overload,
    common::{
        types::{CelBool, CelMap, CelMapKey, CelString},
        value::Val,
    },
};
use freehold_machinery::go::{
    quote,
    url::{Url as Parts, parse_absolute, parse_request_uri, unescape},
};
use std::collections::BTreeMap;

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

/// The name and the port of a host; brackets stay.
fn split_port(host: &str) -> (&str, &str) {
    match host.rfind(':') {
        Some(at) if !host[at..].contains(']') => (&host[..at], &host[at + 1..]),
        _ => (host, ""),
    }
}

fn url(text: &CelString<'_>) -> Result<Url, ExecutionError> {
    let wrong = |why| {
        let shown = quote(text.inner());
        failed("url", format!("URL parse error during conversion from string: parse {shown}: {why}"))
    };
    parse_absolute(text.inner()).map(Url).map_err(wrong)
}

fn is_url(text: &CelString<'_>) -> CelBool {
    parse_request_uri(text.inner()).is_ok().into()
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
    for pair in this.0.query.split('&').filter(|p| !p.is_empty() && !p.contains(';')) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let decoded = |text: &str| unescape(&text.replace('+', " "), |_| true);
        if let (Ok(key), Ok(value)) = (decoded(key), decoded(value)) {
            values.entry(key).or_default().push(value);
        }
    }
    let entry = |(k, v): (String, Vec<String>)| (CelMapKey::from(k), Box::new(texts(v)) as Box<dyn Val>);
    CelMap::from(values.into_iter().map(entry).collect::<std::collections::HashMap<_, _>>())
}
