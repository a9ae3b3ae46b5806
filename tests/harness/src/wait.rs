//! Waiting for conditions.

use std::time::{Duration, Instant};

/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(20);

/// Waits until `look` gives something; panics, naming `what`, when it did not within `patience`.
pub fn until<T>(what: &str, patience: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < patience, "waited {patience:?} in vain: {what}");
        std::thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_with_the_condition_or_with_a_panic_that_names_it() {
        let mut looks = 0;
        let found = until("three looks", Duration::from_secs(5), || {
            looks += 1;
            (looks == 3).then_some("found")
        });
        assert_eq!(found, "found");
        let vain = std::panic::catch_unwind(|| until("never", Duration::ZERO, || None::<()>));
        let message = vain.unwrap_err().downcast_ref::<String>().cloned().unwrap();
        assert_eq!(message, "waited 0ns in vain: never");
    }
}
