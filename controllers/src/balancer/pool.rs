//! Pools of addresses, as an administrator writes them, and which of their addresses a Service gets.

use crate::addresses::{address, number, parse, range};
use freehold_machinery::Value;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The key of the ConfigMap's data under which addresses stand.
pub(super) const ADDRESSES: &str = "addresses";
/// The key under which the class stands that Services have to name; without it, Services without a class are served.
pub(super) const CLASS: &str = "loadBalancerClass";
/// The key under which the most addresses of one control plane stand.
pub(super) const LIMIT: &str = "addressesPerPlane";
/// The most lines of one pool.
const MAX_RANGES: usize = 256;
/// The most addresses of one control plane, where the pool says nothing.
const DEFAULT_LIMIT: usize = 16;

/// Addresses that are given to Services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pool {
    /// The class of Services that it serves; empty for those without.
    pub(super) class: String,
    /// The most addresses of one control plane.
    pub(super) limit: usize,
    ranges: Vec<Range>,
}

/// Addresses of one family, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    first: u128,
    last: u128,
    is_v4: bool,
}

impl Range {
    /// Reads `ADDRESS`, `FIRST-LAST` or `ADDRESS/PREFIX`. Of an IPv4 network neither its own address nor that of broadcasts
    /// is given to anybody.
    fn parse(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is no address, FIRST-LAST or ADDRESS/PREFIX");
        if text.contains('/') {
            let network = parse(text)?;
            let ((first, last), is_v4) = (range(&network), network.addr().is_ipv4());
            let is_network = is_v4 && last - first >= 3;
            let (first, last) = if is_network { (first + 1, last - 1) } else { (first, last) };
            return Ok(Self { first, last, is_v4 });
        }
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let of = |text: &str| text.trim().parse::<IpAddr>().map(number).map_err(|_| bad());
        let ((first, is_v4), (last, other)) = (of(first)?, of(last)?);
        (is_v4 == other && first <= last).then_some(Self { first, last, is_v4 }).ok_or_else(bad)
    }

    fn has(&self, (address, is_v4): (u128, bool)) -> bool {
        self.is_v4 == is_v4 && (self.first..=self.last).contains(&address)
    }
}

impl Pool {
    /// Reads a pool from a ConfigMap.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with it, for an administrator.
    pub(super) fn parse(config_map: &Value) -> Result<Self, String> {
        let data = |key: &str| config_map["data"][key].as_str().unwrap_or("").trim();
        let lines = data(ADDRESSES).split([',', '\n']).map(str::trim);
        let lines: Vec<&str> = lines.filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
        if lines.is_empty() || lines.len() > MAX_RANGES {
            return Err(format!("data.{ADDRESSES} needs 1 to {MAX_RANGES} addresses, ranges or networks"));
        }
        let ranges = lines.into_iter().map(Range::parse).collect::<Result<_, _>>()?;
        let limit = match data(LIMIT) {
            "" => DEFAULT_LIMIT,
            text => text.parse().map_err(|_| format!("data.{LIMIT} {text:?} is not a number"))?,
        };
        Ok(Self { class: data(CLASS).to_owned(), limit, ranges })
    }

    /// Reports whether an address is of this pool.
    pub(super) fn has(&self, address: IpAddr) -> bool {
        let number = number(address);
        self.ranges.iter().any(|range| range.has(number))
    }

    /// Returns the first address of a family that is not taken. It looks at no more addresses than are taken.
    pub(super) fn free(&self, is_v4: bool, taken: &BTreeSet<IpAddr>) -> Option<IpAddr> {
        for range in self.ranges.iter().filter(|range| range.is_v4 == is_v4) {
            let mut at = range.first;
            while at <= range.last {
                let found = address(at, is_v4);
                if !taken.contains(&found) {
                    return Some(found);
                }
                let Some(next) = at.checked_add(1) else { break };
                at = next;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pool(addresses: &str) -> Result<Pool, String> {
        Pool::parse(&json!({"data": {"addresses": addresses}}))
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn pools_are_addresses_ranges_and_networks() {
        let pool =
            pool("192.0.2.7\n198.51.100.10 - 198.51.100.12, 203.0.113.0/24\n# a comment\n2001:db8::/120")
                .unwrap();
        for inside in
            ["192.0.2.7", "198.51.100.12", "203.0.113.1", "203.0.113.254", "2001:db8::", "2001:db8::ff"]
        {
            assert!(pool.has(ip(inside)), "{inside}");
        }
        for outside in
            ["192.0.2.8", "198.51.100.13", "203.0.113.0", "203.0.113.255", "2001:db8::100", "::cb00:7101"]
        {
            assert!(!pool.has(ip(outside)), "{outside}");
        }
        assert_eq!((pool.class.as_str(), pool.limit), ("", DEFAULT_LIMIT));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for wrong in ["", "x", "192.0.2.9-192.0.2.1", "192.0.2.1-2001:db8::1", "192.0.2.0/40", "# none"] {
            assert!(pool(wrong).is_err(), "{wrong}");
        }
        let limit = json!({"data": {"addresses": "192.0.2.7", "addressesPerPlane": "many"}});
        assert!(Pool::parse(&limit).is_err());
    }

    #[test]
    fn the_first_address_that_is_free_is_given() {
        let pool = pool("192.0.2.0/30,192.0.2.9,2001:db8::1").unwrap();
        let mut taken = BTreeSet::new();
        for expected in ["192.0.2.1", "192.0.2.2", "192.0.2.9"] {
            let free = pool.free(true, &taken).unwrap();
            assert_eq!(free, ip(expected));
            taken.insert(free);
        }
        assert_eq!(pool.free(true, &taken), None);
        assert_eq!(pool.free(false, &taken), Some(ip("2001:db8::1")));
    }
}
