//! Nodes get networks for the addresses of their Pods, one of each family, out of those of the cluster
//! (`kube-controller-manager --allocate-node-cidrs`). A network is free again when its node is deleted.
//!
//! Each plane has the whole of these networks: nodes of two planes are in two clusters.

mod cidr;

pub(crate) use cidr::{address, number, parse, range};

use crate::context::Context;
use crate::kinds::NODES;
use freehold_client::{Patch, PatchOptions};
use freehold_machinery::{PlaneId, Value, meta};
use freehold_runtime::object::{items, text};
use freehold_runtime::{
    EventType, Informer, Interest, Key, Outcome, Planes, Queue, Reconcile, Reconciled, Recorder, Store,
};
use ipnet::IpNet;
use parking_lot::Mutex;
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

const NAME: &str = "node-ipam-controller";
/// How often a node is tried again that found no free network.
const AGAIN: Duration = Duration::from_secs(60);

/// The networks of a cluster's Pods, and the length of the prefix of each node's part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeCidrs {
    networks: Vec<(IpNet, u8)>,
}

impl NodeCidrs {
    /// Reads one network or, for two families, one of each, and how long the prefixes of nodes' parts are.
    ///
    /// # Errors
    ///
    /// Returns what is wrong, for an operator.
    pub fn new(networks: &[String], ipv4_prefix: u8, ipv6_prefix: u8) -> Result<Self, String> {
        let networks = networks.iter().map(|text| {
            let network = parse(text.trim())?;
            let prefix = if network.addr().is_ipv4() { ipv4_prefix } else { ipv6_prefix };
            cidr::check_parts(&network, prefix)?;
            Ok((network, prefix))
        });
        let networks: Vec<(IpNet, u8)> = networks.collect::<Result<_, String>>()?;
        match networks.as_slice() {
            [_] => {}
            [(one, _), (other, _)] if one.addr().is_ipv4() != other.addr().is_ipv4() => {}
            _ => return Err("a cluster has one network, or one of IPv4 and one of IPv6".to_owned()),
        }
        Ok(Self { networks })
    }
}

/// Returns a network of each family that overlaps none of `taken`; `None` if one of them is used up.
fn decide(cidrs: &NodeCidrs, taken: &[IpNet]) -> Option<Vec<IpNet>> {
    cidrs.networks.iter().map(|(network, prefix)| cidr::free_part(network, *prefix, taken)).collect()
}

/// Networks of a node, empty where it has none.
fn of_node(node: &Value) -> Vec<IpNet> {
    let several = items(node, "/spec/podCIDRs").iter().filter_map(Value::as_str);
    let all: Vec<IpNet> = several.filter_map(|text| parse(text).ok()).collect();
    if all.is_empty() { parse(text(node, "/spec/podCIDR")).into_iter().collect() } else { all }
}

struct Allocator {
    planes: Planes,
    cidrs: NodeCidrs,
    nodes: Store<Vec<IpNet>>,
    /// Networks that were given to nodes whose change has not been seen yet.
    given: Mutex<HashMap<Key, Vec<IpNet>>>,
    recorder: Recorder,
}

/// Starts the controller, if there are networks to divide.
pub(crate) fn start(context: &Context) {
    let Some(cidrs) = context.options.node_cidrs.clone() else { return };
    let queue = Queue::new();
    let interest = Interest::projected(NODES, |node| Some(of_node(&node)));
    let mut informer = Informer::new(&context.planes, interest);
    let (on_nodes, known) = (queue.clone(), informer.store());
    informer.on_change(move |change| match change.new.as_deref() {
        Some(networks) if networks.is_empty() => on_nodes.add(change.key.clone()),
        Some(_) => {}
        // What a node leaves may be what another one waits for.
        None => {
            for (key, networks) in known.in_plane(&change.key.plane) {
                if networks.is_empty() {
                    on_nodes.add(key);
                }
            }
        }
    });
    let nodes = context.run_informer(informer);
    let allocator = Allocator {
        planes: context.planes.clone(),
        cidrs,
        nodes: nodes.clone(),
        given: Mutex::default(),
        recorder: Recorder::new("cidrAllocator"),
    };
    context.control(NAME, &queue, &[&nodes], allocator);
}

