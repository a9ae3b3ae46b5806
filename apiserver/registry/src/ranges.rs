//! The ranges from which Services get addresses and ports.

use std::{
    net::Ipv4Addr,
    sync::atomic::{AtomicU32, Ordering},
};

/// The ranges from which services get addresses and ports.
#[derive(Debug)]
pub struct ServiceRanges {
    pub(crate) network: Ipv4Addr,
    /// Addresses in the network, the first and the last left out.
    hosts: u32,
    pub(crate) ports: std::ops::Range<u32>,
    next: AtomicU32,
}

impl Default for ServiceRanges {
    /// 10.96.0.0/16 and 30000 to 32767, as kubeadm has them. The first ten addresses are left to the system.
    fn default() -> Self {
        let seed = uuid::Uuid::new_v4().as_u128() as u32;
        Self {
            network: Ipv4Addr::new(10, 96, 0, 0),
            hosts: 65_534,
            ports: 30_000..32_768,
            next: AtomicU32::new(seed),
        }
    }
}

const RESERVED: u32 = 10;

impl ServiceRanges {
    pub(crate) fn address(&self, is_taken: impl Fn(&str) -> bool) -> Option<String> {
        let base = u32::from(self.network);
        let span = self.hosts - RESERVED;
        let start = self.next.fetch_add(0x9e37, Ordering::Relaxed);
        (0..span)
            .map(|step| Ipv4Addr::from(base + 1 + RESERVED + start.wrapping_add(step) % span).to_string())
            .find(|address| !is_taken(address))
    }

    pub(crate) fn port(&self, is_taken: impl Fn(u64) -> bool) -> Option<u32> {
        let span = self.ports.end - self.ports.start;
        let start = self.next.fetch_add(0x9e37, Ordering::Relaxed);
        (0..span)
            .map(|step| self.ports.start + start.wrapping_add(step) % span)
            .find(|port| !is_taken(u64::from(*port)))
    }

    pub(crate) fn contains(&self, address: &str) -> bool {
        let base = u32::from(self.network);
        address.parse::<Ipv4Addr>().is_ok_and(|ip| (base + 1..=base + self.hosts).contains(&u32::from(ip)))
    }
}
