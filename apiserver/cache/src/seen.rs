//! Waiting for what a commit was refused for.

use crate::Cache;
use freehold_machinery::Result;

impl Cache {
    /// Waits until the cache has what a commit was refused for: the revision of that, or 0 where something was deleted.
    ///
    /// # Errors
    /// Fails where the store does not answer, or the cache is too far behind it.
    pub async fn see(&self, refused: u64) -> Result<()> {
        match refused {
            0 => self.catch_up().await.map(drop),
            revision => self.wait_for(revision).await,
        }
    }
}
