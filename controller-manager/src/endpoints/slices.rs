//! Which slices to make, change and delete so that they have the endpoints that they should, with few changes.
//!
//! Endpoints stay in the slice where they are. Those that are new go into slices that change anyway, the fullest first;
//! then, all that are left, into the one slice that they fill best; then into new slices. Slices that are to go become
//! what would have to be made.

use super::ports::{Port, sorted};
use super::{MANAGED_BY, Pod, SERVICE_NAME, SLICES};
use super::{address, hostname, ports, service_labels, target};
use freehold_controllers_context::object::{controller_reference, items, text};
use freehold_machinery::{Map, Value, meta};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// What makes an endpoint the one that it is: addresses, host name, and what it leads to.
pub(super) type Identity = (Vec<String>, String, String, String);
/// Endpoints, each once.
pub(super) type Endpoints = BTreeMap<Identity, Value>;
/// Endpoints by the ports at which they are reached.
pub(super) type Groups = BTreeMap<Vec<Port>, (Vec<Port>, Endpoints)>;

/// What to do with slices.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    /// Without names.
    pub(super) create: Vec<Value>,
    pub(super) update: Vec<Value>,
    pub(super) delete: Vec<Value>,
}

impl Plan {
    pub(super) fn append(&mut self, mut other: Plan) {
        self.create.append(&mut other.create);
        self.update.append(&mut other.update);
        self.delete.append(&mut other.delete);
    }

    /// Makes changes of slices that would be deleted out of those that would be created, where that is possible: an
    /// address type never changes, and `ours` says which are not about to be collected as garbage.
    pub(super) fn recycle(&mut self, ours: impl Fn(&Value) -> bool) {
        let mut kept = Vec::new();
        for old in std::mem::take(&mut self.delete) {
            let same = |new: &Value| new["addressType"] == old["addressType"] && ours(&old);
            let Some(at) = self.create.iter().position(same) else {
                kept.push(old);
                continue;
            };
            let mut new = self.create.swap_remove(at);
            rename(&mut new, &old);
            self.update.push(new);
        }
        self.delete = kept;
    }
}

/// Lets a slice take the place of another one.
pub(super) fn rename(slice: &mut Value, old: &Value) {
    meta::metadata_mut(slice).remove("generateName");
    meta::set(slice, "name", meta::name(old));
    meta::set(slice, "resourceVersion", meta::resource_version(old));
}

/// The identity of an endpoint.
pub(super) fn identity(endpoint: &Value) -> Identity {
    let all = items(endpoint, "/addresses").iter().filter_map(|a| a.as_str().map(str::to_owned));
    let mut addresses: Vec<String> = all.collect();
    addresses.sort();
    let part = |pointer: &str| text(endpoint, pointer).to_owned();
    (addresses, part("/hostname"), part("/targetRef/namespace"), part("/targetRef/name"))
}

/// Whether two endpoints of one identity are the same, but for hints.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    let plain = |value: &Value, field: &str| {
        let mut value = value[field].clone();
        if let (Some(map), "targetRef") = (value.as_object_mut(), field) {
            map.remove("resourceVersion");
        }
        value
    };
    ["nodeName", "zone", "conditions", "targetRef"].iter().all(|field| plain(a, field) == plain(b, field))
}

/// Whether a slice is owned by an object of this kind and uid.
pub(super) fn is_owned(slice: &Value, kind: &str, uid: &str) -> bool {
    let owners = items(slice, "/metadata/ownerReferences");
    owners.iter().any(|o| o["uid"] == uid && o["kind"] == kind && o["apiVersion"] == "v1")
}

/// The ports of a slice, in the order that makes equal ones equal.
pub(super) fn ports_of(slice: &Value) -> Vec<Port> {
    sorted(items(slice, "/ports").iter().map(Port::of).collect())
}

