//! Services: cluster IPs and node ports.

use crate::{Operation, Registry};
use freehold_apiserver_cache::ListRequest;
use freehold_machinery::{Result, Status, Value, status::FieldError};
use serde_json::json;
use std::{
    collections::BTreeSet,
    net::Ipv4Addr,
    sync::atomic::{AtomicU32, Ordering},
};

/// The ranges from which services get addresses and ports.
#[derive(Debug)]
pub struct ServiceRanges {
    network: Ipv4Addr,
    /// Addresses in the network, the first and the last left out.
    hosts: u32,
    ports: std::ops::Range<u32>,
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
    fn address(&self, used: &BTreeSet<String>) -> Option<String> {
        let base = u32::from(self.network);
        let span = self.hosts - RESERVED;
        let start = self.next.fetch_add(0x9e37, Ordering::Relaxed);
        (0..span)
            .map(|step| Ipv4Addr::from(base + 1 + RESERVED + start.wrapping_add(step) % span).to_string())
            .find(|address| !used.contains(address))
    }

    fn port(&self, used: &BTreeSet<u64>) -> Option<u32> {
        let span = self.ports.end - self.ports.start;
        let start = self.next.fetch_add(0x9e37, Ordering::Relaxed);
        (0..span)
            .map(|step| self.ports.start + start.wrapping_add(step) % span)
            .find(|port| !used.contains(&u64::from(*port)))
    }

    fn contains(&self, address: &str) -> bool {
        let base = u32::from(self.network);
        address.parse::<Ipv4Addr>().is_ok_and(|ip| (base + 1..=base + self.hosts).contains(&u32::from(ip)))
    }
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["spec"].get(field).and_then(Value::as_str).unwrap_or("")
}

impl Registry {
    /// Gives a service its address and ports; what it asks for must be free and in range.
    pub(super) async fn allocate(
        &self,
        op: &Operation,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<()> {
        if text(object, "type") == "ExternalName" {
            for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                if let Some(spec) = object["spec"].as_object_mut() {
                    spec.remove(field);
                }
            }
            return Ok(());
        }
        let others = ListRequest { plane: &op.plane, group: "", resource: "services", namespace: None };
        let (mut addresses, mut ports) = (BTreeSet::new(), BTreeSet::new());
        for entry in self.cache.list(others).await?.objects {
            if entry.name() == op.name() && Some(entry.namespace()) == op.namespace.as_deref() {
                continue;
            }
            let service = entry.value();
            addresses.insert(text(&service, "clusterIP").to_owned());
            let taken = service["spec"]["ports"].as_array().into_iter().flatten();
            ports.extend(taken.filter_map(|port| port.get("nodePort").and_then(Value::as_u64)));
            ports.extend(service["spec"].get("healthCheckNodePort").and_then(Value::as_u64));
        }
        self.give_address(op, object, old, &addresses)?;
        self.give_ports(op, object, &mut ports)
    }

    fn give_address(
        &self,
        op: &Operation,
        object: &mut Value,
        old: Option<&Value>,
        used: &BTreeSet<String>,
    ) -> Result<()> {
        let kept = old.map(|old| text(old, "clusterIP").to_owned()).filter(|ip| !ip.is_empty());
        let wanted = text(object, "clusterIP").to_owned();
        let address = match (wanted.as_str(), kept) {
            ("", Some(kept)) => kept,
            ("", None) => {
                self.services.address(used).ok_or_else(|| Status::internal("no service address is free"))?
            }
            ("None", _) => wanted,
            // Whether it may change is for the rules to say.
            (_, Some(_)) => wanted,
            (ip, None) if ip.parse::<std::net::IpAddr>().is_err() => wanted,
            (ip, None) => {
                let problem = if !self.services.contains(ip) {
                    Some("the provided network does not match the current range".to_owned())
                } else {
                    used.contains(ip).then(|| "provided IP is already allocated".to_owned())
                };
                if let Some(why) = problem {
                    let detail = format!("failed to allocate IP {ip}: {why}");
                    let error = FieldError::invalid("spec.clusterIPs", json!([ip]), detail);
                    return Err(Status::invalid("", "Service", op.name(), &[error]));
                }
                wanted
            }
        };
        let spec = &mut object["spec"];
        // A service that nothing is behind, as far as is known, may have addresses of both families.
        let both = address == "None" && spec["selector"].as_object().is_none_or(|s| s.is_empty());
        let single = spec["ipFamilyPolicy"] == "SingleStack";
        spec["clusterIPs"] = json!([address]);
        spec["clusterIP"] = address.into();
        if both && !single {
            spec["ipFamilies"] = json!(["IPv4", "IPv6"]);
            spec["ipFamilyPolicy"] = "RequireDualStack".into();
        } else {
            spec["ipFamilies"] = json!(["IPv4"]);
            spec["ipFamilyPolicy"] = "SingleStack".into();
        }
        Ok(())
    }

