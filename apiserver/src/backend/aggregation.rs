//! Aggregated servers of planes.

use crate::local::LocalBackend;
use async_trait::async_trait;
use bytes::Bytes;
use freehold_apiserver_planes::Target;
use freehold_apiserver_server::{Aggregated, AggregationBackend};
use freehold_machinery::Result;
use futures_util::stream;
use futures_util::{StreamExt, stream::BoxStream};
use std::sync::Arc;

#[async_trait]
impl AggregationBackend for LocalBackend {
    async fn aggregated(&self, target: &Target, group: &str, version: &str) -> Result<Option<Aggregated>> {
        let Target::Local(plane) = target else { return Ok(None) };
        self.server_of(plane, group, version)
    }

    async fn aggregated_across(
        &self,
        target: &Target,
        group: &str,
        version: &str,
    ) -> Result<Vec<Arc<Aggregated>>> {
        let Target::Organization(scope) = target else { return Ok(Vec::new()) };
        let projects = self.planes.directory().of_organization(&scope.name);
        let found = projects.iter().map(|info| self.server_of(&info.plane, group, version));
        found.filter_map(|server| server.map(|server| server.map(Arc::new)).transpose()).collect()
    }

    fn aggregated_changes(&self, target: &Target) -> BoxStream<'static, ()> {
        let Target::Organization(scope) = target else { return stream::pending().boxed() };
        let own = self.planes.directory().changes_of(&scope.name);
        let seen = (own.subscribe(), self.planes.people().changes(), own);
        let changes = stream::unfold(seen, |(mut below, mut above, own)| async move {
            // The senders live as long as this.
            tokio::select! {
                _ = below.changed() => {}
                _ = above.changed() => {}
            }
            Some(((), (below, above, own)))
        });
        changes.boxed()
    }

    async fn aggregated_openapi(&self, target: &Target) -> Vec<Bytes> {
        let Target::Local(plane) = target else { return Vec::new() };
        self.aggregator.openapi_v2_of(plane).await
    }
}
