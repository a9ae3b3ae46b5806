//! Cron schedules in their standard form: five fields, or a macro (`@hourly`), in a time zone.
//!
//! They are read, and refused, as Kubernetes' parser does, and come due at the same times, also where clocks are changed: a
//! time that a day leaves out does not come, one that it has twice comes twice.
//!
//! This crate must not know what is scheduled, nor the time of day: callers pass it in.

mod parse;

use chrono::{DateTime, Datelike as _, Days, Months, NaiveDate, TimeDelta, TimeZone as _, Timelike as _};
use jiff::Timestamp;

/// A schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    due: Due,
    zone: Option<Zone>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Due {
    /// A set of bits for each field: minutes, hours, days of the month, months, days of the week.
    Fields {
        fields: [u64; 5],
        /// One of the two fields of days says nothing: then both have to match, else one is enough.
        any_day: bool,
    },
    /// Each so many seconds.
    Every(i64),
}

/// A time zone by its name in the IANA database, which this crate brings along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone(chrono_tz::Tz);

impl Zone {
    /// Coordinated universal time.
    pub const UTC: Self = Self(chrono_tz::Tz::UTC);

    /// The zone of this name, such as `Europe/Berlin`; `None` where there is none.
    pub fn named(name: &str) -> Option<Self> {
        name.parse().ok().map(Self)
    }

    /// A time as RFC 3339 has it in this zone, to the second: `2026-07-01T00:30:00+02:00`, or with `Z`.
    pub fn format(self, time: Timestamp) -> String {
        match self.at(time) {
            Some(local) => local.to_rfc3339_opts(chrono::SecondsFormat::Secs, true),
            None => freehold_machinery::time::format_seconds(time),
        }
    }

    fn at(self, time: Timestamp) -> Option<DateTime<chrono_tz::Tz>> {
        self.0.timestamp_opt(time.as_second(), 0).single()
    }

    /// The first moment of a day.
    fn midnight(self, day: NaiveDate) -> Option<DateTime<chrono_tz::Tz>> {
        // Where clocks go forward at midnight the day begins later.
        (0..24 * 4).find_map(|quarter| {
            let time = day.and_hms_opt(0, 0, 0)? + TimeDelta::minutes(15 * quarter);
            self.0.from_local_datetime(&time).earliest()
        })
    }
}

impl Schedule {
    /// Reads a schedule. One that begins with `TZ=` or `CRON_TZ=` names its zone.
    ///
    /// # Errors
    /// What is wrong with it, in the words of Kubernetes' parser.
    pub fn parse(schedule: &str) -> Result<Self, String> {
        parse::schedule(schedule)
    }

    /// The first time after `after` at which it is due in a zone, unless the schedule names its own. `None`: not within five
    /// years, as on 31 February.
    pub fn next(&self, after: Timestamp, zone: Zone) -> Option<Timestamp> {
        let zone = self.zone.unwrap_or(zone);
        match &self.due {
            Due::Every(seconds) => Timestamp::from_second(after.as_second().checked_add(*seconds)?).ok(),
            Due::Fields { fields, any_day } => next_of_fields(fields, *any_day, after, zone),
        }
    }
}

fn next_of_fields(fields: &[u64; 5], any_day: bool, after: Timestamp, zone: Zone) -> Option<Timestamp> {
    let [minutes, hours, days, months, weekdays] = *fields;
    let has = |set: u64, bit: u32| set & (1 << bit) != 0;
    let day_matches = |day: NaiveDate| {
        let (of_month, of_week) = (has(days, day.day()), has(weekdays, day.weekday().num_days_from_sunday()));
        if any_day { of_month && of_week } else { of_month || of_week }
    };
    // The next whole minute.
    let mut at = zone.at(after)?;
    at += TimeDelta::seconds(60 - i64::from(at.second()));
    let last = at.year() + 5;
    while at.year() <= last {
        let day = at.date_naive();
        at = if !has(months, day.month()) {
            zone.midnight(day.with_day(1)?.checked_add_months(Months::new(1))?)?
        } else if !day_matches(day) {
            zone.midnight(day.checked_add_days(Days::new(1))?)?
        } else if !has(hours, at.hour()) {
            at + TimeDelta::minutes(60 - i64::from(at.minute()))
        } else if !has(minutes, at.minute()) {
            at + TimeDelta::minutes(1)
        } else {
            return Timestamp::from_second(at.timestamp()).ok();
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(schedule: &str, zone: &str, from: &str, count: usize) -> Vec<String> {
        let (schedule, zone) = (Schedule::parse(schedule).unwrap(), Zone::named(zone).unwrap());
        let mut at: Timestamp = from.parse().unwrap();
        let mut due = Vec::new();
        while due.len() < count
            && let Some(next) = schedule.next(at, zone)
        {
            at = next;
            due.push(zone.format(next));
        }
        due
    }

    #[test]
    fn schedules_come_due_as_they_say() {
        let rows: [(&str, &str, &[&str]); 9] = [
            ("* * * * *", "2026-01-01T00:00:30Z", &["2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"]),
            ("*/20 9-10 * * *", "2026-01-01T09:20:00Z", &["2026-01-01T09:40:00Z", "2026-01-01T10:00:00Z"]),
            ("0 0 29 2 *", "2026-01-01T00:00:00Z", &["2028-02-29T00:00:00Z"]),
            ("59 23 31 2 *", "2026-01-01T00:00:00Z", &[]),
            // Both fields of days say something: one is enough.
            ("0 0 13 * FRI", "2026-02-01T00:00:00Z", &["2026-02-06T00:00:00Z", "2026-02-13T00:00:00Z"]),
            ("0 0 */2 * MON", "2026-02-01T00:00:00Z", &["2026-02-02T00:00:00Z", "2026-02-03T00:00:00Z"]),
            ("@monthly", "2026-01-15T00:00:00Z", &["2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"]),
            ("@weekly", "2026-01-15T00:00:00Z", &["2026-01-18T00:00:00Z"]),
            ("@every 90s", "2026-01-01T00:00:10.5Z", &["2026-01-01T00:01:40Z", "2026-01-01T00:03:10Z"]),
        ];
        for (schedule, from, due) in rows {
            assert_eq!(after(schedule, "UTC", from, due.len().max(1)), due, "{schedule}");
        }
    }

    #[test]
    fn days_on_which_clocks_change_have_their_own_hours() {
        let berlin = |schedule, from, count| after(schedule, "Europe/Berlin", from, count);
        // 29 March 2026 has no half past two, 25 October has it twice.
        assert_eq!(berlin("30 2 * * *", "2026-03-28T12:00:00Z", 1), ["2026-03-30T02:30:00+02:00"]);
        let twice = ["2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00", "2026-10-26T02:30:00+01:00"];
        assert_eq!(berlin("30 2 * * *", "2026-10-24T12:00:00Z", 3), twice);
        // In Sao Paulo 4 November 2018 began at one.
        assert_eq!(
            after("0 1 4 11 *", "America/Sao_Paulo", "2018-11-01T00:00:00Z", 1),
            ["2018-11-04T01:00:00-02:00"]
        );
        assert_eq!(
            after("TZ=Asia/Kathmandu 15 0 * * *", "UTC", "2026-01-01T00:00:00Z", 1),
            ["2026-01-01T18:30:00Z"]
        );
    }
}
