//! Data keys in the store, sealed by key-encryption keys.
//!
//! | key | value, JSON |
//! | --- | --- |
//! | `system/encryption/keys/<id, ten digits>` | `kek`: the name of the key that seals it; `wrapped`: base64 of nonce, ciphertext and tag, with the additional data `freehold data key <id>`; `created` |
//! | `system/encryption/state` | `next`: the identifier of the next data key; `plain`: whether no value is encrypted; `rotation` |
//!
//! A data key is in the store before the first value that it seals, and stays there as long as a value needs it, one of the
//! past too ([`spent`](crate::expired_keys)). It is worth nothing without the key-encryption key.

use crate::{
    cipher::{self, Cipher, Sealer},
    config::EncryptionKeys,
};
use crate::{error::OpenError, progress::Rotation};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use freehold_apiserver_storage::{
    Change, Commit, Committed, Expect, Key, KeyRange, KeyValue, Range, Store, StoreError,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::sync::Arc;

/// A data key as the store has it.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The name of the key-encryption key.
    pub(crate) kek: String,
    wrapped: String,
    created: String,
}

/// What servers agree on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct State {
    /// The identifier of the next data key.
    pub(crate) next: u32,
    /// No value is encrypted: a rotation made all plain and nothing was encrypted since.
    #[serde(default)]
    pub(crate) plain: bool,
    /// The last rotation.
    #[serde(default)]
    pub(crate) rotation: Option<Rotation>,
}

/// A data key's record with where it lies.
pub(crate) struct Stored {
    pub(crate) id: u32,
    pub(crate) record: Record,
    modified: u64,
}

/// The key-encryption keys, and what they seal in the store.
pub(crate) struct Vault {
    pub(crate) keys: EncryptionKeys,
}

fn state_key() -> Key {
    Key::system("encryption/state")
}

fn record_key(id: u32) -> Key {
    Key::system(&format!("encryption/keys/{id:010}"))
}

fn parse<T: DeserializeOwned>(found: &KeyValue) -> Result<T, StoreError> {
    serde_json::from_slice(&found.value)
        .map_err(|error| StoreError::Corrupt(format!("{:?} can't be read: {error}", found.key)))
}

fn json(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).expect("strings and numbers are always JSON").into()
}

/// What servers agreed on, and the revision that wrote it.
pub(crate) async fn state(store: &dyn Store) -> Result<(State, u64), StoreError> {
    match store.get(&state_key()).await? {
        Some(found) => Ok((parse(&found)?, found.modified)),
        None => Ok((State { next: 1, ..State::default() }, 0)),
    }
}

/// Changes what servers agreed on, as often as it takes; `None` from `change` leaves it.
pub(crate) async fn change_state<T>(
    store: &dyn Store,
    mut change: impl FnMut(&mut State) -> Option<T>,
) -> Result<Option<T>, StoreError> {
    loop {
        let (mut state, modified) = state(store).await?;
        let Some(outcome) = change(&mut state) else { return Ok(None) };
        if put(store, vec![(state_key(), modified, json(&state))]).await? {
            return Ok(Some(outcome));
        }
    }
}

/// Sets keys that are as they were read; false if one is not.
async fn put(store: &dyn Store, keys: Vec<(Key, u64, Bytes)>) -> Result<bool, StoreError> {
    let expect =
        keys.iter().map(|(key, modified, _)| Expect { key: key.clone(), modified: *modified }).collect();
    let changes = keys.into_iter().map(|(key, _, value)| Change::Put(key, value)).collect();
    Ok(matches!(store.commit(Commit { expect, changes }).await?, Committed::Done(_)))
}

/// All data keys, by their identifiers.
pub(crate) async fn records(store: &dyn Store) -> Result<Vec<Stored>, StoreError> {
    let found = store.range(Range::all(KeyRange::system("encryption/keys"))).await?;
    found.items.iter().map(stored).collect()
}

