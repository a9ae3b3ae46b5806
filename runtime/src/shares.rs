//! Several instances divide the work in one place between them, by one Lease: the roster.
//!
//! The roster names the live instances, each with a counter that it advances, and the holder of each part. An instance reads
//! and writes it as a whole, at the version that it read, so that renewing, claiming and releasing are one step and a part has
//! never two holders. An instance whose counter stands still has died. Times are measured by each machine's own clock: an
//! instance that could not write in time stops its work before any other can claim what it had.

use crate::leader::{NAMESPACE, leases};
use crate::parts::Parts;
use freehold_client::{Client, Error};
use freehold_machinery::{Value, meta};
use parking_lot::Mutex;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The annotation of the Lease that has the roster.
const ROSTER: &str = "freehold.dev/roster";
/// How often an instance writes the roster.
const BEAT: Duration = Duration::from_millis(500);
/// How long an instance works after the last roster that it wrote.
const VALID: Duration = Duration::from_secs(2);
/// How long a counter has to stand still until its instance counts as dead: longer than [`VALID`] by more than a beat.
const DEAD: Duration = Duration::from_secs(3);
/// How often a write is tried again that another instance was quicker with.
const CONFLICTS: usize = 8;
/// Instances that a roster has at most.
const INSTANCES: usize = 256;

/// Which parts of the work this instance has. Cheap to clone behind its `Arc`.
#[derive(Debug)]
pub struct Shares {
    parts: Parts,
    began: Instant,
    /// Milliseconds after `began` until which the parts are certainly this instance's.
    valid_until: AtomicU64,
}

/// A part that came to this instance or left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {
    /// It is worked on as soon as this has been handled.
    Came(u32),
    /// Nothing of this instance works on it any more.
    Went(u32),
}

impl Shares {
    /// Work in `count` parts, of which this instance has none yet.
    pub fn new(count: u32) -> Arc<Self> {
        Arc::new(Self { parts: Parts::new(count), began: Instant::now(), valid_until: AtomicU64::new(0) })
    }

    /// The part of the work that some words name, the same in every instance.
    pub fn part_of(&self, words: &[&str]) -> u32 {
        self.parts.of(words)
    }

    /// Whether this instance has a part and no other can have it at this moment. To be asked again before an action that must
    /// not be done twice.
    pub fn is_ours(&self, part: u32) -> bool {
        self.parts.arriving(part) == Some(false) && self.is_valid()
    }

    /// Whether this instance has a part, though it may have to renew it before it goes on.
    pub fn has(&self, part: u32) -> bool {
        self.parts.arriving(part).is_some()
    }

    /// Does some work in a part, if and as long as it is this instance's; `None` otherwise.
    pub async fn work<T>(&self, part: u32, work: impl Future<Output = T>) -> Option<T> {
        let turn = self.is_ours(part).then(|| self.parts.begin(part))??;
        turn.during(work).await
    }

    fn is_valid(&self) -> bool {
        self.began.elapsed() < Duration::from_millis(self.valid_until.load(Ordering::Acquire))
    }

    fn renewed(&self, at: Instant) {
        let until = at.duration_since(self.began) + VALID;
        self.valid_until.store(u64::try_from(until.as_millis()).unwrap_or(u64::MAX), Ordering::Release);
    }

    fn own(&self) -> BTreeSet<u32> {
        (0..self.parts.count()).filter(|part| self.parts.arriving(*part).is_some()).collect()
    }
}

/// The content of the roster.
#[derive(Clone, Debug, Default, PartialEq)]
struct Roster {
    /// Counters of instances.
    beats: BTreeMap<String, u64>,
    /// The holder of each part; empty without one.
    holders: Vec<String>,
}

impl Roster {
    /// Reads a roster. What is no roster is an empty one: it says that nobody has anything.
    fn of(lease: &Value, count: u32) -> Self {
        let text = meta::annotation(lease, ROSTER).unwrap_or_default();
        let read: Value = serde_json::from_str(text).unwrap_or_default();
        let beats = read["beats"].as_object().into_iter().flatten();
        let beats = beats.filter_map(|(name, beat)| Some((name.clone(), beat.as_u64()?)));
        let holders = read["holders"].as_array().into_iter().flatten();
        let mut holders: Vec<String> =
            holders.map(|holder| holder.as_str().unwrap_or_default().to_owned()).collect();
        holders.resize(count as usize, String::new());
        Self { beats: beats.take(INSTANCES).collect(), holders }
    }

    fn text(&self) -> String {
        json!({"beats": self.beats, "holders": self.holders}).to_string()
    }

