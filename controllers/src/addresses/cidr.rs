//! Networks in CIDR notation, and their division into equal parts.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The most parts that a network is divided into, as a power of two.
const MAX_BITS: u8 = 16;

/// A network: an address whose host bits are zero, and the length of its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cidr {
    first: u128,
    prefix: u8,
    is_v4: bool,
}

impl Cidr {
    /// Reports whether this is an IPv4 network.
    pub(crate) fn is_v4(&self) -> bool {
        self.is_v4
    }

    /// Length of an address in bits.
    fn width(&self) -> u8 {
        if self.is_v4 { 32 } else { 128 }
    }

    /// The last address, as a number.
    fn last(&self) -> u128 {
        let host = u32::from(self.width() - self.prefix);
        self.first | 1u128.checked_shl(host).map_or(u128::MAX, |size| size - 1)
    }

    /// Returns the first and the last address, as numbers.
    pub(crate) fn range(&self) -> (u128, u128) {
        (self.first, self.last())
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.is_v4 == other.is_v4 && self.first <= other.last() && other.first <= self.last()
    }

    /// Checks that the network can be divided into parts with prefixes of this length.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with the length, for an operator.
    pub(crate) fn check_parts(&self, prefix: u8) -> Result<(), String> {
        if prefix < self.prefix || prefix > self.width() {
            return Err(format!("a network {self} has no parts of /{prefix}"));
        }
        if prefix - self.prefix > MAX_BITS {
            let least = self.prefix + MAX_BITS;
            return Err(format!(
                "a network {self} has too many parts of /{prefix}: use /{least} or a shorter prefix"
            ));
        }
        Ok(())
    }

    /// Returns the first part with a prefix of this length that overlaps none of `taken`.
    pub(crate) fn free_part(&self, prefix: u8, taken: &[Self]) -> Option<Self> {
        self.check_parts(prefix).ok()?;
        let host = u32::from(self.width() - prefix);
        let mut used: Vec<(u128, u128)> =
            taken.iter().filter(|other| self.overlaps(other)).map(Self::range).collect();
        used.sort_unstable();
        let mut first = self.first;
        for (start, end) in used {
            let part = Self { first, prefix, is_v4: self.is_v4 };
            if start > part.last() {
                break;
            }
            if end >= first {
                // The next part that begins behind what is used.
                first = (end >> host).checked_add(1)?.checked_shl(host).filter(|next| *next > end)?;
            }
        }
        let part = Self { first, prefix, is_v4: self.is_v4 };
        (first <= self.last()).then_some(part)
    }
}

impl FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is not a network: write ADDRESS/PREFIX, for example 10.244.0.0/16");
        let (address, prefix) = text.split_once('/').ok_or_else(bad)?;
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let prefix: u8 = prefix.parse().map_err(|_| bad())?;
        let (number, is_v4) = number(address);
        let cidr = Self { first: number, prefix, is_v4 };
        if prefix > cidr.width() {
            return Err(bad());
        }
        let host = u32::from(cidr.width() - prefix);
        let first = number.checked_shr(host).and_then(|n| n.checked_shl(host)).unwrap_or(0);
        Ok(Self { first, ..cidr })
    }
}

impl std::fmt::Display for Cidr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", address(self.first, self.is_v4), self.prefix)
    }
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

    fn cidr(text: &str) -> Cidr {
        text.parse().unwrap()
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
            assert!(wrong.parse::<Cidr>().is_err(), "{wrong}");
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
            let taken: Vec<Cidr> = taken.iter().map(|text| cidr(text)).collect();
            let free = cidr(network).free_part(prefix, &taken).map(|part| part.to_string());
            assert_eq!(free.as_deref(), part, "{network} {taken:?}");
        }
    }

    #[test]
    fn a_network_has_65536_parts_at_most() {
        assert!(cidr("10.0.0.0/8").check_parts(24).is_ok());
        assert!(cidr("10.0.0.0/7").check_parts(24).is_err());
        assert!(cidr("10.0.0.0/16").check_parts(8).is_err());
        assert!(cidr("fd00::/32").check_parts(64).is_err());
    }
}
