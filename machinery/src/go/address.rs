//! IP addresses and prefixes as Go's `net/netip` reads them, with its errors.

use super::quote;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What `netip.ParseAddr` makes of a text: the address and its zone.
///
/// # Errors
/// Its error: `ParseAddr("1.2.3"): IPv4 address too short`.
pub fn parse_addr(text: &str) -> Result<(IpAddr, Option<&str>), String> {
    let parsed = match text.find(['.', ':', '%']).map(|at| &text[at..=at]) {
        Some(".") => v4(text).map(|octets| (Ipv4Addr::from(octets).into(), None)),
        Some(":") => v6(text),
        Some(_) => Err(Wrong("missing IPv6 address", None)),
        None => Err(Wrong("unable to parse IP", None)),
    };
    parsed.map_err(|Wrong(what, at)| {
        let at = at.map(|at| format!(" (at {})", quote(at))).unwrap_or_default();
        format!("ParseAddr({}): {what}{at}", quote(text))
    })
}

/// What `netip.ParsePrefix` makes of a text: an address, whose bits after the prefix may be set, and its length.
///
/// # Errors
/// Its error: `netip.ParsePrefix("10.0.0.0/33"): prefix length out of range`.
pub fn parse_prefix(text: &str) -> Result<(IpAddr, u8), String> {
    let parsed = || {
        let (address, bits) = text.rsplit_once('/').ok_or("no '/'")?;
        let (address, zone) = parse_addr(address)?;
        if zone.is_some() {
            return Err("IPv6 zones cannot be present in a prefix".to_owned());
        }
        let bad = || format!("bad bits after slash: {}", quote(bits));
        let plain = bits.bytes().all(|c| c.is_ascii_digit()) && (bits.len() == 1 || !bits.starts_with('0'));
        let length: u64 = bits.parse().ok().filter(|_| plain).ok_or_else(bad)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        match u8::try_from(length) {
            Ok(length) if length <= most => Ok((address, length)),
            _ => Err("prefix length out of range".to_owned()),
        }
    };
    parsed().map_err(|why: String| format!("netip.ParsePrefix({}): {why}", quote(text)))
}

/// An error, and the rest of the text that it is about.
struct Wrong<'t>(&'static str, Option<&'t str>);

fn v4(text: &str) -> Result<[u8; 4], Wrong<'_>> {
    let (mut octets, mut at) = ([0; 4], 0);
    let mut field = String::new();
    for (place, c) in text.char_indices() {
        match c {
            '0'..='9' => {
                if field == "0" {
                    return Err(Wrong("IPv4 field has octet with leading zero", None));
                }
                field.push(c);
                octets[at] = field.parse().map_err(|_| Wrong("IPv4 field has value >255", None))?;
            }
            '.' if field.is_empty() || place + 1 == text.len() => {
                return Err(Wrong("IPv4 field must have at least one digit", Some(&text[place..])));
            }
            '.' if at == 3 => return Err(Wrong("IPv4 address too long", None)),
            '.' => {
                at += 1;
                field.clear();
            }
            _ => return Err(Wrong("unexpected character", Some(&text[place..]))),
        }
    }
    if at < 3 { Err(Wrong("IPv4 address too short", None)) } else { Ok(octets) }
}

