//! The wrapper: a store over a store.

use crate::error::OpenError;
use crate::progress::Rotation;
use crate::{
    codec::{Closed, Codec, DataKeys, NoSealer},
    compress::LEVEL,
    config::EncryptionKeys,
    dictionaries,
    kinds::{Area, area},
    rotation::RotateError,
    training::Training,
    vault::{self, Vault},
};
use async_trait::async_trait;
use bytes::Bytes;
use freehold_apiserver_storage::{
    Change, Commit, Committed, Event, Hold, Key, KeyRange, KeyValue, Range, RangeResult, Revision, Store,
    StoreError, Usage, WatchItem, Watched, stepwise,
};
use freehold_telemetry::{Kind, within};
use futures_util::StreamExt;
use serde::Serialize;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::sync::{Mutex, Notify};

/// Values that are opened before others get a turn.
const TURN: usize = 256;

/// What is done to values that are written. Reading takes what there is.
#[derive(Debug)]
pub struct Options {
    /// Whether values are compressed.
    pub compression: bool,
    /// With which keys, and what, is encrypted.
    pub encryption: Option<EncryptionKeys>,
    /// How often a server looks whether a rotation was asked for, where there are keys.
    pub poll: Duration,
    /// How long data keys are kept that nothing needs any more after a rotation.
    pub kept: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            compression: true,
            encryption: None,
            poll: Duration::from_secs(5),
            kept: Duration::from_secs(3600),
        }
    }
}

/// A store that seals values on their way into another one. Cheap to clone.
#[derive(Clone)]
pub struct Sealed {
    core: Arc<Core>,
}

pub(crate) struct Core {
    /// The store that has the sealed values.
    pub(crate) inner: Arc<dyn Store>,
    pub(crate) codec: Codec,
    pub(crate) vault: Option<Vault>,
    pub(crate) training: Training,
    pub(crate) poll: Duration,
    pub(crate) kept: Duration,
    /// When rotations were asked for last.
    pub(crate) learnt: parking_lot::Mutex<Option<std::time::Instant>>,
    /// Wakes the task behind it.
    pub(crate) work: Arc<Notify>,
    making: Mutex<()>,
}

/// What is sealed, how, and by which keys.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Whether values are compressed when they are written.
    pub compression: bool,
    /// The level.
    pub level: i32,
    /// Dictionaries that were trained on this store's objects.
    pub trained_dictionaries: usize,
    /// Whether values are encrypted when they are written.
    pub encryption: bool,
    /// Names of the encryption keys, in the order of the file, and how many data keys each one seals.
    pub keys: Vec<KeyStatus>,
    /// The last rotation.
    pub rotation: Option<Rotation>,
}

/// An encryption key.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyStatus {
    /// Its name.
    pub name: String,
    /// Data keys of the store that it seals.
    pub data_keys: usize,
    /// Whether nothing in the store needs it: it can be removed from the file.
    pub removable: bool,
}

impl Sealed {
    /// Opens the wrapper over a store.
    ///
    /// # Errors
    /// [`OpenError`] where the store needs keys that were not given, or does not answer.
    pub async fn open(inner: Arc<dyn Store>, options: Options) -> Result<Self, OpenError> {
        let (state, _) = vault::state(&*inner).await?;
        let records = vault::records(&*inner).await?;
        let encrypt = options.encryption.as_ref().and_then(|keys| keys.encrypted().cloned());
        let vault = options.encryption.map(|keys| Vault { keys });
        match &vault {
            Some(vault) => vault.check(&records)?,
            None if records.is_empty() || state.plain => {}
            None => return Err(OpenError::NoKeys),
        }
        let codec = Codec {
            compress: options.compression,
            encrypt,
            dictionaries: Default::default(),
            keys: DataKeys::default(),
        };
        let known = Range { keys_only: true, ..Range::all(dictionaries::keys()) };
        for found in inner.range(known).await?.items {
            codec.dictionaries.note(&found.key);
        }
        let core = Core {
            inner,
            codec,
            vault,
            training: Training::default(),
            poll: options.poll,
            kept: options.kept,
            learnt: parking_lot::Mutex::default(),
            work: Arc::default(),
            making: Mutex::default(),
        };
        let core = Arc::new(core);
        tokio::spawn(crate::rotation::background(Arc::downgrade(&core)));
        Ok(Self { core })
    }

    /// The store with the sealed values: what a backup copies.
    pub fn raw(&self) -> &Arc<dyn Store> {
        &self.core.inner
    }

