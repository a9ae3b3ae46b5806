//! All planes that a server knows.

use crate::policies::Bundle;
use crate::target::*;
use crate::{
    apis::{self, Apis},
    changes,
    context::{Consumer, Context},
    directory::{self, Directory, ProjectInfo},
    layers::Layers,
    maintenance,
    people::{self, People},
    policies,
    types::{self, RemoteSource},
};
use freehold_apiserver_authz::{
    Access, Attributes, Policy,
    access::Place,
    iam::{Scope, Suspension},
};
use freehold_apiserver_cache::{Cache, Entry};
use freehold_apiserver_catalog::TypeSet;
use freehold_apiserver_storage::{ObjectPath, Placement};
use freehold_machinery::{GroupResource, PlaneId, PlaneMap, Result, Status, User, user::Footing};
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::Notify;

/// The planes of a server.
pub struct Planes {
    pub(crate) stores: Placement,
    pub(crate) cache: Arc<Cache>,
    pub(crate) layers: Arc<Layers>,
    pub(crate) snapshots: crate::snapshots::Snapshots,
    /// The plane that `/` leads to: core, or the one plane of a dedicated pair.
    pub(crate) root: PlaneId,
    pub(crate) directory: Arc<Directory>,
    pub(crate) people: Arc<People>,
    pub(crate) apis: Arc<Apis>,
    pub(crate) types: types::Types,
    pub(crate) policies: Arc<policies::Policies>,
    pub(crate) rbac_changes: Arc<changes::Changes>,
    pub(crate) footing_changes: Arc<changes::Changes>,
    pub(crate) pair_changes: Arc<changes::Changes>,
    /// Endpoints of dedicated pairs, by plane, with the revision of the object that they were read from.
    pub(crate) endpoints: Mutex<PlaneMap<(u64, Option<DedicatedTarget>)>>,
    /// Wakes the task that tidies up.
    pub(crate) upkeep: Arc<Notify>,
}

pub(crate) fn resource(name: &str) -> GroupResource {
    GroupResource::new(directory::GROUP, name)
}

