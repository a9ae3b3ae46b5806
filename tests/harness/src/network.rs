//! Machines that can be cut off from each other: network namespaces on one switch, which touch no network of this machine.
//!
//! ```text
//! namespace 0 --eth0   p0--+
//! namespace 1 --eth0   p1--+ bridge, in a namespace of its own
//! observer    --eth0   po--+
//! ```

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The namespace in which tests run, as a host.
const OBSERVER: u8 = 100;

/// Hosts on a switch. They are gone when this is dropped.
pub struct Network {
    name: String,
    namespaces: Vec<String>,
}

impl Network {
    /// Creates a network of hosts `0..hosts` and an observer.
    ///
    /// # Errors
    /// The reason why this machine cannot have one.
    pub fn new(hosts: u8) -> Result<Self, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("freehold-test-{}-{number}", std::process::id());
        let mut network = Self { name, namespaces: Vec::new() };
        network.add("switch")?;
        let switch = network.namespaces[0].clone();
        ip(&["-n", &switch, "link", "add", "bridge", "type", "bridge"])?;
        ip(&["-n", &switch, "link", "set", "bridge", "up"])?;
        for host in (0..hosts).chain([OBSERVER]) {
            network.plug_in(host)?;
        }
        Ok(network)
    }

    fn add(&mut self, part: &str) -> Result<String, String> {
        let namespace = format!("{}-{part}", self.name);
        ip(&["netns", "add", &namespace])?;
        self.namespaces.push(namespace.clone());
        ip(&["-n", &namespace, "link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    fn plug_in(&mut self, host: u8) -> Result<(), String> {
        let switch = self.namespaces[0].clone();
        let namespace = self.add(&host.to_string())?;
        let (port, address) = (port(host), format!("{}/24", Self::address(host)));
        ip(&[
            "-n", &switch, "link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &namespace,
        ])?;
        ip(&["-n", &switch, "link", "set", &port, "master", "bridge"])?;
        ip(&["-n", &switch, "link", "set", &port, "up"])?;
        ip(&["-n", &namespace, "address", "add", &address, "dev", "eth0"])?;
        ip(&["-n", &namespace, "link", "set", "eth0", "up"])
    }

    /// Where a host is.
    pub fn address(host: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, host + 1)
    }

    /// A command that runs on a host.
    pub fn command(&self, host: u8, program: &std::path::Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace(host)]).arg(program);
        command
    }

    /// Does something as the observer, in a thread that reaches the hosts and nothing else. Threads that it starts do so too.
    pub fn observe<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let file = File::open(format!("/var/run/netns/{}", self.namespace(OBSERVER)));
        let file = file.expect("a namespace has a file");
        let inside = || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                .expect("who made a namespace can enter it");
            work()
        };
        let outcome = std::thread::scope(|scope| scope.spawn(inside).join());
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Pulls a host's plug: nobody reaches it and it reaches nobody.
    pub fn cut(&self, host: u8) {
        self.must(&["-n", &self.namespaces[0], "link", "set", &port(host), "down"]);
    }

    /// Cuts the way between two hosts, which others reach as before.
    pub fn cut_between(&self, one: u8, other: u8) {
        for (from, to) in [(one, other), (other, one)] {
            let to = format!("{}/32", Self::address(to));
            self.must(&["-n", &self.namespace(from), "route", "replace", "blackhole", &to]);
        }
    }

    /// Removes every delay and partition.
    pub fn heal(&self) {
        let hosts = self.namespaces.len() - 2;
        for host in (0..hosts).filter_map(|host| u8::try_from(host).ok()) {
            self.must(&["-n", &self.namespaces[0], "link", "set", &port(host), "up"]);
            self.must(&["-n", &self.namespace(host), "route", "flush", "type", "blackhole"]);
        }
    }

    fn namespace(&self, host: u8) -> String {
        format!("{}-{host}", self.name)
    }

    fn must(&self, args: &[&str]) {
        ip(args).unwrap_or_else(|reason| panic!("{reason}"));
    }
}

fn port(host: u8) -> String {
    format!("p{host}")
}

fn ip(args: &[&str]) -> Result<(), String> {
    let output =
        Command::new("ip").args(args).output().map_err(|error| format!("no `ip` program: {error}"))?;
    let words = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("ip {}: {}", args.join(" "), words.trim())) }
}

impl Drop for Network {
    fn drop(&mut self) {
        for namespace in &self.namespaces {
            // What can't be removed stays; it is empty.
            let _ = ip(&["netns", "delete", namespace]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::time::Duration;

    #[test]
    fn a_host_that_is_cut_off_is_not_reached_until_it_is_healed() {
        let network = match Network::new(1) {
            Ok(network) => network,
            Err(reason) => return eprintln!("skipped, this machine has no network namespaces: {reason}"),
        };
        let address = SocketAddr::from((Network::address(OBSERVER), 4000));
        network.observe(|| {
            let _listener = TcpListener::bind(address).unwrap();
            assert!(TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok());
        });
        let ping = || {
            let mut command = network.command(0, std::path::Path::new("ip"));
            let to = Network::address(OBSERVER).to_string();
            let route = command.args(["route", "get", &to]).output().unwrap();
            String::from_utf8_lossy(&route.stdout).contains("eth0")
        };
        assert!(ping());
        network.cut_between(0, OBSERVER);
        assert!(!ping());
        network.heal();
        assert!(ping());
    }
}
