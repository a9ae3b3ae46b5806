//! Which times of a schedule are due.

use freehold_machinery_cron::{Schedule, Zone};
use jiff::{SignedDuration, Timestamp};
use std::time::Duration;

/// More missed times than these are told of.
const MANY: i64 = 100;
/// Timers may run ahead of the clock.
const PADDING: Duration = Duration::from_millis(100);
/// Times between two that are looked at, at most: a schedule of single days has a minute's.
const MOST_STEPS: usize = 100_000;

/// A schedule from some time on.
pub(super) struct Times<'a> {
    pub(super) schedule: &'a Schedule,
    pub(super) zone: Zone,
    /// The last time that was acted on, or the beginning.
    pub(super) since: Timestamp,
    pub(super) now: Timestamp,
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Recent {
    /// The latest time that is, if any.
    pub(super) time: Option<Timestamp>,
    /// Whether any was missed, and whether these are many.
    pub(super) missed: bool,
    pub(super) many: bool,
}

impl Times<'_> {
    fn after(&self, time: Timestamp) -> Option<Timestamp> {
        self.schedule.next(time, self.zone)
    }

    /// The latest time that is due. Fails for schedules that come due never, or all the time.
    pub(super) fn recent(&self) -> Result<Recent, &'static str> {
        let none = Recent { time: None, missed: false, many: false };
        let nonsense = "time difference between two schedules is less than 1 second";
        let first = self.after(self.since).ok_or(nonsense)?;
        if self.now < first {
            return Ok(none);
        }
        let second = self.after(first).ok_or(nonsense)?;
        if self.now < second {
            return Ok(Recent { time: Some(first), ..none });
        }
        let between = second.duration_since(first).as_secs();
        if between < 1 {
            return Err(nonsense);
        }
        let missed = self.now.duration_since(first).as_secs() / between + 1;
        // About where the latest one is, and from one before that exactly.
        let near = first + SignedDuration::from_secs((missed - 2).saturating_mul(between));
        let mut time = None;
        let mut next = self.after(near);
        for _ in 0..MOST_STEPS {
            let Some(due) = next.filter(|due| *due <= self.now) else { break };
            time = Some(due);
            next = self.after(due);
        }
        Ok(Recent { time, missed: missed > 0, many: missed > MANY })
    }

    /// How long until the next time.
    pub(super) fn wait(&self) -> Option<Duration> {
        let from = match self.recent() {
            Err(_) => self.now,
            Ok(Recent { time: Some(time), .. }) => time,
            Ok(Recent { missed: false, .. }) => self.since,
            Ok(_) => self.now,
        };
        let left = self.after(from)?.duration_since(self.now);
        Some(Duration::try_from(left).unwrap_or(Duration::ZERO) + PADDING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_time_counts_and_many_missed_ones_are_told_of() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let rows = [
            // schedule, since, now, the latest time, missed, many, seconds until the next
            ("0 * * * *", "2026-01-01T10:00:00Z", "2026-01-01T10:59:00Z", None, false, false, 60),
            (
                "0 * * * *",
                "2026-01-01T10:00:00Z",
                "2026-01-01T11:00:01Z",
                Some("2026-01-01T11:00:00Z"),
                false,
                false,
                3599,
            ),
            (
                "0 * * * *",
                "2026-01-01T10:00:00Z",
                "2026-01-01T13:30:00Z",
                Some("2026-01-01T13:00:00Z"),
                true,
                false,
                1800,
            ),
            (
                "* * * * *",
                "2026-01-01T10:00:00Z",
                "2026-01-01T13:30:30Z",
                Some("2026-01-01T13:30:00Z"),
                true,
                true,
                30,
            ),
            (
                "@every 30m",
                "2026-01-01T10:10:00Z",
                "2026-01-01T12:00:00Z",
                Some("2026-01-01T11:40:00Z"),
                true,
                false,
                600,
            ),
            (
                "30 6-16/4 * * 1-5",
                "2026-01-02T14:30:00Z",
                "2026-01-05T06:40:00Z",
                Some("2026-01-05T06:30:00Z"),
                false,
                false,
                13_800,
            ),
        ];
        for (schedule, since, now, time, missed, many, left) in rows {
            let schedule = Schedule::parse(schedule).unwrap();
            let times = Times { schedule: &schedule, zone: Zone::UTC, since: at(since), now: at(now) };
            let recent = times.recent().unwrap();
            assert_eq!(recent, Recent { time: time.map(at), missed, many }, "{now}");
            assert_eq!(times.wait(), Some(Duration::from_secs(left) + PADDING), "{now}");
        }
    }

    #[test]
    fn a_day_that_never_comes_is_nonsense() {
        let schedule = Schedule::parse("59 23 31 2 *").unwrap();
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let times = Times { schedule: &schedule, zone: Zone::UTC, since: now, now };
        assert!(times.recent().is_err());
        assert_eq!(times.wait(), None);
    }
}
