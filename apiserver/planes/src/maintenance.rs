//! Maintenance after operations on planes, and after a server was killed during one: background work that is retried
//! until it is done.

use crate::{Planes, burial, stored};
use freehold_machinery::{Result, Status};
use std::{sync::Weak, time::Duration};

/// How often it is looked for what other servers have left.
const EVERY: Duration = Duration::from_secs(60);
/// When it is tried again where the store did not answer.
const AGAIN: Duration = Duration::from_secs(2);

/// Tidies up as long as the planes are there.
pub(crate) async fn run(planes: Weak<Planes>) {
    loop {
        let Some(strong) = planes.upgrade() else { return };
        let wake = strong.upkeep.clone();
        let done = strong.tidy().await;
        drop(strong);
        let pause = match done {
            Ok(()) => EVERY,
            Err(error) => {
                tracing::warn!(%error, "failed to remove leftovers of operations on planes; will retry");
                AGAIN
            }
        };
        let _ = tokio::time::timeout(pause, wake.notified()).await;
    }
}

impl Planes {
    async fn tidy(&self) -> Result<()> {
        // One that can't be done holds up no other.
        let mut done = vec![self.hand_out_classes().await];
        for store in self.stores.all() {
            done.push(burial::finish_all(&**store, &self.cache).await.map_err(Status::from));
            done.push(stored::collect_all(store).await);
        }
        done.into_iter().collect()
    }
}
