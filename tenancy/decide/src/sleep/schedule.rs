//! The state that cron schedules ask for at a time.
//!
//! Schedules are read on the wall clock of their zone, and the state is that of the last time that came due, however long
//! ago: a process that was down catches up. Where clocks are changed, the wall clock never goes back here: a time that a
//! day leaves out comes due when clocks jump over it, and one that a day has twice comes due the first time.

use freehold_machinery_cron::{Schedule, Zone};
use freehold_tenancy_api::supervisor::{Exception, SleepSchedule, SleepState};
use jiff::civil::Date;
use jiff::{SignedDuration, Timestamp};

/// How far back schedules are searched for the last time that came due, in steps that grow.
const LOOK_BACK_HOURS: [i64; 5] = [1, 24, 8 * 24, 32 * 24, 367 * 24];
/// No zone's clocks go back by more.
const LONGEST_CHANGE: SignedDuration = SignedDuration::from_hours(3);
/// How many periods of exceptions are followed to find the next transition.
const MAX_PERIODS: usize = 1000;

/// Schedules and exceptions, compiled.
#[derive(Clone, Debug, Default)]
pub struct Calendar {
    schedules: Vec<(Schedule, Zone, SleepState)>,
    exceptions: Vec<Period>,
}

/// A change of the wanted state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// When.
    pub at: Timestamp,
    /// What the state is then; `None` where nothing asks for one.
    pub state: Option<SleepState>,
}

#[derive(Clone, Debug)]
struct Period {
    state: SleepState,
    zone: Zone,
    days: Vec<Day>,
    span: Option<(Timestamp, Timestamp)>,
}

/// A day, of one year or of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Day {
    Of(Date),
    Yearly(i8, i8),
}

impl Calendar {
    /// Compiles schedules and exceptions.
    ///
    /// # Errors
    /// What cannot be read, with the field that has it.
    pub fn new(schedules: &[SleepSchedule], exceptions: &[Exception]) -> Result<Self, String> {
        let mut calendar = Self::default();
        for (at, schedule) in schedules.iter().enumerate() {
            let field = format!("spec.schedules[{at}]");
            let zone = zone(&schedule.time_zone, &field)?;
            if schedule.sleep.is_empty() && schedule.wake.is_empty() {
                return Err(format!("{field}: sleep or wake is required"));
            }
            for (text, name, state) in
                [(&schedule.sleep, "sleep", SleepState::Asleep), (&schedule.wake, "wake", SleepState::Awake)]
            {
                if !text.is_empty() {
                    calendar.schedules.push((cron(text, &format!("{field}.{name}"))?, zone, state));
                }
            }
        }
        for (at, exception) in exceptions.iter().enumerate() {
            calendar.exceptions.push(Period::new(exception, &format!("spec.exceptions[{at}]"))?);
        }
        Ok(calendar)
    }

    /// The state at a time; `None` where nothing came due yet and no exception holds.
    pub fn state(&self, now: Timestamp) -> Option<SleepState> {
        if let Some(period) = self.exceptions.iter().find(|period| period.holds(now)) {
            return Some(period.state);
        }
        // Of two that came due at the same time, waking counts more: nobody waits for a namespace that sleeps by mistake.
        let due = self.schedules.iter().filter_map(|(schedule, zone, state)| {
            let wall = wall_clock(*zone, now);
            let last = last_due(schedule, wall)?;
            Some((wall.as_second() - last.as_second(), *state == SleepState::Asleep, *state))
        });
        due.min_by_key(|(age, asleep, _)| (*age, *asleep)).map(|(_, _, state)| state)
    }

    /// The next change of the state after a time, within five years.
    pub fn next(&self, now: Timestamp) -> Option<Transition> {
        let current = self.state(now);
        let mut at = now;
        for _ in 0..MAX_PERIODS {
            at = self.next_event(at)?;
            let state = self.state(at);
            if state != current {
                return Some(Transition { at, state });
            }
        }
        None
    }

    /// The next time at which the state may change.
    fn next_event(&self, after: Timestamp) -> Option<Timestamp> {
        let schedules = self.schedules.iter().filter_map(|(schedule, zone, _)| {
            let due = schedule.next(wall_clock(*zone, after), Zone::UTC)?;
            moment_of(*zone, due, after)
        });
        let exceptions = self.exceptions.iter().filter_map(|period| period.next_edge(after));
        schedules.chain(exceptions).min()
    }
}

fn zone(name: &str, field: &str) -> Result<Zone, String> {
    match name {
        "" => Ok(Zone::UTC),
        name => Zone::named(name).ok_or_else(|| format!("{field}.timeZone: unknown time zone {name:?}")),
    }
}

