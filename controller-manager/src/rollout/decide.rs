//! What becomes of a rollout: pure.

use freehold_api::rollouts::{ApiRollout, RolloutFailure, RolloutPhase};
use freehold_machinery::time;
use jiff::Timestamp;
use std::time::Duration;

/// The shortest and the longest wait between two attempts at a stage that is not healthy.
const RETRY: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(60)];

/// Characters of a message that are kept in the status.
const MESSAGE: usize = 4096;

/// What is to be done about a rollout.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// Nothing until it changes.
    Rest,
    /// It is looked at again after this time.
    Wait(Duration),
    /// Its status becomes this.
    Set(Step),
    /// The next stage begins, or after the last one the export gets the schemas. The server may refuse it.
    Advance,
}

/// A new status.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Step {
    pub(super) phase: RolloutPhase,
    /// How many stages have the next schemas.
    pub(super) stage: u32,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Step {
    fn of(
        rollout: &ApiRollout,
        phase: RolloutPhase,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self {
            phase,
            stage: rollout.status.stage,
            reason,
            message: message.into().chars().take(MESSAGE).collect(),
        }
    }

    /// The next stage.
    pub(super) fn next(rollout: &ApiRollout) -> Self {
        let next = rollout.status.stage + 1;
        let of = rollout.spec.stages.len();
        Self {
            stage: next,
            ..Self::of(rollout, RolloutPhase::Progressing, "StageServed", format!("stage {next} of {of}"))
        }
    }

    /// The end: the export has the schemas.
    pub(super) fn complete(rollout: &ApiRollout) -> Self {
        Self::of(rollout, RolloutPhase::Complete, "Complete", "the export has the schemas")
    }

    /// What becomes of a rollout that fails.
    fn failed(rollout: &ApiRollout, reason: &'static str, message: String) -> Self {
        match rollout.spec.on_failure {
            RolloutFailure::Halt => Self::of(rollout, RolloutPhase::Halted, reason, message),
            RolloutFailure::Revert => {
                Self { stage: 0, ..Self::of(rollout, RolloutPhase::Reverted, reason, message) }
            }
        }
    }
}

/// What is to be done about a rollout at a time.
pub(super) fn decide(rollout: &ApiRollout, now: Timestamp) -> Action {
    let (spec, status) = (&rollout.spec, &rollout.status);
    if rollout.metadata.deletion_timestamp.is_some() || status.phase == RolloutPhase::Complete {
        return Action::Rest;
    }
    if spec.revert {
        let is_done = status.phase == RolloutPhase::Reverted && status.stage == 0;
        let step =
            Step { stage: 0, ..Step::of(rollout, RolloutPhase::Reverted, "Reverted", "the spec says so") };
        return if is_done { Action::Rest } else { Action::Set(step) };
    }
    let is_new = status.observed_generation != rollout.metadata.generation;
    if spec.paused {
        let is_done = status.phase == RolloutPhase::Paused && !is_new;
        let step = Step::of(rollout, RolloutPhase::Paused, "Paused", "the spec says so");
        return if is_done { Action::Rest } else { Action::Set(step) };
    }
    match status.phase {
        RolloutPhase::Halted | RolloutPhase::Reverted if !is_new => return Action::Rest,
        RolloutPhase::Progressing => {}
        // The spec was changed, or it begins: time counts from now on.
        _ => return Action::Set(Step::of(rollout, RolloutPhase::Progressing, "Checking", "")),
    }
    let left = pause(rollout).saturating_sub(elapsed(rollout, now));
    if let Some(message) = unhealthy(rollout) {
        return Action::Set(Step::failed(rollout, "Unhealthy", message));
    }
    if !left.is_zero() {
        return Action::Wait(left);
    }
    match is_confirmed(rollout) {
        true => Action::Advance,
        false => {
            let why = format!("condition {:?} of this rollout is not True", spec.health.condition);
            after_refusal(rollout, now, "WaitingForCondition", why)
        }
    }
}

/// What is done when the server refuses a stage: it is tried again until the time for it is over.
pub(super) fn after_refusal(
    rollout: &ApiRollout,
    now: Timestamp,
    reason: &'static str,
    why: String,
) -> Action {
    let why: String = why.chars().take(MESSAGE).collect();
    let passed = elapsed(rollout, now).saturating_sub(pause(rollout));
    if passed >= Duration::from_secs(u64::from(rollout.spec.health.timeout_seconds)) {
        return Action::Set(Step::failed(rollout, reason, why));
    }
    if rollout.status.reason != reason || rollout.status.message != why {
        return Action::Set(Step::of(rollout, RolloutPhase::Progressing, reason, why));
    }
    Action::Wait((passed / 4).clamp(RETRY[0], RETRY[1]))
}

/// How long the stage of now is observed. Before the first one there is nothing to observe.
fn pause(rollout: &ApiRollout) -> Duration {
    let stage = (rollout.status.stage as usize).checked_sub(1).and_then(|nth| rollout.spec.stages.get(nth));
    Duration::from_secs(stage.map_or(0, |stage| u64::from(stage.pause_seconds)))
}

/// How long the stage is what it is. The clock that wrote it may be ahead of this one.
fn elapsed(rollout: &ApiRollout, now: Timestamp) -> Duration {
    let since = time::parse(&rollout.status.stage_time).unwrap_or(now);
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}

/// Why the provider's condition fails the rollout. Before the first stage it says nothing of it.
fn unhealthy(rollout: &ApiRollout) -> Option<String> {
    let wanted = &rollout.spec.health.condition;
    let is_it = |type_: &str, status: &str| type_ == wanted && status == "False";
    let found = rollout.status.conditions.iter().find(|one| is_it(&one.type_, &one.status))?;
    (rollout.status.stage > 0)
        .then(|| format!("condition {wanted:?} of this rollout is False: {}", found.message))
}

