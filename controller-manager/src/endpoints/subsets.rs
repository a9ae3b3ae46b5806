//! The subsets of Endpoints in their one form: addresses that are reached at the same ports are together.

use super::ports::Port;
use freehold_controllers_context::object::{items, text};
use freehold_machinery::Value;
use serde_json::json;
use std::collections::BTreeMap;

/// Endpoints that a Service has at most.
pub(super) const MAX: usize = 1000;
/// The annotation of Endpoints that lack some.
pub(super) const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";

/// An address: its text, and the uid of what it leads to.
type Place = (String, String);

/// Subsets while they are put together.
#[derive(Default)]
pub(super) struct Packing {
    addresses: BTreeMap<Place, Value>,
    /// Which addresses have a port, and whether they are ready there. `None` for those without any port.
    by_port: BTreeMap<Option<Port>, BTreeMap<Place, bool>>,
}

impl Packing {
    /// Adds an address at a port.
    pub(super) fn add(&mut self, address: &Value, port: Option<Port>, ready: bool) {
        let place = (text(address, "/ip").to_owned(), text(address, "/targetRef/uid").to_owned());
        self.addresses.entry(place.clone()).or_insert_with(|| address.clone());
        let known = self.by_port.entry(port).or_default().entry(place).or_insert(ready);
        *known &= ready;
    }

    /// The subsets.
    pub(super) fn finish(self) -> Vec<Value> {
        let mut by_addresses: BTreeMap<Vec<(Place, bool)>, Vec<Port>> = BTreeMap::new();
        for (port, places) in self.by_port {
            by_addresses.entry(places.into_iter().collect()).or_default().extend(port);
        }
        let subset = |(places, ports): (Vec<(Place, bool)>, Vec<Port>)| {
            let of = |wanted: bool| -> Vec<&Value> {
                let some = places.iter().filter(|(_, ready)| *ready == wanted);
                some.filter_map(|(place, _)| self.addresses.get(place)).collect()
            };
            let mut subset = json!({});
            for (field, list) in [("addresses", of(true)), ("notReadyAddresses", of(false))] {
                if !list.is_empty() {
                    subset[field] = json!(list);
                }
            }
            if !ports.is_empty() {
                subset["ports"] = ports.iter().map(Port::in_endpoints).collect();
            }
            subset
        };
        by_addresses.into_iter().map(subset).collect()
    }
}

/// Subsets that somebody wrote, in the one form.
pub(super) fn repack(subsets: &[Value]) -> Vec<Value> {
    let mut packing = Packing::default();
    for subset in subsets {
        let ports = items(subset, "/ports");
        let ports: Vec<Option<Port>> =
            if ports.is_empty() { vec![None] } else { ports.iter().map(|p| Some(Port::of(p))).collect() };
        for (field, ready) in [("/addresses", true), ("/notReadyAddresses", false)] {
            for address in items(subset, field).iter().filter(|address| address.is_object()) {
                let mut address = address.clone();
                if let Some(target) = address["targetRef"].as_object_mut() {
                    target.remove("resourceVersion");
                } else if let Some(address) = address.as_object_mut() {
                    address.remove("targetRef");
                }
                ports.iter().for_each(|port| packing.add(&address, port.clone(), ready));
            }
        }
    }
    packing.finish()
}

/// Leaves [`MAX`] addresses, ready ones first, of each subset about the same share; whether there were more.
pub(super) fn truncate(subsets: &mut [Value]) -> bool {
    let count = |subsets: &[Value], field: &str| -> usize {
        subsets.iter().map(|subset| items(subset, &format!("/{field}")).len()).sum()
    };
    let (ready, others) = (count(subsets, "addresses"), count(subsets, "notReadyAddresses"));
    if ready + others <= MAX {
        return false;
    }
    let (field, total, room) = match ready > MAX {
        true => ("addresses", ready, MAX),
        false => ("notReadyAddresses", others, MAX - ready),
    };
    let mut left = room;
    for subset in subsets {
        if ready > MAX {
            subset.as_object_mut().map(|subset| subset.remove("notReadyAddresses"));
        }
        let Some(list) = subset.get_mut(field).and_then(Value::as_array_mut) else { continue };
        let share = (list.len() * room).div_ceil(total);
        list.truncate(share.min(left));
        left -= list.len();
    }
    true
}
