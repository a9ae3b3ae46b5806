//! Which backups stay: a pure function of their times.

use jiff::{Timestamp, Zoned, tz::TimeZone};
use std::collections::{BTreeMap, BTreeSet};

/// The name of the span of time in which a backup was made.
type Span = fn(&Zoned) -> String;

/// How many backups stay, of which spans of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct Retention {
    /// Keep so many of the latest backups.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    keep_last: usize,
    /// Keep the latest backup of each of so many days that have one.
    #[arg(long, value_name = "DAYS", default_value_t = 0)]
    keep_daily: usize,
    /// Keep the latest backup of each of so many weeks that have one.
    #[arg(long, value_name = "WEEKS", default_value_t = 0)]
    keep_weekly: usize,
    /// Keep the latest backup of each of so many months that have one.
    #[arg(long, value_name = "MONTHS", default_value_t = 0)]
    keep_monthly: usize,
}

impl Retention {
    /// Whether it says anything: without a word all backups stay.
    pub(crate) fn is_asked(&self) -> bool {
        *self != Self::default()
    }

    /// Times of the backups that go, in UTC. The latest one always stays.
    pub(crate) fn surplus(&self, times: &BTreeSet<Timestamp>) -> BTreeSet<Timestamp> {
        if !self.is_asked() {
            return BTreeSet::new();
        }
        let spans: [(usize, Span); 4] = [
            (self.keep_last.max(1), |time| time.timestamp().to_string()),
            (self.keep_daily, |time| time.strftime("%Y-%m-%d").to_string()),
            (self.keep_weekly, |time| time.strftime("%G-%V").to_string()),
            (self.keep_monthly, |time| time.strftime("%Y-%m").to_string()),
        ];
        let mut kept = BTreeSet::new();
        for (count, span) in spans {
            // The later one of a span takes the place of the earlier.
            let latest: BTreeMap<String, Timestamp> =
                times.iter().map(|time| (span(&time.to_zoned(TimeZone::UTC)), *time)).collect();
            let mut latest: Vec<Timestamp> = latest.into_values().collect();
            latest.sort_unstable_by(|a, b| b.cmp(a));
            kept.extend(latest.into_iter().take(count));
        }
        times.difference(&kept).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(texts: &[&str]) -> BTreeSet<Timestamp> {
        texts.iter().map(|text| format!("{text}Z").parse().unwrap()).collect()
    }

    fn kept(retention: Retention, all: &BTreeSet<Timestamp>) -> Vec<String> {
        let gone = retention.surplus(all);
        all.difference(&gone).map(ToString::to_string).map(|text| text[..13].to_owned()).collect()
    }

    #[test]
    fn each_span_keeps_its_latest_backup() {
        let all = times(&[
            "2026-10-30T02:00:00",
            "2026-10-31T02:00:00",
            "2026-11-01T02:00:00",
            "2026-11-01T14:00:00",
            "2026-11-02T02:00:00",
            "2026-11-09T02:00:00",
        ]);
        let none = Retention::default();
        assert_eq!(kept(none, &all).len(), 6, "nothing was asked for");
        assert_eq!(kept(Retention { keep_last: 2, ..none }, &all), ["2026-11-02T02", "2026-11-09T02"]);
        assert_eq!(
            kept(Retention { keep_daily: 3, ..none }, &all),
            ["2026-11-01T14", "2026-11-02T02", "2026-11-09T02"]
        );
        // Weeks begin on Mondays: the second of November is one.
        assert_eq!(
            kept(Retention { keep_weekly: 9, ..none }, &all),
            ["2026-11-01T14", "2026-11-02T02", "2026-11-09T02"]
        );
        assert_eq!(
            kept(Retention { keep_monthly: 9, keep_daily: 1, ..none }, &all),
            ["2026-10-31T02", "2026-11-09T02"]
        );
    }

    #[test]
    fn the_latest_backup_always_stays() {
        let one = times(&["2020-01-01T00:00:00"]);
        for retention in [
            Retention { keep_last: 1, ..Retention::default() },
            Retention { keep_monthly: 1, ..Retention::default() },
        ] {
            assert!(retention.surplus(&one).is_empty());
        }
        assert!(Retention { keep_daily: 1, ..Retention::default() }.surplus(&times(&[])).is_empty());
    }
}
