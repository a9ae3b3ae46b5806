//! What a Deployment says of itself.

use super::rolling::{Limits, Numbers};
use freehold_machinery::{Value, time};
use jiff::Timestamp;
use serde_json::json;
use std::time::Duration;

/// What the status is made from.
pub(super) struct Facts<'a> {
    pub(super) deployment: &'a Value,
    pub(super) new: Option<&'a Value>,
    /// All ReplicaSets, the new one among them.
    pub(super) all: &'a [&'a Value],
    pub(super) course: Course,
    pub(super) now: Timestamp,
}

/// What the Deployment is about.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Course {
    /// It does not roll out: paused, scaled or going.
    Settled,
    /// It rolls out, or has done so.
    Rolling,
    /// It has just got a ReplicaSet of this name.
    Created(String),
}

/// A condition as Deployments have it: with the time of its last update.
struct Condition {
    type_: &'static str,
    status: &'static str,
    reason: &'static str,
    message: String,
}

/// Why a rollout is over.
const AVAILABLE: &str = "NewReplicaSetAvailable";
/// Why it failed.
const TIMED_OUT: &str = "ProgressDeadlineExceeded";

/// The status that a Deployment should have, and when it has to be looked at again because its progress has a deadline.
pub(super) fn status(facts: &Facts<'_>) -> (Value, Option<Duration>) {
    let sum = |field: &str| facts.all.iter().filter_map(|set| set["status"][field].as_i64()).sum::<i64>();
    let limits = Limits::of(facts.deployment);
    let updated = facts.new.map_or(0, |set| set["status"]["replicas"].as_i64().unwrap_or(0));
    let available = sum("availableReplicas");
    let wanted: i64 = facts.all.iter().map(|set| Numbers::of(set).wanted).sum();
    let mut status = facts.deployment["status"].clone();
    status["observedGeneration"] = freehold_controllers_context::object::generation(facts.deployment).into();
    let numbers = [
        ("replicas", sum("replicas")),
        ("updatedReplicas", updated),
        ("readyReplicas", sum("readyReplicas")),
        ("availableReplicas", available),
        ("unavailableReplicas", (wanted - available).max(0)),
    ];
    for (field, number) in numbers {
        // Kubernetes leaves zeros out; a merge patch takes a field away with null.
        let old = status.get(field).is_some();
        match number {
            0 if !old => {}
            0 => status[field] = Value::Null,
            number => status[field] = number.into(),
        }
    }
    // Of one that has not counted nothing is known.
    let counted = |set: &&Value| {
        set["status"]["terminatingReplicas"].is_i64()
            || set["status"]["observedGeneration"].as_i64().unwrap_or(0) == 0
    };
    if facts.all.iter().all(counted) {
        status["terminatingReplicas"] = sum("terminatingReplicas").into();
    }
    // In the order in which kube-controller-manager comes to them.
    let created = matches!(facts.course, Course::Created(_));
    if !created {
        set(&mut status, availability(available, limits), facts.now);
    }
    let again = progress(&mut status, facts);
    if created {
        set(&mut status, availability(available, limits), facts.now);
    }
    if facts.course != Course::Settled {
        failures(&mut status, facts);
    }
    (status, again)
}

/// Whether a rollout has come to its end, as far as a status tells.
pub(super) fn is_complete(deployment: &Value, status: &Value) -> bool {
    let desired = Limits::of(deployment).desired;
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    number("updatedReplicas") == desired
        && number("replicas") == desired
        && number("availableReplicas") == desired
        && number("observedGeneration") >= freehold_controllers_context::object::generation(deployment)
}

fn availability(available: i64, limits: Limits) -> Condition {
    if available >= limits.desired - limits.unavailable {
        Condition {
            type_: "Available",
            status: "True",
            reason: "MinimumReplicasAvailable",
            message: "Deployment has minimum availability.".into(),
        }
    } else {
        Condition {
            type_: "Available",
            status: "False",
            reason: "MinimumReplicasUnavailable",
            message: "Deployment does not have minimum availability.".into(),
        }
    }
}

/// `spec.progressDeadlineSeconds`; the largest number stands for none.
fn deadline(deployment: &Value) -> Option<Duration> {
    let seconds = deployment["spec"]["progressDeadlineSeconds"].as_u64()?;
    (seconds != u64::from(i32::MAX.unsigned_abs())).then(|| Duration::from_secs(seconds))
}