    /// Reports what is sealed, how, and by which keys.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] where the store does not answer.
    pub async fn status(&self) -> Result<Status, StoreError> {
        let core = &self.core;
        let mut counts = BTreeMap::<String, usize>::new();
        for stored in vault::records(&*core.inner).await? {
            *counts.entry(stored.record.kek).or_default() += 1;
        }
        let names: Vec<_> =
            core.vault.iter().flat_map(|vault| vault.keys.names()).map(str::to_owned).collect();
        let key = |(nth, name): (usize, String)| {
            let data_keys = counts.get(&name).copied().unwrap_or(0);
            KeyStatus { removable: nth > 0 && data_keys == 0, data_keys, name }
        };
        let (state, _) = vault::state(&*core.inner).await?;
        Ok(Status {
            compression: core.codec.compress,
            level: LEVEL,
            trained_dictionaries: core.codec.dictionaries.trained(),
            encryption: core.codec.encrypt.is_some(),
            keys: names.into_iter().enumerate().map(key).collect(),
            rotation: state.rotation,
        })
    }

    /// Begins a rotation: data keys are sealed with the first encryption key, then each value is sealed anew as it
    /// would be written today. Servers do so in the background, and [`Sealed::status`] reports their progress.
    ///
    /// # Errors
    /// [`RotateError`] without keys, while another rotation is going on, or where the store does not answer.
    pub async fn rotate(&self) -> Result<Rotation, RotateError> {
        self.core.begin_rotation().await
    }
}

impl Core {
    /// Opens a value.
    pub(crate) async fn open(&self, key: &Key, value: &Bytes) -> Result<Bytes, StoreError> {
        // What it needs is fetched once, so that this ends.
        for _ in 0..4 {
            match self.codec.open(key, value) {
                Ok(opened) => return Ok(opened),
                Err(Closed::Dictionary(id)) => self.fetch_dictionary(id).await?,
                Err(Closed::DataKey(id)) => self.fetch_key(id).await?,
                Err(Closed::Damaged(why)) => return Err(damaged(key, &why)),
            }
        }
        Err(damaged(key, "what it needs can't be kept in memory"))
    }

    async fn fetch_key(&self, id: u32) -> Result<(), StoreError> {
        let vault = self.vault.as_ref().ok_or(OpenError::NoKeys)?;
        let cipher = vault.opener(&*self.inner, id).await?;
        self.codec.keys.remember(id, cipher);
        Ok(())
    }

    /// Reads a dictionary that this server has not met.
    pub(crate) async fn fetch_dictionary(&self, id: u32) -> Result<(), StoreError> {
        let lost = |why: &str| StoreError::Corrupt(format!("dictionary {id} {why}"));
        let found = self.inner.range(Range { limit: 1, ..Range::all(dictionaries::keys_of(id)) }).await?;
        let found = found.items.first().ok_or_else(|| lost("is not in the store"))?;
        let opened = match self.codec.open(&found.key, &found.value) {
            Err(Closed::DataKey(needed)) => {
                self.fetch_key(needed).await?;
                self.codec.open(&found.key, &found.value)
            }
            other => other,
        };
        let bytes = opened.map_err(|closed| lost(&format!("can't be opened: {closed:?}")))?;
        self.codec.dictionaries.note(&found.key);
        if self.codec.dictionaries.load(id, &bytes) { Ok(()) } else { Err(lost("is damaged")) }
    }

    /// Seals a value, making a data key where there is none.
    pub(crate) async fn seal(&self, key: &Key, value: &Bytes) -> Result<Bytes, StoreError> {
        if let Some(Area::Object(ty)) = area(key)
            && let Some(id) = self.codec.dictionaries.missing(ty)
            && self.codec.compress
        {
            self.fetch_dictionary(id).await?;
        }
        self.fresh().await?;
        loop {
            match self.codec.seal(key, value) {
                Ok(sealed) => return Ok(sealed),
                Err(NoSealer) => self.make_sealer().await?,
            }
        }
    }

    async fn make_sealer(&self) -> Result<(), StoreError> {
        let vault = self.vault.as_ref().ok_or(OpenError::NoKeys)?;
        let before = self.codec.keys.current().map(|sealer| sealer.id);
        let _one = self.making.lock().await;
        if self.codec.keys.current().map(|sealer| sealer.id) != before {
            return Ok(());
        }
        let sealer = Arc::new(vault.make(&*self.inner).await?);
        self.codec.keys.sealer.store(Some(sealer));
        Ok(())
    }

