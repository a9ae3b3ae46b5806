//! Ports for programs that can't be told to take any: chosen first, bound later, and bound again after a restart.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// Below those that the system deals to whoever asks for any port, clients among them (`ip_local_port_range`): nobody is given
/// one of these by chance before it is bound, or while what serves there is restarted.
const FIRST: u32 = 10_000;
const COUNT: u32 = 22_000;
/// How far apart two processes begin.
const STRIDE: u32 = 1_009;

/// A port that is free on all addresses.
pub fn free_port() -> u16 {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let begin = std::process::id().wrapping_mul(STRIDE);
    let next = || FIRST + begin.wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed)) % COUNT;
    let mut tried = (0..COUNT).filter_map(|_| u16::try_from(next()).ok());
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port)).is_ok();
    tried.find(is_free).expect("a port is free")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_given_twice_and_none_that_somebody_has() {
        let mut ports: Vec<u16> = (0..100).map(|_| free_port()).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 100);
        let held = free_port();
        // A process that another test just starts may have a copy of the socket that was tried.
        let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, held)).ok();
        let _listener = crate::until("it can be bound", std::time::Duration::from_secs(60), bind);
        assert!(TcpListener::bind((Ipv4Addr::UNSPECIFIED, held)).is_err());
    }
}