/// A pod as an endpoint of a Service; `None` without an address of the family.
fn endpoint(service: &Value, (key, pod): &Pod, family: &str, zone: &str) -> Option<Value> {
    let published = service["spec"]["publishNotReadyAddresses"] == true;
    let of_family = |ip: &&std::net::IpAddr| address::family(ip) == family;
    let read: Vec<std::net::IpAddr> = pod.ips.iter().filter_map(|ip| address::parse(ip)).collect();
    let addresses: Vec<String> = read.iter().filter(of_family).map(ToString::to_string).collect();
    let mut endpoint = json!({
        "addresses": addresses,
        "conditions": {
            "ready": published || (pod.ready && !pod.deleting), "serving": pod.ready, "terminating": pod.deleting,
        },
        "targetRef": target(key, pod),
    });
    for (field, value) in
        [("nodeName", &*pod.node), ("zone", zone), ("hostname", hostname(service, pod).unwrap_or(""))]
    {
        if !value.is_empty() {
            endpoint[field] = value.into();
        }
    }
    (!addresses.is_empty()).then_some(endpoint)
}

/// The endpoints that a Service should have in a family. `zone` gives the zone of a node, empty where it has none, and
/// `None` where there is no such node: pods of those are left out, unless the Service shows all.
pub(super) fn wanted(
    service: &Value,
    pods: &[Pod],
    family: &str,
    zone: impl Fn(&Pod) -> Option<String>,
) -> Groups {
    let mut groups = Groups::new();
    for pod in pods.iter().filter(|(_, pod)| super::has_address(pod, true)) {
        let own = ports::resolved(service, &pod.1);
        let (_, endpoints) = groups.entry(sorted(own.clone())).or_insert_with(|| (own, Endpoints::new()));
        let zone = match zone(pod) {
            None if service["spec"]["publishNotReadyAddresses"] != true => continue,
            zone => zone.unwrap_or_default(),
        };
        if let Some(endpoint) = endpoint(service, pod, family, &zone) {
            endpoints.insert(identity(&endpoint), endpoint);
        }
    }
    groups
}

/// What to do so that the slices of a Service in one family have these endpoints, at most `max` each.
pub(super) fn plan(
    service: &Value,
    family: &str,
    existing: &[Value],
    mut wanted: Groups,
    max: usize,
) -> Plan {
    let mut plan = Plan::default();
    let mut by_ports: BTreeMap<Vec<Port>, Vec<Value>> = BTreeMap::new();
    for slice in existing {
        match is_owned(slice, "Service", meta::uid(service)) {
            true => by_ports.entry(ports_of(slice)).or_default().push(slice.clone()),
            false => plan.delete.push(slice.clone()),
        }
    }
    for (key, slices) in by_ports {
        match wanted.remove(&key) {
            Some((ports, endpoints)) => plan.append(fill(service, family, slices, &ports, endpoints, max)),
            None => plan.delete.extend(slices),
        }
    }
    for (ports, endpoints) in wanted.into_values() {
        plan.append(fill(service, family, Vec::new(), &ports, endpoints, max));
    }
    if existing.len() == plan.delete.len() && plan.create.is_empty() {
        let placeholder = new_slice(service, family, &[]);
        match &plan.delete[..] {
            [one] if is_placeholder(one, &placeholder) => plan.delete.clear(),
            _ => plan.create.push(placeholder),
        }
    }
    plan
}

/// Fills the slices of one set of ports.
fn fill(
    service: &Value,
    family: &str,
    existing: Vec<Value>,
    ports: &[Port],
    mut wanted: Endpoints,
    max: usize,
) -> Plan {
    let (mut changed, mut unchanged, mut delete) = (Vec::new(), Vec::new(), Vec::new());
    for mut slice in existing {
        let found = items(&slice, "/endpoints");
        let mut differs = false;
        let mut kept = Vec::new();
        for old in found {
            if let Some(new) = wanted.remove(&identity(old)) {
                differs |= !same(old, &new);
                kept.push(new);
            }
        }
        differs |= kept.len() != found.len();
        let labels = slice_labels(service);
        let relabelled = differ(freehold_controllers_context::object::labels(&slice), &labels);
        if differs && kept.is_empty() {
            delete.push(slice);
        } else if differs || relabelled {
            if differs {
                slice["endpoints"] = kept.into();
            }
            meta::set(&mut slice, "labels", labels);
            changed.push(slice);
        } else {
            unchanged.push(slice);
        }
    }
    let mut rest: Vec<Value> = wanted.into_values().rev().collect();
    changed.sort_by_key(|slice| std::cmp::Reverse(count(slice)));
    changed.iter_mut().for_each(|slice| top_up(slice, &mut rest, max));
    let mut create = Vec::new();
    while !rest.is_empty() {
        match best_fit(&unchanged, rest.len(), max) {
            Some(at) => {
                let mut slice = unchanged.swap_remove(at);
                top_up(&mut slice, &mut rest, max);
                changed.push(slice);
            }
            None => {
                let mut slice = new_slice(service, family, ports);
                top_up(&mut slice, &mut rest, max);
                create.push(slice);
            }
        }
    }
    Plan { create, update: changed, delete }
}

