//! Values of the store that are not served, for the log.

use freehold_apiserver_storage::Key;
use parking_lot::Mutex;
use std::{
    fmt::Display,
    time::{Duration, Instant},
};

/// The time between two lines: whoever writes a plane's keys can write any number of such values.
const PAUSE: Duration = Duration::from_secs(5);

/// When the last line was written, and how many values were skipped without one since.
static LAST: Mutex<(Option<Instant>, u64)> = Mutex::new((None, 0));

/// How many values were skipped without a line since the last one; `None` where it is too early for another.
fn due((last, skipped): &mut (Option<Instant>, u64), now: Instant) -> Option<u64> {
    if last.is_some_and(|last| now.duration_since(last) < PAUSE) {
        *skipped += 1;
        return None;
    }
    *last = Some(now);
    Some(std::mem::take(skipped))
}

/// Logs that a value of the store is skipped: one line every few seconds, which counts the others.
pub fn log_skipped(key: &Key, why: &dyn Display) {
    if let Some(others) = due(&mut LAST.lock(), Instant::now()) {
        tracing::error!(?key, %why, others, "skipped a value of the store");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_skipped_values_are_one_line_with_their_number() {
        let (mut state, start) = ((None, 0), Instant::now());
        assert_eq!(due(&mut state, start), Some(0));
        for _ in 0..1000 {
            assert_eq!(due(&mut state, start + PAUSE / 2), None);
        }
        assert_eq!(due(&mut state, start + PAUSE), Some(1000));
    }
}