impl Allocator {
    /// Every network that nodes of a plane have.
    fn taken(&self, plane: &PlaneId) -> Vec<IpNet> {
        let known = self.nodes.in_plane(plane);
        let mut given = self.given.lock();
        given.retain(|key, _| {
            self.nodes.get(key).is_some_and(|networks: Arc<Vec<IpNet>>| networks.is_empty())
        });
        let unseen = given.iter().filter(|(key, _)| key.plane == *plane).flat_map(|(_, networks)| networks);
        known.iter().flat_map(|(_, networks)| networks.iter()).chain(unseen).copied().collect()
    }
}

impl Reconcile for Allocator {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        if !self.nodes.get(&key).is_some_and(|networks| networks.is_empty()) {
            return Ok(Outcome::Done);
        }
        let client = self.planes.client(&key.plane);
        let Some(node) = client.get_opt(&NODES, None, &key.name).await? else { return Ok(Outcome::Done) };
        if !of_node(&node).is_empty() || meta::is_deleting(&node) {
            return Ok(Outcome::Done);
        }
        // A write that nobody answered may be made late: its networks are this node's in any case.
        let given = self.given.lock().get(&key).cloned();
        let Some(networks) = given.or_else(|| decide(&self.cidrs, &self.taken(&key.plane))) else {
            let message = format!("Node {} status is now: CIDRNotAvailable", key.name);
            self.recorder.event(&client, &node, EventType::Normal, "CIDRNotAvailable", &message).await;
            return Ok(Outcome::After(AGAIN));
        };
        let texts: Vec<String> = networks.iter().map(IpNet::to_string).collect();
        let patch = Patch::Merge(json!({
            "metadata": {"uid": meta::uid(&node)}, "spec": {"podCIDR": texts.first(), "podCIDRs": texts},
        }));
        self.given.lock().insert(key.clone(), networks);
        match client.patch(&NODES, None, &key.name, &patch, &PatchOptions::default()).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(Outcome::Done),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidrs(networks: &[&str]) -> Result<NodeCidrs, String> {
        let networks: Vec<String> = networks.iter().map(|text| (*text).to_owned()).collect();
        NodeCidrs::new(&networks, 24, 64)
    }

    #[test]
    fn a_cluster_has_one_network_of_a_family() {
        assert!(cidrs(&["10.244.0.0/16"]).is_ok() && cidrs(&["fd00::/56", "10.244.0.0/16"]).is_ok());
        for wrong in [&[][..], &["10.0.0.0/16", "10.1.0.0/16"], &["10.0.0.0/28"], &["fd00::/16"], &["x"]] {
            assert!(cidrs(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_node_gets_a_network_of_each_family_or_none() {
        let both = cidrs(&["10.244.0.0/23", "fd00::/63"]).unwrap();
        let mut taken = Vec::new();
        for expected in [["10.244.0.0/24", "fd00::/64"], ["10.244.1.0/24", "fd00:0:0:1::/64"]] {
            let networks = decide(&both, &taken).unwrap();
            assert_eq!(networks.iter().map(IpNet::to_string).collect::<Vec<_>>(), expected);
            taken.extend(networks);
        }
        assert_eq!(decide(&both, &taken), None);
        taken.remove(0);
        assert_eq!(decide(&both, &taken), None, "no network of IPv6 is left");
    }

    #[test]
    fn networks_of_a_node_are_read_from_either_field() {
        assert_eq!(of_node(&json!({"spec": {"podCIDR": "10.0.0.0/24"}})).len(), 1);
        assert_eq!(of_node(&json!({"spec": {"podCIDRs": ["10.0.0.0/24", "fd00::/64"]}})).len(), 2);
        assert!(of_node(&json!({"spec": {}})).is_empty());
        assert!(of_node(&json!({"spec": {"podCIDRs": ["nonsense"]}})).is_empty());
    }
}
