//! IP addresses as objects have them.

use std::net::{IpAddr, Ipv4Addr};

/// Address families, as Services and slices name them.
pub(super) const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];

/// Reads an address, also one with leading zeros, as Kubernetes has always taken them.
pub(super) fn parse(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address.to_canonical());
    }
    let parts: Option<Vec<u8>> = text.split('.').map(decimal).collect();
    let parts: [u8; 4] = parts?.try_into().ok()?;
    Some(Ipv4Addr::from(parts).into())
}

fn decimal(part: &str) -> Option<u8> {
    let digits = !part.is_empty() && part.len() <= 32 && part.bytes().all(|b| b.is_ascii_digit());
    let number = part.trim_start_matches('0');
    digits.then(|| if number.is_empty() { Some(0) } else { number.parse().ok() })?
}

/// The family of an address.
pub(super) fn family(address: &IpAddr) -> &'static str {
    if address.is_ipv6() { "IPv6" } else { "IPv4" }
}

/// The first of some addresses that is of a family, written as usual.
pub(super) fn of_family(addresses: &[String], wanted: &str) -> Option<String> {
    let mut read = addresses.iter().filter_map(|text| parse(text));
    read.find(|address| family(address) == wanted).map(|address| address.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_kubernetes_reads_them() {
        let rows = [
            ("10.0.0.1", Some("10.0.0.1")),
            ("010.000.0.01", Some("10.0.0.1")),
            ("::ffff:10.0.0.1", Some("10.0.0.1")),
            ("FD00:0::1", Some("fd00::1")),
            ("10.0.0.256", None),
            ("10.0.0", None),
            ("10.0.0.+1", None),
            ("", None),
        ];
        for (text, read) in rows {
            assert_eq!(parse(text).map(|a| a.to_string()).as_deref(), read, "{text}");
        }
        let both = ["fd00::1".to_owned(), "10.0.0.1".to_owned()];
        assert_eq!(of_family(&both, "IPv4").as_deref(), Some("10.0.0.1"));
        assert_eq!(of_family(&both[..1], "IPv4"), None);
    }
}
