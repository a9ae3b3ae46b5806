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
    pub(super) all: Vec<&'a Value>,
    pub(super) now: Timestamp,
}

/// A condition as Deployments have it: with the time of its last update.
struct Condition {
    type_: &'static str,
    status: &'static str,
    reason: &'static str,
    message: String,
}

/// The status that a Deployment should have, and when it has to be looked at again because its progress has a deadline.
pub(super) fn status(facts: &Facts<'_>) -> (Value, Option<Duration>) {
    let sum = |field: &str| facts.all.iter().filter_map(|set| set["status"][field].as_i64()).sum::<i64>();
    let limits = Limits::of(facts.deployment);
    let updated = facts.new.map_or(0, |set| set["status"]["replicas"].as_i64().unwrap_or(0));
    let available = sum("availableReplicas");
    let wanted: i64 = facts.all.iter().map(|set| Numbers::of(set).wanted).sum();
    let mut status = facts.deployment["status"].clone();
    status["observedGeneration"] = crate::object::generation(facts.deployment).into();
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
    set(&mut status, availability(available, limits), facts.now);
    let complete =
        updated == limits.desired && sum("replicas") == limits.desired && available == limits.desired;
    let again = progress(&mut status, facts, complete);
    (status, again)
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

/// Sets `Progressing`, and tells when its deadline is.
fn progress(status: &mut Value, facts: &Facts<'_>, complete: bool) -> Option<Duration> {
    let name = facts.new.map_or("", freehold_machinery::meta::name);
    let yes = |reason: &'static str, message: String| Condition {
        type_: "Progressing",
        status: "True",
        reason,
        message,
    };
    let old = find(status, "Progressing").cloned();
    if complete {
        let message = format!("ReplicaSet {name:?} has successfully progressed.");
        set(status, yes("NewReplicaSetAvailable", message), facts.now);
        return None;
    }
    if facts.deployment["spec"]["paused"] == true {
        return None;
    }
    let deadline = Duration::from_secs(
        facts.deployment["spec"]["progressDeadlineSeconds"].as_u64().unwrap_or(600).min(u64::from(u32::MAX)),
    );
    if moved(facts.deployment, status) || old.as_ref().is_none_or(|c| c["reason"] == "NewReplicaSetAvailable")
    {
        let message = format!("ReplicaSet {name:?} is progressing.");
        let reason = "ReplicaSetUpdated";
        set(status, yes(reason, message), facts.now);
        touch(status, facts.now);
        return Some(deadline);
    }
    let since = old.as_ref().and_then(|c| time::parse(c["lastUpdateTime"].as_str()?)).unwrap_or(facts.now);
    let waited = facts.now.duration_since(since).unsigned_abs();
    if waited < deadline {
        return Some(deadline - waited);
    }
    let message = format!("ReplicaSet {name:?} has timed out progressing.");
    let timed_out =
        Condition { type_: "Progressing", status: "False", reason: "ProgressDeadlineExceeded", message };
    set(status, timed_out, facts.now);
    None
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
        || status["observedGeneration"] != old["observedGeneration"]
}

fn find<'a>(status: &'a Value, type_: &str) -> Option<&'a Value> {
    status["conditions"].as_array()?.iter().find(|c| c["type"] == type_)
}

/// Marks progress without any other change.
fn touch(status: &mut Value, now: Timestamp) {
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        if condition["type"] == "Progressing" {
            condition["lastUpdateTime"] = time::format_seconds(now).into();
        }
    }
}

fn set(status: &mut Value, condition: Condition, now: Timestamp) {
    let now = time::format_seconds(now);
    let Condition { type_, status: state, reason, message } = condition;
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(list) = status["conditions"].as_array_mut() else { return };
    let mut new = json!({
        "type": type_, "status": state, "reason": reason, "message": message,
        "lastUpdateTime": now, "lastTransitionTime": now,
    });
    let Some(old) = list.iter_mut().find(|c| c["type"] == type_) else {
        list.push(new);
        return;
    };
    if old["status"] == state && old["reason"] == reason && old["message"] == new["message"] {
        return;
    }
    if old["status"] == state {
        new["lastTransitionTime"] = old["lastTransitionTime"].clone();
    }
    *old = new;
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

    #[test]
    fn a_rollout_is_progressing_then_complete_or_late() {
        let mut deployment =
            json!({"metadata": {"generation": 2}, "spec": {"replicas": 3, "progressDeadlineSeconds": 60}});
        let at = |second| Timestamp::from_second(second).unwrap();
        let set = set_with(3, 1);
        fn facts<'a>(deployment: &'a Value, set: &'a Value, now: Timestamp) -> Facts<'a> {
            Facts { deployment, new: Some(set), all: vec![set], now }
        }

        let (first, again) = status(&facts(&deployment, &set, at(0)));
        assert_eq!(condition(&first, "Progressing"), ("True", "ReplicaSetUpdated"));
        assert_eq!(condition(&first, "Available"), ("False", "MinimumReplicasUnavailable"));
        assert_eq!((first["unavailableReplicas"].as_i64(), again), (Some(2), Some(Duration::from_secs(60))));

        deployment["status"] = first;
        let (same, again) = status(&facts(&deployment, &set, at(20)));
        assert_eq!((&same, again), (&deployment["status"], Some(Duration::from_secs(40))));
        let (late, _) = status(&facts(&deployment, &set, at(60)));
        assert_eq!(condition(&late, "Progressing"), ("False", "ProgressDeadlineExceeded"));

        let all = set_with(3, 3);
        let (complete, again) = status(&facts(&deployment, &all, at(30)));
        assert_eq!(condition(&complete, "Progressing"), ("True", "NewReplicaSetAvailable"));
        assert_eq!(condition(&complete, "Available"), ("True", "MinimumReplicasAvailable"));
        assert_eq!((again, &complete["unavailableReplicas"]), (None, &Value::Null));
    }
}
