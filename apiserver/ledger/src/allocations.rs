//! Addresses and ports of Services, each of which one Service of a plane has.
//!
//! What is taken is what the plane's Services say, so nothing can go out of step with them. A write that takes more reads
//! the plane's record of allocations, waits until the cache has seen the commit that wrote it, looks whether what it wants
//! is still free, and commits on the condition that the record is as it was read, which it changes: of two writes that
//! take something at a time, on whichever servers, the second one looks again.

use crate::held::Held;
use freehold_apiserver_cache::Entry;
use freehold_apiserver_operation::heavy;
use freehold_machinery::{PlaneId, PlaneMap};
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};

/// Planes whose allocations are remembered. The one that was not used for longest makes room for another.
const PLANES: usize = 64;
/// Returns the place of an object as [`Allocations`] name their holders.
pub fn place(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

/// A Service as it was read.
struct Holder {
    modified: u64,
    /// The reading that found it last.
    found: u64,
    held: Held,
}

/// What the Services of a plane hold.
#[derive(Default)]
pub struct Allocations {
    /// The state of the plane's Services that was read last.
    pub(crate) changed: Option<u64>,
    readings: u64,
    holders: HashMap<Arc<str>, Holder>,
    addresses: HashMap<Box<str>, Vec<Arc<str>>>,
    ports: HashMap<u64, Vec<Arc<str>>>,
}

impl Allocations {
    /// Whether another Service than the one at a place has an address.
    pub fn is_held_by_another(&self, address: &str, place: &str) -> bool {
        self.addresses.get(address).is_some_and(|holders| holders.iter().any(|holder| **holder != *place))
    }

    /// Whether another Service than the one at a place has a port.
    pub fn is_port_of_another(&self, port: u64, place: &str) -> bool {
        self.ports.get(&port).is_some_and(|holders| holders.iter().any(|holder| **holder != *place))
    }

    pub(crate) fn are_free_for(&self, held: &Held, place: &str) -> bool {
        !held.address.as_ref().is_some_and(|address| self.is_held_by_another(address, place))
            && !held.ports.iter().any(|port| self.is_port_of_another(*port, place))
    }

    /// Takes in the present Services, of which only those are decoded that were written since.
    pub(crate) fn read(&mut self, changed: u64, services: &[Arc<Entry>]) {
        self.readings += 1;
        for entry in services {
            match self.holders.get_mut(entry.place()) {
                Some(known) if known.modified == entry.modified => known.found = self.readings,
                _ => {
                    let held = Held::of(&heavy(entry.cost(), || entry.value()));
                    self.put(entry.place().into(), entry.modified, held);
                }
            }
        }
        let gone = self.holders.iter().filter(|(_, holder)| holder.found != self.readings);
        for place in gone.map(|(place, _)| place.clone()).collect::<Vec<_>>() {
            self.remove(&place);
        }
        self.changed = Some(changed);
    }

    fn put(&mut self, place: Arc<str>, modified: u64, held: Held) {
        self.remove(&place);
        if let Some(address) = &held.address {
            self.addresses.entry(address.clone()).or_default().push(place.clone());
        }
        for port in &held.ports {
            self.ports.entry(*port).or_default().push(place.clone());
        }
        self.holders.insert(place, Holder { modified, found: self.readings, held });
    }

    fn remove(&mut self, place: &str) {
        let Some(Holder { held, .. }) = self.holders.remove(place) else { return };
        if let Some(address) = &held.address {
            release(&mut self.addresses, address, place);
        }
        for port in &held.ports {
            release(&mut self.ports, port, place);
        }
    }
}

fn release<K, Q>(holders: &mut HashMap<K, Vec<Arc<str>>>, key: &Q, place: &str)
where
    K: std::hash::Hash + Eq + std::borrow::Borrow<Q>,
    Q: std::hash::Hash + Eq + ?Sized,
{
    let Some(of_key) = holders.get_mut(key) else { return };
    of_key.retain(|holder| **holder != *place);
    if of_key.is_empty() {
        holders.remove(key);
    }
}

/// The allocations of the planes whose Services were written last.
#[derive(Default)]
pub(crate) struct Known {
    planes: PlaneMap<(u64, Arc<Mutex<Allocations>>)>,
    uses: u64,
}

impl Known {
    pub(crate) fn of(&mut self, plane: &PlaneId) -> Arc<Mutex<Allocations>> {
        self.uses += 1;
        if !self.planes.contains_key(plane) && self.planes.len() >= PLANES {
            let oldest = self.planes.iter().min_by_key(|(_, (used, _))| *used);
            if let Some(oldest) = oldest.map(|(plane, _)| plane.clone()) {
                self.planes.remove(&oldest);
            }
        }
        let (used, allocations) = self.planes.entry(plane.clone()).or_default();
        *used = self.uses;
        allocations.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_machinery::Value;
    use serde_json::json;

    fn service(address: &str, ports: &[u64]) -> Held {
        let ports: Vec<Value> = ports.iter().map(|port| json!({"nodePort": port})).collect();
        Held::of(&json!({"spec": {"clusterIP": address, "ports": ports}}))
    }

    fn entry(name: &str, address: &str, revision: u64) -> Arc<Entry> {
        let object =
            json!({"metadata": {"name": name, "namespace": "a", "uid": "u"}, "spec": {"clusterIP": address}});
        Arc::new(Entry::new(object.to_string().as_bytes(), revision, revision).unwrap())
    }

    #[test]
    fn service_takes_what_it_did_not_hold() {
        let before = service("10.96.0.20", &[30_000, 30_001]);
        assert!(before.clone().beyond(&before).is_empty());
        let after = service("10.96.0.20", &[30_001, 30_002, 30_002, 0]);
        assert_eq!(after.beyond(&before), service("", &[30_002]));
        assert!(service("None", &[]).is_empty());
        let checked = json!({"spec": {"healthCheckNodePort": 30_009}});
        assert_eq!(Held::of(&checked), service("", &[30_009]));
    }

    #[test]
    fn what_a_service_lets_go_is_free_for_others() {
        let mut allocations = Allocations::default();
        allocations.read(5, &[entry("x", "10.96.0.20", 4), entry("y", "10.96.0.21", 5)]);
        let held = service("10.96.0.20", &[]);
        assert!(allocations.are_free_for(&held, "a/x") && !allocations.are_free_for(&held, "a/y"));
        allocations.read(6, &[entry("x", "10.96.0.22", 6), entry("y", "10.96.0.21", 5)]);
        assert!(allocations.are_free_for(&held, "a/y"));
        assert!(allocations.is_held_by_another("10.96.0.22", "a/y"));
        allocations.read(7, &[]);
        assert!(allocations.addresses.is_empty() && allocations.holders.is_empty());
    }

    #[test]
    fn planes_whose_services_are_not_written_are_forgotten() {
        let mut known = Known::default();
        for number in 0..2 * PLANES {
            known.of(&format!("p{number}").parse().unwrap());
        }
        assert_eq!(known.planes.len(), PLANES);
        assert!(known.planes.contains_key(&format!("p{}", 2 * PLANES - 1).parse().unwrap()));
    }
}
