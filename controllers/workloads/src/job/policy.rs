//! When pods' failures count, when successes suffice, and how long failures are waited out.

use super::facts::JobsPod;
use super::indexes::Indexes;
use freehold_controllers_context::object::{int, items, text};
use freehold_controllers_context::pods::Phase;
use freehold_machinery::Value;
use jiff::Timestamp;
use std::time::Duration;

/// The wait after the first failure.
const FIRST_BACKOFF: Duration = Duration::from_secs(10);
/// The longest wait.
const LONGEST_BACKOFF: Duration = Duration::from_secs(600);

/// What the pod failure policy says of a failed pod.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    /// Nothing special: it counts towards the backoff limit.
    Count,
    /// It does not count.
    Ignore,
    /// Its index fails at once.
    FailIndex,
    /// The Job fails, for this reason.
    FailJob(String),
}

impl Verdict {
    pub(super) fn counts(&self) -> bool {
        *self != Self::Ignore
    }
}

/// Judges a failed pod by `spec.podFailurePolicy`: the first rule that matches decides.
pub(super) fn judge(job: &Value, pod: &JobsPod<'_>) -> Verdict {
    for (at, rule) in items(job, "/spec/podFailurePolicy/rules").iter().enumerate() {
        let Some(why) = matching(rule, pod) else { continue };
        let action = text(rule, "/action");
        match action {
            "Ignore" => return Verdict::Ignore,
            "FailIndex" => return Verdict::FailIndex,
            "Count" => return Verdict::Count,
            "FailJob" => return Verdict::FailJob(format!("{why} matching {action} rule at index {at}")),
            _ => {}
        }
    }
    Verdict::Count
}

/// Why a rule matches, if it does.
fn matching(rule: &Value, pod: &JobsPod<'_>) -> Option<String> {
    let name = format!("{}/{}", pod.key.namespace, pod.key.name);
    if let Some(codes) = rule.get("onExitCodes").filter(|c| c.is_object()) {
        let wanted = text(codes, "/containerName");
        let values = items(codes, "/values");
        let matches = |code: &i64| {
            let among = values.iter().any(|v| v.as_i64() == Some(*code));
            match text(codes, "/operator") {
                "In" => among,
                "NotIn" => !among,
                _ => false,
            }
        };
        let found =
            pod.job.exits.iter().find(|(c, code)| (wanted.is_empty() || c == wanted) && matches(code));
        return found.map(|(container, code)| {
            format!("Container {container} for pod {name} failed with exit code {code}")
        });
    }
    let patterns = items(rule, "/onPodConditions");
    let is = |(type_, status): &&(String, String)| {
        patterns.iter().any(|p| text(p, "/type") == type_ && text(p, "/status") == status)
    };
    pod.job.conditions.iter().find(is).map(|(type_, _)| format!("Pod {name} has condition {type_}"))
}

/// Which rule of `spec.successPolicy` the succeeded indexes meet, as a condition's message.
pub(super) fn success(job: &Value, completions: i64, succeeded: &Indexes) -> Option<String> {
    if succeeded.total() == 0 {
        return None;
    }
    let rules = items(job, "/spec/successPolicy/rules");
    let met = |rule: &Value| {
        let count = int(rule, "/succeededCount");
        match rule.get("succeededIndexes").and_then(Value::as_str) {
            Some(list) => {
                let wanted = Indexes::parse(list, completions);
                let shared = wanted.shared(succeeded);
                wanted.total() > 0 && (shared == wanted.total() || count.is_some_and(|n| shared >= n))
            }
            None => count.is_some_and(|n| succeeded.total() >= n),
        }
    };
    rules.iter().position(met).map(|at| format!("Matched rules at index {at}"))
}

/// Failures in a row, for which new pods wait.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Backoff {
    pub(super) failures: u32,
    pub(super) last: Option<Timestamp>,
}

impl Backoff {
    /// With pods that ended since: failures add up until something succeeds.
    pub(super) fn after(self, succeeded: &[Timestamp], failed: &[Timestamp]) -> Self {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        match succeeded.iter().max() {
            None if failed.is_empty() => self,
            None => Self {
                failures: self.failures.saturating_add(count(failed.len())),
                last: failed.iter().max().copied(),
            },
            Some(success) => {
                let since = failed.iter().filter(|at| *at > success);
                Self { failures: count(since.clone().count()), last: since.max().copied() }
            }
        }
    }