    async fn open_item(&self, found: KeyValue) -> Result<KeyValue, StoreError> {
        let value = self.open(&found.key, &found.value).await?;
        Ok(KeyValue { value, ..found })
    }

    async fn open_event(&self, mut event: Event) -> Result<Event, StoreError> {
        if let Some(value) = &event.value {
            event.value = Some(self.open(&event.key, value).await?);
        }
        if let Some(previous) = event.previous.take() {
            event.previous = Some(self.open_item(previous).await?);
        }
        Ok(event)
    }

    async fn open_watched(&self, item: WatchItem) -> Result<WatchItem, StoreError> {
        let WatchItem::Events(events) = item else { return Ok(item) };
        let mut opened = Vec::with_capacity(events.len());
        for event in events {
            opened.push(self.open_event(event).await?);
            take_turns(opened.len()).await;
        }
        Ok(WatchItem::Events(opened))
    }
}

/// Lets others run from time to time.
async fn take_turns(done: usize) {
    if done.is_multiple_of(TURN) {
        tokio::task::yield_now().await;
    }
}

fn damaged(key: &Key, why: &str) -> StoreError {
    StoreError::Corrupt(format!("the value of {key:?} can't be opened: {why}"))
}

impl Sealed {
    /// Opens the values of what was read.
    async fn open_all(&self, found: &mut RangeResult) -> Result<(), StoreError> {
        for (nth, item) in found.items.iter_mut().enumerate() {
            item.value = self.core.open(&item.key, &item.value).await?;
            take_turns(nth + 1).await;
        }
        Ok(())
    }
}

#[async_trait]
impl Store for Sealed {
    async fn range(&self, range: Range) -> Result<RangeResult, StoreError> {
        let keys_only = range.keys_only;
        let mut found = within("store.range", Kind::Client, self.core.inner.range(range)).await?;
        if keys_only {
            return Ok(found);
        }
        self.open_all(&mut found).await?;
        Ok(found)
    }

    async fn ranges(
        &self,
        ranges: &[KeyRange],
        at: Revision,
        limit: usize,
    ) -> Result<Vec<RangeResult>, StoreError> {
        let reading = self.core.inner.ranges(ranges, at, limit);
        let mut found = within("store.ranges", Kind::Client, reading).await?;
        for one in &mut found {
            self.open_all(one).await?;
        }
        Ok(found)
    }

    async fn commit(&self, mut commit: Commit) -> Result<Committed, StoreError> {
        // As they are given: a value that is small enough stays so whatever comes out of it.
        commit.validate()?;
        for change in &mut commit.changes {
            if let Change::Put(key, value) = change {
                *value = self.core.seal(key, value).await?;
            }
        }
        let written: Vec<Key> = commit.changes.iter().filter_map(put_key).collect();
        match within("store.commit", Kind::Client, self.core.inner.commit(commit)).await? {
            Committed::Done(revision) => {
                self.core.observe(&written);
                Ok(Committed::Done(revision))
            }
            Committed::Refused(found) => {
                let mut opened = Vec::with_capacity(found.len());
                for found in found {
                    opened.push(match found {
                        Some(found) => Some(self.core.open_item(found).await?),
                        None => None,
                    });
                }
                Ok(Committed::Refused(opened))
            }
        }
    }

    async fn watch(&self, keys: KeyRange, after: Revision, previous: bool) -> Watched {
        let inner = self.core.inner.watch(keys, after, previous).await?;
        let core = self.core.clone();
        Ok(stepwise((inner, core), |(mut inner, core)| async move {
            let item = match inner.next().await? {
                Ok(item) => core.open_watched(item).await,
                Err(error) => Err(error),
            };
            Some((item, (inner, core)))
        }))
    }

    async fn request_progress(&self) -> Result<(), StoreError> {
        self.core.inner.request_progress().await
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        self.core.inner.revision().await
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        self.core.inner.compact(revision).await
    }

    async fn hold(&self) -> Result<Hold, StoreError> {
        self.core.inner.hold().await
    }

    async fn usage(&self, keys: KeyRange) -> Result<Usage, StoreError> {
        self.core.inner.usage(keys).await
    }
}

fn put_key(change: &Change) -> Option<Key> {
    match change {
        Change::Put(key, _) => Some(key.clone()),
        _ => None,
    }
}
