//! The events of each organization, kept in the store for its owner.
//!
//! Events are collected for a second and lie in the store as compressed bundles, whatever server made them: reading and
//! watching them costs no memory. Each organization has so many bytes of them (`MAX_BYTES`) for so long (`KEPT`); the
//! oldest go first.
//!
//! ```text
//! system/audit/<organization>/<microseconds since 1970, 16 digits>-<8 hex digits>      gzip of lines of JSON
//! ```

use crate::{Deliver, Policy, PolicyError, Written};
use async_trait::async_trait;
use bytes::Bytes;
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use freehold_apiserver_storage::{
    Change, Commit, Key, KeyRange, Range, Revision, Store, StoreError, WatchItem,
};
use futures_util::{Stream, StreamExt};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Read, Write},
    sync::Arc,
    time::Duration,
};

/// How long events are kept.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// Bytes of an organization's events in the store.
const MAX_BYTES: u64 = 8 << 20;
/// Changes of a commit.
const CHANGES: usize = 100;
/// Bytes of a commit.
const COMMIT: usize = 1 << 20;
/// Bytes of a bundle before it is compressed; a further event begins another.
const BUNDLE: usize = 512 << 10;
/// The part of an organization's bundles that is removed where they take too much.
const PART: u64 = 8;
/// The events that a page has at least, where there are so many.
const PAGE: usize = 500;

/// What is recorded of requests for organizations.
const POLICY: &str = include_str!("trail-policy.yaml");

/// Why there are no events.
#[derive(Debug, thiserror::Error)]
pub enum TrailError {
    /// The store's word.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A bundle that is none.
    #[error("a bundle of audit events can't be read: {0}")]
    Broken(String),
    /// Not a place in the trail.
    #[error("the continue token is not one of audit events")]
    NoSuchPlace,
}

/// Some events, the oldest first.
#[derive(Debug, Default)]
pub struct Page {
    /// JSON, one each.
    pub events: Vec<Bytes>,
    /// Where the next page begins; `None` for the last.
    pub next: Option<String>,
    /// The revision that it was read at.
    pub revision: Revision,
}

/// Events that came together.
#[derive(Debug)]
pub struct Watched {
    /// JSON, one each.
    pub events: Vec<Bytes>,
    /// The revision from which to go on after them.
    pub revision: Revision,
}

/// The trails of all organizations.
pub struct Trail {
    store: Arc<dyn Store>,
}

fn name(organization: &str) -> String {
    format!("audit/{organization}")
}

