//! What an object holds that no other of its plane may.

use freehold_machinery::Value;

/// What an object holds that no other of its plane may.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    pub(crate) address: Option<Box<str>>,
    pub(crate) ports: Vec<u64>,
}

impl Held {
    /// Returns what a Service holds: its cluster IP, node ports, and the port of its health check.
    pub fn of(service: &Value) -> Self {
        let spec = &service["spec"];
        let address = spec["clusterIP"].as_str().filter(|address| !matches!(*address, "" | "None"));
        let ports = spec["ports"].as_array().into_iter().flatten().map(|port| &port["nodePort"]);
        let ports = ports.chain([&spec["healthCheckNodePort"]]).filter_map(Value::as_u64);
        let mut ports: Vec<u64> = ports.filter(|port| *port != 0).collect();
        ports.sort_unstable();
        ports.dedup();
        Self { address: address.map(Box::from), ports }
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.address.is_none() && self.ports.is_empty()
    }

    /// Returns what of this was not held before.
    pub(crate) fn beyond(mut self, before: &Self) -> Self {
        self.address = self.address.filter(|address| before.address.as_ref() != Some(address));
        self.ports.retain(|port| !before.ports.contains(port));
        self
    }
}
