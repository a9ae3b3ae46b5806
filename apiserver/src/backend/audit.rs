//! Whose requests are, and the trails of organizations.

use crate::local::LocalBackend;
use crate::trails;
use async_trait::async_trait;
use freehold_apiserver_audit::{Standing, Subject};
use freehold_apiserver_planes::{Consumers, ProviderScope, Target};
use freehold_apiserver_server::{AuditBackend, AuditPage, AuditStream, Owner};
use freehold_machinery::{Result, User, Value};
use futures_util::StreamExt;
use std::sync::Arc;

#[async_trait]
impl AuditBackend for LocalBackend {
    fn owner(&self, target: &Target, about: &Subject<'_>) -> Owner {
        let owner = match target {
            // What a provider does in a consumer's plane is in the consumer's trail.
            Target::Provider(ProviderScope { consumers: Consumers::One(plane), .. }) => {
                self.owner_of_plane(&Target::Local(plane.clone()))
            }
            _ => self.owner_of_plane(target),
        };
        match owner.organization {
            None if trails::is_core(target) => trails::owner_in_core(self.planes.directory(), about),
            _ => owner,
        }
    }

    fn owner_of(&self, target: &Target, about: &Subject<'_>, object: &Value) -> Option<Arc<str>> {
        trails::is_core(target).then(|| trails::owner_of_object(about, object)).flatten()
    }

    async fn standing(
        &self,
        organization: &str,
        target: &Target,
        user: Option<&User>,
    ) -> Option<(Arc<str>, Standing)> {
        trails::standing_at(&self.planes, organization, target, user).await
    }

    async fn audit_page(&self, target: &Target, from: &str, since: i64) -> Result<AuditPage> {
        let (trail, organization) = self.trail_of(target).await?;
        trails::page(trail, &organization, from, since).await
    }

    async fn audit_watch(&self, target: &Target, after: u64) -> Result<AuditStream> {
        let (trail, organization) = self.trail_of(target).await?;
        let events = trail.watch(&organization, after).await.map_err(trails::unreadable)?;
        Ok(events.map(|bundle| bundle.map(|bundle| bundle.events).map_err(trails::unreadable)).boxed())
    }
}
