//! Where requests lead.

use crate::{apis, planes::resource};
use freehold_machinery::{GroupResource, PlaneId, Result, Status};
use std::sync::Arc;

/// Where a request goes.
#[derive(Clone)]
pub enum Target {
    /// A plane that this process serves.
    Local(PlaneId),
    /// The organization's view: core objects of it alone, and any type over all of its projects.
    Organization(OrganizationScope),
    /// A user's view: what the user is a member of.
    User(String),
    /// Every plane that is served here (Freehold's own controllers).
    AllPlanes,
    /// The planes that consume an export, as their provider sees them.
    Provider(ProviderScope),
    /// A dedicated pair.
    Dedicated(DedicatedTarget),
}

/// Where a context leads, and as of when.
pub struct Resolved {
    /// Where it leads.
    pub target: Target,
    /// Everything up to this revision is visible here, and what was committed before the question is among it: who goes on
    /// with this needs not ask the store again. 0: it was not asked.
    pub seen: u64,
}

/// An organization that a request is confined to.
#[derive(Clone, Debug)]
pub struct OrganizationScope {
    /// The organization's name.
    pub name: Arc<str>,
    /// Its namespace in the core plane.
    pub namespace: Arc<str>,
    /// Whether there is such an organization: only those who would be let in are told.
    pub exists: bool,
}

impl OrganizationScope {
    /// Checks that there is such an organization.
    ///
    /// # Errors
    /// 404 where there is none.
    pub fn check_exists(&self) -> Result<()> {
        if self.exists { Ok(()) } else { Err(Status::not_found(&resource("organizations"), &self.name)) }
    }
}

/// An export whose consumers a provider looks at.
#[derive(Clone)]
pub struct ProviderScope {
    /// The provider's plane.
    pub plane: PlaneId,
    /// Its project.
    pub project: Arc<str>,
    /// The name of the export.
    pub name: Arc<str>,
    /// The export; `None` where there is none: only those who would be let in are told.
    pub export: Option<Arc<apis::Export>>,
    /// Which consumers.
    pub consumers: Consumers,
}

/// Which consumers of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Consumers {
    /// All of them.
    All,
    /// One.
    One(PlaneId),
    /// None: what was named does not consume the export.
    Nowhere(Arc<str>),
}

impl ProviderScope {
    /// Returns the export.
    ///
    /// # Errors
    /// 404 where there is none, or where the consumer that was named does not consume it.
    pub fn check_exists(&self) -> Result<&Arc<apis::Export>> {
        let exports = || GroupResource::new(freehold_api::apis::GROUP, freehold_api::apis::EXPORTS);
        let export = self.export.as_ref().ok_or_else(|| Status::not_found(&exports(), &self.name))?;
        match &self.consumers {
            Consumers::Nowhere(name) => Err(Status::not_found(&resource("projects"), name)),
            _ => Ok(export),
        }
    }
}

/// Where a dedicated pair's apiserver is.
#[derive(Clone, Debug)]
pub struct DedicatedTarget {
    /// The plane that it serves.
    pub plane: PlaneId,
    /// `https://IP:PORT`, without a path.
    pub endpoint: Arc<str>,
    /// The DNS name that its certificate is for (`apiserver.project-<uid>.svc`).
    pub server_name: Arc<str>,
    /// Whether it can be asked.
    pub power: Power,
    /// How long nobody has to use it until it sleeps; `None`: it never does.
    pub sleep_after: Option<std::time::Duration>,
}

/// Whether the programs of a dedicated pair run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Power {
    /// It can be asked.
    #[default]
    Awake,
    /// Its programs start.
    Waking,
    /// Its programs have ended because nobody used it.
    Asleep,
    /// Its programs have ended because its project says so.
    Kept,
}

impl Power {
    /// Reads a `ProjectControlPlane`.
    pub(crate) fn of(object: &freehold_machinery::Value) -> Self {
        let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        let mut ready = conditions.filter(|condition| condition["type"] == freehold_api::keys::READY);
        let is_away = |condition: &freehold_machinery::Value| {
            condition["reason"] == freehold_api::keys::ASLEEP
                || condition["reason"] == freehold_api::keys::WAKING
        };
        match object["spec"]["rest"].as_str() {
            Some("Idle") => Self::Asleep,
            Some(_) => Self::Kept,
            None if ready.any(is_away) => Self::Waking,
            None => Self::Awake,
        }
    }
}
