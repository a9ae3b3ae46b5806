//! What a request from a browser must show before its cookie counts. Pure.
//!
//! A page of another site can make a browser send requests with cookies. `SameSite=Strict` keeps the session's cookie out of
//! them; these checks hold where it does not: each request for data carries a header that only scripts of this origin can set,
//! and what the browser says of its origin has to agree.

use crate::error::Failure;
use http::{HeaderMap, Method, Uri, header, request::Parts};

/// The header that the console sets on each request; its value does not matter.
pub(crate) const MARK: &str = "x-freehold-console";
/// The session's cookie. The prefix binds it to this host, path `/` and TLS.
pub(crate) const SESSION: &str = "__Host-freehold-session";
/// The cookie that binds a sign-in at an issuer to the browser that began it.
pub(crate) const LOGIN: &str = "__Host-freehold-login";

/// The value of a cookie.
pub(crate) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(header::COOKIE).into_iter().filter_map(|line| line.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let mut values = pairs.filter(|(found, _)| *found == name).map(|(_, value)| value);
    // Two of one name: another host of this domain has set one.
    values.next().filter(|_| values.next().is_none())
}

/// A `Set-Cookie` for a value, or for its removal if `seconds` is 0.
pub(crate) fn set_cookie(name: &str, value: &str, same_site: &str, seconds: u64) -> String {
    format!("{name}={value}; Path=/; Secure; HttpOnly; SameSite={same_site}; Max-Age={seconds}")
}

/// Refuses what a page of another origin may have sent. `origin` is the console's own where that is configured; otherwise it
/// is the host that the request names.
pub(crate) fn same_origin(parts: &Parts, own: Option<&str>) -> Result<(), Failure> {
    let text = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
    if !parts.headers.contains_key(MARK) {
        return Err(Failure::forbidden(format!("the header {MARK} is missing: links can't open this")));
    }
    if text("sec-fetch-site").is_some_and(|site| site != "same-origin") {
        return Err(Failure::forbidden("pages of other origins can't use the gateway"));
    }
    let changes = !matches!(parts.method, Method::GET | Method::HEAD);
    match text("origin") {
        Some(origin) if is_own(origin, own, host(&parts.uri, &parts.headers)) => Ok(()),
        Some(_) => Err(Failure::forbidden("pages of other origins can't use the gateway")),
        None if changes && text("sec-fetch-site").is_none() => {
            Err(Failure::forbidden("a change needs the header Origin or Sec-Fetch-Site"))
        }
        None => Ok(()),
    }
}

fn host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    let named = uri.authority().map(|authority| authority.as_str());
    named.or_else(|| headers.get(header::HOST)?.to_str().ok())
}

fn is_own(origin: &str, own: Option<&str>, host: Option<&str>) -> bool {
    let Some(named) = origin.strip_prefix("https://") else { return false };
    own == Some(origin) || host.is_some_and(|host| named.eq_ignore_ascii_case(host))
}

/// A path of the console that a person may be sent to after signing in; anything else leads to its first page.
pub(crate) fn landing(path: &str) -> &str {
    let plain = path.bytes().all(|b| b.is_ascii_graphic() && b != b'\\');
    let inside = path.starts_with(crate::PREFIX) && !path.contains("//") && !path.contains("/..");
    if plain && inside && !path.starts_with("/console/api/") && path.len() <= 1024 {
        path
    } else {
        crate::PREFIX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn verdict(method: Method, headers: &[(&str, &str)]) -> bool {
        let mut request =
            Request::builder().method(method).uri("/console/api/x").header("host", "a.example:7443");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        same_origin(&request.body(()).unwrap().into_parts().0, None).is_ok()
    }

    #[test]
    fn only_scripts_of_the_console_pass() {
        let mark = (MARK, "1");
        let (own, other) = (("origin", "https://a.example:7443"), ("origin", "https://evil.example"));
        assert!(verdict(Method::GET, &[mark]));
        assert!(!verdict(Method::GET, &[]), "a link");
        assert!(!verdict(Method::GET, &[mark, ("sec-fetch-site", "cross-site")]));
        assert!(!verdict(Method::GET, &[mark, ("sec-fetch-site", "same-site")]), "a project's host");
        assert!(verdict(Method::POST, &[mark, own]));
        assert!(verdict(Method::POST, &[mark, ("sec-fetch-site", "same-origin")]));
        assert!(!verdict(Method::POST, &[mark]), "nothing says where it is from");
        assert!(!verdict(Method::POST, &[mark, other]));
        assert!(!verdict(Method::POST, &[mark, ("origin", "http://a.example:7443")]));
        assert!(!verdict(Method::POST, &[mark, ("origin", "null")]));
        assert!(!verdict(Method::POST, &[own]));
    }

    #[test]
    fn a_cookie_that_is_there_twice_counts_for_nothing() {
        let mut headers = HeaderMap::new();
        headers.append("cookie", "a=1; b=2".parse().unwrap());
        assert_eq!(cookie(&headers, "b"), Some("2"));
        headers.append("cookie", "b=3".parse().unwrap());
        assert_eq!(cookie(&headers, "b"), None);
        assert_eq!(cookie(&headers, "a"), Some("1"));
    }

    #[test]
    fn a_landing_is_a_page_of_the_console() {
        assert_eq!(landing("/console/projects/web?x=1"), "/console/projects/web?x=1");
        for away in [
            "https://evil.example/",
            "//evil.example",
            "/console//evil.example",
            "/console/../x",
            "/console\\@evil",
            "/console/api/session",
            "",
            "/x",
            "/console/\r\nx: y",
        ] {
            assert_eq!(landing(away), "/console/", "{away}");
        }
    }
}