    fn give_ports(&self, op: &Operation, object: &mut Value, used: &mut BTreeSet<u64>) -> Result<()> {
        if is_checked(object) && object["spec"].get("healthCheckNodePort").is_none_or(|port| *port == 0) {
            let port = self.services.port(used).ok_or_else(|| Status::internal("no node port is free"))?;
            used.insert(port.into());
            object["spec"]["healthCheckNodePort"] = port.into();
        }
        if !needs_node_ports(object) {
            return Ok(());
        }
        let ports = object["spec"]["ports"].as_array_mut();
        for (index, port) in ports.into_iter().flatten().enumerate() {
            let wanted = port.get("nodePort").and_then(Value::as_u64).filter(|port| *port != 0);
            let given = match wanted {
                Some(taken) if used.contains(&taken) => {
                    let field = format!("spec.ports[{index}].nodePort");
                    let error =
                        FieldError::invalid(field, taken.into(), "provided port is already allocated");
                    return Err(Status::invalid("", "Service", op.name(), &[error]));
                }
                Some(other) if !self.services.ports.contains(&(other as u32)) => {
                    let (first, last) = (self.services.ports.start, self.services.ports.end - 1);
                    let why = format!(
                        "provided port is not in the valid range. The range of valid ports is {first}-{last}"
                    );
                    let field = format!("spec.ports[{index}].nodePort");
                    let error = FieldError::invalid(field, other.into(), why);
                    return Err(Status::invalid("", "Service", op.name(), &[error]));
                }
                Some(free) => free,
                None => self
                    .services
                    .port(used)
                    .map(u64::from)
                    .ok_or_else(|| Status::internal("no node port is free"))?,
            };
            used.insert(given);
            port["nodePort"] = given.into();
        }
        Ok(())
    }
}

/// Whether a service has a field.
type Has = fn(&Value) -> bool;

/// Fields that only services of some types have: each with what it depends on.
const DEPENDENT: [(&str, Has); 5] = [
    ("healthCheckNodePort", is_checked),
    ("allocateLoadBalancerNodePorts", is_balanced),
    ("loadBalancerClass", is_balanced),
    ("externalTrafficPolicy", is_external),
    ("internalTrafficPolicy", |service| text(service, "type") != "ExternalName"),
];

fn is_balanced(service: &Value) -> bool {
    text(service, "type") == "LoadBalancer"
}

fn is_external(service: &Value) -> bool {
    let named = service["spec"]["externalIPs"].as_array().is_some_and(|ips| !ips.is_empty());
    needs_node_ports(service) || is_balanced(service) || (named && text(service, "type") == "ClusterIP")
}

fn is_checked(service: &Value) -> bool {
    is_balanced(service) && text(service, "externalTrafficPolicy") == "Local"
}

fn needs_node_ports(service: &Value) -> bool {
    let wanted = service["spec"].get("allocateLoadBalancerNodePorts") != Some(&Value::Bool(false));
    text(service, "type") == "NodePort" || (is_balanced(service) && wanted)
}

/// Keeps what the server gave the service, and drops what its new type does not have.
pub(super) fn update(_: &Operation, object: &mut Value, old: &Value) {
    let stays = object["spec"]["type"] == old["spec"]["type"] || text(old, "type") != "ExternalName";
    if object["spec"].get("clusterIP").is_none() && stays && !text(old, "clusterIP").is_empty() {
        object["spec"]["clusterIP"] = old["spec"]["clusterIP"].clone();
    }
    let of_type: Vec<_> =
        DEPENDENT.iter().filter(|(_, has)| has(old) && !has(object)).map(|(field, _)| *field).collect();
    let (had, has) = (needs_node_ports(old), needs_node_ports(object));
    let Some(spec) = object["spec"].as_object_mut() else { return };
    for field in of_type {
        if spec.get(field) == old["spec"].get(field) {
            spec.remove(field);
        }
    }
    if had {
        let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
        keep_node_ports(ports.into_iter().flatten(), &old["spec"]["ports"], has);
    }
}

/// Ports are the same by name; where they are not wanted any more, those that did not change go.
fn keep_node_ports<'a>(ports: impl Iterator<Item = &'a mut Value>, old: &Value, wanted: bool) {
    let name = |port: &Value| port.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    for port in ports {
        let before = old.as_array().into_iter().flatten().find(|before| name(before) == name(port));
        let given = before.and_then(|before| before.get("nodePort")).filter(|port| port.as_i64() != Some(0));
        let (Some(given), Some(port)) = (given, port.as_object_mut()) else { continue };
        let own = port.get("nodePort").filter(|port| port.as_i64() != Some(0));
        match (wanted, own) {
            (true, None) => drop(port.insert("nodePort".into(), given.clone())),
            (false, Some(own)) if own == given => drop(port.remove("nodePort")),
            _ => {}
        }
    }
}