fn cron(text: &str, field: &str) -> Result<Schedule, String> {
    if ["TZ=", "CRON_TZ=", "@every"].iter().any(|prefix| text.trim_start().starts_with(prefix)) {
        return Err(format!("{field}: {text:?} is not allowed here; use five fields and timeZone"));
    }
    Schedule::parse(text).map_err(|error| format!("{field}: {error}"))
}

/// The last time at or before `wall` at which a schedule is due; both on the wall clock, written as if it were UTC.
fn last_due(schedule: &Schedule, wall: Timestamp) -> Option<Timestamp> {
    LOOK_BACK_HOURS.iter().find_map(|hours| {
        let mut last = None;
        let mut at = wall - SignedDuration::from_hours(*hours) - SignedDuration::from_secs(1);
        while let Some(due) = schedule.next(at, Zone::UTC).filter(|due| *due <= wall) {
            last = Some(due);
            at = due;
        }
        last
    })
}

/// What clocks of a zone show at a time, written as if it were UTC.
fn shown(zone: Zone, at: Timestamp) -> Timestamp {
    let text = zone.format(at);
    let civil = text.get(..19).and_then(|civil| civil.parse::<jiff::civil::DateTime>().ok());
    civil.and_then(|civil| civil.to_zoned(jiff::tz::TimeZone::UTC).ok()).map_or(at, |zoned| zoned.timestamp())
}

/// How far clocks of a zone are ahead of UTC.
fn offset(zone: Zone, at: Timestamp) -> i64 {
    shown(zone, at).as_second() - at.as_second()
}

/// The latest time that clocks of a zone have shown until `at`: it stands still while clocks repeat an hour.
fn wall_clock(zone: Zone, at: Timestamp) -> Timestamp {
    let before = at - LONGEST_CHANGE;
    if offset(zone, before) <= offset(zone, at) {
        return shown(zone, at);
    }
    let change = first(before, at, |t| offset(zone, t) <= offset(zone, at));
    shown(zone, at).max(shown(zone, change - SignedDuration::from_secs(1)))
}

/// The first time after `after` at which the wall clock has reached `wall`.
fn moment_of(zone: Zone, wall: Timestamp, after: Timestamp) -> Option<Timestamp> {
    let guess = wall.as_second() - offset(zone, wall);
    let late = Timestamp::from_second(guess.max(after.as_second()) + 2 * LONGEST_CHANGE.as_secs()).ok()?;
    Some(first(after, late, |t| wall_clock(zone, t) >= wall))
}

/// The first second in (low, high] at which something holds that goes on holding.
fn first(low: Timestamp, high: Timestamp, holds: impl Fn(Timestamp) -> bool) -> Timestamp {
    let (mut low, mut high) = (low.as_second(), high.as_second());
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        match Timestamp::from_second(middle) {
            Ok(at) if !holds(at) => low = middle,
            _ => high = middle,
        }
    }
    Timestamp::from_second(high).unwrap_or(Timestamp::MAX)
}

impl Period {
    fn new(exception: &Exception, field: &str) -> Result<Self, String> {
        let zone = zone(&exception.time_zone, field)?;
        let days = exception.days.iter().map(|day| {
            read_day(day)
                .ok_or_else(|| format!("{field}.days: {day:?} is neither like 2026-12-25 nor like 12-25"))
        });
        let time = |text: &str, name: &str| {
            text.parse::<Timestamp>().map_err(|_| format!("{field}.{name}: {text:?} is no RFC 3339 time"))
        };
        let span = match (exception.from.as_str(), exception.until.as_str()) {
            ("", "") => None,
            (from, until) => Some((
                if from.is_empty() { Timestamp::MIN } else { time(from, "from")? },
                if until.is_empty() { Timestamp::MAX } else { time(until, "until")? },
            )),
        };
        let period = Self { state: exception.state, zone, days: days.collect::<Result<_, _>>()?, span };
        match (&period.span, period.days.is_empty()) {
            (None, true) => Err(format!("{field}: days, from or until is required")),
            (Some((from, until)), _) if from >= until => Err(format!("{field}: until is not after from")),
            _ => Ok(period),
        }
    }

    fn holds(&self, now: Timestamp) -> bool {
        let in_span = self.span.is_some_and(|(from, until)| from <= now && now < until);
        in_span || (!self.days.is_empty() && self.is_day(date_of(self.zone, now)))
    }

