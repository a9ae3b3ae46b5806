//! What a DaemonSet needs next: one pod on each node that fits, two for a moment where an update may surge.

use super::pod::{Fit, Template, is_updated};
use crate::claims::Pod;
use freehold_controllers_context::node::NodeView;
use freehold_controllers_context::object::{generation, int};
use freehold_controllers_context::pods::Phase;
use freehold_controllers_context::revisions::POD_REVISION;
use freehold_machinery::Value;
use freehold_runtime::Key;
use jiff::Timestamp;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What is known of a DaemonSet.
pub(super) struct Observed<'a> {
    pub(super) set: &'a Value,
    /// The hash of its present revision.
    pub(super) hash: &'a str,
    pub(super) nodes: &'a [(Key, Arc<NodeView>)],
    /// Its pods.
    pub(super) pods: &'a [Pod],
    pub(super) now: Timestamp,
}

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// Create a pod for a node.
    Create(String),
    /// Delete a pod by its uid.
    Delete(Key, String),
    /// Delete a pod that ended on a node.
    Replace { pod: Key, uid: String, node: String, failed: bool },
}

/// The steps, the status to tell, and when a pod becomes available without an event.
#[derive(Debug)]
pub(super) struct Decision {
    pub(super) actions: Vec<Action>,
    pub(super) status: Value,
    pub(super) again: Option<Duration>,
}

/// The set's pods by node.
struct Nodes<'a> {
    observed: &'a Observed<'a>,
    wait: Duration,
    fits: BTreeMap<&'a str, Fit>,
    pods: BTreeMap<&'a str, Vec<&'a Pod>>,
}

pub(super) fn decide(observed: &Observed<'_>, template: &Template) -> Decision {
    let nodes = Nodes::of(observed, template);
    let mut actions = nodes.manage();
    // Updates wait until what was begun shows up.
    if actions.is_empty() && observed.set["spec"]["updateStrategy"]["type"] != "OnDelete" {
        actions = nodes.update();
    }
    let left = observed.pods.iter().filter_map(|(_, pod)| pod.available_in(nodes.wait, observed.now));
    let again = left.filter(|left| !left.is_zero()).min();
    Decision { actions, status: nodes.status(), again }
}

/// Whether a status tells something else than the one that a set has.
pub(super) fn differs(set: &Value, status: &Value) -> bool {
    let number = |of: &Value, field: &str| of[field].as_i64().unwrap_or(0);
    let counts = status.as_object().into_iter().flatten().map(|(field, _)| field.as_str());
    counts.into_iter().any(|field| number(status, field) != number(&set["status"], field))
}

impl<'a> Nodes<'a> {
    fn of(observed: &'a Observed<'a>, template: &Template) -> Self {
        let set = observed.set;
        let seconds = int(set, "/spec/minReadySeconds").and_then(|s| u64::try_from(s).ok()).unwrap_or(0);
        let fits = observed.nodes.iter().map(|(key, node)| (&*key.name, template.fit(&key.name, node)));
        let mut pods: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
        // One that has ended and is being deleted is somebody else's to remove.
        for pod in observed.pods.iter().filter(|(_, pod)| !(pod.has_ended() && pod.deleting)) {
            let node = pod.1.node_or_target();
            if !node.is_empty() {
                pods.entry(node).or_default().push(pod);
            }
        }
        for of_node in pods.values_mut() {
            of_node.sort_by(|(a_key, a), (b_key, b)| {
                (!a.scheduled, &a.created, &a_key.name).cmp(&(!b.scheduled, &b.created, &b_key.name))
            });
        }
        Self { observed, wait: Duration::from_secs(seconds), fits: fits.collect(), pods }
    }

    fn on(&self, node: &str) -> &[&'a Pod] {
        self.pods.get(node).map_or(&[], Vec::as_slice)
    }

    fn is_updated(&self, pod: &Pod) -> bool {
        is_updated(self.observed.set, &pod.1, self.observed.hash)
    }

