//! What happened to a store while faults were injected, and whether that can be: the checker of the fault tests.
//!
//! Writers note each write and how it ended, readers what they found and watchers what they were sent. Each value is
//! written once, so that a value in a history names its write. [`History::check`] then proves, or tells what is wrong:
//!
//! - each write that was acknowledged happened, once, at the revision that was told, on its key;
//! - none that was refused happened, and none whose end is not known happened twice;
//! - nothing happened that nobody wrote;
//! - a write that began after another had been acknowledged is later than it;
//! - a read found what was acknowledged before it began, or something later, and what was there at that revision;
//! - all watchers saw the same: each change once and in order, none left out between their first and last revision;
//! - what is there in the end is what the changes add up to.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Instant;

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is there, written by this revision.
    Acknowledged(u64),
    /// It did not happen.
    Refused,
    /// No answer came: it may have happened, or happen still.
    Unknown,
}

/// One write, of a value that nobody else writes.
#[derive(Clone, Debug)]
pub struct Write {
    /// What was written to.
    pub key: String,
    /// What was written.
    pub value: String,
    /// When it was sent.
    pub begun: Instant,
    /// When its answer came.
    pub ended: Instant,
    /// What the answer was.
    pub outcome: Outcome,
}

/// One read of the latest.
#[derive(Clone, Debug)]
pub struct Read {
    /// What was read.
    pub key: String,
    /// When it was sent.
    pub begun: Instant,
    /// The value and the revision that wrote it.
    pub found: Option<(String, u64)>,
}

/// One change, as a watcher saw it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seen {
    /// Its revision.
    pub revision: u64,
    /// Its key.
    pub key: String,
    /// The new value; `None`: it was deleted.
    pub value: Option<String>,
}

/// All that was noted.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Writes, in any order.
    pub writes: Vec<Write>,
    /// Reads, in any order.
    pub reads: Vec<Read>,
    /// What each watcher saw, in its order, and the revision after which it began.
    pub watchers: Vec<(u64, Vec<Seen>)>,
    /// What was there in the end: the value of each key, and the revision that wrote it.
    pub last: BTreeMap<String, (String, u64)>,
}

type Checked = Result<(), String>;

impl History {
    /// Takes in what another has noted.
    pub fn merge(&mut self, other: Self) {
        self.writes.extend(other.writes);
        self.reads.extend(other.reads);
        self.watchers.extend(other.watchers);
        self.last.extend(other.last);
    }

    /// How many writes ended so: acknowledged, refused, unknown.
    pub fn outcomes(&self) -> (usize, usize, usize) {
        let count = |wanted: fn(Outcome) -> bool| self.writes.iter().filter(|w| wanted(w.outcome)).count();
        (
            count(|outcome| matches!(outcome, Outcome::Acknowledged(_))),
            count(|outcome| outcome == Outcome::Refused),
            count(|outcome| outcome == Outcome::Unknown),
        )
    }

    /// Whether all of this can be; if not, the first thing that is wrong.
    pub fn check(&self) -> Checked {
        for (nth, (after, seen)) in self.watchers.iter().enumerate() {
            in_order(*after, seen).map_err(|wrong| format!("watcher {nth}: {wrong}"))?;
        }
        let changes = self.changes()?;
        self.check_writes(&changes)?;
        self.check_real_time()?;
        self.check_reads(&changes)?;
        self.check_end(&changes)
    }

    /// What happened: what the watcher saw that began first, which all others saw as well.
    fn changes(&self) -> Result<Vec<Seen>, String> {
        let Some((first_after, all)) = self.watchers.iter().min_by_key(|(after, _)| *after) else {
            return Err("nobody watched".into());
        };
        for (nth, (after, seen)) in self.watchers.iter().enumerate() {
            let expected = all.iter().filter(|change| change.revision > (*after).max(*first_after));
            let mut found = seen.iter();
            for change in expected {
                match found.next() {
                    Some(same) if same == change => {}
                    other => return Err(format!("watcher {nth} saw {other:?} instead of {change:?}")),
                }
            }
            if let Some(more) = found.next() {
                return Err(format!("watcher {nth} alone saw {more:?}"));
            }
        }
        Ok(all.clone())
    }

