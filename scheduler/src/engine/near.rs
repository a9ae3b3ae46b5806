//! Pod affinity and anti-affinity: which nodes are near enough to other Pods, or far enough from them.

use super::pod::Pod;
use super::refusal::Refusal;
use super::snapshot::{Node, Snapshot};
use super::terms::PodTerm;
use std::collections::{HashMap, HashSet};

/// Values of node labels, by key.
type Pairs<'a> = HashSet<(&'a str, &'a str)>;

/// What other Pods mean for one Pod.
pub(super) struct Near<'a> {
    pod: &'a Pod,
    /// Where Pods are that want this one not to be near.
    repelled: Pairs<'a>,
    /// Where Pods are that all affinity terms are about.
    wanted: Pairs<'a>,
    /// Where Pods are that an anti-affinity term is about.
    unwanted: Pairs<'a>,
    /// Whether the Pod satisfies its own affinity, and so may be the first.
    is_first: bool,
}

fn pair<'a>(node: &'a Node, term: &'a PodTerm) -> Option<(&'a str, &'a str)> {
    Some((&*term.topology_key, node.label(&term.topology_key)?))
}

impl<'a> Near<'a> {
    pub(super) fn of(pod: &'a Pod, snapshot: &'a Snapshot) -> Self {
        let labels = snapshot.namespace_labels(&pod.namespace);
        let about_it = |term: &PodTerm| term.is_about(&pod.labels, &pod.namespace, labels);
        let mut near = Self {
            pod,
            repelled: Pairs::new(),
            wanted: Pairs::new(),
            unwanted: Pairs::new(),
            is_first: pod.affinity.iter().all(about_it),
        };
        for (node, other) in snapshot.placed() {
            let repelling = other.anti_affinity.iter().filter(|term| about_it(term));
            near.repelled.extend(repelling.filter_map(|term| pair(node, term)));
            if pod.affinity.is_empty() && pod.anti_affinity.is_empty() {
                continue;
            }
            let others = snapshot.namespace_labels(&other.namespace);
            let about = |term: &PodTerm| term.is_about(&other.labels, &other.namespace, others);
            if pod.affinity.iter().all(about) {
                near.wanted.extend(pod.affinity.iter().filter_map(|term| pair(node, term)));
            }
            let unwanted = pod.anti_affinity.iter().filter(|term| about(term));
            near.unwanted.extend(unwanted.filter_map(|term| pair(node, term)));
        }
        near
    }

    /// Why a node is too far or too near.
    pub(super) fn refuse(&self, node: &Node) -> Option<Refusal> {
        let affinity = &self.pod.affinity;
        let has_all = affinity.iter().all(|term| node.label(&term.topology_key).is_some());
        let is_near = |term| pair(node, term).is_some_and(|pair| self.wanted.contains(&pair));
        let is_alone = self.wanted.is_empty() && self.is_first;
        if !(has_all && (affinity.iter().all(is_near) || is_alone)) {
            return Some(Refusal::fixed("node(s) didn't match pod affinity rules"));
        }
        let is_unwanted = |term| pair(node, term).is_some_and(|pair| self.unwanted.contains(&pair));
        if self.pod.anti_affinity.iter().any(is_unwanted) {
            return Some(Refusal::resolvable("node(s) didn't match pod anti-affinity rules"));
        }
        let repels = |(key, value): &(&str, &str)| node.label(key) == Some(value);
        if self.repelled.iter().any(repels) {
            return Some(Refusal::resolvable("node(s) didn't satisfy existing pods anti-affinity rules"));
        }
        None
    }
}

/// What Pods that rather are near to each other add to each node, by label and value.
pub(super) fn preferences<'a>(pod: &'a Pod, snapshot: &'a Snapshot) -> HashMap<(&'a str, &'a str), i64> {
    let labels = snapshot.namespace_labels(&pod.namespace);
    let mut weights = HashMap::new();
    let mut count = |node: &'a Node, term: &'a PodTerm, weight: i64| {
        if let Some(pair) = pair(node, term) {
            let sum: &mut i64 = weights.entry(pair).or_default();
            *sum = sum.saturating_add(weight);
        }
    };
    for (node, other) in snapshot.placed() {
        let others = snapshot.namespace_labels(&other.namespace);
        for term in &pod.preferred_pods {
            if term.is_about(&other.labels, &other.namespace, others) {
                count(node, term, term.weight);
            }
        }
        let about_it = |term: &&PodTerm| term.is_about(&pod.labels, &pod.namespace, labels);
        other.affinity.iter().filter(about_it).for_each(|term| count(node, term, 1));
        other.preferred_pods.iter().filter(about_it).for_each(|term| count(node, term, term.weight));
    }
    weights
}
