//! Figures, as they are printed and written.

use crate::stats::Samples;
use std::fmt;
use std::time::Duration;

/// A measured value.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(crate) enum Value {
    /// A time.
    Time(Duration),
    /// Bytes of memory or disk; negative where they became fewer.
    Bytes(i64),
    /// So many in a second.
    Rate(f64),
    /// A bare number.
    Count(usize),
}

/// One line of a table.
#[derive(Debug)]
pub(crate) struct Figure {
    /// What was measured.
    pub(crate) name: String,
    /// What came out.
    pub(crate) value: Value,
    /// What it must stay below, if there is a promise.
    pub(crate) bound: Option<Value>,
}

/// The figures of one part.
#[derive(Debug)]
pub(crate) struct Section {
    /// The heading.
    pub(crate) title: String,
    /// The lines.
    pub(crate) figures: Vec<Figure>,
}

/// All figures of a run. Each is printed as soon as it is known.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// In the order of measurement.
    pub(crate) sections: Vec<Section>,
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Time(time) if time < Duration::from_millis(1) => write!(f, "{} µs", time.as_micros()),
            Self::Time(time) if time < Duration::from_millis(100) => {
                write!(f, "{:.1} ms", time.as_secs_f64() * 1e3)
            }
            Self::Time(time) if time < Duration::from_secs(1) => write!(f, "{} ms", time.as_millis()),
            Self::Time(time) => write!(f, "{:.2} s", time.as_secs_f64()),
            Self::Bytes(bytes) if bytes.abs() < 1_000_000 => write!(f, "{:.1} KB", bytes as f64 / 1e3),
            Self::Bytes(bytes) => write!(f, "{:.1} MB", bytes as f64 / 1e6),
            Self::Rate(rate) => write!(f, "{rate:.0}/s"),
            Self::Count(count) => write!(f, "{count}"),
        }
    }
}

impl Figure {
    /// What the table says of the bound.
    pub(crate) fn verdict(&self) -> String {
        match self.bound {
            None => String::new(),
            Some(bound) if self.value < bound => format!("< {bound}: met"),
            Some(bound) => format!("< {bound}: **missed**"),
        }
    }
}

impl Report {
    /// Begins a section.
    pub(crate) fn section(&mut self, title: impl Into<String>) {
        let title = title.into();
        println!("\n{title}");
        self.sections.push(Section { title, figures: Vec::new() });
    }

    /// Adds a figure without a bound.
    pub(crate) fn add(&mut self, name: impl Into<String>, value: Value) {
        self.push(Figure { name: name.into(), value, bound: None });
    }

    /// Adds a figure that must stay below `bound`.
    pub(crate) fn add_bound(&mut self, name: impl Into<String>, value: Value, bound: Value) {
        self.push(Figure { name: name.into(), value, bound: Some(bound) });
    }

    /// Adds the median and the 99th percentile.
    pub(crate) fn add_samples(&mut self, name: &str, samples: &Samples) {
        self.add(format!("{name}, median"), Value::Time(samples.median()));
        self.add(format!("{name}, p99"), Value::Time(samples.p99()));
    }

    fn push(&mut self, figure: Figure) {
        println!("  {:<62} {:>12}  {}", figure.name, figure.value.to_string(), figure.verdict());
        self.sections
            .last_mut()
            .expect("invariant: a section begins before its figures")
            .figures
            .push(figure);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_short_and_say_their_unit() {
        let rows = [
            (Value::Time(Duration::from_micros(250)), "250 µs"),
            (Value::Time(Duration::from_micros(2_540)), "2.5 ms"),
            (Value::Time(Duration::from_millis(730)), "730 ms"),
            (Value::Time(Duration::from_millis(1_500)), "1.50 s"),
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
    fn a_bound_is_met_below_it_alone() {
        let figure = |kb: i64| Figure {
            name: String::new(),
            value: Value::Bytes(kb * 1000),
            bound: Some(Value::Bytes(64_000)),
        };
        assert_eq!(figure(63).verdict(), "< 64.0 KB: met");
        assert_eq!(figure(64).verdict(), "< 64.0 KB: **missed**");
    }
}
