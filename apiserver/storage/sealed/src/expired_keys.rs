//! Removal of unused data keys: those from before a rotation, once the retained history is younger than it.
//!
//! A rotation ends when each value is sealed by a data key that is new enough, and all servers have learnt of it. A server
//! that was held still meanwhile learns of it before it seals again ([`Core::fresh`]), so an hour is enough for whatever
//! was on its way.

use crate::{error::OpenError, progress::Rotation};
use crate::{
    format,
    kinds::area,
    rotation::{PAGE, ranges},
    store::Core,
    vault,
};
use freehold_apiserver_storage::{Key, KeyRange, KeyValue, Range, StoreError};
use std::time::{Duration, Instant};

/// After so long without having asked, a server asks for rotations before it seals.
const STALE: Duration = Duration::from_secs(300);

impl Core {
    /// Makes sure that this server knows of rotations that began some minutes ago.
    pub(crate) async fn fresh(&self) -> Result<(), StoreError> {
        let known = *self.learnt.lock();
        let stale = |known: Instant| known.elapsed() > STALE;
        if self.vault.is_some() && known.is_none_or(stale) {
            self.learn().await?;
        }
        Ok(())
    }

    /// Removes data keys from before a rotation that ended, where it is time for that.
    pub(crate) async fn remove_spent(&self, rotation: &Rotation) -> Result<(), OpenError> {
        let ended = rotation.finished.as_deref().and_then(|text| text.parse::<jiff::Timestamp>().ok());
        let age = ended.map(|ended| jiff::Timestamp::now().duration_since(ended));
        let old = age.and_then(|age| Duration::try_from(age).ok()).is_some_and(|age| age >= self.kept);
        // A value that could not be opened is kept with its key, for whoever finds out why.
        if rotation.cleared || rotation.failed > 0 || rotation.revision == 0 || !old {
            return Ok(());
        }
        let keys = KeyRange::one(&Key::system("encryption/state"));
        let past = Range { keys, at: Some(rotation.revision), limit: 1, keys_only: true };
        match self.inner.range(past).await {
            Err(StoreError::Compacted { .. }) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        if self.needs_older(rotation.from_data_key).await? {
            return self.begin_again(rotation).await;
        }
        let removed = vault::remove_before(&*self.inner, rotation.from_data_key).await?;
        tracing::info!(removed, "removed unused data keys");
        let plain = vault::state(&*self.inner).await?.0.plain;
        let mut cleared = rotation.clone();
        cleared.cleared = true;
        self.note(&cleared, plain).await?;
        Ok(())
    }

    /// Whether a value is sealed by a data key from before `first`. It costs a look at each, once for a rotation: without
    /// its data key it would be lost.
    async fn needs_older(&self, first: u32) -> Result<bool, StoreError> {
        for keys in ranges() {
            let mut from = keys.start.clone();
            loop {
                let began = Instant::now();
                let found =
                    self.inner.range(Range { limit: PAGE, ..Range::all(keys.from_key(from)) }).await?;
                let older = |item: &KeyValue| {
                    area(&item.key).is_some() && format::data_key(&item.value).is_some_and(|key| key < first)
                };
                if found.items.iter().any(older) {
                    return Ok(true);
                }
                let Some(last) = found.items.last().filter(|_| found.more) else { break };
                from = KeyRange::one(&last.key).end;
                tokio::time::sleep(began.elapsed()).await;
            }
        }
        Ok(false)
    }

    /// Has a rotation that left something behind go on.
    async fn begin_again(&self, rotation: &Rotation) -> Result<(), OpenError> {
        tracing::warn!(
            number = rotation.number,
            "values still need older data keys; continuing the rotation"
        );
        let unfinished = Rotation { finished: None, revision: 0, until: 0, ..rotation.clone() };
        self.note(&unfinished, false).await?;
        self.work.notify_one();
        Ok(())
    }
}