    /// What an instance writes: its counter is advanced, the dead are gone, what it gives up has no holder, and what nobody has
    /// it claims, up to its share.
    fn next(&self, me: &str, alive: &BTreeSet<String>, given_up: &BTreeSet<u32>) -> Self {
        let mut next = self.clone();
        next.beats.retain(|name, _| alive.contains(name));
        *next.beats.entry(me.to_owned()).or_default() += 1;
        for (part, holder) in next.holders.iter_mut().enumerate() {
            let released = holder == me && given_up.contains(&(part as u32));
            if released || !next.beats.contains_key(holder) {
                holder.clear();
            }
        }
        let mut room = next.share().saturating_sub(next.held(me).count());
        for (part, holder) in next.holders.iter_mut().enumerate() {
            if room > 0 && holder.is_empty() && !given_up.contains(&(part as u32)) {
                me.clone_into(holder);
                room -= 1;
            }
        }
        next
    }

    /// How many parts each instance has at most.
    fn share(&self) -> usize {
        self.holders.len().div_ceil(self.beats.len().max(1))
    }

    fn held(&self, me: &str) -> impl Iterator<Item = u32> {
        (0..).zip(&self.holders).filter(move |(_, holder)| *holder == me).map(|(part, _)| part)
    }

    /// The parts that an instance has beyond its share.
    fn excess(&self, me: &str) -> BTreeSet<u32> {
        self.held(me).skip(self.share()).collect()
    }
}

/// An instance among others that share work.
pub struct Sharing {
    client: Client,
    name: String,
    identity: String,
    shares: Arc<Shares>,
    /// Counters of other instances, and since when they have stood so.
    seen: HashMap<String, (u64, Instant)>,
    /// Parts whose work is being ended, or has been, though the roster says that this instance has them.
    leaving: BTreeSet<u32>,
    /// Leaving parts that nothing of this instance works on any more.
    given_up: Arc<Mutex<BTreeSet<u32>>>,
}

impl Sharing {
    /// An instance that no other is called like, among those that share work under the name of a Lease.
    pub fn new(
        client: Client,
        name: impl Into<String>,
        identity: impl Into<String>,
        shares: Arc<Shares>,
    ) -> Self {
        let (name, identity) = (name.into(), identity.into());
        Self {
            client,
            name,
            identity,
            shares,
            seen: HashMap::new(),
            leaving: BTreeSet::new(),
            given_up: Arc::default(),
        }
    }

    /// Acquires and releases parts until `stop`; then it releases all. `moved` hears of each before work on it begins, and
    /// after it ended.
    pub async fn run(mut self, stop: CancellationToken, moved: impl Fn(Shared) + Clone + Send + 'static) {
        let mut warned = false;
        while !stop.is_cancelled() {
            let begun = Instant::now();
            match tokio::time::timeout(VALID, self.write(begun, false)).await {
                Ok(Ok(roster)) => {
                    warned = false;
                    self.follow(&roster, &moved).await;
                }
                outcome => {
                    let error = match outcome {
                        Ok(Err(error)) => error.to_string(),
                        _ => "timed out".to_owned(),
                    };
                    if !std::mem::replace(&mut warned, true) {
                        tracing::warn!(
                            error,
                            lease = self.name,
                            "failed to renew this instance's share; will retry"
                        );
                    }
                }
            }
            if !self.shares.is_valid() {
                self.lose_all(&moved).await;
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(BEAT.saturating_sub(begun.elapsed())) => {}
            }
        }
        for part in self.shares.own() {
            self.shares.parts.give_back(part).await;
            moved(Shared::Went(part));
        }
        let _ = tokio::time::timeout(VALID, self.write(Instant::now(), true)).await;
    }

