//! OpenAPI string formats that custom resources are checked against.
//!
//! The names are those that apiextensions supports; `-` in a name does not count. Other formats are ignored, as
//! Kubernetes ignores them.

use super::pattern;
use crate::{go, names, time};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

type Check = fn(&str) -> bool;

/// Supported formats, by their names without `-`.
const FORMATS: &[(&str, Check)] = &[
    ("bsonobjectid", |s| s.len() == 24 && is_hex(s)),
    ("byte", is_base64),
    ("cidr", is_cidr),
    ("creditcard", is_credit_card),
    ("date", |s| jiff::civil::Date::strptime("%Y-%m-%d", s).is_ok() && s.len() == 10),
    ("datetime", |s| time::parse(s).is_some()),
    ("duration", |s| time::parse_duration(s).is_some() || is_scala_duration(s)),
    ("email", is_email),
    ("hexcolor", |s| matches(s, "^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$")),
    ("hostname", is_hostname),
    ("ipv4", |s| s.parse::<Ipv4Addr>().is_ok()),
    ("ipv6", |s| s.parse::<Ipv6Addr>().is_ok()),
    ("isbn", |s| is_isbn10(s) || is_isbn13(s)),
    ("isbn10", is_isbn10),
    ("isbn13", is_isbn13),
    ("k8slongname", |s| names::dns1123_subdomain(s).is_empty()),
    ("k8sshortname", |s| names::dns1123_label(s).is_empty()),
    ("mac", is_mac),
    ("password", |_| true),
    ("rgbcolor", is_rgb),
    ("ssn", |s| matches(s, r"^\d{3}[- ]?\d{2}[- ]?\d{4}$")),
    ("uri", |s| go::url::parse_request_uri(s).is_ok()),
    ("uuid", |s| is_uuid(s, "[0-9a-f]", "[0-9a-f]")),
    ("uuid3", |s| is_uuid(s, "3", "[0-9a-f]")),
    ("uuid4", |s| is_uuid(s, "4", "[89ab]")),
    ("uuid5", |s| is_uuid(s, "5", "[89ab]")),
];

/// Whether a string is of a format; `None` where the format is not supported.
pub fn check(format: &str, text: &str) -> Option<bool> {
    let name = format.replace('-', "");
    let at = FORMATS.binary_search_by(|(known, _)| (*known).cmp(name.as_str())).ok()?;
    Some(FORMATS[at].1(text))
}

/// Whether a string format is supported.
pub fn is_known(format: &str) -> bool {
    check(format, "").is_some()
}

fn matches(text: &str, regex: &str) -> bool {
    pattern::compile(regex).is_ok_and(|r| r.is_match(text))
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|c| c.is_ascii_hexdigit())
}

fn is_base64(text: &str) -> bool {
    use base64::{Engine, engine::general_purpose::STANDARD};
    !text.is_empty() && STANDARD.decode(text).is_ok()
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let bits = match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    let digits = !length.is_empty() && length.bytes().all(|c| c.is_ascii_digit());
    digits && length.parse::<u32>().is_ok_and(|l| l <= bits)
}

fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let known = "^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11})$";
    let luhn: u32 = digits
        .bytes()
        .rev()
        .enumerate()
        .map(|(i, c)| {
            let digit = u32::from(c - b'0') * if i % 2 == 1 { 2 } else { 1 };
            if digit > 9 { digit - 9 } else { digit }
        })
        .sum();
    matches(&digits, known) && luhn.is_multiple_of(10)
}

fn is_scala_duration(text: &str) -> bool {
    matches(
        text,
        r"(?i)(\d+)\s*(ns|nanos?|nanoseconds?|us|µs|micros?|microseconds?|ms|millis?|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hr|hours?|d|days?|w|wk|weeks?)",
    )
}

/// The address of an RFC 5322 mailbox, bare or as `Name <address>`.
fn is_email(text: &str) -> bool {
    let address = match text.strip_suffix('>').and_then(|t| t.rsplit_once('<')) {
        Some((_, address)) => address,
        None => text.trim(),
    };
    matches(
        address,
        r#"^("[^"\\\r\n]+"|[A-Za-z0-9!#$%&'*+/=?^_`{|}~\x{80}-\x{10FFFF}-]+(\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~\x{80}-\x{10FFFF}-]+)*)@(\[[^\]\s]+\]|[A-Za-z0-9!#$%&'*+/=?^_`{|}~\x{80}-\x{10FFFF}-]+(\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~\x{80}-\x{10FFFF}-]+)*)$"#,
    )
}

