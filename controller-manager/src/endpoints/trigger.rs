//! When what led to a change happened: for those who measure how long changes take to reach everybody.
//!
//! It is the oldest of the times that are new since the last look: when pods became ready or ceased to be, and when the
//! Service was made.

use super::Pod;
use freehold_machinery::{Value, meta, time};
use freehold_runtime::Key;
use jiff::Timestamp;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

/// What was seen of each Service, until it is gone.
#[derive(Default)]
pub(super) struct Triggers {
    seen: Mutex<HashMap<Key, Seen>>,
}

#[derive(Default, PartialEq)]
struct Seen {
    service: Option<Timestamp>,
    pods: BTreeMap<Box<str>, Timestamp>,
}

impl Triggers {
    /// When what is new since the last look happened, in RFC 3339; `None`: nothing that has a time.
    pub(super) fn look(&self, key: &Key, service: &Value, pods: &[Pod]) -> Option<String> {
        let created = time::parse(meta::text(service, "creationTimestamp"));
        let turned = pods.iter().filter_map(|(pod, view)| {
            let at = if view.ready { &view.ready_since } else { &view.unready_since };
            Some((pod.name.clone(), time::parse(at)?))
        });
        let now = Seen { service: created, pods: turned.collect() };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(before) = seen.get(key) else {
            seen.insert(key.clone(), now);
            return created.map(time::format_seconds);
        };
        let of_pods = now.pods.iter().filter(|(name, at)| before.pods.get(*name).is_none_or(|old| *at > old));
        let of_service = now.service.filter(|at| before.service.is_none_or(|old| *at > old));
        let first = of_pods.map(|(_, at)| *at).chain(of_service).min();
        seen.insert(key.clone(), now);
        first.map(time::format_seconds)
    }

    /// Forgets a Service.
    pub(super) fn forget(&self, key: &Key) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}
