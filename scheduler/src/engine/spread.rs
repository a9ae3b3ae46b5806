//! Topology spread constraints that a node has to satisfy.

use super::pod::Pod;
use super::read::selects;
use super::refusal::Refusal;
use super::snapshot::{Node, Snapshot};
use super::terms::Spread;
use std::collections::HashMap;

/// Counts of Pods in each domain of each required constraint of a Pod.
pub(super) struct Domains<'a> {
    pod: &'a Pod,
    counts: Vec<(&'a Spread, HashMap<&'a str, i64>)>,
}

/// How many Pods on a node a constraint counts.
pub(super) fn count(node: &Node, spread: &Spread, namespace: &str) -> i64 {
    let is_counted = |other: &&std::sync::Arc<Pod>| {
        !other.is_deleting
            && *other.namespace == *namespace
            && selects(spread.selector.as_ref(), &other.labels)
    };
    i64::try_from(node.pods.iter().filter(is_counted).count()).unwrap_or(i64::MAX)
}

/// Whether a constraint counts what is on a node.
pub(super) fn includes(spread: &Spread, pod: &Pod, node: &Node) -> bool {
    let by_affinity = !spread.honors_affinity || pod.admits(&node.name, &node.labels);
    by_affinity && (!spread.honors_taints || super::refusal::untolerated(pod, node).is_none())
}

/// Whether a node has the labels of all constraints.
pub(super) fn has_keys<'a>(node: &Node, mut all: impl Iterator<Item = &'a Spread>) -> bool {
    all.all(|spread| node.label(&spread.topology_key).is_some())
}

impl<'a> Domains<'a> {
    pub(super) fn of(pod: &'a Pod, snapshot: &'a Snapshot) -> Self {
        let required: Vec<&Spread> = pod.spread.iter().filter(|spread| spread.is_required).collect();
        let mut counts: Vec<_> = required.iter().map(|spread| (*spread, HashMap::new())).collect();
        for node in &snapshot.nodes {
            if required.is_empty() || !has_keys(node, required.iter().copied()) {
                continue;
            }
            for (spread, domains) in &mut counts {
                if let Some(value) = node.label(&spread.topology_key).filter(|_| includes(spread, pod, node))
                {
                    *domains.entry(value).or_insert(0) += count(node, spread, &pod.namespace);
                }
            }
        }
        Self { pod, counts }
    }

    /// Why a Pod on a node would make one domain too full.
    pub(super) fn refuse(&self, node: &Node) -> Option<Refusal> {
        for (spread, domains) in &self.counts {
            let Some(value) = node.label(&spread.topology_key) else {
                return Some(Refusal::fixed(
                    "node(s) didn't match pod topology spread constraints (missing required label)",
                ));
            };
            let enough = i64::try_from(domains.len()).unwrap_or(i64::MAX) >= spread.min_domains;
            let fewest = if enough { domains.values().copied().min().unwrap_or(0) } else { 0 };
            let own = i64::from(selects(spread.selector.as_ref(), &self.pod.labels));
            let here = domains.get(value).copied().unwrap_or(0);
            if here + own - fewest > spread.max_skew {
                return Some(Refusal::resolvable("node(s) didn't match pod topology spread constraints"));
            }
        }
        None
    }
}