/// Whether a plane is Freehold's own rather than a project's.
pub(crate) fn is_own(plane: &PlaneId) -> bool {
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
        changes::of_servers(&cache, &directory);
        let people = People::start(cache.clone(), root.is_core());
        let rbac_changes = changes::of_policies(&cache);
        let apis = Apis::start(&cache, &directory, &rbac_changes, root.is_core());
        let footing_changes = changes::of_footings(&cache);
        let pair_changes = changes::of_pairs(&cache);
        let policies = policies::Policies::start(&cache);
        let (types, endpoints, snapshots) = Default::default();
        let stores = stores.into();
        let all = Self {
            stores,
            cache,
            layers,
            snapshots,
            root,
            directory,
            people,
            apis,
            types,
            policies,
            rbac_changes,
            footing_changes,
            pair_changes,
            endpoints,
            upkeep,
        };
        let planes = Arc::new(all);
        if planes.root.is_core() {
            tokio::spawn(maintenance::run(Arc::downgrade(&planes)));
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

    /// Resolves a context to the plane or planes that it leads to.
    ///
    /// # Errors
    /// 404 for an absent project or plane, 503 for a pair that is not ready.
    pub async fn resolve(&self, context: &Context) -> Result<Resolved> {
        let mut seen = 0;
        let target = match context {
            Context::Platform => Target::Local(self.root.clone()),
            Context::Plane(plane) if *plane == self.root => Target::Local(plane.clone()),
            _ if !self.root.is_core() => return Err(Status::no_such_resource()),
            Context::Project(name) => {
                seen = self.directory.current().await?;
                let found = self.directory.named(name);
                let info = found.ok_or_else(|| Status::not_found(&resource("projects"), name))?;
                Self::check_forked(&info)?;
                match info.dedicated {
                    true => Target::Dedicated(self.dedicated(&info).await?),
                    false => Target::Local(info.plane.clone()),
                }
            }
            Context::Organization(name) => {
                seen = self.directory.current().await?;
                let exists = match self.known_object("organizations", name).await {
                    Ok(_) => true,
                    Err(status) if status.is_not_found() => false,
                    Err(status) => return Err(status),
                };
                let namespace = format!("organization-{name}").into();
                Target::Organization(OrganizationScope { name: name.as_str().into(), namespace, exists })
            }
            Context::User(name) => Target::User(name.clone()),
            Context::Plane(plane) if self.exists(plane).await? => Target::Local(plane.clone()),
            Context::Plane(plane) => {
                return Err(Status::not_found(&GroupResource::new("", "planes"), plane.as_str()));
            }
            Context::AllPlanes => Target::AllPlanes,
            Context::Export { project, export, consumer } => {
                seen = self.directory.current().await?;
                let found = self.directory.named(project);
                let info = found.ok_or_else(|| Status::not_found(&resource("projects"), project))?;
                self.apis.ready().await;
                Target::Provider(self.provider(&info, export, consumer))
            }
        };
        Ok(Resolved { target, seen })
    }

    /// What a provider sees of the consumers of an export.
    pub(crate) fn provider(&self, info: &ProjectInfo, name: &str, consumer: &Consumer) -> ProviderScope {
        let export = self.apis.export(&info.plane, name);
        let consumes = |plane: &PlaneId| {
            export.as_ref().is_some_and(|export| self.apis.binding(plane, export).is_some())
        };
        let (plane, named) = match consumer {
            Consumer::All => (None, None),
            Consumer::Project(name) => {
                (self.directory.named(name).map(|info| info.plane.clone()), Some(name.as_str()))
            }
            Consumer::Plane(plane) => (Some(plane.clone()), Some(plane.as_str())),
        };
        let consumers = match (plane.filter(consumes), named) {
            (Some(plane), _) => Consumers::One(plane),
            (None, Some(named)) => Consumers::Nowhere(named.into()),
            (None, None) => Consumers::All,
        };
        let (plane, project) = (info.plane.clone(), info.name.clone());
        ProviderScope { plane, project, name: name.into(), export, consumers }
    }

    /// The types that a provider's view has: those of the export, and what consumers let the provider at.
    pub(crate) fn provider_types(&self, scope: &ProviderScope) -> Arc<TypeSet> {
        let Some(export) = &scope.export else { return Arc::new(TypeSet::only(Vec::new())) };
        let mut types = match &scope.consumers {
            Consumers::One(plane) => {
                let own = self.apis.with_consumer(plane, export, |one| self.apis.types_for(export, one));
                own.map(|types| types.to_vec()).unwrap_or_default()
            }
            _ => self.apis.types_of_any(export),
        };
        let accepts =
            |plane: &PlaneId, claim: &apis::Claim| {
                self.apis.binding(plane, export).is_some_and(|binding| {
                    claim.0.verbs.iter().any(|verb| {
                        !binding.granted(export, verb, &claim.0.group, &claim.0.resource).is_empty()
                    })
                })
            };
        let is_accepted = |claim: &&apis::Claim| match &scope.consumers {
            Consumers::One(plane) => accepts(plane, claim),
            Consumers::All => self.apis.consumers(export).iter().any(|plane| accepts(plane, claim)),
            Consumers::Nowhere(_) => false,
        };
        let builtin = TypeSet::builtin();
        for claim in export.claims.iter().filter(is_accepted) {
            let versions = builtin.group(&claim.0.group).into_iter().flat_map(|group| &group.versions);
            let resource = claim.0.resource.split('/').next().unwrap_or_default();
            types
                .extend(versions.filter_map(|v| builtin.find(&claim.0.group, &v.version, resource).cloned()));
        }
        Arc::new(TypeSet::only(types))
    }

    /// Whether there is such a plane: core, infra, or that of a project.
    pub(crate) async fn exists(&self, plane: &PlaneId) -> Result<bool> {
        Ok(is_own(plane) || self.directory.find_plane(plane).await?.is_some())
    }

    /// Refuses new objects in the plane of a project that is being deleted: nothing would remove them any more.
    ///
    /// # Errors
    /// 403 for such a plane.
    pub fn check_create(&self, plane: &PlaneId) -> Result<()> {
        match self.directory.by_plane(plane).filter(|info| info.deleting) {
            Some(info) => {
                let why = "no new objects can be made in it because it is being deleted";
                Err(Status::forbidden(&resource("projects"), &info.name, why))
            }
            None => Ok(()),
        }
    }

    /// An object of the core plane, as of now.
    pub(crate) async fn core_object(&self, plural: &str, name: &str) -> Result<Arc<Entry>> {
        self.cache.catch_up().await?;
        self.known_object(plural, name).await
    }

    /// An object of the core plane, as far as it is known.
    pub(crate) async fn known_object(&self, plural: &str, name: &str) -> Result<Arc<Entry>> {
        let (group, name) = (directory::GROUP.to_owned(), name.to_owned());
        let path = ObjectPath { group, resource: plural.into(), namespace: None, name: name.clone() };
        let found = self.cache.get_cached(&PlaneId::core(), &path).await?;
        found.ok_or_else(|| Status::not_found(&resource(plural), &name))
    }

    /// Finds the pair of a plane, whether it serves the plane already or not.
    ///
    /// # Errors
    /// 404 for a plane that is no project's, 503 for a pair that is absent or not ready.
    pub async fn pair(&self, plane: &PlaneId) -> Result<DedicatedTarget> {
        let found = self.directory.find_plane(plane).await?;
        let info =
            found.ok_or_else(|| Status::not_found(&GroupResource::new("", "planes"), plane.as_str()))?;
        self.dedicated(&info).await
    }

    /// Tells when something about dedicated pairs changes, for as long as it is kept.
    pub fn pair_changes(&self) -> Arc<tokio::sync::watch::Sender<u64>> {
        self.pair_changes.of(&PlaneId::infra())
    }

    /// The uid of an organization, as far as it is known: one that comes later under its name has another.
    ///
    /// # Errors
    /// 404 where there is none.
    pub async fn organization_uid(&self, name: &str) -> Result<Arc<str>> {
        Ok(self.known_object("organizations", name).await?.uid().into())
    }

    /// The address of a project's pair, from its `ProjectControlPlane` in the infra plane.
    pub(crate) async fn dedicated(&self, info: &ProjectInfo) -> Result<DedicatedTarget> {
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
            return target.ok_or_else(not_ready);
        }
        let object = entry.value();
        let endpoint = object["status"]["endpoint"].as_str().filter(|endpoint| !endpoint.is_empty());
        let target = endpoint.map(|endpoint| DedicatedTarget {
            plane: info.plane.clone(),
            endpoint: endpoint.into(),
            server_name: format!("apiserver.project-{}.svc", info.plane).into(),
            power: Power::of(&object),
            sleep_after: object["spec"]["sleepAfterSeconds"].as_u64().map(std::time::Duration::from_secs),
        });
        self.endpoints.lock().insert(info.plane.clone(), (entry.modified, target.clone()));
        target.ok_or_else(not_ready)
    }

    /// Returns the types that a plane serves.
    ///
    /// # Errors
    /// 503 where the plane has to be loaded and the store does not answer.
    pub async fn types_of(&self, plane: &PlaneId) -> Result<Arc<TypeSet>> {
        self.types.of(&self.cache, plane, self.root.is_core().then_some(&*self.apis)).await
    }

    /// Returns the types that are served where a context leads.
    ///
    /// # Errors
    /// 503 where a plane has to be loaded and the store does not answer.
    pub async fn types(&self, target: &Target) -> Result<Arc<TypeSet>> {
        match target {
            Target::Local(plane) => self.types_of(plane).await,
            Target::Dedicated(target) => self.types_of(&target.plane).await,
            Target::Organization(scope) => self.union(&scope.name).await,
            Target::User(_) => self.types_of(&PlaneId::core()).await,
            Target::AllPlanes => self.all_types().await,
            Target::Provider(scope) => Ok(self.provider_types(scope)),
        }
    }

    /// Returns the compiled RBAC of a plane.
    ///
    /// # Errors
    /// 503 where the plane has to be loaded and the store does not answer.
    pub async fn policy(&self, plane: &PlaneId) -> Result<Arc<Policy>> {
        let bundle = match self.root.is_core() && self.apis.binds(plane) {
            true => Some(Bundle { apis: &self.apis, types: self.types_of(plane).await? }),
            false => None,
        };
        self.policies.of(&self.cache, plane, bundle).await
    }

    /// Reads an object of a plane as of now, by where it is stored.
    ///
    /// # Errors
    /// 503 where the plane has to be loaded and the store does not answer.
    pub async fn stored(&self, plane: &PlaneId, path: &ObjectPath) -> Result<Option<Arc<Entry>>> {
        self.cache.get(plane, path).await
    }

    /// A revision at or after the last change of a plane's own roles and bindings; 0 where it has none.
    ///
    /// # Errors
    /// 503 where the plane has to be loaded and the store does not answer.
    pub async fn policy_changed(&self, plane: &PlaneId) -> Result<u64> {
        let (revisions, _) = self.cache.changes(plane, policies::GROUP, policies::RESOURCES).await?;
        Ok(revisions.into_iter().flatten().max().unwrap_or(0))
    }

    /// Exports and bindings of all planes.
    pub fn apis(&self) -> &Arc<Apis> {
        &self.apis
    }

    /// Who may do what on the platform.
    pub fn people(&self) -> &Arc<People> {
        &self.people
    }

    /// Tells of each change of a plane's own roles and bindings, for as long as it is kept.
    pub fn changes_of(&self, plane: &PlaneId) -> Arc<tokio::sync::watch::Sender<u64>> {
        self.rbac_changes.of(plane)
    }

    /// Tells when something goes in a plane that identities rest on, for as long as it is kept.
    pub fn footings_of(&self, plane: &PlaneId) -> Arc<tokio::sync::watch::Sender<u64>> {
        self.footing_changes.of(plane)
    }

    /// Whether an object is there that an identity rests on. What can't be found out now counts as there.
    pub async fn stands(&self, footing: &Footing) -> bool {
        let Footing { plane, group, resource, namespace, name, uid } = footing;
        if self.cache.load(plane).await.is_err() {
            return true;
        }
        let path = ObjectPath {
            group: (*group).to_owned(),
            resource: (*resource).to_owned(),
            namespace: Some(namespace.clone()).filter(|namespace| !namespace.is_empty()),
            name: name.clone(),
        };
        let counts = |entry: Arc<Entry>| entry.uid() == uid && (!entry.is_deleting() || *resource == "pods");
        self.cache.peek(plane, &path).is_some_and(counts)
    }

    /// Returns what decides in a plane: its own roles and bindings, and the platform's above them.
    ///
    /// # Errors
    /// 503 where the plane has to be loaded and the store does not answer.
    pub async fn access(&self, plane: &PlaneId) -> Result<Access> {
        let policy = self.policy(plane).await?;
        if !self.root.is_core() {
            return Ok(policy.into());
        }
        let iam = self.people.iam().await.clone();
        let place: Place = match self.directory.by_plane(plane) {
            _ if plane.is_core() => {
                let place = people::place_in_core(self.directory.clone(), None);
                return Ok(Access::of_platform(policy, iam, place).also(people::credentials_in_core));
            }
            Some(info) => {
                let (organization, project) = (info.organization.clone(), info.name.clone());
                Arc::new(move |_| Scope::Project {
                    organization: organization.clone(),
                    project: project.clone(),
                })
            }
            None => Arc::new(|_| Scope::Platform),
        };
        let access = if is_own(plane) { Access::of_platform } else { Access::new };
        Ok(access(policy, iam, place))
    }

    /// Returns what decides in an organization's view.
    ///
    /// # Errors
    /// 503 where the core plane has to be read and the store does not answer.
    pub async fn access_of(&self, scope: &OrganizationScope) -> Result<Access> {
        let policy = self.policy(&PlaneId::core()).await?;
        let iam = self.people.iam().await.clone();
        let place = people::place_in_core(self.directory.clone(), Some(scope.name.clone()));
        Ok(Access::of_platform(policy, iam, place).also(people::credentials_in_view))
    }

    /// The organization whose objects of the core plane a question is about.
    pub fn organization_concerned(&self, asked: &Attributes<'_>) -> Option<Arc<str>> {
        match people::place_in_core(self.directory.clone(), None)(asked) {
            Scope::Organization(organization) | Scope::Project { organization, .. } => Some(organization),
            Scope::Platform | Scope::Nowhere => None,
        }
    }

    /// Whether the credential of an identity of a plane still counts there. A pair knows no project: there, certificates
    /// that a generation could end count for nothing, and those who have one come through the core server.
    pub async fn believes(&self, user: &User) -> bool {
        let Some(plane) = &user.plane else { return true };
        if !self.has_core() {
            return user.basis.as_ref().is_none_or(|basis| basis.generation.is_none());
        }
        self.directory.known_plane(plane).await.is_none_or(|project| project.believes(user))
    }

    /// Why nothing is served in a plane, where its project or its organization is suspended.
    pub async fn suspended(&self, plane: &PlaneId) -> Option<Status> {
        let info = self.directory.by_plane(plane)?;
        if let Some(reason) = &info.suspended {
            return Some(Status::forbidden(
                &resource("projects"),
                &info.name,
                &format!("it is suspended: {reason}"),
            ));
        }
        self.organization_suspended(&info.organization).await
    }

    /// Why nothing of an organization is served, where it is suspended.
    pub async fn organization_suspended(&self, organization: &str) -> Option<Status> {
        let iam = self.people.iam().await.read();
        let Suspension { reason, .. } = iam.suspended(organization)?;
        Some(Status::forbidden(
            &resource("organizations"),
            organization,
            &format!("it is suspended: {reason}"),
        ))
    }
}
