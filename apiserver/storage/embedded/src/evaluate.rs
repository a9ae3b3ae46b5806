//! What a group of queued commits changes: evaluated in order, each on top of those before it, before any is written.

use crate::{
    codec::{self, Logged},
    disk::Disk,
    recent::Changes,
};
use bytes::Bytes;
use fjall::{OwnedWriteBatch, Snapshot};
use freehold_apiserver_storage::{
    Change, Commit, Committed, Event, Expect, Key, KeyRange, KeyValue, Revision, StoreError,
};
use std::{collections::BTreeMap, ops::Bound, ops::ControlFlow};

/// Commits that will be written together.
pub(crate) struct Group<'a> {
    disk: &'a Disk,
    /// What is on disk: nobody else writes while the group is made.
    snapshot: Snapshot,
    /// The revision of the last commit of the group that changed something.
    revision: Revision,
    /// The keys that the group has read or changed so far, as they are after it; `None`: absent.
    overlay: BTreeMap<Bytes, Option<KeyValue>>,
    changes: Vec<Changes>,
}

impl<'a> Group<'a> {
    /// An empty group on top of what is on disk, which is at `revision`.
    pub(crate) fn new(disk: &'a Disk, revision: Revision) -> Self {
        Self { disk, snapshot: disk.snapshot(), revision, overlay: BTreeMap::new(), changes: Vec::new() }
    }

    /// Evaluates one more commit. After an error the group is as it was.
    pub(crate) fn add(&mut self, commit: Commit) -> Result<Committed, StoreError> {
        if let Some(found) = self.refusal(&commit.expect)? {
            return Ok(Committed::Refused(found));
        }
        let revision = self.revision + 1;
        let mut events = Vec::with_capacity(commit.changes.len());
        for change in commit.changes {
            match change {
                Change::Put(key, value) => events.push(put(self.head(&key)?, key, value, revision)),
                Change::Delete(key) => events.extend(self.head(&key)?.map(|found| delete(found, revision))),
                Change::DeleteRange(range) => {
                    events.extend(self.heads(&range)?.into_iter().map(|found| delete(found, revision)));
                }
            }
        }
        if !events.is_empty() {
            self.revision = revision;
            self.apply(events);
        }
        Ok(Committed::Done(self.revision))
    }

    /// Fills a batch with all of it.
    pub(crate) fn write(&self, batch: &mut OwnedWriteBatch) {
        for Changes { revision, events } in &self.changes {
            let mut record = Vec::new();
            for event in events {
                let value = event.value.as_deref().unwrap_or_default();
                self.disk.put_version(batch, &event.key, *revision, event.created, value);
                let previous = event.previous.as_ref().map_or(0, |previous| previous.modified);
                let key = event.key.as_bytes().clone();
                codec::log_change(&mut record, &Logged { created: event.created, previous, key });
            }
            self.disk.put_record(batch, *revision, record);
        }
    }

    /// The changes, one entry for each new revision.
    pub(crate) fn into_changes(self) -> Vec<Changes> {
        self.changes
    }

    /// What the expected keys are, if they are not as expected.
    fn refusal(&mut self, expect: &[Expect]) -> Result<Option<Vec<Option<KeyValue>>>, StoreError> {
        let found = expect.iter().map(|expect| self.head(&expect.key)).collect::<Result<Vec<_>, _>>()?;
        let holds = |(expect, found): (&Expect, &Option<KeyValue>)| {
            expect.modified == found.as_ref().map_or(0, |found| found.modified)
        };
        Ok((!expect.iter().zip(&found).all(holds)).then_some(found))
    }

    fn head(&mut self, key: &Key) -> Result<Option<KeyValue>, StoreError> {
        if let Some(head) = self.overlay.get(key.as_bytes()) {
            return Ok(head.clone());
        }
        let head = self.disk.version_at(&self.snapshot, key, Revision::MAX)?;
        self.overlay.insert(key.as_bytes().clone(), head.clone());
        Ok(head)
    }

    fn heads(&self, range: &KeyRange) -> Result<Vec<KeyValue>, StoreError> {
        let mut heads = BTreeMap::new();
        self.disk.scan(&self.snapshot, range, Revision::MAX, |found| {
            let found = found.to_key_value(false)?;
            heads.insert(found.key.as_bytes().clone(), Some(found));
            Ok(ControlFlow::Continue(()))
        })?;
        if range.start < range.end {
            let bounds = (Bound::Included(&range.start), Bound::Excluded(&range.end));
            let changed = self.overlay.range::<Bytes, _>(bounds);
            heads.extend(changed.map(|(key, head)| (key.clone(), head.clone())));
        }
        Ok(heads.into_values().flatten().collect())
    }

    fn apply(&mut self, events: Vec<Event>) {
        for event in &events {
            let head = event.value.clone().map(|value| KeyValue {
                key: event.key.clone(),
                value,
                created: event.created,
                modified: event.revision,
            });
            self.overlay.insert(event.key.as_bytes().clone(), head);
        }
        self.changes.push(Changes { revision: self.revision, events });
    }
}

fn put(previous: Option<KeyValue>, key: Key, value: Bytes, revision: Revision) -> Event {
    let created = previous.as_ref().map_or(revision, |previous| previous.created);
    Event { key, revision, value: Some(value), created, previous }
}

fn delete(previous: KeyValue, revision: Revision) -> Event {
    Event { key: previous.key.clone(), revision, value: None, created: 0, previous: Some(previous) }
}
