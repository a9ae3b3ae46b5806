//! Data keys that nothing needs any more: those from before a rotation, once what can be read of the past is from after it.
//!
//! A rotation ends when each value is sealed by a data key that is new enough, and all servers have learnt of it. A server
//! that was held still meanwhile learns of it before it seals again ([`Core::fresh`]), so an hour is enough for whatever
//! was on its way.

use crate::{
    rotation::Rotation,
    store::{Core, OpenError},
    vault,
};
use freehold_apiserver_storage::{Key, KeyRange, Range, StoreError};
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
        let removed = vault::remove_before(&*self.inner, rotation.from_data_key).await?;
        tracing::info!(removed, "data keys that nothing needs any more are gone");
        let plain = vault::state(&*self.inner).await?.0.plain;
        let mut cleared = rotation.clone();
        cleared.cleared = true;
        self.note(&cleared, plain).await?;
        Ok(())
    }
}
