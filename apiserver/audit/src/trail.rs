//! The events of each organization, kept in the store for its owner.
//!
//! Events are collected for a second and lie in the store as compressed bundles, whatever server made them: reading and
//! watching them costs no memory. Each kind of author has so many bytes of them ([`Share`]), for so long (`KEPT`); the
//! oldest of the kind go first. A trail is its organization's by uid and goes with it.
//!
//! ```text
//! system/audit/<organization's uid>/<share>/<microseconds since 1970, 16 digits>-<8 hex digits>      gzip of lines of JSON
//! ```

use crate::{Address, Deliver, Policy, PolicyError, Share, Written};
use async_trait::async_trait;
use bytes::Bytes;
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use freehold_apiserver_storage::{
    Change, Commit, Key, KeyRange, Range, Revision, Store, StoreError, WatchItem,
};
use futures_util::{Stream, StreamExt};
use serde::Deserialize;
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    io::{Read, Write},
    sync::Arc,
    time::Duration,
};

/// How long events are kept.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// Changes of a commit.
const CHANGES: usize = 100;
/// Bytes of a commit.
const COMMIT: usize = 1 << 20;
/// Bytes of a bundle before it is compressed; a further event begins another.
const BUNDLE: usize = 512 << 10;
/// The part of a share's bundles that is removed where they take too much.
const PART: u64 = 8;
/// The events that a page has at least, where there are so many.
const PAGE: usize = 500;
/// Bundles of each share that are read at a time.
const READ: usize = 8;
/// Digits of a time in keys.
const DIGITS: usize = 16;

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

fn keys_of(organization: &str, share: Share) -> KeyRange {
    KeyRange::system(&format!("{}/{}", name(organization), share.name()))
}

/// The keys of a share from a time on.
fn since(organization: &str, share: Share, time: i64) -> KeyRange {
    let all = keys_of(organization, share);
    let start = [&all.start[..], format!("{time:0DIGITS$}").as_bytes()].concat();
    all.from_key(start.into())
}

/// Bundles, by the time that stands in their keys.
type Bundles = BTreeMap<i64, Vec<Bytes>>;

/// The time in a key of a bundle.
fn time_of(key: &Key) -> Option<i64> {
    let at = key.as_bytes().iter().rposition(|byte| *byte == b'/')? + 1;
    std::str::from_utf8(key.as_bytes().get(at..at + DIGITS)?).ok()?.parse().ok()
}

/// The token with which a list goes on from a time. It is of one organization.
fn token(organization: &str, time: i64) -> String {
    format!("{organization}.{time:0DIGITS$}")
}

fn time_of_token(organization: &str, token: &str) -> Option<i64> {
    let time = token.strip_prefix(organization)?.strip_prefix('.')?;
    let is_time = time.len() == DIGITS && time.bytes().all(|byte| byte.is_ascii_digit());
    time.parse().ok().filter(|_| is_time)
}

/// When the stage of an event was, as its text sorts; empty for what has none.
fn stage_time(event: &Bytes) -> Box<str> {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Timed<'a> {
        #[serde(borrow)]
        stage_timestamp: Cow<'a, str>,
    }
    let timed: Timed<'_> = serde_json::from_slice(event).unwrap_or_default();
    timed.stage_timestamp.into()
}