    /// Writes the roster once, and returns it as it is then.
    async fn write(&mut self, begun: Instant, leaves: bool) -> Result<Roster, Error> {
        let mut tries = 0;
        loop {
            let found = self.client.get_opt(&leases(), Some(NAMESPACE), &self.name).await?;
            let roster = Roster::of(found.as_ref().unwrap_or(&Value::Null), self.shares.parts.count());
            let next = match leaves {
                true => self.without_me(&roster),
                false => {
                    let alive = self.alive(&roster);
                    roster.next(&self.identity, &alive, &self.given_up.lock())
                }
            };
            match self.put(found, &next).await {
                Ok(()) => {
                    self.given_up.lock().retain(|part| next.holders[*part as usize] == self.identity);
                    // From the beginning of the request: others count from its end.
                    self.shares.renewed(begun);
                    return Ok(next);
                }
                Err(error) if (error.is_conflict() || error.is_already_exists()) && tries < CONFLICTS => {
                    tries += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn without_me(&self, roster: &Roster) -> Roster {
        let mut next = roster.clone();
        next.beats.remove(&self.identity);
        next.holders.iter_mut().filter(|holder| **holder == self.identity).for_each(String::clear);
        next
    }

    async fn put(&self, found: Option<Value>, roster: &Roster) -> Result<(), Error> {
        let spec = json!({
            "holderIdentity": self.identity, "leaseDurationSeconds": DEAD.as_secs(), "renewTime": crate::leader::now(),
        });
        let Some(mut lease) = found else {
            let metadata =
                json!({"name": self.name, "namespace": NAMESPACE, "annotations": {ROSTER: roster.text()}});
            let fresh = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec,
            });
            return self.client.create(&leases(), &fresh).await.map(drop);
        };
        lease["spec"] = spec;
        lease["metadata"]["annotations"][ROSTER] = roster.text().into();
        self.client.update(&leases(), &lease).await.map(drop)
    }

    /// The instances whose counters did not stand still for too long.
    fn alive(&mut self, roster: &Roster) -> BTreeSet<String> {
        let mut seen = HashMap::new();
        for (name, beat) in &roster.beats {
            let since = match self.seen.remove(name) {
                Some((known, since)) if known == *beat => since,
                _ => Instant::now(),
            };
            seen.insert(name.clone(), (*beat, since));
        }
        self.seen = seen;
        let alive =
            self.seen.iter().filter(|(name, (_, since))| **name == self.identity || since.elapsed() < DEAD);
        alive.map(|(name, _)| name.clone()).collect()
    }

    /// Does what the roster says: takes what this instance has, and gives up what is more than its share.
    async fn follow(&mut self, roster: &Roster, moved: &(impl Fn(Shared) + Clone + Send + 'static)) {
        let held: BTreeSet<u32> = roster.held(&self.identity).collect();
        let own = self.shares.own();
        for part in own.difference(&held) {
            // Others took this instance for dead.
            self.shares.parts.cut(*part).await;
            moved(Shared::Went(*part));
        }
        self.leaving.retain(|part| held.contains(part));
        for part in &held {
            if !own.contains(part) && !self.leaving.contains(part) {
                self.shares.parts.take(*part);
                moved(Shared::Came(*part));
                self.shares.parts.arrived(*part);
            }
        }
        for part in roster.excess(&self.identity) {
            if own.contains(&part) && self.leaving.insert(part) {
                let (shares, given_up, moved) = (self.shares.clone(), self.given_up.clone(), moved.clone());
                tokio::spawn(async move {
                    shares.parts.give_back(part).await;
                    moved(Shared::Went(part));
                    given_up.lock().insert(part);
                });
            }
        }
    }

    /// Ends all work: others may have it soon.
    async fn lose_all(&self, moved: &impl Fn(Shared)) {
        for part in self.shares.own() {
            self.shares.parts.cut(part).await;
            moved(Shared::Went(part));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn roster(count: u32) -> Roster {
        Roster::of(&Value::Null, count)
    }

    #[test]
    fn instances_come_to_hold_equal_shares_without_two_holders() {
        let mut now = roster(32);
        let all = ["a", "b", "c", "d"];
        let mut alive = BTreeSet::new();
        for round in 0..4 {
            for name in all {
                alive.insert(name.to_owned());
                let given_up = now.excess(name);
                now = now.next(name, &alive, &given_up);
                assert!(now.held(name).count() <= 32, "round {round}");
            }
        }
        for name in all {
            assert_eq!(now.held(name).count(), 8, "{name}: {now:?}");
        }
    }

    #[test]
    fn shares_of_the_dead_are_claimed_and_others_stay() {
        let both = names(&["a", "b"]);
        let mut now = roster(4).next("a", &names(&["a"]), &BTreeSet::new());
        assert_eq!(now.held("a").count(), 4);
        now = now.next("b", &both, &BTreeSet::new());
        assert_eq!(now.held("b").count(), 0, "nothing is taken from the living");
        let excess = now.excess("a");
        assert_eq!(excess, BTreeSet::from([2, 3]));
        now = now.next("a", &both, &excess).next("b", &both, &BTreeSet::new());
        assert_eq!(now.holders, ["a", "a", "b", "b"]);
        now = now.next("b", &names(&["b"]), &BTreeSet::new());
        assert_eq!((now.held("b").count(), now.beats.len()), (4, 1));
    }

    #[test]
    fn what_is_no_roster_is_an_empty_one() {
        for text in [
            "",
            "7",
            "{\"beats\": 1, \"holders\": {\"a\": 1}}",
            "{\"beats\": {\"a\": \"x\"}, \"holders\": [7]}",
        ] {
            let lease = json!({"metadata": {"annotations": {ROSTER: text}}});
            assert_eq!(Roster::of(&lease, 2), roster(2), "{text}");
        }
        let full =
            Roster { beats: BTreeMap::from([("a".to_owned(), 3)]), holders: vec!["a".into(), String::new()] };
        let lease = json!({"metadata": {"annotations": {ROSTER: full.text()}}});
        assert_eq!(Roster::of(&lease, 2), full);
    }

    #[tokio::test(start_paused = true)]
    async fn a_share_that_was_not_renewed_is_not_worked_on() {
        let shares = Shares::new(1);
        shares.parts.take(0);
        shares.renewed(Instant::now());
        assert!(!shares.is_ours(0), "its objects are not there yet");
        shares.parts.arrived(0);
        assert_eq!(shares.work(0, async { 7 }).await, Some(7));
        tokio::time::advance(VALID).await;
        assert!(!shares.is_ours(0));
        assert_eq!(shares.work(0, async { 7 }).await, None);
    }
}
