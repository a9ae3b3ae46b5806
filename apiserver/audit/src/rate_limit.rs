//! Rate limits: a token bucket for each key in use, up to a limit of buckets.

use std::{collections::HashMap, time::Instant};

/// Buckets that are kept.
const MAX: usize = 16 * 1024;

/// How much a bucket gives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    /// Tokens that it gets a second.
    pub(crate) second: f32,
    /// Tokens that it holds.
    pub(crate) burst: f32,
}

struct Bucket {
    rate: Rate,
    tokens: f32,
    last: Instant,
    left_out: u32,
}

impl Bucket {
    fn fill(&mut self, now: Instant) {
        let gained = now.saturating_duration_since(self.last).as_secs_f32() * self.rate.second;
        self.tokens = (self.tokens + gained).min(self.rate.burst);
        self.last = now;
    }

    /// Whether nothing is lost with it.
    fn is_idle(&mut self, now: Instant) -> bool {
        self.fill(now);
        self.tokens >= self.rate.burst && self.left_out == 0
    }
}

/// Buckets by the hash of what they are for.
#[derive(Default)]
pub(crate) struct RateLimits(HashMap<u64, Bucket>);

impl RateLimits {
    /// The bucket of a key; `None` where there is no room for another.
    fn bucket(&mut self, key: u64, rate: Rate, now: Instant) -> Option<&mut Bucket> {
        if self.0.len() >= MAX && !self.0.contains_key(&key) {
            self.0.retain(|_, bucket| !bucket.is_idle(now));
            if self.0.len() >= MAX {
                return None;
            }
        }
        let new = || Bucket { rate, tokens: rate.burst, last: now, left_out: 0 };
        Some(self.0.entry(key).or_insert_with(new))
    }

    /// Whether there is a token.
    pub(crate) fn has(&mut self, key: u64, rate: Rate, now: Instant) -> bool {
        self.bucket(key, rate, now).is_some_and(|bucket| {
            bucket.fill(now);
            bucket.tokens >= 1.0
        })
    }

    /// Takes a token; false where there is none.
    pub(crate) fn take(&mut self, key: u64, rate: Rate, now: Instant) -> bool {
        let has = self.has(key, rate, now);
        if let Some(bucket) = self.0.get_mut(&key).filter(|_| has) {
            bucket.tokens -= 1.0;
        }
        has
    }

    /// Counts something that was left out.
    pub(crate) fn left_out(&mut self, key: u64, rate: Rate, now: Instant) {
        if let Some(bucket) = self.bucket(key, rate, now) {
            bucket.left_out = bucket.left_out.saturating_add(1);
        }
    }

    /// How much was left out, which is reported now.
    pub(crate) fn reported(&mut self, key: u64) -> u32 {
        self.0.get_mut(&key).map_or(0, |bucket| std::mem::take(&mut bucket.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const RATE: Rate = Rate { second: 1.0, burst: 2.0 };

    #[test]
    fn a_bucket_gives_what_it_holds_and_then_what_it_gets() {
        let (mut pace, now) = (RateLimits::default(), Instant::now());
        let taken: Vec<bool> = (0..3).map(|_| pace.take(1, RATE, now)).collect();
        assert_eq!(taken, [true, true, false]);
        let later = now + Duration::from_secs(1);
        assert!(pace.take(1, RATE, later) && !pace.take(1, RATE, later));
    }

    #[test]
    fn idle_buckets_make_room_and_busy_ones_stay() {
        let (mut pace, now) = (RateLimits::default(), Instant::now());
        for key in 0..MAX as u64 {
            assert!(pace.take(key, RATE, now));
        }
        assert!(!pace.take(u64::MAX, RATE, now), "all are in use");
        let later = now + Duration::from_secs(2);
        assert!(pace.take(7, RATE, now) && !pace.take(7, RATE, now));
        assert!(pace.take(u64::MAX, RATE, later));
        assert!(pace.0.len() < 10, "{}", pace.0.len());
    }
}
