//! Who owns which plane.

use async_trait::async_trait;
use freehold_machinery::{PlaneId, Result};
use std::sync::Arc;

/// Whose a plane is.
#[derive(Clone, Debug)]
pub struct Owner {
    /// The organization.
    pub organization: Arc<str>,
    /// The project.
    pub project: Arc<str>,
    /// The class of the plane.
    pub class: Arc<str>,
}

/// Who owns which plane.
#[async_trait]
pub trait Tenancy: Send + Sync + 'static {
    /// Whether this server has the core plane, where organizations and their allowances are.
    fn has_core(&self) -> bool;
    /// The owner of a project's plane; `None` for other planes.
    fn owner(&self, plane: &PlaneId) -> Option<Owner>;
    /// The organization of a project, as far as it is known.
    fn known_organization_of(&self, project: &str) -> Option<Arc<str>>;
    /// The organization of a project, as of now.
    async fn organization_of(&self, project: &str) -> Result<Option<Arc<str>>>;
    /// How many projects an organization has that are not being deleted, and one of them.
    async fn projects_of(&self, organization: &str) -> Result<(usize, Option<Arc<str>>)>;
}

/// No plane is owned by anybody: a ledger by itself.
pub(crate) struct Nobody;

#[async_trait]
impl Tenancy for Nobody {
    fn has_core(&self) -> bool {
        false
    }

    fn owner(&self, _: &PlaneId) -> Option<Owner> {
        None
    }

    fn known_organization_of(&self, _: &str) -> Option<Arc<str>> {
        None
    }

    async fn organization_of(&self, _: &str) -> Result<Option<Arc<str>>> {
        Ok(None)
    }

    async fn projects_of(&self, _: &str) -> Result<(usize, Option<Arc<str>>)> {
        Ok((0, None))
    }
}