fn v6(text: &str) -> Result<(IpAddr, Option<&str>), Wrong<'_>> {
    let (mut rest, zone) = text.split_once('%').map_or((text, None), |(rest, zone)| (rest, Some(zone)));
    if zone == Some("") {
        return Err(Wrong("zone must be a non-empty string", None));
    }
    let mut bytes: Vec<u8> = Vec::with_capacity(16);
    let mut gap = None;
    if let Some(after) = rest.strip_prefix("::") {
        (gap, rest) = (Some(0), after);
    }
    while !rest.is_empty() && bytes.len() < 16 {
        let digits = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        if digits > 4 {
            return Err(Wrong("each group must have 4 or less digits", Some(rest)));
        }
        let Ok(group) = u16::from_str_radix(&rest[..digits], 16) else {
            return Err(Wrong("each colon-separated field must have at least one digit", Some(rest)));
        };
        if rest[digits..].starts_with('.') {
            let wrong = match (gap, bytes.len()) {
                (None, at) if at != 12 => {
                    "embedded IPv4 address must replace the final 2 fields of the address"
                }
                (_, 13..) => "too many hex fields to fit an embedded IPv4 at the end of the address",
                _ => {
                    bytes.extend(v4(rest)?);
                    rest = "";
                    break;
                }
            };
            return Err(Wrong(wrong, Some(rest)));
        }
        bytes.extend(group.to_be_bytes());
        rest = &rest[digits..];
        let Some(after) = rest.strip_prefix(':') else {
            if rest.is_empty() {
                break;
            }
            return Err(Wrong("unexpected character, want colon", Some(rest)));
        };
        if after.is_empty() {
            return Err(Wrong("colon must be followed by more characters", Some(rest)));
        }
        rest = after;
        if let Some(after) = rest.strip_prefix(':') {
            if gap.replace(bytes.len()).is_some() {
                return Err(Wrong("multiple :: in address", Some(rest)));
            }
            rest = after;
        }
    }
    if !rest.is_empty() {
        return Err(Wrong("trailing garbage after address", Some(rest)));
    }
    match (gap, 16 - bytes.len()) {
        (Some(_), 0) => return Err(Wrong("the :: must expand to at least one field of zeros", None)),
        (Some(at), missing) => drop(bytes.splice(at..at, std::iter::repeat_n(0, missing))),
        (None, _) => {}
    }
    let bytes: [u8; 16] = bytes.try_into().map_err(|_| Wrong("address string too short", None))?;
    Ok((Ipv6Addr::from(bytes).into(), zone))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The errors are those of Go 1.26.
    #[test]
    fn addresses_are_read_as_go_reads_them() {
        for (text, want) in [
            ("01.2.3.4", "IPv4 field has octet with leading zero"),
            ("1.2.3", "IPv4 address too short"),
            ("1.2.3.4.5", "IPv4 address too long"),
            ("1.2.3.256", "IPv4 field has value >255"),
            ("1.2.3.x", r#"unexpected character (at "x")"#),
            ("1.2.3.", r#"IPv4 field must have at least one digit (at ".")"#),
            ("1..2.3", r#"IPv4 field must have at least one digit (at ".2.3")"#),
            (":::", r#"each colon-separated field must have at least one digit (at ":")"#),
            ("1::2::3", r#"multiple :: in address (at ":3")"#),
            ("12345::", r#"each group must have 4 or less digits (at "12345::")"#),
            ("1:2:3:4:5:6:7", "address string too short"),
            ("1:2:3:4:5:6:7:8:9", r#"trailing garbage after address (at "9")"#),
            ("1:2:3:4:5:6:7:", r#"colon must be followed by more characters (at ":")"#),
            ("::1.2.3", "IPv4 address too short"),
            ("", "unable to parse IP"),
        ] {
            let got = parse_addr(text).unwrap_err();
            assert_eq!(got, format!("ParseAddr({}): {want}", quote(text)), "{text}");
        }
        for text in ["::", "::1", "1::", "1:2:3:4:5:6:7:8", "::ffff:1.2.3.4", "1.2.3.4", "fe80::1", "1:2::8"]
        {
            assert_eq!(parse_addr(text), Ok((text.parse().unwrap(), None)), "{text}");
        }
        assert_eq!(parse_addr("fe80::1%eth0").map(|(_, zone)| zone), Ok(Some("eth0")));
    }

    #[test]
    fn prefixes_are_read_as_go_reads_them() {
        for (text, want) in [
            ("10.0.0.0", "no '/'"),
            ("10.0.0.0/33", "prefix length out of range"),
            ("10.0.0.0/08", r#"bad bits after slash: "08""#),
            ("10.0.0.0/", r#"bad bits after slash: """#),
            ("10.0.0.0/+8", r#"bad bits after slash: "+8""#),
            ("::1%e/64", "IPv6 zones cannot be present in a prefix"),
            ("10.0.0/8", r#"ParseAddr("10.0.0"): IPv4 address too short"#),
        ] {
            let want = format!("netip.ParsePrefix({}): {want}", quote(text));
            assert_eq!(parse_prefix(text), Err(want), "{text}");
        }
        assert_eq!(parse_prefix("10.1.0.0/8").map(|(_, length)| length), Ok(8));
    }
}