/// Sets `Progressing`, and tells when its deadline is.
fn progress(status: &mut Value, facts: &Facts<'_>) -> Option<Duration> {
    let Some(deadline) = deadline(facts.deployment) else {
        if facts.course != Course::Settled {
            remove(status, "Progressing");
        }
        return None;
    };
    pause(status, facts);
    let name = match facts.new {
        Some(set) => format!("ReplicaSet {:?}", freehold_machinery::meta::name(set)),
        None => format!("Deployment {:?}", freehold_machinery::meta::name(facts.deployment)),
    };
    let condition = |status, reason, message| Condition { type_: "Progressing", status, reason, message };
    let old = find(status, "Progressing").cloned();
    let reason = old.as_ref().and_then(|c| c["reason"].as_str()).unwrap_or_default().to_owned();
    match (&facts.course, facts.new) {
        (Course::Settled, _) => return None,
        (Course::Created(set), _) => {
            let message = format!("Created new replica set {set:?}");
            set_anew(status, condition("True", "NewReplicaSetCreated", message), facts.now);
            return Some(deadline + Duration::from_secs(1));
        }
        (Course::Rolling, Some(set)) if old.is_none() => {
            let message = format!("Found new replica set {:?}", freehold_machinery::meta::name(set));
            self::set(status, condition("True", "FoundNewReplicaSet", message), facts.now);
        }
        _ => {}
    }
    let settled = status["replicas"].as_i64().unwrap_or(0) == status["updatedReplicas"].as_i64().unwrap_or(0);
    if settled && reason == AVAILABLE {
        return None;
    }
    if is_complete(facts.deployment, status) {
        set(status, condition("True", AVAILABLE, format!("{name} has successfully progressed.")), facts.now);
        return None;
    }
    if moved(facts.deployment, status) {
        set_anew(
            status,
            condition("True", "ReplicaSetUpdated", format!("{name} is progressing.")),
            facts.now,
        );
        return Some(deadline + Duration::from_secs(1));
    }
    if reason == AVAILABLE || reason == TIMED_OUT {
        return None;
    }
    let since = find(status, "Progressing").and_then(|c| time::parse(c["lastUpdateTime"].as_str()?))?;
    let waited = Duration::try_from(facts.now.duration_since(since)).unwrap_or(Duration::ZERO);
    if waited <= deadline {
        return Some(deadline - waited + Duration::from_secs(1));
    }
    set(status, condition("False", TIMED_OUT, format!("{name} has timed out progressing.")), facts.now);
    None
}

/// Tells that progress is not expected while the Deployment is paused, and is again.
fn pause(status: &mut Value, facts: &Facts<'_>) {
    let reason = find(status, "Progressing").map(|c| c["reason"].clone()).unwrap_or_default();
    if reason == TIMED_OUT || freehold_machinery::meta::is_deleting(facts.deployment) {
        return;
    }
    let paused = facts.deployment["spec"]["paused"] == true;
    let (reason, message) = match (paused, reason == "DeploymentPaused") {
        (true, false) => ("DeploymentPaused", "Deployment is paused"),
        (false, true) => ("DeploymentResumed", "Deployment is resumed"),
        _ => return,
    };
    let condition = Condition { type_: "Progressing", status: "Unknown", reason, message: message.into() };
    set(status, condition, facts.now);
}

/// Whether the rollout came further since the last status.
fn moved(deployment: &Value, status: &Value) -> bool {
    let old = &deployment["status"];
    let grown = |field: &str| status[field].as_i64().unwrap_or(0) > old[field].as_i64().unwrap_or(0);
    let old_ones =
        |s: &Value| s["replicas"].as_i64().unwrap_or(0) - s["updatedReplicas"].as_i64().unwrap_or(0);
    grown("updatedReplicas")
        || grown("readyReplicas")
        || grown("availableReplicas")
        || old_ones(status) < old_ones(old)
}

/// Passes on why a ReplicaSet can't make or delete pods, that of the new one first.
fn failures(status: &mut Value, facts: &Facts<'_>) {
    const TYPE: &str = "ReplicaFailure";
    let failure = |set: &Value| find(&set["status"], TYPE).cloned();
    let found = facts.new.and_then(failure).or_else(|| facts.all.iter().find_map(|set| failure(set)));
    let Some(mut found) = found else { return remove(status, TYPE) };
    let same = |old: &Value| old["status"] == found["status"] && old["reason"] == found["reason"];
    if find(status, TYPE).is_some_and(same) {
        return;
    }
    found["lastUpdateTime"] = found["lastTransitionTime"].clone();
    remove(status, TYPE);
    if let Some(list) = status["conditions"].as_array_mut() {
        list.push(found);
    }
}

/// The conditions when a ReplicaSet could not be made; `None` where progress has no deadline.
pub(super) fn failed_create(deployment: &Value, message: String, now: Timestamp) -> Option<Value> {
    deadline(deployment)?;
    let mut status = json!({"conditions": deployment["status"]["conditions"]});
    let reason = "ReplicaSetCreateError";
    set(&mut status, Condition { type_: "Progressing", status: "False", reason, message }, now);
    Some(status)
}

fn find<'a>(status: &'a Value, type_: &str) -> Option<&'a Value> {
    status["conditions"].as_array()?.iter().find(|c| c["type"] == type_)
}

fn remove(status: &mut Value, type_: &str) {
    if let Some(list) = status["conditions"].as_array_mut() {
        list.retain(|c| c["type"] != type_);
    }
}