    fn is_day(&self, date: Date) -> bool {
        self.days.iter().any(|day| match day {
            Day::Of(day) => *day == date,
            Day::Yearly(month, day) => (*month, *day) == (date.month(), date.day()),
        })
    }

    /// The next beginning or end of the period.
    fn next_edge(&self, after: Timestamp) -> Option<Timestamp> {
        let span = self.span.iter().flat_map(|(from, until)| [*from, *until]).filter(|edge| *edge > after);
        span.chain(self.next_midnight(after)).min()
    }

    /// The next midnight at which one of the days begins or ends.
    fn next_midnight(&self, after: Timestamp) -> Option<Timestamp> {
        let today = date_of(self.zone, after);
        let year = i32::from(today.year());
        let days = self.days.iter().flat_map(|day| match *day {
            Day::Of(date) => vec![date],
            Day::Yearly(month, day) => (year - 1..=year + 1)
                .filter_map(|year| Date::new(i16::try_from(year).ok()?, month, day).ok())
                .collect(),
        });
        let edges = days.flat_map(|date| [Some(date), date.tomorrow().ok()]).flatten();
        let edges = edges.filter(|date| *date > today);
        let midnight = edges.min()?.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp();
        moment_of(self.zone, midnight, after)
    }
}

fn date_of(zone: Zone, at: Timestamp) -> Date {
    shown(zone, at).to_zoned(jiff::tz::TimeZone::UTC).date()
}

fn read_day(text: &str) -> Option<Day> {
    if let Ok(date) = text.parse::<Date>() {
        return (text.len() == 10).then_some(Day::Of(date));
    }
    let (month, day) = text.split_once('-')?;
    let (month, day) = (month.parse().ok()?, day.parse().ok()?);
    // 2028 is a leap year.
    Date::new(2028, month, day).ok().map(|_| Day::Yearly(month, day))
}

#[cfg(test)]
mod tests {
    use super::*;
    use SleepState::{Asleep, Awake};

