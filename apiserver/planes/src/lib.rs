//! Planes: which there are, where a URL points, what each serves and who may do what in it.
//!
//! A [`Context`](context::Context) is what a URL asks in; [`Planes::resolve`] turns it into a [`Target`]: a plane that
//! this process serves, a dedicated pair to pass the request on to, or several planes at once.
//!
//! This crate must not know: HTTP beyond the path, how objects are written.

mod archive;
mod base;
mod burial;
mod class;
pub mod context;
mod directory;
mod layers;
mod operations;
mod pairs;
mod policies;
mod stored;
mod types;
mod upkeep;

pub use base::{Authorities, InstallError};
pub use directory::{Directory, ProjectInfo};
pub use layers::Layers;
pub use stored::{LayerRecord, Released};
pub use types::{RemoteSource, Remotes};

use context::Context;
use freehold_apiserver_authz::Policy;
use freehold_apiserver_cache::Cache;
use freehold_apiserver_catalog::TypeSet;
use freehold_apiserver_storage::{ObjectPath, Placement};
use freehold_machinery::{GroupResource, PlaneId, Result, Status, meta};
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};
use tokio::sync::Notify;

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
    /// A dedicated pair.
    Dedicated(DedicatedTarget),
}

/// An organization that a request is confined to.
#[derive(Clone, Debug)]
pub struct OrganizationScope {
    /// The organization's name.
    pub name: Arc<str>,
    /// Its namespace in the core plane.
    pub namespace: Arc<str>,
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
}

/// The planes of a server.
pub struct Planes {
    stores: Placement,
    cache: Arc<Cache>,
    layers: Arc<Layers>,
    snapshots: operations::Snapshots,
    /// The plane that `/` leads to: core, or the one plane of a dedicated pair.
    root: PlaneId,
    directory: Arc<Directory>,
    types: types::Types,
    policies: policies::Policies,
    /// Endpoints of dedicated pairs, by plane, with the revision of the object that they were read from.
    endpoints: Mutex<HashMap<PlaneId, (u64, Option<DedicatedTarget>)>>,
    /// Wakes the task that tidies up.
    upkeep: Arc<Notify>,
}

fn resource(name: &str) -> GroupResource {
    GroupResource::new(directory::GROUP, name)
}

/// Whether a plane is Freehold's own rather than a project's.
fn is_own(plane: &PlaneId) -> bool {
    *plane == PlaneId::core() || *plane == PlaneId::infra()
}

impl Planes {
    /// The planes of a store. `root` is core, or the one plane that a dedicated server serves.
    pub fn new(
        stores: impl Into<Placement>,
        cache: Arc<Cache>,
        layers: Arc<Layers>,
        root: PlaneId,
    ) -> Arc<Self> {
        let upkeep: Arc<Notify> = Arc::default();
        let directory = Directory::start(cache.clone(), root.is_core(), upkeep.clone());
        layers.attach(&directory);
        let (types, policies, endpoints, snapshots) = Default::default();
        let stores = stores.into();
        let all =
            Self { stores, cache, layers, snapshots, root, directory, types, policies, endpoints, upkeep };
        let planes = Arc::new(all);
        if planes.root.is_core() {
            tokio::spawn(upkeep::run(Arc::downgrade(&planes)));
        }
        planes
    }

    /// Shows what other servers serve, as `source` knows it, from now on.
    pub fn aggregate(&self, source: Arc<dyn RemoteSource>) {
        self.types.aggregate(source);
    }

    /// Whether this server has the core plane, and is not that of a dedicated pair.
    pub fn has_core(&self) -> bool {
        self.root.is_core()
    }

    /// Projects by name, plane and organization.
    pub fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// Where a context leads. 404 for what is not there, 503 for a pair that is not ready.
    pub async fn resolve(&self, context: &Context) -> Result<Target> {
        if !self.root.is_core() {
            return match context {
                Context::Platform => Ok(Target::Local(self.root.clone())),
                Context::Plane(plane) if *plane == self.root => Ok(Target::Local(plane.clone())),
                _ => Err(Status::no_such_resource()),
            };
        }
        match context {
            Context::Platform => Ok(Target::Local(PlaneId::core())),
            Context::Project(name) => {
                let found = self.directory.by_name(name).await?;
                let info = found.ok_or_else(|| Status::not_found(&resource("projects"), name))?;
                Self::check_forked(&info)?;
                if info.dedicated {
                    self.dedicated(&info).await
                } else {
                    Ok(Target::Local(info.plane.clone()))
                }
            }
            Context::Organization(name) => {
                self.core_object("organizations", name).await?;
                let namespace = format!("organization-{name}").into();
                Ok(Target::Organization(OrganizationScope { name: name.as_str().into(), namespace }))
            }
            Context::User(name) => Ok(Target::User(name.clone())),
            Context::Plane(plane) if self.exists(plane).await? => Ok(Target::Local(plane.clone())),
            Context::Plane(plane) => {
                Err(Status::not_found(&GroupResource::new("", "planes"), plane.as_str()))
            }
            Context::AllPlanes => Ok(Target::AllPlanes),
        }
    }

