//! On which nodes a Pod may be, and why not on the others: the filters of kube-scheduler's default profile, in its order.

use super::near::Near;
use super::pod::Pod;
use super::refusal::{Refusal, untolerated};
use super::snapshot::{Node, Snapshot};
use super::spread::Domains;
use super::terms::Taint;
use super::volumes::Claims;
use std::collections::BTreeMap;

/// What the filters say of all nodes.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// How many nodes there are.
    pub nodes: usize,
    /// Places of the nodes that the Pod may be on.
    pub feasible: Vec<usize>,
    /// The others, with reasons.
    pub refused: BTreeMap<usize, Vec<Refusal>>,
    /// Why it can be nowhere, whatever the nodes are.
    pub nowhere: Option<String>,
    /// Claims that are to be told which node was chosen.
    pub claims: Vec<String>,
}

impl Verdict {
    /// What is told of a Pod that can be nowhere, in kube-scheduler's words.
    pub fn message(&self) -> String {
        if self.nodes == 0 {
            return "no nodes available to schedule pods".to_owned();
        }
        if let Some(nowhere) = &self.nowhere {
            return format!("0/{} nodes are available: {nowhere}.", self.nodes);
        }
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for refusal in self.refused.values().flatten() {
            *counts.entry(&refusal.reason).or_default() += 1;
        }
        let mut parts: Vec<String> =
            counts.into_iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        parts.sort();
        format!("0/{} nodes are available: {}.", self.nodes, parts.join(", "))
    }
}

/// What was computed once for a Pod and a snapshot.
struct Cycle<'a> {
    pod: &'a Pod,
    claims: Claims<'a>,
    domains: Domains<'a>,
    near: Near<'a>,
    named: Option<Vec<&'a str>>,
}

impl<'a> Cycle<'a> {
    fn new(pod: &'a Pod, snapshot: &'a Snapshot) -> Result<Self, String> {
        let named = pod.named_nodes();
        if named.as_ref().is_some_and(Vec::is_empty) && pod.node_terms.as_ref().is_some_and(|t| !t.is_empty())
        {
            return Err("pod affinity terms conflict".to_owned());
        }
        Ok(Self {
            pod,
            claims: Claims::of(pod, snapshot)?,
            domains: Domains::of(pod, snapshot),
            near: Near::of(pod, snapshot),
            named,
        })
    }

    /// Why a node is refused: the reasons of the first filter that refuses it.
    fn refuse(&self, node: &Node) -> Vec<Refusal> {
        let pod = self.pod;
        let one = |refusal: Refusal| vec![refusal];
        if self.named.as_ref().is_some_and(|named| !named.contains(&&*node.name)) {
            return one(Refusal::fixed("node(s) didn't satisfy plugin(s) [NodeAffinity]"));
        }
        if node.is_unschedulable && !tolerates_cordon(pod) {
            return one(Refusal::fixed("node(s) were unschedulable"));
        }
        if !pod.node.is_empty() && pod.node != node.name {
            return one(Refusal::fixed("node(s) didn't match the requested node name"));
        }
        if untolerated(pod, node).is_some() {
            return one(Refusal::fixed("node(s) had untolerated taint(s)"));
        }
        if !pod.admits(&node.name, &node.labels) {
            return one(Refusal::fixed("node(s) didn't match Pod's node affinity/selector"));
        }
        let taken = |port| node.pods.iter().any(|other| other.ports.iter().any(|own| own.collides(port)));
        if pod.ports.iter().any(taken) {
            return one(Refusal::resolvable("node(s) didn't have free ports for the requested pod ports"));
        }
        let missing = missing(pod, node);
        if !missing.is_empty() {
            return missing;
        }
        let volumes = self.claims.refuse(node);
        if !volumes.is_empty() {
            return volumes;
        }
        let refusal = self.domains.refuse(node).or_else(|| self.near.refuse(node));
        refusal.map(one).unwrap_or_default()
    }
}

fn tolerates_cordon(pod: &Pod) -> bool {
    let taint = Taint {
        key: "node.kubernetes.io/unschedulable".into(),
        value: "".into(),
        effect: "NoSchedule".into(),
    };
    pod.tolerations.iter().any(|toleration| toleration.covers(&taint))
}

/// The resources that a node has too little of.
fn missing(pod: &Pod, node: &Node) -> Vec<Refusal> {
    let mut missing = Vec::new();
    let count = i64::try_from(node.pods.len()).unwrap_or(i64::MAX);
    if count >= node.capacity("pods") {
        missing.push(Refusal::resolvable("Too many pods"));
    }
    for (name, amount) in pod.requests.iter().filter(|(_, amount)| **amount > 0) {
        let capacity = node.capacity(name);
        if *amount > capacity.saturating_sub(node.used(name)) {
            let reason = format!("Insufficient {name}");
            missing.push(Refusal { reason, may_resolve: *amount <= capacity });
        }
    }
    missing
}

/// On which nodes a Pod may be, and why not on the others. Pods of its priority or a higher one that are nominated to a
/// node count as if they were on it, and as if they were not: both have to do.
pub fn filter(pod: &Pod, snapshot: &Snapshot) -> Verdict {
    let mut verdict = filter_placed(pod, snapshot);
    let others = snapshot.nominated.iter();
    let mut others = others.filter(|other| other.uid != pod.uid && other.priority >= pod.priority).peekable();
    if others.peek().is_none() || verdict.feasible.is_empty() {
        return verdict;
    }
    let mut expected = snapshot.clone();
    for other in others {
        if let Some(position) = expected.position(&other.nominated) {
            expected.nodes[position].put(other.clone());
        }
    }
    let with_them = filter_placed(pod, &expected);
    if with_them.nowhere.is_some() {
        return with_them;
    }
    for (position, refusals) in with_them.refused {
        verdict.refused.entry(position).or_insert(refusals);
    }
    verdict.feasible.retain(|position| !verdict.refused.contains_key(position));
    verdict
}

fn filter_placed(pod: &Pod, snapshot: &Snapshot) -> Verdict {
    let mut verdict = Verdict {
        nodes: snapshot.nodes.len(),
        feasible: Vec::new(),
        refused: BTreeMap::new(),
        nowhere: None,
        claims: Vec::new(),
    };
    let cycle = match Cycle::new(pod, snapshot) {
        Ok(cycle) => cycle,
        Err(nowhere) => {
            verdict.nowhere = Some(nowhere);
            return verdict;
        }
    };
    verdict.claims = cycle.claims.waiting().into_iter().map(str::to_owned).collect();
    for (position, node) in snapshot.nodes.iter().enumerate() {
        let refusals = cycle.refuse(node);
        if refusals.is_empty() {
            verdict.feasible.push(position);
        } else {
            verdict.refused.insert(position, refusals);
        }
    }
    verdict
}
