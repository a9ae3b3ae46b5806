//! Rotation: data keys are sealed with the first encryption key, then each value is sealed as it would be written today.
//!
//! One of the servers works, in the background and at most half of the time, and writes down how far it is; another one
//! goes on where it ended. Values that are sealed anew get new revisions, so watchers see their objects as modified:
//! Kubernetes' own way (`kubectl get secrets -A -o json | kubectl replace -f -`) does the same.

use crate::error::OpenError;
use crate::progress::Rotation;
use crate::{
    format,
    kinds::area,
    store::Core,
    vault::{self, State},
};
use freehold_apiserver_storage::{
    Change, Commit, Committed, Expect, Key, KeyRange, KeyValue, Range, StoreError,
};
use std::{
    sync::{Weak, atomic::Ordering},
    time::{Duration, Instant},
};

/// Keys that are read at a time.
pub(crate) const PAGE: usize = 128;
/// Values that are written at a time, and their bytes.
const BATCH: usize = 32;
const BATCH_BYTES: usize = 512 << 10;
/// How long a server that fell silent keeps the work, in seconds.
const SILENCE: i64 = 60;
/// How often progress is written down.
const NOTE: Duration = Duration::from_secs(2);

/// Why a rotation can't begin.
#[derive(Debug, thiserror::Error)]
pub enum RotateError {
    /// There are no keys to rotate.
    #[error("this server has no encryption keys")]
    NoKeys,
    /// One is going on.
    #[error("rotation {0} is in progress")]
    GoingOn(u64),
    /// The store does not answer.
    #[error("{0}")]
    Store(#[from] StoreError),
}

/// What is sealed, in the order of the work: that of the keys, for a place in it is told by one.
pub(crate) fn ranges() -> [KeyRange; 4] {
    [
        KeyRange::all_layers(),
        KeyRange::all_planes(),
        KeyRange::system("dictionaries"),
        KeyRange::system("secrets"),
    ]
}

fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// Trains and rotates as long as the store is used.
pub(crate) async fn background(core: Weak<Core>) {
    let Some((work, poll, keys)) =
        core.upgrade().map(|core| (core.work.clone(), core.poll, core.vault.is_some()))
    else {
        return;
    };
    loop {
        let Some(strong) = core.upgrade() else { return };
        strong.train().await;
        if keys && let Err(error) = strong.rotate().await {
            tracing::warn!(%error, "the rotation of encryption keys is delayed; will retry");
        }
        drop(strong);
        // Without keys there is nothing to look for, but the store may be gone.
        let pause = if keys { poll } else { Duration::from_secs(60) };
        let _ = tokio::time::timeout(pause, work.notified()).await;
    }
}

impl Core {
    pub(crate) async fn begin_rotation(&self) -> Result<Rotation, RotateError> {
        if self.vault.is_none() {
            return Err(RotateError::NoKeys);
        }
        let mut going_on = None;
        let begin = |state: &mut State| {
            going_on = state.rotation.as_ref().filter(|last| last.finished.is_none()).map(|last| last.number);
            if going_on.is_some() {
                return None;
            }
            let rotation = Rotation {
                number: state.rotation.as_ref().map_or(0, |last| last.number) + 1,
                from_data_key: state.next,
                started: jiff::Timestamp::now().to_string(),
                ..Rotation::default()
            };
            state.rotation = Some(rotation.clone());
            Some(rotation)
        };
        let begun = vault::change_state(&*self.inner, begin).await?;
        self.work.notify_one();
        begun.ok_or(RotateError::GoingOn(going_on.unwrap_or(0)))
    }

    /// Does what a rotation wants, if there is one and no other server does it.
    async fn rotate(&self) -> Result<(), OpenError> {
        let Some(rotation) = self.learn().await? else { return Ok(()) };
        if rotation.finished.is_some() {
            return self.remove_spent(&rotation).await;
        }
        if rotation.until > now() {
            return Ok(());
        }
        let Some(mut rotation) = self.claim(rotation).await? else { return Ok(()) };
        let done = self.run(&mut rotation).await;
        if done.is_err() {
            rotation.until = 0;
            let _ = self.note(&rotation, false).await;
        }
        done
    }

    /// The last rotation. From here on, this server seals with a data key of its own that is new enough for it.
    pub(crate) async fn learn(&self) -> Result<Option<Rotation>, StoreError> {
        let asked = Instant::now();
        let (state, _) = vault::state(&*self.inner).await?;
        if let Some(rotation) = &state.rotation {
            self.codec.keys.oldest.fetch_max(rotation.from_data_key, Ordering::Relaxed);
        }
        *self.learnt.lock() = Some(asked);
        Ok(state.rotation)
    }

    /// Takes the work, if it is as it was read.
    async fn claim(&self, seen: Rotation) -> Result<Option<Rotation>, StoreError> {
        let take = |state: &mut State| {
            let rotation = state.rotation.as_mut().filter(|rotation| **rotation == seen)?;
            rotation.until = now() + SILENCE;
            Some(rotation.clone())
        };
        vault::change_state(&*self.inner, take).await
    }

    /// Writes down how far it is.
    pub(crate) async fn note(&self, rotation: &Rotation, plain: bool) -> Result<(), StoreError> {
        let set = |state: &mut State| {
            let last = state.rotation.as_mut().filter(|last| last.number == rotation.number)?;
            *last = rotation.clone();
            // A data key that was made meanwhile may have sealed something.
            state.plain = plain && state.next <= rotation.from_data_key;
            Some(())
        };
        vault::change_state(&*self.inner, set).await.map(drop)
    }

