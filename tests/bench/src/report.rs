//! Figures, as they are printed and written: tables with a column for each server.

use crate::goals::{Goal, Reached};
use crate::stats::Samples;
use crate::subject::Kind;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// A measured value.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(crate) enum Value {
    /// A time.
    Time(Duration),
    /// CPU time of one operation, which also says how many a second of CPU pays for.
    Cpu(Duration),
    /// Median and 99th percentile.
    Spread(Duration, Duration),
    /// Bytes of memory or disk; negative where they became fewer.
    Bytes(i64),
    /// So many in a second.
    Rate(f64),
    /// A bare number.
    Count(usize),
    /// So many hundredths more.
    Percent(f64),
}

/// A table: rows by their names, in the order of their coming.
#[derive(Debug)]
pub(crate) struct Table {
    /// The heading.
    pub(crate) title: String,
    /// What was measured, of which server.
    pub(crate) rows: Vec<(String, BTreeMap<Kind, Value>)>,
}

/// The figures of one part.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// In the order of measurement.
    pub(crate) tables: Vec<Table>,
    /// What they say of the goals.
    pub(crate) reached: Vec<Reached>,
}

fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        s if s < 10e-6 => format!("{:.1} µs", s * 1e6),
        s if s < 1e-3 => format!("{:.0} µs", s * 1e6),
        s if s < 0.1 => format!("{:.1} ms", s * 1e3),
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Time(value) => f.write_str(&time(value)),
            Self::Cpu(each) if each.is_zero() => f.write_str("too little to see"),
            Self::Cpu(each) => write!(f, "{} ({:.0}/s)", time(each), 1.0 / each.as_secs_f64()),
            Self::Spread(median, p99) => write!(f, "{} / {}", time(median), time(p99)),
            Self::Bytes(bytes) if bytes.abs() < 1_000_000 => write!(f, "{:.1} KB", bytes as f64 / 1e3),
            Self::Bytes(bytes) => write!(f, "{:.1} MB", bytes as f64 / 1e6),
            Self::Rate(rate) => write!(f, "{rate:.0}/s"),
            Self::Count(count) => write!(f, "{count}"),
            Self::Percent(percent) => write!(f, "{percent:.0} %"),
        }
    }
}

impl Value {
    /// Median and 99th percentile of samples.
    pub(crate) fn spread(samples: &Samples) -> Self {
        Self::Spread(samples.median(), samples.p99())
    }

    /// What two values of one kind are compared by, and whether less of it is better.
    fn weight(self) -> Option<(f64, bool)> {
        match self {
            Self::Time(time) | Self::Cpu(time) | Self::Spread(time, _) => Some((time.as_secs_f64(), true)),
            Self::Bytes(bytes) => Some((bytes as f64, true)),
            Self::Rate(rate) => Some((rate, false)),
            Self::Count(_) | Self::Percent(_) => None,
        }
    }

    /// How many times better `self` is than `other`; less than 1 where it is worse.
    pub(crate) fn advantage(self, other: Self) -> Option<f64> {
        let ((own, less_is_better), (other, _)) = (self.weight()?, other.weight()?);
        let ratio = if less_is_better { other / own } else { own / other };
        (own > 0.0 && other > 0.0).then_some(ratio)
    }
}

impl Table {
    /// The row of a table of Markdown: a cell for each server, then how many times better Freehold's embedded engine,
    /// or without it Freehold on etcd, is than kube-apiserver.
    pub(crate) fn cells(&self, row: usize, kinds: &[Kind]) -> Vec<String> {
        let values = &self.rows[row].1;
        let mut cells: Vec<String> =
            kinds.iter().map(|kind| values.get(kind).map_or_else(String::new, ToString::to_string)).collect();
        if kinds.contains(&Kind::Kube) {
            let own = values.get(&Kind::Embedded).or_else(|| values.get(&Kind::Etcd));
            let ratio = own.zip(values.get(&Kind::Kube)).and_then(|(own, kube)| own.advantage(*kube));
            cells.push(ratio.map_or_else(String::new, |r| format!("{r:.1}×")));
        }
        cells
    }

    /// The servers that it has values of.
    pub(crate) fn kinds(&self) -> Vec<Kind> {
        Kind::ALL.into_iter().filter(|kind| self.rows.iter().any(|(_, row)| row.contains_key(kind))).collect()
    }
}

impl Report {
    /// Adds a figure to the table of that title, and prints it.
    pub(crate) fn add(
        &mut self,
        title: &str,
        row: impl Into<String>,
        kind: Kind,
        value: impl Into<Option<Value>>,
    ) {
        let (row, value): (String, Option<Value>) = (row.into(), value.into());
        let Some(value) = value else { return };
        let index = self.tables.iter().position(|table| table.title == title).unwrap_or_else(|| {
            self.tables.push(Table { title: title.to_owned(), rows: Vec::new() });
            self.tables.len() - 1
        });
        println!("{:<14} {title}: {row}: {value}", kind.heading());
        let rows = &mut self.tables[index].rows;
        match rows.iter_mut().find(|(name, _)| *name == row) {
            Some((_, values)) => {
                values.insert(kind, value);
            }
            None => rows.push((row, BTreeMap::from([(kind, value)]))),
        }
    }

    /// Notes what was measured for a goal.
    pub(crate) fn reach(&mut self, goal: &'static Goal, kind: Kind, value: impl Into<Option<Value>>) {
        if let Some(value) = value.into() {
            println!("{:<14} goal: {}: {}", kind.heading(), goal.what, goal.verdict(kind, value));
            self.reached.push(Reached { goal, kind, value });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_short_and_say_their_unit() {
        let rows = [
            (Value::Time(Duration::from_nanos(2_540)), "2.5 µs"),
            (Value::Time(Duration::from_micros(250)), "250 µs"),
            (Value::Time(Duration::from_micros(2_540)), "2.5 ms"),
            (Value::Time(Duration::from_millis(730)), "730 ms"),
            (Value::Time(Duration::from_millis(1_500)), "1.50 s"),
            (Value::Cpu(Duration::from_micros(50)), "50 µs (20000/s)"),
            (Value::Spread(Duration::from_millis(1), Duration::from_millis(20)), "1.0 ms / 20.0 ms"),
            (Value::Bytes(64_000), "64.0 KB"),
            (Value::Bytes(-1_500_000), "-1.5 MB"),
            (Value::Rate(1234.4), "1234/s"),
            (Value::Count(3), "3"),
        ];
        for (value, expected) in rows {
            assert_eq!(value.to_string(), expected);
        }
    }

    #[test]
    fn a_row_ends_with_how_much_better_freehold_is() {
        let mut report = Report::default();
        report.add("t", "cpu", Kind::Embedded, Value::Cpu(Duration::from_micros(50)));
        report.add("t", "cpu", Kind::Kube, Value::Cpu(Duration::from_micros(500)));
        report.add("t", "rate", Kind::Kube, Value::Rate(10.0));
        report.add("t", "rate", Kind::Embedded, Value::Rate(5.0));
        report.add("t", "nothing", Kind::Embedded, None);
        let table = &report.tables[0];
        let kinds = table.kinds();
        assert_eq!(kinds, [Kind::Embedded, Kind::Kube]);
        assert_eq!(table.rows.len(), 2);
        assert_eq!(table.cells(0, &kinds), ["50 µs (20000/s)", "500 µs (2000/s)", "10.0×"]);
        assert_eq!(table.cells(1, &kinds)[2], "0.5×");
    }
}