fn count(slice: &Value) -> usize {
    items(slice, "/endpoints").len()
}

/// Moves endpoints into a slice until it is full.
pub(super) fn top_up(slice: &mut Value, rest: &mut Vec<Value>, max: usize) {
    let room = max.saturating_sub(count(slice)).min(rest.len());
    if !slice["endpoints"].is_array() {
        slice["endpoints"] = json!([]);
    }
    if let Some(endpoints) = slice["endpoints"].as_array_mut() {
        endpoints.extend(rest.drain(rest.len() - room..).rev());
    }
}

/// The slice that has the least room left with so many more; `None` where none has the room, or they make a slice by
/// themselves.
fn best_fit(slices: &[Value], more: usize, max: usize) -> Option<usize> {
    let room = |slice: &Value| max.checked_sub(count(slice) + more).filter(|left| *left < max);
    let fits = slices.iter().enumerate().filter_map(|(at, slice)| Some((room(slice)?, at)));
    fits.filter(|_| more < max).min().map(|(_, at)| at)
}

fn slice_labels(service: &Value) -> Map {
    let mut labels = service_labels(service, &[SERVICE_NAME, MANAGED_BY]);
    labels.insert(SERVICE_NAME.to_owned(), meta::name(service).into());
    labels.insert(MANAGED_BY.to_owned(), SLICES.into());
    labels
}

/// Whether labels other than those that only the controller gives differ.
fn differ(found: Option<&Map>, wanted: &Map) -> bool {
    let plain = |labels: &Map| {
        let reserved = [SERVICE_NAME, MANAGED_BY, super::HEADLESS];
        let own = labels.iter().filter(|(key, _)| !reserved.contains(&key.as_str()));
        own.map(|(key, value)| (key.clone(), value.to_string())).collect::<BTreeSet<_>>()
    };
    found.map(plain).unwrap_or_default() != plain(wanted)
}

/// A slice without endpoints.
fn new_slice(service: &Value, family: &str, ports: &[Port]) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "generateName": prefix(meta::name(service)), "namespace": meta::namespace(service),
            "labels": slice_labels(service), "ownerReferences": [controller_reference(service)],
        },
        "addressType": family, "endpoints": [],
        "ports": ports.iter().map(Port::in_slice).collect::<Vec<_>>(),
    })
}

/// How names of slices begin: with the Service's, and a dash where there is room.
pub(super) fn prefix(name: &str) -> String {
    if name.len() < 253 { format!("{name}-") } else { name.to_owned() }
}

/// Whether a slice is the one that stands there while there are no endpoints.
fn is_placeholder(slice: &Value, placeholder: &Value) -> bool {
    slice["addressType"] == placeholder["addressType"]
        && count(slice) == 0
        && items(slice, "/ports").is_empty()
        && freehold_controllers_context::object::labels(slice)
            == freehold_controllers_context::object::labels(placeholder)
        && controller_of_is(slice, placeholder)
}

fn controller_of_is(slice: &Value, placeholder: &Value) -> bool {
    let uid = |slice: &Value| text(slice, "/metadata/ownerReferences/0/uid").to_owned();
    uid(slice) == uid(placeholder)
}
