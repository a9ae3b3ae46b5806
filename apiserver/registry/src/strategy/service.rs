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
        for (_, entry) in self.cache.list(others).await?.objects {
            if entry.name() == op.name() && Some(entry.namespace()) == op.namespace.as_deref() {
                continue;
            }
            let service = entry.value();
            addresses.insert(text(&service, "clusterIP").to_owned());
            let taken = service["spec"]["ports"].as_array().into_iter().flatten();
            ports.extend(taken.filter_map(|port| port.get("nodePort").and_then(Value::as_u64)));
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
            (ip, _) => {
                let problem = if !self.services.contains(ip) {
                    Some("the provided IP is not in the valid range".to_owned())
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
        spec["clusterIPs"] = json!([address]);
        spec["clusterIP"] = address.into();
        spec["ipFamilies"] = json!(["IPv4"]);
        spec["ipFamilyPolicy"] = "SingleStack".into();
        Ok(())
    }

    fn give_ports(&self, op: &Operation, object: &mut Value, used: &mut BTreeSet<u64>) -> Result<()> {
        if !matches!(text(object, "type"), "NodePort" | "LoadBalancer") {
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

pub(super) fn update(_: &Operation, object: &mut Value, old: &Value) {
    if object["spec"].get("clusterIP").is_none() && object["spec"]["type"] == old["spec"]["type"] {
        object["spec"]["clusterIP"] = old["spec"]["clusterIP"].clone();
    }
}

pub(super) fn check(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (ip, before) = (text(object, "clusterIP"), old.map_or("", |old| text(old, "clusterIP")));
    if !before.is_empty() && ip != before && text(object, "type") != "ExternalName" {
        errors.push(FieldError::invalid("spec.clusterIPs[0]", ip.into(), "may not change once set"));
    }
    let ports = object["spec"]["ports"].as_array().cloned().unwrap_or_default();
    if ports.is_empty() && ip != "None" && text(object, "type") != "ExternalName" {
        errors.push(FieldError::required("spec.ports", ""));
    }
    for (index, port) in ports.iter().enumerate() {
        if ports.len() > 1 && port.get("name").and_then(Value::as_str).unwrap_or("").is_empty() {
            errors.push(FieldError::required(format!("spec.ports[{index}].name"), ""));
        }
        if !port["port"].as_i64().is_some_and(|port| (1..=65_535).contains(&port)) {
            let detail = "must be between 1 and 65535, inclusive";
            errors.push(FieldError::invalid(
                format!("spec.ports[{index}].port"),
                port["port"].clone(),
                detail,
            ));
        }
    }
    errors
}
