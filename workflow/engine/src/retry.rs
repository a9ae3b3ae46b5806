//! Whether a failed attempt is followed by another, and when.

use crate::Node;
use crate::event::Failure;
use crate::names::mix;
use crate::plan::{PlanTask, tenths};
use freehold_machinery::Value;
use freehold_machinery_cel::{Budget, Variable};
use freehold_workflow_api::Backoff;
use serde_json::json;

/// Attempts that fail for reasons which are not the task's own are made again so often, beside its limit.
const FREE: u8 = 3;
/// Such reasons.
const NOT_ITS_OWN: [&str; 9] = [
    "PodDeleted",
    "Evicted",
    "Preempting",
    "Preempted",
    "NodeShutdown",
    "NodeLost",
    "Terminated",
    "UnexpectedAdmissionError",
    "NodeAffinity",
];

/// Another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Again {
    /// Tenths of a second until then.
    pub(crate) delay: u32,
    /// Whether it does not count.
    pub(crate) is_free: bool,
}

/// The attempt after one that failed at a time; `None`: there is none.
pub(crate) fn again(
    task: &PlanTask,
    node: &Node,
    failure: &Failure,
    clock: u32,
    seed: &[&str; 2],
) -> Option<Again> {
    if node.attempt == u16::MAX {
        return None;
    }
    if NOT_ITS_OWN.contains(&failure.reason.as_str()) && node.free < FREE {
        return Some(Again { delay: 0, is_free: true });
    }
    let retry = &task.retry;
    let spent = node.spent();
    if spent >= retry.limit {
        return None;
    }
    if !retry.exit_codes.is_empty() && !failure.exit_code.is_some_and(|code| retry.exit_codes.contains(&code))
    {
        return None;
    }
    if let Some(program) = &task.retry_when {
        let duration = Value::from(f64::from(clock.saturating_sub(node.since)) / 10.0);
        let values = [
            ("exitCode", failure.exit_code.map_or(json!(-1), Value::from)),
            ("reason", failure.reason.as_str().into()),
            ("message", failure.message.as_str().into()),
            ("duration", duration),
            ("attempt", spent.into()),
        ];
        let variables: Vec<_> =
            values.iter().map(|(name, value)| (*name, Variable::Json(value, None))).collect();
        if !program.is_true(&variables, &Budget::default()).unwrap_or(false) {
            return None;
        }
    }
    let delay =
        retry.backoff.as_ref().map_or(0, |backoff| delay(backoff, spent, u32::from(node.attempt), seed));
    match tenths(&retry.max_duration) {
        Some(longest) if clock.saturating_add(delay).saturating_sub(node.first) > longest => None,
        _ => Some(Again { delay, is_free: false }),
    }
}

/// The delay after so many attempts, in tenths of a second. Chance follows from task and attempt, so that it is the same after
/// a restart.
fn delay(backoff: &Backoff, spent: u32, attempt: u32, seed: &[&str; 2]) -> u32 {
    let longest = tenths(&backoff.max).unwrap_or(u32::MAX);
    let mut delay = u64::from(tenths(&backoff.duration).unwrap_or(0));
    for _ in 0..spent.min(64) {
        delay = (delay * u64::from(backoff.factor_percent) / 100).min(u64::from(longest));
    }
    let chance = seed
        .iter()
        .flat_map(|word| word.bytes())
        .fold(u64::from(attempt), |hash, byte| mix(hash ^ u64::from(byte)));
    let jitter = delay * u64::from(backoff.jitter_percent) / 100;
    let delay = delay + if jitter == 0 { 0 } else { chance % (jitter + 1) };
    u32::try_from(delay).unwrap_or(u32::MAX).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_their_limit_and_chance_repeats() {
        let backoff =
            Backoff { duration: "1s".into(), factor_percent: 200, max: "5s".into(), jitter_percent: 0 };
        let delays: Vec<u32> = (0..5).map(|n| delay(&backoff, n, n, &["u", "1"])).collect();
        assert_eq!(delays, [10, 20, 40, 50, 50]);
        let backoff = Backoff { jitter_percent: 50, max: "10m".into(), ..backoff };
        let some = delay(&backoff, 3, 3, &["u", "1"]);
        assert!((80..=120).contains(&some), "{some}");
        assert_eq!(some, delay(&backoff, 3, 3, &["u", "1"]));
    }
}
