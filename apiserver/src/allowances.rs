//! What planes claim of allowances when they are put above a layer, and give back when they go.

use crate::local::LocalBackend;
use freehold_apiserver_registry::{Annotations, Operation};
use freehold_apiserver_storage::LayerId;
use freehold_machinery::{PlaneId, Result, User, user::MASTERS};
use std::sync::Arc;

impl LocalBackend {
    /// Puts a plane above a layer, once what the layer's objects claim of allowances is claimed.
    pub(crate) async fn put_above(&self, plane: &PlaneId, layer: &LayerId, operation: &str) -> Result<u64> {
        let project = self.planes.directory().find_plane(plane).await?;
        if project.is_none_or(|project| project.dedicated) {
            return self.planes.switch(plane, layer, operation).await;
        }
        let ahead = if self.planes.has_done(plane, operation).await? {
            let types = self.planes.types_of(plane).await?;
            self.registry.ledger().left_ahead(plane, &types).await?
        } else {
            let loaded = self.planes.layer(layer, plane).await?;
            self.registry.ledger().claim_ahead(plane, &loaded).await?
        };
        match self.planes.switch(plane, layer, operation).await {
            Ok(revision) => {
                let types = self.planes.types_of(plane).await?;
                self.registry.ledger().settle_ahead(plane, &types, ahead).await?;
                Ok(revision)
            }
            Err(status) => {
                // Of a commit that was cut off nobody knows whether it happened: what was claimed stays for who asks again.
                if status.code < 500 {
                    self.registry.ledger().take_back(ahead).await?;
                }
                Err(status)
            }
        }
    }

    /// Gives back what a plane that is gone has claimed of its organization's and project's allowances.
    pub(crate) async fn release_claims(&self, plane: &PlaneId) -> Result<()> {
        let types = self.planes.types_of(&PlaneId::core()).await?;
        let Some(ty) = types.by_resource("quota.freehold.dev", "resourceclaims") else { return Ok(()) };
        let user = User { name: "system:apiserver".into(), groups: vec![MASTERS.into()], ..User::default() };
        let op = Operation {
            plane: PlaneId::core(),
            ty: ty.clone(),
            types,
            user: Arc::new(user),
            namespace: None,
            name: None,
            subresource: None,
            seen: 0,
            narrowed: false,
            annotations: Annotations::default(),
        };
        self.registry.release_claims(&op, plane).await
    }
}
