//! What a StatefulSet needs next.
//!
//! With `OrderedReady` a pod is created when all before it are available, and deleted when all after it are gone; with
//! `Parallel` nothing waits. Scaling comes before updating, and updates go from the highest ordinal down to the partition.

use super::pod::{self, in_range, is_consistent, ordinal, replicas, start};
use super::retention::{Member, corrected, is_stale};
use crate::claims::Pod;
use freehold_controllers_context::object::{generation, int, text};
use freehold_controllers_context::pods::Phase;
use freehold_controllers_context::revisions::POD_REVISION;
use freehold_machinery::{Value, meta};
use freehold_runtime::Key;
use jiff::Timestamp;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Reads a claim by its name.
pub(super) type ClaimOf<'a> = &'a dyn Fn(&str) -> Option<Arc<Value>>;

/// What is known of a StatefulSet.
pub(super) struct Observed<'a> {
    pub(super) set: &'a Value,
    /// The names of the revision that it has, and of the one that it is to have.
    pub(super) current: &'a str,
    pub(super) update: &'a str,
    /// Its pods.
    pub(super) pods: &'a [Pod],
    pub(super) claim: ClaimOf<'a>,
    pub(super) now: Timestamp,
}

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// Create a pod, and its claims first.
    Create { ordinal: i64, of_current: bool },
    /// Create the claims of a pod that are missing.
    Claims { ordinal: i64 },
    /// Give a claim other owners.
    Own { claim: String, owners: Vec<Value> },
    /// Give a pod the labels and volumes that it is to have.
    Repair { pod: Key, ordinal: i64 },
    /// Delete a pod by its uid.
    Delete { pod: Key, uid: String },
}

/// The steps, the status to tell, and when a pod becomes available without an event.
#[derive(Debug, Default)]
pub(super) struct Decision {
    pub(super) actions: Vec<Action>,
    pub(super) status: Value,
    pub(super) again: Option<Duration>,
}

/// The set's pods by what becomes of them.
struct Pods<'a> {
    observed: &'a Observed<'a>,
    wait: Duration,
    members: BTreeMap<i64, &'a Pod>,
    surplus: BTreeMap<i64, &'a Pod>,
}

/// Nothing more is to be done before something changes.
struct Blocked;

pub(super) fn decide(observed: &Observed<'_>) -> Decision {
    let pods = Pods::of(observed);
    let mut actions = Vec::new();
    if !meta::is_deleting(observed.set) {
        // That it is blocked is no failure: what was decided up to there is done.
        let _ = pods.decide(&mut actions);
    }
    let status = pods.status(&actions);
    let left = observed.pods.iter().filter_map(|(_, p)| p.available_in(pods.wait, observed.now));
    Decision { actions, status, again: left.filter(|left| !left.is_zero()).min() }
}

/// Whether nothing waits for anything.
pub(super) fn is_parallel(set: &Value) -> bool {
    set["spec"]["podManagementPolicy"] == "Parallel"
}

impl<'a> Pods<'a> {
    fn of(observed: &'a Observed<'a>) -> Self {
        let set = observed.set;
        let seconds = int(set, "/spec/minReadySeconds").and_then(|s| u64::try_from(s).ok()).unwrap_or(0);
        let known = observed.pods.iter().filter_map(|p| Some((ordinal(meta::name(set), &p.0.name)?, p)));
        let (members, surplus) = known.partition(|(ordinal, _)| in_range(set, *ordinal));
        Self { observed, wait: Duration::from_secs(seconds), members, surplus }
    }

    fn decide(&self, actions: &mut Vec<Action>) -> Result<(), Blocked> {
        let set = self.observed.set;
        for ordinal in start(set)..start(set) + replicas(set) {
            match self.members.get(&ordinal) {
                None => self.create(ordinal, actions)?,
                Some(pod) => self.keep(ordinal, pod, actions)?,
            }
        }
        for (ordinal, pod) in self.surplus.iter().rev() {
            self.own_claims(*ordinal, pod, actions);
        }
        for pod in self.surplus.values().rev() {
            self.end(pod, actions)?;
        }
        self.update(actions);
        Ok(())
    }

    /// Goes on where pods don't wait for each other.
    fn wait(&self) -> Result<(), Blocked> {
        if is_parallel(self.observed.set) { Ok(()) } else { Err(Blocked) }
    }

