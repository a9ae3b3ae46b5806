//! How long a container that ended waits before it runs again.

use std::time::Duration;

/// The second wait; each further one is twice as long.
const STEP: Duration = Duration::from_secs(10);
/// The longest wait.
const MAX: Duration = Duration::from_secs(300);
/// The first wait: whoever kills a process once has it back at once.
const FIRST: Duration = Duration::from_millis(100);
/// A container that ran for so long begins anew.
const RESET_AFTER: Duration = Duration::from_secs(600);

/// The crash-loop back-off of one container, as Kubernetes doubles it, but for its first step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The wait after a run of length `ran`.
    pub(crate) fn next(&mut self, ran: Duration) -> Duration {
        if ran >= RESET_AFTER {
            self.failures = 0;
        }
        let wait = match self.failures {
            0 => FIRST,
            n => STEP.saturating_mul(1 << (n - 1).min(10)).min(MAX),
        };
        self.failures += 1;
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_five_minutes_and_begin_anew_after_a_long_run() {
        let mut backoff = Backoff::default();
        let waits: Vec<u128> = (0..8).map(|_| backoff.next(Duration::from_secs(1)).as_millis()).collect();
        assert_eq!(waits, [100, 10_000, 20_000, 40_000, 80_000, 160_000, 300_000, 300_000]);
        assert_eq!(backoff.next(RESET_AFTER), FIRST);
    }
}
