//! Sets of completion indexes, as a Job's status spells them: `1,3-5,7`.

use std::fmt;

/// Indexes in ascending ranges that neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Indexes(Vec<(i64, i64)>);

impl Indexes {
    /// Reads a list; what makes no sense in it, or is not below `completions`, is left out.
    pub(super) fn parse(list: &str, completions: i64) -> Self {
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (first.parse::<i64>().ok()?, last.parse::<i64>().ok()?);
            Some((first, last.min(completions - 1)))
        };
        let ranges = list.split(',').filter_map(range).filter(|(first, last)| *first >= 0 && first <= last);
        Self::of(ranges.collect())
    }

    fn of(mut ranges: Vec<(i64, i64)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(i64, i64)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                Some(open) if first <= open.1 + 1 => open.1 = open.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }

    /// These and others.
    pub(super) fn with(&self, others: impl IntoIterator<Item = i64>) -> Self {
        Self::of(self.0.iter().copied().chain(others.into_iter().map(|i| (i, i))).collect())
    }

    /// These and those of another set.
    pub(super) fn union(&self, other: &Self) -> Self {
        Self::of(self.0.iter().chain(&other.0).copied().collect())
    }

    /// Whether an index is among them.
    pub(super) fn has(&self, index: i64) -> bool {
        let at = self.0.partition_point(|(_, last)| *last < index);
        self.0.get(at).is_some_and(|(first, _)| *first <= index)
    }

    /// How many there are.
    pub(super) fn total(&self) -> i64 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// How many are in both.
    pub(super) fn shared(&self, other: &Self) -> i64 {
        let (mut a, mut b, mut shared) = (0, 0, 0);
        while let (Some(x), Some(y)) = (self.0.get(a), other.0.get(b)) {
            shared += (x.1.min(y.1) - x.0.max(y.0) + 1).max(0);
            if x.1 <= y.1 { a += 1 } else { b += 1 }
        }
        shared
    }

    /// The first `count` indexes below `completions` that are not among these.
    pub(super) fn first_missing(&self, count: usize, completions: i64) -> Vec<i64> {
        let mut found = Vec::new();
        let mut candidate = 0;
        for (first, last) in self.0.iter().copied().chain([(completions, completions)]) {
            while candidate < first.min(completions) && found.len() < count {
                found.push(candidate);
                candidate += 1;
            }
            candidate = candidate.max(last + 1);
        }
        found
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                1 => write!(f, "{comma}{first},{last}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written_as_kubernetes_has_them() {
        let rows = [
            ("", ""),
            ("0", "0"),
            ("0,1", "0,1"),
            ("0-2,3", "0-3"),
            ("1,3-5,9", "1,3-5,9"),
            ("8-12", "8,9"),
            ("x,2,-1,4-3", "2"),
            ("10,11", ""),
        ];
        for (read, written) in rows {
            assert_eq!(Indexes::parse(read, 10).to_string(), written, "{read}");
        }
    }

    #[test]
    fn sets_are_counted_joined_and_filled_up() {
        let some = Indexes::parse("1-3,6", 10);
        assert_eq!(
            (some.total(), some.has(2), some.has(4), some.has(6), some.has(9)),
            (4, true, false, true, false)
        );
        assert_eq!(some.with([5, 0]).to_string(), "0-3,5,6");
        assert_eq!(some.union(&Indexes::parse("4,5", 10)).to_string(), "1-6");
        assert_eq!(some.shared(&Indexes::parse("0-2,6-8", 10)), 3);
        assert_eq!(some.first_missing(3, 10), [0, 4, 5]);
        assert_eq!(some.first_missing(9, 8), [0, 4, 5, 7]);
        assert_eq!(some.first_missing(9, 2), [0]);
        assert_eq!(Indexes::default().first_missing(2, 2), [0, 1]);
    }
}
