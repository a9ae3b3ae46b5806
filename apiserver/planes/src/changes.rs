//! Change notifications for a plane or for an organization's projects. They cost nothing where nobody subscribes.

use crate::{Directory, policies};
use freehold_apiserver_cache::{Cache, CacheEvent, Change, EventKind};
use freehold_machinery::{PlaneId, api_service};
use parking_lot::Mutex;
use std::{
    borrow::Borrow,
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Weak},
};
use tokio::sync::watch;

/// Keys that are remembered before those for which nobody waits are looked for.
const MAX_KEYS: usize = 2_048;

pub(crate) type ChangeSender = watch::Sender<u64>;

/// What identities rest on: with one of these that is gone, some of them end.
const FOOTINGS: [(&str, &str); 5] = [
    ("", "serviceaccounts"),
    ("", "secrets"),
    ("", "pods"),
    ("", "nodes"),
    ("iam.freehold.dev", "identityproviders"),
];

/// Tells those who wait for it that something has changed at a key. One that nobody waits for is not known.
pub(crate) struct Changes<K = PlaneId> {
    waiting: Mutex<HashMap<K, Weak<ChangeSender>>>,
}

impl<K> Default for Changes<K> {
    fn default() -> Self {
        Self { waiting: Mutex::default() }
    }
}

impl<K: Clone + Eq + Hash> Changes<K> {
    /// Tells who waits for a key.
    pub(crate) fn tell<Q: ?Sized + Eq + Hash>(&self, key: &Q)
    where
        K: Borrow<Q>,
    {
        let mut waiting = self.waiting.lock();
        let Some(told) = waiting.get(key) else { return };
        match told.upgrade() {
            Some(told) => told.send_modify(|count| *count += 1),
            None => drop(waiting.remove(key)),
        }
    }

    /// Whether nobody waits for anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.lock().is_empty()
    }

    /// What tells of a key, for as long as it is kept.
    pub(crate) fn of(&self, key: &K) -> Arc<ChangeSender> {
        let mut waiting = self.waiting.lock();
        if let Some(told) = waiting.get(key).and_then(Weak::upgrade) {
            return told;
        }
        if waiting.len() >= MAX_KEYS {
            waiting.retain(|_, told| told.strong_count() > 0);
        }
        let told = Arc::new(ChangeSender::new(0));
        waiting.insert(key.clone(), Arc::downgrade(&told));
        told
    }
}

/// Tells of a plane's roles and bindings.
pub(crate) fn of_policies(cache: &Cache) -> Arc<Changes> {
    start(cache, policies::RESOURCES.map(|resource| (policies::GROUP, resource)), |_| true)
}

/// Tells of what identities rest on in a plane, when it goes.
pub(crate) fn of_footings(cache: &Cache) -> Arc<Changes> {
    let goes = |change: &Change| change.kind == EventKind::Deleted || change.entry.is_deleting();
    start(cache, FOOTINGS, move |event| event.change().is_none_or(goes))
}

/// Tells of dedicated pairs.
pub(crate) fn of_pairs(cache: &Cache) -> Arc<Changes> {
    start(cache, [("infrastructure.freehold.dev", "projectcontrolplanes")], |_| true)
}

fn start<const N: usize>(
    cache: &Cache,
    resources: [(&'static str, &'static str); N],
    counts: impl Fn(&CacheEvent) -> bool + Copy + Send + Sync + 'static,
) -> Arc<Changes> {
    let changes: Arc<Changes> = Arc::default();
    for (group, resource) in resources {
        let weak = Arc::downgrade(&changes);
        cache.observe_everywhere(group, resource, move |event| {
            if let (Some(changes), Some(event)) = (weak.upgrade(), event.filter(|event| counts(event))) {
                changes.tell(&event.plane);
            }
        });
    }
    changes
}

/// Tells the directory's organizations of what other servers serve in their projects, and of who may ask them.
pub(crate) fn of_servers(cache: &Cache, directory: &Arc<Directory>) {
    let rules = policies::RESOURCES.map(|resource| (policies::GROUP, resource));
    for (group, resource) in rules.into_iter().chain([(api_service::GROUP, api_service::RESOURCE)]) {
        let weak = Arc::downgrade(directory);
        cache.observe_everywhere(group, resource, move |event| {
            // Registrations of the plane's own types name no Service.
            let named = |change: &Change| !change.entry.field("spec.service.name").is_empty();
            let counts =
                |event: &&CacheEvent| group != api_service::GROUP || event.change().is_none_or(named);
            if let (Some(directory), Some(event)) = (weak.upgrade(), event.filter(counts)) {
                directory.tell(&event.plane);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_is_told_and_who_waits_no_longer_is_forgotten() {
        let changes: Changes<Arc<str>> = Changes::default();
        changes.tell("a");
        assert!(changes.is_empty());
        let (a, b) = (changes.of(&"a".into()), changes.of(&"b".into()));
        let mut seen = [a.subscribe(), b.subscribe()];
        changes.tell("a");
        assert_eq!(seen.each_mut().map(|seen| seen.has_changed().unwrap_or(true)), [true, false]);
        assert!(Arc::ptr_eq(&a, &changes.of(&"a".into())));
        drop((a, b));
        changes.tell("a");
        changes.tell("b");
        assert!(changes.is_empty());
    }
}
