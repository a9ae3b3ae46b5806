//! What a record does to what is known of its run. Pure.

use crate::RunRecord;

/// What a record does to the row of its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merged {
    /// Nothing: it is late, or says what is known.
    Stale,
    /// It replaces the row.
    Replace {
        /// The row's end was counted in roll-ups, and no longer counts.
        uncount_old: bool,
        /// The record ends the run, which counts from now on.
        count_new: bool,
    },
}

/// Decides what `new` does to `old`. The first end of each restart counts; a restart reopens the run, and its end counts
/// instead of the one before.
pub fn merge(old: &RunRecord, new: &RunRecord) -> Merged {
    let (old_over, new_over) = (old.ended_at.is_some(), new.ended_at.is_some());
    let late = new.restart == old.restart && (old_over || (!new_over && new.revision < old.revision));
    if new.restart < old.restart || late {
        return Merged::Stale;
    }
    Merged::Replace { uncount_old: old_over, count_new: new_over }
}

/// Folds several records of one run into the one that remains of them.
pub(crate) fn fold(records: impl IntoIterator<Item = RunRecord>) -> Option<RunRecord> {
    records.into_iter().reduce(|kept, next| match merge(&kept, &next) {
        Merged::Stale => kept,
        Merged::Replace { .. } => next,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Phase;

    fn run(restart: i64, revision: i64, ended_at: Option<i64>) -> RunRecord {
        let phase = if ended_at.is_some() { Phase::Succeeded } else { Phase::Running };
        RunRecord { restart, revision, ended_at, phase, ..RunRecord::default() }
    }

    #[test]
    fn the_first_end_counts_and_later_records_change_nothing() {
        let ended = run(0, 5, Some(9));
        for late in [run(0, 4, None), run(0, 6, None), run(0, 5, Some(9)), run(0, 9, Some(11))] {
            assert_eq!(merge(&ended, &late), Merged::Stale, "{late:?}");
        }
        assert_eq!(
            merge(&run(0, 9, None), &run(0, 5, Some(9))),
            Merged::Replace { uncount_old: false, count_new: true }
        );
        assert_eq!(merge(&run(0, 9, None), &run(0, 5, None)), Merged::Stale);
        assert_eq!(merge(&run(1, 0, None), &run(0, 99, Some(3))), Merged::Stale);
    }

    #[test]
    fn a_restart_reopens_a_run_whose_end_no_longer_counts() {
        assert_eq!(
            merge(&run(0, 5, Some(9)), &run(1, 6, None)),
            Merged::Replace { uncount_old: true, count_new: false }
        );
        assert_eq!(
            merge(&run(0, 5, Some(9)), &run(1, 7, Some(12))),
            Merged::Replace { uncount_old: true, count_new: true }
        );
    }

    #[test]
    fn any_order_of_records_folds_to_the_same_row() {
        let records =
            [run(0, 1, None), run(0, 2, None), run(0, 3, Some(3)), run(1, 4, None), run(1, 5, Some(7))];
        let expected = fold(records.clone());
        for seed in 0..200_usize {
            let mut shuffled = records.to_vec();
            for i in (1..shuffled.len()).rev() {
                shuffled.swap(i, (seed * 7919 + i * 104_729) % (i + 1));
            }
            assert_eq!(fold(shuffled), expected, "order {seed}");
        }
    }
}
