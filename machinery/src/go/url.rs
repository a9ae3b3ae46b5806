//! URLs as Go's `url.Parse` and `url.ParseRequestURI` read them, with their errors.

use super::{address::parse_addr, quote};

/// The parts of a URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Url {
    /// In small letters; empty where there is none.
    pub scheme: String,
    /// Host and port, decoded.
    pub host: String,
    /// The path as it goes on the wire; empty for `mailto:x`.
    pub path: String,
    /// What stands after `?`.
    pub query: String,
}

/// Reads what a request may ask for: an absolute URL or path. What follows `#` is taken for a part of it.
///
/// # Errors
/// Go's, without the URL itself in front: `missing protocol scheme`.
pub fn parse_request_uri(text: &str) -> Result<Url, String> {
    parse(text, true)
}

/// Reads what is good for a request as any URL: without what follows `#`, and with a host in `//host/path`.
///
/// # Errors
/// See [`parse_request_uri`].
pub fn parse_absolute(text: &str) -> Result<Url, String> {
    parse(text, true)?;
    let (text, fragment) = text.split_once('#').unwrap_or((text, ""));
    unescape(fragment, |_| true)?;
    parse(text, false)
}

/// Reads any URL, relative ones and the empty one among them; what follows `#` is left out.
///
/// # Errors
/// See [`parse_request_uri`].
pub fn parse_any(text: &str) -> Result<Url, String> {
    let (text, fragment) = text.split_once('#').unwrap_or((text, ""));
    let url = parse(text, false)?;
    unescape(fragment, |_| true)?;
    Ok(url)
}

fn parse(text: &str, is_request: bool) -> Result<Url, String> {
    if text.bytes().any(|c| c < b' ' || c == 0x7f) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    if text.is_empty() && is_request {
        return Err("empty url".to_owned());
    }
    if text == "*" {
        return Ok(Url { path: text.to_owned(), ..Url::default() });
    }
    let (scheme, rest) = scheme(text)?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut url = Url { scheme: scheme.to_ascii_lowercase(), query: query.to_owned(), ..Url::default() };
    if !rest.starts_with('/') {
        let first = rest.split('/').next().unwrap_or_default();
        match scheme.is_empty() {
            false => return Ok(url),
            true if is_request => return Err("invalid URI for request".to_owned()),
            true if first.contains(':') => {
                return Err("first path segment in URL cannot contain colon".to_owned());
            }
            true => {}
        }
    }
    let mut path = rest;
    let has_host = !scheme.is_empty() || (!is_request && !rest.starts_with("///"));
    if let Some(after) = rest.strip_prefix("//").filter(|_| has_host) {
        let (authority, after) = after.split_at(after.find('/').unwrap_or(after.len()));
        let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(u, h)| (Some(u), h));
        url.host = self::host(&url.scheme, host)?;
        check_user(user.unwrap_or_default())?;
        path = after;
    }
    unescape(path, |_| true)?;
    url.path = escape_path(path);
    Ok(url)
}

/// Decodes percent-encoding of what `may` be encoded.
///
/// # Errors
/// `invalid URL escape "%zz"`.
pub fn unescape(text: &str, may: impl Fn(u8) -> bool) -> Result<String, String> {
    let mut out = Vec::with_capacity(text.len());
    let (bytes, mut at) = (text.as_bytes(), 0);
    while let Some(byte) = bytes.get(at) {
        let decoded = (*byte == b'%').then(|| {
            let hex = bytes.get(at + 1..at + 3).filter(|hex| hex.iter().all(u8::is_ascii_hexdigit));
            let code = hex.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
            code.filter(|code| may(*code)).ok_or_else(|| {
                let end = bytes.len().min(at + 3);
                format!("invalid URL escape {}", quote(&String::from_utf8_lossy(&bytes[at..end])))
            })
        });
        match decoded {
            Some(code) => (out.push(code?), at += 3).0,
            None => (out.push(*byte), at += 1).0,
        }
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// The scheme and what follows its colon; nothing and everything where there is none.
fn scheme(text: &str) -> Result<(&str, &str), String> {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c));
    match end.filter(|end| text[*end..].starts_with(':')) {
        Some(0) => Err("missing protocol scheme".to_owned()),
        Some(end) if text.starts_with(|c: char| c.is_ascii_alphabetic()) => {
            Ok((&text[..end], &text[end + 1..]))
        }
        _ => Ok(("", text)),
    }
}

