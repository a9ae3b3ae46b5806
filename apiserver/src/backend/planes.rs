//! Planes as a whole: where they are, what they serve, and what is done with them.

use crate::local::LocalBackend;
use crate::provider;
use async_trait::async_trait;
use bytes::Bytes;
use freehold_apiserver_authz::Attributes;
use freehold_apiserver_catalog::TypeSet;
use freehold_apiserver_planes::{DedicatedTarget, Resolved, Target, context::Context};
use freehold_apiserver_server::{ArchiveStream, Footing, InUse, Kubelet, PlaneAction, PlaneBackend};
use freehold_apiserver_storage_sealed::RotateError;
use freehold_machinery::{GroupResource, PlaneId, Result, Status, Value};
use futures_util::{StreamExt, stream::BoxStream};
use serde_json::json;
use std::{net::SocketAddr, sync::Arc};

#[async_trait]
impl PlaneBackend for LocalBackend {
    async fn resolve(&self, context: &Context) -> Result<Resolved> {
        self.planes.resolve(context).await
    }

    async fn types(&self, target: &Target) -> Result<Arc<TypeSet>> {
        self.planes.types(target).await
    }

    fn withheld(&self, target: &Target, resource: &GroupResource, verb: &str) -> Option<Status> {
        match target {
            Target::Provider(scope) => provider::withheld(scope, resource, verb),
            _ => None,
        }
    }

    async fn delete_plane(&self, plane: &PlaneId) -> Result<Value> {
        self.planes.delete(plane).await?;
        self.release_claims(plane).await?;
        Ok(json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": {"name": plane.as_str(), "kind": "planes"}}))
    }

    async fn encryption(&self, rotate: bool) -> Result<Value> {
        let sealed = self.sealed.as_ref().ok_or_else(Status::no_such_resource)?;
        if rotate {
            sealed.rotate().await.map_err(|error| match error {
                RotateError::NoKeys => Status::bad_request(error.to_string()),
                RotateError::GoingOn(_) => Status::new(409, "Conflict", error.to_string()),
                RotateError::Store(error) => Status::internal(error),
            })?;
        }
        let status = sealed.status().await.map_err(Status::internal)?;
        serde_json::to_value(status).map_err(Status::internal)
    }

    async fn backup(&self) -> Result<BoxStream<'static, Result<Bytes>>> {
        let sealed = self.sealed.as_ref().ok_or_else(Status::no_such_resource)?;
        crate::backup::stream(sealed.raw().clone()).await
    }

    async fn act_on_plane(&self, plane: &PlaneId, action: PlaneAction) -> Result<Value> {
        let layer = |id: &str| id.parse().map_err(|error| Status::bad_request(format!("{error}")));
        Ok(match action {
            PlaneAction::Snapshot(id, at) => {
                let record = self.planes.snapshot(plane, &layer(&id)?, at).await?;
                serde_json::to_value(record).map_err(Status::internal)?
            }
            PlaneAction::Release(id) => {
                let left = self.planes.release(&layer(&id)?).await?.planes;
                json!({"planes": left.iter().map(PlaneId::as_str).collect::<Vec<_>>()})
            }
            PlaneAction::Switch { layer: id, operation, is_restore } => {
                let layer = layer(&id)?;
                if is_restore && !self.planes.has_done(plane, &operation).await? {
                    self.planes.check_source(&layer, plane).await?;
                }
                json!({"revision": self.put_above(plane, &layer, &operation).await?})
            }
            PlaneAction::Class(class) => self.install_class(&class).await?,
        })
    }

    async fn pair(&self, plane: &PlaneId) -> Result<DedicatedTarget> {
        self.planes.pair(plane).await
    }

    async fn awake(
        &self,
        pair: &DedicatedTarget,
        attributes: &Attributes<'_>,
    ) -> Result<(DedicatedTarget, Option<InUse>)> {
        self.awake_for(pair, attributes).await
    }

    async fn export(&self, target: &Target) -> Result<ArchiveStream> {
        let Target::Local(plane) = target else { return Err(Status::no_such_resource()) };
        Ok(self.planes.export(plane).await?.boxed())
    }

    async fn import(&self, target: &Target, archive: &mut ArchiveStream) -> Result<Value> {
        self.import_into(target, archive).await
    }

    async fn footing(&self, target: &Target) -> Result<Option<Footing>> {
        self.footing_of(target).await
    }

    async fn holdings(&self, plane: &PlaneId) -> Result<Vec<(&'static str, i64, Option<i64>)>> {
        let Some(limits) = self.registry.ledger().limits(plane) else { return Ok(Vec::new()) };
        let usage = self.registry.ledger().usage(plane).await?;
        Ok(limits.rows(&usage).into())
    }

    fn objects(&self) -> Vec<(String, String, u64)> {
        self.registry.cache().totals()
    }

    fn project_of(&self, plane: &PlaneId) -> Option<Arc<str>> {
        self.planes.directory().by_plane(plane).map(|info| info.name.clone())
    }

    async fn ready(&self) -> Vec<(&'static str, std::result::Result<(), String>)> {
        let store = self.store.revision().await.map(drop).map_err(|error| error.to_string());
        let cache = match &store {
            Ok(()) => self.registry.cache().catch_up().await.map(drop).map_err(|status| status.message),
            Err(_) => Err("the store does not answer".to_owned()),
        };
        let host = self.host.as_ref().map(|host| ("host-authentication", host.ready()));
        [("etcd", store), ("informer-sync", cache)].into_iter().chain(host).collect()
    }

    fn kubelet(&self, target: &Target, address: SocketAddr) -> Result<Kubelet> {
        match (target, &self.resource_metrics.kubelets) {
            (Target::Local(plane), Some(kubelets)) if !plane.is_core() => kubelets.reach(plane, address),
            _ => Err(Status::unavailable("this server reaches no nodes of this control plane")),
        }
    }
}
