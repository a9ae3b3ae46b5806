//! Requests that took long: the latest of them, at `/debug/slow-requests`.
//!
//! What is kept has a limit, and each control plane has few places of it: one that is slow all day does not hide the
//! others. Queries and bodies are left out, since they can hold what only the requester should know.

use freehold_machinery::{PlaneId, User, time};
use http::request::Parts;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

/// From how long on a request is slow: kube-apiserver logs a trace of those that take longer.
pub(crate) const SLOW: Duration = Duration::from_millis(500);
/// Requests that are kept, and of them those of one control plane.
const KEPT: usize = 256;
const OF_ONE: usize = 32;
/// Characters of a text that is kept of a request.
const LONGEST: usize = 256;

/// Who sent a request, and which control plane it was for, as far as that is known.
#[derive(Clone, Default)]
pub(crate) struct Sender {
    pub(crate) user: Option<Arc<User>>,
    pub(crate) plane: Option<PlaneId>,
}

/// What is known of a request that was answered.
pub(crate) struct Answered<'a> {
    pub(crate) parts: &'a Parts,
    pub(crate) sender: Sender,
    pub(crate) verb: &'a str,
    pub(crate) code: u16,
    pub(crate) started: Instant,
    pub(crate) audit_id: &'a str,
}

struct Slow {
    at: Timestamp,
    millis: u64,
    verb: String,
    path: String,
    code: u16,
    user: String,
    agent: String,
    audit_id: String,
    plane: Option<PlaneId>,
}

/// The latest slow requests of this process.
#[derive(Default)]
pub(crate) struct SlowRequests(Mutex<VecDeque<Slow>>);

/// The beginning of a text.
fn short(text: &str) -> String {
    text.chars().take(LONGEST).collect()
}

impl SlowRequests {
    /// Keeps a request if it was slow.
    pub(crate) fn note(&self, answered: Answered<'_>) {
        let took = answered.started.elapsed();
        if took < SLOW {
            return;
        }
        let Answered { parts, sender: Sender { user, plane }, verb, code, audit_id, .. } = answered;
        let header = |name| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        self.keep(Slow {
            at: Timestamp::now(),
            millis: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            verb: short(verb),
            path: short(parts.uri.path()),
            code,
            user: short(user.as_ref().map_or("", |user| user.name.as_str())),
            agent: short(header(http::header::USER_AGENT)),
            audit_id: short(audit_id),
            plane,
        });
    }

    fn keep(&self, slow: Slow) {
        let mut kept = self.0.lock();
        let own = kept.iter().filter(|other| other.plane == slow.plane).count();
        let oldest = match own >= OF_ONE {
            true => kept.iter().position(|other| other.plane == slow.plane),
            false => (kept.len() >= KEPT).then_some(0),
        };
        if let Some(oldest) = oldest {
            kept.remove(oldest);
        }
        kept.push_back(slow);
    }

    /// All that are kept, the latest first, with the names that projects' planes have.
    pub(crate) fn document(&self, project: impl Fn(&PlaneId) -> Option<Arc<str>>) -> Value {
        let kept = self.0.lock();
        let items: Vec<Value> = kept
            .iter()
            .rev()
            .map(|slow| {
                json!({
                    "time": time::format_micro(slow.at),
                    "milliseconds": slow.millis,
                    "verb": slow.verb,
                    "path": slow.path,
                    "code": slow.code,
                    "user": slow.user,
                    "userAgent": slow.agent,
                    "auditID": slow.audit_id,
                    "plane": slow.plane.as_ref().map(ToString::to_string),
                    "project": slow.plane.as_ref().and_then(&project).map(|name| name.to_string()),
                })
            })
            .collect();
        json!({"thresholdMilliseconds": SLOW.as_millis() as u64, "kept": KEPT, "items": items})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slow(plane: &str, number: u64) -> Slow {
        Slow {
            at: Timestamp::UNIX_EPOCH,
            millis: number,
            verb: "list".into(),
            path: "/api/v1/pods".into(),
            code: 200,
            user: "jane".into(),
            agent: String::new(),
            audit_id: String::new(),
            plane: plane.parse().ok(),
        }
    }

    #[test]
    fn a_plane_that_is_slow_all_day_leaves_the_others_their_places() {
        let requests = SlowRequests::default();
        requests.keep(slow("quiet", 1));
        (0..10_000).for_each(|number| requests.keep(slow("noisy", number)));
        let document = requests.document(|_| None);
        let of = |plane: &str| {
            let items = document["items"].as_array().unwrap().iter();
            items
                .filter(|item| item["plane"] == plane)
                .map(|item| item["milliseconds"].as_u64().unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(of("quiet"), [1]);
        assert_eq!(of("noisy"), (9_968..10_000).rev().collect::<Vec<_>>());
    }

    #[test]
    fn so_many_are_kept_and_no_more() {
        let requests = SlowRequests::default();
        (0..1000).for_each(|number| requests.keep(slow(&format!("plane-{number}"), number)));
        assert_eq!(requests.document(|_| None)["items"].as_array().unwrap().len(), KEPT);
    }
}