fn host(scheme: &str, host: &str) -> Result<String, String> {
    // Only what is not ASCII may be encoded in a name.
    let name = |text: &str| {
        if let Some(c) = text.chars().find(|c| " \\^`{}|".contains(*c)) {
            return Err(format!("invalid character {} in host name", quote(&c.to_string())));
        }
        unescape(text, |code| code >= 0x80)
    };
    let port = |text: &str| match text.strip_prefix(':') {
        Some(digits) if digits.bytes().all(|c| c.is_ascii_digit()) => Ok(()),
        None if text.is_empty() => Ok(()),
        _ => Err(format!("invalid port {} after host", quote(text))),
    };
    match host.rfind('[') {
        Some(0) => {
            let end = host.rfind(']').ok_or("missing ']' in host")?;
            port(&host[end + 1..])?;
            let inner = &host[1..end];
            let inner = match inner.find("%25") {
                Some(zone) => name(&inner[..zone])? + &unescape(&inner[zone..], |_| true)?,
                None => name(inner)?,
            };
            let (address, _) = parse_addr(&inner).map_err(|why| format!("invalid host: {why}"))?;
            match address.is_ipv4() {
                true => Err("invalid IP-literal".to_owned()),
                false => Ok(format!("[{inner}]{}", &host[end + 1..])),
            }
        }
        Some(_) => Err("invalid IP-literal".to_owned()),
        None => {
            let strict = matches!(scheme, "http" | "https");
            let colon = if strict { host.find(':') } else { host.rfind(':') };
            port(colon.map_or("", |at| &host[at..]))?;
            name(host)
        }
    }
}

fn check_user(user: &str) -> Result<(), String> {
    let good = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
    if !user.chars().all(good) {
        return Err("net/url: invalid userinfo".to_owned());
    }
    unescape(user, |_| true).map(drop)
}

/// A path with what may not stand in one encoded. What is there is kept if it could have been made so.
fn escape_path(path: &str) -> String {
    let good = |c: u8| c.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@%".contains(&c);
    // Go keeps an encoding that it would not have chosen itself, so long as nothing else in it had to be encoded.
    if path.bytes().all(|c| good(c) || b"!'()*[]".contains(&c)) {
        return path.to_owned();
    }
    let decoded = unescape(path, |_| true).unwrap_or_default();
    let mut out = String::with_capacity(path.len() + 8);
    for byte in decoded.bytes() {
        match byte != b'%' && good(byte) {
            true => out.push(char::from(byte)),
            false => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The errors are those of Go 1.26.
    #[test]
    fn what_is_no_url_is_refused_in_the_words_of_go() {
        for (text, want) in [
            ("", "empty url"),
            ("relative", "invalid URI for request"),
            ("1http://a", "invalid URI for request"),
            (":foo", "missing protocol scheme"),
            ("https://a b/", r#"invalid character " " in host name"#),
            ("https://a:port/", r#"invalid port ":port" after host"#),
            ("https://a/%zz", r#"invalid URL escape "%zz""#),
            ("https://a%41/", r#"invalid URL escape "%41""#),
            ("https://[::1", "missing ']' in host"),
            ("https://[::1]x", r#"invalid port "x" after host"#),
            ("https://us er@a/", "net/url: invalid userinfo"),
            ("https://[fe80::1%en0]/", r#"invalid URL escape "%en""#),
            ("https://a/\u{1}", "net/url: invalid control character in URL"),
        ] {
            assert_eq!(parse_request_uri(text), Err(want.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_is_no_url_at_all_is_refused() {
        for (text, want) in [
            ("", Ok("")),
            ("x/y", Ok("x/y")),
            ("//a/b#c", Ok("/b")),
            ("a_b:c", Err("first path segment in URL cannot contain colon")),
            ("https://a#%zz", Err(r#"invalid URL escape "%zz""#)),
            ("https://x:a:b/%zz", Err(r#"invalid port ":a:b" after host"#)),
        ] {
            let found = parse_any(text).map(|url| url.path);
            assert_eq!(found.as_deref().map_err(String::as_str), want, "{text}");
        }
    }

    #[test]
    fn urls_have_the_parts_that_go_finds() {
        for (text, want) in [
            ("HTTPS://u:p@A:8080/b%20c?x=1", ["https", "A:8080", "/b%20c", "x=1"]),
            ("mailto:x@y", ["mailto", "", "", ""]),
            ("///b", ["", "", "///b", ""]),
            ("*", ["", "", "*", ""]),
            ("https://[fe80::1%25en0]:1/", ["https", "[fe80::1%en0]:1", "/", ""]),
            ("/[b]", ["", "", "/[b]", ""]),
            ("/a b%2Fc\"", ["", "", "/a%20b/c%22", ""]),
            ("https://a<b", ["https", "a<b", "", ""]),
        ] {
            let url = parse_request_uri(text).unwrap_or_else(|why| panic!("{text}: {why}"));
            assert_eq!([url.scheme, url.host, url.path, url.query], want.map(str::to_owned), "{text}");
        }
    }
}
