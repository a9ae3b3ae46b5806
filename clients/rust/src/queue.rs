//! What waits to be reconciled: each request once, and never two at a time for one object.

use crate::Request;
use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::Duration,
};

const FIRST_RETRY: Duration = Duration::from_millis(100);
const LAST_RETRY: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(crate) struct Queue {
    waiting: VecDeque<Request>,
    queued: HashSet<Request>,
    running: HashSet<Request>,
    failures: HashMap<Request, u32>,
}

impl Queue {
    /// Adds a request, unless it waits already. One that is running runs again afterwards.
    pub(crate) fn add(&mut self, request: Request) {
        if self.queued.insert(request.clone()) && !self.running.contains(&request) {
            self.waiting.push_back(request);
        }
    }

    /// The next request, if fewer than a number are running.
    pub(crate) fn start(&mut self, limit: usize) -> Option<Request> {
        if self.running.len() >= limit {
            return None;
        }
        let next = self.waiting.pop_front()?;
        self.queued.remove(&next);
        self.running.insert(next.clone());
        Some(next)
    }

    /// Notes that a request is done.
    pub(crate) fn done(&mut self, request: &Request) {
        self.running.remove(request);
        if self.queued.contains(request) {
            self.waiting.push_back(request.clone());
        }
    }

    /// How long to wait before a request that failed is tried again: twice as long each time.
    pub(crate) fn failed(&mut self, request: &Request) -> Duration {
        let times = self.failures.entry(request.clone()).or_default();
        *times += 1;
        FIRST_RETRY.saturating_mul(1 << (*times - 1).min(20)).min(LAST_RETRY)
    }

    /// Notes that a request went well.
    pub(crate) fn succeeded(&mut self, request: &Request) {
        self.failures.remove(request);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(consumer: &str) -> Request {
        Request { consumer: consumer.into(), namespace: "default".into(), name: "orders".into() }
    }

    #[test]
    fn an_object_is_never_reconciled_twice_at_once_and_no_change_is_lost() {
        let mut queue = Queue::default();
        queue.add(request("a"));
        queue.add(request("a"));
        queue.add(request("b"));
        assert_eq!(queue.start(2), Some(request("a")));
        queue.add(request("a"));
        assert_eq!(queue.start(2), Some(request("b")), "equal names of two consumers are two objects");
        assert_eq!(queue.start(2), None);
        queue.done(&request("b"));
        assert_eq!(queue.start(2), None, "it is running");
        queue.done(&request("a"));
        assert_eq!(queue.start(2), Some(request("a")), "it changed meanwhile");
        assert_eq!(queue.start(2), None);
    }

    #[test]
    fn retries_take_longer_up_to_a_minute() {
        let mut queue = Queue::default();
        let waits: Vec<_> = (0..12).map(|_| queue.failed(&request("a")).as_millis()).collect();
        assert_eq!((waits[0], waits[1], waits[11]), (100, 200, 60_000));
        queue.succeeded(&request("a"));
        assert_eq!(queue.failed(&request("a")).as_millis(), 100);
    }
}