fn stored(found: &KeyValue) -> Result<Stored, StoreError> {
    let id = found.key.as_bytes().rsplit(|byte| *byte == b'/').next();
    let id = id.and_then(|id| std::str::from_utf8(id).ok()?.parse().ok());
    let id = id.ok_or_else(|| StoreError::Corrupt(format!("{:?} names no data key", found.key)))?;
    Ok(Stored { id, record: parse(found)?, modified: found.modified })
}

/// Removes the data keys below `id`; gives how many.
pub(crate) async fn remove_before(store: &dyn Store, id: u32) -> Result<usize, StoreError> {
    let mut removed = 0;
    for stored in records(store).await?.into_iter().filter(|stored| stored.id < id) {
        let expect = vec![Expect { key: record_key(stored.id), modified: stored.modified }];
        let changes = vec![Change::Delete(record_key(stored.id))];
        removed += usize::from(matches!(store.commit(Commit { expect, changes }).await?, Committed::Done(_)));
    }
    Ok(removed)
}

impl Vault {
    /// Checks that each data key of the store can be unwrapped.
    pub(crate) fn check(&self, records: &[Stored]) -> Result<(), OpenError> {
        records.iter().try_for_each(|stored| self.unwrap(stored).map(drop))
    }

    fn unwrap(&self, stored: &Stored) -> Result<cipher::KeyBytes, OpenError> {
        let Stored { id, record, .. } = stored;
        let kek = self.keys.get(&record.kek).ok_or_else(|| OpenError::UnknownKey {
            data_key: *id,
            key: record.kek.clone(),
            given: self.keys.names().collect::<Vec<_>>().join(", "),
        })?;
        let wrong = || OpenError::WrongKey { data_key: *id, key: record.kek.clone() };
        let wrapped = STANDARD.decode(&record.wrapped).map_err(|_| wrong())?;
        kek.unwrap(*id, &wrapped).map_err(|_| wrong())
    }

    /// Reads a data key that opens.
    pub(crate) async fn opener(&self, store: &dyn Store, id: u32) -> Result<Arc<Cipher>, OpenError> {
        let found = store.get(&record_key(id)).await?.ok_or(OpenError::NoDataKey(id))?;
        let key = self.unwrap(&stored(&found)?)?;
        Ok(Arc::new(Cipher::new(&key).map_err(|_| OpenError::Library)?))
    }

    fn wrap(&self, id: u32, key: &cipher::KeyBytes, created: String) -> Result<Record, OpenError> {
        let (name, kek) = self.keys.first().ok_or(OpenError::Library)?;
        let wrapped = kek.wrap(id, key).map_err(|_| OpenError::Library)?;
        Ok(Record { kek: name.to_owned(), wrapped: STANDARD.encode(wrapped), created })
    }

    /// Makes a data key of this process's own and stores it.
    pub(crate) async fn make(&self, store: &dyn Store) -> Result<Sealer, OpenError> {
        let key = cipher::random_key().map_err(|_| OpenError::Library)?;
        loop {
            let (mut state, modified) = state(store).await?;
            let id = state.next;
            (state.next, state.plain) = (id.checked_add(1).ok_or(OpenError::Library)?, false);
            let record = self.wrap(id, &key, jiff::Timestamp::now().to_string())?;
            let changes = vec![(state_key(), modified, json(&state)), (record_key(id), 0, json(&record))];
            if put(store, changes).await? {
                tracing::info!(data_key = id, kek = record.kek, "created a data key");
                return Ok(Sealer::new(id, Cipher::new(&key).map_err(|_| OpenError::Library)?));
            }
        }
    }

    /// Seals each data key anew that another key-encryption key than the first sealed; gives how many.
    pub(crate) async fn rewrap(&self, store: &dyn Store) -> Result<usize, OpenError> {
        let mut done = 0;
        let first = self.keys.first().map(|(name, _)| name.to_owned()).unwrap_or_default();
        for stored in records(store).await?.into_iter().filter(|stored| stored.record.kek != first) {
            let key = self.unwrap(&stored)?;
            let fresh = self.wrap(stored.id, &key, stored.record.created.clone())?;
            // Whoever was faster did the same.
            done +=
                usize::from(put(store, vec![(record_key(stored.id), stored.modified, json(&fresh))]).await?);
        }
        Ok(done)
    }
}