    fn schedule(sleep: &str, wake: &str, time_zone: &str) -> SleepSchedule {
        SleepSchedule { sleep: sleep.into(), wake: wake.into(), time_zone: time_zone.into() }
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn nights(zone: &str) -> Calendar {
        Calendar::new(&[schedule("0 20 * * MON-FRI", "0 7 * * MON-FRI", zone)], &[]).unwrap()
    }

    #[test]
    fn the_state_is_that_of_the_last_time_that_came_due() {
        let calendar = nights("Europe/Berlin");
        let rows = [
            // Winter: Berlin is an hour ahead.
            ("2026-11-24T18:59:59Z", Awake, "2026-11-24T19:00:00Z"),
            ("2026-11-24T19:00:00Z", Asleep, "2026-11-25T06:00:00Z"),
            ("2026-11-25T06:00:00Z", Awake, "2026-11-25T19:00:00Z"),
            // Friday evening lasts until Monday morning.
            ("2026-11-29T12:00:00Z", Asleep, "2026-11-30T06:00:00Z"),
            // Summer: two hours.
            ("2026-07-01T17:59:00Z", Awake, "2026-07-01T18:00:00Z"),
        ];
        for (now, state, next) in rows {
            assert_eq!(calendar.state(at(now)), Some(state), "{now}");
            assert_eq!(calendar.next(at(now)).unwrap().at, at(next), "{now}");
        }
    }

    #[test]
    fn a_time_that_a_day_leaves_out_comes_due_when_clocks_jump() {
        // On 29 March 2026 clocks in Berlin go from 2:00 to 3:00.
        let calendar = Calendar::new(&[schedule("0 1 * * *", "30 2 * * *", "Europe/Berlin")], &[]).unwrap();
        assert_eq!(calendar.state(at("2026-03-29T00:59:59Z")), Some(Asleep));
        assert_eq!(calendar.state(at("2026-03-29T01:00:00Z")), Some(Awake));
        assert_eq!(calendar.next(at("2026-03-29T00:30:00Z")).unwrap().at, at("2026-03-29T01:00:00Z"));
    }

    #[test]
    fn a_time_that_a_day_has_twice_comes_due_the_first_time() {
        // On 25 October 2026 clocks in Berlin go from 3:00 to 2:00.
        let calendar = Calendar::new(&[schedule("30 2 * * *", "0 7 * * *", "Europe/Berlin")], &[]).unwrap();
        let states = [
            ("2026-10-25T00:29:00Z", Awake),
            ("2026-10-25T00:30:00Z", Asleep),
            // 2:10 again: it does not go back to the state before 2:30.
            ("2026-10-25T01:10:00Z", Asleep),
            ("2026-10-25T01:30:00Z", Asleep),
            ("2026-10-25T06:00:00Z", Awake),
        ];
        for (now, state) in states {
            assert_eq!(calendar.state(at(now)), Some(state), "{now}");
        }
        assert_eq!(calendar.next(at("2026-10-25T00:29:00Z")).unwrap().at, at("2026-10-25T00:30:00Z"));
        assert_eq!(calendar.next(at("2026-10-25T01:00:00Z")).unwrap().at, at("2026-10-25T06:00:00Z"));
    }

    #[test]
    fn zones_with_half_hours_and_midnight_changes_are_right() {
        let kathmandu = Calendar::new(&[schedule("0 20 * * *", "0 7 * * *", "Asia/Kathmandu")], &[]).unwrap();
        assert_eq!(kathmandu.next(at("2026-01-01T12:00:00Z")).unwrap().at, at("2026-01-01T14:15:00Z"));
        // On 4 November 2018 clocks in Sao Paulo went from 0:00 to 1:00.
        let sao_paulo =
            Calendar::new(&[schedule("0 20 * * *", "15 0 * * *", "America/Sao_Paulo")], &[]).unwrap();
        assert_eq!(sao_paulo.next(at("2018-11-03T23:30:00Z")).unwrap().at, at("2018-11-04T03:00:00Z"));
        // Lord Howe Island changes by half an hour.
        let lord_howe =
            Calendar::new(&[schedule("45 1 * * *", "0 7 * * *", "Australia/Lord_Howe")], &[]).unwrap();
        let first = at("2026-04-04T14:45:00Z");
        assert_eq!(lord_howe.next(at("2026-04-04T12:00:00Z")).unwrap().at, first);
        assert_eq!(lord_howe.state(first + SignedDuration::from_mins(20)), Some(Asleep));
    }

    #[test]
    fn exceptions_count_more_than_schedules() {
        let exceptions = [
            Exception {
                state: Awake,
                from: "2026-12-24T22:00:00Z".into(),
                until: "2026-12-24T23:30:00Z".into(),
                ..Exception::default()
            },
            Exception {
                state: Asleep,
                days: vec!["12-25".into(), "2026-12-28".into()],
                time_zone: "Europe/Berlin".into(),
                ..Exception::default()
            },
        ];
        let calendar =
            Calendar::new(&[schedule("0 20 * * MON-FRI", "0 7 * * MON-FRI", "Europe/Berlin")], &exceptions)
                .unwrap();
        let rows = [
            ("2026-12-24T21:00:00Z", Asleep),
            ("2026-12-24T22:30:00Z", Awake),
            ("2026-12-24T23:30:00Z", Asleep),
            // A Friday, and a holiday.
            ("2026-12-25T12:00:00Z", Asleep),
            ("2027-12-25T12:00:00Z", Asleep),
            ("2026-12-28T12:00:00Z", Asleep),
            ("2026-12-29T12:00:00Z", Awake),
        ];
        for (now, state) in rows {
            assert_eq!(calendar.state(at(now)), Some(state), "{now}");
        }
        assert_eq!(calendar.next(at("2026-12-24T21:00:00Z")).unwrap().at, at("2026-12-24T22:00:00Z"));
        // The holiday ends at midnight in Berlin, where the evening before Saturday goes on.
        assert_eq!(calendar.next(at("2026-12-25T12:00:00Z")).unwrap().at, at("2026-12-29T06:00:00Z"));
    }

    #[test]
    fn what_cannot_be_read_is_named_with_its_field() {
        let rows = [
            (
                schedule("0 25 * * *", "", ""),
                "spec.schedules[0].sleep: end of range (25) above maximum (23): 25",
            ),
            (schedule("", "", ""), "spec.schedules[0]: sleep or wake is required"),
            (
                schedule("0 1 * * *", "", "Mars/Base"),
                "spec.schedules[0].timeZone: unknown time zone \"Mars/Base\"",
            ),
            (
                schedule("@every 1h", "", ""),
                "spec.schedules[0].sleep: \"@every 1h\" is not allowed here; use five fields and timeZone",
            ),
        ];
        for (schedule, why) in rows {
            assert_eq!(Calendar::new(&[schedule], &[]).unwrap_err(), why);
        }
        let day = Exception { days: vec!["2026-13-01".into()], ..Exception::default() };
        assert!(Calendar::new(&[], &[day]).unwrap_err().starts_with("spec.exceptions[0].days"));
        assert_eq!(Calendar::default().state(at("2026-01-01T00:00:00Z")), None);
    }
}