/// A host name, with letters and symbols of any script; the last of several labels is letters only.
fn is_hostname(text: &str) -> bool {
    let labels: Vec<&str> = text.split('.').collect();
    let good = |label: &str| {
        matches(label, r"^[a-zA-Z0-9\p{S}\p{L}]([a-zA-Z0-9\-\p{S}\p{L}]*[a-zA-Z0-9\p{S}\p{L}])?$")
    };
    let Some((last, rest)) = labels.split_last() else { return false };
    let last_is_good = if rest.is_empty() { good(last) } else { matches(last, r"^[a-zA-Z\p{L}]{2,}$") };
    text.len() <= 255 && labels.iter().all(|l| l.len() <= 63) && rest.iter().all(|l| good(l)) && last_is_good
}

fn is_isbn10(text: &str) -> bool {
    let digits: Vec<u32> = match isbn_digits(text, 10) {
        Some(digits) => digits,
        None => return false,
    };
    digits.iter().zip(1..).map(|(digit, weight)| digit * weight).sum::<u32>() % 11 == 0
}

fn is_isbn13(text: &str) -> bool {
    let Some(digits) = isbn_digits(text, 13) else { return false };
    digits.iter().zip([1, 3].into_iter().cycle()).map(|(digit, weight)| digit * weight).sum::<u32>() % 10 == 0
}

/// The digits of an ISBN without blanks and dashes; a last `X` of an ISBN-10 is ten.
fn isbn_digits(text: &str, count: usize) -> Option<Vec<u32>> {
    let kept: Vec<char> = text.chars().filter(|c| !c.is_whitespace() && *c != '-').collect();
    let digit =
        |(i, c): (usize, &char)| c.to_digit(10).or((*c == 'X' && count == 10 && i == 9).then_some(10));
    (kept.len() == count).then(|| kept.iter().enumerate().map(digit).collect::<Option<Vec<u32>>>()).flatten()
}

fn is_mac(text: &str) -> bool {
    let groups = |separator: char, width: usize| {
        let parts: Vec<&str> = text.split(separator).collect();
        parts.iter().all(|p| p.len() == width && is_hex(p)) && [6, 8, 20].contains(&(parts.len() * width / 2))
    };
    groups(':', 2) || groups('-', 2) || groups('.', 4)
}

fn is_rgb(text: &str) -> bool {
    let part = r"\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*";
    matches(text, &format!(r"^rgb\({part},{part},{part}\)$"))
}

/// What Go's `url.ParseRequestURI` takes: an absolute URL or an absolute path.
fn is_uuid(text: &str, version: &str, variant: &str) -> bool {
    let hex = "[0-9a-f]";
    matches(
        text,
        &format!("(?i)^{hex}{{8}}-?{hex}{{4}}-?{version}{hex}{{3}}-?{variant}{hex}{{3}}-?{hex}{{12}}$"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_for_the_search() {
        assert!(FORMATS.windows(2).all(|w| w[0].0 < w[1].0));
    }

    #[test]
    fn formats_accept_and_refuse() {
        for (format, good, bad) in [
            ("date-time", "2026-01-02T03:04:05Z", "2026-01-02"),
            ("date", "2026-01-02", "2026-1-2"),
            ("duration", "1h30m", "soon"),
            ("byte", "YQ==", "a"),
            ("ipv4", "10.0.0.1", "10.0.0"),
            ("ipv6", "::1", "10.0.0.1"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("mac", "00:00:5e:00:53:01", "00:00"),
            ("uuid", "0D3C9A62-5b0c-4d65-9f3f-1f3c1c1f6f7e", "0d3c"),
            ("uuid4", "0d3c9a62-5b0c-4d65-9f3f-1f3c1c1f6f7e", "0d3c9a62-5b0c-3d65-9f3f-1f3c1c1f6f7e"),
            ("email", "a@b.c", "a@"),
            ("hostname", "a.example.com", "-a"),
            ("uri", "https://a/b?c", "a b"),
            ("isbn10", "0321751043", "0321751044"),
            ("isbn13", "978-0321751041", "978-0321751042"),
            ("hexcolor", "#fff", "#ff"),
            ("rgbcolor", "rgb(1,2,3)", "rgb(1,2)"),
            ("ssn", "123-45-6789", "123"),
            ("creditcard", "4111-1111-1111-1111", "4111-1111-1111-1112"),
            ("k8s-short-name", "a-b", "A"),
        ] {
            assert_eq!(check(format, good), Some(true), "{format}: {good}");
            assert_eq!(check(format, bad), Some(false), "{format}: {bad}");
        }
        assert_eq!(check("int-or-string", "x"), None);
    }
}
