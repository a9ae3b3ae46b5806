//! The census: which planes have objects of which collections, so that a list over all planes reads those alone.
//!
//! A plane takes the space of its name here and eight bytes for each collection in it. Counted once, by a scan of the
//! store's keys when it is first asked for, and kept current by the feed.

use crate::{Cache, CacheEvent, event, layer::collection};
use freehold_apiserver_storage::{Key, Range};
use freehold_machinery::{PlaneId, Result};
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant},
};

/// Keys in one read of the store.
const CHUNK: usize = 2_000;
/// How long a plane that has become empty is remembered, for lists as of a revision at which it was not.
const REMEMBERED: Duration = Duration::from_secs(900);

/// A change: plane, collection, growth of its number of keys, and revision.
type Growth = (PlaneId, Box<str>, i32, u64);

/// How many keys each plane has of each collection.
#[derive(Default)]
pub(crate) struct Census {
    /// The revision as of which it was counted; `None` while it was not. Older revisions are not known here.
    counted: Option<u64>,
    /// Changes during a count; `None` while none is in progress.
    pending: Option<Vec<Growth>>,
    names: HashMap<Box<str>, u32>,
    /// Keys of each collection, by its number.
    totals: Vec<i64>,
    planes: BTreeMap<PlaneId, Box<[(u32, u32)]>>,
    /// Planes that became empty, and when they did last.
    emptied: BTreeMap<PlaneId, Instant>,
}

impl Census {
    fn add(&mut self, plane: &PlaneId, collection: &str, growth: i32) {
        let number = match self.names.get(collection) {
            Some(number) => *number,
            None => {
                let number = self.names.len() as u32;
                self.names.insert(collection.into(), number);
                self.totals.push(0);
                number
            }
        };
        if let Some(total) = self.totals.get_mut(number as usize) {
            *total += i64::from(growth);
        }
        if !self.planes.contains_key(plane) {
            self.planes.insert(plane.clone(), Box::default());
        }
        let Some(counts) = self.planes.get_mut(plane) else { return };
        match counts.iter_mut().find(|(known, _)| *known == number) {
            Some((_, count)) => *count = count.saturating_add_signed(growth),
            None => *counts = counts.iter().copied().chain([(number, growth.max(0) as u32)]).collect(),
        }
        if growth < 0 && counts.iter().all(|(_, count)| *count == 0) {
            self.emptied.insert(plane.clone(), Instant::now());
        }
    }

    /// Applies an event of the feed.
    pub(crate) fn apply(&mut self, event: &CacheEvent) {
        match (event.growth, self.counted) {
            (0, _) => {}
            (growth, Some(counted)) if event.revision > counted => {
                self.add(&event.plane, event.collection(), growth);
            }
            (growth, None) => {
                let told = || (event.plane.clone(), event.collection().into(), growth, event.revision);
                self.pending.iter_mut().for_each(|pending| pending.push(told()));
            }
            _ => {}
        }
    }

    /// Forgets planes that have been empty for long.
    pub(crate) fn sweep(&mut self) {
        let planes = &mut self.planes;
        self.emptied.retain(|plane, since| {
            let is_old = since.elapsed() > REMEMBERED;
            let is_empty = |counts: &[(u32, u32)]| counts.iter().all(|(_, count)| *count == 0);
            if is_old && planes.get(plane).is_some_and(|counts| is_empty(counts)) {
                planes.remove(plane);
            }
            !is_old
        });
    }

    fn count(&mut self, key: &Key) {
        if let Some((plane, span)) = event::split(key) {
            self.add(&plane, event::names(key, span).0, 1);
        }
    }

    fn finish(&mut self, counted: Self) {
        let pending = std::mem::take(&mut self.pending);
        *self = counted;
        for (plane, collection, growth, revision) in pending.unwrap_or_default() {
            if self.counted.is_some_and(|counted| revision > counted) {
                self.add(&plane, &collection, growth);
            }
        }
    }

    fn with(&self, collection: &str) -> Vec<PlaneId> {
        let Some(number) = self.names.get(collection) else { return Vec::new() };
        let has = |counts: &[(u32, u32)]| counts.iter().any(|(known, _)| known == number);
        self.planes.iter().filter(|(_, counts)| has(counts)).map(|(plane, _)| plane.clone()).collect()
    }

