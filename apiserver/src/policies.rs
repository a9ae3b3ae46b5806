//! The policies of planes, for the registry, and how webhooks are told where they are asked.

use crate::authorization::Authorization;
use crate::place::place;
use async_trait::async_trait;
use freehold_apiserver_authz::Access;
use freehold_apiserver_planes::Planes;
use freehold_apiserver_registry::PolicySource;
use freehold_machinery::{PlaneId, Result};
use std::sync::Arc;

/// The policies of planes, for the registry.
pub(crate) struct Policies {
    pub(crate) planes: Arc<Planes>,
    pub(crate) authorization: Arc<Authorization>,
}

#[async_trait]
impl PolicySource for Policies {
    async fn access(&self, plane: &PlaneId) -> Result<Access> {
        let access = self.planes.access(plane).await?;
        if self.authorization.is_plain() {
            return Ok(access);
        }
        let owner = self.planes.directory().by_plane(plane);
        let owner = owner.map(|info| (info.name.clone(), info.organization.clone()));
        let (project, organization) = owner.unzip();
        let place = place(plane, project, organization);
        Ok(access.asking(self.authorization.within(place)))
    }
}
