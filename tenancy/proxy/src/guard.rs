//! The end of watches whose caller is no longer entitled to them.
//!
//! The API server does not know that a watch through the proxy's account is a member's. So the proxy asks it again who
//! the caller is, every few seconds, and compares what is the caller's at each change of tenants and namespaces.

use crate::access::Access;
use crate::caller::{Caller, Clients};
use crate::lines::lines;
use crate::reply::{self, Reply};
use bytes::Bytes;
use freehold_client::Download;
use freehold_tenancy_decide::admission::User;
use futures_util::{Stream, StreamExt as _, stream};
use std::sync::Arc;
use std::time::Duration;

/// How often the API server is asked who the caller is.
const REVIEW: Duration = Duration::from_secs(10);
/// How long changes are collected.
const COLLECT: Duration = Duration::from_millis(50);

/// What a user is entitled to.
type Entitled<T> = Box<dyn Fn(&Access, &User) -> T + Send + Sync>;

/// What a watch rests on.
pub(crate) struct Guard<T> {
    pub(crate) access: Access,
    pub(crate) clients: Arc<Clients>,
    pub(crate) caller: Caller,
    pub(crate) user: User,
    pub(crate) entitled: Entitled<T>,
}

impl<T: PartialEq + Send + 'static> Guard<T> {
    /// Resolves when the caller is no longer entitled to what it was, or to more.
    async fn ended(self, before: T) -> &'static str {
        let mut changes = self.access.changes();
        changes.mark_unchanged();
        let mut review = tokio::time::interval(REVIEW);
        review.reset();
        loop {
            if (self.entitled)(&self.access, &self.user) != before {
                return "what is yours has changed";
            }
            tokio::select! {
                changed = changes.changed() => match changed {
                    Ok(()) => tokio::time::sleep(COLLECT).await,
                    Err(_) => return "the proxy stops",
                },
                _ = review.tick() => match self.caller.user(&self.clients).await {
                    Ok(Some(user)) if user == self.user => {}
                    Ok(_) => return "your identity has ended",
                    Err(error) => tracing::debug!(%error, "failed to review a caller; will retry"),
                },
            }
        }
    }

    /// Lines until the entitlement changes; then one that makes the client list again.
    pub(crate) fn over(self, before: T, lines: impl Stream<Item = Bytes> + Send + 'static) -> Reply {
        let ended = Box::pin(self.ended(before));
        let states = (Box::pin(lines), Some(ended));
        reply::lines(stream::unfold(states, |(mut lines, ended)| async move {
            let mut ended = ended?;
            tokio::select! {
                why = &mut ended => Some((reply::list_again(why), (lines, None))),
                line = lines.next() => Some((line?, (lines, Some(ended)))),
            }
        }))
    }

    /// The lines of an answer until the entitlement changes.
    pub(crate) fn watch(self, before: T, download: Download) -> Reply {
        self.over(before, lines(download))
    }
}