impl Trail {
    /// The trails in a store.
    pub fn new(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self { store })
    }

    /// What is recorded in them.
    pub fn policy() -> Result<Policy, PolicyError> {
        Policy::parse(POLICY)
    }

    /// A page of an organization's events, from a place or from a time in microseconds since 1970 on. It has whole
    /// bundles: about [`PAGE`] events.
    pub async fn page(&self, organization: &str, from: &str, since: i64) -> Result<Page, TrailError> {
        let all = KeyRange::system(&name(organization));
        let start = match from {
            "" => format!("{since:016}"),
            place if place.len() <= 32 && place.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-') => {
                place.to_owned()
            }
            _ => return Err(TrailError::NoSuchPlace),
        };
        let prefix = all.start.clone();
        let mut keys = all.from_key([&prefix[..], start.as_bytes()].concat().into());
        let mut page = Page::default();
        loop {
            let found = self.store.range(Range { limit: 8, ..Range::all(keys.clone()) }).await?;
            page.revision = found.revision;
            for (at, item) in found.items.iter().enumerate() {
                page.events.extend(unpack(&item.value)?);
                let more = at + 1 < found.items.len() || found.more;
                let rest = KeyRange::one(&item.key).end;
                if page.events.len() >= PAGE && more {
                    // Behind this bundle: `-` sorts before all that may follow it.
                    let place = item.key.as_bytes().slice(prefix.len()..);
                    page.next = Some(format!("{}-", String::from_utf8_lossy(&place)));
                    return Ok(page);
                }
                keys = keys.from_key(rest);
            }
            if !found.more {
                return Ok(page);
            }
        }
    }

    /// The events of an organization as they come, after a revision; 0 is now.
    pub async fn watch(
        &self,
        organization: &str,
        after: Revision,
    ) -> Result<impl Stream<Item = Result<Watched, TrailError>> + Send + use<>, TrailError> {
        let after = if after == 0 { self.store.revision().await? } else { after };
        let items = self.store.watch(KeyRange::system(&name(organization)), after, false).await?;
        Ok(items.filter_map(|item| async move {
            match item {
                Ok(WatchItem::Events(changes)) => {
                    let revision = changes.last().map_or(0, |change| change.revision);
                    let bundles = changes.iter().filter_map(|change| change.value.as_ref());
                    let events: Result<Vec<_>, _> = bundles.map(unpack).collect();
                    match events.map(|events| events.concat()) {
                        Ok(events) if events.is_empty() => None,
                        Ok(events) => Some(Ok(Watched { events, revision })),
                        Err(error) => Some(Err(error)),
                    }
                }
                Ok(WatchItem::Progress(_)) => None,
                Err(error) => Some(Err(error.into())),
            }
        }))
    }

    /// Removes what is too old, of all organizations.
    pub async fn expire(&self) -> Result<(), TrailError> {
        let mut organizations = BTreeSet::new();
        let mut keys = KeyRange::system("audit");
        loop {
            let ask = Range { limit: 1, keys_only: true, ..Range::all(keys.clone()) };
            let found = self.store.range(ask).await?;
            let Some(item) = found.items.first() else { break };
            let text = String::from_utf8_lossy(item.key.as_bytes()).into_owned();
            let Some(organization) = text.split('/').nth(2) else { break };
            organizations.insert(organization.to_owned());
            keys = keys.from_key(KeyRange::system(&name(organization)).end);
        }
        for organization in organizations {
            let all = KeyRange::system(&name(&organization));
            let kept = i64::try_from(KEPT.as_micros()).unwrap_or(i64::MAX);
            let oldest =
                format!("{:016}", jiff::Timestamp::now().as_microsecond().saturating_sub(kept).max(0));
            let end: Bytes = [&all.start[..], oldest.as_bytes()].concat().into();
            self.store.clear(KeyRange { start: all.start, end }).await?;
        }
        Ok(())
    }

    /// Removes the oldest of an organization's events while they take too much.
    async fn trim(&self, organization: &str) -> Result<(), TrailError> {
        let all = KeyRange::system(&name(organization));
        loop {
            let taken = self.store.usage(all.clone()).await?;
            if taken.bytes <= MAX_BYTES {
                break;
            }
            let limit = usize::try_from(taken.keys / PART).unwrap_or(usize::MAX).max(1);
            let oldest =
                self.store.range(Range { limit, keys_only: true, ..Range::all(all.clone()) }).await?;
            let Some(last) = oldest.items.last() else { break };
            let end = KeyRange::one(&last.key).end;
            self.store.clear(KeyRange { start: all.start.clone(), end }).await?;
        }
        Ok(())
    }

    async fn put(&self, changes: Vec<Change>) -> Result<(), TrailError> {
        match changes.is_empty() {
            true => Ok(()),
            false => {
                self.store.commit(Commit { expect: Vec::new(), changes }).await.map(drop).map_err(Into::into)
            }
        }
    }
}

