//! Aggregated servers of planes.

use super::LocalBackend;
use crate::{
    authentication::{Authentication, Place},
    authorization::{self, Authorization, Refused},
    exports,
    fairness::KnownFlows,
    host::Host,
    kubelets::Kubelets,
    lookup::Lookup,
    nodes::Nodes,
    organization,
    organization::UserView,
    people,
    policies::{PlaceKeys, place},
    provider, rights,
    sleep::Sleepers,
    trails, view, visible,
};
use async_trait::async_trait;
use bytes::Bytes;
use freehold_apiserver_aggregation::Aggregator;
use freehold_apiserver_audit::{Standing, Subject, Trail};
use freehold_apiserver_authn::{Headers, Peer, TokenIssuer, review};
use freehold_apiserver_authz::{Attributes, Decision, forbidden, iam::GRANTED};
use freehold_apiserver_catalog::TypeSet;
use freehold_apiserver_outbound::Outbound;
use freehold_apiserver_planes::{
    Consumers, DedicatedTarget, Planes, ProviderScope, Resolved, Target, context::Context,
};
use freehold_apiserver_registry::{
    Across, Body, DeleteOptions, List, ListOptions, Object, Operation, Patch, Registry, Shown, WatchEvent,
    WatchOptions, WriteOptions, Written, class_bindings, class_objects,
};
use freehold_apiserver_server::{
    AccessBackend, Aggregated, AggregationBackend, ArchiveStream, AuditBackend, AuditPage, AuditStream,
    Footing, InUse, Kubelet, ObjectBackend, OpenIdDocument, Owner, PlaneAction, PlaneBackend, RequestHeaders,
};
use freehold_apiserver_storage::{LayerId, ObjectPath, Store};
use freehold_apiserver_storage_sealed::{RotateError, Sealed};
use freehold_machinery::{PlaneId, Result, Status, User, Value, api_service, user::MASTERS};
use futures_util::{
    FutureExt, StreamExt,
    future::{self, BoxFuture},
    stream::{self, BoxStream},
};
use serde_json::json;
use std::{net::SocketAddr, sync::Arc};

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
