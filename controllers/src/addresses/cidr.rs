//! Networks in CIDR notation, and their division into equal parts.

use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The most parts that a network is divided into, as a power of two.
const MAX_BITS: u8 = 16;

/// Reads `ADDRESS/PREFIX`, whatever the bits of its hosts are.
///
/// # Errors
///
/// Returns what is wrong with it, for an operator.
pub(crate) fn parse(text: &str) -> Result<IpNet, String> {
    let bad = |_| format!("{text:?} is not a network: write ADDRESS/PREFIX, for example 10.244.0.0/16");
    text.parse::<IpNet>().map(|network| network.trunc()).map_err(bad)
}

/// Returns the first and the last address of a network, as numbers.
pub(crate) fn range(network: &IpNet) -> (u128, u128) {
    (number(network.network()).0, number(network.broadcast()).0)
}

/// Checks that a network can be divided into parts with prefixes of this length.
///
/// # Errors
///
/// Returns what is wrong with the length, for an operator.
pub(crate) fn check_parts(network: &IpNet, prefix: u8) -> Result<(), String> {
    let own = network.prefix_len();
    if prefix < own || prefix > network.max_prefix_len() {
        return Err(format!("a network {network} has no parts of /{prefix}"));
    }
    if prefix - own > MAX_BITS {
        let least = own + MAX_BITS;
        return Err(format!(
            "a network {network} has too many parts of /{prefix}: use /{least} or a shorter prefix"
        ));
    }
    Ok(())
}

/// Returns the first part of a network with a prefix of this length that overlaps none of `taken`.
pub(crate) fn free_part(network: &IpNet, prefix: u8, taken: &[IpNet]) -> Option<IpNet> {
    check_parts(network, prefix).ok()?;
    let host = u32::from(network.max_prefix_len() - prefix);
    let hosts = 1u128.checked_shl(host).map_or(u128::MAX, |size| size - 1);
    let overlaps = |other: &&IpNet| network.contains(*other) || other.contains(network);
    let mut used: Vec<(u128, u128)> = taken.iter().filter(overlaps).map(range).collect();
    used.sort_unstable();
    let (mut first, last) = range(network);
    for (start, end) in used {
        if start > (first | hosts) {
            break;
        }
        if end >= first {
            // The next part that begins behind what is used.
            first = (end >> host).checked_add(1)?.checked_shl(host).filter(|next| *next > end)?;
        }
    }
    let part = || IpNet::new(address(first, network.addr().is_ipv4()), prefix).ok();
    (first <= last).then(part).flatten()
}

/// Returns an address as a number, and whether it is one of IPv4.
pub(crate) fn number(address: IpAddr) -> (u128, bool) {
    match address {
        IpAddr::V4(address) => (u32::from(address).into(), true),
        IpAddr::V6(address) => (address.into(), false),
    }
}

/// Returns the address of a number.
pub(crate) fn address(number: u128, is_v4: bool) -> IpAddr {
    match is_v4 {
        true => IpAddr::V4(Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX))),
        false => IpAddr::V6(Ipv6Addr::from(number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidr(text: &str) -> IpNet {
        parse(text).unwrap()
    }

    #[test]
    fn networks_are_read_and_written() {
        let rows = [
            ("10.244.3.7/16", "10.244.0.0/16"),
            ("fd00:1::5/64", "fd00:1::/64"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("::/0", "::/0"),
            ("192.0.2.1/32", "192.0.2.1/32"),
        ];
        for (text, written) in rows {
            assert_eq!(cidr(text).to_string(), written);
        }
        for wrong in ["", "10.0.0.0", "10.0.0.0/33", "a/8", "fd00::/129", "10.0.0.0/-1"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_first_part_that_overlaps_nothing_is_free() {
        let rows: [(&str, u8, &[&str], Option<&str>); 9] = [
            ("10.244.0.0/16", 24, &[], Some("10.244.0.0/24")),
            ("10.244.0.0/16", 24, &["10.244.0.0/24", "10.244.2.0/24"], Some("10.244.1.0/24")),
            ("10.244.0.0/16", 24, &["10.244.0.128/25"], Some("10.244.1.0/24")),
            ("10.244.0.0/16", 24, &["10.244.0.0/23", "10.1.0.0/16"], Some("10.244.2.0/24")),
            ("10.244.0.0/23", 24, &["10.244.0.0/24", "10.244.1.0/24"], None),
            ("10.244.0.0/24", 24, &["10.0.0.0/8"], None),
            ("255.255.255.0/24", 25, &["255.255.255.128/25"], Some("255.255.255.0/25")),
            ("fd00::/48", 64, &["fd00::/64"], Some("fd00:0:0:1::/64")),
            ("ffff::/16", 32, &["ffff::/16"], None),
        ];
        for (network, prefix, taken, part) in rows {
            let taken: Vec<IpNet> = taken.iter().map(|text| cidr(text)).collect();
            let free = free_part(&cidr(network), prefix, &taken).map(|part| part.to_string());
            assert_eq!(free.as_deref(), part, "{network} {taken:?}");
        }
    }

    #[test]
    fn a_network_has_65536_parts_at_most() {
        assert!(check_parts(&cidr("10.0.0.0/8"), 24).is_ok());
        assert!(check_parts(&cidr("10.0.0.0/7"), 24).is_err());
        assert!(check_parts(&cidr("10.0.0.0/16"), 8).is_err());
        assert!(check_parts(&cidr("fd00::/32"), 64).is_err());
    }
}
