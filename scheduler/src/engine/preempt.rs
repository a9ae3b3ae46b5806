//! Which Pods of lower priority have to leave for a Pod that fits nowhere, by the rules of kube-scheduler's preemption.

use super::filter::{Verdict, filter};
use super::pod::Pod;
use super::read::selects;
use super::snapshot::{Budget, Snapshot};
use std::cmp::Reverse;
use std::sync::Arc;

/// So many nodes are tried at most.
const CANDIDATES: usize = 100;
/// So many Pods are looked at in all attempts together; a few attempts are made whatever they cost.
const EFFORT: usize = 4_000_000;
const FEWEST_ATTEMPTS: usize = 20;

/// Pods that are to leave a node.
#[derive(Clone, Debug)]
pub struct Eviction {
    /// The place of the node.
    pub node: usize,
    /// The Pods, the most important first.
    pub victims: Vec<Arc<Pod>>,
    /// How many of them a disruption budget wants to stay.
    violations: usize,
}

/// Which Pods to evict from which node, or why none, in kube-scheduler's words.
///
/// # Errors
/// Why no Pod is evicted.
pub fn preempt(pod: &Pod, snapshot: &Snapshot, verdict: &Verdict) -> Result<Eviction, String> {
    if !pod.preempts {
        return Err("not eligible due to preemptionPolicy=Never.".to_owned());
    }
    let leaving = snapshot.position(&pod.nominated).is_some_and(|place| {
        let refused = verdict.refused.get(&place);
        let stays_so = refused.is_some_and(|all| all.iter().any(|one| !one.may_resolve));
        let node = &snapshot.nodes[place];
        !stays_so && node.pods.iter().any(|other| other.is_deleting && other.priority < pod.priority)
    });
    if leaving {
        return Err("not eligible due to a terminating pod on the nominated node.".to_owned());
    }
    let resolvable: Vec<usize> = verdict
        .refused
        .iter()
        .filter(|(_, refusals)| refusals.iter().all(|one| one.may_resolve))
        .map(|(place, _)| *place)
        .collect();
    let attempts = (EFFORT / (snapshot.placed().count() + 1)).max(FEWEST_ATTEMPTS);
    let mut trial = Trial { pod, scratch: snapshot.clone(), attempts };
    let places = resolvable.iter().take(CANDIDATES);
    let evictions: Vec<Eviction> = places.filter_map(|place| trial.victims(*place)).collect();
    let none = resolvable.len();
    evictions.into_iter().min_by_key(rank).ok_or_else(|| {
        let rest = verdict.nodes - none;
        let parts = [
            (none, "No preemption victims found for incoming pod"),
            (rest, "Preemption is not helpful for scheduling"),
        ];
        let mut parts: Vec<String> = parts
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, reason)| format!("{count} {reason}"))
            .collect();
        parts.sort();
        format!("0/{} nodes are available: {}.", verdict.nodes, parts.join(", "))
    })
}

type Rank = (usize, i64, i64, usize, Reverse<Box<str>>);

/// What makes one eviction better than another: violations, the highest priority, the sum of priorities, the number of
/// Pods, and a late start of the most important ones.
fn rank(eviction: &Eviction) -> Rank {
    let victims = &eviction.victims;
    let highest = victims.iter().map(|pod| pod.priority).max().unwrap_or(i64::MIN);
    let sum = victims.iter().map(|pod| pod.priority + i64::from(i32::MAX) + 1).sum();
    let important = victims.iter().filter(|pod| pod.priority == highest);
    let earliest = important.map(|pod| pod.started.clone()).min().unwrap_or_default();
    (eviction.violations, highest, sum, victims.len(), Reverse(earliest))
}

/// Attempts to make room for a Pod, in a snapshot that is changed for each.
struct Trial<'a> {
    pod: &'a Pod,
    scratch: Snapshot,
    /// How many more times the filters may be asked.
    attempts: usize,
}

impl Trial<'_> {
    /// The fewest Pods that have to leave a node, found by letting the most important ones stay as long as the Pod fits.
    fn victims(&mut self, place: usize) -> Option<Eviction> {
        let all = self.scratch.nodes[place].pods.clone();
        let eviction = self.choose(place, &all);
        self.scratch.nodes[place].set_pods(all);
        eviction
    }

    /// Whether the Pod fits beside others; `None` where that may not be asked any more.
    fn fits(&mut self, place: usize, pods: &[Arc<Pod>]) -> Option<bool> {
        self.attempts = self.attempts.checked_sub(1)?;
        self.scratch.nodes[place].set_pods(pods.iter().cloned());
        Some(filter(self.pod, &self.scratch).feasible.contains(&place))
    }

    fn choose(&mut self, place: usize, all: &[Arc<Pod>]) -> Option<Eviction> {
        let (mut lower, mut staying): (Vec<Arc<Pod>>, Vec<Arc<Pod>>) =
            all.iter().cloned().partition(|other| other.priority < self.pod.priority);
        if lower.is_empty() || !self.fits(place, &staying)? {
            return None;
        }
        lower.sort_by(|a, b| b.priority.cmp(&a.priority).then_with(|| a.started.cmp(&b.started)));
        let mut budgets = self.scratch.budgets.clone();
        let mut lower: Vec<_> =
            lower.into_iter().map(|victim| (!is_violation(&victim, &mut budgets), victim)).collect();
        // Those that a budget wants to stay are let stay first.
        lower.sort_by_key(|(is_allowed, _)| *is_allowed);
        let (mut victims, mut violations) = (Vec::new(), 0);
        for (is_allowed, victim) in lower {
            staying.push(victim.clone());
            if !self.fits(place, &staying)? {
                staying.pop();
                violations += usize::from(!is_allowed);
                victims.push(victim);
            }
        }
        victims.sort_by_key(|victim| Reverse(victim.priority));
        (!victims.is_empty()).then_some(Eviction { node: place, victims, violations })
    }
}

/// Whether a budget that a Pod counts towards allows no more evictions; otherwise this one is taken from it.
fn is_violation(victim: &Pod, budgets: &mut [Budget]) -> bool {
    let mut violates = false;
    for budget in budgets {
        let counts = budget.namespace == victim.namespace
            && !victim.labels.is_empty()
            && selects(budget.selector.as_ref(), &victim.labels)
            && !budget.disrupted.contains(&victim.name);
        if counts {
            budget.allowed -= 1;
            violates |= budget.allowed < 0;
        }
    }
    violates
}
