//! Services: cluster IPs and node ports.

use crate::{
    Registry,
    ranges::ServiceRanges,
    strategy::service::{is_balanced, is_checked, needs_node_ports, text},
};
use freehold_apiserver_ledger::{Allocations, place};
use freehold_apiserver_operation::Operation;
use freehold_machinery::{Result, Status, Value, status::FieldError};
use serde_json::json;

/// What services besides the one that is written have.
struct Others<'a> {
    of_plane: &'a Allocations,
    place: String,
    dry_run: bool,
}

impl Others<'_> {
    /// Whether one of them has an address. A dry run is not told.
    fn have_address(&self, address: &str) -> bool {
        !self.dry_run && self.of_plane.is_held_by_another(address, &self.place)
    }

    fn have_port(&self, port: u64) -> bool {
        self.of_plane.is_port_of_another(port, &self.place)
    }
}

impl Registry {
    /// Gives a service its address and ports; what it asks for must be free and in range. A dry run takes nothing, and is told
    /// only of ports that others have. That nobody else takes them at the same time is for the commit to see.
    pub(crate) async fn allocate(
        &self,
        op: &Operation,
        object: &mut Value,
        old: Option<&Value>,
        dry_run: bool,
    ) -> Result<()> {
        normalize_addresses(object, old);
        if text(object, "type") == "ExternalName" {
            if let Some(spec) = object["spec"].as_object_mut() {
                spec.remove("internalTrafficPolicy");
            }
            return Ok(());
        }
        initial_families(op, object, old)?;
        let place = place(op.namespace.as_deref().unwrap_or_default(), op.name());
        let give = |of_plane: &Allocations| {
            let others = Others { of_plane, place, dry_run };
            self.give_address(op, object, old, &others)?;
            Ports { ranges: &self.services, others, given: Vec::new() }.give(op, object)
        };
        self.ledger.with_allocations(&op.plane, give).await?
    }

    fn give_address(
        &self,
        op: &Operation,
        object: &mut Value,
        old: Option<&Value>,
        others: &Others<'_>,
    ) -> Result<()> {
        let kept = old.map(|old| text(old, "clusterIP").to_owned()).filter(|ip| !ip.is_empty());
        let wanted = text(object, "clusterIP").to_owned();
        let address = match (wanted.as_str(), kept) {
            ("", Some(kept)) => kept,
            ("", None) => self
                .services
                .address(|address| others.have_address(address))
                .ok_or_else(|| Status::internal("no service address is free"))?,
            // Whether it may change is for the rules to say.
            ("None", _) | (_, Some(_)) => return Ok(()),
            (ip, None) => {
                let problem = if self.services.contains(ip) {
                    others.have_address(ip).then(|| "provided IP is already allocated".to_owned())
                } else if others.dry_run {
                    let range = self.services.network;
                    Some(format!(
                        "the provided IP ({ip}) is not in the valid range. The range of valid IPs is {range}/16"
                    ))
                } else {
                    Some("the provided network does not match the current range".to_owned())
                };
                if let Some(why) = problem {
                    let detail = format!("failed to allocate IP {ip}: {why}");
                    let error = FieldError::invalid("spec.clusterIPs", json!([ip]), detail);
                    return Err(refused(op, &[error]));
                }
                return Ok(());
            }
        };
        let spec = &mut object["spec"];
        spec["clusterIPs"] = json!([address]);
        spec["clusterIP"] = address.into();
        Ok(())
    }
}

fn refused(op: &Operation, errors: &[FieldError]) -> Status {
    Status::invalid("", "Service", op.name(), errors)
}

/// `clusterIP` and the first of `clusterIPs` are one field: whoever writes one of them writes both.
fn normalize_addresses(object: &mut Value, old: Option<&Value>) {
    let one = text(object, "clusterIP").to_owned();
    let all = object["spec"]["clusterIPs"].as_array().cloned().unwrap_or_default();
    let Some(old) = old else {
        if !one.is_empty() && all.is_empty() {
            object["spec"]["clusterIPs"] = json!([one]);
        }
        return;
    };
    let (one_before, all_before) = (text(old, "clusterIP"), &old["spec"]["clusterIPs"]);
    if all.is_empty() && one == one_before && !one.is_empty() {
        object["spec"]["clusterIPs"] = all_before.clone();
    } else if one != one_before && object["spec"].get("clusterIPs").unwrap_or(&Value::Null) == all_before {
        match one.is_empty() {
            true => drop(object["spec"].as_object_mut().and_then(|spec| spec.remove("clusterIPs"))),
            false => object["spec"]["clusterIPs"] = json!([one]),
        }
    }
}

