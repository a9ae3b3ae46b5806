//! Which projects there are: kept current from the core plane's objects, looked up without decoding them.

use freehold_apiserver_cache::{Cache, Entry, EventKind, ListRequest, Scope, WatchStart};
use freehold_apiserver_storage::ObjectPath;
use freehold_machinery::{PlaneId, Result};
use parking_lot::RwLock;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Weak},
};

/// The API group of organizations and projects.
pub(crate) const GROUP: &str = "resourcemanager.freehold.dev";

/// What routing needs to know of a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectInfo {
    /// Its name.
    pub name: Arc<str>,
    /// Its plane: its uid.
    pub plane: PlaneId,
    /// The organization that owns it.
    pub organization: Arc<str>,
    /// Whether a dedicated pair serves it now.
    pub dedicated: bool,
    /// Whether the project is being deleted.
    pub deleting: bool,
    modified: u64,
}

impl ProjectInfo {
    fn read(entry: &Entry) -> Option<Self> {
        let value = entry.value();
        Some(Self {
            name: entry.name().into(),
            plane: entry.uid().parse().ok()?,
            organization: value["spec"]["ownerRef"]["name"].as_str().unwrap_or_default().into(),
            dedicated: value["status"]["controlPlane"]["mode"].as_str() == Some("Dedicated")
                || value["status"]["controlPlane"].get("mode").is_none()
                    && value["spec"]["controlPlane"]["mode"] == "Dedicated",
            deleting: entry.is_deleting(),
            modified: entry.modified,
        })
    }
}

#[derive(Default)]
struct Index {
    by_name: HashMap<Arc<str>, Arc<ProjectInfo>>,
    by_plane: HashMap<PlaneId, Arc<ProjectInfo>>,
    by_organization: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
}

impl Index {
    fn put(&mut self, info: ProjectInfo) -> Arc<ProjectInfo> {
        let info = Arc::new(info);
        self.by_name.insert(info.name.clone(), info.clone());
        self.by_plane.insert(info.plane.clone(), info.clone());
        self.by_organization.entry(info.organization.clone()).or_default().insert(info.name.clone());
        info
    }

    fn remove(&mut self, name: &str) {
        let Some(info) = self.by_name.remove(name) else { return };
        self.by_plane.remove(&info.plane);
        if let Some(names) = self.by_organization.get_mut(&info.organization) {
            names.remove(name);
            if names.is_empty() {
                self.by_organization.remove(&info.organization);
            }
        }
    }
}

/// Projects by name, by plane and by organization.
pub struct Directory {
    cache: Arc<Cache>,
    index: RwLock<Index>,
}

impl Directory {
    /// Starts to follow the core plane's projects, where this server has the core plane.
    pub(crate) fn start(cache: Arc<Cache>, has_core: bool) -> Arc<Self> {
        let directory = Arc::new(Self { cache, index: RwLock::default() });
        if has_core {
            tokio::spawn(follow(Arc::downgrade(&directory)));
        }
        directory
    }

    /// A project by name, as of now: the core plane's object decides, the index only saves decoding it.
    pub async fn by_name(&self, name: &str) -> Result<Option<Arc<ProjectInfo>>> {
        let path = ObjectPath {
            group: GROUP.into(),
            resource: "projects".into(),
            namespace: None,
            name: name.into(),
        };
        let Some(entry) = self.cache.get(&PlaneId::core(), &path).await? else { return Ok(None) };
        let known = self.index.read().by_name.get(name).cloned();
        match known {
            Some(info) if info.modified == entry.modified => Ok(Some(info)),
            _ => Ok(ProjectInfo::read(&entry).map(|info| self.index.write().put(info))),
        }
    }

    /// The project of a plane.
    pub fn by_plane(&self, plane: &PlaneId) -> Option<Arc<ProjectInfo>> {
        self.index.read().by_plane.get(plane).cloned()
    }

    /// The project of a plane, as of now: one that is not in the index yet is looked for among all.
    pub async fn find_plane(&self, plane: &PlaneId) -> Result<Option<Arc<ProjectInfo>>> {
        if let Some(info) = self.by_plane(plane) {
            return Ok(Some(info));
        }
        self.cache.catch_up().await?;
        let request =
            ListRequest { plane: &PlaneId::core(), group: GROUP, resource: "projects", namespace: None };
        let listed = self.cache.list(request).await?.objects;
        let found = listed.iter().find(|(_, entry)| entry.uid() == plane.as_str());
        Ok(found.and_then(|(_, entry)| ProjectInfo::read(entry)).map(|info| self.index.write().put(info)))
    }

    /// The projects of an organization, by name.
    pub fn of_organization(&self, organization: &str) -> Vec<Arc<ProjectInfo>> {
        let index = self.index.read();
        let names = index.by_organization.get(organization);
        names.into_iter().flatten().filter_map(|name| index.by_name.get(name).cloned()).collect()
    }

    /// How many projects there are.
    pub fn len(&self) -> usize {
        self.index.read().by_name.len()
    }

    /// Whether there are no projects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

async fn follow(directory: Weak<Directory>) {
    while let Some(strong) = directory.upgrade() {
        let cache = strong.cache.clone();
        let opened = cache.watch(Scope::Plane(PlaneId::core()), GROUP, "projects", WatchStart::Now).await;
        let Ok(mut watch) = opened else {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            continue;
        };
        *strong.index.write() = Index::default();
        for (_, entry) in watch.initial.drain(..) {
            if let Some(info) = ProjectInfo::read(&entry) {
                strong.index.write().put(info);
            }
        }
        drop(strong);
        while let Some(event) = watch.next().await {
            let Some(strong) = directory.upgrade() else { return };
            let Some(change) = event.change() else { continue };
            let mut index = strong.index.write();
            match (change.kind, ProjectInfo::read(&change.entry)) {
                (EventKind::Deleted, _) | (_, None) => index.remove(change.entry.name()),
                (_, Some(info)) => drop(index.put(info)),
            }
        }
    }
}
