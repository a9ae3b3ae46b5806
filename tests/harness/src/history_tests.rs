//! Each thing that can go wrong is found, and nothing else.

use super::*;
use std::time::Duration;

/// A history in which everything is right: two writes of `a`, one whose end nobody knows, one that was refused.
fn right() -> History {
    let start = Instant::now();
    let at = |millis: u64| start + Duration::from_millis(millis);
    let write = |value: &str, from: u64, outcome: Outcome| Write {
        key: "a".into(),
        value: value.into(),
        begun: at(from),
        ended: at(from + 5),
        outcome,
    };
    let seen = |revision: u64, value: &str| Seen { revision, key: "a".into(), value: Some(value.into()) };
    let all = vec![seen(2, "one"), seen(3, "perhaps"), seen(5, "two")];
    History {
        writes: vec![
            write("one", 0, Outcome::Acknowledged(2)),
            write("perhaps", 1, Outcome::Unknown),
            write("never", 2, Outcome::Refused),
            write("two", 10, Outcome::Acknowledged(5)),
        ],
        reads: vec![Read { key: "a".into(), begun: at(20), found: Some(("two".into(), 5)) }],
        watchers: vec![(1, all.clone()), (2, all[1..].to_vec())],
        last: [("a".to_owned(), ("two".to_owned(), 5))].into(),
    }
}

fn complaint(spoil: impl FnOnce(&mut History)) -> String {
    let mut history = right();
    spoil(&mut history);
    history.check().expect_err("something is wrong")
}

#[test]
fn what_is_right_passes() {
    assert_eq!(right().check(), Ok(()));
    assert_eq!(right().outcomes(), (2, 1, 1));
}

#[test]
fn a_lost_write_and_one_that_happened_twice_are_found() {
    let lost = complaint(|history| {
        history.watchers.iter_mut().for_each(|(_, seen)| seen.retain(|change| change.revision != 5));
    });
    assert!(lost.starts_with("lost"), "{lost}");
    let twice = complaint(|history| {
        for (_, seen) in &mut history.watchers {
            seen.push(Seen { revision: 6, key: "a".into(), value: Some("perhaps".into()) });
        }
    });
    assert!(twice.starts_with("one write happened twice"), "{twice}");
}

#[test]
fn what_was_refused_or_never_written_must_not_be_there() {
    let refused = complaint(|history| history.writes[0].outcome = Outcome::Refused);
    assert!(refused.starts_with("refused"), "{refused}");
    let ghost = complaint(|history| drop(history.writes.remove(1)));
    assert!(ghost.starts_with("nobody wrote"), "{ghost}");
    let moved = complaint(|history| history.writes[1].key = "b".into());
    assert!(moved.starts_with("on another key"), "{moved}");
    let elsewhere = complaint(|history| history.writes[0].outcome = Outcome::Acknowledged(3));
    assert!(elsewhere.starts_with("acknowledged at another"), "{elsewhere}");
}

#[test]
fn a_watcher_that_misses_repeats_or_reorders_is_found() {
    let missed = complaint(|history| drop(history.watchers[1].1.remove(0)));
    assert!(missed.starts_with("watcher 1 saw"), "{missed}");
    let cut_short = complaint(|history| drop(history.watchers[1].1.pop()));
    assert!(cut_short.starts_with("watcher 1 saw None"), "{cut_short}");
    let repeated = complaint(|history| {
        let again = history.watchers[0].1[0].clone();
        history.watchers[0].1.insert(1, again);
    });
    assert!(repeated.ends_with("came twice"), "{repeated}");
    let reordered = complaint(|history| history.watchers[0].1.swap(0, 1));
    assert!(reordered.contains("came behind"), "{reordered}");
    let early = complaint(|history| history.watchers[1].0 = 3);
    assert!(early.contains("began after"), "{early}");
}

#[test]
fn stale_reads_and_a_wrong_order_are_found() {
    let stale = complaint(|history| history.reads[0].found = Some(("one".into(), 2)));
    assert!(stale.starts_with("stale"), "{stale}");
    let gone = complaint(|history| history.reads[0].found = None);
    assert!(gone.starts_with("not found"), "{gone}");
    let invented = complaint(|history| history.reads[0].found = Some(("two".into(), 7)));
    assert!(invented.starts_with("this was never there"), "{invented}");
    let late = complaint(|history| {
        history.writes[0].begun = history.writes[3].ended + Duration::from_millis(1);
        history.writes[0].ended = history.writes[0].begun;
    });
    assert!(late.starts_with("began after"), "{late}");
    let end = complaint(|history| history.last.clear());
    assert!(end.starts_with("in the end"), "{end}");
}