/// Sets a condition, and the time of its last update whatever it was.
fn set_anew(status: &mut Value, condition: Condition, now: Timestamp) {
    let since = find(status, condition.type_).filter(|c| c["status"] == condition.status);
    let since = since.map(|c| c["lastTransitionTime"].clone());
    remove(status, condition.type_);
    let type_ = condition.type_;
    set(status, condition, now);
    let Some(since) = since else { return };
    for condition in status["conditions"].as_array_mut().into_iter().flatten().filter(|c| c["type"] == type_)
    {
        condition["lastTransitionTime"] = since.clone();
    }
}

/// Sets a condition. Where its status and reason are as they were, nothing changes.
fn set(status: &mut Value, condition: Condition, now: Timestamp) {
    let now = time::format_seconds(now);
    let Condition { type_, status: state, reason, message } = condition;
    let mut new = json!({
        "type": type_, "status": state, "reason": reason, "message": message,
        "lastUpdateTime": now, "lastTransitionTime": now,
    });
    if let Some(old) = find(status, type_) {
        if old["status"] == state && old["reason"] == reason {
            return;
        }
        if old["status"] == state {
            new["lastTransitionTime"] = old["lastTransitionTime"].clone();
        }
    }
    remove(status, type_);
    match status["conditions"].as_array_mut() {
        Some(list) => list.push(new),
        None => status["conditions"] = json!([new]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set_with(replicas: i64, available: i64) -> Value {
        json!({
            "metadata": {"name": "web-1"}, "spec": {"replicas": replicas},
            "status": {"replicas": replicas, "readyReplicas": available, "availableReplicas": available},
        })
    }

    fn condition<'a>(status: &'a Value, type_: &str) -> (&'a str, &'a str) {
        let found = find(status, type_).unwrap();
        (found["status"].as_str().unwrap(), found["reason"].as_str().unwrap())
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn of(deployment: &Value, set: &Value, course: Course, now: i64) -> (Value, Option<Duration>) {
        status(&Facts { deployment, new: Some(set), all: &[set], course, now: at(now) })
    }

    #[test]
    fn a_rollout_is_progressing_then_late_or_complete() {
        let mut deployment =
            json!({"metadata": {"generation": 2}, "spec": {"replicas": 3, "progressDeadlineSeconds": 60}});
        let (made, again) = status(&Facts {
            deployment: &deployment,
            new: None,
            all: &[],
            course: Course::Created("web-1".into()),
            now: at(0),
        });
        assert_eq!(condition(&made, "Progressing"), ("True", "NewReplicaSetCreated"));
        assert_eq!(again, Some(Duration::from_secs(61)));

        deployment["status"] = made;
        let some = set_with(3, 1);
        let (first, again) = of(&deployment, &some, Course::Rolling, 5);
        assert_eq!(condition(&first, "Progressing"), ("True", "ReplicaSetUpdated"));
        assert_eq!(condition(&first, "Available"), ("False", "MinimumReplicasUnavailable"));
        assert_eq!((first["unavailableReplicas"].as_i64(), again), (Some(2), Some(Duration::from_secs(61))));

        deployment["status"] = first;
        let (same, again) = of(&deployment, &some, Course::Rolling, 25);
        assert_eq!((&same, again), (&deployment["status"], Some(Duration::from_secs(41))));
        let (late, _) = of(&deployment, &some, Course::Rolling, 66);
        assert_eq!(condition(&late, "Progressing"), ("False", "ProgressDeadlineExceeded"));

        let (complete, again) = of(&deployment, &set_with(3, 3), Course::Rolling, 35);
        assert_eq!(condition(&complete, "Progressing"), ("True", "NewReplicaSetAvailable"));
        assert_eq!(condition(&complete, "Available"), ("True", "MinimumReplicasAvailable"));
        assert_eq!((again, &complete["unavailableReplicas"]), (None, &Value::Null));
    }

    #[test]
    fn pauses_and_failures_are_told_of() {
        let mut deployment = json!({
            "metadata": {"generation": 2}, "spec": {"replicas": 3, "progressDeadlineSeconds": 60, "paused": true},
        });
        let mut failing = set_with(3, 1);
        failing["status"]["conditions"] =
            json!([{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}]);
        let (paused, again) = of(&deployment, &failing, Course::Settled, 0);
        assert_eq!((condition(&paused, "Progressing"), again), (("Unknown", "DeploymentPaused"), None));
        deployment["status"] = paused;
        deployment["spec"]["paused"] = false.into();
        let (resumed, again) = of(&deployment, &failing, Course::Rolling, 10);
        assert_eq!(condition(&resumed, "Progressing"), ("Unknown", "DeploymentResumed"));
        assert_eq!(condition(&resumed, "ReplicaFailure"), ("True", "FailedCreate"));
        assert_eq!(again, Some(Duration::from_secs(61)));
        deployment["status"] = resumed;
        let (well, _) = of(&deployment, &set_with(3, 1), Course::Rolling, 20);
        assert!(find(&well, "ReplicaFailure").is_none());
    }
}