    fn create(&self, ordinal: i64, actions: &mut Vec<Action>) -> Result<(), Blocked> {
        let set = self.observed.set;
        let name = format!("{}-{ordinal}", meta::name(set));
        let claims = pod::templates(set)
            .iter()
            .filter_map(|t| (self.observed.claim)(&pod::claim_name(set, t, ordinal)));
        let stale = claims.into_iter().any(|claim| is_stale(&claim, set, &name));
        if !stale {
            actions.push(Action::Create { ordinal, of_current: self.gets_current(ordinal) });
        }
        self.wait()
    }

    /// Whether a new pod with this ordinal is of the revision that the set has, not of the one that it is to have.
    fn gets_current(&self, ordinal: i64) -> bool {
        let set = self.observed.set;
        let strategy = &set["spec"]["updateStrategy"];
        let below = match strategy["rollingUpdate"].is_object() {
            true => partition(set),
            false if strategy["type"] == "RollingUpdate" => int(set, "/status/currentReplicas").unwrap_or(0),
            false => 0,
        };
        ordinal < start(set) + below
    }

    fn keep(&self, ordinal: i64, pod: &Pod, actions: &mut Vec<Action>) -> Result<(), Blocked> {
        let (key, view) = pod;
        if view.has_ended() {
            if !view.deleting {
                actions.push(Action::Delete { pod: key.clone(), uid: view.uid.clone() });
            }
            return self.wait();
        }
        if view.phase == Phase::Pending && self.lacks_claims(ordinal) {
            actions.push(Action::Claims { ordinal });
        }
        let available = view.is_available(self.wait, self.observed.now);
        if view.deleting || !(is_running_and_ready(pod) && available) {
            self.wait()?;
        }
        if !is_consistent(self.observed.set, pod, ordinal) && !view.deleting {
            actions.push(Action::Repair { pod: key.clone(), ordinal });
        }
        self.own_claims(ordinal, pod, actions);
        Ok(())
    }

    fn lacks_claims(&self, ordinal: i64) -> bool {
        let set = self.observed.set;
        let mut names = pod::templates(set).iter().map(|t| pod::claim_name(set, t, ordinal));
        names.any(|name| (self.observed.claim)(&name).is_none())
    }

    fn own_claims(&self, ordinal: i64, (key, view): &Pod, actions: &mut Vec<Action>) {
        let set = self.observed.set;
        let member = Member { name: &key.name, uid: &view.uid, ordinal };
        for template in pod::templates(set) {
            let name = pod::claim_name(set, template, ordinal);
            let claim = (self.observed.claim)(&name);
            if let Some(owners) = claim.and_then(|claim| corrected(&claim, set, member)) {
                actions.push(Action::Own { claim: name, owners });
            }
        }
    }

    /// Deletes a pod that the set has no use for; with `OrderedReady` only while all others are well, but for the first that
    /// is not.
    fn end(&self, pod: &Pod, actions: &mut Vec<Action>) -> Result<(), Blocked> {
        let (key, view) = pod;
        if view.deleting {
            return self.wait();
        }
        let available = view.is_available(self.wait, self.observed.now);
        let is_up = is_running_and_ready(pod) && available;
        if !is_up && !self.is_first_unavailable(key) {
            self.wait()?;
        }
        actions.push(Action::Delete { pod: key.clone(), uid: view.uid.clone() });
        self.wait()
    }

    fn is_unavailable(&self, pod: Option<&&Pod>) -> bool {
        pod.is_none_or(|(_, view)| view.deleting || !view.is_available(self.wait, self.observed.now))
    }

    fn is_first_unavailable(&self, pod: &Key) -> bool {
        let set = self.observed.set;
        let mut members = (start(set)..start(set) + replicas(set)).map(|n| self.members.get(&n));
        if members.any(|member| self.is_unavailable(member)) {
            return false;
        }
        let first = self.surplus.values().find(|p| self.is_unavailable(Some(p)));
        first.is_some_and(|(key, _)| key == pod)
    }