    /// How long new pods still wait.
    pub(super) fn left(self, now: Timestamp) -> Duration {
        let Some(last) = self.last.filter(|_| self.failures > 0) else { return Duration::ZERO };
        let wait = FIRST_BACKOFF.saturating_mul(1 << (self.failures - 1).min(10)).min(LONGEST_BACKOFF);
        let passed = now.duration_since(last);
        // A clock that went back must not make the wait longer.
        wait.saturating_sub(Duration::try_from(passed).unwrap_or(Duration::ZERO))
    }

    /// The wait of one index, after its last failed pod.
    pub(super) fn of_index(pod: Option<&JobsPod<'_>>) -> Self {
        pod.map_or_else(Self::default, |pod| Self {
            failures: u32::try_from(pod.job.failures + pod.job.ignored + 1).unwrap_or(u32::MAX),
            last: Some(pod.job.finished),
        })
    }
}

/// Whether the restarts of running pods exceed the limit, where pods are restarted in place.
pub(super) fn restarts_exceed(job: &Value, limit: i64, pods: &[JobsPod<'_>]) -> bool {
    if text(job, "/spec/template/spec/restartPolicy") != "OnFailure" {
        return false;
    }
    let alive = pods.iter().filter(|p| matches!(p.view.phase, Phase::Running | Phase::Pending));
    let restarts: i64 = alive.map(|p| p.job.restarts).sum();
    if limit == 0 { restarts > 0 } else { restarts >= limit }
}

#[cfg(test)]
mod tests {
    use super::super::facts::tests::{Made, made};
    use super::*;
    use serde_json::json;

    #[test]
    fn the_first_rule_that_matches_decides() {
        let job = json!({"spec": {"podFailurePolicy": {"rules": [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [7]}},
            {"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "NotIn", "values": [1, 2]}},
            {"action": "Count", "onExitCodes": {"operator": "In", "values": [1]}},
        ]}}});
        let rows = [
            (Made { exits: vec![("main".into(), 42)], disrupted: true, ..Made::default() }, Verdict::Ignore),
            (Made { exits: vec![("other".into(), 7)], ..Made::default() }, Verdict::FailIndex),
            (
                Made { exits: vec![("main".into(), 42)], ..Made::default() },
                Verdict::FailJob(
                    "Container main for pod n/p0 failed with exit code 42 matching FailJob rule at index 2"
                        .into(),
                ),
            ),
            (Made { exits: vec![("main".into(), 1)], ..Made::default() }, Verdict::Count),
            (Made { exits: vec![("side".into(), 42)], ..Made::default() }, Verdict::Count),
        ];
        for (pod, verdict) in rows {
            let pods = made(&[pod]);
            assert_eq!(judge(&job, &super::super::facts::JobsPod::of(&pods[0]).unwrap()), verdict);
        }
    }

    #[test]
    fn success_needs_the_indexes_or_the_number_that_a_rule_names() {
        let job = |rules: Value| json!({"spec": {"successPolicy": {"rules": rules}}});
        let rows = [
            (json!([{"succeededIndexes": "0,2"}]), "0", None),
            (json!([{"succeededIndexes": "0,2"}]), "0-2", Some("Matched rules at index 0")),
            (
                json!([{"succeededIndexes": "0-4", "succeededCount": 2}]),
                "3,4",
                Some("Matched rules at index 0"),
            ),
            (
                json!([{"succeededIndexes": "9"}, {"succeededCount": 2}]),
                "1,2",
                Some("Matched rules at index 1"),
            ),
            (json!([{"succeededIndexes": "x"}]), "1,2", None),
            (json!([{"succeededCount": 1}]), "", None),
        ];
        for (rules, succeeded, message) in rows {
            let met = success(&job(rules.clone()), 5, &Indexes::parse(succeeded, 5));
            assert_eq!(met.as_deref(), message, "{rules} {succeeded}");
        }
    }

    #[test]
    fn failures_wait_twice_as_long_each_time_until_something_succeeds() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut backoff = Backoff::default();
        assert_eq!(backoff.left(at(0)), Duration::ZERO);
        let mut waits = Vec::new();
        for _ in 0..8 {
            backoff = backoff.after(&[], &[at(100)]);
            waits.push(backoff.left(at(100)).as_secs());
        }
        assert_eq!(waits, [10, 20, 40, 80, 160, 320, 600, 600]);
        assert_eq!(backoff.left(at(400)).as_secs(), 300);
        assert_eq!(backoff.after(&[at(200)], &[at(150)]), Backoff::default());
        assert_eq!(backoff.after(&[at(200)], &[at(150), at(300)]).failures, 1);
    }
}