/// Whether the provider's condition, where one is wanted, lets the rollout go on from a stage.
fn is_confirmed(rollout: &ApiRollout) -> bool {
    let wanted = &rollout.spec.health.condition;
    wanted.is_empty()
        || rollout.status.stage == 0
        || rollout.status.conditions.iter().any(|one| one.type_ == *wanted && one.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_api::rollouts::ApiRolloutSpec;
    use serde_json::{Value, json};

    fn rollout(change: &Value) -> ApiRollout {
        let mut object = json!({
            "metadata": {"name": "v2", "generation": 1},
            "spec": {
                "export": "pg", "schemas": ["v2"],
                "stages": [{"percent": 10, "pauseSeconds": 60}, {"percent": 100}],
                "health": {"timeoutSeconds": 100},
            },
            "status": {"phase": "Progressing", "stage": 1, "stageTime": "2026-01-01T00:00:00Z", "observedGeneration": 1},
        });
        merge(&mut object, change);
        serde_json::from_value(object).unwrap()
    }

    fn merge(into: &mut Value, change: &Value) {
        match (into.as_object_mut(), change.as_object()) {
            (Some(into), Some(change)) => {
                for (key, value) in change {
                    merge(into.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
            _ => *into = change.clone(),
        }
    }

    fn at(seconds: i64) -> Timestamp {
        "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap() + jiff::SignedDuration::from_secs(seconds)
    }

    fn healthy(status: &str) -> Value {
        json!({
            "spec": {"health": {"condition": "Healthy"}},
            "status": {"conditions": [{"type": "Healthy", "status": status, "reason": "Said", "message": "so",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        })
    }

    /// The phase, stage and reason of a new status; what else is to be done, in words.
    fn told(action: &Action) -> String {
        match action {
            Action::Set(step) => format!("{:?} {} {}", step.phase, step.stage, step.reason),
            Action::Wait(left) => format!("wait {}", left.as_secs()),
            Action::Rest => "rest".to_owned(),
            Action::Advance => "advance".to_owned(),
        }
    }

    #[test]
    fn a_rollout_goes_on_when_its_stage_was_observed_and_is_healthy() {
        let rows = [
            (json!({}), 20, "wait 40"),
            (json!({}), 60, "advance"),
            (json!({"status": {"stage": 2}}), 0, "advance"),
            (json!({"status": {"phase": "Pending", "stage": 0}}), 0, "Progressing 0 Checking"),
            (json!({"status": {"stage": 0}}), 0, "advance"),
            (json!({"status": {"phase": "Complete"}}), 999, "rest"),
            (json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), 999, "rest"),
            (json!({"spec": {"paused": true}}), 999, "Paused 1 Paused"),
            (json!({"spec": {"paused": true}, "status": {"phase": "Paused"}}), 999, "rest"),
            (json!({"status": {"phase": "Paused"}}), 0, "Progressing 1 Checking"),
            (json!({"spec": {"revert": true}}), 0, "Reverted 0 Reverted"),
            (json!({"spec": {"revert": true}, "status": {"phase": "Reverted", "stage": 0}}), 0, "rest"),
            (json!({"status": {"phase": "Halted"}}), 999, "rest"),
            (
                json!({"status": {"phase": "Halted"}, "metadata": {"generation": 2}}),
                0,
                "Progressing 1 Checking",
            ),
            (
                json!({"status": {"phase": "Reverted", "stage": 0}, "metadata": {"generation": 2}}),
                0,
                "Progressing 0 Checking",
            ),
        ];
        for (change, seconds, expected) in rows {
            assert_eq!(told(&decide(&rollout(&change), at(seconds))), expected, "{change} at {seconds}");
        }
    }

    #[test]
    fn the_providers_condition_fails_a_stage_at_once_and_lets_it_go_on_after_its_pause() {
        let mut revert = healthy("False");
        revert["spec"]["onFailure"] = json!("Revert");
        let mut first = healthy("False");
        first["status"]["stage"] = json!(0);
        let rows = [
            (healthy("True"), 20, "wait 40"),
            (healthy("True"), 60, "advance"),
            (healthy("False"), 20, "Halted 1 Unhealthy"),
            (revert, 20, "Reverted 0 Unhealthy"),
            (healthy("Unknown"), 61, "Progressing 1 WaitingForCondition"),
            (healthy("Unknown"), 160, "Halted 1 WaitingForCondition"),
            (first, 0, "advance"),
        ];
        for (change, seconds, expected) in rows {
            assert_eq!(told(&decide(&rollout(&change), at(seconds))), expected, "{change} at {seconds}");
        }
    }

    #[test]
    fn a_stage_that_is_refused_is_tried_again_until_its_time_is_over() {
        let refused = |change: Value, seconds| {
            told(&after_refusal(&rollout(&change), at(seconds), "Refused", "broken".to_owned()))
        };
        let known = json!({"status": {"reason": "Refused", "message": "broken"}});
        assert_eq!(refused(json!({}), 60), "Progressing 1 Refused");
        assert_eq!(refused(known.clone(), 60), "wait 2");
        assert_eq!(refused(known.clone(), 140), "wait 20");
        assert_eq!(refused(known, 160), "Halted 1 Refused");
    }

    #[test]
    fn the_next_stage_is_one_further() {
        assert_eq!(Step::next(&rollout(&json!({}))).stage, 2);
        assert_eq!(Step::complete(&rollout(&json!({"status": {"stage": 2}}))).stage, 2);
        assert!(ApiRolloutSpec::default().stages.is_empty());
    }
}
