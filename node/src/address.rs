//! Pods' addresses: each has one of its own in 127.64.0.0/10, where every address of the machine's loopback can be
//! listened on without setting anything up.

use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::net::Ipv4Addr;

/// The first address of the range.
const FIRST: u32 = u32::from_be_bytes([127, 64, 0, 0]);
/// How many there are.
const COUNT: u32 = 1 << 22;

/// Which addresses are taken, by the uid of the Pod that has them.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    by_pod: HashMap<String, Ipv4Addr>,
    by_address: HashMap<Ipv4Addr, String>,
}

impl Addresses {
    /// The address of a Pod: what it has already; else `wanted` (what its status says from before a restart), if that
    /// is free; else the first free one from where its uid points to. `None` when all are taken.
    pub(crate) fn take(&mut self, uid: &str, wanted: Option<Ipv4Addr>) -> Option<Ipv4Addr> {
        if let Some(address) = self.by_pod.get(uid) {
            return Some(*address);
        }
        let free = |address: &Ipv4Addr| !self.by_address.contains_key(address);
        let address = wanted
            .filter(|address| in_range(*address) && free(address))
            .or_else(|| candidates(uid).find(free))?;
        self.by_pod.insert(uid.to_owned(), address);
        self.by_address.insert(address, uid.to_owned());
        Some(address)
    }

    /// Gives an address back.
    pub(crate) fn release(&mut self, uid: &str) {
        if let Some(address) = self.by_pod.remove(uid) {
            self.by_address.remove(&address);
        }
    }
}

/// Addresses in the order of preference; each once, without the network's first and last one.
fn candidates(uid: &str) -> impl Iterator<Item = Ipv4Addr> {
    let hash = Sha256::digest(uid);
    let start = u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]) % COUNT;
    (0..COUNT).map(move |i| Ipv4Addr::from(FIRST + (start + i) % COUNT)).filter(|a| in_range(*a))
}

fn in_range(address: Ipv4Addr) -> bool {
    let number = u32::from(address);
    number > FIRST && number < FIRST + COUNT - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_keeps_its_address_and_nobody_else_gets_it() {
        let mut addresses = Addresses::default();
        let a = addresses.take("a", None).unwrap();
        assert_eq!(addresses.take("a", Some(Ipv4Addr::new(127, 64, 0, 9))), Some(a), "it has one already");
        let b = addresses.take("b", Some(a)).unwrap();
        assert_ne!(a, b, "what is wanted is taken");
        addresses.release("a");
        assert_eq!(addresses.take("c", Some(a)), Some(a), "given back");
        assert_eq!(Addresses::default().take("a", None), Some(a), "the same uid points to the same address");
    }

    #[test]
    fn only_addresses_of_the_range_are_given() {
        let mut addresses = Addresses::default();
        for (i, wanted) in
            ["127.0.0.1", "127.63.255.255", "127.64.0.0", "127.127.255.255", "10.0.0.1"].iter().enumerate()
        {
            let given = addresses.take(&i.to_string(), wanted.parse().ok()).unwrap();
            assert!(in_range(given) && given.to_string() != *wanted, "{wanted} became {given}");
        }
    }
}