    fn is_available(&self, pod: &Pod) -> bool {
        pod.1.is_available(self.wait, self.observed.now)
    }

    /// Brings one pod to each node that fits, and takes away what is too much.
    fn manage(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        for (node, fit) in &self.fits {
            match (fit, self.on(node)) {
                (Fit::Runs, []) => actions.push(Action::Create((*node).to_owned())),
                (Fit::Leaves, pods) => {
                    actions.extend(pods.iter().filter(|pod| !pod.1.deleting).map(|pod| delete(pod)));
                }
                (fit, pods) => self.manage_node(node, *fit == Fit::Runs, pods, &mut actions),
            }
        }
        // Nothing else ends those that wait for nodes that are gone.
        let gone = self.pods.iter().filter(|(node, _)| !self.fits.contains_key(*node));
        let waiting = gone.flat_map(|(_, pods)| pods).filter(|(_, pod)| !pod.scheduled && !pod.deleting);
        actions.extend(waiting.map(|pod| delete(pod)));
        actions
    }

    fn manage_node(&self, node: &str, runs: bool, pods: &[&'a Pod], actions: &mut Vec<Action>) {
        let (ended, running): (Vec<&Pod>, Vec<&Pod>) =
            pods.iter().filter(|pod| !pod.1.deleting).partition(|pod| pod.1.has_ended());
        actions.extend(ended.into_iter().map(|(key, pod)| Action::Replace {
            pod: key.clone(),
            uid: pod.uid.clone(),
            node: node.to_owned(),
            failed: pod.phase == Phase::Failed,
        }));
        if self.surge(1) == 0 {
            actions.extend(running.iter().skip(1).map(|pod| delete(pod)));
            return;
        }
        match running.len() {
            0 if runs => actions.push(Action::Create(node.to_owned())),
            0 | 1 => {}
            _ => self.prune(&running, actions),
        }
    }

    /// Keeps one of several pods on a node: the oldest of the present revision and, until that is available, the oldest other.
    fn prune(&self, running: &[&Pod], actions: &mut Vec<Action>) {
        let (new, old): (Vec<&Pod>, Vec<&Pod>) =
            running.iter().partition(|pod| pod.1.label(POD_REVISION) == self.observed.hash);
        actions.extend(new.iter().skip(1).chain(old.iter().skip(1)).map(|pod| delete(pod)));
        if let (Some(new), Some(old)) = (new.first(), old.first())
            && (!old.1.ready || self.is_available(new))
        {
            actions.push(delete(old));
        }
    }

    fn surge(&self, nodes: usize) -> usize {
        count(&self.observed.set["spec"]["updateStrategy"]["rollingUpdate"]["maxSurge"], nodes)
    }

    /// Nodes that are to have a pod.
    fn wanted(&self) -> usize {
        self.fits.values().filter(|fit| **fit == Fit::Runs).count()
    }

    /// The pods of a node that count in an update: a new one and an old one at most, or none of this is known yet.
    fn pair(&self, pods: &[&'a Pod]) -> Option<(Option<&'a Pod>, Option<&'a Pod>)> {
        let (new, old): (Vec<&Pod>, Vec<&Pod>) =
            pods.iter().copied().filter(|pod| !pod.1.deleting).partition(|pod| self.is_updated(pod));
        (new.len() <= 1 && old.len() <= 1).then(|| (new.first().copied(), old.first().copied()))
    }

    /// Nodes that fit and those that have pods, with what they have.
    fn updating(&self) -> impl Iterator<Item = (&'a str, &[&'a Pod])> {
        let empty =
            self.fits.iter().filter(|(node, fit)| **fit == Fit::Runs && !self.pods.contains_key(*node));
        let with_pods = self.pods.iter().map(|(node, pods)| (*node, pods.as_slice()));
        with_pods.chain(empty.map(|(node, _)| (*node, &[][..])))
    }

    fn update(&self) -> Vec<Action> {
        let wanted = self.wanted();
        let rolling = &self.observed.set["spec"]["updateStrategy"]["rollingUpdate"];
        let (surge, unavailable) = (self.surge(wanted), count(&rolling["maxUnavailable"], wanted));
        match surge {
            0 => self.replace(if wanted > 0 { unavailable.max(1) } else { unavailable }),
            surge => self.surge_over(surge, wanted),
        }
    }

    /// Deletes old pods, as many as may be unavailable at once; those that are unavailable anyway do not count.
    fn replace(&self, most: usize) -> Vec<Action> {
        let (mut unavailable, mut replaced, mut candidates) = (0, Vec::new(), Vec::new());
        for (_, pods) in self.updating() {
            match self.pair(pods) {
                Some((Some(new), None)) => unavailable += usize::from(!self.is_available(new)),
                Some((None, Some(old))) if !self.is_available(old) => {
                    replaced.push(delete(old));
                    unavailable += 1;
                }
                Some((None, Some(old))) => candidates.push(delete(old)),
                _ => unavailable += 1,
            }
        }
        replaced.extend(candidates.into_iter().take(most.saturating_sub(unavailable)));
        replaced
    }

    /// Creates new pods beside old ones, as many as may be too much at once, and deletes the old when the new are available.
    fn surge_over(&self, most: usize, wanted: usize) -> Vec<Action> {
        let (mut surging, mut available) = (0, 0);
        let (mut actions, mut candidates, mut leaving) = (Vec::new(), Vec::new(), Vec::new());
        for (node, pods) in self.updating() {
            let Some((new, old)) = self.pair(pods) else {
                surging += 1;
                continue;
            };
            available += usize::from(old.or(new).is_some_and(|pod| self.is_available(pod)));
            let runs = self.fits.get(node) == Some(&Fit::Runs);
            match (new, old) {
                (_, None) => {}
                (None, Some(old)) if !self.is_available(old) => actions.push(match runs {
                    true => Action::Create(node.to_owned()),
                    false => delete(old),
                }),
                (None, Some(old)) if !runs => leaving.push(delete(old)),
                (None, Some(_)) => candidates.push(Action::Create(node.to_owned())),
                (Some(new), Some(_)) if !self.is_available(new) => surging += 1,
                (Some(_), Some(old)) => actions.push(delete(old)),
            }
        }
        actions.extend(leaving.into_iter().take(available.saturating_sub(wanted)));
        actions.extend(candidates.into_iter().take(most.saturating_sub(surging)));
        actions
    }

    fn status(&self) -> Value {
        let (mut wanted, mut current, mut misplaced) = (0, 0, 0);
        let (mut ready, mut available, mut updated) = (0, 0, 0);
        for (node, fit) in &self.fits {
            let first = self.on(node).first();
            match (fit, first) {
                (Fit::Runs, Some(pod)) => {
                    (wanted, current) = (wanted + 1, current + 1);
                    ready += usize::from(pod.1.ready);
                    available += usize::from(self.is_available(pod));
                    updated += usize::from(self.is_updated(pod));
                }
                (Fit::Runs, None) => wanted += 1,
                (_, first) => misplaced += usize::from(first.is_some()),
            }
        }
        let some = |count: usize| if count == 0 { Value::Null } else { count.into() };
        json!({
            "observedGeneration": generation(self.observed.set), "desiredNumberScheduled": wanted,
            "currentNumberScheduled": current, "numberMisscheduled": misplaced, "numberReady": ready,
            "updatedNumberScheduled": some(updated), "numberAvailable": some(available),
            "numberUnavailable": some(wanted - available),
        })
    }
}

fn delete((key, pod): &Pod) -> Action {
    Action::Delete(key.clone(), pod.uid.clone())
}

/// A number or percentage, rounded up, of nodes.
fn count(value: &Value, nodes: usize) -> usize {
    match value.as_str().and_then(|text| text.strip_suffix('%')) {
        Some(percent) => percent.parse::<usize>().unwrap_or(0).saturating_mul(nodes).div_ceil(100),
        None => value.as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(0),
    }
}
