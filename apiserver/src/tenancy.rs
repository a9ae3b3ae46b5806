//! Whose a plane is, for what is charged to organizations and projects.

use async_trait::async_trait;
use freehold_apiserver_planes::Planes;
use freehold_apiserver_registry::{Owner, Tenancy};
use freehold_machinery::{PlaneId, Result};
use std::sync::Arc;

/// The projects of this server.
pub(crate) struct Projects(pub(crate) Arc<Planes>);

#[async_trait]
impl Tenancy for Projects {
    fn has_core(&self) -> bool {
        self.0.has_core()
    }

    fn owner(&self, plane: &PlaneId) -> Option<Owner> {
        let info = self.0.directory().by_plane(plane)?;
        let (organization, project) = (info.organization.clone(), info.name.clone());
        Some(Owner { organization, project, class: info.class.clone() })
    }

    fn known_organization_of(&self, project: &str) -> Option<Arc<str>> {
        Some(self.0.directory().named(project)?.organization.clone())
    }

    async fn organization_of(&self, project: &str) -> Result<Option<Arc<str>>> {
        self.0.directory().current().await?;
        Ok(self.known_organization_of(project))
    }

    async fn projects_of(&self, organization: &str) -> Result<(usize, Option<Arc<str>>)> {
        self.0.directory().current().await?;
        let mut left = self.0.directory().of_organization(organization);
        left.retain(|project| !project.deleting);
        Ok((left.len(), left.first().map(|project| project.name.clone())))
    }
}
