//! Ports that two Pods want. Each Pod has an address of its own, but a program that listens to all addresses of the machine
//! (`0.0.0.0`) takes its port from every other Pod.

use crate::running::RunningContainers;
use crate::sources::list;
use freehold_machinery::Value;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

/// The state of a socket that listens, in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// A socket that listens.
#[derive(Debug, PartialEq)]
struct Listener {
    address: IpAddr,
    port: u16,
    inode: u64,
}

/// Why a container that ended could not have its ports, where another process has one of them.
pub(crate) fn conflict(container: &Value, address: IpAddr, others: &RunningContainers) -> Option<String> {
    let declared = list(&container["ports"]).filter_map(|port| port["containerPort"].as_u64());
    let declared: Vec<u16> = declared.filter_map(|port| u16::try_from(port).ok()).collect();
    if declared.is_empty() {
        return None;
    }
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let listeners =
        tables.iter().flat_map(|table| parse(&std::fs::read_to_string(table).unwrap_or_default()));
    let taken = listeners.into_iter().find(|listener| {
        let reaches = listener.address.is_unspecified() || listener.address == address;
        reaches && declared.contains(&listener.port)
    })?;
    let holder = group_of_socket(taken.inode).map_or_else(
        || "another process of this machine".to_owned(),
        |group| match others.of_process(group) {
            Some((namespace, pod, container)) => format!("container {container} of pod {namespace}/{pod}"),
            None => format!("process {group} of this machine"),
        },
    );
    Some(format!("port {} is taken: {holder} listens to it at {}", taken.port, taken.address))
}

fn parse(table: &str) -> Vec<Listener> {
    table.lines().skip(1).filter_map(listener).collect()
}

/// A line of `/proc/net/tcp` or `/proc/net/tcp6`, if its socket listens.
fn listener(line: &str) -> Option<Listener> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (local, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
    if *state != LISTEN {
        return None;
    }
    let (address, port) = local.split_once(':')?;
    // Each group of eight digits is a word in the machine's order of bytes.
    let words =
        (0..address.len() / 8).map(|at| u32::from_str_radix(address.get(at * 8..at * 8 + 8)?, 16).ok());
    let bytes: Vec<u8> =
        words.collect::<Option<Vec<u32>>>()?.into_iter().flat_map(u32::to_ne_bytes).collect();
    let address = match bytes.len() {
        4 => IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        16 => IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)),
        _ => return None,
    };
    Some(Listener { address, port: u16::from_str_radix(port, 16).ok()?, inode: inode.parse().ok()? })
}

/// The process group that has a socket, as far as this user may know it.
fn group_of_socket(inode: u64) -> Option<i32> {
    let link = format!("socket:[{inode}]");
    let has = |process: &Path| {
        let files = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        files
            .into_iter()
            .any(|file| std::fs::read_link(file.path()).is_ok_and(|to| to.as_os_str() == link.as_str()))
    };
    let mut processes = std::fs::read_dir("/proc").ok()?.flatten().map(|entry| entry.path());
    let process = processes.find(|path| has(path))?;
    let stat = std::fs::read_to_string(process.join("stat")).ok()?;
    // The command's name stands in brackets and can contain anything; the group is the third field after it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::net::TcpListener;

    #[test]
    fn a_table_of_sockets_is_read() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 77 1 0\n\
            1: 0100007F:1F91 00000000:0000 01 00000000:00000000 00:00000000 00000000     0        0 78 1 0\n\
            2: 00000000000000000000000000000000:0050 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 79 1\n\
            nonsense\n";
        let listener =
            |address: &str, port, inode| Listener { address: address.parse().unwrap(), port, inode };
        assert_eq!(parse(table), [listener("0.0.0.0", 8080, 77), listener("::", 80, 79)]);
    }

    #[test]
    fn who_has_a_port_is_named() {
        let held = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = held.local_addr().unwrap().port();
        let container = json!({"ports": [{"containerPort": port}]});
        let address = IpAddr::from([127, 64, 0, 1]);
        let why = conflict(&container, address, &RunningContainers::default()).unwrap();
        assert!(why.starts_with(&format!("port {port} is taken: process ")), "{why}");
        drop(held);
        assert_eq!(conflict(&container, address, &RunningContainers::default()), None);
        assert_eq!(conflict(&json!({}), address, &RunningContainers::default()), None);
    }
}
