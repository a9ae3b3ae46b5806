//! Whose requests are, and the trails of organizations.

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