    /// Deletes pods of other revisions, so that they come again with the one that the set is to have.
    fn update(&self, actions: &mut Vec<Action>) {
        let set = self.observed.set;
        if set["spec"]["updateStrategy"]["type"] == "OnDelete" {
            return;
        }
        let old = |pod: &Pod| pod.1.label(POD_REVISION) != self.observed.update && !pod.1.deleting;
        let least = start(set) + partition(set);
        let targets = (least..start(set) + replicas(set)).rev().map(|n| self.members.get(&n));
        let mut delete = |pod: &Pod| {
            actions.push(Action::Delete { pod: pod.0.clone(), uid: pod.1.uid.clone() });
        };
        match max_unavailable(set) {
            // One after the other, each awaited.
            None => {
                for target in targets {
                    match target {
                        Some(pod) if old(pod) => return delete(pod),
                        target if self.is_unavailable(target) => return,
                        _ => {}
                    }
                }
            }
            Some(most) => {
                let all = (start(set)..start(set) + replicas(set)).map(|n| self.members.get(&n));
                let unavailable = all.filter(|member| self.is_unavailable(*member)).count();
                targets
                    .flatten()
                    .filter(|pod| old(pod))
                    .take(most.saturating_sub(unavailable))
                    .for_each(|pod| delete(pod));
            }
        }
    }

    /// The status with what the steps do to it.
    fn status(&self, actions: &[Action]) -> Value {
        let Observed { set, current, update, pods, now, .. } = self.observed;
        let of = |revision: &str| {
            let counted = |pod: &&Pod| !pod.1.deleting && pod.1.label(POD_REVISION) == revision;
            pods.iter().filter(counted).count()
        };
        let ready = pods.iter().filter(|pod| is_running_and_ready(pod));
        let available = ready.clone().filter(|(_, view)| view.is_available(self.wait, *now)).count();
        let (ready, updated) = (ready.count(), of(update));
        let mut counted = of(current).saturating_sub(self.updating(actions));
        let mut has = *current;
        let all = usize::try_from(replicas(set)).unwrap_or(0);
        let rolls = set["spec"]["updateStrategy"]["type"] == "RollingUpdate";
        if rolls && [updated, ready, pods.len()] == [all; 3] {
            (has, counted) = (*update, updated);
        }
        json!({
            "observedGeneration": generation(set), "replicas": pods.len(), "readyReplicas": some(ready),
            "availableReplicas": available, "currentReplicas": some(counted), "updatedReplicas": some(updated),
            "currentRevision": has, "updateRevision": update,
            "collisionCount": int(set, "/status/collisionCount").unwrap_or(0),
        })
    }

    /// How many pods are deleted so that they come again with another revision.
    fn updating(&self, actions: &[Action]) -> usize {
        let replaced = |action: &&Action| {
            let Action::Delete { pod, .. } = action else { return false };
            self.members.values().any(|(key, view)| key == pod && !view.has_ended())
        };
        actions.iter().filter(replaced).count()
    }
}

/// Whether a status tells something else than the one that a set has.
pub(super) fn differs(set: &Value, status: &Value) -> bool {
    let has = &set["status"];
    let number = |of: &Value, field: &str| of[field].as_i64().unwrap_or(0);
    let counts = ["replicas", "currentReplicas", "readyReplicas", "updatedReplicas", "availableReplicas"];
    number(status, "observedGeneration") > number(has, "observedGeneration")
        || counts.iter().any(|field| number(status, field) != number(has, field))
        || ["currentRevision", "updateRevision"]
            .iter()
            .any(|field| text(status, &format!("/{field}")) != text(has, &format!("/{field}")))
}

/// A count as the status has it, which leaves out 0.
fn some(count: usize) -> Value {
    if count == 0 { Value::Null } else { count.into() }
}

fn is_running_and_ready((_, view): &Pod) -> bool {
    view.phase == Phase::Running && view.ready
}

/// How many pods with the lowest ordinals an update leaves alone.
fn partition(set: &Value) -> i64 {
    int(set, "/spec/updateStrategy/rollingUpdate/partition").unwrap_or(0)
}

/// How many pods may be unavailable during an update, where the set says so.
fn max_unavailable(set: &Value) -> Option<usize> {
    let value = set.pointer("/spec/updateStrategy/rollingUpdate/maxUnavailable").filter(|v| !v.is_null())?;
    let most = match value.as_str().and_then(|text| text.strip_suffix('%')) {
        Some(percent) => percent.parse::<i64>().ok()?.saturating_mul(replicas(set)) / 100,
        None => value.as_i64()?,
    };
    usize::try_from(most.max(1)).ok()
}
