//! Ports of Services, as each pod has them.

use freehold_controllers_context::object::items;
use freehold_controllers_context::pods::PodView;
use freehold_machinery::Value;
use serde_json::json;

/// A port that something is reached at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Port {
    pub(super) name: String,
    /// `None` in slices that stand for all ports.
    pub(super) number: Option<i64>,
    pub(super) protocol: String,
    pub(super) app: Option<String>,
}

impl Port {
    /// Reads a port of a Service's Endpoints or slice.
    pub(super) fn of(port: &Value) -> Self {
        Self {
            name: port["name"].as_str().unwrap_or_default().to_owned(),
            number: port["port"].as_i64(),
            protocol: port["protocol"].as_str().unwrap_or("TCP").to_owned(),
            app: port["appProtocol"].as_str().map(str::to_owned),
        }
    }

    /// As Endpoints have it: without the name where that is empty.
    pub(super) fn in_endpoints(&self) -> Value {
        let mut port = json!({"port": self.number, "protocol": self.protocol});
        if !self.name.is_empty() {
            port["name"] = self.name.clone().into();
        }
        if let Some(app) = &self.app {
            port["appProtocol"] = app.clone().into();
        }
        port
    }

    /// As slices have it.
    pub(super) fn in_slice(&self) -> Value {
        let mut port = self.in_endpoints();
        port["name"] = self.name.clone().into();
        if self.number.is_none() {
            port.as_object_mut().map(|port| port.remove("port"));
        }
        port
    }
}

/// A port of a Service as a pod has it; `None` where the pod has none of that name.
fn resolve(port: &Value, pod: &PodView) -> Option<Port> {
    let protocol = port["protocol"].as_str().unwrap_or("TCP");
    let number = match &port["targetPort"] {
        Value::String(name) => {
            let same = |p: &&freehold_controllers_context::pods::NamedPort| {
                *p.name == **name && *p.protocol == *protocol
            };
            pod.ports.iter().find(same)?.number
        }
        Value::Number(number) if number.as_i64() != Some(0) => number.as_i64()?,
        _ => port["port"].as_i64()?,
    };
    Some(Port { number: Some(number), protocol: protocol.to_owned(), ..Port::of(port) })
}

/// The ports of a Service as a pod has them, without those that it lacks.
pub(super) fn resolved(service: &Value, pod: &PodView) -> Vec<Port> {
    items(service, "/spec/ports").iter().filter_map(|port| resolve(port, pod)).collect()
}

/// Some ports in the one order that makes equal sets equal.
pub(super) fn sorted(mut ports: Vec<Port>) -> Vec<Port> {
    ports.sort();
    ports
}
