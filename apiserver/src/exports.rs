//! The exports of all planes, for the registry.

use async_trait::async_trait;
use freehold_apiserver_planes::{Planes, apis};
use freehold_apiserver_registry::{Exports, FoundExport};
use freehold_machinery::{PlaneId, Result};
use std::sync::Arc;

/// Consumers that a message names.
const NAMED: usize = 3;

/// The exports that this server knows.
pub(crate) struct KnownExports(pub(crate) Arc<Planes>);

impl KnownExports {
    /// Waits until everything that was committed before is known.
    async fn current(&self) -> Result<()> {
        self.0.directory().current().await?;
        self.0.apis().ready().await;
        Ok(())
    }
}

#[async_trait]
impl Exports for KnownExports {
    async fn find(
        &self,
        project: &str,
        name: &str,
        organization: Option<&str>,
    ) -> Result<Option<FoundExport>> {
        self.current().await?;
        let Some(info) = self.0.directory().named(project) else { return Ok(None) };
        let apis = self.0.apis();
        let Some(export) = apis.export(&info.plane, name) else { return Ok(None) };
        Ok(Some(FoundExport {
            plane: info.plane.clone(),
            identity: export.identity.to_string(),
            types: apis.types_of(&export),
            claims: export.claims.iter().filter_map(|claim| serde_json::to_value(&claim.0).ok()).collect(),
            is_open: organization.is_some_and(|organization| export.is_for(organization)),
            missing: apis.missing(&export).into_iter().map(Into::into).collect(),
        }))
    }

    fn prove(&self, consumer: &PlaneId, provider: &PlaneId, export: &str) -> Option<String> {
        Some(self.0.apis().proofs()?.prove((consumer, provider.as_str(), export)))
    }

    fn is_proved(&self, consumer: &PlaneId, provider: &str, export: &str, proof: &str) -> bool {
        self.0.apis().proofs().is_some_and(|key| key.verify((consumer, provider, export), proof))
    }

    fn identity(&self, provider: &PlaneId, export: &str) -> String {
        apis::identity(provider, export)
    }

    async fn consumers(&self, provider: &PlaneId, export: &str) -> Result<(usize, Vec<String>)> {
        self.current().await?;
        let apis = self.0.apis();
        let Some(export) = apis.export(provider, export) else { return Ok((0, Vec::new())) };
        let planes = apis.consumers(&export);
        let named = planes.iter().filter_map(|plane| self.0.directory().by_plane(plane));
        Ok((planes.len(), named.take(NAMED).map(|info| info.name.to_string()).collect()))
    }

    async fn export_with(&self, plane: &PlaneId, schema: &str) -> Result<Option<String>> {
        self.current().await?;
        Ok(self.0.apis().export_with(plane, schema).map(Into::into))
    }

    async fn missing(&self, plane: &PlaneId, schemas: Vec<String>) -> Result<Vec<String>> {
        self.current().await?;
        let apis = self.0.apis();
        Ok(schemas.into_iter().filter(|name| !apis.has_schema(plane, name)).collect())
    }
}