    /// Whether there is such a plane: core, infra, or that of a project.
    async fn exists(&self, plane: &PlaneId) -> Result<bool> {
        Ok(is_own(plane) || self.directory.find_plane(plane).await?.is_some())
    }

    /// Refuses new objects in the plane of a project that is being deleted: nothing would take them away any more.
    pub fn check_create(&self, plane: &PlaneId) -> Result<()> {
        match self.directory.by_plane(plane).filter(|info| info.deleting) {
            Some(info) => {
                let why = "no new objects can be made in it because it is being deleted";
                Err(Status::forbidden(&resource("projects"), &info.name, why))
            }
            None => Ok(()),
        }
    }

    async fn core_object(&self, plural: &str, name: &str) -> Result<Arc<freehold_apiserver_cache::Entry>> {
        let (group, name) = (directory::GROUP.to_owned(), name.to_owned());
        let path = ObjectPath { group, resource: plural.into(), namespace: None, name: name.clone() };
        let found = self.cache.get(&PlaneId::core(), &path).await?;
        found.ok_or_else(|| Status::not_found(&resource(plural), &name))
    }

    /// The address of a project's pair, from its `ProjectControlPlane` in the infra plane.
    async fn dedicated(&self, info: &ProjectInfo) -> Result<Target> {
        let path = ObjectPath {
            group: "infrastructure.freehold.dev".into(),
            resource: "projectcontrolplanes".into(),
            namespace: None,
            name: info.plane.to_string(),
        };
        let not_ready = || {
            Status::unavailable(format!("the control plane of project {:?} is not ready", info.name))
                .retry_after(1)
        };
        let entry = self.cache.get_cached(&PlaneId::infra(), &path).await?.ok_or_else(not_ready)?;
        let known = self.endpoints.lock().get(&info.plane).cloned();
        if let Some((revision, target)) = known
            && revision == entry.modified
        {
            return target.map(Target::Dedicated).ok_or_else(not_ready);
        }
        let object = entry.value();
        let endpoint = object["status"]["endpoint"].as_str().filter(|endpoint| !endpoint.is_empty());
        let target = endpoint.map(|endpoint| DedicatedTarget {
            plane: info.plane.clone(),
            endpoint: endpoint.into(),
            server_name: format!("apiserver.project-{}.svc", info.plane).into(),
        });
        self.endpoints.lock().insert(info.plane.clone(), (entry.modified, target.clone()));
        target.map(Target::Dedicated).ok_or_else(not_ready)
    }

    /// What a plane serves.
    pub async fn types_of(&self, plane: &PlaneId) -> Result<Arc<TypeSet>> {
        self.types.of(&self.cache, plane).await
    }

    /// What is served where a context leads.
    pub async fn types(&self, target: &Target) -> Result<Arc<TypeSet>> {
        match target {
            Target::Local(plane) => self.types_of(plane).await,
            Target::Dedicated(target) => self.types_of(&target.plane).await,
            Target::Organization(scope) => self.union(&scope.name).await,
            Target::User(_) => self.types_of(&PlaneId::core()).await,
            Target::AllPlanes => self.all_types().await,
        }
    }

    /// Who may do what in a plane.
    pub async fn policy(&self, plane: &PlaneId) -> Result<Arc<Policy>> {
        self.policies.of(&self.cache, plane).await
    }

    /// The roles that a user has in an organization.
    pub async fn roles(&self, scope: &OrganizationScope, user: &str) -> Result<Vec<String>> {
        let request = freehold_apiserver_cache::ListRequest {
            plane: &PlaneId::core(),
            group: directory::GROUP,
            resource: "organizationmemberships",
            namespace: Some(&scope.namespace),
        };
        let listed = self.cache.list(request).await?;
        let memberships = listed.objects.iter().map(|entry| entry.value());
        let theirs = memberships.filter(|m| !meta::is_deleting(m) && m["spec"]["userRef"]["name"] == *user);
        let roles = theirs.flat_map(|m| m["spec"]["roles"].as_array().cloned().unwrap_or_default());
        Ok(roles.filter_map(|role| role.as_str().map(str::to_owned)).collect())
    }
}