/// Fills in the families of a service's addresses, of which only IPv4 is there.
fn initial_families(op: &Operation, object: &mut Value, old: Option<&Value>) -> Result<()> {
    let headless = text(object, "clusterIP") == "None";
    let selects = object["spec"]["selector"].as_object().is_some_and(|selector| !selector.is_empty());
    let policy = match object["spec"].get("ipFamilyPolicy").filter(|policy| !policy.is_null()) {
        Some(given) => given.clone(),
        None => match old.map(|old| &old["spec"]["ipFamilyPolicy"]).filter(|policy| policy.is_string()) {
            Some(before) => before.clone(),
            None if headless && !selects => "RequireDualStack".into(),
            None => "SingleStack".into(),
        },
    };
    object["spec"]["ipFamilyPolicy"] = policy.clone();
    let mut errors = freehold_apiserver_kinds::check::service_families(&op.ty, object, old);
    if !errors.is_empty() {
        return Err(refused(op, &errors));
    }
    let single = policy == "SingleStack";
    let lists =
        ["clusterIPs", "ipFamilies"].map(|list| object["spec"][list].as_array().cloned().unwrap_or_default());
    let [addresses, mut families] = lists;
    let at = "spec.ipFamilyPolicy";
    for (list, what) in [(&addresses, "cluster IPs"), (&families, "IP families")] {
        if single && list.len() == 2 {
            let why =
                format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
            errors.push(FieldError::invalid(at, policy.clone(), why));
        }
    }
    for (index, address) in addresses.iter().enumerate().filter(|(_, address)| *address != "None") {
        let six = address.as_str().is_some_and(|address| address.contains(':'));
        if index < families.len() {
            continue;
        }
        if six {
            let (field, shown) = (format!("spec.clusterIPs[{index}]"), Value::Array(addresses.clone()));
            errors.push(FieldError::invalid(field, shown, "IPv6 is not configured on this cluster"));
        } else {
            families.push("IPv4".into());
        }
    }
    if !errors.is_empty() {
        return Err(refused(op, &errors));
    }
    // A service that nothing is behind, as far as is known, may have addresses of both families.
    if headless && !selects {
        if families.is_empty() {
            families.push("IPv4".into());
        }
        if families.len() < 2 && !single {
            let other = if families[0] == "IPv4" { "IPv6" } else { "IPv4" };
            families.push(other.into());
        }
        object["spec"]["ipFamilies"] = families.into();
        return Ok(());
    }
    if policy == "RequireDualStack" {
        let why = "this cluster is not configured for dual-stack services";
        errors.push(FieldError::invalid(at, policy, why));
    }
    for (index, family) in families.iter().enumerate().filter(|(_, family)| *family != "IPv4") {
        let field = format!("spec.ipFamilies[{index}]");
        errors.push(FieldError::invalid(field, family.clone(), "not configured on this cluster"));
    }
    if !errors.is_empty() {
        return Err(refused(op, &errors));
    }
    if families.is_empty() {
        families.push("IPv4".into());
    }
    object["spec"]["ipFamilies"] = families.into();
    Ok(())
}

/// Node ports while one service gets its own.
struct Ports<'a> {
    ranges: &'a ServiceRanges,
    others: Others<'a>,
    /// Those that this one got.
    given: Vec<u64>,
}

impl Ports<'_> {
    /// Gives the ports that are asked for before any that are drawn, which can be none of them then.
    fn give(mut self, op: &Operation, object: &mut Value) -> Result<()> {
        if text(object, "type") == "NodePort" || is_balanced(object) {
            let drawn = needs_node_ports(object);
            let list = object["spec"]["ports"].as_array_mut();
            self.give_nodes(op, list.map(Vec::as_mut_slice).unwrap_or_default(), drawn)?;
        }
        if is_checked(object) {
            let field = &mut object["spec"]["healthCheckNodePort"];
            match field.as_u64().filter(|port| *port != 0) {
                Some(wanted) => self.take(wanted).map_err(|why| {
                    Status::internal(format!(
                        "failed to allocate requested HealthCheck NodePort {wanted}: {why}"
                    ))
                })?,
                None => *field = self.next()?.into(),
            }
        }
        Ok(())
    }

    /// Ports of one number share their node port.
    fn give_nodes(&mut self, op: &Operation, ports: &mut [Value], drawn: bool) -> Result<()> {
        let node_port = |port: &Value| port["nodePort"].as_u64().filter(|port| *port != 0);
        let mut of_number: Vec<(Value, u64)> = Vec::new();
        for (index, port) in ports.iter().enumerate() {
            let Some(wanted) = node_port(port) else { continue };
            if of_number.contains(&(port["port"].clone(), wanted)) {
                continue;
            }
            self.take(wanted).map_err(|why| {
                let field = format!("spec.ports[{index}].nodePort");
                refused(op, &[FieldError::invalid(field, wanted.into(), why)])
            })?;
            of_number.push((port["port"].clone(), wanted));
        }
        for port in ports.iter_mut().filter(|port| drawn && node_port(port).is_none()) {
            let known = of_number.iter().find(|(number, _)| *number == port["port"]).map(|(_, given)| *given);
            let given = match known {
                Some(given) => given,
                None => self.next()?,
            };
            of_number.push((port["port"].clone(), given));
            port["nodePort"] = given.into();
        }
        Ok(())
    }

    fn take(&mut self, port: u64) -> Result<(), String> {
        if self.others.have_port(port) || self.given.contains(&port) {
            return Err("provided port is already allocated".to_owned());
        }
        let range = &self.ranges.ports;
        if !self.others.dry_run && !(u64::from(range.start)..u64::from(range.end)).contains(&port) {
            let (first, last) = (range.start, range.end - 1);
            return Err(format!(
                "provided port is not in the valid range. The range of valid ports is {first}-{last}"
            ));
        }
        self.given.push(port);
        Ok(())
    }

    /// One that is free. A dry run gets a number that stands for one.
    fn next(&mut self) -> Result<u64> {
        let next = match self.others.dry_run {
            true => Some(self.given.iter().max().map_or(u64::from(self.ranges.ports.end), |last| *last) + 1),
            false => {
                let is_taken = |port| self.others.have_port(port) || self.given.contains(&port);
                self.ranges.port(is_taken).map(u64::from)
            }
        };
        let next = next.ok_or_else(|| Status::internal("no node port is free"))?;
        self.given.push(next);
        Ok(next)
    }
}