    /// Bytes that it takes, about.
    pub(crate) fn bytes(&self) -> usize {
        let counts: usize = self.planes.values().map(|counts| size_of_val(&**counts)).sum();
        let pending = self.pending.as_ref().map_or(0, |pending| pending.len() * PENDING);
        counts
            + pending
            + self.planes.len() * PLANE
            + self.names.keys().map(|name| name.len() + 64).sum::<usize>()
    }
}

/// Bytes of a plane besides its counts: its identifier and its node in the tree.
const PLANE: usize = 112;
/// Bytes of an event that arrived during a count.
const PENDING: usize = 112;

/// Guard that records changes while a count is in progress.
struct Counting<'a>(&'a Mutex<Census>);

impl<'a> Counting<'a> {
    fn begin(census: &'a Mutex<Census>) -> Self {
        census.lock().pending = Some(Vec::new());
        Self(census)
    }
}

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        self.0.lock().pending = None;
    }
}

impl Cache {
    /// The planes that have own objects of a collection (`group/resource`) as of a revision, in order. Planes that no
    /// longer have any may be among them. The first call reads all keys of the store.
    pub(crate) async fn planes_with(&self, collection: &str, at: u64) -> Result<Vec<PlaneId>> {
        let counting = self.counting.lock().await;
        if self.census.lock().counted.is_none() {
            let _noted = Counting::begin(&self.census);
            let counted = self.scan_keys(None).await?;
            // Each event of the feed is in the scan, pending, or yet to come.
            self.census.lock().finish(counted);
        }
        drop(counting);
        {
            let census = self.census.lock();
            if census.counted.is_some_and(|counted| counted <= at) {
                return Ok(census.with(collection));
            }
        }
        Ok(self.scan_keys(Some(at)).await?.with(collection))
    }

    /// Own objects of all planes together for each group and resource, the largest numbers first. Empty before the
    /// first list over all planes, which counts them.
    pub fn totals(&self) -> Vec<(String, String, u64)> {
        let census = self.census.lock();
        let counted = census.counted.is_some();
        let count = |number: &u32| census.totals.get(*number as usize).map_or(0, |total| *total);
        let named = census.names.iter().filter(|_| counted).filter_map(|(name, number)| {
            let (group, resource) = name.split_once('/')?;
            let group = if group == "core" { "" } else { group };
            Some((group.to_owned(), resource.to_owned(), u64::try_from(count(number)).ok()?))
        });
        let mut totals: Vec<_> = named.collect();
        totals.sort_by(|a, b| b.2.cmp(&a.2).then_with(|| a.cmp(b)));
        totals
    }

    /// Lists the planes that have own objects of a resource now, in order.
    ///
    /// # Errors
    /// 503 where the store does not answer.
    pub async fn planes_with_own(&self, group: &str, resource: &str) -> Result<Vec<PlaneId>> {
        let now = self.catch_up().await?;
        self.planes_with(&collection(group, resource), now).await
    }

    async fn scan_keys(&self, mut at: Option<u64>) -> Result<Census> {
        let mut census = Census::default();
        let mut keys = self.keys().clone();
        loop {
            let range = Range { keys: keys.clone(), at, limit: CHUNK, keys_only: true };
            let page = self.stores.system().range(range).await?;
            census.counted = Some(*at.get_or_insert(page.revision));
            page.items.iter().for_each(|item| census.count(&item.key));
            match page.rest(&keys) {
                Some(rest) => keys = rest,
                None => return Ok(census),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plane_that_becomes_empty_again_and_again_is_noted_once() {
        let (mut census, plane) = (Census::default(), "a".parse().unwrap());
        for _ in 0..100 {
            census.add(&plane, "core/configmaps", 1);
            census.add(&plane, "core/configmaps", -1);
        }
        assert_eq!(census.emptied.len(), 1);
        census.sweep();
        assert_eq!(census.with("core/configmaps"), [plane], "lists of the past look at it");
    }
}
