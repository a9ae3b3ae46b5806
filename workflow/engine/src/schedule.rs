//! Which runs a DAG's schedule asks for, and when it asks next.

use freehold_machinery_cron::{Schedule, Zone};
use freehold_workflow_api::{CatchUpPolicy, ConcurrencyPolicy, DagSpec, duration};
use jiff::Timestamp;
use std::collections::BTreeSet;

/// Ticks that are looked at, at most, when many were missed.
const MAX_TICKS: usize = 10_000;
/// A tick that is no later than this was not missed.
const ON_TIME: i64 = 30;

/// What a schedule asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// Ticks whose runs are to be made, the oldest first.
    pub run: Vec<Timestamp>,
    /// The latest tick that is done with: that of a run, or one left out.
    pub last: Option<Timestamp>,
    /// The next tick.
    pub next: Option<Timestamp>,
    /// Runs that are under way are terminated.
    pub replace: bool,
}

/// The schedules of a DAG; those that can't be read are left out.
pub fn schedules(spec: &DagSpec) -> Vec<Schedule> {
    let one = Some(&spec.schedule).filter(|schedule| !schedule.is_empty());
    one.into_iter().chain(&spec.schedules).filter_map(|text| Schedule::parse(text).ok()).collect()
}

/// Decides what is due, after `since` (the last tick that was done with, or the DAG's creation) and up to `now`.
pub fn due(spec: &DagSpec, schedules: &[Schedule], since: Timestamp, now: Timestamp, active: usize) -> Due {
    let zone = Zone::named(&spec.time_zone).unwrap_or(Zone::UTC);
    let ticks = ticks(schedules, zone, since, now);
    let next = schedules.iter().filter_map(|schedule| schedule.next(now, zone)).min();
    let last = ticks.last().copied();
    if spec.suspended {
        return Due { last, next, ..Due::default() };
    }
    let deadline = duration::parse(&spec.starting_deadline).filter(|_| !spec.starting_deadline.is_empty());
    let is_in_time = |tick: &Timestamp| {
        let late = now.as_second() - tick.as_second();
        deadline.is_none_or(|deadline| i64::try_from(deadline.as_secs()).is_ok_and(|limit| late <= limit))
    };
    let mut run: Vec<Timestamp> = ticks.into_iter().filter(is_in_time).collect();
    let keep = match spec.catch_up.policy {
        CatchUpPolicy::All => spec.catch_up.limit.max(1) as usize,
        CatchUpPolicy::Latest => 1,
        CatchUpPolicy::None => {
            run.retain(|tick| now.as_second() - tick.as_second() <= ON_TIME);
            1
        }
    };
    run.drain(..run.len().saturating_sub(keep));
    match spec.concurrency_policy {
        ConcurrencyPolicy::Forbid if active > 0 => run.clear(),
        ConcurrencyPolicy::Forbid | ConcurrencyPolicy::Replace => {
            drop(run.drain(..run.len().saturating_sub(1)))
        }
        ConcurrencyPolicy::Allow | ConcurrencyPolicy::Queue => {}
    }
    let replace = spec.concurrency_policy == ConcurrencyPolicy::Replace && !run.is_empty() && active > 0;
    Due { run, last, next, replace }
}

/// The ticks of a DAG's schedules after one time and up to another.
pub fn ticks_of(
    spec: &DagSpec,
    schedules: &[Schedule],
    since: Timestamp,
    until: Timestamp,
) -> Vec<Timestamp> {
    ticks(schedules, Zone::named(&spec.time_zone).unwrap_or(Zone::UTC), since, until)
}

/// Ticks after one time and up to another, oldest first; of very many the latest.
fn ticks(schedules: &[Schedule], zone: Zone, since: Timestamp, until: Timestamp) -> Vec<Timestamp> {
    let mut found: BTreeSet<Timestamp> = BTreeSet::new();
    for schedule in schedules {
        let mut at = since;
        while let Some(next) = schedule.next(at, zone).filter(|next| *next <= until) {
            found.insert(next);
            if found.len() > MAX_TICKS {
                found.pop_first();
            }
            at = next;
        }
    }
    found.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json};

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn runs(spec: serde_json::Value, since: &str, now: &str, active: usize) -> Vec<String> {
        let spec: DagSpec = from_value(spec).unwrap();
        let due = due(&spec, &schedules(&spec), at(since), at(now), active);
        due.run.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn missed_ticks_are_caught_up_with_as_the_policy_says() {
        let (since, now) = ("2026-01-01T00:00:00Z", "2026-01-01T03:00:40Z");
        let spec = |policy: &str| json!({"schedule": "0 * * * *", "catchUp": {"policy": policy, "limit": 2}});
        assert_eq!(runs(spec("All"), since, now, 0), ["2026-01-01T02:00:00Z", "2026-01-01T03:00:00Z"]);
        assert_eq!(runs(spec("Latest"), since, now, 0), ["2026-01-01T03:00:00Z"]);
        assert_eq!(runs(spec("None"), since, now, 0), [""; 0]);
        assert_eq!(runs(spec("None"), since, "2026-01-01T03:00:01Z", 0), ["2026-01-01T03:00:00Z"]);
        let late = json!({"schedule": "0 * * * *", "startingDeadline": "30s"});
        assert_eq!(runs(late, since, now, 0), [""; 0]);
    }

    #[test]
    fn runs_under_way_are_respected_as_the_policy_says() {
        let (since, now) = ("2026-01-01T00:00:00Z", "2026-01-01T01:00:01Z");
        let spec = |policy: &str| json!({"schedule": "0 * * * *", "concurrencyPolicy": policy});
        for (policy, active, count) in
            [("Allow", 3, 1), ("Forbid", 1, 0), ("Forbid", 0, 1), ("Replace", 1, 1), ("Queue", 5, 1)]
        {
            assert_eq!(runs(spec(policy), since, now, active).len(), count, "{policy}");
        }
        let spec: DagSpec = from_value(json!({"schedule": "0 * * * *", "suspended": true})).unwrap();
        let due = due(&spec, &schedules(&spec), at(since), at(now), 0);
        assert!(
            due.run.is_empty() && due.last == Some(at("2026-01-01T01:00:00Z")),
            "a suspended DAG catches nothing up"
        );
    }

    #[test]
    fn clocks_that_change_give_each_tick_once() {
        let spec = json!({"schedules": ["30 2 * * *", "*/30 2 * * *"], "timeZone": "Europe/Berlin", "catchUp": {"policy": "All"}});
        assert_eq!(
            runs(spec.clone(), "2026-03-28T12:00:00Z", "2026-03-29T12:00:00Z", 0).len(),
            0,
            "29 March has no 2:30"
        );
        let autumn = runs(spec, "2026-10-24T12:00:00Z", "2026-10-25T12:00:00Z", 0);
        assert_eq!(
            autumn.len(),
            4,
            "2:00 and 2:30 come twice, two schedules at 2:30 give one run: {autumn:?}"
        );
    }
}