    fn check_writes(&self, changes: &[Seen]) -> Checked {
        let mut happened: HashMap<&str, &Seen> = HashMap::new();
        for change in changes {
            let Some(value) = &change.value else { continue };
            if let Some(before) = happened.insert(value, change) {
                return Err(format!("one write happened twice: {before:?}, {change:?}"));
            }
        }
        for write in &self.writes {
            let found = happened.remove(write.value.as_str());
            match (write.outcome, found) {
                (Outcome::Acknowledged(_), None) => return Err(format!("lost: {write:?}")),
                (Outcome::Acknowledged(revision), Some(change)) if change.revision != revision => {
                    return Err(format!("acknowledged at another revision than {change:?}: {write:?}"));
                }
                (Outcome::Refused, Some(change)) => {
                    return Err(format!("refused, but {change:?}: {write:?}"));
                }
                (_, Some(change)) if change.key != write.key => {
                    return Err(format!("on another key, {change:?}: {write:?}"));
                }
                _ => {}
            }
        }
        match happened.values().next() {
            Some(ghost) => Err(format!("nobody wrote {ghost:?}")),
            None => Ok(()),
        }
    }

    /// Later writes have later revisions.
    fn check_real_time(&self) -> Checked {
        let mut done: Vec<(Instant, u64)> = self.acknowledged().map(|(w, at)| (w.ended, at)).collect();
        done.sort_unstable();
        let mut begun: Vec<(&Write, u64)> = self.acknowledged().collect();
        begun.sort_unstable_by_key(|(write, _)| write.begun);
        let (mut next, mut newest) = (0, 0);
        for (write, revision) in begun {
            while done.get(next).is_some_and(|(ended, _)| *ended < write.begun) {
                newest = newest.max(done[next].1);
                next += 1;
            }
            if revision <= newest {
                return Err(format!("began after revision {newest} was acknowledged: {write:?}"));
            }
        }
        Ok(())
    }

    fn check_reads(&self, changes: &[Seen]) -> Checked {
        let mut by_key: HashMap<&str, Vec<(Instant, u64)>> = HashMap::new();
        for (write, revision) in self.acknowledged() {
            by_key.entry(&write.key).or_default().push((write.ended, revision));
        }
        let deleted: HashSet<&str> =
            changes.iter().filter(|c| c.value.is_none()).map(|c| c.key.as_str()).collect();
        let there: HashSet<(&str, &str, u64)> = changes
            .iter()
            .filter_map(|change| Some((change.key.as_str(), change.value.as_deref()?, change.revision)))
            .collect();
        for read in &self.reads {
            let before = by_key.get(read.key.as_str()).into_iter().flatten();
            let newest =
                before.filter(|(ended, _)| *ended < read.begun).map(|(_, at)| *at).max().unwrap_or(0);
            match &read.found {
                Some((value, revision)) => {
                    if *revision < newest {
                        return Err(format!("stale, revision {newest} was acknowledged before: {read:?}"));
                    }
                    if !there.contains(&(&read.key, value, *revision)) {
                        return Err(format!("this was never there: {read:?}"));
                    }
                }
                None if newest > 0 && !deleted.contains(read.key.as_str()) => {
                    return Err(format!("not found, though revision {newest} wrote it: {read:?}"));
                }
                None => {}
            }
        }
        Ok(())
    }

    fn check_end(&self, changes: &[Seen]) -> Checked {
        let mut sum: BTreeMap<&str, (&str, u64)> = BTreeMap::new();
        for change in changes {
            match &change.value {
                Some(value) => drop(sum.insert(&change.key, (value, change.revision))),
                None => drop(sum.remove(change.key.as_str())),
            }
        }
        let last: BTreeMap<&str, (&str, u64)> =
            self.last.iter().map(|(key, (value, at))| (key.as_str(), (value.as_str(), *at))).collect();
        let differs = |key: &&&str| sum.get(**key) != last.get(**key);
        match sum.keys().chain(last.keys()).find(differs) {
            Some(key) => Err(format!(
                "in the end {key} is {:?}, and the changes add up to {:?}",
                last.get(*key),
                sum.get(*key)
            )),
            None => Ok(()),
        }
    }

    fn acknowledged(&self) -> impl Iterator<Item = (&Write, u64)> {
        self.writes.iter().filter_map(|write| match write.outcome {
            Outcome::Acknowledged(revision) => Some((write, revision)),
            Outcome::Refused | Outcome::Unknown => None,
        })
    }
}

/// Each change once, none before another that is later.
fn in_order(after: u64, seen: &[Seen]) -> Checked {
    if let Some(early) = seen.first().filter(|first| first.revision <= after) {
        return Err(format!("it began after revision {after} and saw {early:?}"));
    }
    let mut at_revision: HashSet<&str> = HashSet::new();
    let mut current = 0;
    for change in seen {
        if change.revision < current {
            return Err(format!("{change:?} came behind revision {current}"));
        }
        if change.revision > current {
            at_revision.clear();
            current = change.revision;
        }
        if !at_revision.insert(&change.key) {
            return Err(format!("{change:?} came twice"));
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
