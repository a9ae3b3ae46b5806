//! Webhooks of providers that let a request wait until its time was over.
//!
//! Whoever comes after that is told so at once, but for one request now and then: a webhook that hangs keeps no more
//! than that one waiting, of however many consumers.

use freehold_apiserver_admission::webhook::ClientConfig;
use freehold_machinery::PlaneId;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// How long nobody else asks a webhook that let somebody wait.
const REST: Duration = Duration::from_secs(5);
/// Webhooks that are noted; over it those that may be asked again go.
const MAX: usize = 1024;

/// A webhook of a provider's plane.
type Key = (PlaneId, ClientConfig);

/// The webhooks, each with the time that it is left alone until.
#[derive(Default)]
pub(super) struct Stalled(Mutex<HashMap<Key, Instant>>);

impl Stalled {
    /// Whether a webhook is to be left alone. Who is told otherwise is the only one for a while.
    pub(super) fn rests(&self, plane: &PlaneId, client: &ClientConfig) -> bool {
        let (now, mut noted) = (Instant::now(), self.0.lock());
        if noted.is_empty() {
            return false;
        }
        match noted.get_mut(&(plane.clone(), client.clone())) {
            Some(until) if now < *until => true,
            Some(until) => {
                *until = now + REST;
                false
            }
            None => false,
        }
    }

    /// Takes in whether a webhook let a request wait until its time was over.
    pub(super) fn note(&self, plane: &PlaneId, client: &ClientConfig, has_stalled: bool) {
        let (now, mut noted) = (Instant::now(), self.0.lock());
        if !has_stalled && noted.is_empty() {
            return;
        }
        let key = (plane.clone(), client.clone());
        if !has_stalled {
            noted.remove(&key);
            return;
        }
        if noted.len() >= MAX && !noted.contains_key(&key) {
            noted.retain(|_, until| now < *until);
            if noted.len() >= MAX {
                noted.clear();
            }
        }
        noted.insert(key, now + REST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_webhook_that_stalled_is_left_alone_until_it_answers() {
        let stalled = Stalled::default();
        let plane = PlaneId::core();
        let client = |host: &str| ClientConfig::of(&json!({"url": format!("https://{host}")})).unwrap();
        let (one, other) = (client("a.example"), client("b.example"));
        assert!(!stalled.rests(&plane, &one));
        stalled.note(&plane, &one, true);
        assert!(stalled.rests(&plane, &one) && !stalled.rests(&plane, &other));
        assert!(!stalled.rests(&PlaneId::infra(), &one), "another plane's is another");
        stalled.note(&plane, &one, false);
        assert!(!stalled.rests(&plane, &one));
        (0..2 * MAX).for_each(|nth| stalled.note(&plane, &client(&format!("h{nth}.example")), true));
        assert!(stalled.0.lock().len() <= MAX);
    }

    #[test]
    fn one_request_tries_a_webhook_again() {
        let stalled = Stalled::default();
        let (plane, client) =
            (PlaneId::core(), ClientConfig::of(&json!({"url": "https://a.example"})).unwrap());
        stalled.note(&plane, &client, true);
        stalled.0.lock().values_mut().for_each(|until| *until = Instant::now());
        assert!(!stalled.rests(&plane, &client), "its time is over");
        assert!(stalled.rests(&plane, &client), "one tries at a time");
    }
}