impl Trail {
    /// The trails in a store.
    pub fn new(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self { store })
    }

    /// The policy that decides which requests are recorded in trails.
    ///
    /// # Errors
    /// [`PolicyError`] never occurs while the built-in text is valid, which a test checks.
    pub fn policy() -> Result<Policy, PolicyError> {
        Policy::parse(POLICY)
    }

    /// A page of an organization's events, from a place or from a time in microseconds since 1970 on, in the order of
    /// their time over all shares. It has whole bundles: about [`PAGE`] events.
    ///
    /// # Errors
    /// [`TrailError::NoSuchPlace`] for a place that no page of this organization gave.
    pub async fn page(&self, organization: &str, from: &str, since: i64) -> Result<Page, TrailError> {
        let mut from = match from {
            "" => since,
            place => time_of_token(organization, place).ok_or(TrailError::NoSuchPlace)?,
        };
        let mut page = Page::default();
        loop {
            let (bundles, more, revision) = self.bundles(organization, from).await?;
            page.revision = revision;
            let times: Vec<i64> = bundles.keys().copied().collect();
            for (nth, bundle) in bundles.into_values().enumerate() {
                for bundle in bundle {
                    page.events.extend(unpack(&bundle)?);
                }
                from = times[nth].saturating_add(1);
                if page.events.len() >= PAGE && (more || nth + 1 < times.len()) {
                    page.next = Some(token(organization, from));
                    break;
                }
            }
            if page.next.is_some() || !more {
                page.events.sort_by_cached_key(stage_time);
                return Ok(page);
            }
        }
    }

    /// The first bundles of all shares from a time on, whether there are more behind them, and the revision.
    async fn bundles(&self, organization: &str, from: i64) -> Result<(Bundles, bool, Revision), TrailError> {
        let (mut bundles, mut revision) = (Bundles::new(), 0);
        // Up to where nothing is missing.
        let mut end = None;
        for share in Share::ALL {
            let keys = since(organization, share, from);
            let found = self.store.range(Range { limit: READ, ..Range::all(keys.clone()) }).await?;
            revision = found.revision.max(revision);
            let last = found.items.last().and_then(|item| time_of(&item.key)).filter(|_| found.more);
            end = end.into_iter().chain(last).min();
            for item in found.items {
                let time =
                    time_of(&item.key).ok_or_else(|| TrailError::Broken("its key has no time".into()))?;
                bundles.entry(time).or_default().push(item.value);
            }
        }
        let Some(end) = end else { return Ok((bundles, false, revision)) };
        // Of the last time of a share that has more, others may be behind it: all of that time are read.
        bundles.retain(|time, _| *time < end);
        if bundles.is_empty() {
            bundles.insert(end, self.bundles_at(organization, end).await?);
        }
        Ok((bundles, true, revision))
    }

    async fn bundles_at(&self, organization: &str, time: i64) -> Result<Vec<Bytes>, TrailError> {
        let mut bundles = Vec::new();
        for share in Share::ALL {
            let keys = since(organization, share, time);
            let end = since(organization, share, time.saturating_add(1)).start;
            let found = self.store.range(Range::all(KeyRange { end, ..keys })).await?;
            bundles.extend(found.items.into_iter().map(|item| item.value));
        }
        Ok(bundles)
    }

    /// Streams the events of an organization after a revision as they are recorded; 0 is now.
    ///
    /// # Errors
    /// [`TrailError`] where the store does not answer or that revision is compacted.
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

    /// The organizations that have a trail, by uid.
    ///
    /// # Errors
    /// What the store says.
    pub async fn organizations(&self) -> Result<BTreeSet<String>, TrailError> {
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
        Ok(organizations)
    }

    /// Removes the trail of an organization that is gone. To be done again does no harm.
    ///
    /// # Errors
    /// What the store says.
    pub async fn clear(&self, organization: &str) -> Result<(), TrailError> {
        Ok(self.store.clear(KeyRange::system(&name(organization))).await.map(drop)?)
    }

    /// Removes what is too old, of all organizations.
    ///
    /// # Errors
    /// What the store says.
    pub async fn expire(&self) -> Result<(), TrailError> {
        let kept = i64::try_from(KEPT.as_micros()).unwrap_or(i64::MAX);
        let oldest = jiff::Timestamp::now().as_microsecond().saturating_sub(kept).max(0);
        for organization in self.organizations().await? {
            for share in Share::ALL {
                let end = since(&organization, share, oldest).start;
                self.store.clear(KeyRange { end, ..keys_of(&organization, share) }).await?;
            }
        }
        Ok(())
    }

    /// Removes the oldest of a share's events while they take too much.
    async fn trim(&self, address: &Address) -> Result<(), TrailError> {
        let all = keys_of(&address.organization, address.share);
        loop {
            let taken = self.store.usage(all.clone()).await?;
            if taken.bytes <= address.share.bytes() {
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
        let mut bundles: BTreeMap<&Address, Vec<Vec<u8>>> = BTreeMap::new();
        for event in events {
            let Some(address) = &event.address else { continue };
            let bundles = bundles.entry(address).or_default();
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
        let now = jiff::Timestamp::now().as_microsecond();
        for (address, own) in &bundles {
            // What came together has one time in all shares.
            for (time, bundle) in (now..).zip(own) {
                let value = pack(bundle).map_err(|error| error.to_string())?;
                if changes.len() >= CHANGES || bytes + value.len() > COMMIT {
                    self.put(std::mem::take(&mut changes)).await.map_err(|error| error.to_string())?;
                    bytes = 0;
                }
                bytes += value.len();
                let other = &uuid::Uuid::new_v4().simple().to_string()[..8];
                let (of, share) = (name(&address.organization), address.share.name());
                changes
                    .push(Change::Put(Key::system(&format!("{of}/{share}/{time:0DIGITS$}-{other}")), value));
            }
        }
        self.put(changes).await.map_err(|error| error.to_string())?;
        for address in bundles.into_keys() {
            self.trim(address).await.map_err(|error| error.to_string())?;
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

    fn event_in(share: Share, organization: &str, text: &str) -> Written {
        let address = Some(Address { organization: organization.into(), share });
        Written { json: text.to_owned().into(), line: None, address }
    }

    fn event(organization: &str, text: &str) -> Written {
        event_in(Share::Members, organization, text)
    }

    fn trail() -> (tempfile::TempDir, Arc<Trail>) {
        let folder = tempfile::tempdir().unwrap();
        let trail = Trail::new(Embedded::open(folder.path()).unwrap());
        (folder, trail)
    }

    fn texts(events: &[Bytes]) -> Vec<&str> {
        events.iter().map(|event| std::str::from_utf8(event).unwrap()).collect()
    }

    /// All pages: what they have, and how many they are.
    async fn read(trail: &Trail, organization: &str) -> (Vec<Bytes>, usize) {
        let (mut seen, mut from, mut pages) = (Vec::new(), String::new(), 0);
        loop {
            let page = trail.page(organization, &from, 0).await.unwrap();
            seen.extend(page.events);
            pages += 1;
            match page.next {
                Some(next) => from = next,
                None => return (seen, pages),
            }
        }
    }

    #[tokio::test]
    async fn an_organization_reads_and_watches_its_own_events_alone() {
        let (_folder, trail) = trail();
        let nobodys = Written { address: None, ..event("", "y") };
        trail.deliver(&[event("a", "1"), event("ab", "x"), event("a", "2"), nobodys]).await.unwrap();
        let page = trail.page("a", "", 0).await.unwrap();
        assert_eq!(texts(&page.events), ["1", "2"]);
        assert_eq!(page.next, None);
        let mut watch = Box::pin(trail.watch("a", page.revision).await.unwrap());
        trail.deliver(&[event("ab", "z"), event_in(Share::Strangers, "a", "3")]).await.unwrap();
        let seen = watch.next().await.unwrap().unwrap();
        assert_eq!(texts(&seen.events), ["3"]);
        assert!(seen.revision > page.revision);
        assert!(trail.page("a", "../b", 0).await.is_err());
    }

    #[tokio::test]
    async fn pages_follow_each_other_without_a_gap_over_all_shares() {
        let (_folder, trail) = trail();
        let mut expected = Vec::new();
        for bundle in 0..40 {
            let at = |nth: usize| format!(r#"{{"stageTimestamp":"{bundle:03}-{nth:03}"}}"#);
            // Shares have unequal numbers of bundles.
            let share =
                |nth: usize| if bundle % 3 == 0 { Share::ALL[nth % 5] } else { Share::ALL[bundle % 2] };
            let events: Vec<Written> = (0..50).map(|nth| event_in(share(nth), "a", &at(nth))).collect();
            expected.extend(events.iter().map(|e| e.json.clone()));
            trail.deliver(&events).await.unwrap();
        }
        let (seen, pages) = read(&trail, "a").await;
        assert_eq!(seen, expected);
        assert_eq!(pages, 4);
    }

    #[tokio::test]
    async fn bundles_of_one_time_are_on_one_page_however_many_they_are() {
        let (_folder, trail) = trail();
        for nth in 0..30 {
            let key = Key::system(&format!("audit/a/busy/{:016}-{nth:08x}", 5));
            let lines = format!("{nth}\n").repeat(30);
            trail.put(vec![Change::Put(key, pack(lines.as_bytes()).unwrap())]).await.unwrap();
        }
        assert_eq!(trail.page("a", "", 0).await.unwrap().events.len(), 900);
        assert_eq!(read(&trail, "a").await.0.len(), 900);
    }

    #[tokio::test]
    async fn a_place_in_one_trail_is_none_in_another() {
        let (_folder, trail) = trail();
        for organization in ["a", "b"] {
            let events: Vec<Written> = (0..600).map(|at| event(organization, &at.to_string())).collect();
            for _ in 0..2 {
                trail.deliver(&events).await.unwrap();
            }
        }
        let next = trail.page("a", "", 0).await.unwrap().next.expect("there is more");
        assert!(trail.page("a", &next, 0).await.is_ok());
        let wrong = [next.as_str(), "b", "b.", "b.1", "b.-000000000000001", "b.00000000000000000"];
        for token in wrong {
            assert!(matches!(trail.page("b", token, 0).await, Err(TrailError::NoSuchPlace)), "{token}");
        }
    }

    #[tokio::test]
    async fn a_flood_of_one_share_removes_the_oldest_of_that_share_alone() {
        let (_folder, trail) = trail();
        trail.deliver(&[event("a", "kept")]).await.unwrap();
        for _ in 0..10 {
            // Text that does not compress well.
            let noise: String = (0..16_000).map(|_| uuid::Uuid::new_v4().simple().to_string()).collect();
            let strangers = event_in(Share::Strangers, "a", &noise);
            trail.deliver(&[strangers.clone(), strangers]).await.unwrap();
        }
        let taken = trail.store.usage(keys_of("a", Share::Strangers)).await.unwrap().bytes;
        assert!(taken <= Share::Strangers.bytes() && taken > Share::Strangers.bytes() / 2, "{taken}");
        assert_eq!(texts(&trail.page("a", "", 0).await.unwrap().events[..1]), ["kept"]);
    }

    #[tokio::test]
    async fn what_is_too_old_goes() {
        let (_folder, trail) = trail();
        let old = jiff::Timestamp::now().as_microsecond() - i64::try_from(KEPT.as_micros()).unwrap() - 1;
        for organization in ["a", "b"] {
            let key = Key::system(&format!("audit/{organization}/members/{old:016}-00000000"));
            trail.put(vec![Change::Put(key, pack(b"old\n").unwrap())]).await.unwrap();
            trail.deliver(&[event(organization, "new")]).await.unwrap();
        }
        trail.expire().await.unwrap();
        for organization in ["a", "b"] {
            assert_eq!(texts(&trail.page(organization, "", 0).await.unwrap().events), ["new"]);
        }
    }

    #[tokio::test]
    async fn a_trail_goes_whole_and_alone() {
        let (_folder, trail) = trail();
        for share in Share::ALL {
            trail.deliver(&[event_in(share, "a", "1"), event_in(share, "ab", "2")]).await.unwrap();
        }
        assert_eq!(trail.organizations().await.unwrap(), ["a".to_owned(), "ab".to_owned()].into());
        for _ in 0..2 {
            trail.clear("a").await.unwrap();
        }
        assert_eq!(trail.organizations().await.unwrap(), ["ab".to_owned()].into());
    }

    #[test]
    fn the_policy_of_trails_is_one() {
        Trail::policy().unwrap();
    }
}