#[async_trait]
impl Deliver for Trail {
    async fn deliver(&self, events: &[Written]) -> Result<(), String> {
        let mut bundles: BTreeMap<&str, Vec<Vec<u8>>> = BTreeMap::new();
        for event in events.iter().filter(|event| !event.organization.is_empty()) {
            let bundles = bundles.entry(&event.organization).or_default();
            let room = bundles.last().is_some_and(|last| last.len() + event.json.len() < BUNDLE);
            if !room {
                bundles.push(Vec::new());
            }
            if let Some(last) = bundles.last_mut() {
                last.extend_from_slice(&event.json);
                last.push(b'\n');
            }
        }
        let (mut changes, mut bytes) = (Vec::new(), 0);
        for (organization, own) in &bundles {
            for bundle in own {
                let value = pack(bundle).map_err(|error| error.to_string())?;
                if changes.len() >= CHANGES || bytes + value.len() > COMMIT {
                    self.put(std::mem::take(&mut changes)).await.map_err(|error| error.to_string())?;
                    bytes = 0;
                }
                bytes += value.len();
                let now = jiff::Timestamp::now().as_microsecond();
                let other = &uuid::Uuid::new_v4().simple().to_string()[..8];
                let key = Key::system(&format!("{}/{now:016}-{other}", name(organization)));
                changes.push(Change::Put(key, value));
            }
        }
        self.put(changes).await.map_err(|error| error.to_string())?;
        for organization in bundles.keys() {
            self.trim(organization).await.map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

fn pack(lines: &[u8]) -> std::io::Result<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(lines)?;
    Ok(encoder.finish()?.into())
}

fn unpack(bundle: &Bytes) -> Result<Vec<Bytes>, TrailError> {
    let mut lines = Vec::new();
    // A bundle has one event more than fits at most, and that is bounded.
    let limit = 4 * (BUNDLE as u64);
    let read = GzDecoder::new(&bundle[..]).take(limit).read_to_end(&mut lines);
    read.map_err(|error| TrailError::Broken(error.to_string()))?;
    let lines = Bytes::from(lines);
    let mut events = Vec::new();
    let mut start = 0;
    for (at, _) in lines.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
        events.push(lines.slice(start..at));
        start = at + 1;
    }
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_apiserver_storage_embedded::Embedded;

    fn event(organization: &str, text: &str) -> Written {
        Written { json: text.to_owned().into(), line: None, organization: organization.into() }
    }

    fn texts(events: &[Bytes]) -> Vec<&str> {
        events.iter().map(|event| std::str::from_utf8(event).unwrap()).collect()
    }

    #[tokio::test]
    async fn an_organization_reads_and_watches_its_own_events_alone() {
        let folder = tempfile::tempdir().unwrap();
        let trail = Trail::new(Embedded::open(folder.path()).unwrap());
        trail.deliver(&[event("a", "1"), event("ab", "x"), event("a", "2"), event("", "y")]).await.unwrap();
        let page = trail.page("a", "", 0).await.unwrap();
        assert_eq!(texts(&page.events), ["1", "2"]);
        assert_eq!(page.next, None);
        let mut watch = Box::pin(trail.watch("a", page.revision).await.unwrap());
        trail.deliver(&[event("ab", "z"), event("a", "3")]).await.unwrap();
        let seen = watch.next().await.unwrap().unwrap();
        assert_eq!(texts(&seen.events), ["3"]);
        assert!(seen.revision > page.revision);
        assert!(trail.page("a", "../b", 0).await.is_err());
    }

    #[tokio::test]
    async fn pages_follow_each_other_without_a_gap() {
        let folder = tempfile::tempdir().unwrap();
        let trail = Trail::new(Embedded::open(folder.path()).unwrap());
        let mut expected = Vec::new();
        for bundle in 0..12 {
            let events: Vec<Written> = (0..100).map(|at| event("a", &format!("{bundle}-{at}"))).collect();
            expected.extend(events.iter().map(|e| e.json.clone()));
            trail.deliver(&events).await.unwrap();
        }
        let (mut seen, mut from, mut pages) = (Vec::new(), String::new(), 0);
        loop {
            let page = trail.page("a", &from, 0).await.unwrap();
            seen.extend(page.events);
            pages += 1;
            match page.next {
                Some(next) => from = next,
                None => break,
            }
        }
        assert_eq!(seen, expected);
        assert_eq!(pages, 3);
    }

    #[tokio::test]
    async fn the_oldest_events_go_when_there_are_too_many() {
        let folder = tempfile::tempdir().unwrap();
        let trail = Trail::new(Embedded::open(folder.path()).unwrap());
        for _ in 0..20 {
            // Text that does not compress well.
            let noise: String = (0..16_000).map(|_| uuid::Uuid::new_v4().simple().to_string()).collect();
            trail.deliver(&[event("a", &noise), event("a", &noise)]).await.unwrap();
        }
        let taken = trail.store.usage(KeyRange::system("audit/a")).await.unwrap().bytes;
        assert!(taken <= MAX_BYTES, "{taken}");
        assert!(taken > MAX_BYTES / 2, "{taken}");
    }

    #[tokio::test]
    async fn what_is_too_old_goes() {
        let folder = tempfile::tempdir().unwrap();
        let trail = Trail::new(Embedded::open(folder.path()).unwrap());
        let old = jiff::Timestamp::now().as_microsecond() - i64::try_from(KEPT.as_micros()).unwrap() - 1;
        for organization in ["a", "b"] {
            let key = Key::system(&format!("audit/{organization}/{old:016}-00000000"));
            trail.put(vec![Change::Put(key, pack(b"old\n").unwrap())]).await.unwrap();
            trail.deliver(&[event(organization, "new")]).await.unwrap();
        }
        trail.expire().await.unwrap();
        for organization in ["a", "b"] {
            assert_eq!(texts(&trail.page(organization, "", 0).await.unwrap().events), ["new"]);
        }
    }

    #[test]
    fn the_policy_of_trails_is_one() {
        Trail::policy().unwrap();
    }
}
