//! A token bucket. Pure: callers pass the time in.

use std::time::Instant;

/// How much may happen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    /// Over time.
    pub(crate) per_second: f64,
    /// At once.
    pub(crate) burst: f64,
}

/// What is left of a rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    left: f64,
    at: Instant,
}

impl Bucket {
    /// A full bucket.
    pub(crate) fn new(rate: Rate, now: Instant) -> Self {
        Self { left: rate.burst, at: now }
    }

    /// Takes one, if there is one.
    pub(crate) fn take(&mut self, rate: Rate, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + passed * rate.per_second).min(rate.burst);
        self.at = now;
        let taken = self.left >= 1.0;
        if taken {
            self.left -= 1.0;
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_burst_is_spent_and_comes_back_with_time() {
        let (rate, start) = (Rate { per_second: 2.0, burst: 3.0 }, Instant::now());
        let mut bucket = Bucket::new(rate, start);
        let taken = (0..5).filter(|_| bucket.take(rate, start)).count();
        assert_eq!(taken, 3);
        assert!(bucket.take(rate, start + Duration::from_millis(500)));
        assert!(!bucket.take(rate, start + Duration::from_millis(600)));
    }
}