    async fn run(&self, rotation: &mut Rotation) -> Result<(), OpenError> {
        let Some(vault) = &self.vault else { return Ok(()) };
        rotation.data_keys += vault.rewrap(&*self.inner).await?;
        loop {
            let sealed = rotation.sealed;
            let started = Instant::now();
            self.pass(rotation).await?;
            rotation.cursor.clear();
            // Other servers have learnt of it, and a pass that began afterwards found nothing left.
            let learnt = rotation.seen_since(self.poll);
            if rotation.sealed == sealed && rotation.passed == 0 && learnt {
                break;
            }
            self.note(&keep(rotation), false).await?;
            tokio::time::sleep(self.poll.saturating_sub(started.elapsed())).await;
        }
        rotation.data_keys += vault.rewrap(&*self.inner).await?;
        rotation.finished = Some(jiff::Timestamp::now().to_string());
        rotation.revision = self.inner.revision().await?;
        self.note(rotation, self.codec.encrypt.is_none() && rotation.failed == 0).await?;
        tracing::info!(number = rotation.number, sealed = rotation.sealed, "rotated");
        Ok(())
    }

    /// Goes through all values once, from where the work was.
    async fn pass(&self, rotation: &mut Rotation) -> Result<(), OpenError> {
        let mut noted = Instant::now();
        (rotation.failed, rotation.passed) = (0, 0);
        for keys in ranges() {
            let mut from = keys.start.clone();
            if keys.start.as_ref() < rotation.cursor.as_bytes() {
                from = rotation.cursor.clone().into();
            }
            while from < keys.end {
                let began = Instant::now();
                let range = Range { limit: PAGE, ..Range::all(keys.from_key(from.clone())) };
                let found = self.inner.range(range).await?;
                let Some(last) = found.items.last().map(|last| last.key.clone()) else { break };
                rotation.seen += found.items.len() as u64;
                let stale: Vec<_> = found
                    .items
                    .into_iter()
                    .filter(|item| self.is_stale(item, rotation.from_data_key))
                    .collect();
                self.reseal(stale, rotation).await?;
                from = KeyRange::one(&last).end;
                rotation.cursor = String::from_utf8_lossy(&from).into_owned();
                if noted.elapsed() > NOTE {
                    self.note(&keep(rotation), false).await?;
                    noted = Instant::now();
                }
                if !found.more {
                    break;
                }
                // As long for others as for this.
                tokio::time::sleep(began.elapsed()).await;
            }
        }
        Ok(())
    }

    /// Whether a value would be written otherwise today.
    fn is_stale(&self, item: &KeyValue, from: u32) -> bool {
        let Some(area) = area(&item.key) else { return false };
        match (self.codec.encrypts(area), format::data_key(&item.value)) {
            (true, Some(key)) => key < from,
            (true, None) => true,
            (false, key) => key.is_some(),
        }
    }

    /// Seals values anew, those that did not change meanwhile.
    async fn reseal(&self, stale: Vec<KeyValue>, rotation: &mut Rotation) -> Result<(), OpenError> {
        let mut commit = Commit::default();
        let mut bytes = 0;
        let mut stack = None;
        for item in stale {
            // A plane's own keys from before its record count as absent, and must not be written after it.
            let plane = item.key.split_plane().map(|(plane, _)| plane);
            if let Some(plane) = &plane
                && stack.as_ref().is_none_or(|(known, _)| known != plane)
            {
                let record = self.inner.get(&Key::stack(plane)).await?.map_or(0, |record| record.modified);
                stack = Some((plane.clone(), record));
            }
            let record = stack.as_ref().filter(|(known, _)| Some(known) == plane.as_ref());
            if record.is_some_and(|(_, record)| item.modified < *record) {
                rotation.passed += 1;
                continue;
            }
            let opened = match self.open(&item.key, &item.value).await {
                Ok(opened) => opened,
                Err(error @ (StoreError::Corrupt(_) | StoreError::Unreadable(_))) => {
                    tracing::error!(key = ?item.key, %error, "failed to re-encrypt a value");
                    rotation.failed += 1;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            if commit.changes.len() == BATCH || bytes + opened.len() > BATCH_BYTES {
                rotation.sealed += self.rewrite(std::mem::take(&mut commit)).await?;
                bytes = 0;
            }
            bytes += opened.len();
            let sealed = self.seal(&item.key, &opened).await?;
            commit.expect.push(Expect { key: item.key.clone(), modified: item.modified });
            if let Some((plane, record)) = record {
                let stack = Expect { key: Key::stack(plane), modified: *record };
                if !commit.expect.contains(&stack) {
                    commit.expect.push(stack);
                }
            }
            commit.changes.push(Change::Put(item.key, sealed));
        }
        rotation.sealed += self.rewrite(commit).await?;
        Ok(())
    }

    /// Commits together, or each on its own where one of them changed meanwhile: what was written then is new already,
    /// or comes with the next pass.
    async fn rewrite(&self, commit: Commit) -> Result<u64, StoreError> {
        let count = commit.changes.len() as u64;
        if count == 0 {
            return Ok(0);
        }
        if let Committed::Done(_) = self.inner.commit(commit.clone()).await? {
            return Ok(count);
        }
        for change in commit.changes {
            let Change::Put(key, _) = &change else { continue };
            let stack = key.split_plane().map(|(plane, _)| Key::stack(&plane));
            let concerns = |expect: &&Expect| expect.key == *key || Some(&expect.key) == stack.as_ref();
            let expect = commit.expect.iter().filter(concerns).cloned().collect();
            drop(self.inner.commit(Commit { expect, changes: vec![change] }).await?);
        }
        // Those that were refused are not told apart: another pass follows in any case.
        Ok(count)
    }
}

/// The rotation with its lease on the work renewed.
fn keep(rotation: &Rotation) -> Rotation {
    Rotation { until: now() + SILENCE, ..rotation.clone() }
}
